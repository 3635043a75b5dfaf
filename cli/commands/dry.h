// SPDX-License-Identifier: Apache-2.0
// wflow run --dry: a campaign with every directory and script that its tasks would have, and nothing run.
#pragma once

#include "specs/plan/plan.h"

namespace wflow::cli {

// Throws Error{usage} for a plan that would make too many scripts.
void check_dry(const specs::Plan& plan);

int write_scripts(const specs::Plan& plan, bool quiet);

}  // namespace wflow::cli
