// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace wflow::cli {

// The scheduler whose allocation this process runs in, the innermost one; empty outside of any.
std::string scheduler_around();

}  // namespace wflow::cli
