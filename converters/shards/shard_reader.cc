// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// Beyond this many, files are opened for each read: a process may have 1,024 descriptors by default.
constexpr std::size_t kMostOpenFiles = 512;

// Scratch memory for as many threads as read at once.
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
    idle_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ReadScratch>> idle_;
};

void check_fits(const ShardFile& shard, const ShardEntry& entry, const Manifest& manifest) {
  const ShardLayout& layout = shard.layout();
  const bool fits = layout.shape == manifest.shape && layout.labels == manifest.labels.size() &&
                    shard.size() == entry.samples && dtype_name(layout.dtype) == manifest.dtype;
  if (fits) return;
  throw Error(ExitCode::data,
              fmt::format("{} holds {} samples of shape ({}) {} with {} labels, which is not what the "
                          "manifest says; convert again",
                          shard.path().string(), shard.size(), fmt::join(layout.shape, ", "),
                          dtype_name(layout.dtype), layout.labels));
}

}  // namespace

struct SplitReader::State {
  std::array<std::size_t, 4> shape{};
  std::size_t labels = 0;
  bool verify = true;
  std::vector<ShardFile> shards;
  std::vector<std::size_t> first;  // number of each shard's first sample
  std::size_t size = 0;
  ScratchPool pool;

  std::pair<const ShardFile&, std::size_t> locate(std::size_t i) const {
    WFLOW_CHECK(i < size);
    const auto after = std::upper_bound(first.begin(), first.end(), i);
    const std::size_t shard = static_cast<std::size_t>(after - first.begin()) - 1;
    return {shards[shard], i - first[shard]};
  }
};

SplitReader::SplitReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
SplitReader::SplitReader(SplitReader&&) noexcept = default;
SplitReader& SplitReader::operator=(SplitReader&&) noexcept = default;
SplitReader::~SplitReader() = default;

SplitReader SplitReader::open(const fs::path& data_directory, const Manifest& manifest,
                              std::string_view split, ReadOptions options) {
  const SplitEntry& entry = manifest.split(split);
  auto state = std::make_unique<State>();
  state->shape = manifest.shape;
  state->labels = manifest.labels.size();
  state->verify = options.verify;
  for (const ShardEntry& shard : entry.shards) {
    state->first.push_back(state->size);
    state->shards.emplace_back(data_directory / shard.file, entry.shards.size() <= kMostOpenFiles);
    check_fits(state->shards.back(), shard, manifest);
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
  return shard.layout().ids[row];
}

std::span<const double> SplitReader::targets(std::size_t i) const {
  const auto [shard, row] = state_->locate(i);
  return std::span(shard.layout().targets).subspan(row * state_->labels, state_->labels);
}

void SplitReader::read(std::size_t i, std::span<float> x) const {
  const auto [shard, row] = state_->locate(i);
  auto scratch = state_->pool.take();
  shard.read_float(row, *scratch, x, state_->verify);
  state_->pool.give_back(std::move(scratch));
}

}  // namespace wflow::converters
