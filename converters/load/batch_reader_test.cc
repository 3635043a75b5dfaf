// SPDX-License-Identifier: Apache-2.0
// Uses the library as other languages do, through loader_c.h.
#include <fcntl.h>

#include <memory>
#include <numeric>

#include "converters/convert/test_support.h"
#include "converters/input/hdf5_handle.h"
#include "converters/load/loader_c.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {
namespace {

struct CloseLoader {
  void operator()(WflowLoader* loader) const { wflow_loader_close(loader); }
};
using Loader = std::unique_ptr<WflowLoader, CloseLoader>;

class BatchReaderTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    const Conversion conversion = make_conversion(folder_, 20);
    manifest_ = convert_all(conversion, write_samples(folder_, 20));
    data_ = conversion.output;
    const SplitReader reader = SplitReader::open(data_, manifest_, "train");
    ids_.clear();
    for (std::size_t i = 0; i < reader.size(); ++i) ids_.push_back(reader.id(i));
  }
  Loader open(int threads = 3) const { return Loader(wflow_loader_open(data_.c_str(), "train", threads)); }
  fs::path shard(std::size_t k) const { return data_ / manifest_.split("train").shards[k].file; }
  // Submits a batch of field `field` without scales and returns its number.
  static std::int64_t submit(WflowLoader* loader, const std::vector<std::int64_t>& samples, float* to,
                             std::int32_t field = 0) {
    const std::int32_t no_parts = 0;
    const double* no_scales = nullptr;
    return wflow_loader_submit(loader, static_cast<std::int64_t>(samples.size()), samples.data(), 1, &field,
                               &to, &no_parts, &no_scales);
  }
  void expect_sample(std::int64_t sample, const float* values) const {
    const SplitReader reader = SplitReader::open(data_, manifest_, "train");
    const auto expected =
        sample_values(static_cast<std::uint64_t>(reader.id(static_cast<std::size_t>(sample))));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values)) << sample;
  }
  // Like expect_sample, without the files.
  void expect_kept(std::int64_t sample, const float* values) const {
    const auto id = static_cast<std::uint64_t>(ids_.at(static_cast<std::size_t>(sample)));
    const auto expected = sample_values(id);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values)) << sample;
  }
  fs::path data_;
  Manifest manifest_;
  std::vector<std::int64_t> ids_;  // ids of the training samples
};

TEST_F(BatchReaderTest, BatchesInAnyOrderAreThoseAskedFor) {
  for (const int threads : {1, 4}) {
    const Loader loader = open(threads);
    ASSERT_NE(loader, nullptr) << wflow_loader_error();
    const std::int64_t count = wflow_loader_samples(loader.get());
    ASSERT_EQ(count, 12);
    ASSERT_EQ(wflow_loader_values(loader.get(), 0), static_cast<std::int64_t>(kValues));
    EXPECT_EQ(wflow_loader_values(loader.get(), 2), -1);
    // Several batches at the same time, waited for in another order.
    const std::vector<std::vector<std::int64_t>> wanted = {
        {5, 0, 11, 5}, {3}, {}, {11, 10, 9, 8, 7, 6, 5, 4, 3}};
    std::vector<std::vector<float>> values;
    std::vector<std::int64_t> numbers;
    for (const auto& samples : wanted) {
      values.emplace_back(samples.size() * kValues + 1, -1.0F);
      numbers.push_back(submit(loader.get(), samples, values.back().data()));
      ASSERT_GT(numbers.back(), 0) << wflow_loader_error();
    }
    for (const std::size_t k : {2U, 3U, 0U, 1U}) {
      ASSERT_EQ(wflow_loader_wait(loader.get(), numbers[k]), 0) << wflow_loader_error();
      for (std::size_t n = 0; n < wanted[k].size(); ++n) expect_sample(wanted[k][n], &values[k][n * kValues]);
      EXPECT_EQ(values[k].back(), -1.0F);  // nothing is written behind the batch
    }
  }
}

