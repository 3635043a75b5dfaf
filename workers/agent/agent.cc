// SPDX-License-Identifier: Apache-2.0
// The edge of the agent: turns sockets, signals, children and the journal into events of the machine, and
// carries out its actions. The machine decides what to do and when (machine.h).
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/program_file.h"
#include "engine/wire/transport.h"
#include "specs/samples/samples.h"
#include "workers/agent/machine.h"
#include "workers/agent/worker_processes.h"
#include "workers/execute/executor.h"
#include "workers/execute/host.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

constexpr int kMessagesATurn = 1000;
constexpr double kLongestWait_s = 1;

Now current_time() {
  return {steady_now_s(), unix_now_s()};
}

AgentOptions machine_options(const WorkerOptions& options, const Identity& identity,
                             const Capacity& capacity) {
  AgentOptions result;
  result.worker = identity.worker;
  result.group = options.group;
  result.campaign_token = identity.keys.token;
  result.version = kVersion;
  result.guardian = identity.guardian;
  result.agent = own_identity();
  result.started_by = options.started_by;
  result.slots = static_cast<std::size_t>(options.slots);
  result.capacity = capacity;
  result.allocation = options.allocation;
  result.node = options.node;
  result.incarnation = options.incarnation;
  result.idle_timeout_s = options.idle_timeout_s;
  result.linger_s = options.linger_s;
  result.grace_s = options.grace_s;
  result.trace = log::takes(LogLevel::trace);
  result.complete = options.complete;
  return result;
}

class Agent {
 public:
  Agent(const WorkerOptions& options, const Identity& identity, const Capacity& capacity, const EndWatch& end,
        SlotTable& table, Journal& journal)
      : campaign_(options.campaign),
        identity_(identity),
        keys_(identity.keys),
        end_(end),
        table_(table),
        journal_(journal),
        executor_(table, capacity, identity.directory),
        machine_(machine_options(options, identity, capacity), current_time()) {
    table_.set_open_sequence(machine_.open_sequence());
    wire::JournalHeader header = journal_.header();
    header.agent = own_identity();
    journal_.set_header(header);
    open_signals();
  }

  int run() {
    while (!exit_code_) {
      receive();
      read_signals();
      look_at_end();
      if (!machine_.journal_full()) take_ended();
      deliver(event::Time{});
      if (!exit_code_) wait();
    }
    executor_.kill_everything();
    return *exit_code_;
  }

 private:
  // ---- events

  void deliver(AgentEvent event) {
    pending_.push_back(std::move(event));
    while (!pending_.empty() && !exit_code_) {
      AgentEvent next = std::move(pending_.front());
      pending_.pop_front();
      const auto* reports = std::get_if<event::TaskReports>(&next);
      const bool is_report = reports != nullptr;
      const SlotId reported = is_report ? reports->slot : 0;
      machine_.handle(current_time(), std::move(next));
      for (AgentAction& action : machine_.take_actions()) {
        std::visit([this](auto& value) { perform(value); }, action);
      }
      table_.set_open_sequence(machine_.open_sequence());
      if (is_report) executor_.reported(reported);
    }
  }

  void receive() {
    for (int count = 0; socket_ && count < kMessagesATurn; ++count) {
      auto message = socket_->receive();
      if (!message) break;
      heard_ = true;
      deliver(event::Message{std::move(*message)});
    }
    if (socket_ && socket_->lost()) lose_connection();
  }

  // If no message came back, the next attempt uses another of the coordinator's addresses.
  void lose_connection() {
    if (!heard_) ++attempts_;
    socket_.reset();
    pending_.emplace_back(event::ConnectionLost{});
  }

