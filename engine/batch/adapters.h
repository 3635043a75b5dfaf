// SPDX-License-Identifier: Apache-2.0
// The adapters of batch schedulers, and the parsers of their answers, which tests call too. The tests have
// recorded answers of each scheduler. Slurm: 20.11 and later.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"
#include "engine/batch/command.h"

namespace wflow::engine::batch {

std::unique_ptr<BatchSystem> make_flux();
std::unique_ptr<BatchSystem> make_pbs();
enum class LsfLauncher : bool { jsrun, srun };
std::unique_ptr<BatchSystem> make_lsf(LsfLauncher launcher);
std::unique_ptr<BatchSystem> make_sge();

// Each parses the output of the command and returns the jobs whose names begin with `prefix`.
JobList parse_flux_jobs(const std::string& json, const std::string& prefix);
JobList parse_pbs_jobs(const std::string& json, const std::string& prefix);
JobList parse_lsf_jobs(const std::string& json, const std::string& prefix, double now_unix_s);
JobList parse_sge_jobs(std::string_view xml, const std::string& prefix);
// Parses qacct's blocks, one for each ended job.
JobList parse_sge_accounting(std::string_view text, const std::string& prefix);

std::unique_ptr<BatchSystem> make_slurm();

// The srun command that starts one worker on each of `nodes` nodes.
std::string agents_launcher(int nodes);

// The output format of squeue, and the parser of one line of its answer, one job each. The name is for users:
// the token is the first word of the comment and the name of the script.
inline constexpr std::string_view kSqueueFormat =
    "JobID:|,State:|,Name:|,RestartCnt:|,StartTime:|,EndTime:|,NodeList:|,Reason:|,Comment:|,Command:|";
std::optional<JobStatus> parse_squeue_line(std::string_view line);

// "n[1-3,7],m01" -> names. Returns text that is no host list unchanged.
std::vector<std::string> expand_host_list(std::string_view list);

// Why a pending job with that reason never starts; empty if it may start.
std::string why_slurm_never_starts(std::string_view reason);

// The job's number in sbatch's answer, after any text that the site prints before it.
std::optional<std::string> parse_sbatch_id(std::string_view out);

Submission slurm_refusal(const CommandAnswer& answer);

}  // namespace wflow::engine::batch
