// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/executor.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "steps/files.h"
#include "steps/step.h"
#include "workers/execute/processes.h"

namespace wflow::workers {

namespace {

// The paths of a packed task must fit into the slot table.
void check_paths(const std::string& pack, const steps::PreparedTask& task) {
  if (!task.packed || std::max(pack.size(), task.directory.size()) < SlotRecord::kPathBytes) return;
  throw Error(
      ExitCode::system,
      fmt::format("{} is longer than the {} bytes that a step with 'output: packed' can have; use a shorter "
                  "OUTPUT_PATH or shorter labels",
                  task.directory, SlotRecord::kPathBytes - 1));
}

}  // namespace

Starter::Starter(TaskArrays& arrays, Slots& slots, Launcher& launcher, DeviceNames devices)
    : arrays_(arrays), slots_(slots), launcher_(launcher), devices_(std::move(devices)) {}

void Starter::start(std::size_t slot) {
  const engine::wire::Lease& lease = slots_.tasks[slot].lease;
  const steps::Step& step = arrays_.step_of(lease.array);
  const TaskArray& array = arrays_.at(lease.array);
  steps::Execution execution = slots_.tasks[slot].execution();
  steps::PreparedTask task = step.prepare(execution);
  try {
    start(slot, array, task);
  } catch (const ExecError&) {
    if (!task.direct) throw;
    // The shell reports what is wrong with the program, or can run it.
    execution.through_shell = true;
    task = step.prepare(execution);
    start(slot, array, task);
  }
}

// Finds the marker of an earlier execution that still counts, whose worker was lost before it reported the
// end.
std::optional<AgentEvent> Starter::find_finished(std::size_t slot) {
  const engine::wire::Lease& lease = slots_.tasks[slot].lease;
  if (lease.trust_from == 0 || lease.count != 1) return std::nullopt;
  const auto marker = steps::finished_marker(arrays_.at(lease.array).task_template, lease.first);
  const auto made_by = steps::sealed_by(marker.string());
  if (!made_by || *made_by < lease.trust_from) return std::nullopt;
  log::write(LogLevel::info, fmt::format("element {} of array {} is done: {} of an earlier execution says so",
                                         lease.first, lease.array, marker.string()));
  event::TaskEnded ended{slot, {}, {}};
  ended.results.done.push_back({lease.id, lease.array, lease.first, 1, lease.attempt, 0, 0, unix_now_s()});
  return ended;
}

void Starter::start(std::size_t slot, const TaskArray& array, steps::PreparedTask& task) {
  check_paths(array.pack, task);
  fill(slot, array, task);
  SlotFiles& files = slots_.files[slot];
  if (task.directory_on_demand) {
    task.directory = files.enter(task.directory);
  } else {
    steps::write_files(task, array.task_template.campaign);
  }
  if (task.packed) files.open_output();
  task.environment.push_back("WFLOW_EVENTS=" + files.events());
  task.environment.push_back("WFLOW_SLOT=" + std::to_string(slot + 1));
  const std::string& folder = task.starts_in.empty() ? task.directory : task.starts_in;
  if (task.direct) task.environment.push_back("PWD=" + folder);  // a shell would have set it
  const Share& share = slots_.tasks[slot].share;
  if (share.memory_bytes > 0)
    task.environment.push_back("WFLOW_MEMORY_BYTES=" + std::to_string(share.memory_bytes));
  if (!share.gpus.empty()) task.environment.push_back("CUDA_VISIBLE_DEVICES=" + devices_.of(share));
  gather_environment(array, task, share);
  const std::string& program = task.program.empty() ? task.argv.front() : task.program;
  launcher_.start({program.c_str(), &task.argv, &pointers_, &folder, &task.out_file, &task.err_file,
                   task.packed ? files.out_fd() : -1, task.packed ? files.err_fd() : -1, &share.cpus,
                   reinterpret_cast<pid_t*>(&slots_.records[slot].pid)});
}

void Starter::gather_environment(const TaskArray& array, const steps::PreparedTask& task,
                                 const Share& share) {
  pointers_.clear();
  for (const std::string& variable : array.environment) {
    // The worker's own environment may have the variable; only the task's value must be left.
    if (!share.gpus.empty() && variable.starts_with("CUDA_VISIBLE_DEVICES=")) continue;
    pointers_.push_back(variable.c_str());
  }
  for (const std::string& variable : task.environment) pointers_.push_back(variable.c_str());
  pointers_.push_back(nullptr);
}

void Starter::fill(std::size_t number, const TaskArray& array, const steps::PreparedTask& task) {
  SlotRecord& slot = slots_.records[number];
  const engine::wire::Lease& lease = slots_.tasks[number].lease;
  slot.lease = lease.id;
  slot.array = lease.array;
  slot.element = lease.first;
  slot.count = lease.count;
  const specs::TaskTemplate& task_template = array.task_template;
  slot.bundled = task_template.bundle > 0;
  slot.trusted = lease.trust_from > 0;
  slot.isolated = task_template.kind == specs::StepKind::plugin;
  slot.unchecked = !task_template.outputs.empty();
  slot.checking = false;
  slot.attempt = lease.attempt;
  slot.started_unix_s = unix_now_s();
  slot.started_steady_s = steady_now_s();
  slot.sampled_bytes = 0;
  slot.killed = false;
  slot.returned = false;
  slot.terminated = false;
  slot.catches_term = false;
  slot.blocks_term = false;
  slot.own_program = task_template.kind != specs::StepKind::shell;
  slot.events_read = 0;
  steps::OutputSizes sizes;
  // Other processes may have printed to these files before: an earlier attempt, or one with another part of
  // the bundle.
  if ((lease.attempt > 0 || slot.bundled) && !task.packed) sizes = steps::output_sizes(task);
  slot.out_before = sizes.out;
  slot.err_before = sizes.err;
  const SlotFiles& files = slots_.files[number];
  store_path(slot.marker, task.finished_marker);
  store_path(slot.out, task.packed ? files.out() : task.directory + "/" + task.out_file);
  store_path(slot.err, task.packed ? files.err() : task.directory + "/" + task.err_file);
  store_path(slot.pack, task.packed ? array.pack : "");
  store_path(slot.own_place, task.directory_on_demand ? task.directory : "");
}

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
