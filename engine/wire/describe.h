// SPDX-License-Identifier: Apache-2.0
// Messages as one line of text, for logs at the level `trace` and for the simulator (docs/logging.md).
#pragma once

#include <string>

#include "engine/wire/messages.h"

namespace wflow::engine::wire {

// Of long lists only the beginning. What a peer wrote is cut and has no control characters.
std::string describe(const Message& message);
std::string describe(const Lease& lease);
std::string describe(const Results& results);

}  // namespace wflow::engine::wire
