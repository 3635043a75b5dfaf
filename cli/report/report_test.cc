// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "base/file.h"
#include "engine/monitor/status.h"
#include "engine/store/store.h"
#include "specs/plan/workspace.h"

namespace wflow::cli::report {
namespace {

namespace fs = std::filesystem;
using engine::ElementState;
using testing::HasSubstr;
using testing::Not;

TEST(Redactor, TakesOutPathsButNotFractions) {
  const Redactor redactor;
  EXPECT_EQ(redactor("in /home/ada/x.h5: no data"), "in <path>: no data");
  EXPECT_EQ(redactor("open('/scratch/a b/c')"), "open('<path> b/c')");
  EXPECT_EQ(redactor("a=/x/y;b=~/z."), "a=<path>;b=<path>.");
  EXPECT_EQ(redactor("g++ -I/home/ada/x -L/y a-b/c"), "g++ -I<path> -L<path> a-b/c");
  EXPECT_EQ(redactor("file:///etc/x http://host/y"), "file:<path> http:<path>");
  EXPECT_EQ(redactor("12 samples/s, 3/4, simulate/17, a / b"), "12 samples/s, 3/4, simulate/17, a / b");
}

TEST(Redactor, TakesOutWordsAsWholes) {
  Redactor redactor;
  redactor.replace("n1", "node 1");
  redactor.replace("n1-4711", "worker 1");
  redactor.replace("ada", "<user>");
  EXPECT_EQ(redactor("n1-4711 on n1, n1.site.example: ada"), "worker 1 on node 1, node 1: <user>");
  EXPECT_EQ(redactor("n12 adam nada xn1"), "n12 adam nada xn1");
  EXPECT_EQ(redactor("10.0.0.17:4711 version 1.2.3, 1.2.3.4.5"), "<address>:4711 version 1.2.3, <address>.5");
}

TEST(Page, EscapesAllText) {
  Page page([](std::string_view text) { return std::string(text); });
  page.section("a", "<a>");
  page.paragraph("</p><script>alert('1')</script>\x01");
  page.table({{"<th>"}, {}, {{"<td>\"&"}}});
  page.details("<s>", "</pre>");
  page.figure({.id = "f", .title = "</script><b>", .series = {{.name = "</script>"}}});
  const std::string html = page.html("<t>", "<u>");
  const std::string written =
      html.substr(html.find("<body>"), html.find("<!-- The plots") - html.find("<body>"));
  for (const char* bad :
       {"<a>", "alert('1')", "<td>\"", "<s>", "</pre></pre>", "</script><b>", "<t>", "<u>", "\x01"})
    EXPECT_THAT(written, Not(HasSubstr(bad))) << bad;
  EXPECT_THAT(written, HasSubstr("\\u003c/script>"));
  EXPECT_THAT(written, HasSubstr("&lt;td&gt;&quot;&amp;"));
}

// Two workers: one task of 4 s; one of 2 s that fails; a bundle of three in 1 s.
class RecordOfThree : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wflow-report-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    write_file_durably(folder_ / "study.yaml",
                       "description: {name: three, description: a test}\n"
                       "samples: {design: uniform, count: 5, seed: 1, parameters: {x: [0, 1]}}\n"
                       "study:\n  - name: simulate\n    run: {cmd: 'echo $(x)'}\n");
    specs::ReadOptions options;
    options.timestamp = "20260101-000000";
    plan_.emplace(specs::create_campaign(specs::Plan(specs::read_study(folder_ / "study.yaml", options).study,
                                                     folder_ / "three_20260101-000000")));
    engine::store::Store::create(plan_->campaign(), *plan_);
    engine::store::Store store(plan_->campaign());
    engine::store::Batch batch;
    batch.time_s = 1000;
    batch.history.push_back({1000, "started", "coordinator"});
    batch.usage = {{"w1", {usage(0, 1, 1000, 4)}}, {"w2", {usage(1, 1, 1002, 2), usage(2, 3, 1008, 1)}}};
    batch.ends = {
        {0, {0, 0}, ElementState::done}, {0, {1, 1}, ElementState::failed}, {0, {2, 4}, ElementState::done}};
    engine::RecordFailure failure;
    failure.outcome.element = 1;
    failure.outcome.exit_code = 3;
    failure.outcome.detail = "no root\n";
    failure.worker = "w2";
    failure.final = true;
    batch.failures.push_back(failure);
    store.commit(batch);
    batch = {};
    batch.time_s = 1010;
    batch.history.push_back({1010, "end", "all"});
    store.commit(batch);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static engine::TaskUsage usage(std::uint64_t first, std::uint64_t count, double started_s,
                                 double duration_s) {
    engine::TaskUsage usage;
    usage.first = first;
    usage.count = count;
    usage.started_s = started_s;
    usage.duration_s = duration_s;
    usage.peak_bytes = 1 << 20;
    return usage;
  }

