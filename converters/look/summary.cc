// SPDX-License-Identifier: Apache-2.0
// A data set for a report: statistics and histograms from its manifest and block records, and a few samples.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "converters/convert/block_record.h"
#include "converters/convert/statistics.h"
#include "converters/look/look.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

using SummaryJson = nlohmann::ordered_json;

constexpr std::size_t kHistogramBins = 40;
constexpr std::size_t kPictureColumns = 48;
constexpr std::size_t kPictureChannels = 4;
constexpr std::size_t kSeriesPoints = 200;

SummaryJson finite(double value) {
  return std::isfinite(value) ? SummaryJson(value) : SummaryJson();
}

std::string name_of_channel(const FieldInfo& field, std::size_t channel) {
  if (channel < field.channels.size()) return field.channels[channel];
  return field.statistics.size() == 1 ? "" : std::to_string(channel);
}

// The bins cover the 0.5 % to the 99.5 % quantile: with a single extreme value the histogram would be one
// bar.
SummaryJson channel_json(const FieldInfo& field, std::size_t channel, const Sketch* sketch) {
  const ChannelStatistics& s = field.statistics[channel];
  SummaryJson json = {{"name", name_of_channel(field, channel)},
                      {"mean", finite(s.mean)},
                      {"std", finite(s.std)},
                      {"min", finite(s.min)},
                      {"max", finite(s.max)}};
  if (sketch == nullptr) return json;
  const double least = sketch->quantile(0.005, s.min, s.max);
  const double most = sketch->quantile(0.995, s.min, s.max);
  const Histogram histogram = histogram_of(*sketch, least, most, kHistogramBins);
  if (histogram.counts.empty()) return json;
  json["low"] = histogram.low;
  json["width"] = histogram.width;
  json["counts"] = histogram.counts;
  json["below"] = histogram.below;
  json["above"] = histogram.above;
  return json;
}

SummaryJson field_json(const FieldInfo& field, const std::vector<Sketch>& sketches) {
  SummaryJson json = {{"name", field.name},
                      {"role", field.role == FieldRole::input ? "input" : "target"},
                      {"dtype", field.dtype},
                      {"shape", field.shape},
                      {"layout", field.layout},
                      {"units", field.units},
                      {"channels", SummaryJson::array()}};
  for (std::size_t c = 0; c < field.statistics.size(); ++c)
    json["channels"].push_back(channel_json(field, c, c < sketches.size() ? &sketches[c] : nullptr));
  return json;
}

// Means of neighbours, at most this number of them.
SummaryJson thinned(std::span<const float> values) {
  const std::size_t of = (values.size() + kSeriesPoints - 1) / kSeriesPoints;
  SummaryJson list = SummaryJson::array();
  for (std::size_t first = 0; first < values.size(); first += of) {
    const std::size_t last = std::min(first + of, values.size());
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += values[i];
    list.push_back(finite(sum / static_cast<double>(last - first)));
  }
  return list;
}

SummaryJson picture_json(const std::vector<std::size_t>& shape, std::span<const float> values) {
  const Slice slice = reduced_slice(middle_slice(shape, values), kPictureColumns);
  SummaryJson list = SummaryJson::array();
  for (const float value : slice.values) list.push_back(finite(value));
  return {{"rows", slice.rows}, {"columns", slice.columns}, {"values", list}};
}

// The channels of a field, each as a picture (two axes or more) or a series (one axis).
void add_views(const FieldInfo& field, std::span<const float> values, SummaryJson& sample) {
  std::vector<std::size_t> shape = field.shape;
  std::size_t channels = 1;
  if (field.layout.starts_with('C') && shape.size() > 1) {
    channels = shape.front();
    shape.erase(shape.begin());
  }
  const std::size_t each = channels == 0 ? 0 : values.size() / channels;
  for (std::size_t c = 0; c < std::min(channels, kPictureChannels); ++c) {
    const auto part = values.subspan(c * each, each);
    SummaryJson view = shape.size() > 1 ? picture_json(shape, part) : SummaryJson{{"series", thinned(part)}};
    view["channel"] = name_of_channel(field, c);
    view["field"] = field.name;
    sample["views"].push_back(std::move(view));
  }
}

bool is_shown(const FieldInfo& field) {
  constexpr std::size_t kFewNumbers = 16;
  return field.shape.size() > 1 || (field.shape.size() == 1 && field.values() > kFewNumbers);
}

SummaryJson sample_json(const SplitReader& reader, std::size_t row, std::string_view split) {
  SummaryJson sample = {{"id", reader.id(row)},
                        {"split", split},
                        {"numbers", SummaryJson::array()},
                        {"views", SummaryJson::array()}};
  for (std::size_t k = 0; k < reader.fields().size(); ++k) {
    const FieldInfo& field = reader.fields()[k];
    std::vector<float> values(field.values());
    reader.read_field(k, row, values);
    if (is_shown(field)) {
      add_views(field, values, sample);
      continue;
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      sample["numbers"].push_back({{"name", i < field.channels.size() ? field.channels[i] : field.name},
                                   {"value", finite(values[i])}});
  }
  return sample;
}

// From the first shard of the first split that has one, to open only one file.
SummaryJson examples_json(const fs::path& data, Manifest manifest, std::size_t count) {
  SummaryJson examples = SummaryJson::array();
  for (const std::string_view split : kSplitNames) {
    auto& shards = manifest.splits.find(split)->second.shards;
    if (shards.empty()) continue;
    shards.resize(1);
    manifest.splits.find(split)->second.samples = shards.front().samples;
    const SplitReader reader = SplitReader::open(data, manifest, split);
    const std::size_t shown = std::min(count, reader.size());
    for (std::size_t i = 0; i < shown; ++i)
      examples.push_back(sample_json(reader, i * reader.size() / shown, split));
    break;
  }
  return examples;
}

}  // namespace

std::string summarise(const fs::path& data, std::size_t examples) {
  const Manifest manifest = read_manifest(data);
  const auto sketches = merged_sketches(data, manifest.fields.size());
  SummaryJson json = {{"name", manifest.name},
                      {"created_by", manifest.created_by},
                      {"hash", manifest.hash},
                      {"missing", manifest.missing.size()},
                      {"dropped", manifest.dropped.size()},
                      {"fields", SummaryJson::array()},
                      {"splits", SummaryJson::array()}};
  for (std::size_t k = 0; k < manifest.fields.size(); ++k)
    json["fields"].push_back(field_json(manifest.fields[k], sketches[k]));
  for (const std::string_view name : kSplitNames) {
    std::uint64_t samples = 0;
    std::uint64_t bytes = 0;
    for (const ShardEntry& shard : manifest.split(name).shards) {
      samples += shard.samples;
      bytes += shard.bytes;
    }
    json["splits"].push_back({{"name", name},
                              {"samples", samples},
                              {"shards", manifest.split(name).shards.size()},
                              {"bytes", bytes}});
  }
  json["examples"] = examples_json(data, manifest, examples);
  return json.dump(-1, ' ', false, SummaryJson::error_handler_t::replace) + "\n";
}

}  // namespace wflow::converters
