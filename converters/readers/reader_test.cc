// SPDX-License-Identifier: Apache-2.0
#include "converters/readers/reader.h"

#include <fcntl.h>

#include <cmath>

#include "base/protobuf.h"
#include "converters/convert/test_support.h"
#include "converters/readers/test_files.h"
#include "converters/readers/tfrecord.h"

namespace wflow::converters {
namespace {

class ReaderTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    files_ = write_test_files(folder_);
  }
  const TestFile& file(const std::string& name, std::size_t which = 0) const {
    for (const TestFile& each : files_) {
      if (each.name == name && which-- == 0) return each;
    }
    throw std::out_of_range(name);
  }
  std::vector<double> values(const std::string& name, Selector selector, Row row = {}) const {
    Array array = read_array(folder_ / name, selector, row);
    convert_values(array, DType::float64);
    std::vector<double> result(array.bytes.size() / sizeof(double));
    std::memcpy(result.data(), array.bytes.data(), array.bytes.size());
    return result;
  }
  std::vector<double> values(const std::string& name) const { return values(name, file(name).selector); }
  std::string problem(const std::string& name, const Selector& selector) const {
    return error_of([&] { read_array(folder_ / name, selector); });
  }
  std::vector<TestFile> files_;
};

using Values = std::vector<double>;

TEST_F(ReaderTest, EveryFormatHasItsShape) {
  for (const TestFile& each : files_)
    EXPECT_EQ(read_array(folder_ / each.name, each.selector).shape, each.shape) << each.name;
}

TEST_F(ReaderTest, FormatsAreRecognised) {
  for (const TestFile& each : files_) {
    Selector selector = each.selector;
    const Format format = selector.format;
    if (format == Format::text || format == Format::gadget || format == Format::raw)
      continue;  // named, or by their keys
    selector.format = Format::automatic;
    EXPECT_EQ(format_of(folder_ / each.name, selector), format) << each.name;
    fs::copy_file(folder_ / each.name, folder_ / "nameless", fs::copy_options::overwrite_existing);
    if (format == Format::csv || format == Format::json || format == Format::tfrecord ||
        each.name == "four.nc")
      continue;
    EXPECT_EQ(format_of(folder_ / "nameless", selector), format) << each.name;
  }
  write_file_durably(folder_ / "what", "what is it");
  EXPECT_TRUE(problem("what", {}).starts_with("3: neither the suffix nor the first bytes of "));
}

