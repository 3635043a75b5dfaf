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

std::span<const float> CachedSplit::get(std::size_t i, std::vector<float>& scratch) {
  const auto count = static_cast<std::size_t>(shape_.count());
  if (const float* cached = values_[i].load(std::memory_order_acquire)) return {cached, count};
  scratch.resize(count);
  source_.read(i, scratch);
  if (!apply_transform(transform_, scratch)) {
    throw Error(ExitCode::data,
                fmt::format("sample {} has values that are not finite{}", source_.id(i),
                            transform_.name == TransformName::none
                                ? std::string()
                                : fmt::format(" or that 'transform: {}' cannot take (a logarithm of "
                                              "something negative?)",
                                              name_of(transform_.name))));
  }
  if (budget_.take(static_cast<std::int64_t>(count * sizeof(float)))) {
    auto copy = std::make_unique_for_overwrite<float[]>(count);
    std::copy(scratch.begin(), scratch.end(), copy.get());
    float* expected = nullptr;
    // Two threads may have read the same sample: the first keeps its copy.
    if (values_[i].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel))
      owned_[i] = std::move(copy);
  }
  return scratch;
}

DataLoader::DataLoader(CachedSplit& split, const Normalisation& normalisation, std::size_t most_items,
                       int threads, Plan plan, bool with_field)
    : split_(split),
      normalisation_(normalisation),
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
  std::vector<float> scratch;
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
      const std::size_t at = slot.claimed++;
      const BatchItem item = slot.batch.items[at];
      const auto count = static_cast<std::size_t>(split_.shape().count());
      lock.unlock();
      if (with_field_) fill(item, slot.batch.x.span().subspan(at * count, count), scratch);
      lock.lock();
      if (++slot.filled == slot.batch.items.size()) changed_.notify_all();
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }
}

void DataLoader::fill(const BatchItem& item, std::span<float> to, std::vector<float>& scratch) {
  copy_sample(split_.get(item.index, scratch), to, split_.shape(), normalisation_, item.augmentation);
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
