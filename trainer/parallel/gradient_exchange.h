// SPDX-License-Identifier: Apache-2.0
// Cuts the exchange array into buckets and starts the sum of each as soon as the backward pass has finished
// it. The last layers come first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

inline constexpr std::int64_t kBucketFloats = 1 << 20;
inline constexpr std::size_t kLeastSparse = 1 << 12;  // values of a bucket for which send_used() acts

// The first positions of the buckets, from the last bucket to the first.
inline std::vector<std::int64_t> bucket_begins(std::int64_t values,
                                               std::int64_t bucket_floats = kBucketFloats) {
  std::vector<std::int64_t> begins;
  for (std::int64_t end = values; end > 0; end = begins.back()) {
    // A small rest joins its neighbour: every message has a fixed cost.
    begins.push_back(end < bucket_floats + bucket_floats / 2 ? 0 : end - bucket_floats);
  }
  return begins;
}

class GradientExchange {
 public:
  // `values`: the whole exchange array, of the same length on every rank.
  GradientExchange(Communicator& communicator, std::span<float> values,
                   std::int64_t bucket_floats = kBucketFloats);

  // Number format of the following sums; its position counts from the beginning of the array.
  void set_wire(const Wire& wire) { wire_ = wire; }

  // The following sums leave out the values at positions from `head` to before `begin` and from `end` on,
  // which are not wanted.
  void leave_out(std::int64_t head, std::int64_t begin, std::int64_t end) {
    head_ = static_cast<std::size_t>(head);
    begin_ = static_cast<std::size_t>(begin);
    end_ = static_cast<std::size_t>(end);
  }

  // Parts of the array that are often 0 as a whole, in order: they are left out of a sum where all ranks have
  // 0. Few values are not worth the message before it, and are sent.
  void send_used(ValueParts parts) { sparse_ = std::move(parts); }

  // Each rank gets only the sums that it owns. `owners`: those of the values from one position to before
  // another, at positions that count from the first. `done` is called for such values on the communication
  // thread, when they are summed.
  using OwnersOf = std::function<OwnedParts(std::int64_t begin, std::int64_t end)>;
  using Done = std::function<void(std::int64_t begin, std::int64_t end)>;
  void share_out(OwnersOf owners, Done done) {
    owners_ = std::move(owners);
    done_ = std::move(done);
  }

  // Everything from position `from` on is final.
  void ready(std::int64_t from);
  // The rest is final too; returns when all buckets are summed over the ranks.
  void finish();

  std::size_t buckets() const { return begins_.size(); }

 private:
  void start(std::size_t begin, std::size_t end);
  ValueParts sparse_parts(std::size_t begin, std::size_t end) const;

  Communicator& communicator_;
  std::span<float> values_;
  std::vector<std::int64_t> begins_;  // bucket_begins()
  Wire wire_;
  std::size_t started_ = 0;
  std::size_t head_ = 0;  // leave_out()
  std::size_t begin_ = 0;
  std::size_t end_;
  Communicator::Ticket last_ = 0;
  ValueParts sparse_;  // send_used()
  OwnersOf owners_;    // share_out()
  Done done_;
};

inline GradientExchange::GradientExchange(Communicator& communicator, std::span<float> values,
                                          std::int64_t bucket_floats)
    : communicator_(communicator),
      values_(values),
      begins_(bucket_begins(static_cast<std::int64_t>(values.size()), bucket_floats)),
      end_(values.size()) {}

inline void GradientExchange::ready(std::int64_t from) {
  if (communicator_.size() == 1) return;
  while (started_ < begins_.size() && begins_[started_] >= from) {
    const auto begin = static_cast<std::size_t>(begins_[started_]);
    const std::size_t end = started_ == 0 ? values_.size() : static_cast<std::size_t>(begins_[started_ - 1]);
    if (begin_ > head_) {
      start(std::max(begin, begin_), std::min(end, end_));
      start(begin, std::min(end, head_));
    } else {
      start(begin, std::min(end, end_));
    }
    ++started_;
  }
}

inline void GradientExchange::start(std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  const std::span<float> values = values_.subspan(begin, end - begin);
  if (!owners_) {
    ValueParts sparse = sparse_parts(begin, end);
    last_ = sparse.empty()
                ? communicator_.start_all_reduce(values, wire_.at(begin))
                : communicator_.start_sparse_all_reduce(values, std::move(sparse), wire_.at(begin));
    return;
  }
  const auto from = static_cast<std::int64_t>(begin);
  const auto to = static_cast<std::int64_t>(end);
  last_ = communicator_.start_reduce_scatter(values, owners_(from, to), wire_.at(begin),
                                             [this, from, to] { done_(from, to); });
}

// Those among the positions [begin, end), counted from `begin`; none if they are few.
inline ValueParts GradientExchange::sparse_parts(std::size_t begin, std::size_t end) const {
  ValueParts found;
  std::size_t values = 0;
  auto part = std::ranges::upper_bound(sparse_, begin, {}, &ValueParts::value_type::second);
  for (; part != sparse_.end() && part->first < end; ++part) {
    found.emplace_back(std::max(begin, part->first) - begin, std::min(end, part->second) - begin);
    values += found.back().second - found.back().first;
  }
  if (values < kLeastSparse) found.clear();
  return found;
}

inline void GradientExchange::finish() {
  ready(0);
  started_ = 0;
  if (communicator_.size() > 1) communicator_.wait(last_);
}

}  // namespace wflow::trainer