TEST_F(BatchReaderTest, ScalesArePartsOfASample) {
  const Loader loader = open();
  ASSERT_NE(loader, nullptr) << wflow_loader_error();
  const std::vector<std::int64_t> samples = {7, 2};
  std::vector<float> plain(2 * kValues);
  std::vector<float> scaled(2 * kValues);
  ASSERT_EQ(wflow_loader_wait(loader.get(), submit(loader.get(), samples, plain.data())), 0);
  const std::int32_t field = 0;
  const std::int32_t parts = 2;
  const std::vector<double> scales = {2, 0.5, 0, -3, 1, 0};
  float* to = scaled.data();
  const double* of_parts = scales.data();
  const std::int64_t batch =
      wflow_loader_submit(loader.get(), 2, samples.data(), 1, &field, &to, &parts, &of_parts);
  ASSERT_EQ(wflow_loader_wait(loader.get(), batch), 0) << wflow_loader_error();
  for (std::size_t k = 0; k < plain.size(); ++k) {
    const bool first = k % kValues < kValues / 2;
    ASSERT_EQ(scaled[k], first ? plain[k] * 2 + 0.5F : plain[k] * -3 + 1) << k;
  }
}

// When all samples have been read, no file is needed: they stay decoded if all of them fit, else compressed.
TEST_F(BatchReaderTest, KeptSamplesNeedNoFile) {
  std::vector<std::int64_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int32_t> fields = {0};
  std::vector<float> values(all.size() * kValues);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{120'000}, std::int64_t{1} << 30}) {
    SetUp();
    const Loader loader = open();
    ASSERT_NE(loader, nullptr) << wflow_loader_error();
    ASSERT_EQ(wflow_loader_keep(loader.get(), bytes, 1, fields.data()), 0) << wflow_loader_error();
    ASSERT_EQ(wflow_loader_wait(loader.get(), submit(loader.get(), all, values.data())), 0);
    for (const ShardEntry& entry : manifest_.split("train").shards) fs::resize_file(data_ / entry.file, 0);
    const std::int32_t code = wflow_loader_wait(loader.get(), submit(loader.get(), all, values.data()));
    EXPECT_EQ(code, bytes == 0 ? 4 : 0) << bytes << ": " << wflow_loader_error();
    for (std::size_t k = 0; bytes > 0 && k < all.size(); ++k) expect_kept(all[k], &values[k * kValues]);
    TearDown();
  }
  SetUp();
  EXPECT_EQ(wflow_loader_keep(open().get(), -1, 1, fields.data()), 0);  // by the machine's memory
  const std::int32_t none = 7;
  EXPECT_NE(wflow_loader_keep(open().get(), 100, 1, &none), 0);
}

TEST_F(BatchReaderTest, OtherScalesThanThoseThatAreKept) {
  const Loader loader = open();
  ASSERT_NE(loader, nullptr) << wflow_loader_error();
  const std::int32_t field = 0;
  ASSERT_EQ(wflow_loader_keep(loader.get(), std::int64_t{1} << 30, 1, &field), 0);
  const std::vector<std::int64_t> samples = {4, 4, 1};
  std::vector<float> plain(3 * kValues);
  std::vector<float> scaled(3 * kValues);
  const std::vector<double> scales = {2, 0.5, 0};
  const std::int32_t parts = 1;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(wflow_loader_wait(loader.get(), submit(loader.get(), samples, plain.data())), 0);
    float* to = scaled.data();
    const double* of_parts = scales.data();
    const std::int64_t batch =
        wflow_loader_submit(loader.get(), 3, samples.data(), 1, &field, &to, &parts, &of_parts);
    ASSERT_EQ(wflow_loader_wait(loader.get(), batch), 0) << wflow_loader_error();
    for (std::size_t k = 0; k < samples.size(); ++k) expect_sample(samples[k], &plain[k * kValues]);
    for (std::size_t k = 0; k < plain.size(); ++k) ASSERT_EQ(scaled[k], plain[k] * 2 + 0.5F) << k;
  }
}

// This test holds the lock of HDF5: a loader that called HDF5 would never end.
TEST_F(BatchReaderTest, ReadsWithoutHdf5OnceItIsOpen) {
  const Loader loader = open();
  ASSERT_NE(loader, nullptr) << wflow_loader_error();
  std::vector<float> x(2 * kValues);
  std::vector<float> y(2 * 2);
  const std::vector<std::int64_t> samples = {3, 9};
  const Hdf5Section held;
  const std::int64_t of_x = submit(loader.get(), samples, x.data());
  const std::int64_t of_y = submit(loader.get(), samples, y.data(), 1);
  EXPECT_EQ(wflow_loader_wait(loader.get(), of_x), 0) << wflow_loader_error();
  EXPECT_EQ(wflow_loader_wait(loader.get(), of_y), 0) << wflow_loader_error();
  EXPECT_EQ(y[1], y[0] * y[0]);
}

