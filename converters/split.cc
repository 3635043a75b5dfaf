// SPDX-License-Identifier: Apache-2.0
#include "converters/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace wflow::converters {

namespace {

constexpr double kRounding = 1e-9;  // 0.8 + 0.1 + 0.1 is not exactly 1

// Rounding the running sums, not the parts, keeps parts that sum to 1 summing to `count`. Counts are of
// `whole` samples.
std::array<std::uint64_t, 3> ends_of(const SplitRequest& request, std::uint64_t count, std::uint64_t whole) {
  std::array<std::uint64_t, 3> ends{};
  const double unit = request.fractions ? 1 : static_cast<double>(whole);
  double sum = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    sum += request.parts[k];
    const double end = sum / unit * static_cast<double>(count);
    ends[k] = std::min(count, static_cast<std::uint64_t>(std::llround(end)));
  }
  return ends;
}

}  // namespace

std::optional<std::string> split_problem(const SplitRequest& request, std::uint64_t all,
                                         const std::vector<std::uint64_t>& grown) {
  const std::uint64_t count = grown.empty() ? all : grown.front();
  const auto& [train, validation, test] = request.parts;
  const double sum = train + validation + test;
  if (request.fractions) {
    if (sum <= 1 + kRounding) return std::nullopt;
    return fmt::format("the fractions {} + {} + {} are more than 1", train, validation, test);
  }
  if (sum == static_cast<double>(count)) return std::nullopt;
  return fmt::format(
      "{} + {} + {} is {}, but there are {} samples (fractions are written with a point: 0.8, 1.0)", train,
      validation, test, sum, count);
}

std::uint64_t identity_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

SplitMap::SplitMap(const SplitRequest& request, std::uint64_t count, const std::vector<std::uint64_t>& grown)
    : count_(count), seed_(request.seed), order_kind_(request.order) {
  if (const auto problem = split_problem(request, count, grown)) {
    throw Error(ExitCode::spec, "the split does not fit: " + *problem);
  }
  std::vector<std::uint64_t> starts = {0};
  if (order_kind_ == SplitOrder::count) {
    for (const std::uint64_t start : grown) {
      if (start < count) starts.push_back(start);
    }
  }
  const std::uint64_t whole = grown.empty() ? count : grown.front();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::uint64_t size = (i + 1 < starts.size() ? starts[i + 1] : count) - starts[i];
    const std::uint64_t key = i == 0 ? seed_ : hash64(seed_, starts[i]);
    batches_.push_back({starts[i], Permutation(size, key), ends_of(request, size, whole)});
  }
  double sum = 0;
  for (std::size_t k = 0; k < bounds_.size(); ++k) {
    sum += request.fractions ? request.parts[k] : 0;
    bounds_[k] = sum >= 1 - kRounding ? 1 : sum;
  }
}

std::uint64_t SplitMap::size(std::size_t split) const {
  std::uint64_t size = 0;
  for (const Batch& batch : batches_) size += batch.ends[split] - (split == 0 ? 0 : batch.ends[split - 1]);
  return size;
}

std::optional<std::size_t> SplitMap::next_of(Stratum& stratum, std::uint64_t identity) const {
  std::uint64_t members = 1;
  for (const std::uint64_t count : stratum.counts) members += count;
  std::array<double, 4> lacking{};
  double all = 0;
  for (std::size_t k = 0; k < lacking.size(); ++k) {
    const double share = (k < 3 ? bounds_[k] : 1) - (k == 0 ? 0 : bounds_[k - 1]);
    lacking[k] = std::max(0.0, share * static_cast<double>(members) - static_cast<double>(stratum.counts[k]));
    all += lacking[k];
  }
  double place = unit_real(hash64(seed_, identity)) * all;
  std::size_t chosen = 0;
  for (std::size_t k = 0; k < lacking.size(); ++k) {
    if (lacking[k] <= 0) continue;
    chosen = k;
    if (place < lacking[k]) break;
    place -= lacking[k];
  }
  ++stratum.counts[chosen];
  return chosen < 3 ? std::optional(chosen) : std::nullopt;
}

std::optional<std::size_t> SplitMap::of(std::uint64_t sample, std::uint64_t identity) const {
  if (order_kind_ == SplitOrder::hash) {
    const double place = unit_real(hash64(seed_, identity));
    for (std::size_t k = 0; k < bounds_.size(); ++k) {
      if (place < bounds_[k]) return k;
    }
    return std::nullopt;
  }
  WFLOW_CHECK(sample < count_);
  std::size_t at = batches_.size() - 1;
  while (sample < batches_[at].first) --at;
  const Batch& batch = batches_[at];
  const std::uint64_t place = batch.order(sample - batch.first);
  for (std::size_t k = 0; k < batch.ends.size(); ++k) {
    if (place < batch.ends[k]) return k;
  }
  return std::nullopt;
}

}  // namespace wflow::converters
