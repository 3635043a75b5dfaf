// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/executor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "steps/environment.h"
#include "steps/files.h"
#include "steps/kinds.h"
#include "steps/outputs.h"
#include "workers/execute/process_tree.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

constexpr int kStartsACall = 256;       // so that messages are read in between, however many starts fail
constexpr std::size_t kOpenPacks = 16;  // of two files each

Executor::Time after(Executor::Time now, double seconds) {
  return now + std::chrono::duration_cast<Executor::Time::duration>(std::chrono::duration<double>(seconds));
}

// The slot table must hold the places of what a packed task prints and leaves.
void check_paths(const std::string& pack, const steps::PreparedTask& task) {
  if (!task.packed || std::max(pack.size(), task.directory.size()) < SlotRecord::kPathBytes) return;
  throw Error(
      ExitCode::system,
      fmt::format("{} is longer than the {} bytes that a step with 'output: packed' can have; use a shorter "
                  "OUTPUT_PATH or shorter labels",
                  task.directory, SlotRecord::kPathBytes - 1));
}

std::string check_log(std::size_t slot) {
  return fmt::format("slot-{}.check", slot);
}

// Though not reaped yet.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

std::string own_visible_devices() {
  const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return devices == nullptr ? "" : devices;
}

}  // namespace

// A task array as this worker knows it.
struct Executor::Array {
  specs::TaskTemplate task_template;
  std::vector<std::string> environment;
  std::string pack;  // folder of its packed output
  std::unique_ptr<const steps::Step>
      step;  // made for the first element; it keeps a reference to task_template
};

Executor::Executor(const WorkerOptions& options, SlotTable& table, Journal& journal, Outbox& outbox,
                   const std::filesystem::path& directory)
    : options_(options),
      table_(table),
      slots_(table.slots()),
      journal_(journal),
      outbox_(outbox),
      pool_({options.cores, options.gpus, options.memory_bytes, own_visible_devices(),
             options.pin ? usable_cpus() : std::vector<int>()}),
      environment_(steps::worker_environment(steps::own_environment(), executable_directory())),
      tasks_(slots_.size()),
      directory_(directory.string()),
      worker_(directory.filename().string()) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    files_.emplace_back(directory, slot);
    free_slots_.push_back(slots_.size() - 1 - slot);
  }
  table_.set_open_sequence(outbox_.sequence());
}

Executor::~Executor() = default;

void Executor::set_samples(std::unique_ptr<const specs::SampleTable> samples) {
  for (auto& [id, array] : arrays_) array->step.reset();
  samples_ = std::move(samples);
}

void Executor::add_template(specs::TaskTemplate task_template) {
  auto array = std::make_unique<Array>();
  array->environment = steps::array_environment(environment_, task_template, options_.cores);
  array->pack = steps::packed_directory(task_template.workspace).string();
  array->task_template = std::move(task_template);
  const wire::ArrayId id = array->task_template.array;
  arrays_[id] = std::move(array);
}

void Executor::add_lease(const wire::Lease& lease, Time now) {
  if (options_.zero) {
    complete_at_once(lease, now);
  } else {
    queue_.add(lease);
  }
}

void Executor::complete_at_once(const wire::Lease& lease, Time now) {
  wire::Results results;
  const double time_s = unix_now_s();
  if (options_.zero_failures <= 0) {
    results.done.push_back({lease.id, lease.array, lease.first, lease.count, 0, 0, time_s});
  } else {
    for (wire::Element element = lease.first; element < lease.first + lease.count; ++element) {
      const std::uint64_t key = mix64((std::uint64_t{lease.array} << 32) + lease.attempt);
      if (unit_real(hash64(key, element)) < options_.zero_failures) {
        results.outcomes.push_back(
            {lease.id, lease.array, element, lease.attempt, wire::EndReason::exited, 1, time_s, 0, {}});
      } else {
        results.done.push_back({lease.id, lease.array, element, 1, 0, 0, time_s});
      }
    }
  }
  outbox_.add(std::move(results), now);  // not journalled: nothing has run that could run twice
}

std::vector<wire::RunningElement> Executor::running_elements() const {
  std::vector<wire::RunningElement> elements;
  elements.reserve(slot_of_.size());
  for (const auto& [pid, slot] : slot_of_) {
    elements.push_back({slots_[slot].array, slots_[slot].element, slots_[slot].started_s});
  }
  return elements;
}