  void take_ended() {
    while (auto ended = executor_.next_ended()) {
      for (AgentEvent& event : ended->events) deliver(std::move(event));
      executor_.release(*ended);
    }
  }

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
      for (std::size_t i = 0; i < count; ++i) take_signal(static_cast<int>(infos[i].ssi_signo));
      if (count < infos.size()) return;
    }
  }

  void take_signal(int number) {
    if (number == SIGTERM || number == SIGINT || number == SIGHUP) deliver(event::Terminate{});
    // The kernel sends SIGUSR2 when the guardian dies. No process would then clean up after this one.
    if (number == SIGUSR2 && ::getppid() != identity_.guardian.pid) {
      take_ended();
      deliver(event::GuardianGone{});
    }
  }

  // Converts the end to the steady clock, because the wall clock may jump.
  void look_at_end() {
    const double ends_unix_s = end_.ends_unix_s();
    if (ends_unix_s == known_end_unix_s_) return;
    known_end_unix_s_ = ends_unix_s;
    const Now now = current_time();
    deliver(event::EndKnown{now.steady_s + ends_unix_s - now.unix_s});
  }

  // ---- actions

  void perform(action::LookUp&) {
    std::error_code error;
    if (!std::filesystem::exists(campaign_ / ".wflow", error) && !error) {
      pending_.emplace_back(event::CampaignGone{});
      return;
    }
    event::EndpointRead read;
    try {
      keys_ = wire::read_keys(campaign_);  // a coordinator may have renewed them
      if (const auto found = wire::read_endpoint(campaign_))
        read.address = {found->local, found->remote, found->host, found->pid, found->epoch, found->others};
    } catch (const Error&) {
      // The file system does not answer at the moment.
    }
    pending_.emplace_back(std::move(read));
  }

  void perform(action::Connect& connect) {
    const CoordinatorAddress& address = connect.address;
    socket_.reset();
    try {
      const wire::Endpoint endpoint{address.local, address.remote, address.host,
                                    address.pid,   address.epoch,  address.others};
      socket_.emplace(keys_, wire::attempt(endpoint, attempts_));
      heard_ = false;
      pending_.emplace_back(event::Connected{});
    } catch (const Error&) {
      // The host name cannot be resolved at the moment.
      ++attempts_;
      pending_.emplace_back(event::ConnectionLost{});
    }
  }

  // A message that cannot be sent is not lost: the worker repeats its contents after the next Hello.
  void perform(action::Send& send) {
    if (journal_unseen_ && std::holds_alternative<wire::Goodbye>(send.message)) return;
    if (socket_ && !socket_->send(send.message)) lose_connection();
  }

  void perform(action::AppendJournal& append) {
    try {
      journal_.append(append.record);
    } catch (const Error& error) {
      pending_.emplace_back(event::JournalFailed{error.what(), std::move(append.record)});
    }
  }

  void perform(action::ClearJournal&) {
    try {
      journal_.clear();
    } catch (const Error& error) {
      pending_.emplace_back(event::JournalFailed{error.what(), std::nullopt});
    }
  }

  void perform(action::SyncJournal&) {
    try {
      journal_.sync();
    } catch (const Error& error) {
      log::write(LogLevel::warning, error.what());
      journal_unseen_ = true;
    }
  }

  void perform(action::NoteLost& note) {
    wire::JournalHeader header = journal_.header();
    header.lost_s = note.lost_s;
    try {
      journal_.set_header(header);
    } catch (const Error& error) {
      pending_.emplace_back(event::JournalFailed{error.what(), std::nullopt});
    }
  }

  void perform(action::OpenSamples& open) {
    event::SamplesOpened opened;
    try {
      executor_.set_samples(specs::open_samples(open.design));
    } catch (const std::exception& error) {
      opened.error = error.what();
    }
    pending_.emplace_back(std::move(opened));
  }

  void perform(action::AddTemplate& add) { executor_.add_template(std::move(add.task_template)); }
  void perform(action::StartTask& start) { pending_.push_back(executor_.start(start)); }
  void perform(action::EndTask& end) { executor_.end(end); }
  void perform(action::EndRanks& end) { executor_.end_ranks(end); }
  void perform(action::InterruptTask& interrupt) { executor_.interrupt(interrupt.slot); }
  void perform(action::FollowEvents&) {
    for (event::TaskReports& reports : executor_.follow_events()) pending_.emplace_back(std::move(reports));
    for (const event::TaskSilent& silent : executor_.silent_tasks()) pending_.emplace_back(silent);
    if (event::TaskMemory memory = executor_.sample_memory(); !memory.held.empty())
      pending_.emplace_back(std::move(memory));
  }
  void perform(action::SetFence& fence) { table_.set_fence(fence.steady_s); }
  void perform(action::Exit& exit) { exit_code_ = exit.code; }
  void perform(action::Log& log) { log::write(log.level, log.text); }

  void wait() {
    const double left_s = std::clamp(machine_.wake_at_s() - steady_now_s(), 0.0, kLongestWait_s);
    const std::chrono::milliseconds left(static_cast<int>(std::ceil(1000 * left_s)));
    const int fd = signals_.get();
    if (socket_) {
      socket_->wait(left, {&fd, 1});
    } else {
      pollfd poll{fd, POLLIN, 0};
      ::poll(&poll, 1, static_cast<int>(left.count()));
    }
  }

  std::filesystem::path campaign_;
  const Identity& identity_;
  wire::CampaignKeys keys_;
  const EndWatch& end_;
  double known_end_unix_s_ = 0;
  SlotTable& table_;
  Journal& journal_;
  Executor executor_;
  AgentMachine machine_;
  FileDescriptor signals_;
  std::optional<wire::ClientSocket> socket_;
  bool journal_unseen_ = false;  // other hosts may not see all of the journal
  std::size_t attempts_ = 0;     // counts the attempts to connect; chooses the address
  bool heard_ = false;           // this connection has delivered a message
  std::deque<AgentEvent> pending_;
  std::optional<int> exit_code_;
};

// Tasks inherit the ignored signals, and the launcher needs a process without signal handlers.
void default_signals() {
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &defaults, nullptr);
}

}  // namespace

int run_agent(const WorkerOptions& options, const Identity& identity, const Capacity& capacity,
              const EndWatch& end, SlotTable& table, Journal& journal) {
  ::prctl(PR_SET_PDEATHSIG, SIGUSR2);
  if (::getppid() != identity.guardian.pid) return static_cast<int>(ExitCode::internal);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  default_signals();
  // Tasks must not inherit descriptors that the starter of the worker left open.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  check_limits();
  const FileDescriptor null = open_file("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null.get(), STDIN_FILENO);
  return Agent(options, identity, capacity, end, table, journal).run();
}

}  // namespace wflow::workers
