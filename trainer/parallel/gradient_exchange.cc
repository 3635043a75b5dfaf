// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/gradient_exchange.h"

#include <algorithm>

namespace wflow::trainer {

GradientExchange::GradientExchange(Communicator& communicator, std::span<float> values,
                                   std::int64_t bucket_floats)
    : communicator_(communicator), values_(values) {
  auto end = static_cast<std::int64_t>(values.size());
  while (end > 0) {
    // A small rest joins its neighbour: a message has a price of its own.
    const std::int64_t begin = end < bucket_floats + bucket_floats / 2 ? 0 : end - bucket_floats;
    begins_.push_back(begin);
    end = begin;
  }
}

void GradientExchange::ready(std::int64_t from) {
  if (communicator_.size() == 1) return;
  while (started_ < begins_.size() && begins_[started_] >= from) {
    const auto begin = static_cast<std::size_t>(begins_[started_]);
    const std::size_t end = started_ == 0 ? values_.size() : static_cast<std::size_t>(begins_[started_ - 1]);
    last_ = communicator_.start_all_reduce(values_.subspan(begin, end - begin), wire_.at(begin));
    ++started_;
  }
}

void GradientExchange::finish() {
  ready(0);
  started_ = 0;
  if (communicator_.size() > 1) communicator_.wait(last_);
}

}  // namespace wflow::trainer