  fs::path folder_;
  std::optional<specs::Plan> plan_;
};

TEST_F(RecordOfThree, SumsSlices) {
  engine::store::Store store(plan_->campaign());
  const engine::Overview overview = store.overview({.slices = 10});
  EXPECT_EQ(overview.begin_s, 1000);
  EXPECT_EQ(overview.end_s, 1010);
  EXPECT_EQ(overview.records, 3U);
  const auto& activity = overview.steps.at("simulate");
  EXPECT_THAT(activity.ended, testing::ElementsAre(0, 0, 0, 0, 2, 0, 0, 0, 0, 3));
  EXPECT_THAT(activity.running,
              testing::Pointwise(testing::DoubleNear(1e-3), {1, 1, 2, 2, 0, 0, 0, 0, 1, 0}));
  EXPECT_THAT(overview.workers.at("w1"),
              testing::Pointwise(testing::DoubleNear(1e-3), {1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  ASSERT_EQ(overview.executions.size(), 3U);
  EXPECT_EQ(overview.executions[0].state, ElementState::done);
  EXPECT_EQ(overview.executions[1].state, ElementState::failed);
  ASSERT_EQ(overview.failure_counts.size(), 1U);
  EXPECT_EQ(overview.failure_counts[0].reason, "exit code 3");
  EXPECT_EQ(overview.failure_counts[0].worker, "w2");
  ASSERT_EQ(overview.failures.size(), 1U);
  EXPECT_TRUE(overview.failures[0].final);
}

TEST_F(RecordOfThree, ListsTheRunsOfASmallCampaign) {
  engine::store::Store store(plan_->campaign());
  const auto runs = store.overview({}).runs;
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].worker, "w1");
  EXPECT_FALSE(runs[0].failed);
  EXPECT_EQ(runs[1].worker, "w2");
  EXPECT_TRUE(runs[1].failed);
  EXPECT_EQ(runs[2].usage.count, 3U);
  EXPECT_FALSE(runs[2].failed);
  EXPECT_TRUE(store.overview({.runs = 2}).runs.empty());
}

const plot::Figure* figure_named(const std::vector<plot::Figure>& figures, std::string_view id) {
  const auto found = std::ranges::find(figures, id, &plot::Figure::id);
  return found == figures.end() ? nullptr : &*found;
}

TEST_F(RecordOfThree, DrawsTasksInTheSlotsOfTheirWorkers) {
  ReportData data = gather(plan_->campaign());
  // A second task of w1 during its first one, and one directly after it.
  auto& runs = data.overview.runs;
  runs.insert(runs.begin() + 1, {.step = "simulate", .worker = "w1", .usage = usage(2, 1, 1001, 1)});
  runs.push_back({.step = "simulate", .worker = "w1", .usage = usage(3, 1, 1003.999, 1)});
  const auto figures = make_report(data, {}).page.figures();
  const plot::Figure* tasks = figure_named(figures, "tasks");
  ASSERT_NE(tasks, nullptr);
  EXPECT_THAT(tasks->categories, testing::UnorderedElementsAre("slot 1 of w1", "slot 2 of w1", "w2"));
  std::map<std::string, int> spans;
  for (const plot::Span& span : tasks->spans) ++spans[tasks->categories[span.row]];
  EXPECT_THAT(spans, testing::UnorderedElementsAre(testing::Pair("slot 1 of w1", 2),
                                                   testing::Pair("slot 2 of w1", 1), testing::Pair("w2", 2)));
  ASSERT_EQ(std::ranges::count_if(tasks->spans, &plot::Span::failed), 1);
  EXPECT_EQ(std::ranges::find_if(tasks->spans, &plot::Span::failed)->text, "simulate/1, failed");
  EXPECT_EQ(figure_named(figures, "timeline"), nullptr) << "there is no allocation";
}

TEST_F(RecordOfThree, HistogramsAreNoFinerThanTheSketch) {
  ReportData data = gather(plan_->campaign());
  engine::StepUsage& used = data.usage["simulate"];
  used = {};
  for (int i = 0; i < 1000; ++i) {
    engine::TaskUsage task = usage(0, 1, 0, 1 + 0.05 * i / 1000);
    task.peak_bytes = i < 10 ? 0 : 1 << 20;
    used.add(task);
  }
  const auto figures = make_report(data, {}).page.figures();
  const plot::Figure* durations = figure_named(figures, "simulate-duration");
  ASSERT_NE(durations, nullptr);
  const auto& counts = durations->series.at(0).y;
  for (std::size_t i = 0; i < counts.size(); ++i)
    EXPECT_GT(durations->edges.at(i + 1) / durations->edges.at(i), 1.02) << "a bucket is 2 % wide";
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0), 1000);
  for (const double count : counts) EXPECT_EQ(count, std::floor(count));
  const plot::Figure* memory = figure_named(figures, "simulate-memory");
  ASSERT_NE(memory, nullptr);
  EXPECT_THAT(memory->caption, HasSubstr("10 of them have no measured memory and are not in the plot."));
}

