// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/adoption.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"
#include "specs/plan/plan.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

namespace fs = std::filesystem;
using engine::ElementState;

namespace {

constexpr const char* kInfo = "merlin_info";
constexpr const char* kMaestroStatus = "status.csv";
// Where .wflow is made before it is renamed: a kill leaves nothing that looks like a campaign.
constexpr const char* kStaging = ".wflow.adopting";
// Depth of the search for Merlin's files below a directory: step, labels, first level of samples.
constexpr int kDepth = 3;
// A task that ended with this code is done, although it has no marker.
constexpr const char* kStopWorkers = "MERLIN_STOP_WORKERS";
constexpr int kStopWorkersCode = 105;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ExitCode::usage, sentence);
}

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

std::vector<fs::path> files_that_end(const fs::path& directory, const std::vector<std::string>& ends) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file(none) &&
        std::any_of(ends.begin(), ends.end(), [&](const auto& end) { return name.ends_with(end); }))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

const fs::path& only(const std::vector<fs::path>& files, const fs::path& directory, const char* what) {
  if (files.size() == 1) return files.front();
  refuse(fmt::format("{} has {} {}, and one was expected; name the study with --study FILE",
                     directory.string(), files.empty() ? "no" : std::to_string(files.size()), what));
}

// The workspace's own copy of its study.
fs::path study_of(const fs::path& workspace, Maker maker) {
  if (maker == Maker::merlin) {
    const fs::path info = workspace / kInfo;
    return only(files_that_end(info, {".expanded.yaml"}), info, "*.expanded.yaml");
  }
  const fs::path file =
      only(files_that_end(workspace, {".yaml", ".yml"}), workspace, "copy of its study (*.yaml)");
  if (read_file(file).find("$(SPECROOT)") != std::string::npos)
    refuse(
        fmt::format("{} uses $(SPECROOT), which Maestro does not record; name the study where it was run "
                    "with --study FILE",
                    file.string()));
  return file;
}

// Merlin's copy contains the workspace's path: a workspace that was moved would run in the old place.
void require_place(const std::string& text, const fs::path& workspace, const fs::path& file) {
  const std::string name = workspace.filename().string();
  std::error_code none;
  for (std::size_t at = text.find("/" + name); at != std::string::npos; at = text.find("/" + name, at + 1)) {
    std::size_t begin = text.find_last_of(" \t\n\"'=:,;(){}[]<>|&", at);
    begin = begin == std::string::npos ? 0 : begin + 1;
    const fs::path path = text.substr(begin, at + 1 + name.size() - begin);
    if (!path.is_absolute() || path == workspace || fs::equivalent(path, workspace, none)) continue;
    refuse(fmt::format("{} was made as {}, which {} names; move it back there first", workspace.string(),
                       path.string(), file.string()));
  }
}

// The directory that Maestro was started in, if Maestro recorded it.
fs::path started_in(const fs::path& workspace) {
  const fs::path file = workspace / "meta" / "environment.yaml";
  if (is_there(file)) {
    for (const std::string& line : text::split(read_file(file), '\n')) {
      if (line.starts_with("PWD: /")) return std::string(text::trim(line.substr(5)));
    }
  }
  return workspace.parent_path();
}

specs::StudyAndWarnings read(const fs::path& workspace, Maker maker, const AdoptOptions& options) {
  specs::ReadOptions with = options.read;
  const std::string name = workspace.filename().string();
  with.campaign = workspace;
  with.timestamp = name.size() > 15 ? name.substr(name.size() - 15) : name;
  const specs::Dialect theirs = maker == Maker::merlin ? specs::Dialect::merlin : specs::Dialect::maestro;
  with.command = theirs;
  with.uses_by_prefix = true;
  if (!options.study.empty()) return specs::read_study(options.study, with);
  with.dialect = theirs;
  const fs::path file = study_of(workspace, maker);
  with.directory = maker == Maker::maestro ? started_in(workspace) : workspace.parent_path();
  specs::StudyAndWarnings result = specs::read_study(file, with);
  if (maker == Maker::merlin) require_place(result.study.text, workspace, file);
  return result;
}

bool holds_merlins_files(const fs::path& directory) {
  std::error_code none;
  fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, none);
  for (; at != fs::recursive_directory_iterator(); at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (name == "MERLIN_FINISHED" || name == "MERLIN_STATUS.json") return true;
    if (at.depth() >= kDepth) at.disable_recursion_pending();
  }
  return false;
}

// A step that the study does not have: it is not the one that the workspace was made of.
void require_steps(const specs::Plan& plan) {
  std::unordered_set<std::string> steps;
  for (engine::ArrayId array = 0; array < plan.array_count(); ++array)
    steps.insert(
        fs::path(plan.task_template(array).workspace).lexically_relative(plan.campaign()).begin()->string());
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(plan.campaign(), none)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory(none) || name == kInfo || name.starts_with('.') || steps.contains(name)) continue;
    if (holds_merlins_files(entry.path()))
      refuse(fmt::format("{} holds tasks of Merlin's, and the study {} has no step of that name",
                         entry.path().string(), plan.study().file.string()));
  }
}