std::vector<wire::Lease> Executor::held() const {
  std::vector<wire::Lease> leases = queue_.list();
  for (const auto& [pid, slot] : slot_of_) {
    if (!slots_[slot].returned) leases.push_back(tasks_[slot].lease);
  }
  return leases;
}

// ---- starting

bool Executor::start_ready(Time now) {
  for (int starts = 0; starts < kStartsACall; ++starts) {
    if (!start_next(now)) return false;
  }
  return true;
}

namespace {

// How many of a lease's first elements one process takes: those up to the end of their bundle.
std::uint64_t process_size(const specs::TaskTemplate& task_template, const wire::Lease& lease) {
  if (task_template.bundle == 0) return 1;
  return std::min(lease.count, task_template.bundle - lease.first % task_template.bundle);
}

}  // namespace

// False when nothing waits or what is next does not fit. Nothing behind it is started in its place: a task
// that wants all cores would wait for ever where small ones keep coming.
bool Executor::start_next(Time now) {
  if (queue_.empty() || free_slots_.empty()) return false;
  wire::Lease lease = queue_.front();
  const auto found = arrays_.find(lease.array);
  const bool known = found != arrays_.end();
  if (known) {
    const specs::Resources& wanted = found->second->task_template.resources;
    if (pool_.possible(wanted) && !pool_.fits(wanted)) return false;
  }
  lease.count = known ? process_size(found->second->task_template, lease) : 1;
  queue_.pop(lease.count);
  if (!known) {
    refuse(lease, "the worker was not told what this task is", now);
    return true;
  }
  Array& array = *found->second;
  if (!pool_.possible(array.task_template.resources)) {
    refuse(lease,
           fmt::format("it needs {} GPUs and this worker has {}", array.task_template.resources.gpus,
                       options_.gpus),
           now);
    return true;
  }
  const std::size_t slot = free_slots_.back();
  tasks_[slot] = Task{};
  tasks_[slot].lease = lease;
  tasks_[slot].share = pool_.take(array.task_template.resources);
  try {
    launch(lease, array, slot, now);
    free_slots_.pop_back();
  } catch (const Error& error) {
    pool_.give_back(tasks_[slot].share);
    refuse(lease, error.what(), now);
  }
  return true;
}

void Executor::open_step(Array& array) {
  if (array.step) return;
  auto step = steps::make_step(array.task_template, samples_.get(), array.environment);
  steps::write_setup(step->setup());
  array.step = std::move(step);
}

void Executor::launch(const wire::Lease& lease, Array& array, std::size_t slot, Time now) {
  open_step(array);
  steps::Execution execution{lease.first, lease.attempt, lease.restart, lease.count};
  steps::PreparedTask task = array.step->prepare(execution);
  try {
    start(lease, array, task, slot);
  } catch (const ExecError&) {
    if (!task.direct) throw;
    // The shell can tell what is wrong with the program, or what to do with it.
    execution.through_shell = true;
    task = array.step->prepare(execution);
    start(lease, array, task, slot);
  }
  slot_of_.emplace(slots_[slot].pid.load(), slot);
  const double limit_s = array.task_template.timeout_s;
  if (limit_s > 0) tasks_[slot].end_by = after(now, limit_s);
}

void Executor::start(const wire::Lease& lease, const Array& array, steps::PreparedTask& task,
                     std::size_t slot) {
  check_paths(array.pack, task);
  fill(slot, lease, array, task);
  SlotFiles& files = files_[slot];
  if (task.directory_on_demand) {
    task.directory = files.enter(task.directory);
  } else {
    steps::write_files(task);
  }
  if (task.packed) files.open_output();
  task.environment.push_back("WFLOW_EVENTS=" + files.events());
  if (task.direct) task.environment.push_back("PWD=" + task.directory);  // as a shell would have set it
  const Share& share = tasks_[slot].share;
  if (!share.gpus.empty()) task.environment.push_back("CUDA_VISIBLE_DEVICES=" + pool_.visible_devices(share));
  gather_environment(array, task, share);
  const std::string& program = task.program.empty() ? task.argv.front() : task.program;
  launcher_.start({program.c_str(), &task.argv, &pointers_, &task.directory, &task.out_file, &task.err_file,
                   task.packed ? files.out_fd() : -1, task.packed ? files.err_fd() : -1, &share.cpus,
                   reinterpret_cast<pid_t*>(&slots_[slot].pid)});
}

