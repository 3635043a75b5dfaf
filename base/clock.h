// SPDX-License-Identifier: Apache-2.0
// The two clocks of every process. State machines take neither: the time reaches them as an event.
#pragma once

#include <chrono>

namespace wflow {

// Seconds since an arbitrary moment of this boot: for intervals, deadlines and durations.
inline double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Unix time: for dates that people read.
inline double unix_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace wflow
