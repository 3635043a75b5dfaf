// SPDX-License-Identifier: Apache-2.0
// The end of a process: its state as the kernel reports it, and the rule that decides if it ended by itself
// or by a signal of wflow.
#pragma once

#include <sys/types.h>

namespace wflow::workers {

struct SlotRecord;  // slot_table.h

// The signals that wflow has sent to a process, and what the process does with SIGTERM.
struct EndSignals {
  bool terminated = false;  // SIGTERM was sent to its group
  bool killed = false;      // SIGKILL was sent to it, without or after SIGTERM
  bool handles = false;     // it catches SIGTERM, or blocked it and took it (sigwait, signalfd)
  bool ignores = false;     // it ignores SIGTERM, or blocked it until its end
};

struct ProcessEnd {
  bool exited = false;  // with an exit code, and not by a signal
  int status = 0;       // the code, or the signal
};

// True if a process ended by itself, false if a signal of wflow ended it. The agent, its guardian and
// tests/simulation share this rule. The time of the decision to end the process does not matter: a process
// that neither handles nor ignores SIGTERM has no exit code after the signal has reached it, so one with an
// exit code had ended before. A process that handles SIGTERM may exit with any code, 0 included: the signal
// then counts as the cause.
constexpr bool is_own_end(const EndSignals& signals, const ProcessEnd& end) {
  constexpr int kSigKill = 9;
  constexpr int kFirstMerlinCode = 100, kLastMerlinCode = 105;  // exit codes that request an action
  if (!signals.terminated && !signals.killed) return true;
  if (!end.exited) return !signals.terminated && end.status != kSigKill;
  if (!signals.terminated) return true;
  if (signals.handles) return false;
  // The children of a process that ignores SIGTERM need not ignore it: its failure may be theirs.
  return !signals.ignores || end.status == 0 ||
         (end.status >= kFirstMerlinCode && end.status <= kLastMerlinCode);
}

// True if the child has ended; it is not reaped.
bool has_ended(pid_t pid);
// True if the process has called exit, or a signal is ending it: no further signal changes its status. This
// state may last a second if the process held much memory.
bool is_exiting(pid_t pid);

// How a process handles SIGTERM. Also known for a process that has ended and is not reaped yet.
struct TermDisposition {
  bool catches = false;
  bool blocks = false;
  bool ignores = false;
  bool pending = false;  // SIGTERM was sent, and neither taken nor ignored
};
TermDisposition term_disposition(pid_t pid);
// Reads it again, for a few milliseconds, until the process does not block SIGTERM: shells block all signals
// for a moment whenever they start a program.
TermDisposition settled_term_disposition(pid_t pid);

// True if the child of the slot, which is not reaped yet, has ended by itself. `dropped`: the agent has sent
// SIGKILL without a note in the record.
bool ended_by_itself(const SlotRecord& slot, bool dropped, pid_t pid, int code, int status);

}  // namespace wflow::workers