TEST_F(RecordOfThree, CountsTheSamplesOfADataSet) {
  ReportData data = gather(plan_->campaign());
  engine::StepStatus step;
  step.name = "data";
  step.samples = 312;
  step.missing = {{.reason = engine::reason_left_out("simulate", ElementState::failed), .samples = 5},
                  {.reason = engine::reason_left_out("simulate", ElementState::skipped), .samples = 4}};
  data.status.steps.push_back(step);
  data.data_sets.push_back(
      {"data",
       nlohmann::json::parse(
           R"({"missing": 9, "dropped": 0, "fields": [{"name": "x", "role": "input", "dtype": "float32",
                       "shape": [], "units": "", "channels": [{"name": "", "mean": 1, "std": 1, "min": 0, "max": 9,
                       "low": 0, "width": 0.5, "counts": [100, 190], "below": 3, "above": 7}]}],
                       "splits": [{"name": "train", "samples": 250, "shards": 1, "bytes": 9},
                                  {"name": "test", "samples": 50, "shards": 1, "bytes": 9}], "examples": []})")});
  Report report = make_report(data, {});
  EXPECT_THAT(report.page.html("", ""),
              HasSubstr("312 samples: 300 in shards, 5 failed, 4 skipped, 3 not converted yet."));
  const auto figures = report.page.figures();
  const plot::Figure* histogram = figure_named(figures, "data-x");
  ASSERT_NE(histogram, nullptr);
  EXPECT_EQ(histogram->caption,
            "300 values of the training samples: 290 in the plot, 3 below and 7 above it.");
  EXPECT_THAT(histogram->edges, testing::ElementsAre(0, 0.5, 1));
}

TEST_F(RecordOfThree, PlotsErrorsAgainstParameters) {
  ReportData data = gather(plan_->campaign());
  Predictions predictions{.task = "train", .targets = {"y"}, .ids = {}, .truths = {{}}, .predicted = {{}}};
  for (int i = 0; i < 100; ++i) {
    predictions.ids.push_back(i % 5);
    predictions.truths[0].push_back(1);
    predictions.predicted[0].push_back(1.5);
  }
  data.predictions.push_back(predictions);
  const auto figures = make_report(data, {}).page.figures();
  const plot::Figure* errors = figure_named(figures, "error-train-y-x");
  ASSERT_NE(errors, nullptr);
  ASSERT_EQ(errors->series.size(), 2U);
  EXPECT_EQ(errors->series[0].x.size(), 100U);
  EXPECT_EQ(errors->series[1].x.size(), 10U);
  EXPECT_THAT(errors->series[1].y, testing::Each(0.5));
}

