// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/markers.h"

#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "steps/files.h"

namespace wflow::cli {

namespace {

using engine::ArrayId;
using engine::Element;
using engine::Range;

using Parts = std::vector<std::pair<ArrayId, Range>>;

void add(Parts& parts, ArrayId array, Element element) {
  const bool joins = !parts.empty() && parts.back().first == array && parts.back().second.last + 1 == element;
  joins ? void(parts.back().second.last = element) : parts.push_back({array, {element, element}});
}

// Without a marker although nobody has deleted it.
std::set<std::pair<ArrayId, Element>> unmarked(const std::vector<engine::wire::TaskRecord>& records) {
  constexpr int kDry = 103, kStopWorkers = 105;
  std::set<std::pair<ArrayId, Element>> tasks;
  for (const auto& record : records) {
    if (record.reason == "exited" && (record.exit_code == kDry || record.exit_code == kStopWorkers))
      tasks.emplace(record.array, record.element);
  }
  return tasks;
}

}  // namespace

Parts lost_markers(const specs::Plan& plan, engine::Client& client) {
  Parts lost;
  if (plan.array_count() == 0) return lost;
  engine::wire::TasksRequest request;
  request.last_array = plan.array_count() - 1;
  request.last = std::numeric_limits<Element>::max();
  request.states = 1U << static_cast<unsigned>(engine::ElementState::done);
  specs::TaskTemplate task;
  std::optional<ArrayId> of;
  while (true) {
    const engine::wire::TasksAnswer page = client.tasks(request);
    const auto expected = unmarked(page.records);
    for (const auto& run : page.runs) {
      if (of != run.array) task = plan.task_template(run.array);
      of = run.array;
      if (!steps::leaves_marker(task)) continue;
      for (Element element = run.first; element <= run.last; ++element) {
        std::error_code ignored;
        if (std::filesystem::exists(steps::finished_marker(task, element), ignored)) continue;
        if (!expected.contains({run.array, element})) add(lost, run.array, element);
      }
    }
    if (!page.next) return lost;
    request.from = *page.next;
  }
}

}  // namespace wflow::cli
