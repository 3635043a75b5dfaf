// SPDX-License-Identifier: Apache-2.0
// The interface of batch schedulers: four verbs (submit, query, cancel, time left). An adapter
// turns them into the scheduler's commands and reads their machine-readable output; it keeps no state of its
// own. Each call waits for a command, at most kCallTimeout_s. Call it from the thread of batch_thread.h only,
// never from the coordinator's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"

namespace wflow::engine::batch {

// `unknown`: the scheduler cannot tell. wflow never takes it for an end.
enum class JobState : std::uint8_t { queued, held, running, ending, done, failed, unknown };
enum class JobEnd : std::uint8_t { none, exit, walltime, node, memory, preempted, cancelled };

// An allocation of nodes on each of which one `command` runs (`wflow worker ...`).
struct JobRequest {
  std::string token;  // [a-z0-9]{1,14}, letter first: unique to this submission, its name at the scheduler
  int nodes = 1;
  double walltime_s = 0;  // 0: the scheduler's default
  std::string account, partition, qos, constraint,
      reservation;                   // as the scheduler writes them; empty: its default
  std::string memory;                // a node's, "per_cpu 4G", or empty: all of it
  int gpus = 0;                      // a node
  bool exclusive = true;             // whole nodes
  int cores = 0;                     // per node: the workers' slots; 0: not given
  std::vector<std::string> args;     // verbatim options, after ours
  std::vector<std::string> setup;    // lines of shell before the command
  std::vector<std::string> exclude;  // names of nodes
  std::string name;      // shown to users: "survey-sim-3", in Flux, LSF and SGE behind the token; not in PBS,
                         // whose names are short
  std::string campaign;  // its directory, shown to users
  std::string chain;     // name of the chain whose jobs run one after another; empty: no chain
  std::vector<std::string> command;  // argv, on each node
  // argv of a process beside it where the script runs; gets SIGUSR1 when `command` has ended on all nodes.
  // Empty: none.
  std::vector<std::string> coordinator;
  // Merlin's options for the launcher of `command`: text before it, more arguments, a replacement.
  std::string launch_pre, launch_args, worker_launch;
  std::string directory;  // absolute: working directory, script, output
};

struct Submission {
  // wait: the reason passes by itself (job limits, time-outs); fix: the user must change something (bad
  // account, partition, time limit); fatal: there is no scheduler.
  enum class Refusal : std::uint8_t { none, wait, fix, fatal };
  std::string id;  // empty where refused
  Refusal refusal = Refusal::none;
  std::string text;  // the scheduler's own words
};

struct JobStatus {
  std::string id, token;
  JobState state = JobState::unknown;
  JobEnd end = JobEnd::none;  // if `failed`
  std::string raw, reason;    // the scheduler's words; why it waits
  // A plain sentence if the reason never clears by itself (bad account, partition limit, ...); else empty.
  std::string never_clears;
  std::vector<std::string> nodes;
  std::optional<double> starts_unix_s, ends_unix_s;  // expected or actual
  int restarts = 0;                                  // higher: a new incarnation of the same id
};

// The jobs of the query, found by name, not by id. A job that is missing in an answer may still run.
// `answered` is false if the scheduler did not answer; then `text` gives the reason.
struct JobList {
  bool answered = false;
  std::string text;
  std::vector<JobStatus> jobs;
};

class BatchSystem {
 public:
  static constexpr double kCallTimeout_s = 30;

  virtual ~BatchSystem() = default;
  virtual std::string_view name() const = 0;  // "slurm"
  // The script that submit() would submit, byte for byte.
  virtual std::string script(const JobRequest& request) const = 0;
  // Throws Error{system} where the script can't be written. After a time-out the job may be in the queue all
  // the same.
  virtual Submission submit(const JobRequest& request) = 0;
  // All jobs of this user whose names begin with `prefix` (the campaign's part of the tokens), in one call.
  virtual JobList query(const std::string& prefix) = 0;
  // Jobs that have ended or are unknown are no error.
  virtual std::optional<std::string> cancel(const std::vector<std::string>& ids) = 0;
  // Unix time at which this process's allocation ends; empty outside an allocation, or if it is not
  // known.
  virtual std::optional<double> ends_unix_s() = 0;
  // The scheduler's answer to a trial submission (sbatch --test-only), if it supports one: when the job might
  // start, or why the scheduler refuses it.
  struct Trial {
    std::optional<double> starts_unix_s;
    Submission answer;  // `refusal` none: it would accept it, or cannot tell
  };
  virtual Trial try_out(const JobRequest&) { return {}; }
  // Why it cannot be used here (no command, no answer); empty if it answers.
  virtual std::optional<std::string> check() = 0;
};

// "slurm", "flux", "pbs", "lsf", "lsf-srun", "sge". Null where the name is none of these.
std::unique_ptr<BatchSystem> make_batch_system(std::string_view name);

// The request for one allocation of a pool. `slots`: of its workers; 0: all that the node has. The caller
// sets token, command, directory and the nodes to exclude.
JobRequest request_of(const specs::AllocationSpec& pool, int slots);

}  // namespace wflow::engine::batch
