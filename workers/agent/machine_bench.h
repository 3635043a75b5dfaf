// SPDX-License-Identifier: Apache-2.0
// For machine_test.cc: an agent machine with virtual time. The test plays the coordinator.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "workers/agent/machine.h"

namespace wflow::workers {

class MachineBench {
 public:
  static AgentOptions options(std::size_t slots = 2) {
    AgentOptions options;
    options.worker = "w";
    options.slots = slots;
    options.capacity.cores = static_cast<int>(slots);
    options.grace_s = 5;
    return options;
  }
  explicit MachineBench(AgentOptions given = options()) : machine(std::move(given), {now_s, kUnix + now_s}) {}

  void give(AgentEvent event) {
    machine.handle({now_s, kUnix + now_s}, std::move(event));
    for (AgentAction& action : machine.take_actions()) actions.push_back(std::move(action));
  }
  void hear(engine::wire::Message message) { give(event::Message{std::move(message)}); }
  void turn() { give(event::Time{}); }
  // Lets time pass, with a turn whenever the machine asks for one. Returns false if it asks without end.
  bool pass_until(double until_s) {
    for (int turns = 0; turns < 100'000; ++turns) {
      const double at_s = machine.wake_at_s();
      if (at_s > until_s) {
        now_s = until_s;
        return true;
      }
      now_s = std::max(now_s, at_s);
      turn();
    }
    return false;
  }

  // Connects: the machine gets a Welcome and the answer to its first heartbeat.
  void join(double lost_s = 60, std::uint64_t epoch = 1) {
    give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, epoch}});
    give(event::Connected{});
    hear(engine::wire::Welcome{"/c", {}, 1, lost_s});
    turn();
    answer();
    specs::TaskTemplate task;
    task.array = 1;
    hear(engine::wire::Templates{{task}});
  }
  // Answers the last heartbeat.
  void answer() {
    if (const auto* beat = last<engine::wire::Heartbeat>()) hear(engine::wire::Pulse{beat->number});
  }
  static engine::wire::Lease lease(engine::wire::LeaseId id, specs::Element first, std::uint64_t count) {
    return {id, 1, first, count};
  }
  std::vector<std::string> errors() const {
    std::vector<std::string> texts;
    for (const auto& line : all<action::Log>()) {
      if (line.level == LogLevel::error) texts.push_back(line.text);
    }
    return texts;
  }
  // Leases `count` elements, and reports every started task as running.
  void run_tasks(std::uint64_t count, engine::wire::LeaseId id = 7) {
    hear(engine::wire::Leases{{lease(id, 0, count)}});
    turn();
    start_all();
  }
  void start_all() {
    for (const auto& start : take<action::StartTask>()) give(event::TaskStarted{start.slot});
  }
  static event::TaskEnded well(SlotId slot, const engine::wire::Lease& lease) {
    event::TaskEnded ended{slot, {}, {}};
    ended.results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, 1, 1, 0});
    return ended;
  }
  static event::TaskEnded without_result(SlotId slot) { return {slot, {}, {}}; }

  // Returns the actions of one kind so far; take() also removes them.
  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const AgentAction& action : actions) {
      if (const auto* value = std::get_if<T>(&action)) found.push_back(*value);
    }
    return found;
  }
  template <class T>
  std::vector<T> take() {
    auto found = all<T>();
    std::erase_if(actions, [](const AgentAction& action) { return std::holds_alternative<T>(action); });
    return found;
  }
  template <class T>
  std::vector<T> sent() const {
    std::vector<T> found;
    for (const auto& send : all<action::Send>()) {
      if (const auto* value = std::get_if<T>(&send.message)) found.push_back(*value);
    }
    return found;
  }
  template <class T>
  const T* last() const {
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
      const auto* send = std::get_if<action::Send>(&*action);
      if (send != nullptr && std::holds_alternative<T>(send->message)) return &std::get<T>(send->message);
    }
    return nullptr;
  }
  std::uint64_t returned() const {
    std::uint64_t count = 0;
    for (const auto& message : sent<engine::wire::Returned>()) {
      for (const auto& part : message.leases) count += part.count;
    }
    return count;
  }

  static constexpr double kUnix = 1.7e9;
  double now_s = 1000;
  AgentMachine machine;
  std::vector<AgentAction> actions;
};

}  // namespace wflow::workers
