// SPDX-License-Identifier: Apache-2.0
// Which samples train, validate and test. Evenly: a function of (seed, fractions, sample number), so that a growing
// campaign never moves a sample, with the asked fractions, within one sample, of the first n samples for every n. By
// hash: of (seed, identity of the sample) alone. By count: of (seed, number of samples, sample number), with exact
// sizes.
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

// As the user wrote it: counts, or fractions of the whole.
struct SplitRequest {
  bool fractions = true;
  std::array<double, 3> parts = {0.8, 0.1, 0.1};  // in order of kSplitNames
  std::uint64_t seed = 1;
  SplitOrder order = SplitOrder::even;  // counts need SplitOrder::count
  std::string group_by = {};            // column: rows of one value stay together; empty: each by itself
  std::string stratify_by =
      {};  // column: each of its values (or intervals) is split in the asked proportions
  std::vector<double> stratify_edges = {};  // between the intervals; empty: each value by itself
  bool operator==(const SplitRequest&) const = default;
};

// What is wrong with the request for that many samples, as a clause; nothing when it fits. `grown`: the
// numbers of samples that there were before, ascending: counts are of the first of them.
std::optional<std::string> split_problem(const SplitRequest& request, std::uint64_t count,
                                         const std::vector<std::uint64_t>& grown = {});

// Of a sample's id (its decimal digits), file name or group, as a text: 64-bit FNV-1a.
std::uint64_t identity_of(std::string_view text);

// A sequence of parts in which every prefix has the asked share of each part, rounded down or up. It is made in windows
// of consecutive samples, each in a random order of its own, so that no sample's part depends on how many there are.
class EvenSplit {
 public:
  // `parts` sum to 1 at most; the fourth is what they leave.
  EvenSplit(const std::array<double, 3>& parts, std::uint64_t seed);
  // 0 to 3.
  std::size_t of(std::uint64_t sample) const;
  // Of the first samples, how many are of the part.
  std::uint64_t size(std::size_t part, std::uint64_t samples) const;

 private:
  static constexpr std::size_t kParts = 4;
  using Counts = std::array<std::uint64_t, kParts>;
  bool can_follow(Counts placed, std::uint64_t next) const;
  const std::vector<std::uint8_t>& window(std::uint64_t number) const;

  std::uint64_t seed_;
  std::uint64_t length_ = 1;  // of a window
  Counts counts_{};           // of each part in it
  mutable std::vector<std::uint8_t> last_;  // the window that was asked for last
  mutable std::uint64_t last_number_ = ~std::uint64_t{0};
};

// Used by one thread at a time.
class SplitMap {
 public:
  // Throws Error{spec} where split_problem() has something to say. By count, the samples that came with each
  // growth are split by themselves, in the proportions of the request.
  SplitMap(const SplitRequest& request, std::uint64_t count, const std::vector<std::uint64_t>& grown = {});

  std::uint64_t count() const { return count_; }
  std::uint64_t seed() const { return seed_; }
  SplitOrder order() const { return order_kind_; }
  bool exact() const { return order_kind_ != SplitOrder::hash; }
  // Of a split by hash: what is expected.
  std::uint64_t size(std::size_t split) const;
  // `sample`: its number; of an even split, its id. Index into kSplitNames; nothing for a sample that no part takes (fractions that sum to less than 1).
  std::optional<std::size_t> of(std::uint64_t sample, std::uint64_t identity) const;

  // Of a stratum, sample after sample: chosen at random among the parts that have fewer than their share so
  // far, so that each stratum has about the asked proportions, and what comes later moves nothing. The fourth
  // part are samples that none takes.
  struct Stratum {
    std::array<std::uint64_t, 4> counts{};
  };
  std::optional<std::size_t> next_of(Stratum& stratum, std::uint64_t identity) const;

 private:
  // The samples from `first` on, by count.
  struct Batch {
    std::uint64_t first = 0;
    Permutation order;
    std::array<std::uint64_t, 3> ends{};  // first place beyond each part
  };

  std::uint64_t count_;
  std::uint64_t seed_;
  SplitOrder order_kind_;
  std::array<double, 3> bounds_{};  // by hash: the running sums of the fractions
  std::vector<Batch> batches_;      // by hash: one of all, for the sizes
  EvenSplit even_;
};

}  // namespace wflow::converters
