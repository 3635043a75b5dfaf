// SPDX-License-Identifier: Apache-2.0
// Slurm 20.11 and later. Facts: research/cluster.md 1, research/peers2.md 4.1 to 4.3.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"
#include "engine/batch/command.h"

namespace wflow::engine::batch {

std::unique_ptr<BatchSystem> make_slurm();

// srun, for one worker on each of so many nodes.
std::string agents_launcher(int nodes);

// The format that squeue is asked for, and a job of its answer, a line each. Names are for people: the token is the
// first word of the comment and the name of the script.
inline constexpr std::string_view kSqueueFormat =
    "JobID:|,State:|,Name:|,RestartCnt:|,StartTime:|,EndTime:|,NodeList:|,Reason:|,Comment:|,Command:|";
std::optional<JobStatus> parse_squeue_line(std::string_view line);

// "n[1-3,7],m01" -> names. What does not read comes back as it is.
std::vector<std::string> expand_host_list(std::string_view list);

// Why a pending job of that reason waits for ever; empty where it may start.
std::string why_slurm_never_starts(std::string_view reason);

// The job's number in sbatch's answer, behind whatever the site prints before it.
std::optional<std::string> parse_sbatch_id(std::string_view out);

Submission slurm_refusal(const CommandAnswer& answer);

}  // namespace wflow::engine::batch
