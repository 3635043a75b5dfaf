// SPDX-License-Identifier: Apache-2.0
#include "cli/top/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/rates.h"
#include "cli/top/test_data.h"

namespace wflow::cli::top {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array<std::pair<int, int>, 4> kSizes = {{{60, 20}, {80, 24}, {120, 40}, {200, 60}}};
constexpr std::array<View, 6> kEach = {View::steps,    View::workers, View::failures,
                                       View::training, View::pane,    View::help};

ViewState looking_at(View view) {
  ViewState state;
  state.view = view;
  return state;
}

// The row that has the text; -1: none.
int row_with(const Grid& grid, const std::string& text) {
  for (int row = 0; row < grid.height(); ++row) {
    if (grid.line(row).find(text) != std::string::npos) return row;
  }
  return -1;
}

// The column at which the text begins in the row; -1: it is not there. By cells, not bytes.
int column_of(const Grid& grid, int row, const std::string& text) {
  for (int column = 0; column < grid.width(); ++column) {
    std::string rest;
    for (int at = column; at < grid.width(); ++at) rest += grid.at(row, at).text;
    if (rest.starts_with(text)) return column;
  }
  return -1;
}

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

class Rendered : public ::testing::TestWithParam<std::pair<int, int>> {
 protected:
  Grid draw(const TopData& data, const ViewState& state, Charset charset = Charset::utf8) {
    return render(data, state, GetParam().first, GetParam().second, charset);
  }
};

TEST_P(Rendered, HeaderTabsAndFooterAreThere) {
  const Grid grid = draw(test_data(), ViewState());
  EXPECT_EQ(grid.width(), GetParam().first);
  EXPECT_EQ(grid.height(), GetParam().second);
  EXPECT_THAT(grid.line(0), HasSubstr("cosmoflow  running"));
  EXPECT_THAT(grid.line(1), HasSubstr("61 % done: 612,357 of 1,000,034 tasks  3 failed  for 1h02m"));
  EXPECT_THAT(grid.line(2), HasSubstr("2 workers, 96 of 128 cores used"));
  EXPECT_THAT(grid.line(3), HasSubstr("[1 steps]  2 workers   3 failures!   4 training"));
  EXPECT_THAT(grid.line(grid.height() - 1), HasSubstr("q quit"));
}

TEST_P(Rendered, StepsAreAlignedWithTheirHeads) {
  const Grid grid = draw(test_data(), ViewState());
  const int head = row_with(grid, " step ");
  ASSERT_GE(head, 4);
  const int first = row_with(grid, "612k/1.00M");
  ASSERT_EQ(first, head + 1);
  // Right-aligned columns end where their heads end.
  const int done = column_of(grid, head, "done");
  EXPECT_EQ(done + 4, column_of(grid, first, "612k/1.00M") + 10);
  const int left = column_of(grid, head, "left");
  EXPECT_EQ(left + 4, column_of(grid, first, "5m12s") + 5);
  EXPECT_THAT(grid.line(first + 1), HasSubstr("12/32"));
  EXPECT_THAT(grid.line(first + 2), HasSubstr("train"));
}

TEST_P(Rendered, ThereIsMoreInWiderTerminals) {
  const std::string text = draw(test_data(), ViewState()).text();
  EXPECT_THAT(text, HasSubstr("progress"));
  for (const auto& [word, columns] : std::vector<std::pair<std::string, int>>{{"failed", 60},
                                                                              {"rate", 80},
                                                                              {"median", 120},
                                                                              {"p95", 120},
                                                                              {"waiting", 120},
                                                                              {"retry", 120},
                                                                              {"memory p95", 200}}) {
    if (GetParam().first < columns) continue;
    EXPECT_THAT(text, HasSubstr(word)) << columns;
  }
  EXPECT_EQ(text.find("1.8 GiB/2.0 GiB") != std::string::npos, GetParam().first >= 200);
}

TEST_P(Rendered, WhatHappenedLastIsInPlainWords) {
  const std::string text = draw(test_data(), ViewState()).text();
  EXPECT_THAT(text, HasSubstr("worker node2#1 joined"));
  EXPECT_THAT(text, HasSubstr("simulate/2 failed after 3.2s on node1#1"));
}

TEST_P(Rendered, WorkersStandUnderTheirAllocation) {
  const Grid grid = draw(test_data(), looking_at(View::workers));
  const int allocation = row_with(grid, "slurm 4711: running, 1 node");
  ASSERT_GE(allocation, 4);
  EXPECT_THAT(grid.line(allocation + 1), HasSubstr("node1"));
  EXPECT_THAT(grid.line(allocation + 1), HasSubstr("60/64 cores, 4,036 queued"));
  EXPECT_EQ(grid.line(allocation + 1).find(", 740/min") != std::string::npos, GetParam().first >= 80);
  EXPECT_THAT(grid.line(allocation + 2), HasSubstr("simulate/612350"));
  EXPECT_THAT(grid.line(allocation + 2), HasSubstr("for 1.5s"));
  EXPECT_GE(row_with(grid, "slurm 4712: queued, 1 node: Priority"), 0);
  // In no allocation: last.
  const int other = row_with(grid, "36/64 cores");
  EXPECT_GT(other, allocation);
  EXPECT_THAT(grid.line(other), HasSubstr("leaving"));
  EXPECT_GE(row_with(grid, "and 94 more running tasks"), 0);
}

TEST_P(Rendered, FailuresTellReasonAndWhatWasPrinted) {
  const Grid grid = draw(test_data(), looking_at(View::failures));
  const int newest = row_with(grid, "simulate/2");
  EXPECT_THAT(grid.line(newest), HasSubstr("time limit"));
  EXPECT_THAT(grid.line(newest + 1), HasSubstr("exit code 3"));
  EXPECT_GE(row_with(grid, "the end of what simulate/2 printed"), 0);
  EXPECT_GE(row_with(grid, "no root in cell 2"), 0);
}

TEST_P(Rendered, TrainingsHaveCurvesAndFacts) {
  const Grid grid = draw(test_data(), looking_at(View::training));
  const std::string text = grid.text();
  EXPECT_THAT(text, HasSubstr("train/0"));
  EXPECT_THAT(text, HasSubstr("epoch 40"));
  EXPECT_THAT(text, HasSubstr(GetParam().first == 80 ? "train 0.05" : "train_loss 0.05"));
  EXPECT_THAT(text, HasSubstr("samples/s 10"));
  // Side by side from two panels' width on.
  const int row = row_with(grid, "train/0");
  if (GetParam().first >= 80) {
    EXPECT_THAT(grid.line(row), HasSubstr("train/1"));
    EXPECT_THAT(text, HasSubstr(GetParam().first < 120 ? "validation 0.075" : "validation_loss 0.075"));
  } else {
    EXPECT_THAT(text, HasSubstr("trainings 1 to 1 of 2"));
  }
  EXPECT_THAT(text, HasSubstr("checkpoint: epoch 39, 8.0s ago"));
  const bool braille = text.find("⡀") != std::string::npos || text.find("⠤") != std::string::npos ||
                       text.find("⢄") != std::string::npos || text.find("⣀") != std::string::npos;
  EXPECT_TRUE(braille) << text;
}

TEST_P(Rendered, TrainingsNameASlowNode) {
  TopData data = test_data();
  data.status.metrics.push_back(test_curve("train/0", 0, "slow_node/n3", 56));
  const std::string text = draw(data, looking_at(View::training)).text();
  if (GetParam().first >= 120) {
    EXPECT_THAT(text, HasSubstr("n3 takes 1.4 times as long as the others"));
  }
  EXPECT_THAT(text, Not(HasSubstr("slow_node")));
}

TEST_P(Rendered, InAsciiNothingElseIsPut) {
  TopData data = test_data();
  data.status.name = "größe";
  data.pane = {"log", {"π is 3", "plain"}};
  for (const View view : kEach) {
    const std::string text = draw(data, looking_at(view), Charset::ascii).text();
    EXPECT_TRUE(is_ascii(text)) << text;
  }
}

TEST_P(Rendered, NothingIsTooLongForItsLine) {
  TopData data = test_data();
  const std::string endless(500, 'w');
  data.status.name = endless;
  data.status.steps[0].name = endless;
  data.status.failures[0].task = endless;
  data.status.failures[0].detail = endless + "\n宇宙" + endless;
  data.status.metrics[0].task = endless;
  data.status.workers[0].host = endless;
  data.running[0].task = endless;
  data.notice = endless;
  data.pane = {endless, {endless, "e\xcc\x81t\xff\x1b[31m"}};
  for (const View view : kEach) {
    const Grid grid = draw(data, looking_at(view));
    for (int row = 0; row < grid.height(); ++row) {
      EXPECT_LE(width_of(grid.line(row)), grid.width()) << grid.line(row);
      EXPECT_THAT(grid.line(row), Not(HasSubstr("\x1b")));
    }
  }
}

TEST_P(Rendered, AnEmptyCampaignHasAPicture) {
  TopData data;
  for (const View view : kEach) {
    const Grid grid = draw(data, looking_at(view));
    EXPECT_THAT(grid.text(), HasSubstr("0 of 0 tasks"));
  }
  EXPECT_THAT(draw(data, looking_at(View::failures)).text(), HasSubstr("nothing has failed"));
  EXPECT_THAT(draw(data, looking_at(View::training)).text(), HasSubstr("no task has reported a metric yet"));
}

TEST_P(Rendered, WithoutACoordinatorItSaysSo) {
  TopData data = test_data();
  data.link = Link::none;
  EXPECT_THAT(draw(data, ViewState()).line(0), HasSubstr("no coordinator"));
  data.link = Link::live;
  EXPECT_THAT(draw(data, ViewState()).line(0), Not(HasSubstr("no coordinator")));
}

TEST_P(Rendered, TheSelectedEntryIsAlwaysInThePicture) {
  TopData data = test_data();
  for (int i = 0; i < 300; ++i)
    data.status.steps.push_back(test_step("step" + std::to_string(i), 1, 0, 0, 0, 1));
  ViewState state;
  for (const std::size_t selected : {0U, 1U, 57U, 150U, 302U}) {
    state.selected_here() = selected;
    const Grid grid = draw(data, state);
    const int row = row_with(grid, ">" + data.status.steps[selected].name);
    EXPECT_GE(row, 4) << selected << "\n" << grid.text();
  }
}

TEST_P(Rendered, ARunningTaskHasItsOwnMemoryAgainstItsLimit) {
  const Grid grid = draw(test_data(), looking_at(View::workers));
  const int row = row_with(grid, "simulate/612350");
  const bool fits = GetParam().first >= 80;
  EXPECT_EQ(grid.line(row).find("1.9 GiB of 2.0 GiB") != std::string::npos, fits) << grid.line(row);
  if (!fits) return;
  EXPECT_EQ(grid.at(row, column_of(grid, row, "1.9 GiB")).ink, Ink::warning) << "more than 90 %";
}

TEST_P(Rendered, TrainingsAreRankedBelowTheirCurves) {
  TopData data = test_data();
  data.status.metrics.push_back(test_curve("train/1", 1, "validation_loss", 1));
  const Grid grid = draw(data, looking_at(View::training));
  const int head = row_with(grid, "by validation_loss");
  EXPECT_EQ(head >= 0, GetParam().second >= 40);
  if (head >= 0) {
    EXPECT_THAT(grid.line(head + 1), HasSubstr("1  train/1"));
    EXPECT_THAT(grid.line(head + 1), HasSubstr("rate 0.1"));
    EXPECT_THAT(grid.line(head + 2), HasSubstr("2  train/0"));
  }
  EXPECT_GE(row_with(grid, "train/0  2 of 2"), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Rendered, ::testing::ValuesIn(kSizes), [](const auto& info) {
  return std::to_string(info.param.first) + "x" + std::to_string(info.param.second);
});

TEST(Render, BelowTheLeastSizeThereIsOneSentence) {
  const Grid grid = render(test_data(), ViewState(), 59, 20, Charset::utf8);
  EXPECT_EQ(grid.line(0), "wflow top needs 60 x 20 cells");
  EXPECT_EQ(grid.line(1), "");
  render(test_data(), ViewState(), 1, 1, Charset::utf8);
  render(test_data(), ViewState(), 0, 0, Charset::utf8);
}

TEST(Render, ListsOfSeveralCampaigns) {
  TopData data;
  data.now_s = kNow_s;
  data.campaigns = {{"/a/one", "one", "finished", 100, 100, 0, 0, kNow_s - 9000, {}},
                    {"/a/two", "two", "running", 1'000'000, 250'000, 12, 0, kNow_s - 60, 90}};
  ViewState state = looking_at(View::campaigns);
  state.many = true;
  const Grid grid = render(data, state, 80, 24, Charset::utf8);
  EXPECT_THAT(grid.line(0), HasSubstr("2 campaigns"));
  // The newest first.
  EXPECT_THAT(grid.line(3), HasSubstr("two"));
  EXPECT_THAT(grid.line(3), HasSubstr("250k/1.00M"));
  EXPECT_THAT(grid.line(4), HasSubstr("finished"));
}

TEST(Render, BarsShowEveryKindHoweverFew) {
  for (const Charset charset : {Charset::utf8, Charset::ascii}) {
    Grid grid(20, 1, charset);
    put_bar(grid, 0, 0, 20, {1'000'000, 1, 1, 1, 1, 0});
    const std::string line = grid.line(0);
    for (const char* sign : {"x", "-", "~"}) EXPECT_THAT(line, HasSubstr(sign));
    EXPECT_EQ(width_of(line), 20);
  }
  Grid grid(20, 1, Charset::ascii);
  put_bar(grid, 0, 0, 20, {5, 5, 0, 5, 0, 5});
  EXPECT_EQ(grid.line(0), "#####xxxxx>>>>>.....");
}

TEST(Render, ABarHasItsLengthWhateverItShows) {
  for (int columns = 0; columns < 12; ++columns) {
    for (const Shares& shares : {Shares{1, 1, 1, 1, 1, 1}, Shares{0, 0, 0, 0, 0, 3},
                                 Shares{9e9, 1, 1, 1, 1, 1}, Shares{0, 7, 0, 0, 0, 0}}) {
      int sum = 0;
      for (const int cells : bar_cells(shares, columns)) {
        EXPECT_GE(cells, 0);
        sum += cells;
      }
      EXPECT_EQ(sum, columns);
    }
  }
}

TEST(Render, RatesAreAllOfAMinute) {
  EXPECT_EQ(brief_rate(0), "");
  EXPECT_EQ(brief_rate(0.0000551), "0.0033/min");
  EXPECT_EQ(brief_rate(0.2), "12.0/min");
  EXPECT_EQ(brief_rate(12.34), "740/min");
  EXPECT_EQ(brief_rate(1234.5), "74.1k/min");
}

TEST(Render, WorkersHaveTheFirstNameOfTheirHostAndANumber) {
  WorkerNames names;
  for (const char* id : {"n3.cluster.org-77-abc", "n3.cluster.org-99-def", "10.0.0.7-1-f", "log-in-5-5"})
    names.add(id);
  EXPECT_EQ(names.of("n3.cluster.org-99-def"), "n3#2");
  EXPECT_EQ(names.of("10.0.0.7-1-f"), "10.0.0.7#1");
  EXPECT_EQ(names.of("log-in-5-5"), "log-in#1");
  EXPECT_EQ(names.of("unknown-1-2"), "unknown-1-2");
  EXPECT_EQ(names.in("worker n3.cluster.org-77-abc joined; (n3.cluster.org-99-def)"),
            "worker n3#1 joined; (n3#2)");
}

TEST(Render, WithoutARateTheTimeLeftComesFromTheMean) {
  wire::StatusAnswer status = test_data().status;
  wire::StepStatus& step = status.steps[0];
  step.left_s.reset();
  step.mean_s = 2;
  for (std::size_t i = 1; i < status.steps.size(); ++i)
    status.steps[i].counts[static_cast<std::size_t>(engine::ElementState::leased)] = 0;
  // 387,652 are open, and 96 run at a time.
  EXPECT_DOUBLE_EQ(*left_of(status, step), 387'652 * 2.0 / 96);
  status.workers.clear();
  EXPECT_FALSE(left_of(status, step));
}

TEST(Render, RatesOfWorkersAreOfTheLastSeconds) {
  WorkerRates rates;
  const auto add = [&](double time_s, std::uint64_t ended) {
    wire::WorkerStatus worker;
    worker.id = "w";
    worker.ended = ended;
    rates.add({worker}, time_s);
  };
  add(0, 1000);
  EXPECT_TRUE(rates.rates().empty());
  for (int second = 1; second <= 30; ++second)
    add(second, 1000 + static_cast<std::uint64_t>(second) * (second > 15 ? 8 : 4));
  EXPECT_DOUBLE_EQ(rates.rates().at("w"), 8);
  add(31, 5);  // another coordinator counts anew
  EXPECT_FALSE(rates.rates().contains("w"));
  add(33, 9);
  EXPECT_DOUBLE_EQ(rates.rates().at("w"), 2);
  rates.add({}, 34);
  EXPECT_TRUE(rates.rates().empty());
}

TEST(Render, SparklinesScaleFromZero) {
  EXPECT_EQ(sparkline_of({0, 1, 2, 4, 8}, 10, Charset::utf8), " ▁▂▄█");
  EXPECT_EQ(sparkline_of({0, 1, 2, 4, 8}, 2, Charset::utf8), "▄█");
  EXPECT_EQ(sparkline_of({std::nan(""), 5}, 5, Charset::ascii), " #");
  EXPECT_EQ(sparkline_of({}, 5, Charset::utf8), "");
}

TEST(Render, PlotsRunFromTheGreatestToTheLeast) {
  Grid grid(40, 10, Charset::ascii);
  put_plot(grid, 0, 0, 40, 10, {{{{0, 10}, {1, 5}, {2, 0}}, Ink::accent, '*'}});
  EXPECT_THAT(grid.line(0), HasSubstr("10|*"));
  EXPECT_EQ(grid.line(8).back(), '*');
  EXPECT_THAT(grid.line(9), HasSubstr("0"));
  // Values that are no numbers leave a gap and spoil nothing.
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Grid other(40, 10, Charset::utf8);
  put_plot(other, 0, 0, 40, 10, {{{{0, std::nan("")}, {1, kInfinite}, {2, 3}}, Ink::accent, '*'}});
  EXPECT_THAT(other.line(0), HasSubstr("3│"));
  put_plot(other, 0, 0, 5, 2, {{{{0, 1}}, Ink::accent, '*'}});
}

TEST(Render, WideCharactersTakeTwoCells) {
  Grid grid(6, 1);
  EXPECT_EQ(grid.put(0, 0, "a宇b"), 4);
  EXPECT_EQ(grid.at(0, 1).text, "宇");
  EXPECT_EQ(grid.at(0, 2).text, "");
  EXPECT_EQ(grid.at(0, 3).text, "b");
  // Half of one is not put.
  Grid narrow(2, 1);
  narrow.put(0, 0, "a宇");
  EXPECT_EQ(narrow.line(0), "a");
  EXPECT_EQ(cut_to_width("宇宙船", 5, Charset::utf8), "宇宙…");
  // A combining character stays with its base.
  Grid combined(4, 1);
  EXPECT_EQ(combined.put(0, 0, "e\xcc\x81x"), 2);
  EXPECT_EQ(combined.at(0, 0).text, "e\xcc\x81");
}

}  // namespace

}  // namespace wflow::cli::top
