// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/selection.h"

#include <gtest/gtest.h>

namespace wflow::cli {
namespace {

namespace wire = engine::wire;

// Failures that --where chooses here and there are a part each: five million of them are no message.
TEST(Selection, GoesOutInMessagesThatAreNotTooLarge) {
  wire::Selection selection;
  selection.chosen = true;
  for (specs::Element element = 0; element < 7; ++element)
    selection.parts.push_back({1, 2 * element, 2 * element});
  const auto messages = in_messages(selection, 3);
  ASSERT_EQ(messages.size(), 3U);
  std::vector<specs::Element> all;
  for (const wire::Selection& message : messages) {
    EXPECT_TRUE(message.chosen);
    EXPECT_LE(message.parts.size(), 3U);
    for (const wire::Part& part : message.parts) all.push_back(part.first);
  }
  EXPECT_EQ(all, (std::vector<specs::Element>{0, 2, 4, 6, 8, 10, 12}));
}

TEST(Selection, IsOneMessageWhereItNamesAStepOrChoseNothing) {
  wire::Selection step;
  step.step = "simulate";
  EXPECT_EQ(in_messages(step, 3).size(), 1U);
  wire::Selection nothing;
  nothing.chosen = true;
  ASSERT_EQ(in_messages(nothing, 3).size(), 1U) << "which is not all";
  EXPECT_TRUE(in_messages(nothing, 3).front().chosen);
}

}  // namespace
}  // namespace wflow::cli
