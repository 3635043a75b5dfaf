// SPDX-License-Identifier: Apache-2.0
#include "cli/top/state.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/top/rates.h"
#include "cli/top/step_tasks.h"
#include "cli/top/test_data.h"

namespace wflow::cli::top {

namespace {

std::optional<Wish> press(ViewState& state, const TopData& data, std::string_view keys) {
  std::optional<Wish> last;
  for (const char key : keys) last = on_key(state, static_cast<Key>(key), data, 10);
  return last;
}

TEST(Keys, LeadToViewsAndBack) {
  const TopData data = test_data();
  ViewState state;
  press(state, data, "3");
  EXPECT_EQ(state.view, View::failures);
  on_key(state, kKeyTab, data, 10);
  EXPECT_EQ(state.view, View::training);
  on_key(state, kKeyTab, data, 10);
  EXPECT_EQ(state.view, View::steps);
  press(state, data, "2?");
  EXPECT_EQ(state.view, View::help);
  EXPECT_FALSE(press(state, data, "q"));
  EXPECT_EQ(state.view, View::workers);
  const auto wish = press(state, data, "q");
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->kind, Wish::Kind::quit);
}

TEST(Keys, CancelAsksFirst) {
  const TopData data = test_data();
  ViewState state;
  EXPECT_FALSE(press(state, data, "c"));
  EXPECT_EQ(state.prompt, Prompt::confirm);
  EXPECT_EQ(state.question, "Cancel what has not started of simulate (387,652 open)?");
  EXPECT_FALSE(press(state, data, "x"));
  EXPECT_EQ(state.prompt, Prompt::none);
  const auto wish = press(state, data, "cy");
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->kind, Wish::Kind::cancel);
  EXPECT_EQ(wish->tasks.step, "simulate");
  EXPECT_FALSE(wish->kill);
}

TEST(Keys, ARunningTaskIsEndedOnlyAfterAYes) {
  const TopData data = test_data();
  ViewState state;
  press(state, data, "2jj");
  EXPECT_FALSE(press(state, data, "c"));
  EXPECT_EQ(state.question, "End simulate/612350, which runs, for good?");
  const auto wish = press(state, data, "y");
  ASSERT_TRUE(wish);
  EXPECT_TRUE(wish->kill);
  ASSERT_EQ(wish->tasks.parts.size(), 1U);
  EXPECT_EQ(wish->tasks.parts[0].first, 612'350U);
}

TEST(Keys, RetryOfOneTaskAndOfAStep) {
  const TopData data = test_data();
  ViewState state;
  const auto one = press(state, data, "3jr");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->kind, Wish::Kind::retry);
  ASSERT_EQ(one->tasks.parts.size(), 1U);
  EXPECT_EQ(one->tasks.parts[0].first, 1U);  // the newest comes first
  const auto all = press(state, data, "1ry");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->tasks.step, "simulate");
  // A step without failures has nothing to run again.
  EXPECT_FALSE(press(state, data, "jr"));
  EXPECT_EQ(state.prompt, Prompt::none);
}

TEST(Keys, PauseAndGoOn) {
  TopData data = test_data();
  ViewState state;
  EXPECT_EQ(press(state, data, "p")->kind, Wish::Kind::pause);
  data.status.state = engine::CampaignState::paused;
  EXPECT_EQ(press(state, data, "p")->kind, Wish::Kind::unpause);
}

TEST(Keys, FilterKeepsWhatContainsTheText) {
  const TopData data = test_data();
  ViewState state;
  press(state, data, "fTRA");
  EXPECT_EQ(listed_steps(data, state).size(), 3U);  // not before Enter
  on_key(state, kKeyEnter, data, 10);
  ASSERT_EQ(listed_steps(data, state).size(), 1U);
  EXPECT_EQ(listed_steps(data, state)[0]->name, "train");
  on_key(state, kKeyEscape, data, 10);
  EXPECT_EQ(listed_steps(data, state).size(), 3U);
}

TEST(Keys, TypedTextHasWholeCharacters) {
  const TopData data = test_data();
  ViewState state;
  press(state, data, "f");
  for (const Key key : {Key{0xe9}, Key{0x5b87}, Key{0x1f600}}) on_key(state, key, data, 10);
  EXPECT_EQ(state.typed, "é宇😀");
  on_key(state, kKeyBackspace, data, 10);
  EXPECT_EQ(state.typed, "é宇");
}

TEST(Keys, SearchGoesOnAndAround) {
  TopData data = test_data();
  data.pane = {"log", {"a", "Error one", "b", "error two", "c"}};
  ViewState state;
  state.before = View::failures;
  state.view = View::pane;
  press(state, data, "/error");
  on_key(state, kKeyEnter, data, 10);
  EXPECT_EQ(state.selected_here(), 1U);
  press(state, data, "n");
  EXPECT_EQ(state.selected_here(), 3U);
  press(state, data, "n");
  EXPECT_EQ(state.selected_here(), 1U);
  press(state, data, "N");
  EXPECT_EQ(state.selected_here(), 3U);
}

