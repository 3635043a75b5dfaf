// SPDX-License-Identifier: Apache-2.0
// What happens in a schedule, as text: made only where somebody reads it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace wflow::simulation {

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

}  // namespace wflow::simulation
