// SPDX-License-Identifier: Apache-2.0
// Prepares batches ahead of time on its own threads: read, decode, transform, normalise, augment.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/transform.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {

// The training samples that each rank draws with `stage: {subset: N}`: a function of the seed, the number of
// the subset and the place in it. python/wflow/_stage.py has the same.

// `subsets` subsets of `size` samples each, drawn with replacement from `samples` ones. There is one for each
// rank that the configuration asks for. A training on fewer ranks has the same subsets: some ranks keep
// several.
struct SubsetDraw {
  std::uint64_t seed = 0;  // of the training
  std::size_t samples = 0;
  std::size_t size = 0;
  std::size_t subsets = 1;

  std::size_t sample(std::size_t subset, std::size_t place) const {
    const std::uint64_t key = hash64(hash64(seed, 8), subset);
    return static_cast<std::size_t>(hash64(key, place) % samples);
  }
  // The subsets [first, second) of a rank.
  std::pair<std::size_t, std::size_t> of_rank(std::size_t rank, std::size_t ranks) const {
    return {subsets * rank / ranks, subsets * (rank + 1) / ranks};
  }
  // The samples of some subsets, ascending, each once.
  std::vector<std::size_t> distinct(std::pair<std::size_t, std::size_t> range) const {
    std::vector<std::size_t> list;
    list.reserve((range.second - range.first) * size);
    for (std::size_t subset = range.first; subset < range.second; ++subset)
      for (std::size_t place = 0; place < size; ++place) list.push_back(sample(subset, place));
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }
};

// Bytes of samples that may stay in memory, decoded and as stored; shared by the splits of a
// rank.
struct CacheBudget {
  explicit CacheBudget(std::int64_t decoded_bytes, std::int64_t stored_bytes = 0)
      : decoded(decoded_bytes), stored(stored_bytes) {}
  // All samples decoded if they fit; else compressed samples first, which are several times smaller, and
  // decoded ones in the rest. `stored_bytes` is 0 if the data are not compressed.
  static CacheBudget divided(std::int64_t bytes, std::int64_t decoded_bytes, std::int64_t stored_bytes);
  // Only before the first sample is kept.
  void set(std::int64_t decoded_bytes, std::int64_t stored_bytes);
  converters::MemoryBudget decoded;
  converters::MemoryBudget stored;
};

// A field that is read from every sample.
struct FieldPart {
  std::size_t field = 0;  // index in the data
  TensorShape shape;
  TransformConfig transform = {};
  double noise = 0;  // deviation of the noise that training adds to normalised values
  // Subtracted per channel from stored values as they are read, and from transformed ones. Empty: 0.
  std::vector<double> centre = {};
  std::vector<double> transformed_centre = {};
  bool may_be_nan = false;  // NaN marks what is not known, else a sample with NaN is refused
};