TEST(Keys, LogAndExplainOfTheSelectedTask) {
  const TopData data = test_data();
  ViewState state;
  const auto log = press(state, data, "3l");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->kind, Wish::Kind::log);
  EXPECT_EQ(log->title, "simulate/2");
  EXPECT_EQ(state.view, View::pane);
  press(state, data, "q");
  EXPECT_EQ(state.view, View::failures);
  EXPECT_EQ(press(state, data, "e")->kind, Wish::Kind::explain);
}

// One failed task a page of `failures`, then one execution a page of `usage`, slower and slower.
StepTasks answered(TaskQuestions questions, int failures, int usage) {
  int asked = 0;
  while (const auto request = questions.next()) {
    ++asked;
    if (const auto* page = std::get_if<wire::TasksRequest>(&*request)) {
      wire::TasksAnswer answer;
      answer.records = {{page->from.array, page->from.element, 2, 3, "exited", "n3-7-f",
                         kNow_s - static_cast<double>(page->from.element), 1, "no root"}};
      if (--failures > 0) answer.next = wire::TaskPlace{page->from.array, page->from.element + 1};
      questions.take(answer);
    } else {
      const auto& of = std::get<wire::UsageRequest>(*request);
      wire::UsageAnswer answer;
      wire::UsedView& used = answer.used.emplace_back();
      used.usage.array = of.array;
      used.usage.first = of.first;
      used.usage.duration_s = static_cast<double>(of.first) + 1;
      used.worker = "n3-7-f";
      if (--usage > 0) answer.next = of.first + 1;
      questions.take(answer);
    }
  }
  EXPECT_LT(asked, 100);
  return questions.tasks();
}

std::string name_for(specs::ArrayId array, specs::Element element) {
  return "simulate/" + std::to_string(array) + "." + std::to_string(element);
}

TEST(Tasks, OfAStepAreReadPageByPage) {
  const StepTasks tasks =
      answered({"simulate", 0, 0, TaskQuestions::Wanted::failures_and_slowest, name_for}, 3, 4);
  EXPECT_TRUE(tasks.complete);
  EXPECT_FALSE(tasks.loading);
  ASSERT_EQ(tasks.failed.size(), 3U);
  EXPECT_EQ(tasks.failed.back().task, "simulate/0.0") << "the newest last";
  EXPECT_EQ(tasks.failed.back().reason, "exit code 3");
  EXPECT_EQ(tasks.failed.back().attempt, 1U);
  ASSERT_EQ(tasks.slowest.size(), 4U);
  EXPECT_EQ(tasks.slowest.front().task, "simulate/0.3");
  EXPECT_EQ(tasks.compared, 4U);
}

TEST(Tasks, BeyondTheBoundAreLeftOut) {
  const StepTasks tasks =
      answered({"simulate", 0, 9, TaskQuestions::Wanted::failures_and_slowest, name_for}, 1, 1'000'000);
  EXPECT_FALSE(tasks.complete);
  EXPECT_FALSE(tasks.loading);
}

TEST(Keys, EnterOpensTheTasksOfAStepAndTheStoryOfATask) {
  TopData data = test_data();
  ViewState state;
  const auto open = on_key(state, kKeyEnter, data, 10);
  ASSERT_TRUE(open);
  EXPECT_EQ(open->kind, Wish::Kind::tasks);
  EXPECT_EQ(open->title, "simulate");
  EXPECT_EQ(state.view, View::tasks);
  data.tasks = answered({"simulate", 0, 0, TaskQuestions::Wanted::failures_and_slowest, name_for}, 2, 2);
  // Running, failed and slow tasks; the training belongs to another step.
  std::vector<std::string> names;
  for (const TaskRow& row : listed_tasks(data, state)) names.push_back(row.task);
  EXPECT_EQ(names, (std::vector<std::string>{"simulate/612350", "simulate/0.0", "simulate/0.1"}));
  const auto story = on_key(state, kKeyEnter, data, 10);
  ASSERT_TRUE(story);
  EXPECT_EQ(story->kind, Wish::Kind::explain);
  EXPECT_EQ(story->title, "simulate/612350");
  press(state, data, "q");
  EXPECT_EQ(state.view, View::tasks);
  press(state, data, "sss");
  EXPECT_EQ(listed_tasks(data, state).size(), 2U) << "failed ones";
  EXPECT_EQ(press(state, data, "r")->kind, Wish::Kind::retry);
  EXPECT_FALSE(press(state, data, "q"));
  EXPECT_EQ(state.view, View::steps);
}

TEST(Tasks, AllFailuresAreListedOnce) {
  TopData data = test_data();
  data.older_failures = {test_failure(1, "simulate/1", "exit code 3"),
                         test_failure(7, "simulate/7", "exit code 3")};
  const auto failures = listed_failures(data, ViewState());
  ASSERT_EQ(failures.size(), 3U);
  EXPECT_EQ(failures[0]->task, "simulate/2");
  EXPECT_EQ(failures[2]->task, "simulate/7");
}

