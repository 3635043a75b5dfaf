// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "plugin/library.h"

namespace wflow::plugin {
namespace {

namespace fs = std::filesystem;

const wflow_array kSignal = {"signal", WFLOW_FLOAT32, 2, {2, 3}};

class RowFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wflow-plugin-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    before_ = fs::current_path();
    fs::current_path(directory_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(directory_);
  }
  static std::vector<float> values(std::size_t header) {
    const std::string bytes = read_file("signal.npy");
    std::vector<float> result((bytes.size() - header) / sizeof(float));
    std::memcpy(result.data(), bytes.data() + header, result.size() * sizeof(float));
    return result;
  }
  static constexpr std::size_t kHeader = 128;
  static std::vector<std::uint8_t> row(float value) {
    std::vector<std::uint8_t> bytes(6 * sizeof value);
    for (std::size_t i = 0; i < 6; ++i) std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    return bytes;
  }

  fs::path directory_, before_;
};

TEST_F(RowFileTest, RowsThatNobodyWroteAreNaN) {
  RowFile(kSignal, 4).write(2, 1, row(1.5F).data());
  const std::string header = read_file("signal.npy").substr(0, kHeader);
  EXPECT_NE(header.find("'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3), }"), std::string::npos);
  EXPECT_EQ(header.back(), '\n');
  const auto found = values(kHeader);
  ASSERT_EQ(found.size(), 24U);
  for (std::size_t i = 0; i < 24; ++i) {
    const bool written = i / 6 == 2;
    EXPECT_TRUE(written ? found[i] == 1.5F : std::isnan(found[i])) << i;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator("."), {}), 1);
}

TEST_F(RowFileTest, ASecondProcessKeepsTheRowsOfTheFirst) {
  RowFile first(kSignal, 4);
  first.write(0, 1, row(1).data());
  RowFile second(kSignal, 4);
  second.write(3, 1, row(2).data());
  first.write(1, 1, row(3).data());
  const auto found = values(kHeader);
  EXPECT_EQ(found[0], 1);
  EXPECT_EQ(found[6], 3);
  EXPECT_TRUE(std::isnan(found[12]));
  EXPECT_EQ(found[18], 2);
}

TEST_F(RowFileTest, ManyProcessesMakeOneFile) {
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      RowFile(kSignal, kProcesses).write(static_cast<std::uint64_t>(i), 1, row(static_cast<float>(i)).data());
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto found = values(kHeader);
  for (std::size_t i = 0; i < kProcesses; ++i) EXPECT_EQ(found[i * 6], static_cast<float>(i));
}

TEST_F(RowFileTest, AFileOfAnotherShapeIsAnError) {
  RowFile(kSignal, 4);
  EXPECT_THROW(RowFile(kSignal, 5), Error);
  const wflow_array wide = {"signal", WFLOW_FLOAT64, 2, {2, 3}};
  EXPECT_THROW(RowFile(wide, 4), Error);
  std::ofstream("signal.npy", std::ios::trunc) << "short";
  EXPECT_THROW(RowFile(kSignal, 4), Error);
}

TEST_F(RowFileTest, TellsFiniteRows) {
  const RowFile file(kSignal, 1);
  EXPECT_TRUE(file.finite(row(1).data()));
  auto bad = row(1);
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(bad.data() + 5 * sizeof infinity, &infinity, sizeof infinity);
  EXPECT_FALSE(file.finite(bad.data()));
}

TEST(Library, WhatCannotBeLoadedIsNamed) {
  try {
    load_library("/nonexistent/libnothing.so", "wflow_plugin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/libnothing.so"), std::string::npos);
  }
}

}  // namespace
}  // namespace wflow::plugin
