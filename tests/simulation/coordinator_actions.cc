// SPDX-License-Identifier: Apache-2.0
// What the coordinator's edge does for its machine.
#include <algorithm>
#include <utility>
#include <variant>

#include "base/error.h"
#include "engine/query/selection.h"
#include "engine/wire/worker_journal.h"
#include "tests/simulation/coordinator.h"

namespace wflow::simulation {

namespace {

constexpr int kSigKill = 9, kSigTerm = 15, kSigCont = 18;
constexpr double kCommitAtLeast_s = 1e-3;
constexpr double kCommitAtMost_s = 0.03;
constexpr double kSlowCommit_s = 4;
constexpr double kCommitAgain_s = 1;
constexpr double kReadAtMost_s = 0.05;
constexpr double kStartAtMost_s = 0.05;
constexpr double kCallAtLeast_s = 0.02, kCallAtMost_s = 1;  // a call of the batch scheduler
constexpr double kNoAnswer = 0.05;
// Beyond three missing heartbeats: messages under way, and the reading of the journal.
constexpr double kLeasedAgain_s = 5;

ConnectionId connection_of(const engine::PeerId& peer) {
  return std::stoull(peer.substr(1));
}

}  // namespace

void Coordinator::carry_out(std::vector<engine::CoordinatorAction> actions) {
  // A Log is not counted as an action, so that a schedule is the same with a trace.
  const auto is_trace = [](const engine::CoordinatorAction& action) {
    const auto* log = std::get_if<engine::action::Log>(&action);
    return log != nullptr && log->level == LogLevel::trace;
  };
  const auto traced = static_cast<std::size_t>(std::count_if(actions.begin(), actions.end(), is_trace));
  if (actions.size() - traced > 100 + 10 * around_.study.elements + 20 * workers_.all().size())
    throw Violation("bounded", fmt::format("the coordinator decides {} actions at once", actions.size()));
  undelivered_.clear();
  for (engine::CoordinatorAction& action : actions) {
    if (is_trace(action)) {
      if (alive()) on(std::get<engine::action::Log>(action));
      continue;
    }
    if (die_after_ && (*die_after_)-- == 0) {
      around_.trace.line("coord", "is killed between two actions");
      around_.faults.count(Fault::coordinator_killed);
      end();
    }
    if (!alive() || failing_) return;
    expect_alone();
    std::visit([this](auto& value) { on(value); }, action);
  }
}

void Coordinator::look_at(const engine::action::Send& send) {
  const auto* leases = std::get_if<wire::Leases>(&send.message);
  if (leases == nullptr) return;
  const std::string& worker = peer_workers_[send.peer];
  if (!durable_workers_.contains(worker))
    throw Violation("durable workers",
                    fmt::format("worker {} is leased something before its row is on disk", worker));
  for (const wire::Lease& lease : leases->leases) {
    around_.history.leased(lease);
    around_.trace.line("coord", "leases {} (+{}) attempt {} lease {:x} to {}",
                       around_.history.name(lease.array, lease.first), lease.count - 1, lease.attempt,
                       lease.id, worker);
  }
}

void Coordinator::on(engine::action::Send& send) {
  if (undelivered_.contains(send.peer)) return;
  spoil_sent(around_.planted, send.message, around_.study.arrays, around_.timing);
  look_at(send);
  check_confirmation(send);
  if (around_.network.send_to_client(connection_of(send.peer), std::move(send.message))) return;
  around_.trace.line("coord", "a message to {} is undelivered", peer_workers_[send.peer]);
  undelivered_.insert(send.peer);
  urgent_.emplace_back(engine::event::Undelivered{send.peer});
  schedule(0);
}

// ---- the database

void Coordinator::on(engine::action::Commit& commit) {
  if (committing_) throw Violation("one commit at a time", "a second commit is asked for");
  around_.history.committing(commit.batch);
  for (const auto& floor : commit.batch.floors) {
    around_.trace.line("coord", "floor of {} to {}: {:x}",
                       around_.history.name(floor.array, floor.range.first), floor.range.last, floor.lease);
  }
  committing_ = std::move(commit.batch);
  spoil(around_.planted, *committing_);
  // Where a worker joins, "durable workers" would find it, too.
  const bool early = around_.planted == Planted::finish_before_commit && committing_->workers_joined.empty();
  if (early) post(engine::event::CommitFinished{});
  const std::uint64_t number = ++commits_;
  const bool slow = around_.draw.chance(around_.mishaps.slow_commit);
  if (slow) around_.faults.count(Fault::slow_commit);
  around_.timeline.after(around_.draw.logarithmic(kCommitAtLeast_s, slow ? kSlowCommit_s : kCommitAtMost_s),
                         [this, number] { finish_commit(number); });
}

void Coordinator::finish_commit(std::uint64_t number) {
  if (!alive() || number != commits_ || !committing_) return;
  if (!runs()) {
    commit_due_ = true;
    return;
  }
  commit_due_ = false;
  around_.vfs.use(&around_.disk, disk_user_);
  try {
    store_->commit(*committing_);
  } catch (const Error& error) {
    // As CommitThread: again and again.
    if (error.code() == ExitCode::busy) return lose(error);
    if (!is_disk_trouble(error)) return fail(error.what());
    around_.faults.count(Fault::commit_waited);
    post(engine::event::CommitWaits{error.what()});
    around_.timeline.after(kCommitAgain_s, [this, number] { finish_commit(number); });
    return;
  }
  expect_alone();
  const engine::store::Batch batch = *std::exchange(committing_, std::nullopt);
  around_.history.committed(batch);
  const auto reopens = [](const engine::RecordEnd& end) { return !engine::has_ended(end.state); };
  if (std::ranges::any_of(batch.ends, reopens)) forget_answers();
  for (const auto& row : batch.workers_joined) {
    durable_workers_.insert(row.id);
    if (Worker* const worker = workers_.find(row.id)) worker->note_row(around_.timeline.now_s());
  }
  for (const auto& end : batch.workers_ended) durable_workers_.erase(end.id);
  around_.trace.line("coord", "commit of {} ends, {} failures, {} workers", batch.ends.size(),
                     batch.failures.size(), batch.workers_joined.size());
  const bool reported = around_.planted == Planted::finish_before_commit && batch.workers_joined.empty();
  if (!reported) post(engine::event::CommitFinished{});
}

bool Coordinator::die_in_commit(std::uint64_t changes) {
  if (!runs() || !committing_) return false;
  around_.faults.count(Fault::coordinator_killed_in_commit);
  around_.vfs.use(&around_.disk, disk_user_);
  disk_user_->changes_left = changes;
  try {
    store_->commit(*committing_);
    around_.history.committed(*committing_);  // it was done before its death
  } catch (const Error& error) {
    around_.trace.line("coord", "is killed in a commit: {}", error.what());
  }
  end();
  return true;
}

// The edge ends every worker of this machine before it gives up.
void Coordinator::fail(const std::string& why) {
  if (std::exchange(failing_, true)) return;
  around_.trace.line("coord", "fails: {}", why);
  for (const auto& worker : workers_.all()) {
    if (&worker->host() == &host() && !worker->gone()) worker->guardian().terminate();
  }
  around_.timeline.after(around_.timing.dismiss_s, [this] {
    for (const auto& worker : workers_.all()) {
      if (&worker->host() == &host() && !worker->gone() && alive()) worker->guardian().end();
    }
    if (alive()) lock_.rules().end(engine::store::HolderState::handed_over);
    end();
  });
}

void Coordinator::on(engine::action::Fail& failure) {
  fail(failure.text);
}

// ---- workers

void Coordinator::on(engine::action::StartWorker& start) {
  around_.timeline.after(around_.draw.between(0, kStartAtMost_s), [this, start] {
    if (!alive() || failing_) return;
    Worker& worker = workers_.start(host(), start.group, start.slots, epoch_, options_.linger_s);
    post(engine::event::WorkerStarted{start.group, worker.guardian().identity()});
  });
}

void Coordinator::on(engine::action::Watch& watch) {
  const ProcessIdentity process = watch.process;
  if (!process.same_table(identity()))
    throw Violation("own processes only", "a process of another process table is watched");
  Worker* const planted =
      around_.planted == Planted::end_with_guardian ? workers_.with_agent(process) : nullptr;
  const ProcessIdentity& watched = planted != nullptr ? planted->guardian().identity() : process;
  around_.hosts.watch(watched, [this, process] { post(engine::event::ProcessEnded{process}); });
}

void Coordinator::on(engine::action::Kill& kill) {
  if (!kill.process.same_table(identity()))
    throw Violation("own processes only", "a process of another process table is signalled");
  Process* const process = around_.hosts.find(kill.process);
  around_.trace.line("coord", "signal {} to pid {} of {}{}", kill.signal, kill.process.pid, kill.process.host,
                     process != nullptr ? "" : ", which has ended");
  if (process == nullptr) return;
  if (kill.signal == kSigKill) process->end();
  if (kill.signal == kSigTerm) process->terminate();
  if (kill.signal == kSigCont) process->go_on();
}

// The part of the journal that this host sees.
std::string Coordinator::journal_bytes(Worker* worker, const std::string& id, bool here) {
  const auto file = around_.disk.find(journal_path(around_.study, id));
  if (!file) return {};
  const bool unseen = options_.journals_unseen && !here && worker != nullptr && &worker->host() != &host() &&
                      file->has_unsynced();
  if (!unseen) return file->bytes();
  around_.faults.count(Fault::journal_unseen);
  // A success that is not visible here is no promise: it arrives when the worker comes back, or never.
  for (const auto& [array, element, lease] : results_in(file->bytes()))
    around_.history.unseen(array, element, lease);
  return file->synced_bytes();
}

void Coordinator::on(engine::action::ReadJournal& read) {
  Worker* const worker = workers_.find(read.worker);
  if (worker != nullptr && &worker->host() == &host()) {
    if (read.here && !worker->gone())
      throw Violation("dead workers' journals",
                      fmt::format("the journal of {} is read while its processes live", read.worker));
    if (worker->gone()) worker->tasks().end_children();
  }
  around_.timeline.after(around_.draw.logarithmic(1e-4, kReadAtMost_s), [this, worker, read] {
    if (!alive()) return;
    engine::wire::Records records =
        engine::wire::parse_records(journal_bytes(worker, read.worker, read.here));
    engine::event::JournalRead event{read.worker, std::move(records.results), std::nullopt};
    if (around_.planted == Planted::skip_journals) event.results.clear();
    if (records.header && around_.planted != Planted::forget_what_ran)
      event.running = std::move(records.header->running);
    if (records.damaged) event.damaged = records.damaged.sentence();
    around_.trace.line("coord", "has read the journal of {}: {} records", read.worker, event.results.size());
    post(std::move(event));
  });
}

// Another host sees later writes at a later look.
void Coordinator::on(engine::action::LookAtJournal& look) {
  const Worker* const worker = workers_.find(look.worker);
  const auto file = around_.disk.find(journal_path(around_.study, look.worker));
  if (worker == nullptr || !file) return;
  const bool unseen = options_.journals_unseen && file->has_unsynced();
  const auto header = engine::wire::parse_records(unseen ? file->synced_bytes() : file->bytes()).header;
  if (!header || !header->ended) return;
  around_.trace.line("coord", "sees in the journal of {} that it has ended", look.worker);
  urgent_.emplace_back(engine::event::JournalEnded{look.worker});
  schedule(0);
}

void Coordinator::on(engine::action::RemoveJournal& remove) {
  around_.trace.line("coord", "removes the journal of {}", remove.worker);
  around_.disk.remove(journal_path(around_.study, remove.worker), host().name, false);
}

// ---- the batch scheduler

void Coordinator::on(engine::action::SubmitJob& submit) {
  around_.timeline.after(around_.draw.logarithmic(kCallAtLeast_s, kCallAtMost_s), [this, job = submit.job] {
    if (!alive() || options_.batch == nullptr) return;
    const engine::batch::Submission answer = options_.batch->submit(job);
    around_.timeline.after(around_.draw.logarithmic(kCallAtLeast_s, kCallAtMost_s), [this, answer, job] {
      post(engine::event::JobSubmitted{job.token, answer});
    });
  });
}

void Coordinator::on(engine::action::CancelJobs& cancel) {
  if (options_.batch != nullptr) options_.batch->asked_to_cancel(cancel.ids);
  around_.timeline.after(around_.draw.logarithmic(kCallAtLeast_s, kCallAtMost_s), [this, cancel] {
    if (!alive() || options_.batch == nullptr) return;
    post(engine::event::JobsCancelled{cancel.scheduler, cancel.ids, options_.batch->cancel(cancel.ids)});
  });
}

void Coordinator::on(engine::action::QueryJobs& query) {
  around_.timeline.after(around_.draw.logarithmic(kCallAtLeast_s, kCallAtMost_s), [this, query] {
    if (!alive() || options_.batch == nullptr) return;
    if (around_.draw.chance(kNoAnswer)) {
      engine::batch::JobList none;
      none.text = "it is busy";
      return post(engine::event::JobsListed{query.scheduler, std::move(none)});
    }
    engine::batch::JobList list = options_.batch->list();
    expect_leased_again();
    if (around_.planted == Planted::ignore_the_scheduler) return;
    post(engine::event::JobsListed{query.scheduler, std::move(list)});
  });
}

// Soon after the scheduler has said that a job or a node is gone, its workers hold nothing any more.
void Coordinator::expect_leased_again() {
  if (!runs() || failing_) return;
  std::set<std::string> followed;
  const double unix_s = host().at(around_.timeline.now_s()).unix_s;
  for (const wire::AllocationView& allocation : machine_->allocations(unix_s, false).allocations) {
    followed.insert(allocation.token);
  }
  std::vector<std::string> gone;
  for (const std::string& id : options_.batch->gone()) {
    const Worker* const worker = workers_.find(id);
    const bool known =
        machine_->scheduler().workers().contains(id) && followed.contains(worker->allocation());
    if (known && worker->gone() && &worker->host() != &host()) gone.push_back(id);
  }
  if (gone.empty()) return;
  constexpr std::size_t kMany = 1'000'000;  // workers: the longest time between two heartbeats
  const double limit_s = 3 * around_.timing.heartbeat_of(kMany) + kLeasedAgain_s;
  around_.timeline.after(limit_s, [this, gone, pauses = pauses_, asked_s = around_.timeline.now_s()] {
    if (!runs() || failing_ || pauses != pauses_) return;
    for (const std::string& id : gone) {
      // A Hello that was on the way says otherwise.
      if (!machine_->scheduler().workers().contains(id) || greeted_s_[id] > asked_s) continue;
      throw Violation("leased again at once",
                      fmt::format("{} holds its leases though the scheduler has said that it is gone", id));
    }
  });
}

// ---- users

// Everything that the answer may be about is on disk. But for a status while a commit waits for the disk: it
// says so, and counts what is not there yet.
void Coordinator::check_answer(const engine::PeerId& peer) {
  if (!machine_->disk_trouble().empty()) return;  // until it has heard that the commit is on disk
  if (committing_) throw Violation("durable answers", "a question is answered while a commit is under way");
  if (!around_.draw.chance(0.2)) return;
  around_.vfs.use(&around_.disk, disk_user_);
  std::uint64_t stored = 0;
  for (const auto& end : store_->restore().ends) stored += end.range.size();
  // Ends that came meanwhile may be under way to the disk.
  if (stored < answered_from_[peer])
    throw Violation(
        "durable answers",
        fmt::format("{} elements have ended, {} of them in the database, when a question is answered",
                    answered_from_[peer], stored));
}

// Each records something if its answer counts tasks. (Tasks that run are cancelled without a record.)
void Coordinator::follow_request(const engine::CoordinatorEvent& event) {
  const std::uint64_t next_commit = commits_ + 1;
  if (const auto* retry = std::get_if<engine::event::Retry>(&event)) recorded_by_[retry->peer] = next_commit;
  const auto* message = std::get_if<engine::event::Message>(&event);
  const auto* query = message != nullptr ? std::get_if<wire::Query>(&message->message) : nullptr;
  const auto* cancel = query != nullptr ? std::get_if<wire::CancelRequest>(&query->request) : nullptr;
  if (cancel != nullptr && !cancel->kill) recorded_by_[message->peer] = next_commit;
}

void Coordinator::check_confirmation(const engine::action::Send& send) {
  const auto* answer = std::get_if<wire::Answer>(&send.message);
  const auto* done = answer != nullptr ? std::get_if<wire::Done>(&answer->body) : nullptr;
  if (done == nullptr || done->count == 0) return;
  const auto request = recorded_by_.find(send.peer);
  const std::uint64_t on_disk = commits_ - (committing_ ? 1 : 0);
  if (request != recorded_by_.end() && request->second > on_disk)
    throw Violation("durable answers", fmt::format("{} tasks are cancelled or will run again, says an answer "
                                                   "before that is on disk",
                                                   done->count));
}

void Coordinator::on(engine::action::AnswerQuery& answer) {
  check_answer(answer.peer);
  if (around_.planted == Planted::drop_answers) return;
  engine::action::Send send{answer.peer, wire::done_answer()};
  on(send);
}

void Coordinator::on(engine::action::ResolveRetry& resolve) {
  engine::event::Retry retry{resolve.peer, {}, std::nullopt};
  try {
    retry.parts = engine::parts_named(around_.study.plan, resolve.request.tasks);
  } catch (const Error& error) {
    retry.error = error.what();
  }
  post(std::move(retry));
}

void Coordinator::on(engine::action::MeasureOutputs& measure) {
  post(engine::event::OutputsMeasured{measure.array,
                                      around_.history.raw_bytes(measure.array, measure.element)});
}

void Coordinator::on(engine::action::Log& log) {
  around_.trace.line("coord", "{}", log.text);
}

}  // namespace wflow::simulation
