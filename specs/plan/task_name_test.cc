// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/task_name.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

Plan three_steps() {
  return StudyText(R"yaml(
description: {name: n}
parameters: {A: [1, 2]}
samples: {design: sobol, count: 30, parameters: {x: [0, 1]}}
study:
  - {name: sim, run: {cmd: "echo $(x)"}}
  - {name: sweep, run: {cmd: "echo $(x) $(A)"}}
  - {name: train, run: {cmd: "true", depends: [sim_*]}}
)yaml")
      .plan();
}

std::string refusal(const Plan& plan, const std::string& name) {
  try {
    find_task(plan, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(TaskName, ReadsBackAsTheTask) {
  const Plan plan = three_steps();
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
    const std::uint64_t elements = plan.steps()[plan.step_of(array)].elements;
    for (const Element element : {Element{0}, elements - 1}) {
      const TaskId id{array, element};
      EXPECT_EQ(find_task(plan, task_name(plan, array, element)), id);
    }
  }
  EXPECT_EQ(task_name(plan, 0, 12), "sim/12");
  EXPECT_EQ(task_name(plan, 1, 12), "sweep/" + plan.array_name(1).substr(6) + "/12");
  EXPECT_EQ(task_name("train", 1, 0), "train");
  EXPECT_EQ(numbered_task_name("train", 0), "train/0");
  EXPECT_EQ(find_task(plan, "train/0"), find_task(plan, "train"));
}

TEST(TaskName, RefusesWithWhatThereIs) {
  const Plan plan = three_steps();
  EXPECT_EQ(refusal(plan, "sim"), "sim has 30 tasks; name one, for example sim/0");
  EXPECT_EQ(refusal(plan, "sim/30"), "sim has tasks 0 to 29");
  EXPECT_EQ(refusal(plan, "sim/-1"), "sim has tasks 0 to 29");
  EXPECT_EQ(refusal(plan, "tain"), "no task 'tain' in this campaign; did you mean 'train'?");
}

}  // namespace
}  // namespace wflow::specs
