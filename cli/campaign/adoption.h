// SPDX-License-Identifier: Apache-2.0
// Turns a workspace that Merlin or Maestro made into a campaign, in place. Only .wflow is added to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/yaml.h"
#include "specs/plan/template.h"
#include "specs/study/study.h"

namespace wflow::cli {

// The program that made a workspace.
enum class Maker { merlin, maestro };
std::string name_of(Maker maker);

// Empty if neither made it, or if wflow did.
std::optional<Maker> maker_of(const std::filesystem::path& directory);

struct AdoptOptions {
  std::string study;  // a file to use in place of the workspace's own copy; empty: that copy
  specs::ReadOptions read;
};

struct Adopted {
  std::filesystem::path campaign;
  std::string name;
  Maker maker = Maker::merlin;
  std::uint64_t done = 0, failed = 0, skipped = 0, left = 0;
  std::uint64_t running = 0;     // the part of `left` that is recorded as running
  std::uint64_t unreadable = 0;  // number of status files that do not read
  std::vector<yaml::Diagnostic> warnings;
};

// Whole or not at all: .wflow appears by a rename. Error{usage} if the directory can't be adopted,
// Error{spec} if its study does not read, Error{data} if the records of Merlin or Maestro do not.
Adopted adopt(const std::filesystem::path& directory, const AdoptOptions& options);

// ---- workspace_marks.cc: the records that Merlin and Maestro keep of their tasks in a workspace. wflow
// reads them and never writes them. The layouts are those of Merlin 1.13 (MERLIN_FINISHED,
// MERLIN_STATUS.json) and Maestro 1.1 (status.csv).

struct TaskMark {
  enum class State {
    open,     // never ran, or did not end
    running,  // recorded as running, by a worker that still runs it or was killed
    done,
    failed,
    hard_failed,  // Merlin's exit code 102
  };
  State state = State::open;
  std::string code;     // as written in the workspace: "MERLIN_SOFT_FAIL", "TIMEDOUT"
  bool started = true;  // Maestro also calls tasks failed that waited for a failed one and never ran
};

// The marks of Merlin's tasks. The marker decides which tasks are done, as for `merlin restart`; the status
// files decide the rest.
class MerlinMarkers {
 public:
  // `workspace`: absolute. Reads nothing yet.
  explicit MerlinMarkers(std::filesystem::path workspace);

  // The mark of one element of a shell step. Ask array by array: the status files of one array are cached.
  TaskMark mark(const specs::TaskTemplate& task, specs::Element element);
  // The number of status files without valid JSON.
  std::uint64_t unreadable() const { return unreadable_; }

 private:
  using Entries = std::unordered_map<std::string, TaskMark>;  // by the task's path below the workspace
  Entries read(const std::filesystem::path& directory);
  const Entries& entries_of(const std::filesystem::path& directory);

  std::filesystem::path workspace_;
  std::map<std::filesystem::path, Entries> condensed_;  // entries of directories above tasks
  std::uint64_t unreadable_ = 0;
};

// The marks of Maestro's tasks, a row each in status.csv.
class MaestroMarkers {
 public:
  struct Row {
    std::string name;       // "<step>" or "<step>_<labels>"
    std::string workspace;  // last directory of the task's workspace
    TaskMark mark;
  };
  // Error{data} if the file does not have Maestro's header. `names`: the names of the study's tasks; a
  // label may contain a comma, which Maestro does not quote.
  MaestroMarkers(const std::filesystem::path& file, const std::unordered_set<std::string>& names);

  const Row* find(const std::string& name) const;
  // The first row of a task that the study does not have.
  const std::optional<std::string>& unknown_task() const { return unknown_task_; }

 private:
  std::map<std::string, Row> rows_;
  std::optional<std::string> unknown_task_;
};

}  // namespace wflow::cli
