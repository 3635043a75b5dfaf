// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wflow {
extern const char* const kVersion;  // "0.2.0"
extern const bool kHasConverter;    // wflow-convert was built (-DWFLOW_HDF5=ON)
extern const bool kHasTrainer;      // wflow-train was built (-DWFLOW_TRAINER=ON)
extern const bool kHasTorch;        // wflow-train was built with libtorch (-DWFLOW_TORCH=ON)
extern const bool kTrainsOnMpich;   // wflow-train was built with MPICH, not with Open MPI (-DWFLOW_MPI=mpich)
}  // namespace wflow
