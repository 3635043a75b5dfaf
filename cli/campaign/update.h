// SPDX-License-Identifier: Apache-2.0
// A campaign takes in a changed study, or runs parts of its own again. All or nothing: what is killed in
// between goes forward or back with the next command that reads the campaign.
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
  std::vector<specs::KeyChange> keys;  // of the file
  // The samples are still to be generated with the command that it has now; `changes` go by the old table.
  bool generates = false;
  // Of the old plan, the arrays of data sets, trainings and single tasks that are done: good versions.
  std::set<specs::ArrayId> done;
};

// The study's file as it is now, read as the campaign's own was. `file` empty: the one that it was made of.
// Error{usage} where that is gone.
specs::StudyAndWarnings read_changed_study(const std::filesystem::path& campaign, const std::string& file);

// Reads only, also while a coordinator lives. `study`: read with update_options() (specs/plan/workspace.h),
// changed as you like.
Update propose(const std::filesystem::path& campaign, specs::Study study);

struct UpdateOptions {
  bool keep_old = false;  // outputs that are replaced stay in .wflow/old
  std::string why;
  std::string command;  // "resume --update"
};

// Durable. Error{busy} while a coordinator lives. Gives the folder in .wflow/old that what was in the way
// went to.
std::filesystem::path take(const Update& update, const UpdateOptions& options);

// What is done of these parts, and everything below it, runs again. As take(); nothing runs yet.
struct Redo {
  engine::Changes changes;
  std::uint64_t count = 0;  // elements of the parts that had ended
  std::set<specs::ArrayId> done;  // as of an Update
};
Redo propose_redo(const specs::Plan& plan, const engine::ArrayParts& parts);
std::filesystem::path take(const specs::Plan& plan, const Redo& redo, const UpdateOptions& options);

// What a take() would replace, and what becomes of it, with sizes: lines for people, and as JSON.
std::vector<std::string> lines_of_replaced(const Update& update, bool keep_old);
std::vector<std::string> lines_of_replaced(const specs::Plan& plan, const Redo& redo, bool keep_old);
nlohmann::ordered_json json_of_replaced(const Update& update);

// Removes the good versions of outputs (.wflow/old) whose successors are done; gives a line for each that waits for a
// successor. Nothing where another process holds the record.
std::vector<std::string> drop_replaced(const specs::Plan& plan);

// Goes forward or back where a take() was killed. For whoever reads the campaign; costs two looks at the file
// system.
void finish_update(const std::filesystem::path& campaign);

// One line for people, or nothing: the study's file, or a file that a step declares as its source, is not
// what the campaign runs with.
std::string notice_of_changes(const specs::Plan& plan);

}  // namespace wflow::cli
