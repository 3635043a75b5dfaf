// SPDX-License-Identifier: Apache-2.0
// Many nodes in one process: the agent's own machine (workers/agent/machine.h) and a real connection for
// each, but no processes: a task is a timer.
//   wflow_simulated_cluster CAMPAIGN NODES SLOTS TASK_S
// Tasks last TASK_S, more or less by a fifth. A line of JSON once a second: how many nodes the coordinator
// has let in, how many run tasks on all of their slots, what has ended and was sent, and the CPU time so far.
// Runs until it is killed. A connection takes four open files: start several of these for more nodes than a
// limit of files allows.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/program_file.h"
#include "base/random.h"
#include "base/text.h"
#include "engine/wire/transport.h"
#include "workers/agent/machine.h"

namespace {

namespace wire = wflow::engine::wire;
namespace workers = wflow::workers;
using wflow::steady_now_s;
using wflow::unix_now_s;

struct Options {
  std::filesystem::path campaign;
  std::size_t nodes = 0, slots = 0;
  double task_s = 1;
};

struct Ending {
  double at_s = 0;
  std::size_t node = 0;
  workers::SlotId slot = 0;
  std::uint64_t number = 0;
  bool operator>(const Ending& other) const { return at_s > other.at_s; }
};
using Endings = std::priority_queue<Ending, std::vector<Ending>, std::greater<>>;

constexpr std::size_t kConnecting = 200;

// The bytes of one message in so many are counted.
constexpr std::uint64_t kSample = 16;

struct Counts {
  std::uint64_t tasks = 0, sent = 0, received = 0;
  std::uint64_t bytes = 0;     // of messages both ways, without what encryption adds; estimated from a sample
  std::size_t connecting = 0;  // nodes that were not let in yet
};

class Node {
 public:
  Node(const Options& options, std::size_t number, const wire::CampaignKeys& keys,
       const wire::Endpoint& endpoint, wire::ClientContext& context, Endings& endings, Counts& counts)
      : options_(options),
        number_(number),
        keys_(keys),
        endpoint_(endpoint),
        context_(context),
        endings_(endings),
        counts_(counts),
        running_(options.slots),
        machine_(agent_options(options, number, keys), now()) {}

  // Takes what has come from the coordinator, and does what is due.
  void turn() {
    if (waits_ && counts_.connecting < kConnecting) look_up();
    for (; socket_; ++counts_.received) {
      auto message = socket_->receive();
      if (!message) break;
      if (counts_.received % kSample == 0) counts_.bytes += kSample * wire::encode(*message).size();
      if (!welcome_ && std::holds_alternative<wire::Welcome>(*message)) {
        welcome_ = true;
        --counts_.connecting;
      }
      give(workers::event::Message{std::move(*message)});
    }
    if (socket_ && socket_->lost()) {
      lose_socket();
      give(workers::event::ConnectionLost{});
    }
    if (changed_ || wake_s_ <= steady_now_s()) settle();
  }

  // The next tasks start, results go out.
  void settle() {
    constexpr int kTurns = 4;  // not all tasks start in one
    int turns = 0;
    do {
      give(workers::event::Time{});
      changed_ = false;
      wake_s_ = machine_.wake_at_s();  // goes through all slots
    } while (wake_s_ <= steady_now_s() && ++turns < kTurns);
  }

