// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr std::uint64_t kLargeBatch = std::uint64_t{256}
                                      << 20;  // bytes: its step takes longer than reading the next

}  // namespace

CacheBudget CacheBudget::divided(std::int64_t bytes, std::int64_t decoded_bytes, std::int64_t stored_bytes) {
  const bool compressed = stored_bytes > 0 && decoded_bytes > bytes;
  const std::int64_t stored = compressed ? std::min(bytes, stored_bytes) : 0;
  return CacheBudget(bytes - stored, stored);
}

void CacheBudget::set(std::int64_t decoded_bytes, std::int64_t stored_bytes) {
  decoded.set(decoded_bytes);
  stored.set(stored_bytes);
}

CachedSplit::CachedSplit(const SampleSource& source, std::vector<FieldPart> parts, CacheBudget& budget)
    : source_(source),
      parts_(std::move(parts)),
      budget_(budget),
      values_(source.size()),
      owned_(source.size()) {
  std::vector<Box> whole;
  for (const FieldPart& part : parts_) {
    whole.push_back(Box::of(part.shape.extent));
    transforms_ = transforms_ || part.transform.name != TransformName::none;
  }
  set_boxes(std::move(whole));
}

void CachedSplit::set_boxes(std::vector<Box> boxes) {
  WFLOW_CHECK(boxes.size() == parts_.size());
  boxes_ = std::move(boxes);
  begin_.assign(1, 0);
  for (std::size_t part = 0; part < parts_.size(); ++part)
    begin_.push_back(begin_.back() +
                     static_cast<std::size_t>(parts_[part].shape.channels * boxes_[part].cells()));
}

void CachedSplit::refuse(std::size_t part, std::size_t i) const {
  const TransformName transform = parts_[part].transform.name;
  throw Error(
      ExitCode::data,
      fmt::format(
          "sample {} has values that are not finite{}", source_.id(i),
          transform == TransformName::none
              ? std::string()
              : fmt::format(" or that 'transform: {}' cannot take (a logarithm of something negative?)",
                            name_of(transform))));
}

void CachedSplit::transform(std::size_t part, std::size_t i, std::span<float> values) const {
  const FieldPart& field = parts_[part];
  if (field.may_be_nan) return;
  if (field.centre.empty() || field.transform.name == TransformName::none) {
    if (!apply_transform(field.transform, values)) refuse(part, i);
    return;
  }
  const std::size_t cells = values.size() / field.centre.size();
  for (std::size_t c = 0; c < field.centre.size(); ++c)
    if (!apply_transform(field.transform, values.subspan(c * cells, cells), field.centre[c],
                         field.transformed_centre[c]))
      refuse(part, i);
}

double CachedSplit::offset(std::size_t part, std::size_t channel) const {
  const FieldPart& field = parts_[part];
  if (field.centre.empty()) return 0;
  return field.transform.name == TransformName::none ? field.centre[channel]
                                                     : field.transformed_centre[channel];
}

void CachedSplit::keep(std::size_t i, std::span<const float> values) {
  if (!budget_.decoded.take(static_cast<std::int64_t>(values.size_bytes()))) return;
  auto copy = std::make_unique_for_overwrite<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  float* expected = nullptr;
  // Two threads may have read the same sample: the first keeps its copy.
  if (values_[i].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel))
    owned_[i] = std::move(copy);
}

std::span<const float> CachedSplit::get(std::size_t i, std::vector<float>& scratch) {
  std::vector<std::span<const float>> samples;
  get_several({&i, 1}, scratch, samples);
  return samples.front();
}

void CachedSplit::get_several(std::span<const std::size_t> indices, std::vector<float>& scratch,
                              std::vector<std::span<const float>>& samples) {
  const std::size_t count = values();
  if (scratch.size() < indices.size() * count) scratch.resize(indices.size() * count);
  samples.assign(indices.size(), {});
  std::vector<std::size_t> missing;
  std::vector<std::span<float>> whole;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    if (const float* cached = values_[indices[k]].load(std::memory_order_acquire)) {
      samples[k] = {cached, count};
      continue;
    }
    missing.push_back(indices[k]);
    whole.push_back(std::span(scratch).subspan(k * count, count));
    samples[k] = whole.back();
  }
  if (missing.empty()) return;
  read_samples(missing, whole, has_room() || holds_ ? nullptr : &budget_.stored);
  for (std::size_t k = 0; k < missing.size() && !holds_; ++k) keep(missing[k], whole[k]);
}

