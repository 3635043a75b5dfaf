// SPDX-License-Identifier: Apache-2.0
#include "engine/query/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace wflow::engine {

std::vector<ArrayId> arrays_of_step(const specs::Plan& plan, const std::string& step) {
  std::vector<ArrayId> arrays;
  std::vector<std::string> names;
  for (const specs::PlannedStep& planned : plan.steps()) {
    const std::string& of_study = plan.study().steps[planned.study_step].name;
    for (const std::string& name : {planned.name, of_study}) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    if (!step.empty() && step != planned.name && step != of_study) continue;
    for (ArrayId array = planned.first_array; array < planned.first_array + planned.arrays; ++array)
      arrays.push_back(array);
  }
  if (arrays.empty()) {
    throw Error(ExitCode::usage,
                fmt::format("no step '{}' in this campaign{}", step, text::suggestion(step, names)));
  }
  return arrays;
}

std::set<std::size_t> steps_beyond(const specs::Plan& plan, const std::string& step) {
  std::set<std::size_t> beyond;
  for (std::size_t i = 0; i < plan.steps().size(); ++i) beyond.insert(i);
  std::vector<std::size_t> open;
  for (const ArrayId array : arrays_of_step(plan, step)) open.push_back(plan.step_of(array));
  while (!open.empty()) {
    const std::size_t needed = open.back();
    open.pop_back();
    if (beyond.erase(needed) == 0) continue;
    for (const specs::Edge& edge : plan.steps()[needed].edges) open.push_back(plan.step_of(edge.parent));
  }
  return beyond;
}

std::vector<std::pair<ArrayId, Range>> parts_named(const specs::Plan& plan,
                                                   const wire::Selection& selection) {
  std::vector<std::pair<ArrayId, Range>> named;
  const auto add = [&](ArrayId array, Range range) {
    if (array >= plan.array_count()) return;
    const std::uint64_t count = plan.steps()[plan.step_of(array)].elements;
    if (count == 0 || range.first >= count || range.first > range.last) return;
    named.push_back({array, {range.first, std::min(range.last, count - 1)}});
  };
  if (selection.chosen) {
    for (const wire::Part& part : selection.parts) add(part.array, {part.first, part.last});
    return named;
  }
  const Range everything{0, std::numeric_limits<specs::Element>::max()};
  const Range range = selection.ranged ? Range{selection.first, selection.last} : everything;
  for (const ArrayId array : arrays_of_step(plan, selection.step)) add(array, range);
  return named;
}

bool is_everything(const wire::Selection& selection) {
  return selection.step.empty() && !selection.ranged && !selection.by_exit_code && !selection.chosen;
}

}  // namespace wflow::engine
