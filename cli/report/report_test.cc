// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>

#include "base/file.h"
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

TEST_F(RecordOfThree, MakesAPage) {
  const Report report = make_report(gather(plan_->campaign()), {});
  EXPECT_THAT(report.html, HasSubstr("4 of 5 tasks in 1 step are done, 1 failed."));
  EXPECT_THAT(report.html, HasSubstr("no root"));
  std::set<std::string> ids;
  for (const plot::Figure& figure : report.figures) EXPECT_TRUE(ids.insert(figure.id).second) << figure.id;
  EXPECT_TRUE(ids.contains("failures-by-kind"));
}

}  // namespace
}  // namespace wflow::cli::report
