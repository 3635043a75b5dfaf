// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace wflow::engine {

// `reason`: an EndReason. "exit code 3", "signal 9 (Killed)", "killed at its time limit", ...
std::string describe_end(int reason, int exit_code);

}  // namespace wflow::engine
