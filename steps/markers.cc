// SPDX-License-Identifier: Apache-2.0
#include "steps/markers.h"

#include "steps/kinds.h"

namespace wflow::steps {

bool leaves_marker(const specs::TaskTemplate& task) {
  return task.kind == specs::StepKind::shell && task.bundle == 0 && task.output == specs::OutputMode::files;
}

std::filesystem::path finished_marker(const specs::TaskTemplate& task, specs::Element element) {
  return std::filesystem::path(working_directory(task, element)) / kFinishedMarker;
}

}  // namespace wflow::steps
