// SPDX-License-Identifier: Apache-2.0
#include "cli/view/failure_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace wflow::cli {
namespace {

using engine::CampaignStatus;
using engine::FailureView;

FailureView failure(std::uint64_t number, std::string step, std::string reason, std::string detail) {
  FailureView view;
  view.number = number;
  view.task = step + "/" + std::to_string(number);
  view.step = std::move(step);
  view.element = number;
  view.reason = std::move(reason);
  view.final = true;
  view.detail = std::move(detail);
  return view;
}

CampaignStatus status_of(std::vector<FailureView> failures, std::uint64_t failed) {
  CampaignStatus status;
  status.directory = "/c";
  status.failures = std::move(failures);
  engine::StepStatus& step = status.steps.emplace_back();
  step.elements = failed;
  step.counts[static_cast<std::size_t>(engine::ElementState::failed)] = failed;
  return status;
}

std::vector<FailureView> twenty_alike() {
  std::vector<FailureView> failures;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const std::string n = std::to_string(i);
    failures.push_back(failure(i, "one", "exit code 1", "reading /d/" + n + "\nsample " + n + " is odd\n"));
  }
  return failures;
}

TEST(FailureGroups, AreOfOneStepOneEndAndOneLastLine) {
  std::vector<FailureView> failures = twenty_alike();
  failures.push_back(failure(21, "one", "exit code 2", "sample 1 is odd"));
  failures.push_back(failure(22, "two", "exit code 1", "sample 1 is odd"));
  failures.push_back(failure(23, "one", "exit code 1", "sample 1 is even"));
  failures.push_back(failure(24, "one", "exit code 1", "x\nsample 77 is odd"));
  const auto groups = group_failures(failures);
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].count, 21U);
  EXPECT_EQ(groups[0].first.task, "one/1");
  EXPECT_EQ(groups[3].first.task, "one/23");
}

TEST(FailureGroups, AreOneParagraphEach) {
  std::vector<FailureView> failures = twenty_alike();
  failures.push_back(failure(21, "two", "signal 9 (Killed)", ""));
  failures.back().attempt = 2;
  EXPECT_EQ(text::join(failure_lines(status_of(failures, 21), {}, true), "\n"),
            "\n21 tasks failed:\n"
            "  20 tasks like one/1 after 1 execution: exit code 1\n"
            "      reading /d/1\n"
            "      sample 1 is odd\n"
            "  two/21 after 3 executions: signal 9 (Killed)\n"
            "  one task's output: wflow logs /c one/1\n"
            "  all that failed: wflow tasks /c --failed\n"
            "  once it is mended: wflow retry /c; where the study has changed: wflow resume --update");
  const auto cut = failure_lines(status_of(failures, 5000), {}, false);
  EXPECT_EQ(cut[1], "5,000 tasks failed; the newest 21 of them:");
  EXPECT_TRUE(failure_lines(status_of({}, 0), {}, true).empty());
}

TEST(FailureGroups, OfAnEndAreFew) {
  std::vector<FailureView> failures;
  for (char c = 'a'; c <= 'h'; ++c) failures.push_back(failure(c, std::string(1, c), "exit code 1", ""));
  const std::string text = text::join(failure_lines(status_of(failures, 8), {}, false), "\n");
  EXPECT_NE(text.find("  and 3 other kinds of failure\n"), std::string::npos) << text;
  EXPECT_NE(text.find("wflow tasks /c"), std::string::npos) << text;
  EXPECT_EQ(failure_overview(status_of(failures, 8), {}).size(), 4U);
}

TEST(FailureGroups, FitALineEachWhileTheCampaignRuns) {
  Terminal terminal;
  terminal.width = 40;
  const auto lines = failure_overview(status_of(twenty_alike(), 20), terminal);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0], "  20 tasks like one/1 after 1~");
}

TEST(FailureReporter, TellsAnewAtTenTimesAsMany) {
  FailureReporter reporter;
  std::vector<FailureView> failures = twenty_alike();
  const auto at = [&](std::size_t count) {
    return text::join(reporter.news(status_of({failures.begin(), failures.begin() + long(count)}, count)),
                      "; ");
  };
  EXPECT_EQ(at(3), "one/1 failed: exit code 1 (2 more like it)");
  EXPECT_EQ(at(3), "");
  EXPECT_EQ(at(9), "");
  EXPECT_EQ(at(12), "12 tasks of the step one have failed so: exit code 1");
  EXPECT_EQ(at(20), "");
  failures.push_back(failure(21, "two", "exit code 1", ""));
  EXPECT_EQ(at(21), "two/21 failed: exit code 1");
}

}  // namespace
}  // namespace wflow::cli
