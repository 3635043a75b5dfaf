// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/starter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "steps/files.h"
#include "steps/markers.h"

namespace wflow::workers {

namespace {

// The slot table must hold the places of what a packed task prints and leaves.
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
    // The shell can tell what is wrong with the program, or what to do with it.
    execution.through_shell = true;
    task = step.prepare(execution);
    start(slot, array, task);
  }
}

// By the marker of an execution that still counts: the worker that ran it was lost before anybody heard of
// it.
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
  const std::string& folder = task.starts_in.empty() ? task.directory : task.starts_in;
  if (task.direct) task.environment.push_back("PWD=" + folder);  // as a shell would have set it
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
    // A worker that sees some of the node's GPUs has the variable itself; the task's own one must be the only
    // one.
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
  // Other processes may have printed there before: an earlier attempt, or one with another part of the
  // bundle.
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

}  // namespace wflow::workers
