// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/executor.h"

#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "steps/environment.h"
#include "workers/execute/process_tree.h"

namespace wflow::workers {

Executor::Executor(SlotTable& table, const Capacity& capacity, const std::filesystem::path& directory)
    : slots_(table.slots(), directory),
      arrays_(capacity.cores),
      starter_(arrays_, slots_, launcher_, DeviceNames(capacity)),
      supervisor_(arrays_, slots_),
      finisher_(arrays_, slots_, supervisor_, launcher_, disk_) {}

void Executor::set_samples(std::unique_ptr<const specs::SampleTable> samples) {
  arrays_.set_samples(std::move(samples));
}

void Executor::add_template(specs::TaskTemplate task_template) {
  arrays_.add(std::move(task_template));
}

AgentEvent Executor::start(const action::StartTask& start) {
  slots_.tasks[start.slot] = {};
  slots_.tasks[start.slot].lease = start.lease;
  slots_.tasks[start.slot].share = start.share;
  try {
    disk_.check();
    if (auto done = starter_.find_finished(start.slot)) return std::move(*done);
    starter_.start(start.slot);
  } catch (const Error& error) {
    return event::TaskNotStarted{start.slot, printable(error.what()), is_disk_trouble(error)};
  }
  supervisor_.watch(start.slot);
  return event::TaskStarted{start.slot};
}

void Executor::end(const action::EndTask& end) {
  supervisor_.end(end.slot, end.cause, end.kill);
}

void Executor::interrupt(SlotId slot) {
  supervisor_.interrupt(slot);
}

void Executor::end_ranks(const action::EndRanks& end) {
  const std::array<std::string, 2> variables = {steps::lease_variable(end.lease),
                                                "WFLOW_CAMPAIGN=" + end.campaign};
  std::vector<pid_t> all;
  for (const Process& process : all_processes()) all.push_back(process.pid);
  const std::vector<pid_t> ranks = started_with(all, variables);
  for (const pid_t pid : ranks) ::kill(pid, SIGKILL);
  if (!ranks.empty())
    log::write(LogLevel::info, fmt::format("{} processes of lease {} killed", ranks.size(), end.lease));
}

std::vector<event::TaskReports> Executor::follow_events() {
  finisher_.mark_again();
  return supervisor_.follow_events();
}

void Executor::reported(SlotId slot) {
  slots_.records[slot].events_read = slots_.tasks[slot].events.offset;
}

std::optional<Executor::Ended> Executor::next_ended() {
  const auto child = supervisor_.next_ended();
  if (!child) return std::nullopt;
  Ended ended{*child, {}, false};
  if (child->slot) {
    ended.events = finisher_.finish(*child);
    ended.over = std::holds_alternative<event::TaskEnded>(ended.events.back());
  }
  return ended;
}

void Executor::release(const Ended& ended) {
  if (ended.over) finisher_.clear(*ended.child.slot);
  Supervisor::reap(ended.child);
}

void Executor::kill_everything() {
  finisher_.mark_again();
  if (!supervisor_.kill_everything(std::chrono::seconds(10)))
    log::write(LogLevel::warning, "a process could not be killed");
}

}  // namespace wflow::workers
