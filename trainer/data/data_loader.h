// SPDX-License-Identifier: Apache-2.0
// Batches, made ahead of time on threads of their own: read, decode, transform, normalise, augment.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/data/transform.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {

// How many bytes of decoded samples may stay in memory; shared by the splits of a rank.
class CacheBudget {
 public:
  explicit CacheBudget(std::int64_t bytes) : left_(bytes) {}
  bool take(std::int64_t bytes);
  bool holds(std::int64_t bytes) const { return left_.load(std::memory_order_relaxed) >= bytes; }

 private:
  std::atomic<std::int64_t> left_;
};

// The transformed samples of a split, decoded once each as far as the budget goes. Thread-safe.
class CachedSplit {
 public:
  CachedSplit(const SampleSource& source, const TensorShape& shape, const TransformConfig& transform,
              CacheBudget& budget);
  std::size_t size() const { return source_.size(); }
  const SampleSource& source() const { return source_; }
  const TensorShape& shape() const { return shape_; }
  // The transformed values; in `scratch` if the cache does not hold them.
  std::span<const float> get(std::size_t i, std::vector<float>& scratch);
  // Makes `samples[k]` the transformed values of sample indices[k], those that the cache does not hold in
  // `scratch`, read together.
  void get_several(std::span<const std::size_t> indices, std::vector<float>& scratch,
                   std::vector<std::span<const float>>& samples);
  // Whether read_scaled() is the way: nothing is to be done with the values but to scale them, the cache does
  // not have this sample, nor room for it.
  bool passes_by_cache(std::size_t i) const;
  void read_scaled(std::span<const std::size_t> indices, std::span<const std::span<float>> to,
                   std::span<const ChannelScale> scales) const;

 private:
  void transform(std::size_t i, std::span<float> values) const;
  [[noreturn]] void refuse(std::size_t i) const;
  void keep(std::size_t i, std::span<const float> values);

  const SampleSource& source_;
  TensorShape shape_;
  TransformConfig transform_;
  CacheBudget& budget_;
  std::vector<std::atomic<float*>> values_;      // what readers see
  std::vector<std::unique_ptr<float[]>> owned_;  // who frees it
};

struct BatchItem {
  std::size_t index = 0;  // in the split
  Augmentation augmentation;
};

struct Batch {
  std::vector<BatchItem> items;
  FloatBuffer x;  // [items, C, D, H, W], then unused space
  std::span<const float> values(const TensorShape& shape) const {
    return x.span().first(items.size() * static_cast<std::size_t>(shape.count()));
  }
};

class DataLoader {
 public:
  // The n-th batch's samples; nothing after the last. Called in order, on a loader thread.
  using Plan = std::function<std::optional<std::vector<BatchItem>>(std::uint64_t n)>;

  // Without `with_field` batches have items and no values: for networks that read labels alone.
  DataLoader(CachedSplit& split, const Normalisation& normalisation, std::size_t most_items, int threads,
             Plan plan, bool with_field = true);
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  ~DataLoader();

  // The next batch, valid until the next call; nullptr after the last. Rethrows what a loader thread threw.
  const Batch* next();
  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Slot {
    Batch batch;
    std::size_t claimed = 0;
    std::size_t filled = 0;
    bool free = true;
    bool last = false;  // stands for the end
  };

  void work();
  struct Scratch {
    std::vector<float> values;
    std::vector<std::span<const float>> samples;
    std::vector<std::size_t> direct;
    std::vector<std::span<float>> direct_to;
    std::vector<std::size_t> kept;
    std::vector<std::size_t> kept_at;
  };
  std::size_t share(std::size_t items) const;
  void fill(std::span<const BatchItem> items, std::span<float> to, Scratch& scratch) const;

  CachedSplit& split_;
  Normalisation normalisation_;
  std::vector<ChannelScale> scales_;
  Plan plan_;
  bool with_field_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::uint64_t opened_ = 0;  // batches whose slot has been opened
  std::uint64_t taken_ = 0;   // batches handed out
  bool ended_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
  double waited_seconds_ = 0;
  std::vector<std::thread> threads_;
};

// Batch n of this rank in training: epoch by epoch, each a fresh order of all samples that depends on (seed,
// epoch) alone; a rank takes an even part of every global batch, which may be none of the last one.
struct TrainingOrder {
  std::uint64_t seed = 0;
  std::size_t samples = 0;
  std::size_t batch = 1;  // global
  std::size_t rank = 0;
  std::size_t ranks = 1;

  std::size_t steps_per_epoch() const { return (samples + batch - 1) / batch; }
  std::size_t global_batch(std::uint64_t step_of_epoch) const;
  // Places [first, second) of the global batch that are this rank's.
  std::pair<std::size_t, std::size_t> share(std::uint64_t step_of_epoch) const;
  std::vector<std::size_t> indices(std::uint64_t epoch, std::uint64_t step_of_epoch) const;
};

// The part of 0..count-1 that is `rank`'s in evaluations.
std::pair<std::size_t, std::size_t> even_part(std::size_t count, std::size_t rank, std::size_t ranks);

}  // namespace wflow::trainer
