// SPDX-License-Identifier: Apache-2.0
// How the communication thread waits for other ranks. For the sources of this folder that make MPI calls.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <functional>
#include <span>

namespace wflow::trainer {

// Between two tests of whatever is waited for; `tests` counts them. Serves what must not wait, gives the core
// away.
using Pause = std::function<void(int tests)>;

// Waits until all requests are complete.
inline void complete(std::span<MPI_Request> requests, const Pause& pause) {
  for (int tests = 1;; ++tests) {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) return;
    pause(tests);
  }
}

}  // namespace wflow::trainer
