// SPDX-License-Identifier: Apache-2.0
#include "cli/view/output.h"

#include <gtest/gtest.h>

#include <string>

namespace wflow::cli {
namespace {

TEST(VisibleOutput, OnlyOwnSequencesActOnTheTerminal) {
  VisibleText text("00001234;");
  EXPECT_EQ(text.take("\x1b[00001234;31mred\x1b[00001234;K\x1b[00001234;2J \x1b[31mEVIL\x1b[2J\x1b]0;t\x07\n"),
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

}  // namespace
}  // namespace wflow::cli
