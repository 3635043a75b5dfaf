// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

namespace wflow {
// CMake defines WFLOW_VERSION for this file only, so that a new version does not recompile everything.
const char* const kVersion = WFLOW_VERSION;
#ifdef WFLOW_HDF5
const bool kHasConverter = true;
#else
const bool kHasConverter = false;
#endif
#ifdef WFLOW_TRAINER
const bool kHasTrainer = true;
#else
const bool kHasTrainer = false;
#endif
#ifdef WFLOW_TORCH
const bool kHasTorch = true;
#else
const bool kHasTorch = false;
#endif
#ifdef WFLOW_TRAINS_ON_MPICH
const bool kTrainsOnMpich = true;
#else
const bool kTrainsOnMpich = false;
#endif
}  // namespace wflow
