// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/test_support.h"
#include "converters/readers/reader.h"

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

const char* const kGood = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";

class NpyFile : public FolderTest {};

TEST_F(NpyFile, FortranOrderAndBigEndianBecomeOurs) {
  // [[1, 2, 3], [4, 5, 6]] column by column, big-endian
  const std::string data("\0\1\0\4\0\2\0\5\0\3\0\6", 12);
  write_file_durably(folder_ / "a.npy",
                     npy(1, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", data));
  const Array array = read_array(folder_ / "a.npy", {});
  EXPECT_EQ(array.dtype, DType::int16);
  const std::vector<std::int16_t> expected = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(std::string(array.bytes.begin(), array.bytes.end()), bytes_of(expected));
}

TEST_F(NpyFile, OtherTypesAreRefused) {
  for (const std::string type : {"<U3", "<i16", "<f16", "<M8[ns]"}) {
    write_file_durably(folder_ / "t.npy",
                       npy(1, "{'descr': '" + type + "', 'fortran_order': False, 'shape': (2,)}"));
    EXPECT_NE(
        error_of([&] {
          read_array(folder_ / "t.npy", {});
        }).find("t.npy is not a usable .npy file: its values are of type '" + type + "'; bool, integers"),
        std::string::npos);
  }
}

TEST_F(NpyFile, CutOrHugeFilesAreRefused) {
  write_file_durably(folder_ / "cut.npy", npy(1, kGood, std::string(23, 'x')));
  EXPECT_NE(error_of([&] { read_array(folder_ / "cut.npy", {}); }).find("is cut short"), std::string::npos);
  write_file_durably(
      folder_ / "huge.npy",
      npy(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}"));
  EXPECT_NE(error_of([&] { read_array(folder_ / "huge.npy", {}); }).find("more than 4 GiB"),
            std::string::npos);
  write_file_durably(folder_ / "long.npy", npy(1, kGood + std::string(9000, ' '), std::string(24, 'x')));
  EXPECT_EQ(read_array(folder_ / "long.npy", {}).bytes.size(), 24U);
  EXPECT_NE(error_of([&] { read_array(folder_, {}); }).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace wflow::converters
