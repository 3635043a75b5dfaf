// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace wflow {
namespace {

TEST(ZipCheck, ChecksumIsZlibs) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("56789", crc32("1234")), 0xCBF43926U);
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
}

// One stored member "a" with the text 123456789.
const std::string kZip(
    "PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\x26\x39\xf4\xcb\x09\0\0\0\x09\0\0\0\x01\0\0\0a123456789"
    "PK\x01\x02\x0a\0\x0a\0\0\0\0\0\0\0\0\0\x26\x39\xf4\xcb\x09\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "\0\0\0\0"
    "aPK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0\x28\0\0\0\0\0",
    40 + 47 + 22);

// One deflated member "a" with the text 123456789 three times.
const std::string kDeflatedZip(
    "\x50\x4b\x03\x04\x14\x00\x00\x00\x08\x00\x00\x00\x00\x00\x59\x6e\xdf\x4d\x0e\x00\x00\x00\x1b\x00"
    "\x00\x00\x01\x00\x00\x00\x61\x33\x34\x32\x36\x31\x35\x33\xb7\xb0\x34\xc4\x60\x00\x00\x50\x4b\x01"
    "\x02\x14\x00\x14\x00\x00\x00\x08\x00\x00\x00\x00\x00\x59\x6e\xdf\x4d\x0e\x00\x00\x00\x1b\x00\x00"
    "\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x61\x50\x4b\x05\x06"
    "\x00\x00\x00\x00\x01\x00\x01\x00\x2f\x00\x00\x00\x2d\x00\x00\x00\x00\x00",
    114);
const std::size_t kDeflatedEnd = 45;  // end of the member

TEST(ZipCheck, FindsTheDamagedMember) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / ("wflow-zip-" + std::to_string(::getpid()));
  const auto damage = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return zip_damage(path).value_or("none");
  };
  EXPECT_EQ(damage(kZip), "none");
  for (std::size_t at = 31; at < 40; ++at) {
    std::string changed = kZip;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_EQ(damage(changed), "its member a is damaged");
  }
  EXPECT_EQ(damage(kDeflatedZip), "none");
  for (std::size_t at = 31; at + 1 < kDeflatedEnd;
       ++at) {  // the bits behind the end of a stream mean nothing
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = kDeflatedZip;
      changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
      EXPECT_EQ(damage(changed), "its member a is damaged") << at << " " << bit;
    }
  }
  std::string bomb = kDeflatedZip;
  bomb.replace(kDeflatedEnd + 24, 4, "\xfe\xff\xff\xff");
  EXPECT_EQ(damage(bomb), "its member a is damaged");
  for (std::size_t size = 0; size < kZip.size(); ++size)
    EXPECT_NE(damage(kZip.substr(0, size)), "none") << size;
  for (std::size_t at = 0; at < kZip.size(); ++at) {  // no byte makes it read outside the file
    std::string changed = kZip;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    damage(changed);
  }
  std::filesystem::remove(path);
}

}  // namespace

namespace {

std::uint32_t of(std::string_view text) {
  return crc32c({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

// RFC 3720, appendix B.4, and the check value of the polynomial.
TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::vector<std::uint8_t>(32, 0)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::vector<std::uint8_t>(32, 0xFF)), 0x62A8AB43U);
  std::vector<std::uint8_t> rising(32);
  for (std::size_t k = 0; k < rising.size(); ++k) rising[k] = static_cast<std::uint8_t>(k);
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(of(""), 0U);
}

}  // namespace

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
