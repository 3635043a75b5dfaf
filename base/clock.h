// SPDX-License-Identifier: Apache-2.0
// The two clocks of every process. State machines use neither: each event carries its time.
#pragma once

#include <time.h>

namespace wflow {

inline double clock_now_s(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds since the boot, for intervals, deadlines and durations. Time in which the machine is suspended
// counts: a fence that passed meanwhile has passed.
inline double steady_now_s() {
  return clock_now_s(CLOCK_BOOTTIME);
}

// Unix time, for dates that users read. May jump.
inline double unix_now_s() {
  return clock_now_s(CLOCK_REALTIME);
}

}  // namespace wflow