void Executor::gather_environment(const Array& array, const steps::PreparedTask& task, const Share& share) {
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

void Executor::fill(std::size_t number, const wire::Lease& lease, const Array& array,
                    const steps::PreparedTask& task) {
  SlotRecord& slot = slots_[number];
  slot.lease = lease.id;
  slot.array = lease.array;
  slot.element = lease.first;
  slot.count = lease.count;
  const specs::TaskTemplate& task_template = array.task_template;
  slot.bundled = task_template.bundle > 0;
  slot.isolated = task_template.kind == specs::StepKind::plugin;
  slot.unchecked = !task_template.outputs.empty();
  slot.checking = false;
  slot.attempt = lease.attempt;
  slot.started_s = unix_now_s();
  slot.killed = false;
  slot.returned = false;
  slot.events_read = 0;
  steps::OutputSizes sizes;
  // Other processes may have printed there before: an earlier attempt, or one with another part of the
  // bundle.
  if ((lease.attempt > 0 || slot.bundled) && !task.packed) sizes = steps::output_sizes(task);
  slot.out_before = sizes.out;
  slot.err_before = sizes.err;
  store_path(slot.marker, task.finished_marker);
  store_path(slot.out, task.packed ? files_[number].out() : task.directory + "/" + task.out_file);
  store_path(slot.err, task.packed ? files_[number].err() : task.directory + "/" + task.err_file);
  store_path(slot.pack, task.packed ? array.pack : "");
  store_path(slot.own_place, task.directory_on_demand ? task.directory : "");
}

void Executor::refuse(const wire::Lease& lease, const std::string& why, Time now) {
  wire::Results results;
  for (wire::Element element = lease.first; element < lease.first + lease.count; ++element) {
    results.outcomes.push_back({lease.id, lease.array, element, lease.attempt, wire::EndReason::not_started,
                                0, unix_now_s(), 0, why});
  }
  record(std::move(results), now);
}

// ---- ending

void Executor::reap(Time now) {
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto found = slot_of_.find(info.si_pid);
    if (found != slot_of_.end()) {
      const std::size_t slot = found->second;
      slot_of_.erase(found);
      finish(slot, info.si_code, info.si_status, now);
    }
    // Reaped last: until here the guardian could have taken over. Others are orphans that this subreaper
    // adopted.
    while (::waitpid(info.si_pid, nullptr, WNOHANG) < 0 && errno == EINTR) {
    }
  }
}

void Executor::finish(std::size_t slot, int code, int status, Time now) {
  SlotRecord& record_of = slots_[slot];
  const pid_t pid = record_of.pid;
  // What the task left behind in its group; the leader is not reaped yet, so that the number is still its
  // own.
  ::kill(-pid, SIGKILL);
  if (record_of.killed || record_of.returned) kill_tree(slot);
  wire::Results results;
  take_events(slot, true, results);
  Ending ending = record_of.checking ? judge_check(slot, code, status) : judge(record_of, code, status);
  if (!record_of.checking) settle_place(record_of, files_[slot], ending);
  const bool printed = record_of.pack[0] != '\0' && files_[slot].printed();
  if (!record_of.returned) {
    if (ending.success && record_of.unchecked && !record_of.checking && start_check(slot, ending)) {
      if (!results.events.empty()) record(std::move(results), now);
      record_of.events_read = tasks_[slot].events.offset;
      return;
    }
    if (tasks_[slot].interrupted && !ending.success) ending.reason = wire::EndReason::cancelled;
    if (ending.success) steps::mark_finished(record_of.marker.data());
    const double now_s = unix_now_s();
    if (printed) pack(slot, ending, now_s);
    const std::vector<wire::Lease> again =
        add_ending(results, record_of, files_[slot].events(), ending, now_s);
    if (!again.empty()) run_again(slot, again, ending, results);
    record(std::move(results), now);
  }
  // Not before the results are in the journal: until then a guardian needs the file to judge.
  if (tasks_[slot].events.offset > 0) ::unlink(files_[slot].events().c_str());
  record_of.pid = 0;
  if (printed) empty_output(slot);
  pool_.give_back(tasks_[slot].share);
  free_slots_.push_back(slot);
}

