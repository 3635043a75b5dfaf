// SPDX-License-Identifier: Apache-2.0
// The source of one split's samples: shards in real runs, arrays in tests.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/shards/codec.h"
#include "converters/shards/shard_reader.h"
#include "trainer/model/layout.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// A part of the cells of a stored sample, whose axes are periodic: behind the last cell comes the first one.

// Cells along depth, height and width: `count` from `start` on.
struct PeriodicBox {
  std::array<std::int64_t, 3> start = {0, 0, 0};
  std::array<std::int64_t, 3> count = {1, 1, 1};

  PeriodicBox() = default;
  explicit PeriodicBox(const Box& box) : count(box.extent()) {
    for (std::size_t axis = 0; axis < start.size(); ++axis) start[axis] = box.axes[axis].begin;
  }
  std::int64_t cells() const { return count[0] * count[1] * count[2]; }
  // The place of a cell in the box, along an axis of `length` cells; `count` or more if it is outside.
  std::int64_t place(std::size_t axis, std::int64_t cell, std::int64_t length) const {
    const std::int64_t place = cell - start[axis];
    return place < 0 ? place + length : place;
  }
  bool operator==(const PeriodicBox&) const = default;
};

// True if all cells of `inner` are in `box`, for axes of these lengths.
inline bool covers(const Box& box, const PeriodicBox& inner, const std::array<std::int64_t, 3>& lengths) {
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) {
    const Range& range = box.axes[axis];
    const bool inside =
        inner.start[axis] >= range.begin && inner.start[axis] + inner.count[axis] <= range.end;
    if (range.count() != lengths[axis] && !inside) return false;
  }
  return true;
}

// value = (stored - centre) * factor + offset
using ChannelScale = converters::Scale;

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::size_t size() const = 0;
  virtual std::int64_t id(std::size_t i) const = 0;
  virtual std::span<const double> targets(std::size_t i) const = 0;  // all labels
  // Reads a field of several samples, sample indices[k] into to[k]; scales each channel if there are scales.
  // `keep`: budget for compressed bytes that may stay in memory. Thread-safe.
  virtual void read_scaled(std::size_t field, std::span<const std::size_t> indices,
                           std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                           converters::MemoryBudget* keep) const = 0;
  // The same for a part of the cells of each sample. Sources whose samples have no parts read all of them.
  virtual void read_boxes(std::size_t field, const TensorShape& shape, std::span<const std::size_t> indices,
                          std::span<const PeriodicBox> boxes, std::span<const std::span<float>> to,
                          std::span<const ChannelScale> scales, converters::MemoryBudget* keep) const;
  // True if a part of a sample costs less than all of it.
  virtual bool has_parts(std::size_t /*field*/) const { return false; }
  // A chunk of a field: its cells along the axes, its decoded bytes, and the number of them in a sample. No
  // bytes: nothing is to be decoded, or several samples have one chunk.
  struct ChunkForm {
    std::array<std::int64_t, 3> extent = {1, 1, 1};
    std::size_t bytes = 0;
    std::size_t of_sample = 1;
  };
  virtual ChunkForm chunk_form(std::size_t /*field*/) const { return {}; }
  // As converters::SplitReader::share().
  virtual void share(std::size_t /*field*/, converters::SharedChunks& /*chunks*/, std::uint64_t /*key*/,
                     std::size_t /*rank*/, std::size_t /*ranks*/) {}
  // The work of all reads so far.
  virtual converters::ReadCounts counts() const { return {}; }
  // The length of a sample along the axis of a ragged field.
  virtual std::size_t length(std::size_t /*field*/, std::size_t /*i*/) const { return 0; }
  // The bytes that `keep` would need for all samples of a field.
  virtual std::int64_t compressed_bytes(std::size_t field) const = 0;
};

// Statistics of a label or channel over the training split.
struct LabelRange {
  double mean = 0;
  double deviation = 1;
  double least = 0;
  double most = 0;
};

// A field as a tensor: a number or a list of numbers has a single cell.
struct DataField {
  std::string name;
  bool is_input = true;
  TensorShape shape;
  std::vector<std::string> channels;        // their names, if the data have them
  bool has_channels = true;                 // the stored values have an axis of channels
  bool is_ragged = false;                   // each sample has its own length; masks are not
  bool has_time = false;                    // and an axis of time
  std::vector<std::int64_t> grid;           // the stored axes without the channels; empty: one cell
  std::vector<LabelRange> range;            // per channel, as stored; or one for all
  converters::Normalisation normalisation;  // to be applied by readers
  std::optional<std::size_t> first_label;   // index of the first label among its numbers
  // Per channel: subtracted in float64 before the values become float32 (centre_of()).
  std::vector<double> centres() const;
};

// True for a field whose rows are the draws of traces (docs/traces.md).
bool holds_traces(const DataField& field);

struct DatasetInfo {
  std::string name;
  std::string hash;                 // identifies the data set
  std::vector<DataField> fields;    // in the manifest's order: inputs, then targets
  std::vector<std::string> labels;  // names of the targets' numbers; empty if a target is a field
  std::vector<LabelRange> label_range;
  std::size_t missing = 0;
  std::size_t most_evaluated = 0;  // samples of the larger one of the validation and the test split
  std::shared_ptr<const traces::AddressTable> addresses;  // of traces; null: there are none
};

struct Dataset {
  DatasetInfo info;
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> validation;
  std::unique_ptr<SampleSource> test;
};

// The most frequent class of a split, by a label or by the cells of a field. For a field some tens of samples
// are read.
double usual_class_of_label(const SampleSource& split, std::size_t label);
double usual_class_of_field(const SampleSource& split, std::size_t field, const TensorShape& shape);

// Opens a split from the data directory or from staged copies.
using SplitOpener = std::function<converters::SplitReader(std::string_view split)>;

// Reads the manifest only, no shard.
DatasetInfo read_dataset_info(const std::filesystem::path& directory);
// Reads manifest and shards of a data directory that wflow-convert wrote.
Dataset open_dataset(const std::filesystem::path& directory);
Dataset open_dataset(const std::filesystem::path& directory, const converters::Manifest& manifest,
                     const SplitOpener& opener);

}  // namespace wflow::trainer
