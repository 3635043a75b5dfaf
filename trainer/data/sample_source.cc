// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "traces/address_table.h"
#include "trainer/data/transform.h"

namespace wflow::trainer {
namespace {

// Calls take(stored axis, axis of the tensor), without the latter for the channels. The channels lie along
// the axis C, or along the first of four axes. The others are D, H and W, of which the last ones are there.
template <typename Take>
void for_each_axis(const converters::FieldInfo& field, Take take) {
  std::size_t at = TensorShape().extent.size();
  for (std::size_t k = field.shape.size(); k-- > 0;) {
    if (field.layout[k] == 'C' || at == 0) {
      take(k, std::nullopt);
    } else {
      take(k, std::optional(--at));
    }
  }
}

TensorShape tensor_shape(const converters::FieldInfo& field) {
  TensorShape shape;
  for_each_axis(field, [&](std::size_t stored, std::optional<std::size_t> axis) {
    (axis ? shape.extent[*axis] : shape.channels) = static_cast<std::int64_t>(field.shape[stored]);
  });
  return shape;
}

// With all channels.
converters::SampleBox stored_box(const converters::FieldInfo& field, const PeriodicBox& box) {
  converters::SampleBox stored = converters::SampleBox::whole(field.shape);
  for_each_axis(field, [&](std::size_t at, std::optional<std::size_t> axis) {
    if (!axis) return;
    stored.start[at] = static_cast<std::size_t>(box.start[*axis]);
    stored.count[at] = static_cast<std::size_t>(box.count[*axis]);
  });
  return stored;
}

class ShardSource final : public SampleSource {
 public:
  explicit ShardSource(converters::SplitReader reader) : reader_(std::move(reader)) {}
  std::size_t size() const override { return reader_.size(); }
  std::int64_t id(std::size_t i) const override { return reader_.id(i); }
  std::span<const double> targets(std::size_t i) const override { return reader_.targets(i); }
  void read_scaled(std::size_t field, std::span<const std::size_t> indices,
                   std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                   converters::MemoryBudget* keep) const override {
    reader_.read_fields(field, indices, to, scales, keep);
  }
  void read_boxes(std::size_t field, const TensorShape&, std::span<const std::size_t> indices,
                  std::span<const PeriodicBox> boxes, std::span<const std::span<float>> to,
                  std::span<const ChannelScale> scales, converters::MemoryBudget* keep) const override {
    std::vector<converters::SampleBox> stored;
    for (const PeriodicBox& box : boxes) stored.push_back(stored_box(reader_.fields()[field], box));
    reader_.read_boxes(field, indices, stored, to, scales, keep);
  }
  bool has_parts(std::size_t field) const override { return reader_.has_parts(field); }
  ChunkForm chunk_form(std::size_t field) const override {
    const converters::SplitReader::ChunkForm chunk = reader_.chunk_form(field);
    ChunkForm form;
    form.bytes = chunk.bytes;
    if (form.bytes == 0) return form;
    for_each_axis(reader_.fields()[field], [&](std::size_t stored, std::optional<std::size_t> axis) {
      if (axis) form.extent[*axis] = static_cast<std::int64_t>(chunk.shape[stored]);
      const std::size_t length = reader_.fields()[field].shape[stored];
      form.of_sample *= (length + chunk.shape[stored] - 1) / chunk.shape[stored];
    });
    return form;
  }
  void share(std::size_t field, converters::SharedChunks& chunks, std::uint64_t key, std::size_t rank,
             std::size_t ranks) override {
    reader_.share(field, chunks, key, rank, ranks);
  }
  converters::ReadCounts counts() const override { return reader_.counts(); }
  std::size_t length(std::size_t field, std::size_t i) const override { return reader_.length(field, i); }
  std::int64_t compressed_bytes(std::size_t field) const override { return reader_.compressed_bytes(field); }

