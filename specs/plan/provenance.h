// SPDX-License-Identifier: Apache-2.0
// merlin_info/<study>.expanded.yaml: the study with everything put in, for people and for Merlin's own tools.
#pragma once

#include "base/yaml.h"
#include "specs/study/study.h"

namespace wflow::specs {

// Of a file of Merlin's with the keys that it leaves out at Merlin's defaults (batch:, run:, merlin:), which
// `merlin detailed-status` looks for.
yaml::Node expanded_copy(const Study& study);

}  // namespace wflow::specs
