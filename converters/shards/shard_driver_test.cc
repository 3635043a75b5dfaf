// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_driver.h"

#include <fcntl.h>

#include <algorithm>

#include "converters/convert/test_support.h"

namespace wflow::converters {
namespace {

class GatheredFileTest : public FolderTest {
 protected:
  GatheredFile make(const char* name, int flags = O_RDWR | O_CREAT) const {
    return GatheredFile(open_file(folder_ / name, flags));
  }
};

std::vector<std::uint8_t> some_bytes(std::uint64_t seed, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(1 + hash64(seed, i) % 255);
  return bytes;
}

// After appending, overwriting, reading and cutting anywhere, the file equals a copy in memory.
TEST_F(GatheredFileTest, IsAsAFileInMemory) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    GatheredFile file = make(std::to_string(seed).c_str());
    std::vector<std::uint8_t> expected;
    for (std::uint64_t step = 0; step < 120; ++step) {
      const std::uint64_t dice = hash64(seed, step) % 100;
      const std::uint64_t number = hash64(seed + 100, step);
      const std::size_t most = dice < 3 ? 3 * GatheredFile::kHeld : 150'000;
      const auto bytes = some_bytes(step, number % most);
      const std::size_t end = expected.size();
      std::size_t offset = end;                            // mostly
      if (dice >= 70) offset = number / 7 % (end + 5000);  // anywhere, also a little beyond the end
      if (dice == 99) offset = end + GatheredFile::kHeld + number % 3000;
      if (dice == 50) {
        expected.resize(number % (end + 1));
        ASSERT_TRUE(file.resize(expected.size()));
        continue;
      }
      if (dice == 51) {
        ASSERT_TRUE(file.flush());
      }
      ASSERT_TRUE(file.write(offset, bytes));
      expected.resize(std::max(end, bytes.empty() ? end : offset + bytes.size()), 0);
      std::copy(bytes.begin(), bytes.end(),
                expected.begin() + static_cast<std::ptrdiff_t>(std::min(offset, expected.size())));
      ASSERT_GE(file.size(), expected.size());  // writing ahead makes it longer at once
      expected.resize(file.size(), 0);
      const std::size_t from = number / 3 % (expected.size() + 1);
      std::vector<std::uint8_t> read(std::min<std::size_t>(200'000, expected.size() - from) + 10, 7);
      ASSERT_TRUE(file.read(from, read));
      for (std::size_t k = 0; k < read.size(); ++k)
        ASSERT_EQ(read[k], from + k < expected.size() ? expected[from + k] : 0) << step << " " << from + k;
    }
    ASSERT_TRUE(file.flush());
    const std::string there = read_file(folder_ / std::to_string(seed));
    ASSERT_EQ(there.size(), file.size());
    EXPECT_TRUE(std::equal(there.begin(), there.end(), expected.begin(),
                           [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; }));
  }
}

TEST_F(GatheredFileTest, TellsOfAnError) {
  write_file_durably(folder_ / "x", "abc");
  GatheredFile file = make("x", O_RDONLY);
  EXPECT_TRUE(file.write(0, some_bytes(1, 1000)));  // is held
  EXPECT_FALSE(file.flush());
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(file.write(1000, some_bytes(1, 2 * GatheredFile::kHeld)));
}

}  // namespace
}  // namespace wflow::converters
