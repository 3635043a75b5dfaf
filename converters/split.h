// SPDX-License-Identifier: Apache-2.0
// Assigns samples to training, validation and test. Evenly: a function of (seed, fractions, sample number),
// so that a growing campaign never moves a sample, with the requested fractions, within one sample, of the
// first n samples for every n. By hash: of (seed, identity of the sample) alone. By count: of (seed, number
// of samples, sample number), with exact sizes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace wflow::converters {

inline constexpr std::array<std::string_view, 3> kSplitNames = {"train", "validation", "test"};
inline constexpr std::size_t kTrain = 0;

enum class SplitOrder { hash, count, even };

// The request of the user: counts, or fractions of the whole.
struct SplitRequest {
  bool fractions = true;
  std::array<double, 3> parts = {0.8, 0.1, 0.1};  // in order of kSplitNames
  std::uint64_t seed = 1;
  SplitOrder order = SplitOrder::even;  // counts need SplitOrder::count
  std::string group_by = {};  // column: rows with one value stay together; empty: each row separately
  std::string stratify_by =
      {};  // column: each of its values (or intervals) is split in the requested proportions
  std::vector<double> stratify_edges = {};  // edges between the intervals; empty: each value separately
  bool operator==(const SplitRequest&) const = default;
};

// The error in the request for that many samples, as a clause; nothing if it fits. `grown`: the earlier
// numbers of samples, ascending: counts refer to the first of them.
std::optional<std::string> split_problem(const SplitRequest& request, std::uint64_t count,
                                         const std::vector<std::uint64_t>& grown = {});

// 64-bit FNV-1a of a text: a sample's id (its decimal digits), file name or group.
std::uint64_t identity_of(std::string_view text);

// A sequence of parts in which every prefix has the requested share of each part, rounded down or up. It is
// made in windows of consecutive samples, each in a random order of its own, so that no sample's part depends
// on their number.
class EvenSplit {
 public:
  // `parts` sum to 1 at most; the fourth part is the rest.
  EvenSplit(const std::array<double, 3>& parts, std::uint64_t seed);
  // The part of a sample, 0 to 3.
  std::size_t of(std::uint64_t sample) const;
  // The number of the first samples that belong to the part.
  std::uint64_t size(std::size_t part, std::uint64_t samples) const;

 private:
  static constexpr std::size_t kParts = 4;
  using Counts = std::array<std::uint64_t, kParts>;
  bool can_follow(Counts placed, std::uint64_t next) const;
  const std::vector<std::uint8_t>& window(std::uint64_t number) const;

  std::uint64_t seed_;
  std::uint64_t length_ = 1;                // length of a window
  Counts counts_{};                         // count of each part in a window
  mutable std::vector<std::uint8_t> last_;  // the window used last
  mutable std::uint64_t last_number_ = ~std::uint64_t{0};
};

// Used by one thread at a time.
class SplitMap {
 public:
  // Throws Error{spec} if split_problem() finds an error. By count, the samples of each growth are split
  // separately, in the proportions of the request.
  SplitMap(const SplitRequest& request, std::uint64_t count, const std::vector<std::uint64_t>& grown = {});

  std::uint64_t count() const { return count_; }
  std::uint64_t seed() const { return seed_; }
  SplitOrder order() const { return order_kind_; }
  bool exact() const { return order_kind_ != SplitOrder::hash; }
  // For a split by hash: the expected sizes.
  std::uint64_t size(std::size_t split) const;
  // `sample`: its number; for an even split, its id. Index into kSplitNames; nothing for a sample in no part
  // (fractions that sum to less than 1).
  std::optional<std::size_t> of(std::uint64_t sample, std::uint64_t identity) const;

  // Assigns the samples of a stratum one after another: a random choice among the parts below their share so
  // far, so that each stratum has about the requested proportions, and later samples move no earlier one. The
  // fourth part has the samples of no part.
  struct Stratum {
    std::array<std::uint64_t, 4> counts{};
  };
  std::optional<std::size_t> next_of(Stratum& stratum, std::uint64_t identity) const;

 private:
  // By count: the samples from `first` on.
  struct Batch {
    std::uint64_t first = 0;
    Permutation order;
    std::array<std::uint64_t, 3> ends{};  // first place beyond each part
  };

  std::uint64_t count_;
  std::uint64_t seed_;
  SplitOrder order_kind_;
  std::array<double, 3> bounds_{};  // by hash: the running sums of the fractions
  std::vector<Batch> batches_;      // by hash: one batch of all samples, for the sizes
  EvenSplit even_;
};

}  // namespace wflow::converters