void CachedSplit::read_samples(std::span<const std::size_t> indices, std::span<const std::span<float>> whole,
                               converters::MemoryBudget* keep) const {
  std::vector<std::span<float>> to(indices.size());
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    for (std::size_t k = 0; k < indices.size(); ++k)
      to[k] = whole[k].subspan(begin_[part], this->count(part));
    read(part, indices, to, centres(part), keep);
    for (std::size_t k = 0; k < indices.size(); ++k) transform(part, indices[k], to[k]);
  }
}

void CachedSplit::hold(std::span<const std::size_t> samples, std::span<float> memory) {
  WFLOW_CHECK(memory.size() == samples.size() * values());
  holds_ = true;
  for (std::size_t k = 0; k < samples.size(); ++k)
    values_[samples[k]] = memory.subspan(k * values(), values()).data();
}

void CachedSplit::read(std::span<const std::size_t> samples, std::span<float> memory, int threads) const {
  constexpr std::size_t kAtOnce = 16;  // neighbours of a shard are read together
  WFLOW_CHECK(memory.size() == samples.size() * values());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t at = next.fetch_add(kAtOnce); at < samples.size(); at = next.fetch_add(kAtOnce)) {
        const auto some = samples.subspan(at, std::min(kAtOnce, samples.size() - at));
        std::vector<std::span<float>> whole;
        for (std::size_t k = 0; k < some.size(); ++k)
          whole.push_back(memory.subspan((at + k) * values(), values()));
        read_samples(some, whole, nullptr);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

std::vector<ChannelScale> CachedSplit::centres(std::size_t part) const {
  std::vector<ChannelScale> centres;
  for (const double centre : parts_[part].centre) centres.push_back({1, 0, centre});
  return centres;
}

void CachedSplit::read(std::size_t part, std::span<const std::size_t> indices,
                       std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                       converters::MemoryBudget* keep) const {
  const FieldPart& of = parts_[part];
  if (has_all(part)) {
    source_.read_scaled(of.field, indices, to, scales, keep);
    return;
  }
  const std::vector<PeriodicBox> boxes(indices.size(), PeriodicBox(boxes_[part]));
  source_.read_boxes(of.field, of.shape, indices, boxes, to, scales, keep);
}

void CachedSplit::read_cells(std::size_t part, std::size_t i, const PeriodicBox& cells,
                             std::span<float> values) const {
  const FieldPart& of = parts_[part];
  source_.read_boxes(of.field, of.shape, {&i, 1}, {&cells, 1}, {&values, 1}, centres(part), &budget_.stored);
  transform(part, i, values);
}

std::span<const float> CachedSplit::whole(std::size_t part, std::size_t i, std::vector<float>& scratch) {
  if (has_all(part)) return get(i, scratch).subspan(begin_[part], count(part));
  scratch.resize(static_cast<std::size_t>(parts_[part].shape.count()));
  read_cells(part, i, PeriodicBox(Box::of(parts_[part].shape.extent)), scratch);
  return scratch;
}

bool CachedSplit::passes_by_cache(std::size_t i) const {
  return !transforms_ && values_[i].load(std::memory_order_relaxed) == nullptr && !has_room();
}

bool CachedSplit::has_room() const {
  return budget_.decoded.holds(static_cast<std::int64_t>(values() * sizeof(float)));
}

void CachedSplit::read_scaled(std::size_t part, std::span<const std::size_t> indices,
                              std::span<const std::span<float>> to,
                              std::span<const ChannelScale> scales) const {
  std::vector<ChannelScale> centred(scales.begin(), scales.end());
  for (std::size_t c = 0; c < parts_[part].centre.size(); ++c) centred[c].centre = parts_[part].centre[c];
  read(part, indices, to, centred, &budget_.stored);
  for (std::size_t k = 0; k < indices.size(); ++k)
    if (!apply_transform({}, to[k])) refuse(part, indices[k]);
}

std::size_t Batch::begin(std::size_t part) const {
  std::size_t before = 0;
  for (std::size_t k = 0; k < part; ++k) before += counts[k];
  return before * most_items;
}

std::size_t batches_of_loader(std::uint64_t batch_bytes) {
  return batch_bytes < kLargeBatch ? 3 : 2;
}

DataLoader::DataLoader(CachedSplit& split, std::vector<std::vector<ChannelScale>> scales,
                       std::size_t most_items, int threads, Plan plan, std::vector<Box> boxes)
    : split_(split),
      scales_(std::move(scales)),
      plan_(std::move(plan)),
      boxes_(std::move(boxes)),
      thread_count_(static_cast<std::size_t>(std::max(1, threads))) {
  WFLOW_CHECK(scales_.size() == split.parts().size());
  WFLOW_CHECK(boxes_.empty() || boxes_.size() == scales_.size());
  std::vector<std::size_t> counts;
  for (std::size_t part = 0; part < scales_.size(); ++part)
    counts.push_back(static_cast<std::size_t>(split.parts()[part].shape.channels * box_of(part).cells()));
  const std::size_t values = most_items * std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  slots_.resize(batches_of_loader(values * sizeof(float)));
  for (Slot& slot : slots_) {
    slot.batch.most_items = most_items;
    slot.batch.boxes = boxes_;
    slot.batch.counts = counts;
    slot.batch.x = FloatBuffer(static_cast<std::int64_t>(values));
  }
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

DataLoader::~DataLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DataLoader::work() {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  const auto open_slot = [&]() -> Slot* {
    return opened_ == 0 ? nullptr : &slots_[(opened_ - 1) % slots_.size()];
  };
  const auto has_unclaimed = [&] {
    const Slot* slot = open_slot();
    return slot != nullptr && !slot->free && slot->claimed < slot->batch.items.size();
  };
  const auto can_open = [&] { return !ended_ && slots_[opened_ % slots_.size()].free; };
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || failure_ || has_unclaimed() || can_open(); });
    if (stopping_ || failure_) return;
    try {
      if (!has_unclaimed()) {
        Slot& slot = slots_[opened_ % slots_.size()];
        std::optional<std::vector<BatchItem>> items = plan_(opened_);
        slot.free = false;
        slot.claimed = slot.filled = 0;
        slot.last = !items;
        slot.batch.items = items ? std::move(*items) : std::vector<BatchItem>();
        ended_ = slot.last;
        ++opened_;
        changed_.notify_all();
        continue;
      }
      Slot& slot = *open_slot();
      const std::size_t at = slot.claimed;
      const std::size_t number = std::min(share(slot.batch.items.size()), slot.batch.items.size() - at);
      slot.claimed += number;
      lock.unlock();
      if (!scales_.empty()) fill(slot.batch, at, number, scratch);
      lock.lock();
      slot.filled += number;
      if (slot.filled == slot.batch.items.size()) changed_.notify_all();
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }
}

