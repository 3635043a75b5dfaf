// SPDX-License-Identifier: Apache-2.0
// Where the samples of one split come from: shards in real runs, arrays in tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "converters/shards/planes.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// seen = stored * factor + offset
using ChannelScale = converters::Scale;

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::size_t size() const = 0;
  virtual std::int64_t id(std::size_t i) const = 0;
  virtual std::span<const double> targets(std::size_t i) const = 0;  // all labels
  // Thread-safe.
  virtual void read(std::size_t i, std::span<float> x) const = 0;
  // Several at once, sample indices[k] to to[k], each channel scaled where there are scales. Thread-safe.
  virtual void read_scaled(std::span<const std::size_t> indices, std::span<const std::span<float>> to,
                           std::span<const ChannelScale> scales) const = 0;
};

// Of the training split.
struct LabelRange {
  double mean = 0;
  double deviation = 1;
  double least = 0;
  double most = 0;
};

struct DatasetInfo {
  std::string name;
  std::string hash;  // names this very data set
  TensorShape shape;
  std::vector<std::string> labels;
  std::vector<LabelRange> label_range;
  std::vector<LabelRange> field_range;  // a channel, as stored
  std::size_t missing = 0;
};

struct Dataset {
  DatasetInfo info;
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> validation;
  std::unique_ptr<SampleSource> test;
};

// What the manifest says, without opening a shard.
DatasetInfo read_dataset_info(const std::filesystem::path& directory);
// Reads manifest and shards of a data directory that wflow-convert wrote.
Dataset open_dataset(const std::filesystem::path& directory);

}  // namespace wflow::trainer
