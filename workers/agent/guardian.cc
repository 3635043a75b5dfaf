// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/worker_processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/error.h"
#include "base/log.h"
#include "steps/files.h"
#include "workers/execute/event_tail.h"
#include "workers/execute/process_end.h"
#include "workers/execute/processes.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kKillLimit{10};
constexpr double kEndLimit_s = 10;    // after the grace of tasks, for an agent that has received SIGTERM
constexpr double kFenceMargin_s = 2;  // after the fence, for an agent that is only slow

// Waits for the end of the agent and passes on SIGTERM, SIGINT and SIGHUP. Kills an agent that does not end
// after such a signal, or that is frozen past its fence, when the coordinator may lease its tasks to others.
class AgentWatch {
 public:
  AgentWatch(pid_t agent, const WorkerOptions& options, const SlotTable& table)
      : groups_(options.campaign), agent_(agent), grace_s_(options.grace_s), table_(table) {}

  // True if this process has received a signal to end. The coordinator may not know of it.
  bool was_signalled() const { return end_s_ != kNever; }

  int wait() {
    while (true) {
      int status = 0;
      if (::waitpid(agent_, &status, WNOHANG) == agent_) return status;
      take_signal(next_signal());
      groups_.end_abandoned();
      if (steady_now_s() > end_s_) ::kill(agent_, SIGKILL);
      if (steady_now_s() > fence_end_s() && table_.runs_anything()) end_frozen();
    }
  }

 private:
  void end_frozen() {
    if (!reported_)
      log::write(LogLevel::warning, fmt::format("the agent (pid {}) did not end its tasks in time", agent_));
    reported_ = true;
    ::kill(agent_, SIGKILL);
  }

  double fence_end_s() const { return table_.fence_s() + kFenceMargin_s; }

  // Returns 0 if no signal came within a second.
  int next_signal() const {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, number);
    const timespec second{1, 0};
    return ::sigtimedwait(&signals, nullptr, &second);
  }

  void take_signal(int number) {
    if (number != SIGTERM && number != SIGINT && number != SIGHUP) return;
    const bool again = end_s_ != kNever;
    ::kill(agent_, again && number == SIGTERM ? SIGKILL : SIGTERM);
    if (!again) end_s_ = steady_now_s() + grace_s_ + kEndLimit_s;
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  const ControlGroups groups_;  // of this campaign on this host, also those of killed workers
  pid_t agent_;
  double grace_s_;
  const SlotTable& table_;
  double end_s_ = kNever;
  bool reported_ = false;
};

