// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// Above this number, files are opened for each read: a process may have 1,024 descriptors by default.
constexpr std::size_t kMostOpenFiles = 512;

// Scratch memory for each thread that reads at the same time.
class ScratchPool {
 public:
  std::unique_ptr<ReadScratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<ReadScratch>();
  }
  void give_back(std::unique_ptr<ReadScratch> scratch) {
    const std::lock_guard lock(mutex_);
    counts_ += std::exchange(scratch->counts, {});
    idle_.push_back(std::move(scratch));
  }
  ReadCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  ReadCounts counts_;
  std::vector<std::unique_ptr<ReadScratch>> idle_;
};

void check_fits(const ShardFile& shard, const ShardEntry& entry, const Manifest& manifest) {
  const auto refuse = [&](const std::string& what) {
    return Error(ExitCode::data,
                 fmt::format("{} holds {}, which is not what the manifest says; convert again",
                             shard.path().string(), what));
  };
  if (shard.size() != entry.samples) throw refuse(fmt::format("{} samples", shard.size()));
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    const FieldLayout& layout = shard.layout().fields[k];
    const FieldInfo& field = manifest.fields[k];
    if (layout.shape == field.shape && dtype_name(layout.dtype) == field.dtype) continue;
    throw refuse(fmt::format("samples of shape ({}) {} in /{}", fmt::join(layout.shape, ", "),
                             dtype_name(layout.dtype), field.name));
  }
}

}  // namespace

struct SplitReader::State {
  std::array<std::size_t, 4> shape{};
  std::size_t labels = 0;
  std::vector<FieldInfo> fields;
  std::vector<ShardFile> shards;
  std::vector<std::vector<double>> targets;  // by shard
  std::vector<std::size_t> first;            // number of each shard's first sample
  std::size_t size = 0;
  ScratchPool pool;

  std::pair<std::size_t, std::size_t> locate(std::size_t i) const {
    WFLOW_CHECK(i < size);
    const auto after = std::upper_bound(first.begin(), first.end(), i);
    const std::size_t shard = static_cast<std::size_t>(after - first.begin()) - 1;
    return {shard, i - first[shard]};
  }
};

SplitReader::SplitReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
SplitReader::SplitReader(SplitReader&&) noexcept = default;
SplitReader& SplitReader::operator=(SplitReader&&) noexcept = default;
SplitReader::~SplitReader() = default;

SplitReader SplitReader::open(const fs::path& data_directory, const Manifest& manifest,
                              std::string_view split) {
  const bool keep_open = manifest.split(split).shards.size() <= kMostOpenFiles;
  const ShardOpener opener = [&](const ShardEntry& shard) {
    const fs::path path = data_directory / shard.file;
    return OpenedShard{read_shard_contents(path, manifest), std::make_unique<FileBytes>(path, keep_open)};
  };
  return open_with(data_directory, manifest, split, opener);
}

SplitReader SplitReader::open_with(const fs::path& data_directory, const Manifest& manifest,
                                   std::string_view split, const ShardOpener& opener) {
  const SplitEntry& entry = manifest.split(split);
  auto state = std::make_unique<State>();
  state->shape = manifest.shape;
  state->labels = manifest.labels.size();
  state->fields = manifest.fields;
  for (const ShardEntry& shard : entry.shards) {
    state->first.push_back(state->size);
    OpenedShard opened = opener(shard);
    state->shards.emplace_back(data_directory / shard.file, std::move(opened.contents.layout),
                               std::move(opened.bytes));
    check_fits(state->shards.back(), shard, manifest);
    state->targets.push_back(std::move(opened.contents.targets));
    state->size += shard.samples;
  }
  return SplitReader(std::move(state));
}

std::size_t SplitReader::size() const {
  return state_->size;
}
std::array<std::size_t, 4> SplitReader::shape() const {
  return state_->shape;
}

std::size_t SplitReader::values() const {
  const auto& [c, d, h, w] = state_->shape;
  return c * d * h * w;
}

std::int64_t SplitReader::id(std::size_t i) const {
  const auto [shard, row] = state_->locate(i);
  return state_->shards[shard].layout().ids[row];
}

