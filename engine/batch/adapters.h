// SPDX-License-Identifier: Apache-2.0
// The adapters beside Slurm's (slurm.h), and what tests read of their answers. Recorded answers:
// research/cluster.md 3.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

std::unique_ptr<BatchSystem> make_flux();
std::unique_ptr<BatchSystem> make_pbs();
enum class LsfLauncher : bool { jsrun, srun };
std::unique_ptr<BatchSystem> make_lsf(LsfLauncher launcher);
std::unique_ptr<BatchSystem> make_sge();

// Each takes what the command printed and gives the jobs whose names begin with `prefix`.
JobList parse_flux_jobs(const std::string& json, const std::string& prefix);
JobList parse_pbs_jobs(const std::string& json, const std::string& prefix);
JobList parse_lsf_jobs(const std::string& json, const std::string& prefix, double now_unix_s);
JobList parse_sge_jobs(std::string_view xml, const std::string& prefix);
// qacct's blocks, of jobs that have ended.
JobList parse_sge_accounting(std::string_view text, const std::string& prefix);

}  // namespace wflow::engine::batch