bool Executor::start_check(std::size_t slot, Ending& ending) {
  SlotRecord& record_of = slots_[slot];
  const Array& array = *arrays_.at(record_of.array);
  const wire::Lease& lease = tasks_[slot].lease;
  const auto bad = [&](std::string why) {
    ending = {false, wire::EndReason::bad_output, 0, std::move(why)};
    return false;
  };
  const std::string log = check_log(slot);
  ::unlink((directory_ + "/" + log).c_str());
  pointers_.clear();
  for (const std::string& variable : array.environment) pointers_.push_back(variable.c_str());
  pointers_.push_back(nullptr);
  try {
    const std::vector<steps::OutputFile> files = steps::output_files(
        array.task_template, samples_.get(), {lease.first, lease.attempt, lease.restart, lease.count});
    if (std::string why = steps::missing_output(files); !why.empty()) return bad(std::move(why));
    const std::vector<std::string> argv = steps::check_command(files);
    if (argv.empty()) return false;
    // From here on a guardian gives the task no result.
    record_of.checking = true;
    tasks_[slot].end_by = Time::max();
    launcher_.start({argv.front().c_str(), &argv, &pointers_, &directory_, &log, &log, -1, -1,
                     &tasks_[slot].share.cpus, reinterpret_cast<pid_t*>(&record_of.pid)});
  } catch (const Error& error) {
    return bad(fmt::format("its outputs could not be looked at: {}", error.what()));
  }
  slot_of_.emplace(record_of.pid.load(), slot);
  return true;
}

Ending Executor::judge_check(std::size_t slot, int code, int status) const {
  Ending ending = judge(slots_[slot], code, status);
  if (ending.success || slots_[slot].killed) return ending;
  constexpr std::size_t kSentence = 2048;
  const std::string log = directory_ + "/" + check_log(slot);
  std::string said(text::trim(steps::output_tail("", log, {}, kSentence)));
  const std::string_view program = "wflow-convert: ";
  if (said.starts_with(program)) said.erase(0, program.size());
  const bool judged = code == CLD_EXITED && status == static_cast<int>(ExitCode::data);
  ending.reason = wire::EndReason::bad_output;
  ending.exit_code = 0;
  ending.detail =
      judged ? "a declared output is wrong: " + said
             : fmt::format("its outputs could not be looked at: wflow-convert check ended with {} {}: {}",
                           code == CLD_EXITED ? "exit code" : "signal", status, said);
  return ending;
}

// The samples of a process that has died of one of them, before anything else.
void Executor::run_again(std::size_t slot, const std::vector<wire::Lease>& parts, const Ending& ending,
                         wire::Results& results) {
  const SlotRecord& record_of = slots_[slot];
  const std::string text =
      fmt::format("the process of samples {} to {} was ended by signal {}; they run again in smaller parts",
                  record_of.element, record_of.element + record_of.count - 1, ending.exit_code);
  results.events.push_back({record_of.array, record_of.element, record_of.attempt, unix_now_s(),
                            nlohmann::json{{"type", "note"}, {"text", text}}.dump()});
  for (wire::Lease part : parts) {
    part.priority = tasks_[slot].lease.priority;
    part.restart = tasks_[slot].lease.restart;
    queue_.add(part);
  }
}

void Executor::record(wire::Results&& results, Time now) {
  results.sequence = outbox_.sequence();
  try {
    journal_.append(results);
  } catch (const Error& error) {
    // The results are on their way to the coordinator; only the death of both at once would lose them.
    give_up(error);
  }
  outbox_.add(std::move(results), now);
}

// A full disk, said once.
void Executor::give_up(const Error& error) {
  if (!write_failed_) fmt::print(stderr, "wflow worker: {}\n", error.what());
  write_failed_ = true;
}

void Executor::empty_output(std::size_t slot) {
  try {
    files_[slot].empty_output();
  } catch (const Error& error) {
    give_up(error);
  }
}

void Executor::pack(std::size_t slot, const Ending& ending, double now_s) {
  try {
    const auto array = slots_[slot].array;
    if (packs_.size() >= kOpenPacks && !packs_.contains(array)) packs_.clear();
    const auto pack = packs_.try_emplace(array, slots_[slot].pack.data(), worker_).first;
    pack_output(slots_[slot], files_[slot], ending, now_s, pack->second);
  } catch (const Error& error) {
    give_up(error);
  }
}

void Executor::take_events(std::size_t slot, bool at_end, wire::Results& results) {
  const SlotRecord& record_of = slots_[slot];
  EventTail& tail = tasks_[slot].events;
  for (wire::EventBody& body : read_event_bodies(files_[slot].events(), tail, at_end)) {
    results.events.push_back(
        {record_of.array, record_of.element, record_of.attempt, unix_now_s(), std::move(body)});
  }
}

