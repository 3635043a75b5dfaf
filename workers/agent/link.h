// SPDX-License-Identifier: Apache-2.0
// The worker's connection to the coordinator, which may end, move to another host and return: when to look
// for the coordinator, when to connect, and how long the worker may keep its leases without an answer.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace wflow::workers {

// The addresses of a coordinator. Different values name different coordinators, or one that was started
// again.
struct CoordinatorAddress {
  std::string local, remote, host;
  std::int64_t pid = 0;
  std::uint64_t epoch = 0;
  std::vector<std::string> others = {};  // further addresses of the same host
  friend bool operator==(const CoordinatorAddress&, const CoordinatorAddress&) = default;
};

class CoordinatorLink {
 public:
  CoordinatorLink(double retry_s, double now_s);

  void connecting(const CoordinatorAddress& address);
  void connected(double now_s);
  void lost();
  void hello_sent();
  void welcomed(double heartbeat_s);
  void heard(double now_s) { heard_s_ = now_s; }

  bool is_connected() const { return state_ == State::connected || state_ == State::welcome; }
  bool is_welcome() const { return state_ == State::welcome; }  // the worker may send results
  bool was_welcome() const { return was_welcome_; }             // any coordinator has sent a Welcome
  double heartbeat_s() const { return heartbeat_s_; }
  double heard_s() const { return heard_s_; }
  double silence_limit_s() const {
    return 3 * heartbeat_s_;
  }  // after this time without a message it is silent

  // True if the campaign's endpoint file should be read now: at most once in retry_s, five times as often in
  // the first ten seconds without a coordinator.
  bool look_up(double now_s);
  double next_look_s() const;
  // True if the worker should connect to this address. It does not reconnect to a coordinator that is
  // connected but silent (stopped, or on an overloaded host).
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

// The time until which a worker may hold its leases: lost_s after it sent the last heartbeat that the
// coordinator answered. The coordinator counts from when it received the heartbeat, which is later, and waits
// longer. So it leases a task again only after the worker has ended it.
class Fence {
 public:
  Fence();

  void connected();  // restarts the numbers of heartbeats
  void hello_sent(double now_s);
  // A Welcome answers the oldest Hello of this connection. The Hello counts as a heartbeat only if the worker
  // holds nothing: the coordinator may have leased to others what the worker held before.
  void welcomed(double lost_s, bool holds_nothing);
  std::uint64_t next_heartbeat(double now_s);  // returns the number of a heartbeat that is sent now
  bool answered(std::uint64_t number);         // returns true if the deadline was set

  double deadline_s() const { return deadline_s_; }  // infinity: the worker never had a lease
  bool passed(double now_s) const { return now_s >= deadline_s_; }
  double lost_s() const { return lost_s_; }

 private:
  double deadline_s_;
  double lost_s_ = 60;
  std::deque<double> hellos_;      // send times of Hellos without a Welcome
  std::deque<double> heartbeats_;  // send times of heartbeats without an answer
  std::uint64_t first_ = 1;        // number of heartbeats_.front()
};

}  // namespace wflow::workers
