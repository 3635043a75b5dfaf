// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wflow {

// Whether this process may start so many threads more: 0, or the errno that says why not. For libraries that
// end the process where they may not.
int try_threads(int count);

}  // namespace wflow
