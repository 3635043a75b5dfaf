// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/text.h"

namespace wflow::log {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 5> kNames = {"trace", "debug", "info", "warning", "error"};
constexpr std::array kLevels = {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                                spdlog::level::warn, spdlog::level::err};

// A campaign that is resumed often accumulates the files of all its processes.
constexpr std::size_t kKeptFiles = 200;
constexpr std::chrono::hours kKeptAge{24};

struct Log {
  std::mutex mutex;
  LogLevel level = wanted_level();
  std::shared_ptr<spdlog::logger> file;
  std::string shown;  // the last sentence on standard error
};

// Never destroyed: threads may still write while the process ends.
Log& the_log() {
  static Log* const log = new Log;
  return *log;
}

// Removes the oldest files if there are too many, except files that were written to recently.
void remove_old_files(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".log") files.emplace_back(entry.last_write_time(ignored), entry.path());
  if (files.size() <= kKeptFiles) return;
  std::sort(files.begin(), files.end());
  files.resize(files.size() - kKeptFiles);
  for (const auto& [time, path] : files)
    if (time < fs::file_time_type::clock::now() - kKeptAge) fs::remove(path, ignored);
}

std::shared_ptr<spdlog::logger> open_file(const fs::path& folder, const std::string& name) {
  fs::create_directories(folder);
  remove_old_files(folder);
  auto sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>((folder / (name + ".log")).string(),
                                                                     kFileBytes, kFiles - 1);
  auto logger = std::make_shared<spdlog::logger>(name, std::move(sink));
  // 2026-11-21T16:00:01.234+01:00 warning coordinator-12[12] text
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%e%z %l %n[%P] %v"));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  // Otherwise the library prints its own errors, such as a full disk.
  logger->set_error_handler([](const std::string&) {});
  return logger;
}

// Makes one line of any text that a peer has sent.
std::string line_of(std::string_view text) {
  std::string line = printable(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

void put(Log& log, LogLevel level, const std::string& line) {
  if (log.file && level >= log.level) log.file->log(kLevels[static_cast<std::size_t>(level)], line);
}

void show(Log& log, const std::string& line) {
  if (std::exchange(log.shown, line) == line) return;
  const std::string sentence = "wflow: " + line + "\n";
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, sentence.data(), sentence.size());
}

}  // namespace

std::string_view name_of(LogLevel level) {
  return kNames[static_cast<std::size_t>(level)];
}

std::optional<LogLevel> level_from_name(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) return std::nullopt;
  return static_cast<LogLevel>(at - kNames.begin());
}

LogLevel wanted_level() {
  const char* const name = std::getenv("WFLOW_LOG");
  return level_from_name(name ? name : "").value_or(LogLevel::info);
}

void open(const fs::path& campaign, const std::string& name, LogLevel level) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.level = level;
  const fs::path folder = campaign / ".wflow" / "logs";
  try {
    log.file = open_file(folder, name);
  } catch (const std::exception&) {  // thrown by the library or the file system
    log.file.reset();
    show(log, fmt::format("no log is kept: {} cannot be written", folder.string()));
  }
}

bool takes(LogLevel level) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return level >= LogLevel::warning || (log.file && level >= log.level);
}

void write(LogLevel level, std::string_view text) noexcept {
  try {
    Log& log = the_log();
    const std::lock_guard lock(log.mutex);
    const std::string line = line_of(text);
    put(log, level, line);
    if (level >= LogLevel::warning) show(log, line);
  } catch (...) {  // out of memory
  }
}

void record(LogLevel level, std::string_view text) noexcept {
  try {
    Log& log = the_log();
    const std::lock_guard lock(log.mutex);
    put(log, level, line_of(text));
  } catch (...) {  // out of memory
  }
}

}  // namespace wflow::log
