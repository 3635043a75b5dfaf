// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/schedule/states.h"

namespace wflow::engine {

// `reason`: an EndReason. "exit code 3", "signal 9 (Killed)", "killed at its time limit", ...
std::string describe_end(int reason, int exit_code);

// Why a conversion leaves a sample out whose task of this step ended so; and whether a reason is one of these.
std::string reason_left_out(const std::string& step, ElementState state);
bool is_left_out(std::string_view reason);

}  // namespace wflow::engine
