// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace wflow::engine {

// For intervals.
inline double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// For records that people read.
inline double unix_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace wflow::engine
