// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"
#include "converters/convert/block_record.h"
#include "converters/look/look.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kShortField = 8;  // values that are printed one by one

std::string describe_values(const FieldInfo& field, std::span<const float> values) {
  if (values.size() <= kShortField) return fmt::format("{:.6g}", fmt::join(values, ", "));
  double sum = 0;
  float least = values[0];
  float most = values[0];
  for (const float value : values) {
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return fmt::format("({}): min {:.6g}, mean {:.6g}, max {:.6g}", fmt::join(field.shape, ", "), least,
                     sum / static_cast<double>(values.size()), most);
}

std::string describe_sample(const SplitReader& reader, std::size_t i) {
  std::string out;
  for (std::size_t k = 0; k < reader.fields().size(); ++k) {
    const FieldInfo& field = reader.fields()[k];
    std::vector<float> values(field.values());
    reader.read_field(k, i, values);
    out += fmt::format("  {:<14}{}\n", field.name, describe_values(field, values));
  }
  return out;
}

// The block that converted it. The shard's name contains the block's number.
std::string lineage(const fs::path& data, const Manifest& manifest, std::string_view split, std::size_t i) {
  std::size_t first = 0;
  for (const ShardEntry& shard : manifest.split(split).shards) {
    if (i >= first + shard.samples) {
      first += shard.samples;
      continue;
    }
    std::string out = fmt::format("row {} of {} ({})", i - first, shard.file, split);
    const std::string number = shard.file.substr(shard.file.rfind('-') + 1, 5);
    const fs::path record = data / "blocks" / (number + ".json");
    if (fs::exists(record))
      out += fmt::format(", converted as block {} ({})", std::stoi(number), manifest.created_by);
    return out + "\n";
  }
  return {};
}

std::string missing_reason(const fs::path& data, std::int64_t id) {
  for (std::uint64_t block = 0;; ++block) {
    const auto record = read_block_record(data, block);
    if (!record) return "no reason is recorded";
    for (const auto* list : {&record->missing, &record->dropped}) {
      for (const MissingSample& sample : *list) {
        if (sample.id == id) return sample.reason;
      }
    }
  }
}

std::size_t pictured_field(const Manifest& manifest, const std::string& name) {
  if (!name.empty()) return manifest.field(name);
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    if (manifest.fields[k].shape.size() > 1) return k;
  }
  return manifest.fields.size();
}

}  // namespace

std::string show_head(const fs::path& data, std::string_view split, std::size_t count) {
  const Manifest manifest = read_manifest(data);
  const SplitReader reader = SplitReader::open(data, manifest, split);
  std::string out;
  for (std::size_t i = 0; i < std::min(count, reader.size()); ++i)
    out += fmt::format("sample {}\n{}", reader.id(i), describe_sample(reader, i));
  return out.empty() ? fmt::format("the split {} has no samples\n", split) : out;
}

void print_samples(const fs::path& data) {
  const Manifest manifest = read_manifest(data);
  struct Place {
    std::int64_t id = 0;
    std::size_t split = 0, row = 0;
  };
  std::vector<SplitReader> readers;
  std::vector<Place> places;
  for (std::size_t split = 0; split < kSplitNames.size(); ++split) {
    readers.push_back(SplitReader::open(data, manifest, kSplitNames.at(split)));
    for (std::size_t row = 0; row < readers.back().size(); ++row)
      places.push_back({readers.back().id(row), split, row});
  }
  std::ranges::sort(places, {}, &Place::id);
  std::string text = "id,split";
  for (const std::string& label : manifest.labels) text += "," + csv::cell(label);
  text += '\n';
  constexpr std::size_t kWriteBytes = 1 << 16;
  for (const Place& place : places) {
    text += fmt::format("{},{}", place.id, kSplitNames.at(place.split));
    if (!manifest.labels.empty()) {
      for (const double value : readers[place.split].targets(place.row)) text += "," + text::from_real(value);
    }
    text += '\n';
    if (text.size() < kWriteBytes) continue;
    fmt::print("{}", text);
    text.clear();
  }
  fmt::print("{}", text);
}

std::string show_sample(const fs::path& data, std::int64_t id, std::string field, const fs::path& png) {
  const Manifest manifest = read_manifest(data);
  for (const std::string_view split : kSplitNames) {
    const SplitReader reader = SplitReader::open(data, manifest, split);
    for (std::size_t i = 0; i < reader.size(); ++i) {
      if (reader.id(i) != id) continue;
      std::string out =
          fmt::format("sample {}: {}{}", id, lineage(data, manifest, split, i), describe_sample(reader, i));
      const std::size_t shown = pictured_field(manifest, field);
      if (shown == manifest.fields.size()) return out;
      std::vector<float> values(manifest.fields[shown].values());
      reader.read_field(shown, i, values);
      const Slice slice = middle_slice(manifest.fields[shown].shape, values);
      if (png.empty()) return out + fmt::format("\n{}:\n{}", manifest.fields[shown].name, draw(slice));
      write_png(slice, png);
      return out + fmt::format("\n{} is in {}\n", manifest.fields[shown].name, png.string());
    }
  }
  const auto in = [&](const std::vector<std::int64_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if (in(manifest.missing) || in(manifest.dropped))
    throw Error(ExitCode::data, fmt::format("sample {} was left out: {}", id, missing_reason(data, id)));
  throw Error(ExitCode::usage, fmt::format("there is no sample {} in {}", id, data.string()));
}

}  // namespace wflow::converters
