// SPDX-License-Identifier: Apache-2.0
// on: and metrics: of a study: commands and files that report about its campaign. No task depends on them.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

struct Reading;

inline constexpr std::array<std::string_view, 5> kHookEvents = {"finished", "failed", "stalled",
                                                                "first_failure", "allocation_lost"};

// A command of on:.
struct Hook {
  std::string event;         // one of kHookEvents
  std::string command;       // for /bin/sh
  double timeout_s = 60;     // then it is ended
  double after_s = 30 * 60;  // stalled: so long no task has ended
};

// metrics: prometheus: a file that is written again and again.
struct MetricsFile {
  std::filesystem::path file;  // absolute
  double every_s = 15;
};

// Reads both blocks and reports what is wrong, and programs that can't be found as warnings.
void check_hooks(Reading& reading);

// Of a study that was read without errors.
std::vector<Hook> hooks_of(const Study& study);
std::optional<MetricsFile> metrics_file_of(const Study& study);

}  // namespace wflow::specs
