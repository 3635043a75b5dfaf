// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/adoption.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "steps/step.h"

namespace wflow::cli {

namespace fs = std::filesystem;

namespace {

using State = TaskMark::State;

constexpr const char* kFinished = "MERLIN_FINISHED";
constexpr const char* kStatus = "MERLIN_STATUS.json";

std::string text_of(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A task without its marker is not done, except one that asked to stop the workers: it never has one.
TaskMark merlin_mark(const nlohmann::json& entry) {
  const std::string status = text_of(entry, "status");
  TaskMark mark;
  mark.code = text_of(entry, "return_code");
  if (status == "RUNNING") mark.state = State::running;
  if (status == "FAILED") mark.state = mark.code == "MERLIN_HARD_FAIL" ? State::hard_failed : State::failed;
  if (status == "UNKNOWN") mark.state = State::failed;
  if (status == "CANCELLED" && mark.code == "MERLIN_STOP_WORKERS") mark.state = State::done;
  return mark;
}

}  // namespace

MerlinMarkers::MerlinMarkers(fs::path workspace) : workspace_(std::move(workspace)) {}

MerlinMarkers::Entries MerlinMarkers::read(const fs::path& directory) {
  const fs::path file = directory / kStatus;
  std::error_code none;
  Entries entries;
  if (!fs::is_regular_file(file, none)) return entries;
  const auto json = nlohmann::json::parse(read_file(file), nullptr, false);
  if (!json.is_object()) {  // cut short by a kill
    ++unreadable_;
    return entries;
  }
  for (const auto& [step, tasks] : json.items()) {
    if (!tasks.is_object()) continue;
    for (const auto& [path, entry] : tasks.items()) {
      if (entry.is_object() && entry.contains("status")) entries.emplace(path, merlin_mark(entry));
    }
  }
  return entries;
}

const MerlinMarkers::Entries& MerlinMarkers::entries_of(const fs::path& directory) {
  const auto found = condensed_.find(directory);
  return found != condensed_.end() ? found->second
                                   : condensed_.emplace(directory, read(directory)).first->second;
}

TaskMark MerlinMarkers::mark(const specs::TaskTemplate& task, specs::Element element) {
  const fs::path directory = steps::working_directory(task, element);
  const fs::path top = task.workspace;
  std::error_code none;
  if (fs::exists(directory / kFinished, none)) return {State::done, {}, true};
  if (!condensed_.contains(top)) condensed_.clear();  // they belong to another array
  const std::string path = directory.lexically_relative(workspace_).string();
  const auto in = [&](const Entries& entries) -> std::optional<TaskMark> {
    const auto found = entries.find(path);
    return found == entries.end() ? std::nullopt : std::optional(found->second);
  };
  // The task's own file, or a file above it if Merlin has condensed the files of the subtree.
  if (directory != top) {
    if (const auto mark = in(read(directory))) return *mark;
    for (fs::path above = directory.parent_path(); above != top; above = above.parent_path()) {
      if (const auto mark = in(entries_of(above))) return *mark;
    }
  }
  return in(entries_of(top)).value_or(TaskMark{});
}

namespace {

// Maestro's names of the states of a step, and the states of wflow.
constexpr std::array<std::pair<std::string_view, State>, 15> kMaestroStates = {{
    {"INITIALIZED", State::open},
    {"PENDING", State::open},
    {"WAITING", State::open},
    {"QUEUED", State::open},
    {"RUNNING", State::running},
    {"FINISHING", State::running},
    {"FINISHED", State::done},
    {"FAILED", State::failed},
    {"TIMEDOUT", State::failed},
    {"HWFAILURE", State::open},
    {"UNKNOWN", State::failed},
    {"INCOMPLETE", State::open},
    {"CANCELLED", State::open},
    {"NOTFOUND", State::open},
    {"DRYRUN", State::open},
}};

const std::pair<std::string_view, State>* state_named(std::string_view name) {
  const auto* const found = std::find_if(kMaestroStates.begin(), kMaestroStates.end(),
                                         [&](const auto& known) { return known.first == name; });
  return found == kMaestroStates.end() ? nullptr : found;
}

// The longest name that the line begins with: names may begin with other names, and may contain commas.
std::string name_in(const std::string& line, const std::unordered_set<std::string>& names) {
  for (std::size_t at = line.rfind(','); at != std::string::npos && at > 0; at = line.rfind(',', at - 1)) {
    std::string name = line.substr(0, at);
    if (names.contains(name)) return name;
  }
  return {};
}

// Step Name, [Job ID,] Workspace, State, Run Time, Elapsed Time, Start Time, ... by version.
std::optional<MaestroMarkers::Row> row_in(const std::string& line, const std::string& name) {
  const std::vector<std::string> cells = text::split(line.substr(name.size() + 1), ',');
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const auto* const state = state_named(cells[i]);
    if (state == nullptr) continue;
    MaestroMarkers::Row row{
        name, fs::path(cells[i - 1]).filename().string(), {state->second, cells[i], true}};
    row.mark.started = i + 3 < cells.size() && !cells[i + 3].starts_with("--");
    return row;
  }
  return std::nullopt;
}

}  // namespace

MaestroMarkers::MaestroMarkers(const fs::path& file, const std::unordered_set<std::string>& names) {
  const std::vector<std::string> lines = text::split(read_file(file), '\n');
  if (!lines.front().starts_with("Step Name,"))
    throw Error(
        ExitCode::data,
        fmt::format("{} is no status file of Maestro's: its first line does not begin with 'Step Name'",
                    file.string()));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string line(text::trim(lines[i]));
    if (line.empty()) continue;
    const std::string name = name_in(line, names);
    if (name.empty()) {
      if (!unknown_task_) unknown_task_ = text::split(line, ',').front();
      continue;
    }
    const auto row = row_in(line, name);
    if (!row)
      throw Error(ExitCode::data,
                  fmt::format("line {} of {} has no state that Maestro knows", i + 1, file.string()));
    rows_.insert_or_assign(name, *row);
  }
}

const MaestroMarkers::Row* MaestroMarkers::find(const std::string& name) const {
  const auto found = rows_.find(name);
  return found == rows_.end() ? nullptr : &found->second;
}

}  // namespace wflow::cli
