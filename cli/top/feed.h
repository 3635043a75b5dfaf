// SPDX-License-Identifier: Apache-2.0
// The sources of the dashboard's data. One interface for a campaign that runs or rests, a replay, and the
// list of several campaigns. No call waits for longer than its time-out.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/top/data.h"
#include "cli/top/state.h"
#include "cli/top/step_tasks.h"
#include "engine/query/client.h"
#include "specs/plan/plan.h"

namespace wflow::cli::top {

class Feed {
 public:
  virtual ~Feed() = default;
  // Fetches news; returns true if the data have changed. `view`: the current view, so that data of other
  // views are fetched less often.
  virtual bool poll(View view) = 0;
  // Waits until there may be news, `fd` is readable, or the time is over.
  virtual void wait(std::chrono::milliseconds timeout, int fd) = 0;
  // Executes the wish of a key, except quit, open and close.
  virtual void wish(const Wish& wish) = 0;
  virtual const TopData& data() const = 0;
};

// A campaign through its coordinator's socket; while no coordinator lives, its record, read once.
std::unique_ptr<Feed> live_feed(const std::filesystem::path& campaign);
// A replay of a campaign at rest. Error{usage} while a coordinator lives. `speed` 0: it takes a minute.
std::unique_ptr<Feed> replay_feed(const std::filesystem::path& campaign, double speed);
// All campaigns of the user.
std::unique_ptr<Feed> campaigns_feed();

// ---- live_feed.cc: the tasks of a step, and all failures, of a plan's campaign

TaskQuestions questions_about_step(const specs::Plan& plan, const std::string& step);
TaskQuestions questions_about_failures(const specs::Plan& plan);
// Asks all of them, one after the other.
StepTasks all_answers(engine::Client& client, TaskQuestions questions);

// ---- pictures.cc: data from a campaign's record, as it is now or was at some time of the run. Pure.

inline constexpr std::size_t kSlices = 240;  // parts of a campaign's time

std::map<std::string, StepNeeds> needs_of(const specs::Plan& plan);

TopData picture_of(const engine::RecordedCampaign& record);
// The picture at `at_s` (Unix time). The number of ended tasks is that of the records up to then. The record
// does not say which tasks ran at that moment.
TopData picture_at(const engine::RecordedCampaign& record, double at_s);
// The tasks of the step that had ended by then.
StepTasks tasks_at(const StepTasks& tasks, double at_s);

}  // namespace wflow::cli::top
