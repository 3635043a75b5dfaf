// SPDX-License-Identifier: Apache-2.0
// A worker as a whole, and its guardian; agent.cc has the agent.
#include "tests/simulation/worker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "engine/wire/worker_journal.h"
#include "workers/agent/journal.h"

namespace wflow::simulation {

namespace {

constexpr double kFenceMargin_s =
    2;  // how long a guardian waits for an agent that does not end its tasks at the fence
constexpr double kSettleAtMost_s = 0.3;
constexpr double kEndLimit_s = 10;  // after the grace of tasks, for an agent that has received SIGTERM
constexpr double kNews_s = 0.01;    // until a process learns of another's end
// The part of the margin for the kill of tasks and the message about it.
constexpr double kKillAllowance_s = 3;
constexpr double kSlowestClock = 0.02;
constexpr std::int64_t kMemory_bytes = std::int64_t{3} << 30;

// The real journal writes through it.
class SimulatedJournalFile final : public workers::JournalFile {
 public:
  SimulatedJournalFile(Surroundings& around, Host& host, const std::string& worker)
      : around_(around),
        host_(host),
        path_(journal_path(around.study, worker)),
        file_(around.disk.create(path_, host.name)) {}

  void append(std::string_view bytes) override {
    if (file_->write(host_.name, file_->bytes().size(), bytes) == bytes.size()) return;
    around_.faults.count(Fault::journal_cut);
    throw Error(ExitCode::system, "the disk is full");
  }
  void truncate(std::uint64_t size) override {
    if (!file_->truncate(host_.name, size)) throw Error(ExitCode::system, "the disk refuses a truncation");
  }
  std::string read() override { return file_->bytes(); }
  void remove() override { around_.disk.remove(path_, host_.name, false); }
  void sync() override {
    if (!file_->sync()) throw Error(ExitCode::system, "the disk refuses an fsync");
  }
  void note_results(std::uint64_t count) override { noted_ = count; }
  std::optional<std::uint64_t> noted_results() override { return noted_; }

