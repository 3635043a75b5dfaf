// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wflow {

// The time of an event, as state machines take it. `steady_s` never goes back and counts suspended time
// (base/clock.h); `unix_s` is for records that people read, and may jump.
struct Now {
  double steady_s = 0;
  double unix_s = 0;
};

}  // namespace wflow
