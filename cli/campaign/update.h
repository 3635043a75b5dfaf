// SPDX-License-Identifier: Apache-2.0
// A campaign takes in a changed study, or runs parts of its own again. All or nothing: after a kill in
// between, the next command that reads the campaign completes the update or undoes it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/update/changes.h"
#include "specs/plan/plan.h"
#include "specs/study/changes.h"
#include "specs/study/study.h"

namespace wflow::cli {

struct Update {
  specs::Plan from, to;
  engine::Changes changes;
  std::vector<specs::KeyChange> keys;  // changes in the file
  // The changed command has not generated the samples yet; `changes` refer to the old table.
  bool generates = false;
  // The done arrays of data sets, trainings and single tasks in the old plan: good versions.
  std::set<specs::ArrayId> done;
};

// Reads the study's current file with the options of the campaign's own. `file` empty: the file from which
// the campaign was made. Error{usage} if that is gone.
specs::StudyAndWarnings read_changed_study(const std::filesystem::path& campaign, const std::string& file);

// Only reads, also while a coordinator lives. `study`: read with update_options() (specs/plan/workspace.h),
// then changed in any way.
Update propose(const std::filesystem::path& campaign, specs::Study study);

// The campaign's study with more samples.
Update propose_growth(const specs::Plan& plan, const specs::Growth& growth);

struct UpdateOptions {
  bool keep_old = false;  // outputs that are replaced stay in .wflow/old
  std::string why;
  std::string command;  // "resume --update"
};

// Durable. Error{busy} while a coordinator lives. Returns the folder in .wflow/old that received the replaced
// outputs.
std::filesystem::path take(const Update& update, const UpdateOptions& options);

// The done tasks of these parts, and everything that depends on them, run again. Like take(), starts no task.
struct Redo {
  engine::Changes changes;
  std::uint64_t count = 0;        // number of ended elements in the parts
  std::set<specs::ArrayId> done;  // as in Update
};
Redo propose_redo(const specs::Plan& plan, const engine::ArrayParts& parts);
std::filesystem::path take(const specs::Plan& plan, const Redo& redo, const UpdateOptions& options);

// The outputs that a take() would replace and their fate, with sizes: as lines, and as JSON.
std::vector<std::string> lines_of_replaced(const Update& update, bool keep_old);
std::vector<std::string> lines_of_replaced(const specs::Plan& plan, const Redo& redo, bool keep_old);
nlohmann::ordered_json json_of_replaced(const Update& update);

// Removes the good versions of outputs (.wflow/old) whose successors are done. Returns a line for each that
// waits for a successor. Does nothing while another process locks the record.
std::vector<std::string> drop_replaced(const specs::Plan& plan);

// Returns the version of the study that the record has: the current one, or the next if a take() was killed
// before it made that current. Reads only; two looks at the file system unless a take() was killed.
std::uint64_t recorded_version(const std::filesystem::path& campaign);

// Completes or undoes a take() that was killed: makes the recorded version current and moves the replaced
// outputs. The one step that repairs; commands that run or change the campaign call it (read_plan_to_run). No
// other reader moves anything.
void finish_update(const std::filesystem::path& campaign);

// One line if the study's file, or a file that a step declares as its source, differs from the one that the
// campaign runs with; else empty.
std::string notice_of_changes(const specs::Plan& plan);

}  // namespace wflow::cli