void require_same_layout(const specs::Plan& plan) {
  for (const specs::PlannedStep& step : plan.steps()) {
    if (step.bundle > 0)
      refuse(
          fmt::format("step '{}' bundles samples, which changes the directories of its tasks; adopt the "
                      "workspace without bundle",
                      step.name));
  }
  const auto& samples = plan.study().samples;
  if (samples && samples->design.kind == specs::DesignKind::file && !is_there(samples->design.file))
    refuse(fmt::format("the samples {} are gone; put the file there or into {}",
                       samples->design.file.string(), (plan.campaign() / kInfo).string()));
}

// Collects the marks of all tasks in the workspace as one batch for the record.
class Gathering {
 public:
  Gathering(const specs::Plan& plan, Maker maker) : plan_(plan), maker_(maker), merlin_(plan.campaign()) {}

  engine::store::Batch gather(Adopted& counts) {
    maker_ == Maker::merlin ? gather_merlin() : gather_maestro();
    counts.unreadable = merlin_.unreadable();
    counts.running = running_;
    for (const engine::RecordEnd& end : batch_.ends) {
      std::uint64_t& count = end.state == ElementState::done      ? counts.done
                             : end.state == ElementState::skipped ? counts.skipped
                                                                  : counts.failed;
      count += end.range.size();
    }
    counts.left = plan_.element_count() - counts.done - counts.failed - counts.skipped;
    batch_.history.push_back(
        {unix_now_s(), "note",
         fmt::format("adopted from {}: {} done, {} failed, {} skipped, {} left", name_of(maker_), counts.done,
                     counts.failed, counts.skipped, counts.left)});
    return std::move(batch_);
  }

 private:
  void gather_merlin() {
    for (engine::ArrayId array = 0; array < plan_.array_count(); ++array) {
      const specs::PlannedStep& step = plan_.steps()[plan_.step_of(array)];
      if (step.kind != specs::StepKind::shell) continue;  // Merlin ran only the shell steps
      const specs::TaskTemplate task = plan_.task_template(array);
      for (engine::Element element = 0; element < step.elements; ++element)
        record(array, element, merlin_.mark(task, element), "MERLIN_STATUS.json");
    }
  }

  void gather_maestro() {
    const fs::path file = plan_.campaign() / kMaestroStatus;
    if (!is_there(file)) return;
    std::vector<std::string> names(plan_.array_count());
    for (engine::ArrayId array = 0; array < plan_.array_count(); ++array) {
      const specs::TaskTemplate task = plan_.task_template(array);
      names[array] = task.label.empty() ? task.step : task.step + "_" + task.label;
    }
    const MaestroMarkers rows(file, {names.begin(), names.end()});
    if (rows.unknown_task())
      refuse(fmt::format(
          "{} has the step '{}', which the study {} does not make; if it was run with --pgen, give the "
          "same --pgen and --pargs",
          file.string(), *rows.unknown_task(), plan_.study().file.string()));
    std::vector<std::optional<TaskMark>> never_ran(names.size());
    for (engine::ArrayId array = 0; array < names.size(); ++array) {
      const auto* row = rows.find(names[array]);
      if (row == nullptr) continue;
      require_directory(array, *row, file);
      if (row->mark.state == TaskMark::State::failed && !row->mark.started) {
        never_ran[array] = row->mark;
      } else {
        record(array, 0, row->mark, kMaestroStatus);
      }
    }
    skip_below_failures(never_ran);
  }

  void require_directory(engine::ArrayId array, const MaestroMarkers::Row& row, const fs::path& file) const {
    const std::string directory = fs::path(plan_.task_template(array).workspace).filename().string();
    if (row.workspace == directory) return;
    refuse(fmt::format(
        "{} says that {} ran in {}, where the study makes {}; a workspace of maestro run --hashws can't "
        "be adopted",
        file.string(), row.name, row.workspace, directory));
  }

  // Maestro also calls tasks failed that wait for a failed one; wflow calls these skipped. A task whose
  // submission failed counts as failed.
  void skip_below_failures(std::vector<std::optional<TaskMark>>& never_ran) {
    std::vector<bool> bad(plan_.array_count(), false);
    for (const engine::RecordEnd& end : batch_.ends) bad[end.array] = end.state != ElementState::done;
    for (bool again = true; again;) {
      again = false;
      for (engine::ArrayId array = 0; array < never_ran.size(); ++array) {
        const auto edges = never_ran[array] ? plan_.edges(array) : std::vector<specs::Edge>();
        if (std::none_of(edges.begin(), edges.end(), [&](const auto& edge) { return bad[edge.parent]; }))
          continue;
        end(array, 0, ElementState::skipped);
        bad[array] = again = true;
        never_ran[array].reset();
      }
    }
    for (engine::ArrayId array = 0; array < never_ran.size(); ++array) {
      if (never_ran[array]) record(array, 0, *never_ran[array], kMaestroStatus);
    }
  }

