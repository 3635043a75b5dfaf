// SPDX-License-Identifier: Apache-2.0
// Starting programs. Children are made with vfork: its cost does not grow with the parent's memory, where
// fork copies page tables (50 times slower from a process of 1 GB).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/plain_types.h"

namespace wflow {

struct SpawnRequest {
  std::vector<std::string> argv;  // argv[0] with a slash is a path, else looked up in PATH
  std::string program;            // the path that is started instead of argv[0], if not empty
  std::optional<std::vector<std::string>> environment;  // "KEY=value" each; absent: the caller's
  std::string directory;                                // empty: the caller's
  int stdin_fd = -1;                                    // -1: /dev/null
  int stdout_fd = -1;                                   // -1: the caller's
  int stderr_fd = -1;                                   // -1: the caller's
  bool own_group = false;        // a process group of its own, so that killpg ends its tree
  bool die_with_parent = false;  // SIGKILL when the calling *thread* ends (Linux)
};

// Starts the program and returns its pid. Throws Error{system} that names the program or directory if it
// cannot be started: a failed exec is reported here, not as an exit code of the child. All signals are
// unblocked and set to default in the child. Except for 0, 1 and 2, the child inherits no descriptor that is
// close-on-exec (all of wflow's are).
pid_t spawn(const SpawnRequest& request);

struct CommandResult {
  int status = 0;  // as in shells: exit code, or 128 + signal
  std::string out;
  std::string err;
  bool timed_out = false;
};

// Runs a program to its end and returns its output (cut to 16 MiB each). For short helper commands.
// With a `timeout_s` above 0 the program runs in a process group of its own, which is killed after that time,
// so that no process of it holds the output open.
CommandResult run_command(const SpawnRequest& request, double timeout_s = 0);

// The shells' exit status of a waitpid status.
int exit_status(int wait_status);

// The full path of a program in PATH, if found.
std::optional<std::string> find_program(const std::string& name);

// The folder of the running executable: wflow-train and wflow-convert are beside wflow.
std::string executable_directory();
// A sibling program beside this one, else in PATH; throws Error{system} if there is none.
std::string sibling_program(const std::string& name);

std::string host_name();

// The calling process. The result changes with fork().
ProcessIdentity own_identity();

// The process that has this pid now, also a zombie; not known() if there is none.
ProcessIdentity identify(pid_t pid);

// Refers to one process by a pidfd: signals reach this process or none, even after its pid is used again.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  // The handle is open only if the process is in this process table and its pid still has that start time.
  // Throws Error{system} if no descriptor is available: then the state of the process is unknown.
  explicit ProcessHandle(const ProcessIdentity& process);

  bool open() const { return static_cast<bool>(descriptor_); }
  // Becomes readable when the process ends (poll, epoll); -1 if the handle is not open.
  int descriptor() const { return descriptor_.get(); }
  // True if the process has certainly ended; a zombie has. Always false for a process of another process
  // table.
  bool ended() const;
  // False if there is no process to signal: it has ended, or the handle is not open. Throws Error{system} if
  // the signal is refused (a process of another user).
  bool send_signal(int number) const;

 private:
  FileDescriptor descriptor_;
  bool was_gone_ = false;  // at the construction
};

// The environment. Variables of one batch job must not reach another job, nor the programs that the job
// launches. The lists follow the manual pages of sbatch and srun ("input environment variables").

// Filters variables ("NAME=value" each) for a command of the scheduler `type` ("slurm", "flux", "pbs", "lsf",
// "sge"). Removes those that change its meaning (SBATCH_PARTITION overrides a script's #SBATCH line,
// SQUEUE_FORMAT an option), and those of a job, or of an MPI program, that the caller itself runs in. Keeps
// those that locate the scheduler (SLURM_CONF, FLUX_URI, LSF_ENVDIR, SGE_ROOT, ...).
std::vector<std::string> scheduler_environment(std::string_view type,
                                               const std::vector<std::string>& variables);

// True for a variable that the launcher of the worker has set and that a task's own launcher, or its MPI
// library, would take for its own: the worker unsets it. The job's id and nodes stay.
bool leaks_into_tasks(std::string_view name);

// Unsets these variables in this process.
void clean_task_environment();

// All variables of this process, "NAME=value" each.
std::vector<std::string> current_environment();

// Empty if the variable is not set.
std::string environment_value(const char* name);

}  // namespace wflow
