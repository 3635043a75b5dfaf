// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/process_end.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

namespace {

std::string read_of_process(pid_t pid, const char* name) {
  try {
    return read_file("/proc/" + std::to_string(pid) + "/" + name);
  } catch (const Error&) {
    return {};
  }
}

// True if the set of signals in a line of /proc/PID/status, in hexadecimal digits, contains SIGTERM.
bool set_has_term(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return false;
  std::string_view digits = status.substr(at + name.size());
  digits.remove_prefix(std::min(digits.find_first_not_of(" \t"), digits.size()));
  std::uint64_t set = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), set, 16);
  return (set >> (SIGTERM - 1) & 1) != 0;
}

}  // namespace

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

// Fields of /proc/PID/stat: 9 the flags, 20 the threads; the second, the name in brackets, may hold anything.
// A process goes on if only its first thread has ended.
bool is_exiting(pid_t pid) {
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING
  constexpr int kFlags = 9;
  constexpr int kThreads = 20;
  const std::string text = read_of_process(pid, "stat");
  unsigned long flags = 0;
  unsigned long threads = 0;
  std::size_t at = text.rfind(')');
  for (int field = 3; at != std::string::npos && field <= kThreads; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return false;
    const char* begin = text.data() + ++at;
    const char* end = text.data() + text.size();
    if (field == kFlags) std::from_chars(begin, end, flags);
    if (field == kThreads) std::from_chars(begin, end, threads);
  }
  return (flags & kExiting) != 0 && threads <= 1;
}

// A process whose state cannot be read may have a handler, so its exit code proves nothing.
TermDisposition term_disposition(pid_t pid) {
  const std::string status = read_of_process(pid, "status");
  if (status.find("\nSigCgt:") == std::string::npos) return {true, false, false, false};
  return {set_has_term(status, "\nSigCgt:"), set_has_term(status, "\nSigBlk:"),
          set_has_term(status, "\nSigIgn:"), set_has_term(status, "\nShdPnd:")};
}

TermDisposition settled_term_disposition(pid_t pid) {
  constexpr int kLooks = 5;
  constexpr std::chrono::milliseconds kPause{1};
  TermDisposition seen = term_disposition(pid);
  for (int look = 1; look < kLooks && seen.blocks && !seen.catches; ++look) {
    std::this_thread::sleep_for(kPause);
    seen = term_disposition(pid);
  }
  return seen;
}

bool ended_by_itself(const SlotRecord& slot, bool dropped, pid_t pid, int code, int status) {
  EndSignals signals;
  signals.terminated = slot.terminated;
  signals.killed = slot.killed || slot.returned || dropped;
  const bool exited = code == CLD_EXITED;
  if (signals.terminated && exited) {
    if (slot.own_program && status == 0) return true;
    const TermDisposition now = term_disposition(pid);
    // A block seen before the signal does not matter if the process ignores the signal. A pending signal
    // was not taken.
    const bool held = now.blocks && now.pending;
    const bool blocked = now.blocks || (slot.blocks_term && !now.ignores);
    signals.handles = slot.catches_term || now.catches || (blocked && !held);
    signals.ignores = now.ignores || held;
  }
  return is_own_end(signals, {exited, status});
}

}  // namespace wflow::workers