// The transformed samples of a split, each decoded once as far as the budget allows. A sample has the values
// of all parts, one part after the other: all cells of a part, or those of a box. Thread-safe.
class CachedSplit {
 public:
  CachedSplit(const SampleSource& source, std::vector<FieldPart> parts, CacheBudget& budget);
  // Reads, returns and keeps a box of each part from now on. Before the first read.
  void set_boxes(std::vector<Box> boxes);
  const Box& box(std::size_t part) const { return boxes_[part]; }
  std::size_t size() const { return source_.size(); }
  const SampleSource& source() const { return source_; }
  const std::vector<FieldPart>& parts() const { return parts_; }
  // The difference between the true values and those of get(), for a channel of a part.
  double offset(std::size_t part, std::size_t channel) const;
  std::size_t values() const { return begin_.back(); }  // per sample, all parts together
  std::size_t begin(std::size_t part) const { return begin_[part]; }
  std::size_t count(std::size_t part) const { return begin_[part + 1] - begin_[part]; }
  // The transformed values minus offset(); in `scratch` if the cache does not hold them.
  std::span<const float> get(std::size_t i, std::vector<float>& scratch);
  // Sets `samples[k]` to the values of sample indices[k]. Reads those that the cache does not hold together,
  // into `scratch`.
  void get_several(std::span<const std::size_t> indices, std::vector<float>& scratch,
                   std::vector<std::span<const float>>& samples);
  // All cells of a part, or others than those of its box, as get() has them. Kept as compressed chunks only.
  void read_cells(std::size_t part, std::size_t i, const PeriodicBox& cells, std::span<float> values) const;
  // All cells of a part, from the cache if it has them.
  std::span<const float> whole(std::size_t part, std::size_t i, std::vector<float>& scratch);
  // Reads whole samples one after the other into `memory`, values() numbers for each.
  void read(std::span<const std::size_t> samples, std::span<float> memory, int threads) const;
  // Gives these samples from `memory`, as read() fills it, and keeps no others. Before the first batch; the
  // memory must outlive this split.
  void hold(std::span<const std::size_t> samples, std::span<float> memory);
  // True if read_scaled() can be used: the values only need scaling, and the cache does not hold this
  // sample and has no space for it.
  bool passes_by_cache(std::size_t i) const;
  // The scales apply to values minus offset().
  void read_scaled(std::size_t part, std::span<const std::size_t> indices,
                   std::span<const std::span<float>> to, std::span<const ChannelScale> scales) const;

 private:
  void transform(std::size_t part, std::size_t i, std::span<float> values) const;
  // Whole samples, transformed.
  void read_samples(std::span<const std::size_t> indices, std::span<const std::span<float>> whole,
                    converters::MemoryBudget* keep) const;
  void read(std::size_t part, std::span<const std::size_t> indices, std::span<const std::span<float>> to,
            std::span<const ChannelScale> scales, converters::MemoryBudget* keep) const;
  std::vector<ChannelScale> centres(std::size_t part) const;
  bool has_all(std::size_t part) const { return boxes_[part] == Box::of(parts_[part].shape.extent); }
  [[noreturn]] void refuse(std::size_t part, std::size_t i) const;
  void keep(std::size_t i, std::span<const float> values);
  bool has_room() const;  // for one more decoded sample

  const SampleSource& source_;
  std::vector<FieldPart> parts_;
  std::vector<Box> boxes_;          // of each part
  std::vector<std::size_t> begin_;  // offset of each part in a sample, then the end
  bool transforms_ = false;
  bool holds_ = false;  // hold() was called
  CacheBudget& budget_;
  std::vector<std::atomic<float*>> values_;      // read by all threads
  std::vector<std::unique_ptr<float[]>> owned_;  // frees them
};

struct BatchItem {
  std::size_t index = 0;  // in the split
  Augmentation augmentation = {};
  std::optional<std::uint64_t> noise = {};  // key of the noise, for parts with noise
};

struct Batch {
  std::vector<BatchItem> items;
  FloatBuffer x;                    // for each part [most_items, C, D, H, W], or cells of a box
  std::vector<Box> boxes;           // the cells of each part; empty: all
  std::vector<std::size_t> counts;  // values per sample for each part
  std::size_t most_items = 0;
  std::size_t begin(std::size_t part) const;
  std::span<const float> values(std::size_t part) const {
    return x.span().subspan(begin(part), items.size() * counts[part]);
  }
};

// Batches of this size that a loader has in memory: one in use, one being filled, and one that is ready
// unless they are large.
std::size_t batches_of_loader(std::uint64_t batch_bytes);

class DataLoader {
 public:
  // The samples of batch n; nothing after the last. Called in order, on a loader thread.
  using Plan = std::function<std::optional<std::vector<BatchItem>>(std::uint64_t n)>;

  // `scales`: for each part's channels. Augmentations act on parts of more than one cell. `boxes`: for each
  // part the cells of the augmented samples that the batches have; empty: all.
  DataLoader(CachedSplit& split, std::vector<std::vector<ChannelScale>> scales, std::size_t most_items,
             int threads, Plan plan, std::vector<Box> boxes = {});
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  ~DataLoader();

