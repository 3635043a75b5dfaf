// SPDX-License-Identifier: Apache-2.0
// Virtual time. What is due first happens first; what is due at the same time, in the order of asking.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"

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

// The events of a schedule as text, made only where somebody reads it.
class Trace {
 public:
  enum class Mode : std::uint8_t { off, last_lines, print };
  static constexpr std::size_t kLastLines = 60;

  Trace(Mode mode, const double& now_s) : mode_(mode), now_s_(now_s) {}
  bool on() const { return mode_ != Mode::off; }

  template <typename... Values>
  void line(std::string_view who, fmt::format_string<Values...> text, Values&&... values) {
    if (mode_ == Mode::off) return;
    add(fmt::format("{:11.6f} {:<6} {}", now_s_, who, fmt::format(text, std::forward<Values>(values)...)));
  }
  const std::deque<std::string>& last_lines() const { return lines_; }

 private:
  void add(std::string text) {
    if (mode_ == Mode::print) fmt::print("{}\n", text);
    lines_.push_back(std::move(text));
    if (lines_.size() > kLastLines) lines_.pop_front();
  }

  Mode mode_;
  const double& now_s_;
  std::deque<std::string> lines_;
};

// Where everything random of a schedule comes from. Each concern has a stream of its own, so that one more
// draw in one of them does not change the others.
enum class Concern : std::uint64_t {
  setup,
  faults,
  network,
  disk,
  processes,
  tasks,
  clients,
  hosts,
  allocations,
  batch
};

class Draw {
 public:
  Draw(std::uint64_t seed, Concern concern)
      : key_(hash64(seed, 0xc0ffee + static_cast<std::uint64_t>(concern))) {}

  std::uint64_t bits() { return hash64(key_, counter_++); }
  double unit() { return unit_real(bits()); }
  bool chance(double probability) { return unit() < probability; }
  // 0..count-1
  std::uint64_t below(std::uint64_t count) { return count < 2 ? 0 : bits() % count; }
  double between(double low, double high) { return low + (high - low) * unit(); }
  // Times that differ by orders of magnitude: each decade is as likely as the others.
  double logarithmic(double low, double high) { return low * std::pow(high / low, unit()); }
  double exponential(double mean) { return -mean * std::log(1 - unit()); }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace wflow::simulation