TEST(Keys, SelectionsStayWithinTheirList) {
  TopData data = test_data();
  ViewState state;
  press(state, data, "jjjjjjjj");
  EXPECT_EQ(state.selected_here(), 2U);
  data.status.steps.resize(1);
  keep_in_bounds(state, data);
  EXPECT_EQ(state.selected_here(), 0U);
  data.status.steps.clear();
  EXPECT_FALSE(press(state, data, "kjgGrc"));
}

TEST(Keys, OfAReplay) {
  TopData data = test_data();
  data.replay = ReplayClock{0, 100, 50, 1, false};
  ViewState state;
  EXPECT_EQ(press(state, data, " ")->kind, Wish::Kind::replay);
  EXPECT_EQ(press(state, data, "+")->faster, 2);
  EXPECT_LT(on_key(state, kKeyLeft, data, 10)->seek, 0);
}

TEST(Keys, OfSeveralCampaigns) {
  TopData data;
  data.campaigns = {{"/a/one", "one", "finished", 1, 1, 0, 0, 10, {}},
                    {"/a/two", "two", "running", 1, 0, 0, 0, 20, {}}};
  ViewState state;
  state.many = true;
  state.view = View::campaigns;
  press(state, data, "j");
  const auto open = on_key(state, kKeyEnter, data, 10);
  ASSERT_TRUE(open);
  EXPECT_EQ(open->kind, Wish::Kind::open);
  EXPECT_EQ(open->title, "/a/one");  // the newest comes first
  EXPECT_EQ(press(state, data, "q")->kind, Wish::Kind::close);
  EXPECT_EQ(state.view, View::campaigns);
  EXPECT_EQ(press(state, data, "q")->kind, Wish::Kind::quit);
}

TEST(Rates, AreDifferencesAndStayFew) {
  RateHistory history(1);
  wire::StatusAnswer status;
  status.steps = {test_step("simulate", 0, 0, 0, 0, 100'000)};
  for (int second = 0; second <= 1000; ++second) {
    status.steps[0].counts[static_cast<std::size_t>(engine::ElementState::done)] =
        static_cast<std::uint64_t>(10 * second);
    history.add(status, second);
  }
  const auto& rates = history.rates().at("simulate");
  EXPECT_LE(rates.size(), RateHistory::kMost);
  EXPECT_GE(history.span_s(), 4);
  for (const double rate : rates) EXPECT_NEAR(rate, 10, 3);
}

TEST(Rates, CoresUsedAreAveragesAlsoWhereNothingRunsAtTheMoment) {
  // Two cores end 10 tasks of 0.2 s a second; none of them runs when the workers report.
  TopData data;
  data.status.steps = {test_step("simulate", 0, 0, 0, 0, 100'000)};
  data.status.workers = {{"n1-1-f", "n1", 2, 0, 2, 0.1, false}};
  data.worker_rates = {{"n1-1-f", 10}};
  CoreUse use;
  for (int second = 0; second <= 20; ++second) {
    data.now_s = kNow_s + second;
    auto& step = data.status.steps[0];
    step.counts[static_cast<std::size_t>(engine::ElementState::done)] =
        static_cast<std::uint64_t>(10 * second);
    step.usage.duration_s.sum = 2.0 * second;
    use.add(data, second);
  }
  ASSERT_TRUE(use.used().all);
  EXPECT_NEAR(*use.used().all, 2, 1e-9);
  EXPECT_NEAR(use.used().by_worker.at("n1-1-f"), 2, 1e-9);
  // One long task: nothing ends, and it is counted while it runs.
  data.status.steps[0].usage.duration_s.sum = 0;
  data.status.steps[0].counts = {};
  data.running = {{0, 1, "simulate/1", "n1-1-f", kNow_s, 0}};
  CoreUse other;
  for (int second = 0; second <= 5; ++second) {
    data.now_s = kNow_s + second;
    other.add(data, second);
  }
  EXPECT_NEAR(*other.used().all, 1, 1e-9);
}

TEST(Data, NodeHoursAndForecast) {
  TopData data = test_data();
  const auto hours = node_hours(data);
  ASSERT_TRUE(hours);
  EXPECT_DOUBLE_EQ(hours->used, 4);  // two workers, two hours each
  // 612,345 tasks of 0.9 s on one of 128 cores, and 601.5 s of what runs.
  EXPECT_NEAR(hours->idle, 4 * (1 - (612'345 * 0.9 + 601.5) / (2 * 7200 * 64)), 1e-6);
  const auto end = forecast_end(data);
  ASSERT_TRUE(end);
  EXPECT_DOUBLE_EQ(end->time_s, kNow_s + 312);
  EXPECT_TRUE(end->at_least);  // data and train have no estimate
}

}  // namespace

}  // namespace wflow::cli::top