  // The next batch, valid until the next call; nullptr after the last. Rethrows the exception of a loader
  // thread.
  const Batch* next();
  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Slot {
    Batch batch;
    std::size_t claimed = 0;
    std::size_t filled = 0;
    bool free = true;
    bool last = false;  // no batch: the end
  };

  void work();
  struct Scratch {
    std::vector<float> values;
    std::vector<std::span<const float>> samples;
    std::vector<std::size_t> direct;
    std::vector<std::size_t> direct_at;
    std::vector<std::span<float>> direct_to;
    std::vector<std::size_t> kept;
    std::vector<std::size_t> kept_at;
    std::vector<std::size_t> moved_at;
  };
  Augmentation augmentation_of(std::size_t part, const BatchItem& item) const;
  Box box_of(std::size_t part) const;
  bool takes_cached(const BatchItem& item) const;
  bool takes_all_cached() const;
  std::size_t share(std::size_t items) const;
  // Fills items [at, at + number) of the batch.
  void fill(Batch& batch, std::size_t at, std::size_t number, Scratch& scratch) const;

  CachedSplit& split_;
  std::vector<std::vector<ChannelScale>> scales_;
  Plan plan_;
  const std::vector<Box> boxes_;
  const std::size_t thread_count_;  // threads_ still grows while the first of them work
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

// This rank's samples of each training batch. Every epoch has a new order of all samples, which depends only
// on (seed, epoch). A rank takes an even part of every global batch; of the last one it may be empty. With
// `alike`, neighbours of that order come together in runs; the epoch decides the order of the runs and where
// they begin. With `subset`, a rank takes the same number from each of its subsets, which the epoch shuffles
// one by one; `batch` is a multiple of the number of subsets.
struct TrainingOrder {
  std::uint64_t seed = 0;
  std::size_t samples = 0;
  std::size_t batch = 1;  // global
  std::size_t rank = 0;
  std::size_t ranks = 1;
  std::vector<std::uint32_t> alike = {};  // the samples in the order of batch_by (order_by); empty: none
  std::size_t run = 1;                    // samples of a run
  std::optional<SubsetDraw> subset = {};  // `samples` is then the number of all draws

  std::size_t steps_per_epoch() const { return (samples + batch - 1) / batch; }
  std::size_t global_batch(std::uint64_t step_of_epoch) const;
  // Positions [first, second) in the global batch: of this rank, and of the ranks from `begin` to before
  // `end`.
  std::pair<std::size_t, std::size_t> share(std::uint64_t step_of_epoch) const {
    return share_of(step_of_epoch, rank, rank + 1);
  }
  std::pair<std::size_t, std::size_t> share_of(std::uint64_t step_of_epoch, std::size_t begin,
                                               std::size_t end) const;
  std::vector<std::size_t> indices(std::uint64_t epoch, std::uint64_t step_of_epoch) const;
  // The most samples that a rank has in a batch.
  std::size_t most_of_rank() const;
  // This rank's part of up to `most` samples in random order, to measure statistics.
  std::vector<std::size_t> some(std::size_t most, std::uint64_t key) const;
};

// The part [first, second) of 0..count-1 that `rank` evaluates.
std::pair<std::size_t, std::size_t> even_part(std::size_t count, std::size_t rank, std::size_t ranks);

// The order of samples whose neighbours are alike, for batches of one type or of similar lengths.

// The samples in the order of the keys, those of equal keys by their number: the order of `wflow shards
// sort`. A key is a label, an input of one number, a number of a list by its name, `length` (of the one
// ragged field) or `length(NAME)`. Empty without keys. Error{spec} if there is no such key.
std::vector<std::uint32_t> order_by(const std::vector<std::string>& keys, const DatasetInfo& info,
                                    const SampleSource& samples);

}  // namespace wflow::trainer