void Executor::follow_events(Time now) {
  for (const auto& [pid, slot] : slot_of_) {
    wire::Results results;
    take_events(slot, false, results);
    if (!results.events.empty()) record(std::move(results), now);
    slots_[slot].events_read = tasks_[slot].events.offset;
  }
}

// ---- limits

void Executor::terminate(std::size_t slot, wire::EndReason reason, Time now) {
  SlotRecord& record_of = slots_[slot];
  Task& task = tasks_[slot];
  task.end_by = Time::max();
  // What has ended by itself has its own result, which reap() takes.
  if (record_of.killed || record_of.returned || has_ended(record_of.pid)) return;
  if (reason == wire::EndReason::worker_lost) {
    record_of.returned = true;
  } else {
    record_of.kill_reason = reason;
    record_of.killed = true;
  }
  task.below = descendants(record_of.pid);
  task.kill_at = after(now, options_.grace_s);
  ::kill(-record_of.pid, SIGTERM);
}

// The task's group, and what has left it: descendants from before that are still ours, and what is known by
// its environment alone.
void Executor::kill_tree(std::size_t slot) {
  ::kill(-slots_[slot].pid, SIGKILL);
  const std::vector<pid_t> ours = descendants(::getpid());
  std::vector<pid_t>& below = tasks_[slot].below;
  for (const pid_t pid : descendants(slots_[slot].pid)) below.push_back(pid);
  for (const pid_t pid : started_with(ours, own_variables(slot))) below.push_back(pid);
  for (const pid_t pid : below) {
    if (std::find(ours.begin(), ours.end(), pid) != ours.end()) ::kill(pid, SIGKILL);
  }
}

// Those that no other task has.
std::vector<std::string> Executor::own_variables(std::size_t slot) const {
  const wire::Lease& lease = tasks_[slot].lease;
  std::vector<std::string> variables = steps::element_environment(
      arrays_.at(lease.array)->task_template, {lease.first, lease.attempt, lease.restart, lease.count});
  variables.push_back("WFLOW_EVENTS=" + files_[slot].events());
  return variables;
}

void Executor::enforce_limits(Time now) {
  for (const auto& [pid, slot] : slot_of_) {
    Task& task = tasks_[slot];
    if (now >= task.end_by) terminate(slot, wire::EndReason::timed_out, now);
    if (now >= task.kill_at) {
      kill_tree(slot);
      task.kill_at = Time::max();
    }
  }
}

Executor::Time Executor::next_limit() const {
  Time next = Time::max();
  for (const auto& [pid, slot] : slot_of_) next = std::min({next, tasks_[slot].end_by, tasks_[slot].kill_at});
  return next;
}

void Executor::cancel(std::span<const wire::LeaseId> leases, Time now) {
  for (const auto& [pid, slot] : slot_of_) {
    const bool named = std::find(leases.begin(), leases.end(), slots_[slot].lease) != leases.end();
    if (leases.empty() || named) terminate(slot, wire::EndReason::cancelled, now);
  }
}

void Executor::interrupt_trainings() {
  for (const auto& [pid, slot] : slot_of_) {
    const auto array = arrays_.find(slots_[slot].array);
    if (array == arrays_.end() || array->second->task_template.kind != specs::StepKind::train) continue;
    tasks_[slot].interrupted = true;
    // To the leader alone: mpirun passes it on to its ranks.
    ::kill(pid, SIGUSR1);
  }
}

std::vector<wire::Lease> Executor::give_back_running(Time now) {
  std::vector<wire::Lease> leases;
  for (const auto& [pid, slot] : slot_of_) {
    if (slots_[slot].killed || slots_[slot].returned) continue;
    terminate(slot, wire::EndReason::worker_lost, now);
    if (slots_[slot].returned) leases.push_back(tasks_[slot].lease);
  }
  return leases;
}

void Executor::kill_everything() {
  for (const auto& [pid, slot] : slot_of_) {
    slots_[slot].returned = true;
    ::kill(-pid, SIGKILL);
  }
  if (!kill_all_children(std::chrono::seconds(10))) {
    fmt::print(stderr, "wflow worker: a process could not be killed\n");
  }
}

}  // namespace wflow::workers
