// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/link.h"

#include <algorithm>
#include <limits>

namespace wflow::workers {

namespace {
constexpr double kSoon_s = 10;
constexpr double kOften = 5;
}  // namespace

CoordinatorLink::CoordinatorLink(double retry_s, double now_s)
    : retry_s_(retry_s), heard_s_(now_s), connected_s_(now_s), next_s_(now_s) {}

void CoordinatorLink::connecting(const CoordinatorAddress& address) {
  address_ = address;
  state_ = State::connecting;
}

void CoordinatorLink::connected(double now_s) {
  connected_s_ = now_s;
  state_ = State::connected;
}

void CoordinatorLink::lost() {
  state_ = State::none;
}

void CoordinatorLink::hello_sent() {
  state_ = State::connected;
}

void CoordinatorLink::welcomed(double heartbeat_s) {
  heartbeat_s_ = heartbeat_s;
  state_ = State::welcome;
  was_welcome_ = true;
}

bool CoordinatorLink::look_up(double now_s) {
  if (now_s < next_look_s()) return false;
  // A coordinator that just vanished is usually restarted soon.
  next_s_ = now_s + (now_s - heard_s_ < kSoon_s ? retry_s_ / kOften : retry_s_);
  return true;
}

double CoordinatorLink::next_look_s() const {
  if (!is_connected()) return next_s_;
  return std::max(next_s_, std::max(heard_s_, connected_s_) + silence_limit_s());
}

bool CoordinatorLink::wants(const CoordinatorAddress& address) const {
  return state_ == State::none || !(address == address_);
}

namespace {
constexpr std::size_t kUnanswered = 4096;  // an answer to an older heartbeat would not move the deadline
}

Fence::Fence() : deadline_s_(std::numeric_limits<double>::infinity()) {}

void Fence::connected() {
  hellos_.clear();
  heartbeats_.clear();
  first_ = 1;
}

void Fence::hello_sent(double now_s) {
  hellos_.push_back(now_s);
}

void Fence::welcomed(double lost_s, bool holds_nothing) {
  lost_s_ = lost_s;
  if (hellos_.empty()) return;
  const double sent_s = hellos_.front();
  hellos_.pop_front();
  if (holds_nothing) deadline_s_ = sent_s + lost_s_;
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
