// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/event_tail.h"

#include <gtest/gtest.h>

namespace wflow::workers {
namespace {

// Lines that are no reports are for others.
void take(SampleReports& reports, const char* line) {
  const auto event = engine::wire::parse_event_line(line);
  const auto* report = event ? std::get_if<engine::wire::SampleReport>(&*event) : nullptr;
  if (report != nullptr) reports.take(*report);
}

TEST(SampleReports, TakesSamplesAndRanges) {
  SampleReports reports(100, 50);
  take(reports, R"({"type": "sample_failed", "sample": 117, "error": "no root", "exit_code": 104})");
  take(reports, R"({"type": "sample_done", "first": 120, "count": 10})");
  take(reports, R"({"type": "sample_done", "sample": 101})");
  EXPECT_TRUE(reports.failed(117));
  EXPECT_EQ(reports.failures().at(117).error, "no root");
  EXPECT_EQ(reports.failures().at(117).exit_code, 104);
  EXPECT_TRUE(reports.done(101));
  EXPECT_TRUE(reports.done(120));
  EXPECT_TRUE(reports.done(129));
  EXPECT_FALSE(reports.done(130));
  EXPECT_FALSE(reports.done(119));
}

TEST(SampleReports, TheLastLineCounts) {
  SampleReports reports(0, 4);
  take(reports, R"({"type":"sample_done","sample":1})");
  take(reports, R"({"type":"sample_failed","sample":1})");
  take(reports, R"({"type":"sample_failed","sample":2})");
  take(reports, R"({"type":"sample_done","sample":2})");
  EXPECT_TRUE(reports.failed(1));
  EXPECT_FALSE(reports.done(1));
  EXPECT_EQ(reports.failures().at(1).exit_code, 1);
  EXPECT_TRUE(reports.done(2));
  EXPECT_FALSE(reports.failed(2));
}

TEST(SampleReports, ForeignAndBrokenLinesChangeNothing) {
  SampleReports reports(10, 5);
  for (const char* line :
       {R"({"type":"sample_done","sample":9})", R"({"type":"sample_done","sample":15})",
        R"({"type":"sample_done","first":12,"count":4})", R"({"type":"sample_done","sample":-1})",
        R"({"type":"sample_done","sample":"11"})", R"({"type":"sample_done"})", R"(["sample_done"])",
        R"({"type":"note","text":"sample_done"})", R"({"type":"sample_failed","sample":1e30})",
        R"({"type":"note","text":"\"sample_done\"","sample":11})", R"({"type":"sample_done","sample":11)"}) {
    take(reports, line);
  }
  for (engine::wire::Element element = 10; element < 15; ++element) EXPECT_FALSE(reports.done(element));
  EXPECT_TRUE(reports.failures().empty());
}

}  // namespace
}  // namespace wflow::workers
