// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "specs/samples/samples.h"
#include "workers/agent/agent_process.h"
#include "workers/agent/connection.h"
#include "workers/agent/outbox.h"
#include "workers/execute/executor.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr std::chrono::milliseconds kEventPeriod{200};
constexpr std::chrono::seconds kFarewell{3};  // for the last acknowledgement
// Beyond it the agent waits with taking further ends until the coordinator has committed those that it knows,
// and empties the journal: some milliseconds once in about 100,000 tasks.
constexpr std::uint64_t kJournalBytes = 8 << 20;
constexpr int kMessagesATurn = 1000;

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

enum class Mode : std::uint8_t {
  working,
  draining,  // finishes what runs, takes nothing new
  ending,    // told by a signal: what ran was killed
};

class Agent {
 public:
  Agent(const WorkerOptions& options, const Identity& identity, SlotTable& table, Journal& journal)
      : options_(options),
        identity_(identity),
        table_(table),
        journal_(journal),
        executor_(options, table, journal, outbox_, identity.directory),
        connection_(options.campaign, identity.keys, Clock::now()),
        last_busy_(Clock::now()) {
    open_signals();
  }

  int run() {
    while (!exit_code_) {
      now_ = Clock::now();
      if (connection_.renew(now_)) say_hello();
      receive();
      read_signals();
      if (exit_code_) break;
      work();
      send_results();
      send_heartbeat();
      decide_end();
      if (!exit_code_) wait();
    }
    executor_.kill_everything();
    return *exit_code_;
  }

