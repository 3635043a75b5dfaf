// SPDX-License-Identifier: Apache-2.0
// Numbers, times and events as short texts for the dashboard.
#pragma once

#include <cstdint>
#include <string>

#include "engine/wire/answers.h"

namespace wflow::cli::top {

std::string brief_duration(double seconds);             // "850ms", "12.3s", "4m05s", "2h03m", "3d04h"
std::string brief_count(std::uint64_t value);           // "9,999", "12.3k", "1.20M", "3.40G"
std::string brief_rate(double per_s);                   // "12.3/s", "4.0/min", "2.1/h"; empty for 0
std::string time_of_day(double unix_s);                 // "16:00:01"
std::string day_and_time(double unix_s, double now_s);  // "16:00", on another day "22 Nov 16:00"
// "simulate/12 failed after 3.2s on node1: exit code 3: no root in cell 7"
std::string failure_sentence(const engine::wire::FailureView& failure);
std::string last_line_of(const std::string& text);  // that is not blank

}  // namespace wflow::cli::top
