// SPDX-License-Identifier: Apache-2.0
// The log of a process: one line a report in a file of its own, <campaign>/.wflow/logs/<name>.log
// (docs/logging.md). Warnings and errors also go to standard error, as one sentence.
//
// No call throws or waits for another thread: a full disk loses log lines, but does not stop the program. The
// log uses no thread and writes each line at once, so that a process may fork: the child calls open() with a
// name of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/plain_types.h"

namespace wflow::log {

// A file of this size is renamed to <name>.1.log and so on; this many are kept.
inline constexpr std::size_t kFileBytes = 8 << 20;
inline constexpr std::size_t kFiles = 3;

// trace, debug, info, warning, error.
std::string_view name_of(LogLevel level);
std::optional<LogLevel> level_from_name(std::string_view name);

// The level that $WFLOW_LOG names; info without it.
LogLevel wanted_level();

// Writes later lines to <campaign>/.wflow/logs/<name>.log and drops those below `level`. If the file cannot
// be written, a warning says so once, and only standard error remains.
void open(const std::filesystem::path& campaign, const std::string& name, LogLevel level = wanted_level());

// True if write() would do anything: for lines that are expensive to make.
bool takes(LogLevel level);

// Writes to the file and, from level `warning` on, to standard error as "wflow: <text>". The text is one
// sentence; a sentence about a lease or a task begins with "lease 12: " or the task's name. A warning that
// repeats is shown once.
void write(LogLevel level, std::string_view text) noexcept;

// Writes to the file only, for texts that the caller prints itself.
void record(LogLevel level, std::string_view text) noexcept;

}  // namespace wflow::log

// The side channel of a task: JSON lines appended to the file named by $WFLOW_EVENTS. The worker forwards
// them, the campaign's database keeps them, the dashboard shows them. docs/formats/events.md has the lines.

namespace wflow {

class EventWriter {
 public:
  // Writes nothing where the variable is unset: the program runs without a campaign.
  static EventWriter from_environment();
  explicit EventWriter(const std::string& path);  // empty path: writes nothing

  // One line, one write(2) on an O_APPEND descriptor: lines of several processes do not mix.
  // A failing write is ignored: losing a progress line must not end a training run.
  void emit(const nlohmann::json& event);

  void progress(std::uint64_t done, std::uint64_t total, std::string_view unit);
  void metric(std::string_view name, double value, std::uint64_t epoch, std::uint64_t step);
  void checkpoint(std::string_view path, std::string_view hash, std::uint64_t epoch, std::uint64_t step);
  void artifact(std::string_view kind, std::string_view path);  // kind: model, predictions, manifest, shard
  void note(std::string_view text);

 private:
  FileDescriptor fd_;
};

}  // namespace wflow