std::size_t SplitReader::length(std::size_t field, std::size_t i) const {
  const auto [shard, row] = state_->locate(i);
  return state_->shards[shard].layout().fields[field].length(row);
}

const std::vector<FieldInfo>& SplitReader::fields() const {
  return state_->fields;
}

std::span<const double> SplitReader::targets(std::size_t i) const {
  const auto [shard, row] = state_->locate(i);
  return std::span(state_->targets[shard]).subspan(row * state_->labels, state_->labels);
}

void SplitReader::read_field(std::size_t field, std::size_t i, std::span<float> values) const {
  const auto [shard, row] = state_->locate(i);
  auto scratch = state_->pool.take();
  state_->shards[shard].read_float(field, row, *scratch, values);
  state_->pool.give_back(std::move(scratch));
}

void SplitReader::read_boxes(std::size_t field, std::span<const std::size_t> indices,
                             std::span<const SampleBox> boxes, std::span<const std::span<float>> to,
                             std::span<const Scale> scales, MemoryBudget* keep) const {
  WFLOW_CHECK(indices.size() == to.size() && (boxes.empty() || boxes.size() == to.size()));
  std::vector<std::pair<std::size_t, RowTarget>> wanted;  // by shard
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const auto [shard, row] = state_->locate(indices[k]);
    wanted.push_back({shard, {row, to[k], boxes.empty() ? nullptr : &boxes[k]}});
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  auto scratch = state_->pool.take();
  std::vector<RowTarget> rows;
  for (std::size_t k = 0; k < wanted.size();) {
    const std::size_t shard = wanted[k].first;
    rows.clear();
    for (; k < wanted.size() && wanted[k].first == shard; ++k) rows.push_back(wanted[k].second);
    state_->shards[shard].read_floats(field, rows, scales, *scratch, keep);
  }
  state_->pool.give_back(std::move(scratch));
}

void SplitReader::read_fields(std::size_t field, std::span<const std::size_t> indices,
                              std::span<const std::span<float>> to, std::span<const Scale> scales,
                              MemoryBudget* keep) const {
  read_boxes(field, indices, {}, to, scales, keep);
}

bool SplitReader::has_parts(std::size_t field) const {
  return std::any_of(state_->shards.begin(), state_->shards.end(), [field](const ShardFile& shard) {
    return shard.layout().fields[field].chunks_per_sample > 1;
  });
}

ReadCounts SplitReader::counts() const {
  return state_->pool.counts();
}

void SplitReader::share(std::size_t field, SharedChunks& chunks, std::uint64_t key, std::size_t rank,
                        std::size_t ranks) {
  for (std::size_t shard = 0; shard < state_->shards.size(); ++shard)
    state_->shards[shard].share(field, {&chunks, hash64(hash64(key, field), shard), rank, ranks});
}

SplitReader::ChunkForm SplitReader::chunk_form(std::size_t field) const {
  ChunkForm form;
  for (const ShardFile& shard : state_->shards) {
    const FieldLayout& layout = shard.layout().fields[field];
    if (layout.is_ragged() || layout.rows_per_chunk > 1 || !layout.filters.deflate ||
        layout.access == FieldLayout::Access::library)
      return {};
    form.shape = layout.chunk;
    form.bytes = std::max(form.bytes, values_of(layout.chunk) * dtype_size(layout.held));
  }
  return form;
}

std::int64_t SplitReader::compressed_bytes(std::size_t field) const {
  std::int64_t bytes = 0;
  for (const ShardFile& shard : state_->shards) bytes += shard.compressed_bytes(field);
  return bytes;
}

void SplitReader::read_field_part(std::size_t field, std::size_t i, std::span<const std::size_t> start,
                                  std::span<const std::size_t> count, std::span<float> values) const {
  const SampleBox box = {{start.begin(), start.end()}, {count.begin(), count.end()}};
  read_boxes(field, {&i, 1}, {&box, 1}, {&values, 1});
}

void SplitReader::read(std::size_t i, std::span<float> x) const {
  read_field(0, i, x);
}

}  // namespace wflow::converters
