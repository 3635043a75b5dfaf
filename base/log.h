// SPDX-License-Identifier: Apache-2.0
// What a process reports while it runs: one line each in a file of its own, <campaign>/.wflow/logs/<name>.log
// (docs/logging.md). Warnings and errors also go to standard error, as one sentence.
//
// No call throws or waits for another thread: a full disk costs log lines, never the program. There is no
// thread behind it, and every line is written at once, so that a process may fork: the child calls open()
// with a name of its own.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/log_level.h"

namespace wflow::log {

// A file of this size is renamed to <name>.1.log and so on; this many are kept.
inline constexpr std::size_t kFileBytes = 8 << 20;
inline constexpr std::size_t kFiles = 3;

// trace, debug, info, warning, error.
std::string_view name_of(LogLevel level);
std::optional<LogLevel> level_from_name(std::string_view name);

// What $WFLOW_LOG says; info without it.
LogLevel wanted_level();

// Lines go to <campaign>/.wflow/logs/<name>.log from now on, those below `level` nowhere. Where the file
// can't be written, a warning says so once and only standard error is left.
void open(const std::filesystem::path& campaign, const std::string& name, LogLevel level = wanted_level());

// Whether write() would do anything: for lines that are expensive to make.
bool takes(LogLevel level);

// To the file, and from `warning` on to standard error as "wflow: <text>". The text is one sentence, with
// "lease 12: " or the task's name before it where it is about one. The same warning several times in a row is
// shown once.
void write(LogLevel level, std::string_view text) noexcept;

// To the file alone: for what the caller prints itself.
void record(LogLevel level, std::string_view text) noexcept;

}  // namespace wflow::log