TEST_F(ReaderTest, NumbersOfEachFormat) {
  EXPECT_EQ(values("h.npy"), (Values{1, -2, 65504}));  // float16
  EXPECT_EQ(values("u.npz", file("u.npz", 1).selector),
            (Values{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));  // complex, Fortran order
  EXPECT_EQ(values("classic.nc")[3], 11.5);                   // 3 * 0.5 + 10
  EXPECT_EQ(values("four.nc"), values("classic.nc"));
  EXPECT_EQ(values("u.h5", file("u.h5", 1).selector), Values{3});
  EXPECT_EQ(values("t.txt"), (Values{2, 3}));
  EXPECT_EQ(values("log.txt"), (Values{1.5, 2.5}));
  EXPECT_EQ(values("plain.pgm"), (Values{0, 1, 2, 3, 4, 300}));
  EXPECT_EQ(values("records.raw").size(), 24U);
  const Values table = values("t.csv");
  EXPECT_EQ(table[1], 2);
  EXPECT_EQ(table[3], -300);
  EXPECT_TRUE(std::isnan(table[4]));
  // A particle of mass 2 at the centre of each cell of volume 8, in both formats.
  EXPECT_EQ(values("snap1"), Values(8, 0.25));
  EXPECT_EQ(values("snap2"), Values(8, 0.25));
}

TEST_F(ReaderTest, SlicesAreNumPys) {
  for (const char* name : {"u.h5", "u.npz", "u.raw", "classic.nc", "grey.png"}) {
    Selector selector = file(name).selector;
    selector.slice = "1:4:2, -2:";
    Values expected = {10, 11, 22, 23};
    if (std::string(name) == "classic.nc") expected = {15, 15.5, 21, 21.5};
    EXPECT_EQ(values(name, selector), expected) << name;
    selector.slice = "-1, 0";
    EXPECT_EQ(read_array(folder_ / name, selector).shape, std::vector<std::size_t>{}) << name;
    selector.slice = "7";
    EXPECT_NE(problem(name, selector).find("slice '7' does not fit: 7 is beyond the"), std::string::npos)
        << name;
    selector.slice = "";
    EXPECT_EQ(values(name, selector, 2).size(), 6U) << name;
  }
}

TEST_F(ReaderTest, ErrorsSayWhatIsThere) {
  Selector selector = file("u.npz").selector;
  selector.dataset = "c";
  EXPECT_NE(problem("u.npz", selector).find("has no array c; it has a, b"), std::string::npos);
  selector = file("classic.nc").selector;
  selector.dataset = "v";
  EXPECT_NE(problem("classic.nc", selector).find("has no variable v; it has u"), std::string::npos);
  selector = file("t.csv").selector;
  selector.columns = {"y"};
  EXPECT_NE(problem("t.csv", selector).find("has no column y; it has t, x, v"), std::string::npos);
  selector = file("log.txt").selector;
  selector.match = Match::one;
  EXPECT_NE(problem("log.txt", selector).find("matches 2 times"), std::string::npos);
  selector.regex = "Q = (.*)";
  EXPECT_NE(problem("log.txt", selector).find("has no line that matches"), std::string::npos);
  selector.regex = "(step)";
  EXPECT_NE(
      problem("log.txt", selector).find("log.txt:1: the expression finds 'step', which is not a number"),
      std::string::npos);
  selector = file("r.json").selector;
  selector.json = "$.result.work";
  EXPECT_NE(problem("r.json", selector).find("has no value at $.result.work; its top has the keys result"),
            std::string::npos);
  write_file_durably(folder_ / "ragged.json", "[[1, 2], [3]]");
  selector.json = "$";
  EXPECT_NE(problem("ragged.json", selector).find("different lengths"), std::string::npos);
  selector = file("records.raw").selector;
  selector.raw.byte_order = ByteOrder::big;
  EXPECT_NE(problem("records.raw", selector).find("the record at byte 0 claims"), std::string::npos);
}

// libnetcdf allocates 16 GiB for such a list before it reads the file.
TEST_F(ReaderTest, AListOfMillionsInASmallNetcdfIsRefused) {
  const std::string good = read_file(folder_ / "classic.nc");
  for (const std::size_t at :
       {std::size_t{12},
        std::size_t{16}}) {  // entries of the list of dimensions; letters of the first one's name
    std::string bytes = good;
    bytes[at] = 0x7f;
    write_file_durably(folder_ / "classic.nc", bytes);
    EXPECT_NE(problem("classic.nc", file("classic.nc").selector)
                  .find("is not a readable NetCDF file: its header has a l"),
              std::string::npos);
  }
}

TEST_F(ReaderTest, TfrecordsAreReadAndDamageIsNamed) {
  const TestFile& y = file("u.tfrecord");
  const TestFile& x = file("u.tfrecord", 1);
  EXPECT_EQ(values("u.tfrecord"), (Values{0, 1, 2, 3}));
  EXPECT_EQ(values("u.tfrecord", x.selector)[23], 23);
  Selector z = y.selector;
  z.dataset = "z";
  EXPECT_EQ(values("u.tfrecord", z), (Values{5, 129}));
  z.dataset = "u";
  EXPECT_NE(problem("u.tfrecord", z).find("has no feature u; it has x, y, z"), std::string::npos);
  Selector bare = x.selector;
  bare.raw = {};
  EXPECT_NE(problem("u.tfrecord", bare).find("holds bytes: the keys 'shape' and 'raw:"), std::string::npos);
  bare.raw.shape = {5};
  EXPECT_NE(problem("u.tfrecord", bare).find("has 48 bytes, but (5) float32 makes 20"), std::string::npos);

  const std::string good = read_file(folder_ / "u.tfrecord");
  const auto broken = [&](const std::string& bytes) {
    write_file_durably(folder_ / "u.tfrecord", bytes);
    return problem("u.tfrecord", y.selector);
  };
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string error = broken(good.substr(0, size));
    EXPECT_TRUE(error.find("the record at byte 0 ") != std::string::npos || size == 0) << error;
  }
  EXPECT_NE(broken("").find("has 0 records"), std::string::npos);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] ^= 4;
    const char* expected =
        at < 12 ? "does not have the checksum of its length" : "does not have its checksum";
    EXPECT_NE(broken(bytes).find(expected), std::string::npos) << at;
  }
  // A length of 2^31, with the right checksum: refused before memory is allocated.
  std::string length;
  const std::uint64_t absurd = std::uint64_t{1} << 31;
  length.append(reinterpret_cast<const char*>(&absurd), sizeof absurd);
  const std::uint32_t crc = masked_crc32c({reinterpret_cast<const std::uint8_t*>(length.data()), 8});
  length.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  EXPECT_NE(broken(length + "abc").find("claims 2147483648 bytes, more than the file holds"),
            std::string::npos);
  EXPECT_NE(broken(good + good).find("has several records; 'stacked: true'"), std::string::npos);
  // Bytes with correct checksums may still not be an example.
  const std::string inside = good.substr(12, good.size() - 16);
  for (std::uint64_t round = 0; round < 3000; ++round) {
    std::string bytes = inside;
    for (std::uint64_t k = 0; k <= round % 3; ++k)
      bytes[hash64(20 + k, round) % bytes.size()] ^= static_cast<char>(1 + hash64(30 + k, round) % 255);
    if (round % 5 == 0) bytes.resize(hash64(40, round) % bytes.size());
    const FileDescriptor fd = open_file(folder_ / "u.tfrecord", O_WRONLY | O_TRUNC);
    write_all(fd.get(), tfrecord_of(bytes), folder_ / "u.tfrecord");
    const std::string error = problem("u.tfrecord", round % 2 == 0 ? y.selector : x.selector);
    EXPECT_TRUE(error.empty() || error.starts_with("4: ") || error.starts_with("3: ")) << error;
  }
  Selector stacked = y.selector;
  stacked.stacked = true;
  write_file_durably(folder_ / "u.tfrecord", good + good);
  EXPECT_EQ(values("u.tfrecord", stacked, 1), (Values{0, 1, 2, 3}));
  EXPECT_NE(broken(good + length).find("the record at byte " + std::to_string(good.size()) + " claims"),
            std::string::npos);
}

