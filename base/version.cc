// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

namespace wflow {
// CMake defines WFLOW_VERSION and the parts, 0 or 1, for this file only, so that a new version does not
// recompile everything.
const char* const kVersion = WFLOW_VERSION;
const bool kHasConverter = WFLOW_HDF5 != 0;
const bool kHasTrainer = WFLOW_TRAINER != 0;
const bool kHasTorch = WFLOW_TORCH != 0;
const bool kTrainsOnMpich = WFLOW_TRAINS_ON_MPICH != 0;
}  // namespace wflow
