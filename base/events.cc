// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace wflow {

namespace {

// The reader has another working directory than the task.
std::string absolute(std::string_view path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? std::string(path) : whole.lexically_normal().string();
}

}  // namespace

EventWriter EventWriter::from_environment() {
  const char* path = std::getenv("WFLOW_EVENTS");
  return EventWriter(path ? path : "");
}

EventWriter::EventWriter(const std::string& path) {
  if (!path.empty())
    fd_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

void EventWriter::emit(const nlohmann::json& event) {
  if (!fd_) return;
  const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  [[maybe_unused]] const ssize_t ignored = ::write(fd_.get(), line.data(), line.size());
}

void EventWriter::progress(std::uint64_t done, std::uint64_t total, std::string_view unit) {
  emit({{"type", "progress"}, {"done", done}, {"total", total}, {"unit", unit}});
}

void EventWriter::metric(std::string_view name, double value, std::uint64_t epoch, std::uint64_t step) {
  emit({{"type", "metric"}, {"name", name}, {"value", value}, {"epoch", epoch}, {"step", step}});
}

void EventWriter::checkpoint(std::string_view path, std::string_view hash, std::uint64_t epoch,
                             std::uint64_t step) {
  emit({{"type", "checkpoint"}, {"path", absolute(path)}, {"hash", hash}, {"epoch", epoch}, {"step", step}});
}

void EventWriter::artifact(std::string_view kind, std::string_view path) {
  emit({{"type", "artifact"}, {"kind", kind}, {"path", absolute(path)}});
}

void EventWriter::note(std::string_view text) {
  emit({{"type", "note"}, {"text", text}});
}

}  // namespace wflow
