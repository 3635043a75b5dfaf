// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "engine/query/selection.h"
#include "steps/files.h"

namespace wflow::cli {

namespace {

using engine::Range;
using specs::ArrayId;

void add(engine::ArrayParts& parts, ArrayId array, Range range) {
  const bool joins =
      !parts.empty() && parts.back().first == array && parts.back().second.last + 1 == range.first;
  joins ? void(parts.back().second.last = range.last) : parts.push_back({array, range});
}

// Adds the tasks that made the inputs of these, sample by sample, back to the simulation: the last step of a
// chain alone would make the same output again.
void add_chains(const specs::Plan& plan, engine::ArrayParts& parts) {
  std::set<std::pair<ArrayId, engine::Element>> known;
  for (const auto& [array, range] : parts) known.insert({array, range.first});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [array, range] = parts[i];
    for (const specs::Edge& edge : plan.edges(array)) {
      if (edge.kind == specs::EdgeKind::element && known.insert({edge.parent, range.first}).second)
        parts.push_back({edge.parent, range});
    }
  }
}

}  // namespace

engine::ArrayParts done_parts(engine::Client& client, const std::vector<Stretch>& stretches) {
  engine::ArrayParts parts;
  const std::uint32_t done = 1U << static_cast<unsigned>(engine::ElementState::done);
  for (const Stretch& stretch : stretches) {
    const Range range = stretch.range;
    for (std::optional<engine::wire::TaskPlace> from = engine::wire::TaskPlace{stretch.first, range.first};
         from;) {
      const engine::wire::TasksAnswer page =
          client.tasks({*from, stretch.last, range.first, range.last, done});
      for (const auto& run : page.runs) add(parts, run.array, {run.first, run.last});
      from = page.next;
    }
  }
  return parts;
}

engine::ArrayParts done_tasks(const specs::Plan& plan, engine::Client& client,
                              const SelectionOptions& options) {
  const bool single = chooses_single_tasks(options);
  if (options.tasks.empty() && options.step.empty() && options.range.empty() && !single) {
    throw Error(ExitCode::usage,
                "name the tasks to run again: wflow redo STEP, STEP/3, STEP/1-5,7, --where EXPRESSION or "
                "--missing");
  }
  if (!single) return done_parts(client, stretches_of(plan, options));
  SelectionOptions done = options;
  if (!options.missing) done.states = {"done"};
  engine::ArrayParts parts;
  select_tasks(plan, client, done, [&](const TaskRow& row) {
    add(parts, row.array, {row.element, row.element});
    return true;
  });
  if (options.missing) add_chains(plan, parts);
  return parts;
}

namespace {

using engine::Element;

using Parts = std::vector<std::pair<ArrayId, Range>>;

void add(Parts& parts, ArrayId array, Element element) {
  const bool joins = !parts.empty() && parts.back().first == array && parts.back().second.last + 1 == element;
  joins ? void(parts.back().second.last = element) : parts.push_back({array, {element, element}});
}

// Tasks that never wrote a marker, so that a missing marker is not a deleted one.
std::set<std::pair<ArrayId, Element>> unmarked(const std::vector<engine::wire::TaskRecord>& records) {
  constexpr int kStopWorkers = 105;
  std::set<std::pair<ArrayId, Element>> tasks;
  for (const auto& record : records) {
    if (record.reason == "exited" && record.exit_code == kStopWorkers)
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
