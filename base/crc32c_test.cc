// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace wflow {
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
}  // namespace wflow
