// SPDX-License-Identifier: Apache-2.0
// A campaign that grows: its study with more samples behind those that it has.
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

// What is to be more; one of them.
struct Growth {
  std::uint64_t count = 0;        // samples in all, of the design that the study has
  std::filesystem::path samples;  // a table that begins with the campaign's samples
  std::filesystem::path append;   // a table of further samples alone
  // With `count`: the further ones are of a design of their own, over these ranges (column, "LOW:HIGH").
  std::vector<std::pair<std::string, std::string>> ranges;
};

// `now`, a later text of the study of the campaign that `old` was read from, read again so that what the
// samples that are there have become does not change (ReadOptions::grown). Nothing where its samples are not
// more, or do not go on from the old ones.
std::optional<Study> as_grown(const Study& old, const Study& now);

// The campaign's study with more samples: its text, where that has a place for them, or its options.
// `options` are those to read it with. Error{usage} or Error{spec} that says why the samples can't become so.
Study grown_study(const Study& old, const ReadOptions& options, const Growth& growth);

// Of the study's text: the number of samples is `count`, where it stands as a number. Nothing where it is a
// variable, whose name is put into `variable`.
std::optional<std::string> with_count(const std::string& text, std::uint64_t count, std::string& variable);

// One more design, written on one line, behind those of the block samples:. Error{usage} where the samples
// are Merlin's, which are one table.
std::string with_design(const std::string& text, std::string_view design);

}  // namespace wflow::specs
