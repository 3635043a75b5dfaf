// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of this folder: a temporary folder, and small simulations' output in raw files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "converters/convert/conversion.h"

namespace wflow::converters {

namespace fs = std::filesystem;

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("wflow-") + std::to_string(::getpid()) + "-" +
                                                info->test_suite_name() + "-" + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

// The Error that `body` throws, as "code: sentence"; "" without an error.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return {};
}

template <typename Value>
std::string bytes_of(const std::vector<Value>& values) {
  std::string bytes(values.size() * sizeof(Value), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline constexpr std::size_t kSide = 12;
inline constexpr std::size_t kValues = 2 * kSide * kSide * kSide;

// Particle counts of an artificial universe: small whole numbers, different for each sample.
inline std::vector<float> sample_values(std::uint64_t id) {
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(hash64(id, i) % 7);
  return values;
}

inline ConvertConfig raw_config(std::uint64_t count) {
  FieldConfig x;
  x.name = "x";
  x.shape = {2, kSide, kSide, kSide};
  x.selector.format = Format::raw;
  x.selector.raw.dtype = DType::float32;
  x.selector.raw.shape = x.shape;
  ConvertConfig config;
  config.fields = short_fields(std::move(x), {});
  config.count = count;
  config.shard_samples = 8;
  config.split.parts = {0.6, 0.2, 0.2};
  config.split.order = SplitOrder::count;
  return config;
}

// `count` raw files and their rows; targets are (id, id squared).
inline std::vector<SampleRow> write_samples(const fs::path& folder, std::uint64_t count) {
  std::vector<SampleRow> rows;
  for (std::uint64_t i = 0; i < count; ++i) {
    const fs::path file = folder / ("u" + std::to_string(i) + ".raw");
    write_file_durably(file, bytes_of(sample_values(i)));
    const double x = static_cast<double>(i);
    rows.push_back({i, static_cast<std::int64_t>(i), file, {x, x * x}});
  }
  return rows;
}

inline Conversion make_conversion(const fs::path& folder, std::uint64_t count, unsigned threads = 2) {
  return {raw_config(count), folder / "data", {"a", "b"}, threads, false};
}

inline std::vector<SampleRow> rows_of_block(const std::vector<SampleRow>& rows, std::uint64_t block,
                                            std::uint64_t k) {
  const auto first = rows.begin() + static_cast<std::ptrdiff_t>(block * k);
  const auto end =
      rows.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(rows.size(), (block + 1) * k));
  return {first, end};
}

inline Manifest convert_all(const Conversion& conversion, const std::vector<SampleRow>& rows,
                            const BlockObserver& observer = {}) {
  const std::uint64_t k = conversion.config.shard_samples;
  for (std::uint64_t b = 0; b < Blocks(k, {}).count(rows.size()); ++b) {
    convert_block(conversion, b, rows_of_block(rows, b, k), observer);
  }
  return finish_conversion(conversion);
}

}  // namespace wflow::converters
