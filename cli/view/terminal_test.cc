// SPDX-License-Identifier: Apache-2.0
#include "cli/view/terminal.h"

#include <gmock/gmock.h>

namespace wflow::cli {
namespace {

using testing::ElementsAre;

TEST(Wrapped, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_THAT(wrapped("one two three", 80, 2), ElementsAre("one two three"));
  EXPECT_THAT(wrapped("one two three", 7, 2), ElementsAre("one two", "  three"));
  EXPECT_THAT(wrapped("  one  two", 6, 1), ElementsAre("  one", " two"));
  EXPECT_THAT(wrapped("", 10, 2), ElementsAre(""));
}

TEST(Wrapped, BreaksWordsThatAreLongerThanALine) {
  EXPECT_THAT(wrapped("/a/long/path", 6, 2), ElementsAre("/a/lon", "  g/pa", "  th"));
  EXPECT_THAT(wrapped("at /a/long", 6, 0), ElementsAre("at", "/a/lon", "g"));
}

TEST(Wrapped, CountsColumnsAndNotBytes) {
  EXPECT_THAT(wrapped("█████ ██", 5, 0), ElementsAre("█████", "██"));
  EXPECT_THAT(wrapped("\x1b[31mred\x1b[0m and", 7, 0), ElementsAre("\x1b[31mred\x1b[0m and"));
}

}  // namespace
}  // namespace wflow::cli
