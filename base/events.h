// SPDX-License-Identifier: Apache-2.0
// The side channel of a task: JSON lines appended to the file named by $WFLOW_EVENTS. The worker forwards
// them, the campaign's database keeps them, the dashboard shows them. docs/formats/events.md has the lines.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/file.h"

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
