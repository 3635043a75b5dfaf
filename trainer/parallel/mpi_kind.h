// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wflow::trainer {

// True if this program was linked with MPICH or a library of its interface, false for Open MPI.
bool built_with_mpich();

}  // namespace wflow::trainer