TEST_F(RecordOfThree, ShowsPredictionsBesideMeasurements) {
  ReportData data = gather(plan_->campaign());
  const nlohmann::json result = nlohmann::json::parse(R"({"test": {"targets": {}}, "prediction": {
    "memory_bytes": {"predicted": 104857600, "measured": 94371840, "error_percent": 11.1},
    "step_seconds": {"predicted": null, "measured": 0.8, "error_percent": null}}})");
  data.results.push_back({"train", result, nullptr});
  Report report = make_report(data, {});
  const std::string html = report.page.html(report.title, report.subtitle);
  EXPECT_THAT(html, HasSubstr("train: predicted and measured"));
  EXPECT_THAT(html, testing::ContainsRegex("memory of a rank.*100.0 MiB.*90.0 MiB.*\\+11.1 %"));
  EXPECT_THAT(html, Not(HasSubstr("a step</td>")));
}

TEST_F(RecordOfThree, ShowsWhatMatters) {
  ReportData data = gather(plan_->campaign());
  const nlohmann::json result =
      nlohmann::json::parse(R"({"test": {"targets": {}}, "checksums": {"model.pt": "1"}})");
  nlohmann::json analysis = nlohmann::json::parse(R"({"model_checksum": "1", "outputs": [
    {"name": "y", "network": {"variance": 2, "inputs": [
      {"name": "a", "main_effect": [1, 2], "first": {"value": 0.25, "low": 0.2, "high": 0.3},
       "total": {"value": 0.4, "low": 0.3, "high": 0.5}},
      {"name": "b", "main_effect": [3, 1], "first": {"value": 0.6, "low": 0.5, "high": 0.7},
       "total": {"value": 0.75, "low": 0.7, "high": 0.8}}]}},
    {"name": "z", "network": {"variance": 0, "inputs": []}}]})");
  data.results.push_back({"train", result, nullptr, analysis});
  Report report = make_report(data, {});
  const std::string html = report.page.html(report.title, report.subtitle);
  const std::vector<plot::Figure> figures = report.page.figures();
  const plot::Figure* shares = figure_named(figures, "shares-train-y");
  ASSERT_NE(shares, nullptr);
  EXPECT_EQ(shares->categories, (std::vector<std::string>{"b", "a"}));
  EXPECT_NEAR(shares->series[1].y[0], 0.15, 1e-12);
  EXPECT_NE(figure_named(figures, "effects-train-y"), nullptr);
  EXPECT_THAT(html, HasSubstr("0.250 [0.200, 0.300]"));
  EXPECT_THAT(html, HasSubstr("train z is constant."));
  EXPECT_THAT(html, Not(HasSubstr("earlier model")));
  data.results.back().analysis["model_checksum"] = "2";
  Report later = make_report(data, {});
  EXPECT_THAT(later.page.html("", ""), HasSubstr("The analysis of train is of an earlier model"));
}