// Any damage is an error with a sentence, or harmless; memory stays in proportion to the file.
TEST_F(ReaderTest, DamagedFilesAreErrors) {
  for (const TestFile& each : files_) {
#ifdef WFLOW_ADDRESS_SANITIZER
    // libhdf5 1.10 reads beyond a chunk that inflates to less than its size (docs/convert.md).
    if (each.name.ends_with(".h5")) continue;
#endif
    const std::string good = read_file(folder_ / each.name);
    for (std::uint64_t round = 0; round < 150; ++round) {
      std::string bytes = good;
      const std::uint64_t changes = 1 + hash64(1, round) % 3;
      for (std::uint64_t k = 0; k < changes; ++k)
        bytes[hash64(2 + k, round) % bytes.size()] ^= static_cast<char>(1 + hash64(9 + k, round) % 255);
      if (round % 8 == 0) bytes.resize(hash64(5, round) % bytes.size());
      const FileDescriptor fd = open_file(folder_ / each.name, O_WRONLY | O_TRUNC);
      write_all(fd.get(), bytes, folder_ / each.name);
      const std::string error = problem(each.name, each.selector);
      EXPECT_TRUE(error.empty() || error.starts_with("4: ") || error.starts_with("3: "))
          << each.name << ": " << error;
    }
    write_file_durably(folder_ / each.name, good);
  }
}

}  // namespace
}  // namespace wflow::converters