 private:
  converters::SplitReader reader_;
};

// The smallest of equally frequent classes.
double most_frequent(const std::map<double, std::size_t>& counts) {
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? 0 : most->first;
}

LabelRange range_of(const converters::ChannelStatistics& statistics) {
  return {statistics.mean, statistics.std, statistics.min, statistics.max};
}

DataField field_of(const converters::FieldInfo& info) {
  DataField field;
  field.name = info.name;
  field.is_input = info.role == converters::FieldRole::input;
  field.shape = tensor_shape(info);
  field.channels = info.channels;
  field.has_channels = info.layout.starts_with('C') || info.shape.size() == 4;
  const bool names_channels = info.layout.find('C') != std::string::npos;
  for (std::size_t k = 0; k < info.shape.size() && field.shape.voxels() > 1; ++k)
    if (names_channels ? info.layout[k] != 'C' : k > 0 || info.shape.size() < 4)
      field.grid.push_back(static_cast<std::int64_t>(info.shape[k]));
  field.is_ragged = info.ragged && !info.mask;
  field.has_time = info.layout.find('T') != std::string::npos;
  for (const converters::ChannelStatistics& channel : info.statistics)
    field.range.push_back(range_of(channel));
  field.normalisation = info.normalisation;
  return field;
}

// The addresses of a data set with traces.
std::shared_ptr<const traces::AddressTable> addresses_of(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / traces::kAddressFile;
  if (!std::filesystem::exists(file)) return nullptr;
  return std::make_shared<const traces::AddressTable>(traces::read_address_table(file));
}

DatasetInfo info_of(const converters::Manifest& manifest, const std::filesystem::path& directory) {
  DatasetInfo info;
  info.addresses = addresses_of(directory);
  info.name = manifest.name;
  info.hash = manifest.hash;
  info.labels = manifest.labels;
  info.missing = manifest.missing.size();
  info.most_evaluated = std::max(manifest.split("validation").samples, manifest.split("test").samples);
  std::size_t label = 0;
  for (const converters::FieldInfo& field : manifest.fields) {
    info.fields.push_back(field_of(field));
    if (info.fields.back().is_input || manifest.labels.empty()) continue;
    info.fields.back().first_label = label;
    label += field.values();
  }
  for (const converters::ChannelStatistics& statistics : manifest.statistics.y)
    info.label_range.push_back(range_of(statistics));
  return info;
}

}  // namespace

bool holds_traces(const DataField& field) {
  return field.is_ragged && field.shape.channels == static_cast<std::int64_t>(traces::kRowValues);
}

std::vector<double> DataField::centres() const {
  std::vector<double> centres(static_cast<std::size_t>(shape.channels), 0.0);
  for (std::size_t c = 0; c < centres.size() && !range.empty(); ++c) {
    const LabelRange& of_channel = range[std::min(c, range.size() - 1)];
    centres[c] = centre_of(of_channel.mean, of_channel.deviation);
  }
  return centres;
}

void SampleSource::read_boxes(std::size_t field, const TensorShape& shape,
                              std::span<const std::size_t> indices, std::span<const PeriodicBox> boxes,
                              std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                              converters::MemoryBudget* keep) const {
  std::vector<float> values(static_cast<std::size_t>(shape.count()));
  const std::span<float> whole = values;
  const auto& n = shape.extent;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    read_scaled(field, indices.subspan(k, 1), {&whole, 1}, scales, keep);
    const auto& [start, count] = boxes[k];
    auto out = to[k].begin();
    for (std::int64_t c = 0; c < shape.channels; ++c)
      for (std::int64_t d = 0; d < count[0]; ++d)
        for (std::int64_t h = 0; h < count[1]; ++h)
          for (std::int64_t w = 0; w < count[2]; ++w)
            *out++ = values[static_cast<std::size_t>(
                ((c * n[0] + (start[0] + d) % n[0]) * n[1] + (start[1] + h) % n[1]) * n[2] +
                (start[2] + w) % n[2])];
  }
}

double usual_class_of_label(const SampleSource& split, std::size_t label) {
  std::map<double, std::size_t> counts;
  for (std::size_t i = 0; i < split.size(); ++i) ++counts[std::round(split.targets(i)[label])];
  return most_frequent(counts);
}

double usual_class_of_field(const SampleSource& split, std::size_t field, const TensorShape& shape) {
  constexpr std::size_t kSamples = 32;
  std::map<double, std::size_t> counts;
  std::vector<float> values(static_cast<std::size_t>(shape.count()));
  const std::size_t samples = std::min(kSamples, split.size());
  for (std::size_t i = 0; i < samples; ++i) {
    const std::size_t sample = i * split.size() / samples;
    const std::span<float> to = values;
    split.read_scaled(field, {&sample, 1}, {&to, 1}, {}, nullptr);
    for (const float value : values) ++counts[std::round(value)];
  }
  return most_frequent(counts);
}

DatasetInfo read_dataset_info(const std::filesystem::path& directory) {
  return info_of(converters::read_manifest(directory), directory);
}

Dataset open_dataset(const std::filesystem::path& directory) {
  const converters::Manifest manifest = converters::read_manifest(directory);
  return open_dataset(directory, manifest, [&](std::string_view split) {
    return converters::SplitReader::open(directory, manifest, split);
  });
}

Dataset open_dataset(const std::filesystem::path& directory, const converters::Manifest& manifest,
                     const SplitOpener& opener) {
  Dataset dataset;
  dataset.info = info_of(manifest, directory);
  dataset.train = std::make_unique<ShardSource>(opener("train"));
  dataset.validation = std::make_unique<ShardSource>(opener("validation"));
  dataset.test = std::make_unique<ShardSource>(opener("test"));
  if (dataset.train->size() == 0) {
    throw Error(ExitCode::data, fmt::format("{} has no training samples", directory.string()));
  }
  return dataset;
}

}  // namespace wflow::trainer
