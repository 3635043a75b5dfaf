// SPDX-License-Identifier: Apache-2.0
// Distributions of the training samples, and possible errors in the data.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "converters/convert/block_record.h"
#include "converters/convert/statistics.h"
#include "converters/look/look.h"
#include "converters/shards/shard_file.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBins = 32;
constexpr double kOutlier = 6;  // standard deviations from the mean of the labels

// Counts about between the 1 % and the 99 % quantile, in bars of equal width.
std::string bars(const Sketch& sketch, double least, double most) {
  static constexpr std::array<const char*, 9> kBars = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const Histogram histogram = histogram_of(sketch, least, most, kBins);
  std::uint64_t top = 1;
  for (const std::uint64_t count : histogram.counts) top = std::max(top, count);
  std::string out;
  for (const std::uint64_t count : histogram.counts)
    out += kBars[static_cast<std::size_t>(
        std::ceil(static_cast<double>(count) / static_cast<double>(top) * (kBars.size() - 1)))];
  return out;
}

std::string channel_name(const FieldInfo& field, std::size_t c) {
  if (c < field.channels.size()) return field.channels[c];
  return field.statistics.size() == 1 ? "all" : fmt::to_string(c);
}

std::string field_table(const FieldInfo& field, const std::vector<Sketch>& sketches) {
  std::string out = fmt::format("{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}  {}\n", field.name, "mean", "std",
                                "min", "median", "99 %", "max", sketches.empty() ? "" : "1 % to 99 %");
  for (std::size_t c = 0; c < field.statistics.size(); ++c) {
    const ChannelStatistics& s = field.statistics[c];
    const Sketch none;
    const Sketch& sketch = c < sketches.size() ? sketches[c] : none;
    const auto at = [&](double level) { return sketch.quantile(level, s.min, s.max); };
    out += fmt::format("  {:<14}{:>12.5g}{:>12.5g}{:>12.5g}{:>12.5g}{:>12.5g}{:>12.5g}  {}\n",
                       channel_name(field, c), s.mean, s.std, s.min, at(0.5), at(0.99), s.max,
                       bars(sketch, at(0.01), at(0.99)));
  }
  return out;
}

// A channel with one value in all training samples has no information.
void find_constants(const Manifest& manifest, std::vector<std::string>& findings) {
  for (const FieldInfo& field : manifest.fields) {
    for (std::size_t c = 0; c < field.statistics.size(); ++c) {
      const ChannelStatistics& s = field.statistics[c];
      if (s.min == s.max)
        findings.push_back(fmt::format("{} ({}) is {:.6g} in all training samples", field.name,
                                       channel_name(field, c), s.min));
    }
  }
}

// Samples with the same input in every bit; across splits they leak.
void find_duplicates(const fs::path& data, const Manifest& manifest, std::vector<std::string>& findings) {
  struct Place {
    std::int64_t id;
    std::string_view split;
  };
  const FieldInfo& field = manifest.fields.front();
  std::map<std::uint64_t, Place> seen;
  std::size_t found = 0;
  for (const std::string_view split : kSplitNames) {
    for (const ShardEntry& entry : manifest.split(split).shards) {
      const ShardFile shard = open_shard(data / entry.file, manifest, true);
      ReadScratch scratch;
      std::vector<std::uint8_t> raw(shard.layout().fields[0].sample_bytes);
      for (std::size_t row = 0; row < shard.size(); ++row) {
        shard.read_held(0, row, scratch, raw);
        const Place here{shard.layout().ids[row], split};
        const auto [at, is_new] = seen.try_emplace(chunk_hash(raw), here);
        if (is_new || ++found > kMostShown) continue;
        findings.push_back(fmt::format("samples {} ({}) and {} ({}) have the same {}", at->second.id,
                                       at->second.split, here.id, here.split, field.name));
      }
    }
  }
  if (found > kMostShown) findings.push_back(fmt::format("and {} more duplicates", found - kMostShown));
}

void find_outliers(const fs::path& data, const Manifest& manifest, std::vector<std::string>& findings) {
  if (manifest.labels.empty()) return;
  std::size_t found = 0;
  for (const std::string_view split : kSplitNames) {
    const SplitReader reader = SplitReader::open(data, manifest, split);
    for (std::size_t i = 0; i < reader.size(); ++i) {
      for (std::size_t k = 0; k < manifest.labels.size(); ++k) {
        const ChannelStatistics& s = manifest.statistics.y[k];
        const double value = reader.targets(i)[k];
        if (std::abs(value - s.mean) <= kOutlier * s.std || ++found > kMostShown) continue;
        findings.push_back(fmt::format("sample {} ({}): {} = {:.6g} is {:.1f} deviations from the mean",
                                       reader.id(i), split, manifest.labels[k], value,
                                       std::abs(value - s.mean) / s.std));
      }
    }
  }
  if (found > kMostShown) findings.push_back(fmt::format("and {} more outliers", found - kMostShown));
}

}  // namespace

std::string show_statistics(const fs::path& data) {
  const Manifest manifest = read_manifest(data);
  const auto sketches = merged_sketches(data, manifest.fields.size());
  std::string out;
  for (std::size_t k = 0; k < manifest.fields.size(); ++k)
    out += field_table(manifest.fields[k], sketches[k]) + "\n";
  std::vector<std::string> findings;
  find_constants(manifest, findings);
  find_duplicates(data, manifest, findings);
  find_outliers(data, manifest, findings);
  if (findings.empty()) return out + "no constant fields, no duplicates, no outliers among the labels\n";
  for (const std::string& finding : findings) out += "note: " + finding + "\n";
  return out;
}

}  // namespace wflow::converters
