// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace wflow::text {
namespace {

TEST(Text, NearestKnowsTypingErrorsOnly) {
  const std::vector<std::string> keys = {"depends", "description", "run"};
  EXPECT_EQ(nearest("dependz", keys), "depends");
  EXPECT_EQ(nearest("descripton", keys), "description");
  EXPECT_EQ(nearest("rnu", keys), "run");
  EXPECT_EQ(nearest("walltime", keys), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000'000, 'd'), keys), std::nullopt);  // at once
}

TEST(Text, Conversions) {
  EXPECT_EQ(to_integer("42"), 42);
  EXPECT_EQ(to_integer("42 "), std::nullopt);
  EXPECT_EQ(to_integer(""), std::nullopt);
  EXPECT_EQ(to_real("1e-3"), 1e-3);
  EXPECT_EQ(from_real(0.1), "0.1");
}

TEST(Text, Formats) {
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(12), "12");
  EXPECT_EQ(format_bytes(3 << 20), "3.0 MiB");
  EXPECT_EQ(format_duration(0.25), "250 ms");
  EXPECT_EQ(format_duration(245), "4 min 05 s");
  EXPECT_EQ(format_duration(7380), "2 h 03 min");
}

TEST(Text, ShellQuote) {
  EXPECT_EQ(shell_quote("a-b/c"), "a-b/c");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quote(""), "''");
}

TEST(Text, TailStartsAtALine) {
  EXPECT_EQ(tail("first\nsecond\nthird\n", 9), "third\n");
}

}  // namespace
}  // namespace wflow::text

namespace wflow {

namespace {

TEST(Printable, LeavesTextAlone) {
  EXPECT_EQ(printable("plain\n\ttext"), "plain\n\ttext");
  EXPECT_EQ(printable("\xce\xa9_m \xe2\x82\xac \xf0\x9f\x8c\x8c"),
            "\xce\xa9_m \xe2\x82\xac \xf0\x9f\x8c\x8c");
}

TEST(Printable, ReplacesWhatIsNoText) {
  EXPECT_EQ(printable("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(printable("a\xc3"), "a\xef\xbf\xbd") << "cut in the middle of a character";
  EXPECT_EQ(printable(std::string_view("\0\r\x7f", 3)), "???");
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m \x1b[K\x1b]0;title\x07"), "red ?]0;title?");
}

TEST(Printable, JsonTakesWhateverComesOut) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (std::size_t i = 0; i < 6; ++i) bytes.push_back(static_cast<char>(random() >> 13U));
    EXPECT_NO_THROW(nlohmann::json(printable(bytes)).dump());
  }
}

TEST(Printable, KnowsWhatIsUtf8) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("gr\xc3\xbc\xc3\x9f \x1b[31m"));
  EXPECT_FALSE(is_utf8("gr\xfc"));
  EXPECT_FALSE(is_utf8("\xc3"));
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));  // half of a surrogate pair
}

TEST(Visible, ShowsWhatActsOnATerminal) {
  EXPECT_EQ(visible("\x1b[2J\x1b]0;title\x07 a\tb\n\r\b\x7f"), "^[[2J^[]0;title^G a\tb\n^M^H^?");
  EXPECT_EQ(visible("Ω é 漢 😀"), "Ω é 漢 😀");
  EXPECT_EQ(visible("\xc2\x9b"
                    "2J \x9b"
                    "2J \xff"),
            "<U+009B>2J <9B>2J <FF>");
  EXPECT_EQ(visible("a\xe2\x80\xae"
                    "b\xe2\x81\xa6"),
            "a<U+202E>b<U+2066>");
  EXPECT_EQ(visible(std::string_view("a\0b", 3)), "a^@b");
}

TEST(Visible, ACharacterMayBeCutAtTheEnd) {
  const std::string text = "a\xf0\x9f\x98\x80";
  EXPECT_EQ(cut_character(text), 0u);
  for (std::size_t cut = 1; cut < 4; ++cut) EXPECT_EQ(cut_character(text.substr(0, 1 + cut)), cut);
  EXPECT_EQ(cut_character("a"), 0u);
  EXPECT_EQ(cut_character(""), 0u);
  EXPECT_EQ(cut_character("\x80\x80\x80\x80"), 0u);
}

}  // namespace

}  // namespace wflow
