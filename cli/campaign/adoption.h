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

// Whose workspace a directory is.
enum class Maker { merlin, maestro };
std::string name_of(Maker maker);

// Nothing where neither made it, or where wflow did.
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
  std::uint64_t running = 0;     // of those left: recorded as running
  std::uint64_t unreadable = 0;  // status files
  std::vector<yaml::Diagnostic> warnings;
};

// Whole or not at all: .wflow appears by a rename. Error{usage} where the directory can't be adopted,
// Error{spec} where its study does not read, Error{data} where what Merlin or Maestro recorded does not.
Adopted adopt(const std::filesystem::path& directory, const AdoptOptions& options);

// ---- workspace_marks.cc: the records that Merlin and Maestro keep of their tasks in a workspace. wflow reads them and
// never writes them. The layouts are those of Merlin 1.13 (MERLIN_FINISHED, MERLIN_STATUS.json) and Maestro 1.1
// (status.csv).

struct TaskMark {
  enum class State {
    open,     // never ran, or did not come to an end
    running,  // recorded as running: by a worker that still works on it, or was killed
    done,
    failed,
    hard_failed,  // Merlin's exit code 102
  };
  State state = State::open;
  std::string code;     // as written there: "MERLIN_SOFT_FAIL", "TIMEDOUT"
  bool started = true;  // Maestro also calls failed what waited for a failure and never ran
};

// Of Merlin's tasks. The marker decides what is done, as for `merlin restart`; the status files tell the
// rest.
class MerlinMarkers {
 public:
  // `workspace`: absolute. Nothing is read yet.
  explicit MerlinMarkers(std::filesystem::path workspace);

  // Of one element of a shell step. Ask array by array: the status files of one array are kept in between.
  TaskMark mark(const specs::TaskTemplate& task, specs::Element element);
  // Status files that held no JSON, so that nothing was learnt from them.
  std::uint64_t unreadable() const { return unreadable_; }

 private:
  using Entries = std::unordered_map<std::string, TaskMark>;  // by the task's path below the workspace
  Entries read(const std::filesystem::path& directory);
  const Entries& entries_of(const std::filesystem::path& directory);

  std::filesystem::path workspace_;
  std::map<std::filesystem::path, Entries> condensed_;  // of directories above tasks
  std::uint64_t unreadable_ = 0;
};

// Of Maestro's tasks, a row each in status.csv.
class MaestroMarkers {
 public:
  struct Row {
    std::string name;       // "<step>" or "<step>_<labels>"
    std::string workspace;  // last directory of the task's workspace
    TaskMark mark;
  };
  // Error{data} where the file has no header of Maestro's. `names`: those that the study's tasks have; a
  // label may hold a comma, which Maestro does not quote.
  MaestroMarkers(const std::filesystem::path& file, const std::unordered_set<std::string>& names);

  const Row* find(const std::string& name) const;
  // The first row of a task that the study does not have.
  const std::optional<std::string>& stranger() const { return stranger_; }

 private:
  std::map<std::string, Row> rows_;
  std::optional<std::string> stranger_;
};

}  // namespace wflow::cli
