// SPDX-License-Identifier: Apache-2.0
#include "converters/input/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "converters/convert/test_support.h"
#include "converters/readers/reader.h"

namespace wflow::converters {
namespace {

class CheckTest : public FolderTest {
 protected:
  // A .npy file of shape (3, 2): 0, 1, 2, ... with `special` in the last place.
  std::string file(float special = 5) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
    header.append(118 - 1 - header.size(), ' ');
    header += '\n';
    const std::string path = folder_ / "u.npy";
    std::ofstream out(path, std::ios::binary);
    out.write("\x93NUMPY\x01\x00\x76\x00", 10);
    out << header;
    for (int i = 0; i < 6; ++i) {
      const float value = i < 5 ? static_cast<float>(i) : special;
      out.write(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return path;
  }
  static std::string problem(const OutputCheck& expected) {
    try {
      check(expected);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return error.what();
    }
  }
};

TEST_F(CheckTest, ShapeAndValues) {
  EXPECT_EQ(problem({file(), "", {3, 2}, true}), "");
  EXPECT_EQ(problem({file(), "", {}, false}), "");
  EXPECT_EQ(problem({file(), "", {3, 2, 1}, false}), file() + " has shape (3, 2), and (3, 2, 1) is declared");
  const float nan = std::nanf("");
  EXPECT_EQ(problem({file(nan), "", {3, 2}, false}), "");
  EXPECT_EQ(problem({file(nan), "", {3, 2}, true}), file(nan) + " holds NaN or infinite values");
}

TEST_F(CheckTest, FilesThatDoNotOpen) {
  const std::string absent = folder_ / "absent.npy";
  EXPECT_EQ(problem({absent, "", {}, false}), absent + " is not there");
  const std::string broken = folder_ / "broken.h5";
  std::ofstream(broken) << "not HDF5";
  EXPECT_NE(problem({broken, "density", {}, false}).find("broken.h5"), std::string::npos);
}

TEST_F(CheckTest, RowsOfAStackedFile) {
  const Array row = read_array(file(), {}, 1);
  EXPECT_EQ(row.shape, std::vector<std::size_t>{2});
  float values[2];
  ASSERT_EQ(row.bytes.size(), sizeof values);
  std::memcpy(values, row.bytes.data(), sizeof values);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[1], 3);
  EXPECT_THROW(read_array(file(), {}, 3), Error);
}

TEST(CheckList, Reads) {
  const auto checks = checks_from_json(
      R"([{"file": "a.h5", "dataset": "d", "shape": [4, 5], "finite": true}, {"file": "b"}])");
  ASSERT_EQ(checks.size(), 2U);
  EXPECT_EQ(checks[0].shape, (std::vector<std::uint64_t>{4, 5}));
  EXPECT_TRUE(checks[0].finite);
  EXPECT_FALSE(checks[1].finite);
  EXPECT_THROW(checks_from_json("[{}]"), Error);
  EXPECT_THROW(checks_from_json("nothing"), Error);
}

}  // namespace
}  // namespace wflow::converters
