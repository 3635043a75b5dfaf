// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/finisher.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "steps/files.h"
#include "workers/execute/process_end.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

std::string log_name(std::size_t slot) {
  return fmt::format("slot-{}.check", slot);
}

Ending bad_output(std::string why) {
  return {false, wire::EndReason::bad_output, 0, std::move(why)};
}

}  // namespace

bool OutputCheck::start(std::size_t slot, Ending& ending) {
  SlotRecord& record = slots_.records[slot];
  const TaskArray& array = arrays_.at(record.array);
  const std::string log = log_name(slot);
  ::unlink((slots_.directory + "/" + log).c_str());
  std::vector<const char*> environment;
  for (const std::string& variable : array.environment) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  try {
    const std::vector<steps::OutputFile> files =
        steps::output_files(array.task_template, arrays_.samples(), slots_.tasks[slot].execution());
    if (std::string why = steps::missing_output(files); !why.empty()) {
      ending = bad_output(std::move(why));
      return false;
    }
    const std::vector<std::string> argv = steps::check_command(files);
    if (argv.empty()) return false;
    // From here on a guardian does not record a result for the task.
    record.checking = true;
    launcher_.start({argv.front().c_str(), &argv, &environment, &slots_.directory, &log, &log, -1, -1,
                     &slots_.tasks[slot].share.cpus, reinterpret_cast<pid_t*>(&record.pid)});
  } catch (const Error& error) {
    ending = bad_output(fmt::format("its outputs could not be looked at: {}", error.what()));
    return false;
  }
  return true;
}

Ending OutputCheck::judge(std::size_t slot, int code, int status) const {
  Ending ending = workers::judge(slots_.records[slot], code, status);
  if (ending.success || slots_.records[slot].killed) return ending;
  constexpr std::size_t kSentence = 2048;
  const std::string log = slots_.directory + "/" + log_name(slot);
  std::string printed(text::trim(steps::output_tail("", log, {}, kSentence)));
  const std::string_view program = "wflow-convert: ";
  if (printed.starts_with(program)) printed.erase(0, program.size());
  if (code == CLD_EXITED && status == static_cast<int>(ExitCode::data))
    return bad_output("a declared output is wrong: " + printed);
  return bad_output(
      fmt::format("its outputs could not be looked at: wflow-convert check ended with {} {}: {}",
                  code == CLD_EXITED ? "exit code" : "signal", status, printed));
}

namespace {
constexpr std::size_t kOpenPacks = 16;  // each has two open files
}

void Packs::add(Slots& slots, std::size_t slot, const Ending& ending, double unix_s) {
  const SlotRecord& record = slots.records[slot];
  if (open_.size() >= kOpenPacks && !open_.contains(record.array)) open_.clear();
  const auto pack = open_.try_emplace(record.array, record.pack.data(), worker_).first;
  pack_output(record, slots.files[slot], ending, unix_s, pack->second);
}

namespace wire = engine::wire;

namespace {

constexpr std::size_t kTailBytes = 4096;

std::string directory_of(const SlotRecord& record) {
  for (const char* path :
       {record.own_place.data(), record.marker.data(), record.pack.data(), record.out.data()}) {
    if (path[0] != '\0') return std::filesystem::path(path).parent_path().string();
  }
  return {};
}

}  // namespace

Finisher::Finisher(const TaskArrays& arrays, Slots& slots, Supervisor& supervisor, Launcher& launcher,
                   DiskProbe& disk)
    : arrays_(arrays),
      slots_(slots),
      supervisor_(supervisor),
      check_(arrays, slots, launcher),
      packs_(std::filesystem::path(slots.directory).filename().string()),
      disk_(disk) {}

std::vector<AgentEvent> Finisher::finish(const EndedChild& child) {
  const std::size_t slot = *child.slot;
  SlotRecord& record = slots_.records[slot];
  const bool dropped = slots_.tasks[slot].dropped;
  const bool own = ended_by_itself(record, dropped, child.pid, child.code, child.status);
  // Kills the rest of the task's process group. The leader is not reaped yet, so no other group has its
  // number.
  ::kill(-child.pid, SIGKILL);
  if (record.killed || record.returned || dropped) {
    supervisor_.kill_tree(slot);
    supervisor_.clean_up_after(slot);
  } else if (child.code != CLD_EXITED && arrays_.at(record.array).task_template.resources.procs > 1) {
    supervisor_.clean_up_after(slot);  // another process, or the kernel, has killed mpirun
  }
  // The task ended before wflow's signal reached it: its result is like any other.
  if (own) record.killed = record.returned = record.terminated = false;
  std::vector<wire::TaskEvent> events = supervisor_.read_events(slot, true);
  slots_.tasks[slot].printed = record.pack[0] != '\0' && slots_.files[slot].printed();
  event::TaskEnded ended{slot, {}, {}};
  if (dropped && !own) {
    slots_.files[slot].discard();  // another worker may already use the task's directory
    return {std::move(ended)};
  }
  Ending ending = record.checking ? check_.judge(slot, child.code, child.status)
                                  : judge(record, child.code, child.status);
  if (!record.checking) {
    slots_.tasks[slot].used = child.used;
    slots_.tasks[slot].ended_steady_s = steady_now_s();
    note_memory_kill(slot, ending);
    settle_place(record, slots_.files[slot], ending);
  }
  note_disk(slot, ending);
  if (record.returned) {
    ended.results.events = std::move(events);
    add_reported(ended.results, record, slots_.files[slot].events(), {steady_now_s(), unix_now_s()});
    if (!ended.results.done.empty()) keep_printed(slot, ending);
    if (ending.reason == wire::EndReason::disk) ended.results.done.clear();
    return {std::move(ended)};
  }
  if (ending.success && record.unchecked && !record.checking && check_.start(slot, ending))
    return checking(slot, std::move(events));
  ended.results.events = std::move(events);
  add_results(slot, ending, ended);
  return {std::move(ended)};
}

