// SPDX-License-Identifier: Apache-2.0
// What the tests of the coordinator machine share: a campaign of given text, and an edge without I/O that
// keeps the machine's requests.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/coordinate/machine.h"
#include "engine/schedule/graph.h"
#include "specs/study/test_study.h"

namespace wflow::engine {

inline ProcessIdentity process_of(const std::string& host, std::int64_t pid) {
  return {host, "boot-" + host, "pid-" + host, pid, static_cast<std::uint64_t>(pid)};
}

// A worker in a test: its processes have the pids `number` and `number` + 1.
struct TestWorker {
  std::string id;
  std::string host = "here";
  int number = 100;
  int cores = 1;
  std::uint64_t started_by = 0;
  ProcessIdentity guardian() const { return process_of(host, number); }
  ProcessIdentity agent() const { return process_of(host, number + 1); }
  KnownWorker known(bool journal = true) const {
    return {id, "default", guardian(), agent(), 60, journal, false, true};
  }
};

class TestEdge {
 public:
  explicit TestEdge(const std::string& step = "", int combinations = 4) : text_(study(step, combinations)) {
    options.self = process_of("here", 1);
    options.token = "token";
    options.max_range = 1;
  }

  // The campaign so far: what earlier coordinators left.
  store::Restored restored;
  std::vector<KnownWorker> known;
  MachineOptions options;
  bool hold_commits = false;  // CommitFinished comes by finish_commit() only

  void start() {
    plan_.emplace(text_.plan());
    machine_ =
        std::make_unique<CoordinatorMachine>(*plan_, array_specs(*plan_), options, restored, known, now);
    carry_out();
  }
  CoordinatorMachine& machine() { return *machine_; }

  template <class Event>
  void handle(Event event) {
    machine_->handle(now, CoordinatorEvent(std::move(event)));
    carry_out();
  }
  void say(const std::string& peer, wire::Message message) {
    handle(event::Message{peer, std::move(message)});
  }
  // In steps as short as the machine requests.
  void pass(double seconds) {
    const double until_s = now.steady_s + seconds;
    while (now.steady_s < until_s) {
      const double next_s = std::min(until_s, std::max(machine_->wake_at_s(), now.steady_s + 0.01));
      now.unix_s += next_s - now.steady_s;
      now.steady_s = next_s;
      handle(event::Time{});
    }
  }
  void finish_commit() {
    committing = false;
    handle(event::CommitFinished{});
  }

