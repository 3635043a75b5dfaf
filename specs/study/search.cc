// SPDX-License-Identifier: Apache-2.0
// search: of a train: step. Each rung is a step of its own, which waits for all trainings of the one before;
// the last one has the step's name, so that others can wait for it.
#include <fmt/format.h>

#include <algorithm>

#include "specs/plan/expansion.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"

namespace wflow::specs {

namespace {

std::string rung_name(const std::string& step, std::size_t rung) {
  return step + rung_suffix(static_cast<int>(rung));
}

// Epochs of each; empty: it is no search, or a wrong one.
std::vector<std::int64_t> read_rungs(Reading& reading, const Step& step) {
  const yaml::Node* search = step.kind == StepKind::train ? step.settings.find("search") : nullptr;
  if (search == nullptr) return {};
  for (const std::string& key : campaign_search_keys()) {
    const yaml::Node* value = search->find(key);
    if (value != nullptr)
      reading.diagnostics.error(value->mark,
                                fmt::format("'{}' of search: is set by the campaign itself", key));
  }
  return search_rungs(*search, reading.diagnostics);
}

// Where the step is served, its rungs are.
void serve_rungs(Study& study, const std::string& step, std::size_t rungs) {
  for (WorkerGroup& group : study.workers) {
    if (std::ranges::find(group.steps, step) == group.steps.end()) continue;
    for (std::size_t rung = 1; rung < rungs; ++rung) group.steps.push_back(rung_name(step, rung));
  }
}

std::vector<Step> rungs_of(const Step& step, std::size_t rungs) {
  std::vector<Step> list;
  for (std::size_t rung = 1; rung <= rungs; ++rung) {
    Step& next = list.emplace_back(step);
    set_key(*next.settings.find("search"), "rung", yaml::scalar(std::to_string(rung)));
    if (rung < rungs) next.name = rung_name(step.name, rung);
    if (rung == 1) continue;
    next.depends.push_back({rung_name(step.name, rung - 1), true});
    // A training that has failed is not among the best: the others go on.
    if (!next.continue_on) next.continue_on = ContinueOn::soft_fail;
  }
  return list;
}

}  // namespace

void expand_searches(Reading& reading) {
  Study& study = reading.study;
  const std::vector<std::string> names = step_names(study);
  std::vector<Step> steps;
  for (Step& step : study.steps) {
    const std::size_t rungs = read_rungs(reading, step).size();
    if (rungs < 2) {
      steps.push_back(std::move(step));
      continue;
    }
    for (std::size_t rung = 1; rung <= rungs; ++rung) {
      if (std::ranges::find(names, rung_name(step.name, rung)) != names.end())
        reading.diagnostics.error(step.mark,
                                  fmt::format("the step name '{}' is taken by a rung of the search of '{}'",
                                              rung_name(step.name, rung), step.name));
    }
    serve_rungs(study, step.name, rungs);
    std::ranges::move(rungs_of(step, rungs), std::back_inserter(steps));
  }
  study.steps = std::move(steps);
}

void check_search(Reading& reading, const Expansion& expansion, std::size_t index) {
  const Step& step = reading.study.steps[index];
  if (!search_rung(step) || expansion.count(index) > 1) return;
  reading.diagnostics.warning(
      step.settings.find("search")->mark,
      fmt::format("'search' chooses among several trainings, and the step '{}' makes one, which goes through "
                  "all rungs; let its train: block name parameters of the study",
                  step.name));
}

}  // namespace wflow::specs
