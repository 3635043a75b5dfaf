// SPDX-License-Identifier: Apache-2.0
#include "cli/view/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace wflow::cli {
namespace {

TEST(VisibleOutput, OnlyOwnSequencesActOnTheTerminal) {
  VisibleText text("00001234;");
  EXPECT_EQ(
      text.take("\x1b[00001234;31mred\x1b[00001234;K\x1b[00001234;2J \x1b[31mEVIL\x1b[2J\x1b]0;t\x07\n"),
      "\x1b[31mred\x1b[K\x1b[2J ^[[31mEVIL^[[2J^[]0;t^G\n");
}

TEST(VisibleOutput, WhereverItIsCut) {
  const std::string whole = "é\x1b[00001234;31m漢\x1b[0000\x1b[31m\x1b\x1b[00001234;0m😀\xff!\n";
  const std::string expected = VisibleText("00001234;").take(whole);
  EXPECT_EQ(expected, "é\x1b[31m漢^[[0000^[[31m^[\x1b[0m😀<FF>!\n");
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    VisibleText text("00001234;");
    const std::string first = text.take(whole.substr(0, cut));
    EXPECT_EQ(first + text.take(whole.substr(cut)), expected) << cut;
  }
  VisibleText text("00001234;");
  std::string bytes;
  for (const char byte : whole) bytes += text.take({&byte, 1});
  EXPECT_EQ(bytes, expected);
}

TEST(VisibleOutput, WithoutATerminalNothingIsMarked) {
  EXPECT_EQ(own_escape("31m"), "\x1b[31m");
}

using testing::ElementsAre;

TEST(Wrapped, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_THAT(wrapped("one two three", 80, 2), ElementsAre("one two three"));
  EXPECT_THAT(wrapped("one two three", 7, 2), ElementsAre("one two", "  three"));
  EXPECT_THAT(wrapped("  one  two", 6, 1), ElementsAre("  one", " two"));
  EXPECT_THAT(wrapped("", 10, 2), ElementsAre(""));
}

TEST(Wrapped, BreaksWordsThatAreLongerThanALine) {
  EXPECT_THAT(wrapped("/a/long/path", 6, 2), ElementsAre("/a/", "  long", "  /pat", "  h"));
  EXPECT_THAT(wrapped("at /a/long", 6, 0), ElementsAre("at", "/a/", "long"));
}

TEST(Wrapped, CountsColumnsAndNotBytes) {
  EXPECT_THAT(wrapped("█████ ██", 5, 0), ElementsAre("█████", "██"));
  EXPECT_THAT(wrapped("\x1b[31mred\x1b[0m and", 7, 0), ElementsAre("\x1b[31mred\x1b[0m and"));
}

TEST(Wrapped, KeepsWordsThatAreToBeCopied) {
  EXPECT_THAT(wrapped("wflow retry /a/long/path", 12, 2, LongWords::kept),
              ElementsAre("wflow retry", "  /a/long/path"));
}

TEST(Shortened, CutsAtABlankAndSaysSo) {
  Terminal terminal;
  EXPECT_EQ(shortened(terminal, "one two three", 13), "one two three");
  EXPECT_EQ(shortened(terminal, "one two three", 11), "one two~");
  EXPECT_EQ(shortened_name(terminal, "simulate/LR.0.1/17", 8), "~.0.1/17");
  terminal.unicode = true;
  EXPECT_EQ(shortened(terminal, "one two three", 11), "one two…");
}

TEST(Sparkline, HasALogarithmicAxis) {
  Terminal terminal;
  EXPECT_EQ(sparkline(terminal, {1, 0.1, 0.01, 0.001}, 10), "#=._");
  EXPECT_EQ(sparkline(terminal, {1, 0, -1}, 10), "#-_") << "linear";
}

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