  void end(workers::SlotId slot, std::uint64_t number) {
    Task& task = running_[slot];
    if (!task.runs || task.number != number) return;
    task.runs = false;
    ++counts_.tasks;
    const double duration_s = steady_now_s() - task.started_s;
    workers::event::TaskEnded ended{slot, {}, {}};
    const wire::Lease& lease = task.lease;
    ended.results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, duration_s,
                                  duration_s * duration_s, unix_now_s()});
    ended.results.usage.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt,
                                   unix_now_s() - duration_s, duration_s, 0.9 * duration_s,
                                   (100U << 20) + 4096 * (lease.first % 1000), 1U << 20, 2U << 20});
    give(std::move(ended));
  }

  void settle_ends() {
    if (changed_) settle();
  }

  bool is_full() const { return machine_.running() == options_.slots; }
  bool is_welcome() const { return welcome_; }

 private:
  void lose_socket() {
    if (!std::exchange(welcome_, false)) --counts_.connecting;
    socket_.reset();
  }

  struct Task {
    bool runs = false;
    std::uint64_t number = 0;
    double started_s = 0;
    wire::Lease lease;
  };

  static wflow::Now now() { return {steady_now_s(), unix_now_s()}; }

  static workers::AgentOptions agent_options(const Options& options, std::size_t number,
                                             const wire::CampaignKeys& keys) {
    workers::AgentOptions agent;
    agent.worker = fmt::format("simulated-{}-{}", ::getpid(), number);
    agent.group = "default";
    agent.campaign_token = keys.token;
    agent.version = wflow::kVersion;
    agent.guardian = {fmt::format("node{}", number), "boot", "pid", 10, 10};
    agent.agent = {fmt::format("node{}", number), "boot", "pid", 11, 11};
    agent.slots = options.slots;
    agent.capacity.cores = static_cast<int>(options.slots);
    return agent;
  }

  void give(workers::AgentEvent event) {
    changed_ = true;
    pending_.push_back(std::move(event));
    while (!pending_.empty()) {
      workers::AgentEvent next = std::move(pending_.front());
      pending_.pop_front();
      machine_.handle(now(), std::move(next));
      for (workers::AgentAction& action : machine_.take_actions())
        std::visit([this](auto& value) { perform(value); }, action);
    }
  }

  // Their handshakes take this process's time: a few at once, the others wait for their turn.
  void perform(workers::action::LookUp&) {
    waits_ = counts_.connecting >= kConnecting;
    if (!waits_) pending_.emplace_back(found());
  }
  void look_up() {
    waits_ = false;
    give(found());
  }
  workers::event::EndpointRead found() const {
    const wire::Endpoint& at = endpoint_;
    return {workers::CoordinatorAddress{at.local, at.remote, at.host, at.pid, at.epoch, at.others}};
  }
  void perform(workers::action::Connect& connect) {
    const workers::CoordinatorAddress& at = connect.address;
    if (!socket_) ++counts_.connecting;
    // By TCP, as from another host.
    socket_.emplace(keys_, wire::Endpoint{"", at.remote, "", at.pid, at.epoch, at.others}, context_);
    pending_.emplace_back(workers::event::Connected{});
  }
  void perform(workers::action::Send& send) {
    if (counts_.sent++ % kSample == 0) counts_.bytes += kSample * wire::encode(send.message).size();
    if (!socket_ || socket_->send(send.message)) return;
    lose_socket();
    pending_.emplace_back(workers::event::ConnectionLost{});
  }
  void perform(workers::action::StartTask& start) {
    Task& task = running_[start.slot];
    task = {true, ++started_, steady_now_s(), start.lease};
    const double part = 0.8 + 0.4 * static_cast<double>(wflow::hash64(number_, started_) % 1000) / 1000;
    endings_.push({task.started_s + part * options_.task_s, number_, start.slot, task.number});
    pending_.emplace_back(workers::event::TaskStarted{start.slot});
  }
  void perform(workers::action::EndTask& end) {
    running_[end.slot].runs = false;
    pending_.emplace_back(workers::event::TaskEnded{end.slot, {}, {}});
  }
  void perform(workers::action::OpenSamples&) { pending_.emplace_back(workers::event::SamplesOpened{}); }
  void perform(workers::action::Exit& exit) {
    throw wflow::Error(wflow::ExitCode::system, fmt::format("a node ends with {}", exit.code));
  }
  template <class Action>
  void perform(Action&) {}  // journals, fences, events, logs

  const Options& options_;
  std::size_t number_;
  const wire::CampaignKeys& keys_;
  const wire::Endpoint& endpoint_;
  wire::ClientContext& context_;
  Endings& endings_;
  Counts& counts_;
  std::vector<Task> running_;
  std::uint64_t started_ = 0;
  workers::AgentMachine machine_;
  std::optional<wire::ClientSocket> socket_;
  std::deque<workers::AgentEvent> pending_;
  bool changed_ = true, welcome_ = false;
  bool waits_ = false;  // to connect
  double wake_s_ = 0;
};

double own_cpu_s() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

using Nodes = std::vector<std::unique_ptr<Node>>;

void report(const Nodes& nodes, const Counts& counts) {
  const auto number_of = [&](bool (Node::*is)() const) {
    return std::ranges::count_if(nodes, [is](const auto& node) { return ((*node).*is)(); });
  };
  fmt::print(
      R"({{"welcome": {}, "full": {}, "tasks": {}, "sent": {}, "received": {}, "bytes": {}, "cpu_s": {:.3f}}})"
      "\n",
      number_of(&Node::is_welcome), number_of(&Node::is_full), counts.tasks, counts.sent, counts.received,
      counts.bytes, own_cpu_s());
  std::fflush(stdout);
}

[[noreturn]] void simulate(const Options& options) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const wire::CampaignKeys keys = wire::read_keys(options.campaign);
  const auto endpoint = wire::read_endpoint(options.campaign);
  if (!endpoint) throw wflow::Error(wflow::ExitCode::usage, "no coordinator runs this campaign");
  wire::ClientContext context;
  Endings endings;
  Counts counts;
  Nodes nodes;
  for (std::size_t i = 0; i < options.nodes; ++i)
    nodes.push_back(std::make_unique<Node>(options, i, keys, *endpoint, context, endings, counts));
  // A look at a socket without a message is a system call or two, thousands of which take most of a core.
  constexpr auto kTick = std::chrono::milliseconds(5);
  const double look_s = 1e-4 * static_cast<double>(std::clamp<std::size_t>(options.nodes, 50, 2500));
  std::vector<std::size_t> ended;
  for (double report_s = 0, next_look_s = 0;;) {
    const auto next = std::chrono::steady_clock::now() + kTick;
    while (!endings.empty() && endings.top().at_s <= steady_now_s()) {
      const Ending ending = endings.top();
      endings.pop();
      nodes[ending.node]->end(ending.slot, ending.number);
      ended.push_back(ending.node);
    }
    for (const std::size_t node : std::exchange(ended, {})) nodes[node]->settle_ends();
    if (steady_now_s() >= next_look_s) {
      next_look_s = steady_now_s() + look_s;
      for (const auto& node : nodes) node->turn();
    }
    if (steady_now_s() >= report_s) {
      report(nodes, counts);
      report_s = steady_now_s() + 1;
    }
    std::this_thread::sleep_until(next);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i) { return i < argc ? wflow::text::to_real(argv[i]) : std::nullopt; };
  const auto nodes = number(2), slots = number(3), task_s = number(4);
  if (argc != 5 || !nodes || !slots || !task_s || *nodes < 1 || *slots < 1) {
    fmt::print(stderr, "usage: wflow_simulated_cluster CAMPAIGN NODES SLOTS TASK_S\n");
    return 2;
  }
  try {
    simulate({argv[1], static_cast<std::size_t>(*nodes), static_cast<std::size_t>(*slots), *task_s});
  } catch (const wflow::Error& error) {
    fmt::print(stderr, "wflow_simulated_cluster: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