// Waits for the end of a task's leader; returns false if it hangs. All leaders have been killed, at the
// latest by the death of their agent: a leader with an exit code had ended before.
bool wait_for_leader(pid_t pid, siginfo_t& info, ProcessUsage& used) {
  const auto end = Clock::now() + kKillLimit;
  while (true) {
    const ChildState state = find_ended(P_PID, static_cast<id_t>(pid), info, used);
    if (state != ChildState::running) return state == ChildState::ended;
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void add_last_events(wire::Results& results, const SlotRecord& slot, const SlotFiles& files) {
  EventTail tail{slot.events_read};
  for (wire::EventBody& body : read_event_bodies(files.events(), tail, true)) {
    results.events.push_back({slot.array, slot.element, slot.attempt, unix_now_s(), std::move(body)});
  }
}

void pack(const SlotRecord& slot, SlotFiles& files, const Ending& ending, const std::string& worker) {
  if (slot.pack[0] == '\0') return;
  try {
    files.open_output();
    if (!files.printed()) return;
    steps::PackWriter writer(slot.pack.data(), worker);
    pack_output(slot, files, ending, unix_now_s(), writer);
  } catch (const Error& error) {
    log::write(LogLevel::warning, error.what());
  }
}

// True if the journal has the results of the slot's process. They are written all at once.
bool is_known(const SlotRecord& slot, const std::vector<wire::Results>& records) {
  const auto own = [&](wire::LeaseId lease, wire::ArrayId array, wire::Element first, std::uint64_t count) {
    return lease == slot.lease && array == slot.array && first < slot.element + slot.count &&
           slot.element < first + count;
  };
  for (const wire::Results& record : records) {
    for (const auto& run : record.done) {
      if (own(run.lease, run.array, run.first, run.count)) return true;
    }
    for (const auto& outcome : record.outcomes) {
      if (own(outcome.lease, outcome.array, outcome.element, 1)) return true;
    }
  }
  return false;
}

// Returns false if the slot's task ran when the agent was killed and has no result.
bool settle(SlotRecord& slot, SlotFiles files, const std::string& worker,
            const std::vector<wire::Results>& known, wire::Results& results) {
  const pid_t pid = slot.pid;
  if (pid <= 0) return true;
  ::kill(-pid, SIGKILL);
  siginfo_t info{};
  ProcessUsage used;
  if (!wait_for_leader(pid, info, used)) return false;
  // SIGKILL came from the agent, from the death of the agent, or from this function: a process with an exit
  // code had ended before.
  if (ended_by_itself(slot, true, pid, info.si_code, info.si_status)) {
    slot.killed = slot.returned = false;
  } else if (!slot.killed) {
    return false;  // the task runs again, and another worker may already use its directory
  }
  Ending ending = judge(slot, info.si_code, info.si_status);
  settle_place(slot, files, ending);
  // Its outputs have not been checked: it runs again.
  if (slot.checking || (slot.unchecked && ending.success)) return true;
  // An agent that was killed between writing a result and clearing its slot has left both.
  if (is_known(slot, known)) return true;
  if (ending.success) mark_finished(slot);
  add_last_events(results, slot, files);
  pack(slot, files, ending, worker);
  add_usage(results, slot, used, ending, steady_now_s());
  // Parts that should run again in smaller processes stay leased.
  add_ending(results, slot, files.events(), ending, {steady_now_s(), unix_now_s()});
  return true;
}

// `directory`: the worker's own directory, whose name is the worker's name. Adds tasks without a result to
// `running`.
void settle_all(SlotTable& table, Journal& journal, const std::filesystem::path& directory,
                std::vector<wire::RunningElement>& running) {
  const wire::Records known = journal.recover();
  if (known.damaged) log::write(LogLevel::warning, known.damaged.sentence());
  wire::Results results;
  results.sequence = table.open_sequence() + 1;
  for (std::size_t i = 0; i < table.slots().size(); ++i) {
    SlotRecord& slot = table.slots()[i];
    if (!settle(slot, SlotFiles(directory, i), directory.filename().string(), known.results, results))
      running.push_back({slot.array, slot.element, slot.started_unix_s});
  }
  if (!results.done.empty() || !results.outcomes.empty() || !results.events.empty()) {
    journal.append(results);
  }
}

// Removes the journal if the coordinator has released the worker and no result is left. Otherwise notes in it
// that no process is left: a coordinator on another host cannot look for the processes.
void close_journal(Journal& journal, bool none_left, bool let_go, std::vector<wire::RunningElement> running) {
  try {
    if (let_go && journal.empty()) return journal.remove();
    if (none_left) journal.mark_ended(std::move(running));
  } catch (const std::exception& error) {
    log::write(LogLevel::warning, error.what());
  }
}

}  // namespace

void block_signals() {
  sigset_t signals;
  ::sigfillset(&signals);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    ::sigdelset(&signals, number);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
}

int run_guardian(pid_t agent, const WorkerOptions& options, SlotTable& table, Journal& journal,
                 const std::filesystem::path& directory) {
  AgentWatch watch(agent, options, table);
  remove_left_mpi_sessions();  // left by workers that were killed with their guardians
  const int status = watch.wait();
  const bool ended_itself = WIFEXITED(status);
  if (!ended_itself) {
    log::write(LogLevel::warning,
               fmt::format("the agent (pid {}) was killed by signal {}; its tasks are ended", agent,
                           WTERMSIG(status)));
  }
  std::vector<wire::RunningElement> running;
  try {
    settle_all(table, journal, directory, running);
  } catch (const std::exception& error) {
    log::write(LogLevel::warning, error.what());
  }
  std::vector<pid_t> killed = descendants(::getpid());
  for (const SlotRecord& slot : table.slots()) killed.push_back(slot.pid);
  const bool none_left = kill_all_children(kKillLimit);
  remove_mpi_sessions(killed);
  if (!none_left) log::write(LogLevel::warning, "a process could not be killed");
  ControlGroups(options.campaign).end_abandoned();
  if (ended_itself) running.clear();  // the agent has ended its tasks
  close_journal(journal, none_left, ended_itself && WEXITSTATUS(status) == 0 && !watch.was_signalled(),
                std::move(running));
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return ended_itself ? WEXITSTATUS(status) : static_cast<int>(ExitCode::internal);
}

}  // namespace wflow::workers
