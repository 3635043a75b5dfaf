// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "converters/shards/planes.h"

namespace wflow::converters {

// Decoded values of a field of every sample of a split, scaled in one way: that of who asks first.
// Thread-safe.
class SampleCache {
 public:
  SampleCache(std::size_t samples, std::size_t values);
  static std::int64_t bytes_of(std::size_t samples, std::size_t values);

  // Whether values of these scales are what it holds.
  bool accepts(std::span<const Scale> scales);
  // False where it does not have the sample.
  bool copy(std::size_t sample, std::span<float> to) const;
  void keep(std::size_t sample, std::span<const float> values);

 private:
  const std::size_t values_;
  std::mutex mutex_;
  std::optional<std::vector<Scale>> scales_;
  std::vector<std::atomic<const float*>> kept_;  // what readers see
  std::vector<std::unique_ptr<float[]>> owned_;  // who frees it
};

}  // namespace wflow::converters
