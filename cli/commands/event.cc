// SPDX-License-Identifier: Apache-2.0
// wflow event: writes a line of $WFLOW_EVENTS, for tasks that are shell scripts.
#include <fcntl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/commands.h"

namespace wflow::cli {

namespace {

struct EventOptions {
  std::string type;
  std::vector<std::string> values;
};

int event(const EventOptions& options) {
  nlohmann::json line = {{"type", options.type}};
  for (const std::string& value : options.values) {
    const std::size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ExitCode::usage, fmt::format("an event's values are KEY=value, found '{}'", value));
    const std::string text = value.substr(equals + 1);
    const nlohmann::json number = nlohmann::json::parse(text, nullptr, false);
    line[value.substr(0, equals)] = number.is_number() ? number : nlohmann::json(text);
  }
  // The reader has another working directory than the task.
  const auto path = line.find("path");
  const bool names_file = options.type == "artifact" || options.type == "checkpoint";
  if (names_file && path != line.end() && path->is_string())
    *path = std::filesystem::absolute(path->get<std::string>()).lexically_normal().string();
  append_event(line);
  return 0;
}

}  // namespace

void append_event(const nlohmann::json& event) {
  const char* path = std::getenv("WFLOW_EVENTS");
  if (path == nullptr || *path == '\0')
    throw Error(ExitCode::usage, "this is for tasks of a campaign: WFLOW_EVENTS is not set");
  const FileDescriptor file = open_file(path, O_WRONLY | O_CREAT | O_APPEND);
  write_all(file.get(), event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", path);
}

void add_event(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<EventOptions>();
  CLI::App* command = app.add_subcommand("event", "in a task: tell the campaign something");
  command->footer(
      "Writes a line to $WFLOW_EVENTS. A study with iterate: ends with the event converged.\n"
      "Examples:\n  wflow event converged\n  wflow event metric name=error value=0.12 epoch=0 step=3\n"
      "  wflow event note text='the mesh was refined'");
  command->add_option("type", options->type, "converged, note, progress, metric, artifact or another")
      ->required();
  command->add_option("values", options->values, "KEY=value: what it holds");
  command->callback([options, &chosen] { chosen = [options] { return event(*options); }; });
}

}  // namespace wflow::cli
