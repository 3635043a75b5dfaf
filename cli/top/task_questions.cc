// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <variant>

#include "cli/top/feed.h"
#include "cli/top/step_tasks.h"

namespace wflow::cli::top {

namespace {

TaskQuestions questions(const specs::Plan& plan, std::string step, specs::ArrayId first, specs::ArrayId last,
                        TaskQuestions::Wanted wanted) {
  const auto name_of = [&plan](specs::ArrayId array, specs::Element element) {
    return array < plan.array_count() ? specs::task_name(plan, array, element)
                                      : std::string("a removed task");
  };
  return {std::move(step), first, last, wanted, name_of};
}

specs::ArrayId last_array(const specs::Plan& plan) {
  return static_cast<specs::ArrayId>(std::max<std::size_t>(plan.array_count(), 1) - 1);
}

}  // namespace

TaskQuestions questions_about_step(const specs::Plan& plan, const std::string& step) {
  using Wanted = TaskQuestions::Wanted;
  const auto found = std::ranges::find(plan.steps(), step, &specs::PlannedStep::name);
  if (found == plan.steps().end()) return questions(plan, step, 0, last_array(plan), Wanted::failures);
  const specs::ArrayId last = found->first_array + found->arrays - 1;
  return questions(plan, step, found->first_array, last, Wanted::failures_and_slowest);
}

TaskQuestions questions_about_failures(const specs::Plan& plan) {
  return questions(plan, "", 0, last_array(plan), TaskQuestions::Wanted::failures);
}

StepTasks all_answers(engine::Client& client, TaskQuestions questions) {
  while (const auto request = questions.next()) {
    if (const auto* page = std::get_if<wire::TasksRequest>(&*request)) questions.take(client.tasks(*page));
    if (const auto* page = std::get_if<wire::UsageRequest>(&*request)) questions.take(client.usage(*page));
  }
  return questions.tasks();
}

}  // namespace wflow::cli::top
