// SPDX-License-Identifier: Apache-2.0
// Starts tasks with as few system calls as possible. It does not use spawn() of base/process.h, because the
// pid must be in the slot table before the task runs: clone(CLONE_PARENT_SETTID) lets the kernel store it,
// and an agent that is killed at any instant leaves no task that is unknown to its guardian.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace wflow::workers {

struct LaunchRequest {
  const char* program = nullptr;  // a path, relative to `directory` or absolute
  const std::vector<std::string>* argv = nullptr;
  const std::vector<const char*>* environment = nullptr;  // ends with a null pointer
  const std::string* directory = nullptr;
  const std::string* out_file = nullptr;  // created or appended to; relative to `directory`
  const std::string* err_file = nullptr;
  int out_fd = -1;  // an open file instead of the name
  int err_fd = -1;
  const std::vector<int>* cpus = nullptr;  // processors for the task; null or empty: those of its parent
  pid_t* pid = nullptr;                    // in shared memory; reset to 0 if the start fails
};

// The program itself could not be started: it or its directory is missing, or it is no program. A shell may
// succeed.
class ExecError : public Error {
 public:
  using Error::Error;
};

class Launcher {
 public:
  Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  // The child is in a group of its own, dies with the calling thread, has no signal blocked, and the caller's
  // stdin. The caller must have no signal handlers and all its signals blocked: until exec the child runs in
  // its memory. Throws Error{system} with the failed operation; ExecError if
  // only the start of the program, or entering its directory, failed.
  void start(const LaunchRequest& request);

 private:
  pid_t parent_;  // the process that made this object, which starts the tasks
  std::vector<char*> argv_;
  void* stack_ = nullptr;
};

}  // namespace wflow::workers
