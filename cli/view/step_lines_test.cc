// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <gmock/gmock.h>

#include "base/text.h"

namespace wflow::cli {
namespace {

using engine::ElementState;
using testing::HasSubstr;

engine::StepStatus busy_step(const std::string& name) {
  engine::StepStatus step;
  step.name = name;
  step.elements = 1'000'000;
  const auto set = [&](ElementState state, std::uint64_t count) {
    step.counts[static_cast<std::size_t>(state)] = count;
  };
  set(ElementState::done, 123'456);
  set(ElementState::failed, 17);
  set(ElementState::delayed, 3);
  set(ElementState::leased, 4'096);
  set(ElementState::blocked, 872'428);
  step.rate_per_s = 1234.5;
  step.left_s = 7200;
  return step;
}

engine::CampaignStatus status_of(const std::vector<std::string>& names) {
  engine::CampaignStatus status;
  for (const std::string& name : names) status.steps.push_back(busy_step(name));
  return status;
}

Terminal screen(int width) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.width = width;
  return terminal;
}

TEST(StepLines, NothingIsCutWhateverTheWidth) {
  for (const int width : {34, 40, 59, 60, 80, 99, 100, 200}) {
    const auto lines = step_lines(status_of({"simulate", "data"}), screen(width));
    for (const std::string& line : lines) EXPECT_LE(columns_of(line), width) << line;
    const std::string all = text::join(lines, "\n");
    for (const char* part :
         {"simulate", "17 failed", "3 to retry", "4,096 assigned", "74.1k/min", "2 h 00 min left", "#x"})
      EXPECT_THAT(all, HasSubstr(part)) << width;
    EXPECT_THAT(all, HasSubstr(width < 40 ? "123k/1.00M" : "123,456/1,000,000")) << width;
  }
}

TEST(StepLines, AWideTerminalHasALineAStepAndABar) {
  const auto lines = step_lines(status_of({"simulate"}), screen(120));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("##x>~..."));
}

TEST(StepLines, APipeHasALineAStep) {
  Terminal pipe;
  EXPECT_EQ(step_lines(status_of({"simulate", "data"}), pipe).size(), 2U);
}

}  // namespace
}  // namespace wflow::cli
