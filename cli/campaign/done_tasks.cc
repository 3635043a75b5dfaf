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

constexpr Range kAll{0, static_cast<engine::Element>(std::numeric_limits<std::int64_t>::max())};

struct Named {
  std::vector<ArrayId> arrays;
  Range range = kAll;
};

std::optional<std::vector<ArrayId>> arrays_named(const specs::Plan& plan, const std::string& name) {
  std::vector<ArrayId> arrays;
  for (const specs::PlannedStep& step : plan.steps()) {
    const bool is_step = step.name == name || plan.study().steps[step.study_step].name == name;
    // The arrays of a parameter's value have names like simulate/OMEGA.0.3.
    const bool may_be = is_step || name.starts_with(step.name + "/");
    for (ArrayId array = step.first_array; may_be && array < step.first_array + step.arrays; ++array) {
      if (is_step || plan.array_name(array) == name) arrays.push_back(array);
    }
  }
  if (arrays.empty()) return std::nullopt;
  return arrays;
}

Named named(const specs::Plan& plan, const std::string& word) {
  if (auto arrays = arrays_named(plan, word)) return {std::move(*arrays), kAll};
  const std::size_t slash = word.rfind('/');
  if (slash != std::string::npos) {
    if (auto arrays = arrays_named(plan, word.substr(0, slash)))
      return {std::move(*arrays), parse_range(word.substr(slash + 1))};
  }
  engine::arrays_of_step(plan, word.substr(0, word.find('/')));  // throws with the names of the steps
  throw Error(ExitCode::usage,
              fmt::format("'{}' is no step of the study, nor a part of one such as simulate/100:199", word));
}

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

void add_task_choice(CLI::App& command, TaskChoice& choice, std::string& campaign) {
  command
      .add_option_function<std::vector<std::string>>(
          "campaign-and-tasks",
          [&choice, &campaign](const std::vector<std::string>& words) {
            choice.words = words;
            // A single word that is a folder is a campaign: wflow redo DIR --missing.
            if (words.size() > 1 || std::filesystem::is_directory(words.front())) {
              campaign = words.front();
              choice.words.erase(choice.words.begin());
            }
          },
          "the campaign (default: the newest here), then the tasks: simulate, simulate/12, simulate/100:199")
      ->expected(0, 2)
      ->type_name("[CAMPAIGN] TASKS");
  command.add_option("--step", choice.step, "of this step only");
  command.add_option("--where", choice.where, "an expression, for example \"omega_m > 0.3\"");
  command.add_flag("--missing", choice.missing,
                   "those whose output a conversion could not use, and what it was made of");
}

engine::ArrayParts done_parts(engine::Client& client, const std::vector<ArrayId>& arrays, Range range) {
  engine::ArrayParts parts;
  for (std::size_t begin = 0; begin < arrays.size();) {
    std::size_t end = begin + 1;
    while (end < arrays.size() && arrays[end] == arrays[end - 1] + 1) ++end;
    const std::uint32_t done = 1U << static_cast<unsigned>(engine::ElementState::done);
    for (std::optional<engine::wire::TaskPlace> from = engine::wire::TaskPlace{arrays[begin], range.first};
         from;) {
      const engine::wire::TasksAnswer page =
          client.tasks({*from, arrays[end - 1], range.first, range.last, done});
      for (const auto& run : page.runs) add(parts, run.array, {run.first, run.last});
      from = page.next;
    }
    begin = end;
  }
  return parts;
}

engine::ArrayParts done_tasks(const specs::Plan& plan, engine::Client& client, const TaskChoice& choice) {
  if (choice.words.empty() && choice.step.empty() && choice.where.empty() && !choice.missing) {
    throw Error(ExitCode::usage,
                "name the tasks to run again: wflow redo STEP[/RANGE], --where EXPRESSION or --missing");
  }
  Named tasks;
  if (!choice.words.empty()) {
    tasks = named(plan, choice.words.front());
    if (!choice.step.empty())
      throw Error(ExitCode::usage, "name the step once: as the tasks, or with --step");
  } else {
    tasks.arrays = engine::arrays_of_step(plan, choice.step);
  }
  if (choice.where.empty() && !choice.missing) return done_parts(client, tasks.arrays, tasks.range);
  SelectionOptions options;
  options.where = choice.where;
  options.states = {choice.missing ? "missing" : "done"};
  engine::ArrayParts parts;
  select_tasks(plan, client, options, [&](const TaskRow& row) {
    const bool meant = row.element >= tasks.range.first && row.element <= tasks.range.last &&
                       std::find(tasks.arrays.begin(), tasks.arrays.end(), row.array) != tasks.arrays.end();
    if (meant) add(parts, row.array, {row.element, row.element});
    return true;
  });
  if (choice.missing) add_chains(plan, parts);
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
