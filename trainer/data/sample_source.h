// SPDX-License-Identifier: Apache-2.0
// Where the samples of one split come from: shards in real runs, arrays in tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/shards/planes.h"
#include "converters/shards/shard_reader.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// seen = (stored - centre) * factor + offset
using ChannelScale = converters::Scale;

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::size_t size() const = 0;
  virtual std::int64_t id(std::size_t i) const = 0;
  virtual std::span<const double> targets(std::size_t i) const = 0;  // all labels
  // A field of several samples, sample indices[k] to to[k], each channel scaled where there are scales.
  // `keep`: compressed bytes may stay in memory as far as it goes. Thread-safe.
  virtual void read_scaled(std::size_t field, std::span<const std::size_t> indices,
                           std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                           converters::MemoryBudget* keep) const = 0;
  // What `keep` would take for all samples of a field.
  virtual std::int64_t compressed_bytes(std::size_t field) const = 0;
};

// Of the training split.
struct LabelRange {
  double mean = 0;
  double deviation = 1;
  double least = 0;
  double most = 0;
};

// A field of every sample, as a tensor: one number or a list of them has a single cell.
struct DataField {
  std::string name;
  bool is_input = true;
  TensorShape shape;
  std::vector<std::string> channels;        // their names, where the data have them
  bool has_channels = true;                 // its stored values have an axis of channels
  bool has_time = false;                    // and one of time
  std::vector<std::int64_t> grid;           // its stored axes but that of channels; empty: one cell
  std::vector<LabelRange> range;            // a channel, as stored; or one for all
  converters::Normalisation normalisation;  // what readers are to do
  std::optional<std::size_t> first_label;   // its numbers are labels from this one on
  // A channel: what is subtracted in float64 before its values become float32 (centre_of()).
  std::vector<double> centres() const;
};

struct DatasetInfo {
  std::string name;
  std::string hash;                 // names this very data set
  std::vector<DataField> fields;    // as the manifest has them: inputs, then targets
  std::vector<std::string> labels;  // names of the numbers of the targets; empty where a target is a field
  std::vector<LabelRange> label_range;
  std::size_t missing = 0;
};

struct Dataset {
  DatasetInfo info;
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> validation;
  std::unique_ptr<SampleSource> test;
};

// The class that most samples of a split have, by a label or in the cells of a field. Of a field some tens of
// samples are looked at.
double usual_class_of_label(const SampleSource& split, std::size_t label);
double usual_class_of_field(const SampleSource& split, std::size_t field, const TensorShape& shape);

// How a split is opened: where its shards lie, or from staged copies.
using SplitOpener = std::function<converters::SplitReader(std::string_view split)>;

// What the manifest says, without opening a shard.
DatasetInfo read_dataset_info(const std::filesystem::path& directory);
// Reads manifest and shards of a data directory that wflow-convert wrote.
Dataset open_dataset(const std::filesystem::path& directory);
Dataset open_dataset(const std::filesystem::path& directory, const converters::Manifest& manifest,
                     const SplitOpener& opener);

}  // namespace wflow::trainer
