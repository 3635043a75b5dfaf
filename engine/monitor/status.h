// SPDX-License-Identifier: Apache-2.0
// The state of a campaign at one moment: the value behind `wflow status`, the progress display and `--json`.
// engine/wire/answers.h defines its types.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/batch/allocation.h"
#include "engine/schedule/states.h"
#include "engine/usage/step_usage.h"
#include "engine/wire/answers.h"

namespace wflow::engine {

using wire::ArtifactView;
using wire::FailureView;
using wire::FollowupView;
using wire::HistoryView;
using wire::MetricCurve;
using wire::MetricPoint;
using wire::StepStatus;
using wire::WorkerStatus;
using CampaignStatus = wire::StatusAnswer;

// Bounds of its lists: the newest are kept.
inline constexpr std::size_t kListedFailures = 100;
inline constexpr std::size_t kListedHistory = 50;
inline constexpr std::size_t kListedWorkers = 1000;
inline constexpr std::size_t kListedArtifacts = 1000;
inline constexpr std::size_t kListedFollowups = 2000;
inline constexpr std::size_t kListedSlow = 20;
inline constexpr std::size_t kListedCheckpoints = 256;
inline constexpr std::size_t kListedPoints = 40'000;  // sum over all metrics
inline constexpr std::size_t kListedText = 4096;      // bytes in a failure's detail or a history row

// Cuts what is beyond the bounds.
void keep_bounds(CampaignStatus& status);

// The end state of a campaign: finished, finished_with_failures, cancelled.
CampaignState end_state(const CampaignStatus& status);

// The exit code of `wflow run` for a campaign that no process runs, without its follow-ups.
ExitCode end_code(const CampaignStatus& status);

// "finished with failures", "handed over to /campaigns/top".
std::string state_text(const FollowupView& followup);

wire::UsageView view_of(const StepUsage& usage);

// The version of to_json(): raised if a key changes its meaning or goes; new keys may come
// (docs/formats/status.md).
inline constexpr int kStatusVersion = 1;
nlohmann::json to_json(const CampaignStatus& status);

// Views of records for users and programs: batch allocations, and how a task ended.

inline constexpr std::size_t kListedAllocations = 1000;  // the newest

wire::AllocationView view_of(const batch::Allocation& allocation);
// For a campaign at rest: the recorded allocations, without pools.
wire::AllocationsAnswer recorded_allocations(const std::vector<batch::Allocation>& rows);
nlohmann::json to_json(const wire::AllocationsAnswer& answer);

// `reason`: an EndReason. "exit code 3", "signal 9 (Killed)", "killed at its time limit", ...
std::string describe_end(int reason, int exit_code);

// Why a conversion leaves out a sample whose task of this step ended in `state`.
std::string reason_left_out(const std::string& step, ElementState state);
struct MissingCounts {
  std::uint64_t failed = 0;    // or cancelled: left out because of its task's end
  std::uint64_t skipped = 0;   // a training had reached its goal
  std::uint64_t unusable = 0;  // its task is done, its output is not usable
};
MissingCounts counts_of(const std::vector<wire::MissingReason>& reasons);

}  // namespace wflow::engine