// Needs more evidence than an exit code: the task, or a process that its shell waited for, died of a SIGKILL
// that wflow did not send, and the kernel's count of kills for memory has grown.
void Finisher::note_memory_kill(std::size_t slot, Ending& ending) {
  constexpr int kShellsKilled = 128 + SIGKILL;
  if (ending.success || slots_.records[slot].killed) return;
  const bool killed = (ending.reason == wire::EndReason::signalled && ending.exit_code == SIGKILL) ||
                      (ending.reason == wire::EndReason::exited && ending.exit_code == kShellsKilled);
  if (killed && memory_kills_.take_one()) ending.reason = wire::EndReason::out_of_memory;
}

// Needs evidence as well: no data can be written in the task's directory. A program of wflow prints the
// cause; its disk may be another one, or have free space again.
void Finisher::note_disk(std::size_t slot, Ending& ending) {
  const SlotRecord& record = slots_.records[slot];
  const bool may_be = ending.reason == wire::EndReason::exited ||
                      ending.reason == wire::EndReason::bad_output ||
                      ending.reason == wire::EndReason::signalled;
  if (ending.success || record.killed || record.returned || !may_be) return;
  const bool ours = arrays_.at(record.array).task_template.kind != specs::StepKind::shell;
  const bool refused =
      ours && ending.reason == wire::EndReason::exited &&
      ending.exit_code == static_cast<int>(ExitCode::system) &&
      says_disk_trouble(steps::output_tail(record.out.data(), record.err.data(),
                                           {record.out_before, record.err_before}, kTailBytes));
  if (refused || disk_.is_in_trouble(directory_of(record))) ending.reason = wire::EndReason::disk;
}

std::vector<AgentEvent> Finisher::checking(std::size_t slot, std::vector<wire::TaskEvent>&& events) {
  supervisor_.watch(slot);
  std::vector<AgentEvent> reported;
  if (!events.empty()) reported.emplace_back(event::TaskReports{slot, std::move(events)});
  reported.emplace_back(event::TaskChecking{slot});
  return reported;
}

void Finisher::add_results(std::size_t slot, Ending& ending, event::TaskEnded& ended) {
  SlotRecord& record = slots_.records[slot];
  if (slots_.tasks[slot].interrupted && !ending.success) ending.reason = wire::EndReason::cancelled;
  const Now now{steady_now_s(), unix_now_s()};
  keep_printed(slot, ending);
  // A task is done without its marker, because the database is the record. mark_again() makes the marker
  // later.
  if (ending.success && !mark_finished(record))
    unmarked_.push_back({record.marker.data(), record.lease, record.trusted});
  const SlotTask& task = slots_.tasks[slot];
  if (usage_is_measured()) add_usage(ended.results, record, task.used, ending, task.ended_steady_s);
  auto parts = add_ending(ended.results, record, slots_.files[slot].events(), ending, now);
  if (!parts.empty()) add_parts(slot, std::move(parts), ending, ended);
}

void Finisher::keep_printed(std::size_t slot, Ending& ending) {
  if (!slots_.tasks[slot].printed) return;
  try {
    packs_.add(slots_, slot, ending, unix_now_s());
  } catch (const Error& error) {
    complain(error);
    // A task whose output cannot be kept is not done.
    if (is_disk_trouble(error)) ending = {false, wire::EndReason::disk, 0, error.what()};
  }
}

// Adds the samples of a process that has died of one of them as parts that run again.
void Finisher::add_parts(std::size_t slot, std::vector<wire::Lease>&& parts, const Ending& ending,
                         event::TaskEnded& ended) {
  const SlotRecord& record = slots_.records[slot];
  ended.results.events.push_back(
      {record.array, record.element, record.attempt, unix_now_s(),
       wire::Note{fmt::format(
           "the process of samples {} to {} was ended by signal {}; they run again in smaller parts",
           record.element, record.element + record.count - 1, ending.exit_code)}});
  for (wire::Lease& part : parts) {
    part.priority = slots_.tasks[slot].lease.priority;
    part.restart = slots_.tasks[slot].lease.restart;
  }
  ended.again = std::move(parts);
}

void Finisher::clear(std::size_t slot) {
  SlotRecord& record = slots_.records[slot];
  SlotFiles& files = slots_.files[slot];
  if (slots_.tasks[slot].events.offset > 0) ::unlink(files.events().c_str());
  record.pid = 0;
  if (!slots_.tasks[slot].printed) return;
  try {
    files.empty_output();
  } catch (const Error& error) {
    complain(error);
  }
}

void Finisher::mark_again() {
  if (unmarked_.empty() || steady_now_s() < mark_again_s_) return;
  mark_again_s_ = steady_now_s() + 1;
  std::erase_if(unmarked_, [](const Unmarked& task) {
    return task.trusted ? steps::seal_marker(task.marker, task.lease) : steps::mark_finished(task.marker);
  });
}

// Logs a full disk once.
void Finisher::complain(const Error& error) {
  if (!complained_) log::write(LogLevel::warning, error.what());
  complained_ = true;
}

}  // namespace wflow::workers