// Items that a thread takes at once: several, so that neighbours are read together and decoded in pairs, but
// so few that each thread has a part of the batch.
std::size_t DataLoader::share(std::size_t items) const {
  constexpr std::size_t kMost = 16;
  return std::clamp<std::size_t>(items / thread_count_, 1, kMost);
}

Augmentation DataLoader::augmentation_of(std::size_t part, const BatchItem& item) const {
  return split_.parts()[part].shape.voxels() > 1 ? item.augmentation : Augmentation();
}

// The cells of a part in the batches.
Box DataLoader::box_of(std::size_t part) const {
  return boxes_.empty() ? Box::of(split_.parts()[part].shape.extent) : boxes_[part];
}

// True if the cached cells of a sample have all that the item needs of it.
bool DataLoader::takes_cached(const BatchItem& item) const {
  for (std::size_t part = 0; part < scales_.size(); ++part) {
    const TensorShape& shape = split_.parts()[part].shape;
    const PeriodicBox needed = preimage(augmentation_of(part, item), shape, box_of(part));
    if (!covers(split_.box(part), needed, shape.extent)) return false;
  }
  return true;
}

// True if a sample without augmentation is what the split reads.
bool DataLoader::takes_all_cached() const {
  for (std::size_t part = 0; part < scales_.size(); ++part)
    if (!(split_.box(part) == box_of(part))) return false;
  return true;
}

