// SPDX-License-Identifier: Apache-2.0
// Processes of this machine, named so that another one can't be meant: see process_identity.h.
#pragma once

#include <sys/types.h>

#include "base/file.h"
#include "base/process_identity.h"

namespace wflow {

// The calling process. The result changes with fork().
ProcessIdentity own_identity();

// The process that has this pid now, a zombie too; not known() when there is none.
ProcessIdentity identify(pid_t pid);

// Holds on to one process by a pidfd: signals reach it or nobody, even after its pid is used again.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  // The handle is open only if the process stands in this process table and its pid still has that start
  // time. Throws Error{system} when the machine gives no descriptor: then nothing is known of the process.
  explicit ProcessHandle(const ProcessIdentity& process);

  bool open() const { return static_cast<bool>(descriptor_); }
  // Readable once the process has ended (poll, epoll); -1 when the handle is not open.
  int descriptor() const { return descriptor_.get(); }
  // Proven to have ended: a zombie has, too. False of a process in another process table, whatever it does.
  bool ended() const;
  // False when there is nobody to signal: it has ended, or the handle is not open. Throws Error{system} when
  // the signal is refused (a process of another user).
  bool send_signal(int number) const;

 private:
  FileDescriptor descriptor_;
  bool was_gone_ = false;  // at the construction
};

}  // namespace wflow
