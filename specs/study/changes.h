// SPDX-License-Identifier: Apache-2.0
// How the study of a campaign changes: the keys in which two files differ, and growth by further samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

struct KeyChange {
  std::string key;                    // "study.simulate.run.cmd"
  std::optional<std::string> before;  // as YAML; nothing: the key was absent
  std::optional<std::string> after;
};

std::vector<KeyChange> differences(const Study& from, const Study& to);

// Lines for a terminal: "study.train.train.epochs: 2 -> 4"; texts of several lines line by line, with - and
// +.
std::vector<std::string> lines_of(const KeyChange& change);

// The further samples of a growing campaign, in one of three forms.
struct Growth {
  std::uint64_t count = 0;        // number of all samples, of the study's design
  std::filesystem::path samples;  // a table that begins with the campaign's samples
  std::filesystem::path append;   // a table of only the further samples
  // With `count`: the further samples have a design of their own, over these ranges (column, "LOW:HIGH").
  std::vector<std::pair<std::string, std::string>> ranges;
};

// Reads `now`, a later text of the study of the campaign that `old` was read from, again so that the results
// of existing samples do not change (ReadOptions::grown). Nothing if it has no further samples, or they do
// not continue the old ones.
std::optional<Study> as_grown(const Study& old, const Study& now);

// The campaign's study with more samples: changes its text, if that has a place for them, or its options.
// `options`: the options to read it with. Error{usage} or Error{spec} with the reason if the samples cannot
// grow that way.
Study grown_study(const Study& old, const ReadOptions& options, const Growth& growth);

// The study's text with `count` as the number of samples, if the text has a number there. Nothing if it has a
// variable, whose name goes into `variable`.
std::optional<std::string> with_count(const std::string& text, std::uint64_t count, std::string& variable);

// The study's text with one more design, on one line, behind those of the block samples:. Error{usage} for
// Merlin's samples, which are one table.
std::string with_design(const std::string& text, std::string_view design);

}  // namespace wflow::specs
