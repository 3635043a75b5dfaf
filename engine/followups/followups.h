// SPDX-License-Identifier: Apache-2.0
// Campaigns that follow on a campaign: what its tasks submitted (`merlin run` in a step, see
// cli/commands/merlin_shim.cc) and the iterations of its study. They are recorded in the database of the
// campaign that a run began with, its top, and run one after the other.
//
// What was submitted may also begin before its campaign has ended, where that waits for it
// (cli/commands/early_followup.h). The database is the coordinator's alone then, so a submission is a file
// too:
//   <campaign>/.wflow/submitted/<id>.json        what was asked for
//   <campaign>/.wflow/submitted/<id>.directory   where its campaign is; written before that is made
// Whoever begins it, before or after a kill, takes the directory that is written there.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "engine/followups/submission.h"
#include "engine/monitor/status.h"
#include "engine/store/store.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::engine {

// The event by which a task of `campaign` asks for a study to be run after it. The file is copied: it may
// change or go. The study must read with the options.
nlohmann::json submit_study(const std::filesystem::path& campaign, const specs::Study& study);
// The same for a campaign that is to go on; what failed in it runs again.
nlohmann::json submit_restart(const std::filesystem::path& campaign);
// <campaign>/.wflow/bin, which holds the program `merlin` of its tasks.
void write_merlin_shim(const std::filesystem::path& campaign);

struct Submitted {
  std::string id;
  std::string task;            // that asked for it: its WFLOW_TASK
  std::filesystem::path spec;  // the study's file
};
// What tasks of the campaign submitted, the oldest first.
std::vector<Submitted> submitted_studies(const std::filesystem::path& campaign);
// Where its campaign is; nothing before that was chosen.
std::optional<std::filesystem::path> submitted_directory(const std::filesystem::path& campaign,
                                                         const std::string& id);
// The plan of one; its campaign is made if it is not there yet. Not for two processes at a time. Errors: as
// FollowupQueue::begin().
specs::Plan begin_submitted(const std::filesystem::path& campaign, const std::string& id);

class FollowupQueue {
 public:
  // For as long as this lives no other process can run `top` or what follows on it. Error{busy} where one
  // does.
  explicit FollowupQueue(std::filesystem::path top);

  // Tells those who ask for running_campaign().
  void announce(const std::filesystem::path& campaign);
  std::vector<store::Followup> all();
  // The first that has not ended.
  std::optional<store::Followup> next();
  // The plan of one; its campaign is made if it is not there yet, in a directory that is recorded first.
  // Error{spec}, Error{data} when the study does not read (any more) or has no samples.
  specs::Plan begin(store::Followup& followup);
  void end(store::Followup& followup, FollowupState state, ExitCode code);
  // One that has ended is to go on.
  void reopen(store::Followup& followup);
  // What a campaign that has ended leaves to do: what its tasks submitted, and its study's next iteration,
  // which there is after failures only with `keep_going`. Taking twice changes nothing.
  void take_from(const specs::Plan& campaign, const CampaignStatus& status, bool keep_going);

 private:
  void take_submitted(const std::filesystem::path& campaign);
  void take_iteration(const specs::Plan& campaign, const CampaignStatus& status, bool keep_going);
  std::filesystem::path top_;
  FileDescriptor lock_;
};

// The campaign that is being run by a process that was begun with `top`: that or one that follows on it.
// Nothing when there is no such process.
std::optional<std::filesystem::path> running_campaign(const std::filesystem::path& top);

}  // namespace wflow::engine
