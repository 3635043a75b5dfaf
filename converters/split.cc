// SPDX-License-Identifier: Apache-2.0
#include "converters/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace wflow::converters {

namespace {

constexpr double kRounding = 1e-9;  // 0.8 + 0.1 + 0.1 is not exactly 1

// Rounding the running sums, not the parts, keeps parts that sum to 1 summing to `count`. Counts refer
// to `whole` samples.
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

constexpr std::uint64_t kLongestWindow = 1000;
constexpr double kWhole = 1e-6;

// The places, from 1, that unit j (from 1) of `count` may have in a window, so that no prefix has more than
// its share rounded up, or less than its share rounded down.
std::uint64_t first_place(std::uint64_t j, std::uint64_t count, std::uint64_t length) {
  return (j - 1) * length / count + 1;
}
std::uint64_t last_place(std::uint64_t j, std::uint64_t count, std::uint64_t length) {
  return (j * length + count - 1) / count;
}

}  // namespace

EvenSplit::EvenSplit(const std::array<double, 3>& parts, std::uint64_t seed) : seed_(seed) {
  const auto is_whole = [&](std::uint64_t length) {
    return std::all_of(parts.begin(), parts.end(), [&](double part) {
      const double units = part * static_cast<double>(length);
      return std::abs(units - std::round(units)) < kWhole;
    });
  };
  while (length_ < kLongestWindow && !is_whole(length_)) ++length_;
  double sum = 0;
  std::uint64_t before = 0;
  for (std::size_t k = 0; k < kParts; ++k) {
    sum = k < parts.size() ? sum + parts[k] : 1;
    const std::uint64_t end =
        std::min(length_, static_cast<std::uint64_t>(std::llround(sum * static_cast<double>(length_))));
    counts_[k] = end - before;
    before = end;
  }
}

// True if the window can be completed from place `next` on, with the most urgent unit at each place.
bool EvenSplit::can_follow(Counts placed, std::uint64_t next) const {
  for (; next <= length_; ++next) {
    std::size_t chosen = kParts;
    std::uint64_t soonest = 0;
    for (std::size_t k = 0; k < kParts; ++k) {
      if (placed[k] == counts_[k] || first_place(placed[k] + 1, counts_[k], length_) > next) continue;
      const std::uint64_t last = last_place(placed[k] + 1, counts_[k], length_);
      if (last < next) return false;
      if (chosen == kParts || last < soonest) {
        chosen = k;
        soonest = last;
      }
    }
    if (chosen == kParts) return false;
    ++placed[chosen];
  }
  return true;
}

// Draws for each place one of the allowed units, weighted by their number, such that the window can be
// completed.
const std::vector<std::uint8_t>& EvenSplit::window(std::uint64_t number) const {
  if (number == last_number_) return last_;
  const std::uint64_t key = hash64(seed_, number);
  Counts placed{};
  last_.clear();
  for (std::uint64_t place = 1; place <= length_; ++place) {
    Counts weights{};
    std::uint64_t all = 0;
    for (std::size_t k = 0; k < kParts; ++k) {
      if (placed[k] == counts_[k] || first_place(placed[k] + 1, counts_[k], length_) > place) continue;
      Counts with = placed;
      ++with[k];
      if (can_follow(with, place + 1)) weights[k] = counts_[k] - placed[k];
      all += weights[k];
    }
    WFLOW_CHECK(all > 0);
    std::uint64_t drawn = hash64(key, place) % all;
    std::size_t part = 0;
    while (drawn >= weights[part]) drawn -= weights[part++];
    ++placed[part];
    last_.push_back(static_cast<std::uint8_t>(part));
  }
  last_number_ = number;
  return last_;
}

std::size_t EvenSplit::of(std::uint64_t sample) const {
  return window(sample / length_)[sample % length_];
}

std::uint64_t EvenSplit::size(std::size_t part, std::uint64_t samples) const {
  std::uint64_t size = samples / length_ * counts_.at(part);
  for (std::uint64_t sample = samples / length_ * length_; sample < samples; ++sample)
    size += of(sample) == part ? 1 : 0;
  return size;
}

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
    : count_(count),
      seed_(request.seed),
      order_kind_(request.order),
      even_(request.fractions ? request.parts : SplitRequest().parts, request.seed) {
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
  if (order_kind_ == SplitOrder::even) return even_.size(split, count_);
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
  if (order_kind_ == SplitOrder::even) {
    const std::size_t part = even_.of(sample);
    return part < kSplitNames.size() ? std::optional(part) : std::nullopt;
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
