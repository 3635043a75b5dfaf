// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/fence.h"

#include <limits>

namespace wflow::workers {

namespace {
constexpr std::size_t kUnanswered = 4096;  // an answer to one that is older would move no deadline
}

Fence::Fence() : deadline_s_(std::numeric_limits<double>::infinity()) {}

void Fence::connected() {
  hellos_.clear();
  heartbeats_.clear();
  first_ = 1;
}

void Fence::said_hello(double now_s) {
  hellos_.push_back(now_s);
}

void Fence::welcomed(double lost_s, bool holds_nothing) {
  lost_s_ = lost_s;
  if (hellos_.empty()) return;
  const double said_s = hellos_.front();
  hellos_.pop_front();
  if (holds_nothing) deadline_s_ = said_s + lost_s_;
}

std::uint64_t Fence::next_heartbeat(double now_s) {
  heartbeats_.push_back(now_s);
  const std::uint64_t number = first_ + heartbeats_.size() - 1;
  if (heartbeats_.size() > kUnanswered) {
    heartbeats_.pop_front();
    ++first_;
  }
  return number;
}

bool Fence::answered(std::uint64_t number) {
  if (number < first_ || number - first_ >= heartbeats_.size()) return false;
  for (; first_ < number; ++first_) heartbeats_.pop_front();
  deadline_s_ = heartbeats_.front() + lost_s_;
  heartbeats_.pop_front();
  ++first_;
  return true;
}

}  // namespace wflow::workers