 private:
  Surroundings& around_;
  Host& host_;
  std::string path_;
  std::shared_ptr<File> file_;
  std::uint64_t noted_ = 0;
};

}  // namespace

// ---- the guardian

void Guardian::terminate() {
  if (!alive()) return;
  const double limit_s = kEndLimit_s + 5;
  signalled_ = true;
  worker_.agent().terminate();
  around_.timeline.after(limit_s, [this] {
    if (alive() && worker_.agent().alive()) worker_.agent().end();
  });
}

void Guardian::set_fence(double steady_s) {
  fence_s_ = steady_s;
  if (steady_s == std::numeric_limits<double>::infinity()) return;
  if (std::exchange(fence_scheduled_, true)) return;  // the earlier look sees the new one
  around_.timeline.at(host().true_time(steady_s + kFenceMargin_s) + 1e-6, [this] {
    fence_scheduled_ = false;
    look_at_fence();
  });
}

void Guardian::look_at_fence() {
  if (!runs() || !worker_.agent().alive()) return;
  const double now_s = host().at(around_.timeline.now_s()).steady_s;
  if (now_s < fence_s_ + kFenceMargin_s) {
    set_fence(fence_s_);
    return;
  }
  const auto& tasks = worker_.tasks().all();
  const bool any_runs =
      std::any_of(tasks.begin(), tasks.end(), [](const auto& task) { return !task.second.ended; });
  if (!any_runs) return;
  around_.faults.count(Fault::agent_ended_by_guardian);
  around_.trace.line(worker_.id(), "guardian kills its agent, which is past its fence");
  worker_.agent().end();
}

void Guardian::agent_ended() {
  around_.timeline.after(around_.draw.logarithmic(1e-3, kSettleAtMost_s), [this] {
    settle_due_ = true;
    if (runs()) settle();
  });
}

bool Guardian::is_journaled(const RunningTask& task, const std::vector<wire::Results>& records) const {
  const auto own = [&](LeaseId lease, ArrayId array, Element first, std::uint64_t count) {
    return lease == task.lease.id && array == task.lease.array &&
           first < task.lease.first + task.lease.count && task.lease.first < first + count;
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

void Guardian::settle() {
  settle_due_ = false;
  const std::vector<wire::Results> known = worker_.journal().recover().results;
  wire::Results results;
  std::vector<wire::RunningElement> running;
  results.sequence = worker_.settle_sequence();
  for (auto& [slot, task] : worker_.tasks().all()) {
    if (is_journaled(task, known)) continue;
    const bool unknown = task.checking || worker_.tasks().needs_check(task);
    Judgement judgement = unknown ? Judgement() : worker_.tasks().judge(task);
    if (judgement.results.done.empty() && judgement.results.outcomes.empty()) {
      if (!unknown) {
        worker_.expect_not_done(task);
        running.push_back({task.lease.array, task.lease.first, task.started_unix_s});
      }
      around_.history.lost(task.execution);
    }
    for (auto& run : judgement.results.done) results.done.push_back(run);
    for (auto& outcome : judgement.results.outcomes) results.outcomes.push_back(std::move(outcome));
  }
  bool appended = true;
  if (!results.done.empty() || !results.outcomes.empty()) {
    around_.trace.line(worker_.id(), "guardian journals {} runs and {} outcomes", results.done.size(),
                       results.outcomes.size());
    appended = worker_.append(results);
  }
  for (const auto& [slot, task] : worker_.tasks().all()) {
    appended || is_journaled(task, known) ? around_.history.told(task.execution)
                                          : around_.history.lost(task.execution);
  }
  worker_.tasks().all().clear();
  worker_.tasks().end_children();
  worker_.close_journal(std::move(running));
  end();
}

void Guardian::woken() {
  worker_.note_attendance();
  if (settle_due_) return settle();
  look_at_fence();
}

void Guardian::ended(bool with_host) {
  worker_.guardian_ended(with_host);
}

// ---- the worker

Worker::Worker(Surroundings& around, Host& host, WorkerNumber number, std::string group, int slots,
               std::uint64_t started_by, double linger_s, JobStart job)
    : around_(around),
      host_(host),
      number_(number),
      group_(std::move(group)),
      id_(fmt::format("w{}", number)),
      job_(std::move(job)),
      tasks_(
          around, host, number, [this](workers::SlotId slot) { agent_->task_ended(slot); },
          [this] { agent_->end(); }) {
  guardian_ = std::make_unique<Guardian>(around_, host_, *this);
  workers::AgentOptions options;
  options.worker = id_;
  options.group = group_;
  options.campaign_token = around_.token;
  options.version = "simulation";
  options.guardian = guardian_->identity();
  options.started_by = started_by;
  options.slots = static_cast<std::size_t>(slots);
  options.capacity.cores = slots;
  options.capacity.memory_bytes = kMemory_bytes;
  options.allocation = job_.token;
  options.incarnation = job_.restarts;
  // A batch scheduler calls its nodes by their hosts' names. Of a task on several nodes each worker is one,
  // though several of them may run on one simulated host.
  options.node = around_.study.gangs ? id_ : host_.name;
  around_.history.note_worker(number, slots, !job_.token.empty());
  options.linger_s = linger_s;
  agent_ = std::make_unique<Agent>(around_, host_, *this, std::move(options));
  const engine::wire::JournalHeader header{id_,        group_, guardian_->identity(), agent_->identity(),
                                           started_by, 0};
  try {
    journal_ = std::make_unique<workers::Journal>(std::make_unique<SimulatedJournalFile>(around_, host_, id_),
                                                  header);
    agent_->begin();
  } catch (const Error&) {
    // On a full disk no worker begins.
    around_.timeline.after(kNews_s, [this] { kill(); });
  }
}

void Worker::kill() {
  // Which of them is first is chance.
  if (around_.draw.chance(0.5)) {
    guardian_->end();
    agent_->end();
  } else {
    agent_->end();
    guardian_->end();
  }
}

// The scheduler looks at its clock, and at nothing else.
void Worker::end_at(double in_s) {
  agent_->told_end(in_s);
  around_.timeline.after(in_s, [this] {
    if (gone()) return;
    around_.trace.line(id_, "is killed at the end of its allocation");
    kill();
  });
}

void Worker::expect_visible_journal(const std::set<ResultId>& acknowledged) const {
  const auto file = around_.disk.find(journal_path(around_.study, id_));
  if (journal_->empty() || !file || !file->has_unsynced()) return;
  const std::set<ResultId> seen = results_in(file->synced_bytes());
  const auto is_missing = [&](const ResultId& result) {
    return !seen.contains(result) && !acknowledged.contains(result);
  };
  if (std::ranges::none_of(results_in(file->bytes()), is_missing)) return;
  throw Violation(
      "visible at a Goodbye",
      fmt::format("{} says Goodbye with results in its journal that another host does not see", id_));
}

void Worker::expect_not_done(const RunningTask& task) const {
  if (!tasks_.must_be_done(task)) return;
  throw Violation("own ends are kept",
                  fmt::format("{} has ended well by itself, and {} drops that",
                              around_.history.name(task.lease.array, task.lease.first), id_));
}

bool Worker::append(const wire::Results& record) {
  try {
    journal_->append(record);
  } catch (const Error&) {
    for_each_result(record, [&](const ResultId& result) { around_.history.result_lost(result); });
    return false;  // lost if the worker dies before it is acknowledged
  }
  // A result that comes after the coordinator may have given up is no promise.
  const double now_s = host_.at(around_.timeline.now_s()).steady_s;
  if (now_s <= guardian_->fence_s() + 0.5 * around_.timing.margin_s) around_.history.secured(record);
  return true;
}

void Worker::close_journal(std::vector<wire::RunningElement> running) {
  try {
    if (agent_->let_go() && journal_->empty()) return journal_->remove();
    journal_->mark_ended(std::move(running));
  } catch (const Error&) {
    around_.trace.line(id_, "the journal does not say that it has ended: the disk is full");
  }
}

bool Worker::clear_journal() {
  try {
    journal_->clear();
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool Worker::note_lost(double lost_s) {
  engine::wire::JournalHeader header = journal_->header();
  header.lost_s = lost_s;
  try {
    journal_->set_header(header);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Worker::note_attendance() {
  if (gone()) return;
  if (!attended()) {
    if (!unattended_since_s_) unattended_since_s_ = around_.timeline.now_s();
    return;
  }
  if (stands_still_too_long()) beyond_until_s_ = around_.timeline.now_s();
  unattended_since_s_.reset();
}

double Worker::pause_limit_s() const {
  return around_.timing.margin_s - kSlowestClock * around_.timing.lost_s - kKillAllowance_s;
}

bool Worker::stands_still_too_long() const {
  return unattended_since_s_ && around_.timeline.now_s() - *unattended_since_s_ > pause_limit_s();
}

void Worker::agent_ended(bool with_host, std::uint64_t open_sequence) {
  settle_sequence_ = open_sequence + 1;
  if (with_host) {
    tasks_.vanish();
  } else {
    tasks_.kill_leaders();
  }
  note_attendance();
  if (gone()) return both_ended();
  if (journal_) guardian_->agent_ended();
}

void Worker::guardian_ended(bool with_host) {
  if (with_host) tasks_.vanish();
  note_attendance();
  if (gone()) return both_ended();
  if (with_host) return;
  around_.timeline.after(around_.draw.between(0, kNews_s), [this] { agent_->guardian_gone(); });
}

// Tasks in the table now are in no journal.
void Worker::both_ended() {
  tasks_.leave_orphans();
  for (auto& [slot, task] : tasks_.all()) {
    around_.history.lost(task.execution);
    if (!task.own) continue;
    ++around_.lost_results;
    around_.history.result_lost(task.execution);
  }
  tasks_.all().clear();
}

}  // namespace wflow::simulation
