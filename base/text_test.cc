// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

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
