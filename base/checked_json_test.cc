// SPDX-License-Identifier: Apache-2.0
#include "base/checked_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace wflow {
namespace {

const nlohmann::json kValue = {{"a", 1}, {"b", {1.5, 2.5}}, {"name", "wflow"}};

TEST(CheckedJson, IsJsonAndGivesBackTheText) {
  for (const int indent : {1, 2}) {
    const std::string text = kValue.dump(indent) + "\n";
    const std::string sealed = with_checksum(text);
    EXPECT_EQ(nlohmann::json::parse(sealed).at("b"), kValue.at("b"));
    EXPECT_NE(nlohmann::json::parse(sealed).value("wflow_checksum", ""), "");
    const CheckedJson read = take_checksum(sealed);
    EXPECT_TRUE(read.checked);
    EXPECT_TRUE(read.whole);
    EXPECT_EQ(read.text, text);
  }
}

TEST(CheckedJson, TextsOfOlderVersionsHaveNone) {
  const CheckedJson read = take_checksum(kValue.dump());
  EXPECT_FALSE(read.checked);
  EXPECT_TRUE(read.whole);
  EXPECT_EQ(read.text, kValue.dump());
}

TEST(CheckedJson, EveryChangeOfAByteThatIsStillJsonIsSeen) {
  const std::string sealed = with_checksum(kValue.dump(2) + "\n");
  for (std::size_t at = 0; at < sealed.size(); ++at) {
    for (const int bit : {1, 2, 4}) {
      std::string changed = sealed;
      changed[at] = static_cast<char>(changed[at] ^ bit);
      const CheckedJson read = take_checksum(changed);
      const auto json = nlohmann::json::parse(read.text, nullptr, false);
      if (json.is_discarded() || !read.whole) continue;
      for (const auto& [key, value] : kValue.items()) EXPECT_EQ(json.value(key, nlohmann::json()), value);
    }
  }
  for (std::size_t size = 0; size < sealed.size(); ++size) {
    const CheckedJson read = take_checksum(sealed.substr(0, size));
    EXPECT_TRUE(!read.whole || nlohmann::json::parse(read.text, nullptr, false).is_discarded()) << size;
  }
}

TEST(CheckedJson, WhatAnotherProgramHasWrittenAnewIsSeen) {
  nlohmann::json json = nlohmann::json::parse(with_checksum(kValue.dump(2) + "\n"));
  EXPECT_FALSE(take_checksum(json.dump()).whole);
  json["a"] = 2;
  EXPECT_FALSE(take_checksum(json.dump(2)).whole);
}

TEST(CheckedJson, NullIsANumberThatIsNone) {
  const auto list = nlohmann::json::parse("[2.5, 3, null, \"2.5\"]");
  EXPECT_EQ(number_or_nan(list[0]), 2.5);
  EXPECT_EQ(number_or_nan(list[1]), 3);
  EXPECT_TRUE(std::isnan(number_or_nan(list[2])));
  EXPECT_TRUE(std::isnan(number_or_nan(nlohmann::ordered_json())));
  EXPECT_THROW(number_or_nan(list[3]), nlohmann::json::type_error);
}

}  // namespace
}  // namespace wflow
