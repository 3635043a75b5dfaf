// SPDX-License-Identifier: Apache-2.0
// Checks that the samples of a campaign continue: all of its rows keep their numbers and values.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "specs/samples/samples.h"

namespace wflow::specs {

namespace {

bool same_range(const SampleColumn& a, const SampleColumn& b) {
  return a.low == b.low && a.high == b.high && a.log == b.log && a.integer == b.integer &&
         a.values == b.values;
}

// A row of these is a function of its number, the seed and the columns; of a Latin hypercube, of the counts
// that it grew through, too.
bool same_computed_rows(const SampleDesign& old, const SampleDesign& now) {
  const bool computed = old.kind == DesignKind::uniform || old.kind == DesignKind::latin_hypercube ||
                        old.kind == DesignKind::sobol || old.kind == DesignKind::halton;
  if (!computed || old.kind != now.kind || old.seed != now.seed || old.columns.size() != now.columns.size())
    return false;
  if (!std::equal(old.columns.begin(), old.columns.end(), now.columns.begin(), same_range)) return false;
  if (old.kind != DesignKind::latin_hypercube) return true;
  std::vector<std::uint64_t> counts = old.grown;
  counts.push_back(old.count);
  std::vector<std::uint64_t> later = now.grown;
  later.push_back(now.count);
  return counts.size() <= later.size() && std::equal(counts.begin(), counts.end(), later.begin());
}

const SampleDesign& first_part(const SampleDesign& design) {
  return design.kind == DesignKind::parts ? design.parts.front() : design;
}

std::vector<SampleDesign> parts_of(const SampleDesign& design) {
  return design.kind == DesignKind::parts ? design.parts : std::vector<SampleDesign>{design};
}

// True if all parts but the last are complete and equal, and the last one continues.
bool same_parts(const SampleDesign& old, const SampleDesign& now) {
  const auto before = parts_of(old);
  const auto after = parts_of(now);
  if (before.size() > after.size()) return false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool last = i + 1 == before.size();
    const bool may_grow = last && i + 1 == after.size();
    if (may_grow ? after[i].count < before[i].count : after[i].count != before[i].count) return false;
    if (!same_computed_rows(before[i], after[i])) return false;
  }
  return true;
}

std::optional<std::string> row_problem(const SampleTable& old, const SampleTable& now) {
  for (std::uint64_t row = 0; row < old.count(); ++row) {
    for (std::size_t column = 0; column < old.columns().size(); ++column) {
      const std::string before = old.text(row, column);
      const std::string after = now.text(row, column);
      if (before == after) continue;
      return fmt::format("sample {} has {} = {}, in the campaign it has {}", row, old.columns()[column],
                         after, before);
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> column_names(const SampleDesign& design) {
  std::vector<std::string> names;
  for (const SampleColumn& column : design.columns) names.push_back(column.name);
  return names;
}

std::vector<std::uint64_t> block_starts(const SampleDesign& design) {
  std::vector<std::uint64_t> starts = design.grown;
  std::uint64_t end = 0;
  for (const SampleDesign& part : design.parts) {
    starts.push_back(end);
    end += part.count;
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::erase_if(starts, [&](std::uint64_t start) { return start == 0 || start >= design.count; });
  return starts;
}

std::optional<std::string> growth_problem(const SampleDesign& old, const SampleDesign& now) {
  const auto names = column_names(first_part(now));
  if (names != column_names(first_part(old))) {
    return fmt::format("the samples have the columns {}, those of the campaign {}", text::join(names, ", "),
                       text::join(column_names(first_part(old)), ", "));
  }
  if (now.count < old.count) {
    return fmt::format("there are {} samples, the campaign has {}", text::format_count(now.count),
                       text::format_count(old.count));
  }
  if (same_parts(old, now)) return std::nullopt;
  return row_problem(*open_samples(old), *open_samples(now));
}

}  // namespace wflow::specs
