// SPDX-License-Identifier: Apache-2.0
#include "converters/load/sample_cache.h"

#include <algorithm>

#include "base/error.h"

namespace wflow::converters {

SampleCache::SampleCache(std::size_t samples, std::size_t values)
    : values_(values), kept_(samples), owned_(samples) {}

std::int64_t SampleCache::bytes_of(std::size_t samples, std::size_t values) {
  constexpr std::size_t kEach = 2 * sizeof(void*) + 16;  // places, and what an allocation takes
  return static_cast<std::int64_t>(samples * (values * sizeof(float) + kEach));
}

bool SampleCache::accepts(std::span<const Scale> scales) {
  const std::lock_guard lock(mutex_);
  if (!scales_) scales_.emplace(scales.begin(), scales.end());
  return std::equal(
      scales_->begin(), scales_->end(), scales.begin(), scales.end(),
      [](const Scale& a, const Scale& b) { return a == b; });
}

bool SampleCache::copy(std::size_t sample, std::span<float> to) const {
  const float* const from = kept_[sample].load(std::memory_order_acquire);
  if (from == nullptr) return false;
  std::copy_n(from, to.size(), to.begin());
  return true;
}

void SampleCache::keep(std::size_t sample, std::span<const float> values) {
  WFLOW_CHECK(values.size() == values_);
  if (kept_[sample].load(std::memory_order_relaxed) != nullptr) return;  // twice in a batch
  auto copy = std::make_unique_for_overwrite<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  const float* expected = nullptr;
  // Two threads may have read the same: the first keeps its copy.
  if (kept_[sample].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel))
    owned_[sample] = std::move(copy);
}

}  // namespace wflow::converters
