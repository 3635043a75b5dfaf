// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wflow::engine {

// Work that a worker should have ahead of it, in seconds a core: long enough to hide a round trip and a group
// commit, short enough to stay balanced. It is topped up when half of it is gone. A worker that has been idle
// for so long is given what others have not started.
inline constexpr double kAhead_s = 0.5;

}  // namespace wflow::engine
