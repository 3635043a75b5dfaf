// SPDX-License-Identifier: Apache-2.0
#include "converters/input/npy.h"

#include "converters/convert/test_support.h"
#include "converters/input/input.h"

namespace wflow::converters {
namespace {

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
    EXPECT_EQ(header.dtype, DType::float32);
    EXPECT_FALSE(header.big_endian);
    EXPECT_FALSE(header.fortran_order);
    EXPECT_EQ(header.shape, (std::vector<std::size_t>{2, 3}));
    EXPECT_EQ(header.data_offset, (version == 1 ? 10 : 12) + std::string(kGood).size());
  }
  const NpyHeader other = parse(npy(1, "{\"shape\":(5L,),'fortran_order':True,'descr':'>u2'}"));
  EXPECT_TRUE(other.big_endian);
  EXPECT_TRUE(other.fortran_order);
  EXPECT_EQ(other.dtype, DType::uint16);
  EXPECT_EQ(other.shape, (std::vector<std::size_t>{5}));
  EXPECT_TRUE(parse(npy(1, "{'descr': '|i1', 'fortran_order': False, 'shape': ()}")).shape.empty());
}

TEST(Npy, RefusalsSayWhy) {
  const auto why = [](const std::string& bytes) { return error_of([&] { parse(bytes); }); };
  EXPECT_NE(why("PK\x03\x04").find("4: f.npy is not a usable .npy file: it does not begin as one"),
            std::string::npos);
  EXPECT_NE(why(npy(9, kGood)).find("version 9"), std::string::npos);
  EXPECT_NE(why(npy(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}")).find("type '<c8'"),
            std::string::npos);
  EXPECT_NE(why(npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2,)}")).find("type '<f2'"),
            std::string::npos);
  EXPECT_NE(why(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}")).find("records"),
            std::string::npos);
  EXPECT_NE(why(npy(1, "{'descr': '<f4', 'shape': (2,)}")).find("not complete"), std::string::npos);
  EXPECT_NE(why(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}")).find("not a number"),
            std::string::npos);
}

TEST(Npy, AnyCutOrChangedHeaderIsAnErrorOrAHeader) {
  const std::string good = npy(1, kGood);
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(error_of([&] { parse(good.substr(0, length)); }), "");
  for (std::uint64_t round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (std::uint64_t k = 0; k <= round % 4; ++k) {
      bytes[hash64(round, 2 * k) % bytes.size()] = static_cast<char>(hash64(round, 2 * k + 1));
    }
    const std::string error = error_of([&] { parse(bytes); });
    EXPECT_TRUE(error.empty() || error.starts_with("4: f.npy")) << error;
  }
}

class NpyFile : public FolderTest {};

TEST_F(NpyFile, FortranOrderAndBigEndianBecomeOurs) {
  // [[1, 2, 3], [4, 5, 6]] column by column, big-endian
  const std::string data("\0\1\0\4\0\2\0\5\0\3\0\6", 12);
  write_file_durably(folder_ / "a.npy",
                     npy(1, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", data));
  const Array array = read_npy(folder_ / "a.npy", {});
  EXPECT_EQ(array.dtype, DType::int16);
  const std::vector<std::int16_t> expected = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(std::string(array.bytes.begin(), array.bytes.end()), bytes_of(expected));
}

TEST_F(NpyFile, CutOrHugeFilesAreRefused) {
  write_file_durably(folder_ / "cut.npy", npy(1, kGood, std::string(23, 'x')));
  EXPECT_NE(error_of([&] { read_npy(folder_ / "cut.npy", {}); }).find("is cut short"), std::string::npos);
  write_file_durably(
      folder_ / "huge.npy",
      npy(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}"));
  EXPECT_NE(error_of([&] { read_npy(folder_ / "huge.npy", {}); }).find("more than 4 GiB"), std::string::npos);
  write_file_durably(folder_ / "long.npy", npy(1, kGood + std::string(9000, ' '), std::string(24, 'x')));
  EXPECT_EQ(read_npy(folder_ / "long.npy", {}).bytes.size(), 24U);
  EXPECT_NE(error_of([&] { read_npy(folder_, {}); }).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace wflow::converters