void DataLoader::fill(Batch& batch, std::size_t at, std::size_t number, Scratch& scratch) const {
  const auto items = std::span<const BatchItem>(batch.items).subspan(at, number);
  const auto place = [&](std::size_t part, std::size_t k) {
    const std::size_t count = batch.counts[part];
    return batch.x.span().subspan(batch.begin(part) + (at + k) * count, count);
  };
  scratch.direct.clear();
  scratch.direct_at.clear();
  scratch.kept.clear();
  scratch.kept_at.clear();
  scratch.moved_at.clear();
  for (std::size_t k = 0; k < items.size(); ++k) {
    const bool direct = items[k].augmentation == Augmentation() && takes_all_cached() &&
                        split_.passes_by_cache(items[k].index);
    if (!direct && !takes_cached(items[k])) {
      scratch.moved_at.push_back(k);
      continue;
    }
    (direct ? scratch.direct : scratch.kept).push_back(items[k].index);
    (direct ? scratch.direct_at : scratch.kept_at).push_back(k);
  }
  for (std::size_t part = 0; part < scales_.size() && !scratch.direct.empty(); ++part) {
    scratch.direct_to.clear();
    for (const std::size_t k : scratch.direct_at) scratch.direct_to.push_back(place(part, k));
    split_.read_scaled(part, scratch.direct, scratch.direct_to, scales_[part]);
  }
  split_.get_several(scratch.kept, scratch.values, scratch.samples);
  for (std::size_t part = 0; part < scales_.size(); ++part) {
    const TensorShape& shape = split_.parts()[part].shape;
    const Box box = box_of(part);
    const PeriodicBox cached(split_.box(part));
    for (std::size_t k = 0; k < scratch.kept.size(); ++k) {
      const std::size_t item = scratch.kept_at[k];
      const auto values = scratch.samples[k].subspan(split_.begin(part), split_.count(part));
      copy_box({values, cached}, place(part, item), box, shape, scales_[part],
               augmentation_of(part, items[item]));
    }
  }
  for (std::size_t part = 0; part < scales_.size(); ++part) {
    const TensorShape& shape = split_.parts()[part].shape;
    const Box box = box_of(part);
    for (const std::size_t k : scratch.moved_at) {
      const Augmentation augmentation = augmentation_of(part, items[k]);
      const PeriodicBox cells = preimage(augmentation, shape, box);
      scratch.values.resize(static_cast<std::size_t>(shape.channels * cells.cells()));
      split_.read_cells(part, items[k].index, cells, scratch.values);
      copy_box({scratch.values, cells}, place(part, k), box, shape, scales_[part], augmentation);
    }
    const double noise = split_.parts()[part].noise;
    for (std::size_t k = 0; k < items.size() && noise > 0; ++k) {
      // Each part has its own key.
      if (items[k].noise) add_noise(place(part, k), shape, box, hash64(*items[k].noise, part), noise);
    }
  }
}

const Batch* DataLoader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (taken_ > 0) slots_[(taken_ - 1) % slots_.size()].free = true;
  changed_.notify_all();
  Slot& slot = slots_[taken_ % slots_.size()];
  changed_.wait(lock, [&] {
    return failure_ || (opened_ > taken_ && !slot.free && slot.filled == slot.batch.items.size());
  });
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (failure_) std::rethrow_exception(failure_);
  if (slot.last) {
    slot.free = false;
    taken_ = opened_ - 1;  // next() returns the end again
    return nullptr;
  }
  ++taken_;
  return &slot.batch;
}

