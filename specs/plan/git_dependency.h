// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "specs/study/study.h"

namespace wflow::specs {

// Clones a repository to <path>/<name> where nothing has that name. It gets its name when it is complete: a
// clone that is killed leaves only a hidden directory beside it. Throws Error{system} with git's message.
void clone_dependency(const GitDependency& git);

}  // namespace wflow::specs
