// SPDX-License-Identifier: Apache-2.0
// Files beside the study that a step's command names: they are sources without being declared.
#pragma once

#include <string>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

// Paths in `cmd` and `restart` that begin with the study's folder, $(SPECROOT), relative to it, in the order of the
// text; none with `sources: none`. What a shell writes to (> FILE, tee FILE, touch FILE) and names that differ from
// task to task are left out. Whether the files exist is not looked at.
std::vector<std::string> named_files(const Study& study, const Step& step);

}  // namespace wflow::specs
