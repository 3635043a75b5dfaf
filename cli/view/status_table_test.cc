// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/trainings.h"
#include "cli/top/test_data.h"
#include "cli/view/curves_plot.h"

namespace wflow::cli {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TrainingRow training_of(const std::string& task, double last, const std::string& rate) {
  TrainingRow row;
  row.task = task;
  row.last = last;
  row.best = last / 2;
  row.best_epoch = 7;
  row.epoch = 9;
  row.parameters = {{"learning_rate", rate}};
  row.seconds = 61;
  return row;
}

TEST(StatusTable, HasARowAStepAndTheTrainings) {
  const TrainingRows trainings{
      "validation_loss", "", {training_of("train/1", 0.25, "0.1"), training_of("train/0", 0.5, "0.01")}};
  const auto lines = status_table(top::test_data(), trainings, Terminal());
  const std::string text = text::join(lines, "\n");
  EXPECT_THAT(
      lines[0],
      HasSubstr("cosmoflow: running for 1 h 02 min, 61 % done: 612,357 of 1,000,034 tasks, 3 failed"));
  EXPECT_THAT(text, HasSubstr("2 workers with 128 cores"));
  const auto head = std::ranges::find_if(lines, [](const auto& line) { return line.starts_with("step "); });
  ASSERT_NE(head, lines.end());
  // Columns begin where their heads do.
  const std::string& simulate = *(head + 1);
  EXPECT_EQ(simulate.find("612,345"), head->find("done"));
  EXPECT_EQ(simulate.find("387,549"), head->find("waiting"));
  EXPECT_EQ(simulate.find("1.8 GiB of 2.0 GiB"), head->find("memory 95 %"));
  EXPECT_THAT(
      text, HasSubstr("rank  training  validation_loss  best   at epoch  epochs  time        learning_rate"));
  EXPECT_THAT(text, HasSubstr("1     train/1   0.25             0.125  7         9       1 min 01 s  0.1"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  for (const std::string& line : lines) EXPECT_FALSE(line.ends_with(' ')) << line;
}

CurveRun run_of(const std::string& name, const std::string& text) {
  return {name, "seed " + name, curves_of_lines(text)};
}

constexpr const char* kOne =
    R"({"epoch":1,"step":10,"member":1,"train_loss":2.0,"validation":{"sigma":{"mae":0.5}},"seconds":3}
{"epoch":2,"step":20,"train_loss":1.0,"validation":{"sigma":{"mae":0.25,"r2":null}}}
no line
)";
constexpr const char* kEvents = R"({"type":"metric","name":"train_loss","value":4,"epoch":1,"step":5}
{"type":"note","text":"x"}
{"type":"metric","name":"train_loss","value":3,"epoch":2,"step":9}
{"type":"metric","name":"train_loss","value":2.5,"epoch":2,"step":9})";

TEST(Curves, AreReadFromMetricsAndFromEvents) {
  const auto curves = curves_of_lines(kOne);
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0].name, "train_loss");
  EXPECT_EQ(curves[1].name, "validation.sigma.mae");
  EXPECT_EQ(curves[1].points.back().value, 0.25);
  EXPECT_EQ(curves[1].points.back().step, 20U);
  const auto events = curves_of_lines(kEvents);
  ASSERT_EQ(events.size(), 1U);
  ASSERT_EQ(events[0].points.size(), 2U);
  EXPECT_EQ(events[0].points[1].value, 2.5) << "the last report of a step counts";
}

TEST(Curves, OfSeveralRunsShareOnePlotAndTellThemselvesApart) {
  const std::vector<CurveRun> runs = {run_of("a", kOne), run_of("b", kEvents)};
  CurvesOptions options;
  const CurveSet set = curve_set(runs, options);
  EXPECT_EQ(set.y_name, "train_loss");
  EXPECT_EQ(set.x_name, "epoch");
  EXPECT_THAT(set.other_metrics, ElementsAre("validation.sigma.mae"));
  ASSERT_EQ(set.lines.size(), 2U);
  EXPECT_THAT(set.lines[1].x, ElementsAre(1, 2));
  Terminal terminal;
  const auto lines = plotted_lines(set, options, terminal);
  const std::string text = text::join(lines, "\n");
  EXPECT_THAT(lines[0], HasSubstr("train_loss by epoch"));
  EXPECT_THAT(lines[1], HasSubstr("4|o"));
  EXPECT_THAT(text, HasSubstr("* a  1  seed a"));
  EXPECT_THAT(text, HasSubstr("o b  2.5  seed b"));
  const plot::Figure figure = figure_of(set, options, "train_loss");
  ASSERT_EQ(figure.series.size(), 2U);
  EXPECT_EQ(figure.series[1].name, "b (seed b)");
  EXPECT_THAT(figure.series[0].y, ElementsAre(2, 1));
  EXPECT_EQ(figure.y.scale, plot::Scale::linear);
  options.logarithmic = true;
  EXPECT_EQ(figure_of(set, options, "x").y.scale, plot::Scale::logarithmic);
  EXPECT_THAT(text::join(plotted_lines(set, options, terminal), "\n"), HasSubstr(" log"));
}

TEST(Curves, AMetricThatNobodyReportedIsAnErrorWithTheNames) {
  CurvesOptions options;
  options.metrics = {"train_los"};
  try {
    curve_set({run_of("a", kOne)}, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'train_loss'?"));
    EXPECT_THAT(error.what(), HasSubstr("there are: train_loss, validation.sigma.mae"));
  }
}

TEST(Curves, SmoothingBeginsAtTheFirstValueAndPassesOverWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto values = smoothed({4, nan, 2}, 0.5);
  EXPECT_DOUBLE_EQ(values[0], 4);
  EXPECT_TRUE(std::isnan(values[1]));
  // (0.25 * 4 + 0.5 * 2) / 0.75
  EXPECT_DOUBLE_EQ(values[2], 2.0 / 0.75);
  EXPECT_EQ(smoothed({1, 5}, 0), (std::vector<double>{1, 5}));
}

}  // namespace

}  // namespace wflow::cli
