// SPDX-License-Identifier: Apache-2.0
// The usage of a campaign: compared with the requests of the study (the lines to write for the next run;
// pure), in sums, and as a distribution.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/usage/quantile_sketch.h"
#include "engine/usage/step_usage.h"
#include "engine/wire/answers.h"
#include "engine/wire/campaign_state.h"

namespace wflow::cli {

// The request of the study for one task.
struct StepAsked {
  int cores = 1;                  // per process
  int procs = 1;                  // MPI processes
  std::int64_t memory_bytes = 0;  // 0: no request
  double timeout_s = 0;           // 0: none
  int all_cores() const { return cores * procs; }
};

struct Advice {
  std::string about;  // memory, cores, timeout, walltime
  std::string text;   // "asked 8.0 GiB, 95 % need 1.1 GiB, the largest 1.3 GiB"
  std::string line;   // to write in the study: "memory: 1664 MiB"; empty: there is no single one
};

// CPU seconds per second of all executions together; 0 without executions.
double cores_used(const engine::StepUsage& used);

// `lost`: executions of this step that did not succeed. Empty if the request fits the usage.
std::vector<Advice> step_advice(const engine::StepUsage& used, const StepAsked& asked,
                                const std::vector<engine::wire::LostTime>& lost);

// Advice for each pool of an ended campaign whose allocations all used less than half of their walltime.
std::vector<Advice> walltime_advice(const std::vector<engine::wire::AllocationView>& allocations);

// "memory: asked ...; write `memory: 1664 MiB`".
std::string sentence_of(const Advice& advice);

// ---- the usage of a whole campaign, from its coordinator or its record: for `wflow usage`

struct StepFacts {
  std::string name, kind;
  StepAsked asked;
  engine::StepUsage used;  // executions of a millisecond or more, and failed ones
  std::vector<engine::wire::LostTime> lost;
  std::vector<Advice> advice;
};

// Time of the workers, each from its beginning to its end or to now. The used part is the time in which tasks
// held cores: durations times the cores that the step asks for. The lost part of that belongs to failed
// executions.
struct HourFacts {
  std::size_t workers = 0;
  double core_h = 0;
  double node_h = 0, used_node_h = 0, idle_node_h = 0, lost_node_h = 0;
};

struct UsageFacts {
  std::string name, directory;
  engine::CampaignState state = engine::CampaignState::running;
  double time_s = 0;  // Unix time of these facts
  std::vector<StepFacts> steps;
  std::optional<HourFacts> hours;  // empty before a worker has joined
  std::vector<Advice> advice;      // for the whole campaign
};

// Throws Error as engine::Client.
UsageFacts usage_facts(const std::filesystem::path& campaign);

// ---- a distribution as a few bars, on a logarithmic axis: durations and sizes span orders of magnitude

struct HistogramBin {
  double from = 0, to = 0;  // values v with from < v <= to, in the values' unit
  std::uint64_t count = 0;
};

// At most `bins` bins of equal ratio that cover all positive values, at least a factor of two in all. No bin
// contains values of 0. Empty without positive values.
std::vector<HistogramBin> histogram(const engine::QuantileSketch& sketch, std::size_t bins);

// One column per bin, as high as its share of the fullest one; ASCII if the terminal is not UTF-8.
std::string bars_of(const std::vector<HistogramBin>& bins, const Terminal& terminal);

}  // namespace wflow::cli
