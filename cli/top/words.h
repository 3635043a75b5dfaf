// SPDX-License-Identifier: Apache-2.0
// Numbers, times, names and events as short texts. The dashboard and the text output share them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/answers.h"

namespace wflow::cli::top {

std::string brief_duration(double seconds);    // "850ms", "12.3s", "4m05s", "2h03m", "3d04h"
std::string brief_count(std::uint64_t value);  // "9,999", "12.3k", "1.20M", "3.40G"
std::string brief_rate(double per_s);  // always a minute: "0.20/min", "12.3/min", "74.1k/min"; empty for 0
std::string counted(std::uint64_t count, std::string_view one);  // "1 task", "2,000 tasks"
std::string time_of_day(double unix_s);                          // "16:00:01"
std::string day_and_time(double unix_s, double now_s);           // "16:00", on another day "22 Nov 16:00"
std::string spaced(std::string_view name);                       // "finished with failures"

// "simulate/12 failed after 3.2s on n3#1: exit code 3: no root in cell 7"
class WorkerNames;
std::string failure_sentence(const engine::wire::FailureView& failure, const WorkerNames& names);
std::string last_line_of(const std::string& text);  // that is not blank

// Short names of workers: the first name of the host and a number, "n3#1". Identifiers (host, process and a
// random number) are too long for a line.
class WorkerNames {
 public:
  // Numbers the workers of each host in this order: that in which they joined.
  void add(const std::string& id);
  // The identifier itself if it was not added.
  const std::string& of(const std::string& id) const;
  // The text with the short name of every worker that it mentions.
  std::string in(std::string text) const;

 private:
  std::map<std::string, std::string> names_;  // by identifier
  std::map<std::string, int> on_host_;
};

}  // namespace wflow::cli::top
