// SPDX-License-Identifier: Apache-2.0
#include "cli/view/table.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace wflow::cli {
namespace {

std::string printed(const Table& table, int width, bool interactive = true) {
  Terminal terminal;
  terminal.interactive = interactive;
  terminal.width = width;
  testing::internal::CaptureStdout();
  table.print_whole(terminal);
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(Table, IsLinesOfEachRowWhereTheTerminalIsNarrow) {
  Table table({"worker", "state", "cores", "ended"});
  table.add({{"nid000123-4567-89abcdef"}, {"ended"}, {"12"}, {"drained"}});
  table.add({{"b"}, {"working"}, {"3"}, {""}});
  const std::string whole =
      "worker                   state    cores  ended\n"
      "nid000123-4567-89abcdef  ended    12     drained\n"
      "b                        working  3\n";
  EXPECT_EQ(printed(table, 48), whole);
  EXPECT_EQ(printed(table, 20, false), whole) << "programs read it";
  EXPECT_EQ(printed(table, 30),
            "nid000123-4567-89abcdef\n"
            "  state ended  cores 12\n"
            "  ended drained\n"
            "b\n"
            "  state working  cores 3\n");
}

}  // namespace
}  // namespace wflow::cli