 private:
  void open_signals() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR2}) ::sigaddset(&signals, number);
    signals_ = FileDescriptor(::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!signals_) throw system_error(errno, "cannot wait for signals");
  }

  void read_signals() {
    std::array<signalfd_siginfo, 16> infos{};
    while (true) {
      const ssize_t got = ::read(signals_.get(), infos.data(), sizeof infos);
      if (got <= 0) return;
      const std::size_t count = static_cast<std::size_t>(got) / sizeof(signalfd_siginfo);
      for (std::size_t i = 0; i < count; ++i) {
        const auto number = static_cast<int>(infos[i].ssi_signo);
        if (number == SIGTERM || number == SIGINT || number == SIGHUP) end_quickly();
        // The kernel says that the guardian has died: without it nobody would clean up after this process.
        if (number == SIGUSR2 && ::getppid() != identity_.guardian)
          exit_code_ = static_cast<int>(ExitCode::internal);
      }
      if (count < infos.size()) return;
    }
  }

  void end_quickly() {
    if (mode_ == Mode::ending) return;
    begin_end(Mode::ending);
    std::vector<wire::Lease> leases = executor_.queue().take({});
    for (const wire::Lease& lease : executor_.give_back_running(now_)) leases.push_back(lease);
    connection_.send(wire::Returned{std::move(leases)});
  }

  void begin_end(Mode mode) {
    mode_ = mode;
    reason_ = mode == Mode::ending ? "told to end by a signal" : "drained";
  }

  // ---- messages

  void say_hello() {
    wire::Hello hello;
    hello.version = kVersion;
    hello.campaign = identity_.keys.token;
    hello.worker = identity_.worker;
    hello.host = identity_.host;
    hello.group = options_.group;
    hello.pid = identity_.guardian;
    hello.cores = options_.cores;
    hello.gpus = options_.gpus;
    hello.memory_bytes = options_.memory_bytes;
    hello.held = executor_.held();
    connection_.send(hello);
  }

  void receive() {
    for (int count = 0; count < kMessagesATurn; ++count) {
      auto message = connection_.receive(now_);
      if (!message) return;
      std::visit([this](auto& value) { handle(value); }, *message);
      if (exit_code_) return;
    }
  }

  template <class T>
  void handle(T&) {}  // what a coordinator does not say

  void handle(wire::Welcome& welcome) {
    connection_.set_heartbeat(seconds(welcome.heartbeat_s));
    heartbeat_ = seconds(welcome.heartbeat_s);
    lost_after_ = seconds(welcome.lost_s);
    if (!welcome.sample_design.empty() && welcome.sample_design != sample_design_)
      open_samples(welcome.sample_design);
    connection_.set_welcome();
    outbox_.resend_all();
    next_heartbeat_ = now_;
    if (mode_ == Mode::working) return;
    connection_.send(wire::Returned{});
  }

  void open_samples(const std::string& design) {
    try {
      executor_.set_samples(specs::open_samples(specs::design_from_json(nlohmann::json::parse(design))));
      sample_design_ = design;
    } catch (const std::exception& error) {
      fail(ExitCode::data, fmt::format("cannot read the campaign's samples: {}", error.what()));
    }
  }

  void handle(wire::Refuse& refuse) {
    fmt::print(stderr, "wflow worker: the coordinator refused this worker: {}\n", refuse.reason);
    exit_code_ = static_cast<int>(ExitCode::usage);
  }

  void handle(wire::Templates& templates) {
    for (specs::TaskTemplate& task_template : templates.templates)
      executor_.add_template(std::move(task_template));
  }

  void handle(wire::Leases& leases) {
    if (mode_ != Mode::working) {
      connection_.send(wire::Returned{std::move(leases.leases)});
      return;
    }
    for (const wire::Lease& lease : leases.leases) executor_.add_lease(lease, now_);
  }

  void handle(wire::Acknowledge& acknowledge) {
    outbox_.acknowledge(acknowledge.sequence);
    if (outbox_.all_acknowledged()) journal_.clear();
  }

  void handle(wire::Revoke& revoke) {
    wire::Returned returned{executor_.queue().take(revoke.leases)};
    if (revoke.kill_running) executor_.cancel(revoke.leases, now_);
    connection_.send(returned);
  }

  void handle(wire::Drain&) {
    if (mode_ == Mode::working) {
      begin_end(Mode::draining);
      executor_.interrupt_trainings();
    }
    connection_.send(wire::Returned{executor_.queue().take({})});
  }

  // ---- tasks

  bool may_start() const { return mode_ == Mode::working && now_ - connection_.last_heard() < lost_after_; }

  void work() {
    journal_full_ = journal_.size() > kJournalBytes && connection_.welcome();
    if (!journal_full_) executor_.reap(now_);
    executor_.enforce_limits(now_);
    if (now_ >= next_events_ && executor_.running() > 0 && !journal_full_) {
      executor_.follow_events(now_);
      next_events_ = now_ + kEventPeriod;
    }
    more_to_start_ = may_start() && executor_.start_ready(now_);
    if (executor_.running() > 0 || !executor_.queue().empty() || !outbox_.all_acknowledged())
      last_busy_ = now_;
  }

  void send_results() {
    const bool welcome = connection_.welcome();
    const bool at_once = executor_.queue().empty() || journal_full_ || outbox_.full();
    if (!outbox_.empty() && (outbox_.full() || (welcome && (at_once || now_ >= outbox_.due())))) {
      outbox_.seal();
      table_.set_open_sequence(outbox_.sequence());
    }
    if (!welcome) return;
    while (const wire::Results* batch = outbox_.next_to_send()) {
      if (!connection_.send(*batch)) return;
      outbox_.sent();
    }
  }

  // The first one after a Welcome follows all results from before: it ends the hand-over.
  void send_heartbeat() {
    if (!connection_.welcome() || now_ < next_heartbeat_) return;
    connection_.send(wire::Heartbeat{executor_.queue().elements(), executor_.running_elements()});
    next_heartbeat_ = now_ + heartbeat_;
  }

  // ---- end

  void decide_end() {
    if (executor_.running() > 0) return;
    if (mode_ != Mode::working) {
      if (farewell_ == Time::max()) farewell_ = now_ + kFarewell;
      if (outbox_.all_acknowledged() || now_ >= farewell_ ||
          (mode_ == Mode::ending && !connection_.welcome()))
        leave();
      return;
    }
    const bool idle = executor_.queue().empty();
    if (idle && connection_.welcome() && options_.idle_timeout_s > 0 &&
        now_ - last_busy_ > seconds(options_.idle_timeout_s)) {
      reason_ = fmt::format("without work for {} s", options_.idle_timeout_s);
      leave();
    } else if ((idle || !may_start()) && connection_.silent(now_) &&
               now_ - connection_.last_heard() > seconds(options_.linger_s)) {
      fail(ExitCode::system,
           fmt::format("no coordinator for {} s; results that it does not have yet stay in the journal",
                       options_.linger_s));
    }
  }

  void leave() {
    connection_.send(wire::Goodbye{reason_});
    exit_code_ = static_cast<int>(ExitCode::ok);
  }

  void fail(ExitCode code, const std::string& sentence) {
    fmt::print(stderr, "wflow worker: {}\n", sentence);
    connection_.send(wire::Goodbye{sentence});
    exit_code_ = static_cast<int>(code);
  }

  void wait() {
    Time until = now_ + std::chrono::seconds(1);
    if (connection_.welcome()) {
      until = std::min(until, next_heartbeat_);
      if (!outbox_.empty()) until = std::min(until, outbox_.due());
    }
    if (executor_.running() > 0 && !journal_full_) until = std::min(until, next_events_);
    until = std::min({until, executor_.next_limit(), farewell_});
    if (more_to_start_) until = now_;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    const int fd = signals_.get();
    connection_.wait(std::max(left, std::chrono::milliseconds(0)), {&fd, 1});
  }

  const WorkerOptions& options_;
  const Identity& identity_;
  SlotTable& table_;
  Journal& journal_;
  Outbox outbox_;
  Executor executor_;
  Connection connection_;
  FileDescriptor signals_;
  std::string sample_design_;
  Clock::duration heartbeat_ = std::chrono::seconds(1);
  Clock::duration lost_after_ = std::chrono::seconds(60);
  Mode mode_ = Mode::working;
  std::string reason_;
  Time now_ = Clock::now();
  Time last_busy_;
  Time next_heartbeat_;
  Time next_events_;
  Time farewell_ = Time::max();
  bool journal_full_ = false;
  bool more_to_start_ = false;
  std::optional<int> exit_code_;
};

// Tasks inherit which signals are ignored; the launcher relies on there being no handlers.
void default_signals() {
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &defaults, nullptr);
}

}  // namespace

int run_agent(const WorkerOptions& options, const Identity& identity, SlotTable& table, Journal& journal) {
  ::prctl(PR_SET_PDEATHSIG, SIGUSR2);
  if (::getppid() != identity.guardian) return static_cast<int>(ExitCode::internal);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  default_signals();
  // What the worker's starter has left open is not for tasks.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  const FileDescriptor null = open_file("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null.get(), STDIN_FILENO);
  return Agent(options, identity, table, journal).run();
}

}  // namespace wflow::workers
