// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wflow {
extern const char* const kVersion;  // "0.1.0"
extern const bool kHasConverter;    // wflow-convert was built (-DWFLOW_HDF5=ON)
extern const bool kHasTrainer;      // wflow-train was built (-DWFLOW_TRAINER=ON)
}  // namespace wflow
