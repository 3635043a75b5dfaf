// SPDX-License-Identifier: Apache-2.0
// When elements that failed may run again.
#pragma once

#include <map>
#include <optional>

#include "engine/schedule/types.h"

namespace wflow::engine {

// Entries of elements that have moved on meanwhile stay until they are due: Scheduler compares with
// Attempt::due_s.
class RetryClock {
 public:
  struct Due {
    ArrayId array = 0;
    Element element = 0;
    double due_s = 0;
  };

  void add(const Due& due) { delayed_.emplace(due.due_s, due); }

  // One that is due by now.
  std::optional<Due> take_due(double now_s) {
    if (delayed_.empty() || delayed_.begin()->first > now_s) return std::nullopt;
    const Due due = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    return due;
  }

  std::optional<double> next_due_s() const {
    if (delayed_.empty()) return std::nullopt;
    return delayed_.begin()->first;
  }

 private:
  std::multimap<double, Due> delayed_;
};

}  // namespace wflow::engine
