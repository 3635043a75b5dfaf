// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "converters/shards/shard_reader.h"

namespace wflow::trainer {
namespace {

class ShardSource final : public SampleSource {
 public:
  explicit ShardSource(converters::SplitReader reader) : reader_(std::move(reader)) {}
  std::size_t size() const override { return reader_.size(); }
  std::int64_t id(std::size_t i) const override { return reader_.id(i); }
  std::span<const double> targets(std::size_t i) const override { return reader_.targets(i); }
  void read(std::size_t i, std::span<float> x) const override { reader_.read(i, x); }
  void read_scaled(std::span<const std::size_t> indices, std::span<const std::span<float>> to,
                   std::span<const ChannelScale> scales) const override {
    reader_.read_fields(0, indices, to, scales);
  }

 private:
  converters::SplitReader reader_;
};

DatasetInfo info_of(const converters::Manifest& manifest, const std::filesystem::path& directory) {
  const auto inputs = std::count_if(manifest.fields.begin(), manifest.fields.end(), [](const auto& field) {
    return field.role == converters::FieldRole::input;
  });
  if (inputs != 1) {
    throw Error(ExitCode::data, fmt::format("{}/manifest.json has {} inputs, and this trainer takes one",
                                            directory.string(), inputs));
  }
  DatasetInfo info;
  info.name = manifest.name;
  info.hash = manifest.hash;
  info.shape.channels = static_cast<std::int64_t>(manifest.shape[0]);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    info.shape.extent[axis] = static_cast<std::int64_t>(manifest.shape[axis + 1]);
  }
  info.labels = manifest.labels;
  info.missing = manifest.missing.size();
  for (const converters::ChannelStatistics& label : manifest.statistics.y) {
    info.label_range.push_back({label.mean, label.std, label.min, label.max});
  }
  for (const converters::ChannelStatistics& channel : manifest.statistics.x) {
    info.field_range.push_back({channel.mean, channel.std, channel.min, channel.max});
  }
  if (info.labels.empty() || info.label_range.size() != info.labels.size()) {
    throw Error(ExitCode::data,
                fmt::format("{}/manifest.json names no labels with statistics; the network would have "
                            "nothing to learn: name parameters or numbers as 'targets' in the convert: block "
                            "(wflow-train learns numbers, or the input field itself; for other fields see "
                            "examples/own_network)",
                            directory.string()));
  }
  return info;
}

}  // namespace

DatasetInfo read_dataset_info(const std::filesystem::path& directory) {
  return info_of(converters::read_manifest(directory), directory);
}

Dataset open_dataset(const std::filesystem::path& directory) {
  const converters::Manifest manifest = converters::read_manifest(directory);
  Dataset dataset;
  dataset.info = info_of(manifest, directory);
  const auto open = [&](const char* split) {
    return std::make_unique<ShardSource>(converters::SplitReader::open(directory, manifest, split));
  };
  dataset.train = open("train");
  dataset.validation = open("validation");
  dataset.test = open("test");
  if (dataset.train->size() == 0) {
    throw Error(ExitCode::data, fmt::format("{} has no training samples", directory.string()));
  }
  return dataset;
}

}  // namespace wflow::trainer