  void record(engine::ArrayId array, engine::Element element, const TaskMark& mark, const char* file) {
    switch (mark.state) {
      case TaskMark::State::open:
        return;
      case TaskMark::State::running:
        ++running_;
        return;
      case TaskMark::State::done:
        if (mark.code == kStopWorkers) add_execution(array, element, kStopWorkersCode, mark, file);
        return end(array, element, ElementState::done);
      case TaskMark::State::failed:
      case TaskMark::State::hard_failed:
        return fail(array, element, mark, file);
    }
  }

  void end(engine::ArrayId array, engine::Element element, ElementState state) {
    auto& ends = batch_.ends;
    const bool joins = !ends.empty() && ends.back().array == array && ends.back().state == state &&
                       ends.back().range.last + 1 == element;
    joins ? void(ends.back().range.last = element) : ends.push_back({array, {element, element}, state});
  }

  // Neither Merlin nor Maestro records exit codes: 1 stands for every code that is not Merlin's own.
  void fail(engine::ArrayId array, engine::Element element, const TaskMark& mark, const char* file) {
    constexpr int kHardFailCode = 102, kAnyCode = 1;
    const bool hard = mark.state == TaskMark::State::hard_failed;
    end(array, element, hard ? ElementState::hard_failed : ElementState::failed);
    add_execution(array, element, hard ? kHardFailCode : kAnyCode, mark, file);
  }

  void add_execution(engine::ArrayId array, engine::Element element, int code, const TaskMark& mark,
                     const char* file) {
    engine::RecordFailure execution;
    execution.outcome.array = array;
    execution.outcome.element = element;
    execution.outcome.exit_code = code;
    execution.outcome.detail =
        fmt::format("{} in {}'s {}; the exit code was not recorded", mark.code, name_of(maker_), file);
    execution.worker = text::lower(name_of(maker_));
    execution.final = true;
    batch_.failures.push_back(std::move(execution));
  }

  const specs::Plan& plan_;
  Maker maker_;
  MerlinMarkers merlin_;
  engine::store::Batch batch_;
  std::uint64_t running_ = 0;
};

// The process whose rename comes first adopts the workspace; a later one gets an error.
void publish(const fs::path& staging, const fs::path& workspace) {
  sync_directory(staging / ".wflow");
  std::error_code error;
  fs::rename(staging / ".wflow", workspace / ".wflow", error);
  if (error == std::errc::directory_not_empty || error == std::errc::file_exists)
    refuse(
        fmt::format("{} is a campaign already: another wflow adopt has just made it; continue it with "
                    "wflow resume",
                    workspace.string()));
  if (error)
    throw system_error(error.value(), fmt::format("cannot make {}", (workspace / ".wflow").string()));
  sync_directory(workspace);
}

}  // namespace

std::string name_of(Maker maker) {
  return maker == Maker::merlin ? "Merlin" : "Maestro";
}

std::optional<Maker> maker_of(const fs::path& directory) {
  std::error_code none;
  if (!fs::is_directory(directory, none) || is_there(directory / ".wflow")) return std::nullopt;
  if (fs::is_directory(directory / kInfo, none)) return Maker::merlin;
  if (is_there(directory / kMaestroStatus) || is_there(directory / "meta" / "metadata.yaml"))
    return Maker::maestro;
  return std::nullopt;
}

Adopted adopt(const fs::path& directory, const AdoptOptions& options) {
  std::error_code error;
  const fs::path workspace = fs::canonical(directory, error);
  if (error || !fs::is_directory(workspace, error))
    refuse(fmt::format("there is no directory {}", directory.string()));
  specs::require_trusted(workspace);
  if (is_campaign(workspace))
    refuse(fmt::format("{} is a campaign already; continue it with wflow resume", workspace.string()));
  const auto maker = maker_of(workspace);
  if (!maker)
    refuse(fmt::format("{} is no workspace of Merlin (it has no {}/) or Maestro (it has no {})",
                       workspace.string(), kInfo, kMaestroStatus));
  specs::StudyAndWarnings read_one = read(workspace, *maker, options);
  const specs::Plan plan(std::move(read_one.study), workspace);
  require_same_layout(plan);
  if (*maker == Maker::merlin) require_steps(plan);
  Adopted result{workspace, plan.study().name, *maker, 0, 0, 0, 0, 0, 0, std::move(read_one.warnings)};
  const engine::store::Batch batch = Gathering(plan, *maker).gather(result);
  const StagingFolder staging(workspace, kStaging);
  specs::record_study(plan.study(), staging.path());
  engine::wire::create_keys(staging.path());
  engine::store::Store::create(staging.path(), plan);
  engine::store::Store(staging.path()).commit(batch);
  publish(staging.path(), workspace);
  return result;
}

}  // namespace wflow::cli
