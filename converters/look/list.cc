// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "converters/look/look.h"
#include "converters/shards/shard_file.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// Bytes of the values, as numbers of the field's type.
std::uint64_t value_bytes(const FieldInfo& field) {
  return field.values() * dtype_size(parse_dtype(field.dtype).value_or(DType::float32));
}

std::string parts_of_sample(const FieldLayout& layout) {
  if (layout.grid().are_ranges()) return fmt::format("{} slabs a sample", layout.chunks_per_sample);
  return fmt::format("{} bricks of {} a sample", layout.chunks_per_sample, fmt::join(layout.chunk, " x "));
}

std::string storage_of(const FieldLayout& layout) {
  if (layout.access == FieldLayout::Access::library) return "chunks of another tool, read through HDF5";
  std::string text = layout.is_ragged()
                         ? fmt::format("ragged, {} steps a chunk", layout.ragged.steps_per_chunk)
                     : layout.rows_per_chunk > 1    ? fmt::format("{} samples a chunk", layout.rows_per_chunk)
                     : layout.chunks_per_sample > 1 ? parts_of_sample(layout)
                                                    : "a chunk a sample";
  if (layout.filters.shuffle) text += ", shuffle";
  if (layout.filters.deflate) text += ", deflate";
  if (layout.held != layout.dtype) text += fmt::format(", held as {}", dtype_name(layout.held));
  if (layout.index_damaged) return text + ", index damaged";
  if (layout.index_stale) return text + ", index stale";
  return text + (layout.has_hashes ? ", indexed" : ", no index of this file");
}

// Bytes of the values without padding, in the field's own type.
std::uint64_t bytes_of_values(const FieldLayout& field, std::size_t samples) {
  std::uint64_t held = samples * field.sample_bytes;
  if (field.is_ragged())
    held = field.sample_bytes / field.shape[field.ragged.axis] * field.ragged.offsets.back();
  return held / dtype_size(field.held) * dtype_size(field.dtype);
}

}  // namespace

std::string list_shards(const fs::path& data) {
  const Manifest manifest = read_manifest(data);
  std::uint64_t sample_bytes = 0;
  for (const FieldInfo& field : manifest.fields) sample_bytes += value_bytes(field);
  std::string out =
      fmt::format("{:<12}{:<30}{:>12}{:>12}{:>8}\n", "split", "shard", "samples", "size", "ratio");
  for (const std::string_view name : kSplitNames) {
    for (const ShardEntry& shard : manifest.split(name).shards) {
      const double ratio = static_cast<double>(shard.samples * sample_bytes) /
                           static_cast<double>(std::max<std::uint64_t>(1, shard.bytes));
      out += fmt::format("{:<12}{:<30}{:>12}{:>12}{:>8.2f}\n", name, shard.file,
                         text::format_count(shard.samples), text::format_bytes(shard.bytes), ratio);
    }
  }
  return out;
}

std::string describe_shard(const fs::path& shard) {
  const std::vector<std::string> names = shard_fields(shard);
  const ShardLayout layout = read_shard_layout(shard, names);
  std::string out =
      fmt::format("{}: {} samples, {} (ids {} to {})\n", shard.string(), layout.ids.size(),
                  text::format_bytes(fs::file_size(shard)), layout.ids.front(), layout.ids.back());
  for (const FieldLayout& field : layout.fields) {
    std::uint64_t stored = 0;
    for (const ChunkPlace& place : field.chunks) stored += place.bytes;
    out += fmt::format("  {:<14}({}) {}; {}; {} stored of {}\n", field.name, fmt::join(field.shape, ", "),
                       dtype_name(field.dtype), storage_of(field), text::format_bytes(stored),
                       text::format_bytes(bytes_of_values(field, layout.ids.size())));
  }
  return out;
}

}  // namespace wflow::converters
