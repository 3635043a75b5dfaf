// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

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

}  // namespace
}  // namespace wflow
