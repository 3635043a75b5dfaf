// SPDX-License-Identifier: Apache-2.0
// The worker's line to the coordinator, which may go, move to another host and come back: when to look for
// it and when to connect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace wflow::workers {

// Where a coordinator listens. Two that differ are two coordinators, or one that was started again.
struct CoordinatorAddress {
  std::string local, remote, host;
  std::int64_t pid = 0;
  std::uint64_t epoch = 0;
  std::vector<std::string> others = {};  // further addresses of the same machine
  friend bool operator==(const CoordinatorAddress&, const CoordinatorAddress&) = default;
};

class CoordinatorLink {
 public:
  CoordinatorLink(double retry_s, double now_s);

  void connecting(const CoordinatorAddress& address);
  void connected(double now_s);
  void lost();
  void said_hello();
  void welcomed(double heartbeat_s);
  void heard(double now_s) { heard_s_ = now_s; }

  bool is_connected() const { return state_ == State::connected || state_ == State::welcome; }
  bool is_welcome() const { return state_ == State::welcome; }  // results may be sent
  bool was_welcome() const { return was_welcome_; }             // by any coordinator so far
  double heartbeat_s() const { return heartbeat_s_; }
  double heard_s() const { return heard_s_; }
  double patience_s() const { return 3 * heartbeat_s_; }  // beyond it the coordinator is silent

  // Whether the campaign's endpoint file is to be read now; at most once in retry_s, and five times as often in the
  // first ten seconds without a coordinator.
  bool look_up(double now_s);
  double next_look_s() const;
  // A coordinator that is there but silent (stopped, or its machine overloaded) is waited for.
  bool wants(const CoordinatorAddress& address) const;

 private:
  enum class State : std::uint8_t { none, connecting, connected, welcome };

  State state_ = State::none;
  bool was_welcome_ = false;
  CoordinatorAddress address_;
  double retry_s_;
  double heartbeat_s_ = 1;
  double heard_s_;
  double connected_s_;
  double next_s_;
};

}  // namespace wflow::workers
