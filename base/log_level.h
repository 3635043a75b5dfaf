// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace wflow {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error };

}  // namespace wflow
