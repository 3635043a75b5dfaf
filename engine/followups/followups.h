// SPDX-License-Identifier: Apache-2.0
// Campaigns that follow a campaign: the studies that its tasks submitted (`merlin run` in a step, see
// cli/commands/merlin_front.cc) and the iterations of its study. They are recorded in the database of the
// campaign that a run began with, its top, and run one after the other.
//
// A submitted study may also begin before its campaign has ended, if the campaign waits for it
// (cli/commands/early_followup.h). Only the coordinator uses the database then, so a submission is a file
// too:
//   <campaign>/.wflow/submitted/<id>.json        the request
//   <campaign>/.wflow/submitted/<id>.directory   its campaign's path; written before the campaign is made
// A process that begins it, before or after a kill, uses the directory in that file.
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

// The event with which a task of `campaign` requests a study to run after it. Copies the file, which may
// change or be removed. The study must be readable with the options.
nlohmann::json submit_study(const std::filesystem::path& campaign, const specs::Study& study);
// The same for a campaign to resume; its failed tasks run again.
nlohmann::json submit_restart(const std::filesystem::path& campaign);
// Writes <campaign>/.wflow/bin, which has the program `merlin` for its tasks.
void write_merlin_shim(const std::filesystem::path& campaign);

struct Submitted {
  std::string id;
  std::string task;            // that requested it: its WFLOW_TASK
  std::filesystem::path spec;  // the study's file
};
// The studies that tasks of the campaign submitted, the oldest first.
std::vector<Submitted> submitted_studies(const std::filesystem::path& campaign);
// The directory of its campaign; empty before it is chosen.
std::optional<std::filesystem::path> submitted_directory(const std::filesystem::path& campaign,
                                                         const std::string& id);
// The plan of one; makes its campaign if it does not exist. Not for two processes at a time. Errors: as
// FollowupQueue::begin().
specs::Plan begin_submitted(const std::filesystem::path& campaign, const std::string& id);

class FollowupQueue {
 public:
  // While this object lives, no other process can run `top` or a campaign that follows it. Error{busy} if one
  // does.
  explicit FollowupQueue(std::filesystem::path top);

  // Makes running_campaign() return this one.
  void announce(const std::filesystem::path& campaign);
  std::vector<store::Followup> all();
  // The first that has not ended.
  std::optional<store::Followup> next();
  // The plan of one; makes its campaign if it does not exist, in a directory that is recorded first.
  // Error{spec}, Error{data} if the study cannot be read (any more) or has no samples.
  specs::Plan begin(store::Followup& followup);
  void end(store::Followup& followup, FollowupState state, ExitCode code);
  // Makes one that has ended continue.
  void reopen(store::Followup& followup);
  // Adds the follow-ups of an ended campaign: the studies that its tasks submitted, and its study's next
  // iteration, after failures only with `keep_going`. A second call changes nothing.
  void take_from(const specs::Plan& campaign, const CampaignStatus& status, bool keep_going);

 private:
  void take_submitted(const std::filesystem::path& campaign);
  void take_iteration(const specs::Plan& campaign, const CampaignStatus& status, bool keep_going);
  std::filesystem::path top_;
  FileDescriptor lock_;
};

// The campaign that a process started with `top` is running: `top` or one that follows it. Empty without such
// a process.
std::optional<std::filesystem::path> running_campaign(const std::filesystem::path& top);

}  // namespace wflow::engine
