// SPDX-License-Identifier: Apache-2.0
#include "converters/exchange/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "converters/convert/ordered_parallel.h"

namespace wflow::converters {

std::vector<std::string> field_names(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const FieldInfo& field : manifest.fields) names.push_back(field.name);
  return names;
}

void check_shard(const ShardFile& shard, const ShardEntry& entry, const Manifest& manifest) {
  bool fits = shard.size() == entry.samples;
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    const FieldLayout& layout = shard.layout().fields[k];
    const FieldInfo& field = manifest.fields[k];
    fits = fits && layout.shape == field.shape && dtype_name(layout.dtype) == field.dtype;
  }
  if (fits) return;
  throw Error(ExitCode::data,
              fmt::format("{} does not hold what the manifest says; `wflow shards verify` lists "
                          "what is damaged",
                          shard.path().string()));
}

std::vector<std::uint32_t> piece_numbers(const std::vector<std::int64_t>& ids) {
  std::vector<std::uint32_t> pieces(ids.size(), 0);
  for (std::size_t row = 1; row < ids.size(); ++row)
    pieces[row] = ids[row] == ids[row - 1] ? pieces[row - 1] + 1 : 0;
  return pieces;
}

DataRow read_row(const ShardFile& shard, std::size_t row, const Manifest& manifest, ReadScratch& scratch,
                 RaggedRows ragged) {
  DataRow result;
  result.id = shard.layout().ids[row];
  result.fields.resize(manifest.fields.size());
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    const FieldLayout& layout = shard.layout().fields[k];
    if (layout.is_ragged() && ragged == RaggedRows::stored) {
      result.fields[k] = shard.read_steps(k, row, scratch);
      continue;
    }
    result.fields[k].resize(layout.sample_bytes / dtype_size(layout.held) * dtype_size(layout.dtype));
    shard.read_stored(k, row, scratch, result.fields[k]);
  }
  return result;
}

void for_each_row(const ShardFile& shard, const Manifest& manifest, unsigned threads,
                  const std::function<void(DataRow&)>& prepare,
                  const std::function<void(const DataRow&)>& take) {
  const std::size_t workers = std::max<std::size_t>(1, std::min<std::size_t>(threads, shard.size()));
  std::vector<ReadScratch> scratch(workers);
  const std::vector<std::uint32_t> pieces = piece_numbers(shard.layout().ids);
  ordered_parallel<DataRow>(
      shard.size(), workers,
      [&](std::size_t worker, std::size_t row) {
        DataRow result = read_row(shard, row, manifest, scratch[worker]);
        result.piece = pieces[row];
        prepare(result);
        return result;
      },
      [&](std::size_t, const DataRow& row) { take(row); });
}

}  // namespace wflow::converters
