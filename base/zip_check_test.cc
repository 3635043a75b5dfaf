// SPDX-License-Identifier: Apache-2.0
#include "base/zip_check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

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
    "PK\x01\x02\x0a\0\x0a\0\0\0\0\0\0\0\0\0\x26\x39\xf4\xcb\x09\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    "aPK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0\x28\0\0\0\0\0",
    40 + 47 + 22);

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
  for (std::size_t size = 0; size < kZip.size(); ++size) EXPECT_NE(damage(kZip.substr(0, size)), "none") << size;
  for (std::size_t at = 0; at < kZip.size(); ++at) {  // no byte leads it out of the file
    std::string changed = kZip;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    damage(changed);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace wflow