TEST_F(RecordOfThree, ShowsPosteriors) {
  ReportData data = gather(plan_->campaign());
  const nlohmann::json result =
      nlohmann::json::parse(R"({"test": {"targets": {}}, "checksums": {"model.pt": "1"}})");
  const nlohmann::json inference = nlohmann::json::parse(R"({"model_checksum": "1", "observations": 7,
    "calibration": {"samples": 40, "parameters": [
      {"name": "a", "ranks": [19, 21], "within_68": 0.7, "within_68_error": 0.07, "within_95": 0.9,
       "within_95_error": 0.03, "p_value": 0.25, "mean_deviation": 0.5}]},
    "posteriors": [{"id": 4, "outside": 0, "correlations": [1, 0, 0, 1], "parameters": [
      {"name": "a", "mean": 1, "deviation": 2, "quantiles": [-3, -1, 1.25, 3, 5], "truth": 0.5},
      {"name": "b", "mean": 7, "deviation": 1, "quantiles": [5, 6, 7, 8, 9]}],
      "corner": {"bins": 2, "ranges": [[-4, 6], [4, 10]], "counts": [[[3, 5]], [[1, 2, 3, 4], [6, 2]]]}}]})");
  data.results.push_back({"train", result, nullptr, nullptr, inference});
  Report report = make_report(data, {});
  const std::string html = report.page.html(report.title, report.subtitle);
  EXPECT_THAT(html, Not(HasSubstr("not as wflow-train writes them")));
  const std::vector<plot::Figure> figures = report.page.figures();
  const plot::Figure* marginal = figure_named(figures, "posterior-train-observation-4-a");
  ASSERT_NE(marginal, nullptr);
  EXPECT_EQ(marginal->edges, (std::vector<double>{-4, 1, 6}));
  EXPECT_EQ(marginal->references.at(0).value, 0.5);
  const plot::Figure* pairs = figure_named(figures, "posterior-pairs-train-observation-4");
  ASSERT_NE(pairs, nullptr);
  EXPECT_EQ(pairs->images.at(0).name, "b, a");
  EXPECT_EQ(pairs->images.at(0).values, (std::vector<float>{3, 4, 1, 2}));
  const plot::Figure* ranks = figure_named(figures, "ranks-train-a");
  ASSERT_NE(ranks, nullptr);
  EXPECT_EQ(ranks->references.at(0).value, 20);
  EXPECT_THAT(html, HasSubstr("0.700 +- 0.070"));
  EXPECT_THAT(html, HasSubstr("The first 1 of 7 observations"));
  nlohmann::json& posterior = data.results.back().inference["posteriors"][0];
  posterior.update({{"traces", 500}, {"effective_samples", 123.4}, {"log_evidence", -8.25}});
  posterior.erase("corner");
  Report of_traces = make_report(data, {});
  EXPECT_THAT(of_traces.page.html("", ""), HasSubstr("500 traces, 123.4 effective; log evidence -8.250."));
  data.results.back().inference["model_checksum"] = "2";
  Report later = make_report(data, {});
  EXPECT_THAT(later.page.html("", ""), HasSubstr("The posteriors of train are of an earlier model"));
}

TEST_F(RecordOfThree, MakesAPage) {
  Report report = make_report(gather(plan_->campaign()), {});
  const std::string html = report.page.html(report.title, report.subtitle);
  EXPECT_THAT(html, HasSubstr("4 of 5 tasks in 1 step are done, 1 failed."));
  EXPECT_THAT(html, HasSubstr("no root"));
  std::set<std::string> ids;
  for (const plot::Figure& figure : report.page.figures())
    EXPECT_TRUE(ids.insert(figure.id).second) << figure.id;
  EXPECT_TRUE(ids.contains("failures-by-kind"));
}

TEST(Page, HasPicturesAsImages) {
  Page page([](std::string_view text) { return std::string(text); });
  page.section("a", "a");
  page.picture("\"<plot>", "image/png", "ab");
  page.picture("", "image/png", "abc");
  page.picture("", "image/png", "abcd");
  const std::string html = page.html("t", "u");
  EXPECT_THAT(html, HasSubstr("alt=\"&quot;&lt;plot&gt;\" src=\"data:image/png;base64,YWI=\""));
  EXPECT_THAT(html, HasSubstr("base64,YWJj\""));
  EXPECT_THAT(html, HasSubstr("base64,YWJjZA==\""));
}

TEST(Page, ADigestChangesWithItsSectionAlone) {
  const auto sections = [](double value) {
    Page page([](std::string_view text) { return std::string(text); });
    page.section("a", "a");
    page.paragraph("same");
    page.section("b", "b");
    page.figure({.id = "f", .series = {{.name = "s", .x = {1}, .y = {value}}}});
    return page.sections_json();
  };
  const nlohmann::json one = sections(1);
  const nlohmann::json two = sections(2);
  EXPECT_EQ(one.at(0), two.at(0));
  EXPECT_NE(one.at(1).at("digest"), two.at(1).at("digest"));
}

}  // namespace
}  // namespace wflow::cli::report
