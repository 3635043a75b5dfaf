// SPDX-License-Identifier: Apache-2.0
#include "base/version.h"

namespace wflow {
// Defined for this one file, so that a new version does not compile everything again.
const char* const kVersion = WFLOW_VERSION;
#ifdef WFLOW_TRAINER
const bool kHasTrainer = true;
#else
const bool kHasTrainer = false;
#endif
}  // namespace wflow
