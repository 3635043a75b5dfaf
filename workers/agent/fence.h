// SPDX-License-Identifier: Apache-2.0
// Until when a worker may hold what it was leased: so long after it has sent the last heartbeat that the
// coordinator has answered. The coordinator counts from when it received the heartbeat, which is later, and
// waits longer; so a task is leased again only when the worker has ended it.
#pragma once

#include <cstdint>
#include <deque>

namespace wflow::workers {

class Fence {
 public:
  Fence();

  void connected();  // heartbeats are numbered anew
  void said_hello(double now_s);
  // Answers the oldest Hello of this connection. Only where the worker holds nothing does a Hello count as a
  // heartbeat: what it held before, the coordinator may have given to others.
  void welcomed(double lost_s, bool holds_nothing);
  std::uint64_t next_heartbeat(double now_s);  // sent now; its number
  bool answered(std::uint64_t number);         // true when the deadline was set

  double deadline_s() const { return deadline_s_; }  // infinity: nothing was ever leased
  bool passed(double now_s) const { return now_s >= deadline_s_; }
  double lost_s() const { return lost_s_; }

 private:
  double deadline_s_;
  double lost_s_ = 60;
  std::deque<double> hellos_;      // when those without a Welcome were said
  std::deque<double> heartbeats_;  // when those without an answer were sent
  std::uint64_t first_ = 1;        // number of heartbeats_.front()
};

}  // namespace wflow::workers
