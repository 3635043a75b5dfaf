// SPDX-License-Identifier: Apache-2.0
// Virtual time. What is due first happens first; what is due at the same time, in the order of asking.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace wflow::simulation {

class Timeline {
 public:
  using Call = std::function<void()>;

  // Seconds of true time, which no simulated clock shows.
  double now_s() const { return now_s_; }
  void at(double time_s, Call call) {
    entries_.push_back({std::max(time_s, now_s_), next_++, std::move(call)});
    std::push_heap(entries_.begin(), entries_.end(), later);
  }
  void after(double delay_s, Call call) { at(now_s_ + delay_s, std::move(call)); }
  bool empty() const { return entries_.empty(); }
  double next_s() const { return entries_.front().time_s; }
  std::uint64_t steps() const { return steps_; }

  void step() {
    std::pop_heap(entries_.begin(), entries_.end(), later);
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    now_s_ = entry.time_s;
    ++steps_;
    entry.call();
  }

 private:
  struct Entry {
    double time_s;
    std::uint64_t number;
    Call call;
  };
  static bool later(const Entry& a, const Entry& b) {
    return std::pair(a.time_s, a.number) > std::pair(b.time_s, b.number);
  }

  double now_s_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t steps_ = 0;
  std::vector<Entry> entries_;  // a heap
};

}  // namespace wflow::simulation
