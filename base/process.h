// SPDX-License-Identifier: Apache-2.0
// Starting programs. Children are made with vfork: its cost does not grow with the parent's memory, where
// fork copies page tables (50 times slower from a process of 1 GB, research/peers.md 2.1).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace wflow {

struct SpawnRequest {
  std::vector<std::string> argv;  // argv[0] with a slash is a path, else looked up in PATH
  std::optional<std::vector<std::string>> environment;  // "KEY=value" each; absent: the caller's
  std::string directory;                                // empty: the caller's
  int stdin_fd = -1;                                    // -1: /dev/null
  int stdout_fd = -1;                                   // -1: the caller's
  int stderr_fd = -1;                                   // -1: the caller's
  bool own_group = false;        // a process group of its own, so that killpg ends its tree
  bool die_with_parent = false;  // SIGKILL when the calling *thread* ends (Linux)
};

// Starts the program and gives its pid. Throws Error{system} that names the program or directory when it
// can't be started: exec failures are seen here, not as an exit code of a child.
// All signals are unblocked and set to default in the child. No descriptor but 0, 1, 2 is inherited if it
// is close-on-exec (all of wflow's are).
pid_t spawn(const SpawnRequest& request);

struct CommandResult {
  int status = 0;  // as shells have it: exit code, or 128 + signal
  std::string out;
  std::string err;
  bool timed_out = false;
};

// Runs a program to its end and gives what it printed (cut to 16 MiB each). For short helper commands.
// With a `timeout_s` above 0 it gets a process group of its own, which is killed when the time is over, and
// so is what still holds its output then.
CommandResult run_command(const SpawnRequest& request, double timeout_s = 0);

// The shells' exit status of a waitpid status.
int exit_status(int wait_status);

// The full path of a program found in PATH, if there is one.
std::optional<std::string> find_program(const std::string& name);

// The folder of the running executable: wflow-train and wflow-convert stand beside wflow.
std::string executable_directory();
// A sibling program beside this one, else in PATH; throws Error{system} if there is none.
std::string sibling_program(const std::string& name);

std::string host_name();

}  // namespace wflow