std::pair<std::size_t, std::size_t> even_part(std::size_t count, std::size_t rank, std::size_t ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

std::size_t TrainingOrder::global_batch(std::uint64_t step_of_epoch) const {
  return std::min(batch, samples - static_cast<std::size_t>(step_of_epoch) * batch);
}

std::pair<std::size_t, std::size_t> TrainingOrder::share_of(std::uint64_t step_of_epoch, std::size_t begin,
                                                            std::size_t end) const {
  const std::size_t all = global_batch(step_of_epoch);
  if (subset) {
    const std::size_t each = all / subset->subsets;
    return {subset->of_rank(begin, ranks).first * each, subset->of_rank(end - 1, ranks).second * each};
  }
  return {even_part(all, begin, ranks).first, even_part(all, end - 1, ranks).second};
}

namespace {

// The samples of an epoch by place. The samples that fill no run come last.
class EpochOrder {
 public:
  EpochOrder(const TrainingOrder& order, std::uint64_t epoch)
      : order_(order),
        run_(order.alike.empty() ? 1 : std::clamp<std::size_t>(order.run, 1, order.samples)),
        runs_(order.samples / run_),
        shuffled_(runs_, hash64(order.seed, epoch)),
        first_(order.alike.empty() ? 0 : hash64(hash64(order.seed, epoch), 1) % order.samples) {}
  std::size_t operator()(std::size_t place) const {
    if (order_.alike.empty()) return static_cast<std::size_t>(shuffled_(place));
    const std::size_t run = place / run_;
    if (run < runs_) place = static_cast<std::size_t>(shuffled_(run)) * run_ + place % run_;
    return order_.alike[(place + first_) % order_.samples];
  }

 private:
  const TrainingOrder& order_;
  std::size_t run_;
  std::size_t runs_;
  Permutation shuffled_;  // of runs
  std::size_t first_;     // place where the first run begins
};

// The samples at `count` places from `first` on of each of the rank's subsets, which are shuffled by `key`.
std::vector<std::size_t> drawn(const TrainingOrder& order, std::uint64_t key, std::size_t first,
                               std::size_t count) {
  const SubsetDraw& draw = *order.subset;
  const auto [begin, end] = draw.of_rank(order.rank, order.ranks);
  std::vector<std::size_t> list;
  for (std::size_t subset = begin; subset < end; ++subset) {
    const Permutation places(draw.size, hash64(key, subset));
    for (std::size_t place = first; place < first + count; ++place)
      list.push_back(draw.sample(subset, static_cast<std::size_t>(places(place))));
  }
  return list;
}

}  // namespace

std::size_t TrainingOrder::most_of_rank() const {
  if (!subset) return batch / ranks + 1;
  return (subset->subsets + ranks - 1) / ranks * (batch / subset->subsets);
}

std::vector<std::size_t> TrainingOrder::some(std::size_t most, std::uint64_t key) const {
  const std::size_t count = std::min(most, samples);
  if (subset) return drawn(*this, key, 0, std::max<std::size_t>(1, count / subset->subsets));
  const Permutation order(samples, key);
  const auto [first, end] = even_part(count, rank, ranks);
  std::vector<std::size_t> list;
  for (std::size_t place = first; place < end; ++place)
    list.push_back(static_cast<std::size_t>(order(place)));
  return list;
}

std::vector<std::size_t> TrainingOrder::indices(std::uint64_t epoch, std::uint64_t step_of_epoch) const {
  if (subset) {
    const std::size_t each = batch / subset->subsets;
    return drawn(*this, hash64(seed, epoch), static_cast<std::size_t>(step_of_epoch) * each,
                 global_batch(step_of_epoch) / subset->subsets);
  }
  const EpochOrder order(*this, epoch);
  const auto [first, end] = share(step_of_epoch);
  std::vector<std::size_t> list;
  for (std::size_t place = first; place < end; ++place) {
    list.push_back(order(static_cast<std::size_t>(step_of_epoch) * batch + place));
  }
  return list;
}

}  // namespace wflow::trainer
