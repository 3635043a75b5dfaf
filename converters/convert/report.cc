// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "converters/convert/block_record.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_reader.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostShown = 10;  // missing samples

std::string statistics_table(const char* title, const std::vector<std::string>& names,
                             const std::vector<ChannelStatistics>& rows) {
  std::string out = fmt::format("{:<16}{:>14}{:>14}{:>14}{:>14}\n", title, "mean", "std", "min", "max");
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const std::string name = k < names.size() ? names[k] : fmt::to_string(k);
    const auto& s = rows[k];
    out += fmt::format("  {:<14}{:>14.6g}{:>14.6g}{:>14.6g}{:>14.6g}\n", name, s.mean, s.std, s.min, s.max);
  }
  return out;
}

std::string splits_table(const Manifest& manifest) {
  std::string out = fmt::format("{:<16}{:>14}{:>14}{:>14}\n", "split", "samples", "shards", "size");
  for (const std::string_view name : kSplitNames) {
    const SplitEntry& split = manifest.split(name);
    std::uint64_t bytes = 0;
    for (const ShardEntry& shard : split.shards) bytes += shard.bytes;
    out += fmt::format("  {:<14}{:>14}{:>14}{:>14}\n", name, text::format_count(split.samples),
                       text::format_count(split.shards.size()), text::format_bytes(bytes));
  }
  return out;
}

// The reasons stand in the block records, which a copied data set may lack.
std::string missing_list(const fs::path& directory, const Manifest& manifest) {
  std::string out = fmt::format("missing samples: {}\n", text::format_count(manifest.missing.size()));
  std::size_t shown = 0;
  for (std::uint64_t block = 0; shown < std::min(manifest.missing.size(), kMostShown); ++block) {
    const auto record = read_block_record(directory, block);
    if (!record) break;
    for (const MissingSample& sample : record->missing) {
      if (++shown > kMostShown) break;
      out += fmt::format("  {}: {}\n", sample.id, sample.reason);
    }
  }
  if (manifest.missing.size() > kMostShown) out += "  ...\n";
  return out;
}

void find_damaged_samples(const fs::path& path, std::vector<std::string>& problems) {
  try {
    const ShardFile shard(path, true);
    ReadScratch scratch;
    std::vector<std::uint8_t> raw(shard.sample_bytes());
    for (std::size_t row = 0; row < shard.size(); ++row) {
      try {
        shard.read_stored(row, scratch, raw, true);
      } catch (const Error& error) {
        problems.emplace_back(error.what());
      }
    }
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

void verify_shard(const fs::path& path, const ShardEntry& entry, std::vector<std::string>& problems) {
  std::string hash;
  try {
    hash = hash_file(path);
  } catch (const Error& error) {
    problems.emplace_back(error.what());
    return;
  }
  if (hash == entry.xxh3_128) return;
  problems.push_back(
      fmt::format("{} is not the file that was written: its checksum is {}, the manifest has {}",
                  path.string(), hash, entry.xxh3_128));
  find_damaged_samples(path, problems);
}

}  // namespace

std::string describe_dataset(const fs::path& directory) {
  const Manifest m = read_manifest(directory);
  std::string out =
      fmt::format("{}: samples of shape ({}) {}{}, made by {}\n\n", m.name, fmt::join(m.shape, ", "), m.dtype,
                  m.units.empty() ? "" : fmt::format(" in {}", m.units), m.created_by);
  out += splits_table(m) + "\n";
  out += statistics_table("channel", m.channels, m.statistics.x) + "\n";
  out += statistics_table("label", m.labels, m.statistics.y) + "\n";
  return out + missing_list(directory, m);
}

Verification verify_dataset(const fs::path& directory) {
  const Manifest manifest = read_manifest(directory);
  Verification result;
  for (const std::string_view name : kSplitNames) {
    for (const ShardEntry& shard : manifest.split(name).shards) {
      ++result.shards;
      verify_shard(directory / shard.file, shard, result.problems);
    }
  }
  return result;
}

}  // namespace wflow::converters