  wire::Hello hello(const TestWorker& worker, std::vector<wire::Lease> held = {}) const {
    wire::Hello hello;
    hello.campaign = options.token;
    hello.worker = worker.id;
    hello.group = "default";
    hello.guardian = worker.guardian();
    hello.agent = worker.agent();
    hello.started_by = worker.started_by;
    hello.cores = worker.cores;
    hello.held = std::move(held);
    return hello;
  }
  // A worker that joins on a connection of its own name, up to the heartbeat that ends its hand-over.
  void join(const TestWorker& worker, std::vector<wire::Lease> held = {}) {
    say(worker.id, hello(worker, std::move(held)));
    beat(worker.id);
  }
  void beat(const std::string& peer, std::vector<wire::RunningElement> running = {}) {
    say(peer, wire::Heartbeat{++beats_, 0, std::move(running)});
  }
  void end_process(const ProcessIdentity& process) { handle(event::ProcessEnded{process}); }
  void end_worker(const TestWorker& worker) {
    end_process(worker.guardian());
    end_process(worker.agent());
  }
  static wire::Results success(const wire::Lease& lease, std::uint64_t sequence = 1) {
    wire::Results results;
    results.sequence = sequence;
    results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, 0.1, 0.01, 1});
    return results;
  }
  static wire::Results failure(const wire::Lease& lease, int code, std::uint64_t sequence = 1) {
    wire::Results results;
    results.sequence = sequence;
    wire::Outcome outcome;
    outcome.lease = lease.id;
    outcome.array = lease.array;
    outcome.element = lease.first;
    outcome.attempt = lease.attempt;
    outcome.exit_code = code;
    results.outcomes.push_back(outcome);
    return results;
  }

  // ---- requests of the machine
  template <class M>
  std::vector<M> sent(const std::string& peer) const {
    std::vector<M> found;
    for (const auto& send : sends) {
      if (const auto* message = std::get_if<M>(&send.message); message != nullptr && send.peer == peer)
        found.push_back(*message);
    }
    return found;
  }
  std::vector<wire::Lease> leases(const std::string& peer) const {
    std::vector<wire::Lease> all;
    for (const wire::Leases& message : sent<wire::Leases>(peer))
      all.insert(all.end(), message.leases.begin(), message.leases.end());
    return all;
  }
  bool has_history(const std::string& part) const {
    for (const store::HistoryRow& row : history) {
      if (row.text.find(part) != std::string::npos) return true;
    }
    return false;
  }
  bool killed(const ProcessIdentity& process, int signal) const {
    for (const action::Kill& kill : kills) {
      if (kill.process == process && kill.signal == signal) return true;
    }
    return false;
  }
  std::uint64_t count(ElementState state) const {
    std::uint64_t sum = 0;
    for (ArrayId array = 0; array < machine_->scheduler().array_count(); ++array)
      sum += machine_->scheduler().progress(array).counts[static_cast<std::size_t>(state)];
    return sum;
  }

  Now now{1000, 5e8};
  bool committing = false;
  std::vector<action::Send> sends;
  std::vector<store::Batch> batches;
  std::vector<store::HistoryRow> history;
  std::vector<action::StartWorker> starts;
  std::vector<ProcessIdentity> watched;
  std::vector<action::Kill> kills;
  std::vector<action::ReadJournal> reads;
  std::vector<std::string> looks;  // workers whose journals to check
  std::vector<std::string> removed;
  std::vector<action::AnswerQuery> questions;
  std::vector<action::ResolveRetry> retries;
  std::vector<action::SubmitJob> submits;
  std::vector<action::MeasureOutputs> measures;
  std::vector<action::CancelJobs> cancels;
  int queries = 0;
  std::vector<action::Fail> fails;
  std::vector<std::string> traced;
  std::vector<std::string> order;  // "commit", "question": in which they came

 private:
  static std::string study(const std::string& step, int combinations) {
    std::string values;
    for (int i = 0; i < combinations; ++i) values += (i > 0 ? ", " : "") + std::to_string(i);
    return "description: {name: test}\nglobal.parameters:\n  P: {values: [" + values +
           "], label: P.%%}\nstudy:\n  - name: simulate\n    run: {cmd: \"echo $(P)\"" + step + "}\n";
  }

  void carry_out() {
    for (CoordinatorAction& action : machine_->take_actions())
      std::visit([&](auto& value) { keep(value); }, action);
    if (committing && !hold_commits) finish_commit();
  }
  void keep(action::Send& send) { sends.push_back(std::move(send)); }
  void keep(action::Commit& commit) {
    EXPECT_FALSE(std::exchange(committing, true)) << "two commits at once";
    EXPECT_FALSE(commit.batch.empty());
    history.insert(history.end(), commit.batch.history.begin(), commit.batch.history.end());
    batches.push_back(std::move(commit.batch));
    order.push_back("commit");
  }
  void keep(action::StartWorker& start) { starts.push_back(start); }
  void keep(action::Watch& watch) { watched.push_back(watch.process); }
  void keep(action::Kill& kill) { kills.push_back(kill); }
  void keep(action::ReadJournal& read) { reads.push_back(read); }
  void keep(action::LookAtJournal& look) { looks.push_back(look.worker); }
  void keep(action::RemoveJournal& remove) { removed.push_back(remove.worker); }
  void keep(action::AnswerQuery& question) {
    questions.push_back(std::move(question));
    order.push_back("question");
  }
  void keep(action::ResolveRetry& retry) { retries.push_back(std::move(retry)); }
  void keep(action::Log& line) {
    if (line.level == LogLevel::trace) traced.push_back(std::move(line.text));
  }
  void keep(action::MeasureOutputs& measure) { measures.push_back(measure); }
  void keep(action::SubmitJob& submit) {
    submits.push_back(std::move(submit));
    order.push_back("submit");
  }
  void keep(action::CancelJobs& cancel) { cancels.push_back(std::move(cancel)); }
  void keep(action::QueryJobs&) { ++queries; }
  void keep(action::Fail& fail) { fails.push_back(fail); }

  specs::StudyText text_;
  std::optional<specs::Plan> plan_;
  std::unique_ptr<CoordinatorMachine> machine_;
  std::uint64_t beats_ = 0;
};

}  // namespace wflow::engine
