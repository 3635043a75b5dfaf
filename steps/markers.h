// SPDX-License-Identifier: Apache-2.0
// MERLIN_FINISHED: the empty file that a task leaves in its directory when it has ended with 0, as Merlin has
// it. The one place that knows which tasks leave one, and where.
#pragma once

#include <filesystem>

#include "specs/plan/template.h"

namespace wflow::steps {

inline constexpr const char* kFinishedMarker = "MERLIN_FINISHED";

// Whether each element of the array leaves a marker of its own. Not those that share a directory (bundle:) or
// have none (packed output), nor conversions and trainings.
bool leaves_marker(const specs::TaskTemplate& task);

// Where it leaves it. The file need not be there.
std::filesystem::path finished_marker(const specs::TaskTemplate& task, specs::Element element);

}  // namespace wflow::steps
