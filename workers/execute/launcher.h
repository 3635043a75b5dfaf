// SPDX-License-Identifier: Apache-2.0
// Starts tasks with as few system calls as there can be. Not base/process.h's spawn(), because the pid must
// be in the slot table before the task runs: clone(CLONE_PARENT_SETTID) lets the kernel store it, and an
// agent that is killed at any instant leaves no task that its guardian does not know.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace wflow::workers {

struct LaunchRequest {
  const char* program = nullptr;  // a path, from `directory` where relative
  const std::vector<std::string>* argv = nullptr;
  const std::vector<const char*>* environment = nullptr;  // ends with a null pointer
  const std::string* directory = nullptr;
  const std::string* out_file = nullptr;  // made or appended to; relative to `directory`
  const std::string* err_file = nullptr;
  int out_fd = -1;  // of open files, in place of the names
  int err_fd = -1;
  const std::vector<int>* cpus = nullptr;  // where it may run; null or empty: where its parent may
  pid_t* pid = nullptr;                    // in shared memory; 0 again when the start fails
};

// The program itself could not be started (it or its directory is not there, it is no program): a shell may do better.
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
  // its memory. Throws Error{system} that says what could not be done; ExecError where
  // only the program's own start, or entering its directory, failed.
  void start(const LaunchRequest& request);

 private:
  pid_t parent_;  // whoever made this object starts the tasks
  std::vector<char*> argv_;
  void* stack_ = nullptr;
};

}  // namespace wflow::workers
