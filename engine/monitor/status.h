// SPDX-License-Identifier: Apache-2.0
// What a campaign looks like at one moment: the value behind `wflow status`, the progress display and
// `--json`.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/schedule/states.h"

namespace wflow::engine {

struct FailureView {
  std::string task;  // "simulate/12"
  std::string step;
  std::uint64_t element = 0;
  std::uint32_t attempt = 0;
  std::string reason;  // "exit code 3", "signal 9 (Killed)", "time limit"
  std::string worker;
  double time_s = 0;
  double duration_s = 0;
  bool final = false;
  std::string detail;
};

struct MetricPoint {
  std::string name;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  double value = 0;
};

struct StepStatus {
  std::string name;
  std::string kind;
  std::uint64_t arrays = 1;
  std::uint64_t elements = 0;
  std::array<std::uint64_t, kElementStates> counts{};
  double mean_s = 0;  // of the elements done
  double deviation_s = 0;
  double rate_per_s = 0;         // of the last seconds; 0 when nothing runs
  std::optional<double> left_s;  // estimated
  // A single long task's own progress, where it reports one.
  std::uint64_t progress_done = 0;
  std::uint64_t progress_total = 0;
  std::string progress_unit;

  std::uint64_t count(ElementState state) const { return counts[static_cast<std::size_t>(state)]; }
  std::uint64_t ended() const;
  std::uint64_t failed() const { return count(ElementState::failed) + count(ElementState::hard_failed); }
};

struct WorkerStatus {
  std::string id, host;
  int cores = 0;
  std::uint64_t running = 0;
  std::uint64_t leased = 0;
  double silent_s = 0;
  bool draining = false;
};

struct HistoryView {
  double time_s = 0;
  std::string kind, text;
};

struct ArtifactView {
  std::string step, kind, path;
};

// A campaign that comes after this one.
struct FollowupView {
  std::string kind;  // submitted, restart, iteration
  int iteration = 0;
  std::string spec, directory;
  std::string state;  // pending, could not begin, or as CampaignStatus::state
  std::uint64_t elements = 0, ended = 0, failed = 0;
  // Whether it has something to do yet, as far as this campaign's own run goes.
  bool left() const;
};

struct CampaignStatus {
  std::string name, directory;
  std::string state;  // running, draining, paused, finished, finished with failures, cancelled, interrupted
  std::string coordinator;  // "host (pid 12)" while one runs
  double started_s = 0;     // Unix time
  double elapsed_s = 0;
  std::vector<StepStatus> steps;
  std::vector<WorkerStatus> workers;
  std::vector<FailureView> failures;  // newest last; final ones
  std::vector<MetricPoint> metrics;   // of training, in order of step
  std::vector<ArtifactView> artifacts;
  std::vector<HistoryView> history;
  std::vector<FollowupView> followups;  // in order
  std::string iterations;               // of a study with iterate:, how they came to an end

  std::uint64_t elements() const;
  std::uint64_t ended() const;
  std::uint64_t failed() const;
  std::uint64_t cancelled() const;
};

// What a campaign that has ended is called: finished, finished with failures, cancelled.
std::string end_state(const CampaignStatus& status);

// The exit code of `wflow run` for a campaign that no process runs, without what follows on it.
ExitCode end_code(const CampaignStatus& status);

nlohmann::json to_json(const CampaignStatus& status);
CampaignStatus status_from_json(const nlohmann::json& json);

// "exit code 3", "signal 9 (Killed)", "killed at its time limit", ...
std::string describe_end(int reason, int exit_code);

}  // namespace wflow::engine
