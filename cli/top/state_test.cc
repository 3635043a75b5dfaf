// SPDX-License-Identifier: Apache-2.0
#include "cli/top/state.h"

#include <gtest/gtest.h>

#include <string_view>

#include "cli/top/rates.h"
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
  data.campaigns = {{"/a/one", "one", "finished", 1, 1, 0, 10, {}},
                    {"/a/two", "two", "running", 1, 0, 0, 20, {}}};
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
