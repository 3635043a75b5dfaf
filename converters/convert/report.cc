// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "converters/convert/block_record.h"
#include "converters/convert/conversion.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_reader.h"
#include "converters/split.h"
#include "traces/address_table.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostShown = 10;  // limit of listed missing samples

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

// The reasons are in the block records, which a copied data set may lack.
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

void find_damaged_rows(const ShardFile& shard, std::size_t field, ReadScratch& scratch,
                       std::vector<std::string>& problems) {
  const FieldLayout& layout = shard.layout().fields[field];
  if (layout.index_damaged)
    problems.push_back(fmt::format("the index of {} in {} is damaged; its samples are read without it",
                                   layout.name, shard.path().string()));
  if (layout.index_stale)
    problems.push_back(fmt::format(
        "the index of {} in {} is stale: the file was changed after it had been written (h5repack "
        "does so); its samples are read without it",
        layout.name, shard.path().string()));
  if (layout.rows_per_chunk > 1) {
    for (const std::size_t chunk : shard.damaged_chunks(field, scratch)) {
      const std::size_t first = chunk * layout.rows_per_chunk;
      const std::size_t last = std::min(first + layout.rows_per_chunk, shard.size()) - 1;
      problems.push_back(fmt::format("{} of samples {} to {} of {} is damaged", layout.name,
                                     shard.layout().ids[first], shard.layout().ids[last],
                                     shard.path().string()));
    }
    return;
  }
  if (layout.ragged.mask) return;
  std::vector<std::uint8_t> raw(layout.sample_bytes);
  for (std::size_t row = 0; row < shard.size(); ++row) {
    try {
      shard.read_held(field, row, scratch, raw);
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
}

void find_damaged_samples(const fs::path& path, const std::vector<std::string>& fields,
                          std::vector<std::string>& problems) {
  try {
    const ShardFile shard(path, fields, true);
    ReadScratch scratch;
    for (std::size_t k = 0; k < fields.size(); ++k) find_damaged_rows(shard, k, scratch, problems);
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

void verify_shard(const fs::path& path, const ShardEntry& entry, const std::vector<std::string>& fields,
                  std::vector<std::string>& problems) {
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
  find_damaged_samples(path, fields, problems);
}

std::vector<std::string> names_of(const FieldInfo& field) {
  if (!field.channels.empty() || field.statistics.size() != 1) return field.channels;
  return {"all"};
}

}  // namespace

std::string describe_field(const FieldInfo& field) {
  std::string axes;
  for (const char letter : field.layout) axes += (axes.empty() ? "" : ", ") + std::string(1, letter);
  const std::string form =
      field.shape.empty() ? "one number" : fmt::format("({})", fmt::join(field.shape, ", "));
  std::string text =
      fmt::format("  {:<14}{:<8}{} {}{}", field.name, field.role == FieldRole::input ? "input" : "target",
                  form, field.dtype, field.units.empty() ? "" : fmt::format(" in {}", field.units));
  if (!axes.empty()) text += ", axes " + axes;
  if (field.layout_from == "rank" && !axes.empty())
    text += " (assumed from their number; 'layout' says otherwise)";
  if (!field.stored.empty()) text += fmt::format("; the files hold {}", field.stored);
  if (field.mask) return text + "; made from the lengths of the samples";
  if (field.ragged)
    text += fmt::format("; {} of a sample is {} to {}", field.layout[field.ragged->axis], field.ragged->least,
                        field.ragged->most);
  return text;
}

std::string describe_dataset(const fs::path& directory) {
  const Manifest m = read_manifest(directory);
  std::string out = fmt::format("{}: made by {}\n\n", m.name, m.created_by);
  for (const FieldInfo& field : m.fields) out += describe_field(field) + "\n";
  if (fs::exists(directory / traces::kAddressFile))
    out += traces::read_address_table(directory / traces::kAddressFile).summary() + "\n";
  out += "\n" + splits_table(m) + "\n";
  for (const FieldInfo& field : m.fields)
    out += statistics_table(field.name.c_str(), names_of(field), field.statistics) + "\n";
  return out + missing_list(directory, m);
}

Verification verify_dataset(const fs::path& directory) {
  const Manifest manifest = read_manifest(directory);
  Verification result;
  std::vector<std::string> fields;
  for (const FieldInfo& field : manifest.fields) fields.push_back(field.name);
  for (const std::string_view name : kSplitNames) {
    for (const ShardEntry& shard : manifest.split(name).shards) {
      ++result.shards;
      verify_shard(directory / shard.file, shard, fields, result.problems);
    }
  }
  // The records that the next --finish merges, if present: a copied data set may lack them.
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory / "blocks", none)) {
    if (entry.path().extension() != ".json") continue;
    try {
      read_json(entry.path(), "the block record");
    } catch (const Error& error) {
      result.problems.emplace_back(error.what());
    }
  }
  return result;
}

}  // namespace wflow::converters
