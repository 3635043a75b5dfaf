// SPDX-License-Identifier: Apache-2.0
// Commands: inserts the values of a sample, and finds commands that need no shell (docs/launching.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "specs/plan/template.h"
#include "specs/samples/samples.h"

namespace wflow::steps {

// True if the text differs from sample to sample.
bool has_sample_tokens(const specs::Pieces& pieces);

// Throws Error{data} when `pieces` name a column or row that `samples` lacks.
void check_columns(const specs::Pieces& pieces, const specs::SampleTable* samples);

// The samples of one process of a bundled step.
struct BundleRows {
  std::string file;  // absolute path of samples_csv()
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// Returns the command for sample `row`. Pieces that name a bundle's samples need `bundle`, else Error{data}.
std::string render(const specs::Pieces& pieces, const specs::SampleTable* samples, std::uint64_t row,
                   std::string_view sample_path, const BundleRows* bundle = nullptr);

// Returns the samples of a process as CSV: a line of names, then MERLIN_SAMPLE_ID and all columns for each
// sample, with the same cells as in commands.
std::string samples_csv(const specs::SampleTable& samples, std::uint64_t first, std::uint64_t count);

// Returns the words of a command that every POSIX shell and bash would take literally. No value if it
// contains anything that a shell interprets (expansions, globs, redirections, lists, comments, assignments
// before the command, several lines), a quote that is not plain, or a letter beyond ASCII outside quotes.
std::optional<std::vector<std::string>> plain_words(std::string_view command);

// True if a shell would not run the program of this name: builtins and reserved words. False for `true` and
// `false`, whose programs do the same.
bool is_shell_word(std::string_view name);

// Returns the program that a shell would start for `name` in a task with this environment ("KEY=value" each):
// a path, or `name` itself if it has a slash. No value if only a shell can tell: a builtin, a program that is
// not found, relative parts in PATH, or an environment that changes bash (BASH_ENV, SHELLOPTS, BASHOPTS, a
// function of that name).
std::optional<std::string> program_path(const std::string& name, std::span<const std::string> environment);

// True if `interpreter` (the words of a "#!" line) takes a script's text after "-c".
bool takes_text(std::span<const std::string> interpreter);

}  // namespace wflow::steps