TEST_F(BatchReaderTest, WhatDoesNotExistIsRefused) {
  EXPECT_EQ(wflow_loader_open((folder_ / "nothing").c_str(), "train", 2), nullptr);
  EXPECT_NE(std::string(wflow_loader_error()).find("manifest.json"), std::string::npos);
  EXPECT_EQ(wflow_loader_open(data_.c_str(), "trian", 2), nullptr);
  const Loader loader = open();
  ASSERT_NE(loader, nullptr);
  std::vector<float> to(kValues);
  EXPECT_EQ(submit(loader.get(), {12}, to.data()), -1);
  EXPECT_EQ(submit(loader.get(), {-1}, to.data()), -1);
  EXPECT_EQ(submit(loader.get(), {0}, to.data(), 5), -1);
  EXPECT_EQ(submit(loader.get(), {0}, to.data(), -1), -1);
  EXPECT_NE(wflow_loader_wait(loader.get(), 77), 0);
  const std::int64_t batch = submit(loader.get(), {0}, to.data());
  EXPECT_EQ(wflow_loader_wait(loader.get(), batch), 0);
  EXPECT_NE(wflow_loader_wait(loader.get(), batch), 0);  // once
}

// A batch with a damaged sample is an error that names the file; the others are read, and closing
// with unfinished batches does not hang.
TEST_F(BatchReaderTest, ADamagedSampleFailsItsBatchAlone) {
  const FieldLayout layout = ShardFile(shard(0), {"x", "y"}, true).layout().fields[0];
  std::string bytes = read_file(shard(0));
  bytes[layout.chunks[1].offset + layout.chunks[1].bytes / 2] ^= 4;
  {
    const FileDescriptor fd = open_file(shard(0), O_WRONLY | O_TRUNC);
    write_all(fd.get(), bytes, shard(0));
  }
  // They outlive the loader, which may still write when the test ends.
  std::vector<float> to(3 * kValues);
  std::vector<float> good(kValues);
  const Loader loader = open();
  ASSERT_NE(loader, nullptr) << wflow_loader_error();
  const std::int64_t bad = submit(loader.get(), {0, 1, 2}, to.data());
  const std::int64_t fine = submit(loader.get(), {2}, good.data());
  EXPECT_EQ(wflow_loader_wait(loader.get(), bad), 4);
  EXPECT_NE(std::string(wflow_loader_error()).find(shard(0).string() + " is damaged"), std::string::npos)
      << wflow_loader_error();
  EXPECT_EQ(wflow_loader_wait(loader.get(), fine), 0);
  expect_sample(2, good.data());
  submit(loader.get(), {3, 4}, to.data());
}

// A file that shrinks or grows a hole while it is open; any changed byte and any cut tail before.
TEST_F(BatchReaderTest, AnyDamageIsAnErrorOrHarmless) {
  const std::string good = read_file(shard(0));
  std::vector<float> to(12 * kValues);
  std::vector<std::int64_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::string bytes = good;
    bytes[hash64(1, round) % bytes.size()] ^= static_cast<char>(1 + hash64(2, round) % 255);
    if (round % 8 == 0) bytes.resize(hash64(3, round) % bytes.size());
    const bool after = round % 3 == 0;  // the loader has opened it, with the index of the good file
    const auto damage = [&] {
      const FileDescriptor fd = open_file(shard(0), O_WRONLY | O_TRUNC);
      write_all(fd.get(), bytes, shard(0));
    };
    if (!after) damage();
    {
      const Loader loader = open(2);
      if (after) damage();
      if (loader) {
        const std::int64_t batch = submit(loader.get(), all, to.data());
        ASSERT_GT(batch, 0);
        const std::int32_t code = wflow_loader_wait(loader.get(), batch);
        EXPECT_TRUE(code == 0 || code == 4 || code == 5 || code == 8) << code << wflow_loader_error();
      } else {
        EXPECT_NE(std::string(wflow_loader_error()), "");
      }
    }
    const FileDescriptor fd = open_file(shard(0), O_WRONLY | O_TRUNC);
    write_all(fd.get(), good, shard(0));
  }
}

}  // namespace
}  // namespace wflow::converters
