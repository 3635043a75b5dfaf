// SPDX-License-Identifier: Apache-2.0
#include "base/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace wflow {
namespace {

using testing::HasSubstr;

std::string npy(int version, const std::string& dict, const std::string& data = {}) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  for (std::size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(dict.size() >> (8 * i) & 0xff);
  return bytes + dict + data;
}

NpyHeader parse(const std::string& bytes) {
  return parse_npy_header({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "f.npy");
}

const char* const kGood = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";

TEST(Npy, HeadersOfAllVersions) {
  for (const int version : {1, 2, 3}) {
    const NpyHeader header = parse(npy(version, kGood));
    EXPECT_EQ(header.kind, 'f');
    EXPECT_EQ(header.item_bytes, 4U);
    EXPECT_EQ(npy_bytes(header), 24U);
    EXPECT_FALSE(header.big_endian);
    EXPECT_FALSE(header.fortran_order);
    EXPECT_EQ(header.shape, (std::vector<std::size_t>{2, 3}));
    EXPECT_EQ(header.data_offset, (version == 1 ? 10 : 12) + std::string(kGood).size());
  }
  const NpyHeader other = parse(npy(1, "{\"shape\":(5L,),'fortran_order':True,'descr':'>u2'}"));
  EXPECT_TRUE(other.big_endian);
  EXPECT_TRUE(other.fortran_order);
  EXPECT_EQ(other.kind, 'u');
  EXPECT_EQ(other.item_bytes, 2U);
  EXPECT_EQ(other.shape, (std::vector<std::size_t>{5}));
  EXPECT_TRUE(parse(npy(1, "{'descr': '|i1', 'fortran_order': False, 'shape': ()}")).shape.empty());
}

// The sentence of the Error; "" without an error.
std::string why(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "";
}

TEST(Npy, TypesAreLettersAndSizes) {
  const auto type = [](const std::string& descr) {
    const NpyHeader header =
        parse(npy(1, "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (2,)}"));
    EXPECT_EQ(header.descr, descr);
    return std::make_pair(header.kind, header.item_bytes);
  };
  EXPECT_EQ(type("<U3"), std::make_pair('U', std::size_t{12}));
  EXPECT_EQ(type("|S5"), std::make_pair('S', std::size_t{5}));
  EXPECT_EQ(type("<c8"), std::make_pair('c', std::size_t{8}));
  EXPECT_EQ(type("<M8[ns]"), std::make_pair('M', std::size_t{0}));
  EXPECT_EQ(type("|O"), std::make_pair('\0', std::size_t{0}));
}

TEST(Npy, RefusalsSayWhyAndWhere) {
  EXPECT_EQ(why("PK\x03\x04"), "f.npy is not a usable .npy file: it does not begin as one (byte 0)");
  EXPECT_THAT(why(npy(9, kGood)), HasSubstr("version 9; 1 to 3 are read (byte 6)"));
  EXPECT_THAT(why(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}")),
              HasSubstr("records, not numbers (byte 20)"));
  EXPECT_THAT(why(npy(1, "{'descr': '<f4', 'shape': (2,)}")), HasSubstr("not complete"));
  EXPECT_THAT(why(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}")),
              HasSubstr("not a number (byte 61)"));
  EXPECT_THAT(why(npy(2, kGood).replace(8, 4, "\xff\xff\xff\x7f", 4)),
              HasSubstr("longer than 1 MiB (byte 8)"));
}

TEST(Npy, SizesAreChecked) {
  NpyHeader header = parse(npy(1, kGood));
  header.shape = {std::size_t{1} << 32, std::size_t{1} << 32};
  EXPECT_EQ(npy_bytes(header), std::nullopt);
  header.shape = {std::size_t{1} << 32, 0, std::size_t{1} << 20};
  EXPECT_EQ(npy_bytes(header), 0U);
}

TEST(Npy, AnyCutOrChangedHeaderIsAnErrorOrAHeader) {
  const std::string good = npy(1, kGood);
  for (std::size_t length = 0; length < good.size(); ++length) EXPECT_NE(why(good.substr(0, length)), "");
  for (std::uint64_t round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (std::uint64_t k = 0; k <= round % 4; ++k) {
      bytes[hash64(round, 2 * k) % bytes.size()] = static_cast<char>(hash64(round, 2 * k + 1));
    }
    const std::string error = why(bytes);
    EXPECT_TRUE(error.empty() || error.starts_with("f.npy")) << error;
  }
}

}  // namespace
}  // namespace wflow
