// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/link.h"

#include <algorithm>

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

void CoordinatorLink::said_hello() {
  state_ = State::connected;
}

void CoordinatorLink::welcomed(double heartbeat_s) {
  heartbeat_s_ = heartbeat_s;
  state_ = State::welcome;
  was_welcome_ = true;
}

bool CoordinatorLink::look_up(double now_s) {
  if (now_s < next_look_s()) return false;
  // One that was there a moment ago is soon followed by another.
  next_s_ = now_s + (now_s - heard_s_ < kSoon_s ? retry_s_ / kOften : retry_s_);
  return true;
}

double CoordinatorLink::next_look_s() const {
  if (!is_connected()) return next_s_;
  return std::max(next_s_, std::max(heard_s_, connected_s_) + patience_s());
}

bool CoordinatorLink::wants(const CoordinatorAddress& address) const {
  return state_ == State::none || !(address == address_);
}

}  // namespace wflow::workers
