// SPDX-License-Identifier: Apache-2.0
// Tells the end of a process itself from the end that a signal of wflow has made. The agent, its guardian and
// tests/simulation decide by this one rule.
#pragma once

namespace wflow::workers {

struct EndSignals {
  bool terminated = false;  // SIGTERM was sent to its group
  bool killed = false;      // SIGKILL was sent to it, without or after SIGTERM
  bool handles = false;     // it catches SIGTERM, or blocked it and took it (sigwait, signalfd)
  bool ignores = false;     // it ignores SIGTERM, or blocked it until its end
};

struct ProcessEnd {
  bool exited = false;  // with an exit code, and not by a signal
  int status = 0;       // that code, or the signal
};

// When wflow decided to end the process does not matter: a process that neither handles nor ignores SIGTERM
// has no exit code after the signal has reached it, so whoever has one had ended before. One that handles
// SIGTERM may answer it with any exit code, 0 included: its end counts as the signal's.
constexpr bool is_own_end(const EndSignals& signals, const ProcessEnd& end) {
  constexpr int kSigKill = 9;
  constexpr int kFirstMerlinCode = 100, kLastMerlinCode = 105;  // by which a task asks for something
  if (!signals.terminated && !signals.killed) return true;
  if (!end.exited) return !signals.terminated && end.status != kSigKill;
  if (!signals.terminated) return true;
  if (signals.handles) return false;
  // The children of a process that ignores SIGTERM need not ignore it: its failure may be theirs.
  return !signals.ignores || end.status == 0 ||
         (end.status >= kFirstMerlinCode && end.status <= kLastMerlinCode);
}

}  // namespace wflow::workers
