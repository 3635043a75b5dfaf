// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kSlots = 3;  // one in use, one ready, one in the making

}  // namespace

bool CacheBudget::take(std::int64_t bytes) {
  std::int64_t left = left_.load();
  while (left >= bytes) {
    if (left_.compare_exchange_weak(left, left - bytes)) return true;
  }
  return false;
}

CachedSplit::CachedSplit(const SampleSource& source, const TensorShape& shape,
                         const TransformConfig& transform, CacheBudget& budget)
    : source_(source),
      shape_(shape),
      transform_(transform),
      budget_(budget),
      values_(source.size()),
      owned_(source.size()) {}

void CachedSplit::refuse(std::size_t i) const {
  throw Error(
      ExitCode::data,
      fmt::format(
          "sample {} has values that are not finite{}", source_.id(i),
          transform_.name == TransformName::none
              ? std::string()
              : fmt::format(" or that 'transform: {}' cannot take (a logarithm of something negative?)",
                            name_of(transform_.name))));
}

void CachedSplit::transform(std::size_t i, std::span<float> values) const {
  if (!apply_transform(transform_, values)) refuse(i);
}

void CachedSplit::keep(std::size_t i, std::span<const float> values) {
  if (!budget_.take(static_cast<std::int64_t>(values.size_bytes()))) return;
  auto copy = std::make_unique_for_overwrite<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  float* expected = nullptr;
  // Two threads may have read the same sample: the first keeps its copy.
  if (values_[i].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel))
    owned_[i] = std::move(copy);
}

std::span<const float> CachedSplit::get(std::size_t i, std::vector<float>& scratch) {
  const auto count = static_cast<std::size_t>(shape_.count());
  if (const float* cached = values_[i].load(std::memory_order_acquire)) return {cached, count};
  scratch.resize(count);
  source_.read(i, scratch);
  transform(i, scratch);
  keep(i, scratch);
  return scratch;
}

void CachedSplit::get_several(std::span<const std::size_t> indices, std::vector<float>& scratch,
                              std::vector<std::span<const float>>& samples) {
  const auto count = static_cast<std::size_t>(shape_.count());
  if (scratch.size() < indices.size() * count) scratch.resize(indices.size() * count);
  samples.assign(indices.size(), {});
  std::vector<std::size_t> missing;
  std::vector<std::span<float>> to;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    if (const float* cached = values_[indices[k]].load(std::memory_order_acquire)) {
      samples[k] = {cached, count};
      continue;
    }
    missing.push_back(indices[k]);
    to.push_back(std::span(scratch).subspan(k * count, count));
    samples[k] = to.back();
  }
  if (missing.empty()) return;
  source_.read_scaled(missing, to, {});
  for (std::size_t k = 0; k < missing.size(); ++k) {
    transform(missing[k], to[k]);
    keep(missing[k], to[k]);
  }
}

bool CachedSplit::passes_by_cache(std::size_t i) const {
  return transform_.name == TransformName::none && values_[i].load(std::memory_order_relaxed) == nullptr &&
         !budget_.holds(shape_.count() * static_cast<std::int64_t>(sizeof(float)));
}

void CachedSplit::read_scaled(std::span<const std::size_t> indices, std::span<const std::span<float>> to,
                              std::span<const ChannelScale> scales) const {
  source_.read_scaled(indices, to, scales);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    if (!apply_transform(transform_, to[k])) refuse(indices[k]);
  }
}

DataLoader::DataLoader(CachedSplit& split, const Normalisation& normalisation, std::size_t most_items,
                       int threads, Plan plan, bool with_field)
    : split_(split),
      normalisation_(normalisation),
      scales_(channel_scales(normalisation)),
      plan_(std::move(plan)),
      with_field_(with_field),
      slots_(kSlots) {
  const std::int64_t values = with_field ? split.shape().count() : 0;
  for (Slot& slot : slots_) slot.batch.x = FloatBuffer(static_cast<std::int64_t>(most_items) * values);

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
  const auto open_slot = [&]() -> Slot* { return opened_ == 0 ? nullptr : &slots_[(opened_ - 1) % kSlots]; };
  const auto has_unclaimed = [&] {
    const Slot* slot = open_slot();
    return slot != nullptr && !slot->free && slot->claimed < slot->batch.items.size();
  };
  const auto can_open = [&] { return !ended_ && slots_[opened_ % kSlots].free; };
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || failure_ || has_unclaimed() || can_open(); });
    if (stopping_ || failure_) return;
    try {
      if (!has_unclaimed()) {
        Slot& slot = slots_[opened_ % kSlots];
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
      const auto items = std::span<const BatchItem>(slot.batch.items).subspan(at, number);
      const auto count = static_cast<std::size_t>(split_.shape().count());
      lock.unlock();
      if (with_field_) fill(items, slot.batch.x.span().subspan(at * count, number * count), scratch);
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

// What a thread takes at once: enough that neighbours are read together and decoded in pairs, and that each
// thread has a part of the batch.
std::size_t DataLoader::share(std::size_t items) const {
  constexpr std::size_t kMost = 16;
  return std::clamp<std::size_t>(items / std::max<std::size_t>(1, threads_.size()), 1, kMost);
}

void DataLoader::fill(std::span<const BatchItem> items, std::span<float> to, Scratch& scratch) const {
  const std::size_t count = to.size() / items.size();
  scratch.direct.clear();
  scratch.direct_to.clear();
  scratch.kept.clear();
  scratch.kept_at.clear();
  for (std::size_t k = 0; k < items.size(); ++k) {
    if (items[k].augmentation == Augmentation() && split_.passes_by_cache(items[k].index)) {
      scratch.direct.push_back(items[k].index);
      scratch.direct_to.push_back(to.subspan(k * count, count));
    } else {
      scratch.kept.push_back(items[k].index);
      scratch.kept_at.push_back(k);
    }
  }
  if (!scratch.direct.empty()) split_.read_scaled(scratch.direct, scratch.direct_to, scales_);
  split_.get_several(scratch.kept, scratch.values, scratch.samples);
  for (std::size_t k = 0; k < scratch.kept.size(); ++k) {
    const std::size_t at = scratch.kept_at[k];
    copy_sample(scratch.samples[k], to.subspan(at * count, count), split_.shape(), normalisation_,
                items[at].augmentation);
  }
}

const Batch* DataLoader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (taken_ > 0) slots_[(taken_ - 1) % kSlots].free = true;
  changed_.notify_all();
  Slot& slot = slots_[taken_ % kSlots];
  changed_.wait(lock, [&] {
    return failure_ || (opened_ > taken_ && !slot.free && slot.filled == slot.batch.items.size());
  });
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (failure_) std::rethrow_exception(failure_);
  if (slot.last) {
    slot.free = false;
    taken_ = opened_ - 1;  // stays at the end
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

std::pair<std::size_t, std::size_t> TrainingOrder::share(std::uint64_t step_of_epoch) const {
  return even_part(global_batch(step_of_epoch), rank, ranks);
}

std::vector<std::size_t> TrainingOrder::indices(std::uint64_t epoch, std::uint64_t step_of_epoch) const {
  const Permutation order(samples, hash64(seed, epoch));
  const auto [first, end] = share(step_of_epoch);
  std::vector<std::size_t> list;
  for (std::size_t place = first; place < end; ++place) {
    list.push_back(static_cast<std::size_t>(order(static_cast<std::size_t>(step_of_epoch) * batch + place)));
  }
  return list;
}

}  // namespace wflow::trainer
