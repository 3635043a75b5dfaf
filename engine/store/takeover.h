// SPDX-License-Identifier: Apache-2.0
// What the record of a campaign becomes when its study changes, or when tasks that are done are to run again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/types.h"
#include "engine/store/batch.h"

namespace wflow::engine::store {

// An array of the plan from now on.
struct TakenArray {
  std::optional<ArrayId> from;  // its number until now
  std::vector<Range> open;      // in order and disjoint: what does not keep how it ended, its attempts and reports
  // Elements that were skipped, or cancelled with what they waited for, are judged anew.
  bool judge_skipped = false;
};

struct SourcesRow {
  std::int64_t id = 0;
  std::string step;
  double time_s = 0;
  std::uint64_t study = 0;
  std::string files;  // JSON, see engine/update/sources.h
};

struct Takeover {
  std::vector<TakenArray> arrays;  // all of the plan
  std::uint64_t study = 0;         // its version
  std::vector<HistoryRow> history;
  // All that is done is made with the newest sources of its step now (Changes made the rest open).
  bool forget_made = false;
  std::vector<SourcesRow> sources;
  std::string aside;  // names the work that follows on it (engine/update/aside.h)
};

struct MadeRow {
  ArrayId array = 0;
  Range range;
  std::int64_t sources = 0;
};

}  // namespace wflow::engine::store
