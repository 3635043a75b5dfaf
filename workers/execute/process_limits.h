// SPDX-License-Identifier: Apache-2.0
// The limits of `ulimit`: said by name where one of them is why something cannot be done.
#pragma once

#include <string>

namespace wflow::workers {

// "; the limit on open files is 10 (ulimit -n)" where `error_number` speaks of a limit, else nothing.
std::string limit_behind(int error_number);

// Whether this process may open the files and start the threads that it needs in any case. Throws
// Error{system}: some libraries abort where they may not.
void check_limits();

}  // namespace wflow::workers
