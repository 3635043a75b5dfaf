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
const std::size_t kDeflatedEnd = 45;  // of the member

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
  for (std::size_t at = 0; at < kZip.size(); ++at) {  // no byte leads it out of the file
    std::string changed = kZip;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    damage(changed);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace wflow
