// SPDX-License-Identifier: Apache-2.0
// The coordinator's edge carries out what the machine decides.
#include <signal.h>

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/coordinate/coordinator_impl.h"
#include "engine/coordinate/journals.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/query/queries.h"

namespace wflow::engine {

static_assert(kSigKill == SIGKILL && kSigCont == SIGCONT);

// Answers may make new actions; an undelivered message is reported before anything else is received.
void Coordinator::carry_out() {
  do {
    unreachable_.clear();
    for (CoordinatorAction& action : machine_->take_actions())
      std::visit([&](auto& value) { on(value); }, action);
    // Once for all: a look at the processes of this host takes milliseconds, and a rack may be lost at once.
    if (std::exchange(has_new_readings_, false)) {
      for (event::JournalRead& journal : take_journals()) answers_.emplace_back(std::move(journal));
    }
    if (answers_.empty()) return;
    for (CoordinatorEvent& event : std::exchange(answers_, {})) handle(std::move(event));
  } while (true);
}

void Coordinator::on(action::Send& send) {
  if (unreachable_.contains(send.peer) || socket_->send(send.peer, send.message)) return;
  if (unreachable_.insert(send.peer).second) answers_.emplace_back(event::Undelivered{send.peer});
}

void Coordinator::on(action::Commit& commit) {
  status_.apply(commit.batch);
  for (const RecordEnd& end : commit.batch.ends) merlin_status_.changed(end, machine_->scheduler());
  commits_->submit(std::move(commit.batch));
}

void Coordinator::on(action::StartWorker& start) {
  batch::LocalWorkerOptions options;
  options.group = start.group;
  options.slots = start.slots;
  options.pin = groups_.find(start.group)->pin;
  options.started_by = epoch_;
  if (options_.around) options.launcher = options_.around->launcher;
  answers_.emplace_back(event::WorkerStarted{start.group, pool_.start(options)});
}

void Coordinator::on(action::Watch& watch) {
  pool_.watch(watch.process);
}

void Coordinator::on(action::Kill& kill) {
  pool_.kill(kill.process, kill.signal);
}

void Coordinator::on(action::ReadJournal& read) {
  readings_.emplace_back(plan_.campaign(), read);
  has_new_readings_ = true;
}

void Coordinator::on(action::LookAtJournal& look) {
  made(files_).call([this, campaign = plan_.campaign(), worker = look.worker]() -> SideThread::OnLoop {
    if (!has_ended(campaign, worker)) return {};
    return [this, worker] { handle(event::JournalEnded{worker}); };
  });
}

void Coordinator::on(action::RemoveJournal& remove) {
  made(files_).call([campaign = plan_.campaign(), worker = remove.worker]() -> SideThread::OnLoop {
    remove_journal(campaign, worker);
    return {};
  });
}

// The machine continues: both use the store (Store::snapshot()).
void Coordinator::make_snapshot(const PeerId& peer, const std::string& path) {
  made(copies_).call([this, peer, path]() -> SideThread::OnLoop {
    wire::Answer answer = answer_snapshot(store_, path);
    return [this, send = action::Send{peer, std::move(answer)}]() mutable { on(send); };
  });
}

void Coordinator::on(action::AnswerQuery& question) {
  if (const auto* snapshot = std::get_if<wire::SnapshotRequest>(&question.query.request))
    return make_snapshot(question.peer, snapshot->path);
  RunningElements running;
  for (const auto& peer : machine_->peers(steady_now_s())) {
    for (const wire::RunningElement& element : peer.running) running.emplace_back(peer.worker, element);
  }
  const auto status = [this] {
    set_state(state());  // not only as often as it is shown
    return status_.update(machine_->scheduler(), steady_now_s(), unix_now_s());
  };
  Queries queries(plan_, machine_->scheduler(), store_, running, status);
  action::Send send{question.peer, queries.answer(question.query.request)};
  if (const auto* explain = std::get_if<wire::ExplainRequest>(&question.query.request))
    add_wait(*explain, std::get<wire::Answer>(send.message));
  on(send);
}

// A task that could run may wait for an allocation.
void Coordinator::add_wait(const wire::ExplainRequest& request, wire::Answer& answer) const {
  auto* explained = std::get_if<wire::ExplainAnswer>(&answer.body);
  if (explained == nullptr || explained->state != ElementState::ready) return;
  explained->waits_for = machine_->waits_for(request.task.array, unix_now_s());
}

void Coordinator::on(action::ResolveRetry& resolve) {
  event::Retry retry;
  retry.peer = resolve.peer;
  try {
    retry.parts = parts_to_retry(plan_, machine_->scheduler(), store_, resolve.request.tasks);
  } catch (const Error& error) {
    retry.error = error.what();
  }
  answers_.emplace_back(std::move(retry));
}

void Coordinator::on(action::MeasureOutputs& measure) {
  made(files_).call([this, array = measure.array, element = measure.element]() -> SideThread::OnLoop {
    return [this, array, bytes = raw_outputs_.bytes(array, element)] {
      handle(event::OutputsMeasured{array, bytes});
    };
  });
}

void Coordinator::on(action::SubmitJob& submit) {
  batch_->call(batch::SubmitCall{std::move(submit.scheduler), std::move(submit.job)});
}

void Coordinator::on(action::CancelJobs& cancel) {
  batch_->call(batch::CancelCall{std::move(cancel.scheduler), std::move(cancel.ids)});
}

void Coordinator::on(action::QueryJobs& query) {
  batch_->call(batch::QueryCall{std::move(query.scheduler), std::move(query.prefix),
                                (plan_.campaign() / ".wflow" / "allocations").string()});
}

void Coordinator::on(action::Log& line) {
  // An error comes with a Fail, whose text is printed at the end of the program.
  line.level == LogLevel::error ? log::record(line.level, line.text) : log::write(line.level, line.text);
}

void Coordinator::on(action::Fail& fail) {
  throw Error(fail.code, fail.text);
}

}  // namespace wflow::engine
