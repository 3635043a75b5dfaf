// SPDX-License-Identifier: Apache-2.0
#include "base/batch_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

extern char** environ;

namespace wflow {

namespace {

using Names = std::span<const std::string_view>;

bool is_any(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool begins_with_any(std::string_view name, Names prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Of launchers' and MPI libraries' processes: no program that starts inside one of them is its rank.
constexpr std::array<std::string_view, 12> kRankPrefixes = {
    "PMI_",   "PMI2_", "PMIX_",           "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_APP_",
    "HYDRA_", "HYDI_", "MPI_LOCALNRANKS", "MPI_LOCALRANKID",  "PRTE_LAUNCHED",  "JSM_"};

// Where Slurm and its authentication are found.
constexpr std::array<std::string_view, 4> kSlurmStays = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT",
                                                         "SLURM_CLUSTERS"};
constexpr std::array<std::string_view, 9> kSlurmPrefixes = {
    "SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SCANCEL_", "SINFO_", "SACCT_"};

// Of the job that the caller runs in.
constexpr std::array<std::string_view, 3> kFluxPrefixes = {"FLUX_JOB_", "FLUX_TASK_", "FLUX_KVS_"};
constexpr std::array<std::string_view, 1> kPbsPrefixes = {"PBS_"};
constexpr std::array<std::string_view, 4> kPbsStays = {"PBS_CONF_FILE", "PBS_EXEC", "PBS_SERVER",
                                                       "PBS_DEFAULT"};
constexpr std::array<std::string_view, 2> kLsfPrefixes = {"LSB_", "LS_"};
constexpr std::array<std::string_view, 8> kSgeNames = {"JOB_ID", "JOB_NAME",    "JOB_SCRIPT", "NSLOTS",
                                                       "NHOSTS", "PE_HOSTFILE", "PE",         "SGE_TASK_ID"};

// Slurm's, of a step: an inner srun takes them for options, Open MPI and Hydra take the old names of a job's
// nodes for theirs and would start a task of one node elsewhere.
constexpr std::array<std::string_view, 9> kStepPrefixes = {
    "SLURM_CPU_BIND",  "SLURM_STEP", "SLURM_NTASKS", "SLURM_MEM_PER_", "SLURM_SRUN_COMM_",
    "SLURM_TOPOLOGY_", "SRUN_",      "SBATCH_",      "SLURM_MEM_BIND"};
constexpr std::array<std::string_view, 26> kStepNames = {"SLURM_NPROCS",
                                                         "SLURM_TASKS_PER_NODE",
                                                         "SLURM_DISTRIBUTION",
                                                         "SLURM_EXPORT_ENV",
                                                         "SLURM_MPI_TYPE",
                                                         "SLURM_PROCID",
                                                         "SLURM_LOCALID",
                                                         "SLURM_NODEID",
                                                         "SLURM_TASK_PID",
                                                         "SLURM_GTIDS",
                                                         "SLURM_LAUNCH_NODE_IPADDR",
                                                         "SLURM_UMASK",
                                                         "SLURM_PRIO_PROCESS",
                                                         "SLURM_CPUS_PER_TASK",
                                                         "SLURM_WAIT",
                                                         "SLURM_KILL_BAD_EXIT",
                                                         "SLURM_OVERLAP",
                                                         "SLURM_WHOLE",
                                                         "SLURM_EXACT",
                                                         "SLURM_EXCLUSIVE",
                                                         "SLURM_JOBID",
                                                         "SLURM_NODELIST",
                                                         "SLURM_NNODES",
                                                         "SLURM_SPANK_ARGS",
                                                         "SLURM_PMIXP_ABORT_AGENT_PORT",
                                                         "SLURM_PMIX_MAPPING_SERV"};

bool changes_slurm(std::string_view name) {
  return begins_with_any(name, kSlurmPrefixes) && !is_any(name, kSlurmStays);
}

bool changes(std::string_view type, std::string_view name) {
  if (begins_with_any(name, kRankPrefixes)) return true;
  if (changes_slurm(name)) return true;  // also of a job inside which another scheduler runs
  if (begins_with_any(name, kFluxPrefixes)) return true;
  // Tasks of another scheduler's job would take Flux for their innermost manager.
  if (type != "flux" && (name == "FLUX_URI" || name == "FLUX_ENCLOSING_ID")) return true;
  if (begins_with_any(name, kPbsPrefixes)) return !is_any(name, kPbsStays);
  if (begins_with_any(name, kLsfPrefixes)) return true;
  return type == "sge" && is_any(name, kSgeNames);
}

}  // namespace

std::vector<std::string> scheduler_environment(std::string_view type,
                                               const std::vector<std::string>& variables) {
  std::vector<std::string> kept;
  for (const std::string& variable : variables) {
    if (!changes(type, std::string_view(variable).substr(0, variable.find('=')))) kept.push_back(variable);
  }
  return kept;
}

bool leaks_into_tasks(std::string_view name) {
  return begins_with_any(name, kStepPrefixes) || is_any(name, kStepNames) ||
         begins_with_any(name, kRankPrefixes);
}

void clean_task_environment() {
  for (const std::string& variable : current_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (leaks_into_tasks(name)) ::unsetenv(name.c_str());
  }
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) variables.emplace_back(*at);
  return variables;
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace wflow
