// SPDX-License-Identifier: Apache-2.0
// A simulated worker: the real agent machine, and models of what is around it (guardian, slot table, kernel).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simulation/surroundings.h"
#include "tests/simulation/task_table.h"
#include "workers/agent/journal.h"

namespace wflow::simulation {

class Worker;

// Waits for its agent, ends one that is frozen past its fence, and journals what had ended when it died.
class Guardian final : public Process {
 public:
  Guardian(Surroundings& around, Host& host, Worker& worker)
      : Process(around.hosts, host), around_(around), worker_(worker) {}

  void terminate() override;
  void agent_ended();
  void set_fence(double steady_s);
  double fence_s() const { return fence_s_; }
  bool was_signalled() const { return signalled_; }

 protected:
  void woken() override;
  void ended(bool with_host) override;

 private:
  void look_at_fence();
  void settle();
  bool is_journaled(const RunningTask& task, const std::vector<wire::Results>& records) const;

  Surroundings& around_;
  Worker& worker_;
  double fence_s_ = std::numeric_limits<double>::infinity();
  bool fence_scheduled_ = false;
  bool settle_due_ = false;
  bool signalled_ = false;
};

class Agent final : public Process, public Client {
 public:
  Agent(Surroundings& around, Host& host, Worker& worker, workers::AgentOptions options);

  void begin();
  void guardian_gone();
  void terminate() override;
  // Its allocation ends so long from now, on its host's clock.
  void told_end(double in_s);
  void task_ended(workers::SlotId slot);
  std::uint64_t open_sequence() const { return machine_->open_sequence(); }
  std::size_t inbox() const { return messages_.size() + children_.size() + others_.size(); }
  ConnectionId connection() const { return connection_; }
  bool let_go() const { return let_go_; }  // ended as its coordinator told it
  // Killed before it carries out its so many-th action from now.
  void die_after(std::uint64_t actions) { die_after_ = actions; }

  void connected(ConnectionId connection) override;
  void connection_lost(ConnectionId connection) override;
  void receive(ConnectionId connection, wire::Message message) override;

 protected:
  void woken() override;
  void ended(bool with_host) override;

 private:
  void schedule(double delay_s);
  void turn();
  bool take_some();
  void take_child(workers::SlotId slot);
  void note_written(const engine::wire::Results& record);
  void handle(workers::AgentEvent event);
  void take_acknowledgement(std::uint64_t sequence);
  void carry_out(std::vector<workers::AgentAction> actions);
  void on(workers::action::LookUp&);
  void on(workers::action::Connect& connect);
  void on(workers::action::Send& send);
  void on(workers::action::AppendJournal& append);
  void on(workers::action::ClearJournal&);
  void on(workers::action::SyncJournal&);
  void on(workers::action::NoteLost& note);
  void on(workers::action::OpenSamples&);
  void on(workers::action::AddTemplate&) {}
  void on(workers::action::StartTask& start);
  void on(workers::action::EndTask& end);
  void on(workers::action::EndRanks& end);
  void on(workers::action::InterruptTask&) {}
  void on(workers::action::FollowEvents&);
  void on(workers::action::SetFence& fence);
  void on(workers::action::Log& log);
  void on(workers::action::Exit& exit);

  Surroundings& around_;
  Worker& worker_;
  std::unique_ptr<workers::AgentMachine> machine_;
  std::deque<workers::AgentEvent> answers_;  // to what it has just asked for
  std::deque<workers::AgentEvent> messages_;
  std::deque<workers::SlotId> children_;
  std::deque<workers::AgentEvent> others_;
  ConnectionId connection_ = 0;
  double scheduled_s_ = -1;
  std::uint64_t turn_number_ = 0;
  double busy_until_s_ = 0;
  std::uint64_t idle_turns_ = 0;
  double idle_since_s_ = 0;
  std::optional<std::uint64_t> die_after_;
  bool let_go_ = false;
  std::set<std::tuple<engine::LeaseId, Element, std::uint32_t>> neutral_;  // outcomes that history knows
  bool journal_unseen_ = false;  // other hosts may not see all of it
  bool journal_failed_ = false;  // since the last end of a task
  bool journal_written_ = false;
  // Ends that the machine knows and has not written yet.
  std::vector<std::pair<engine::Lease, ExecutionNumber>> held_back_;
  std::map<std::uint64_t, wire::Results> unacknowledged_;  // that it has sent
  std::set<ResultId> acknowledged_;
};

// The job that starts a worker; without a token there is none.
struct JobStart {
  std::string token;
  int restarts = 0;  // its earlier starts
};

class Worker {
 public:
  Worker(Surroundings& around, Host& host, WorkerNumber number, std::string group, int slots,
         std::uint64_t started_by, double linger_s, JobStart job);

  const std::string& allocation() const { return job_.token; }
  const std::string& id() const { return id_; }
  const std::string& group() const { return group_; }
  WorkerNumber number() const { return number_; }
  Host& host() const { return host_; }
  Guardian& guardian() { return *guardian_; }
  Agent& agent() { return *agent_; }
  TaskTable& tasks() { return tasks_; }
  // A coordinator has made the worker durable and sends it the end of the campaign.
  void note_row(double now_s) { row_s_ = std::min(row_s_, now_s); }
  double row_s() const { return row_s_; }
  bool gone() const { return !guardian_->alive() && !agent_->alive(); }
  // Both at once, as a kill of the whole worker does.
  void kill();
  // The end of its allocation: the machine gets the event now, and remaining processes are killed then.
  void end_at(double in_s);

  // It says Goodbye now: a coordinator on another host reads from its journal what it has not acknowledged.
  void expect_visible_journal(const std::set<ResultId>& acknowledged) const;
  // Its result is dropped.
  void expect_not_done(const RunningTask& task) const;
  // Notes a write to its journal; returns false if the disk is full.
  bool append(const wire::Results& record);
  bool clear_journal();
  // By its guardian, at its end; with what ran when its agent was killed.
  void close_journal(std::vector<wire::RunningElement> running);
  bool note_lost(double lost_s);
  bool has_journal() const { return journal_ != nullptr; }  // false: the disk was full, and it ends at once
  // For the guardian.
  workers::Journal& journal() { return *journal_; }

  // Called when one of its processes has stopped, goes on or has ended.
  void note_attendance();
  // True if both processes have stood still for longer than the coordinator allows for, since then.
  bool beyond_bounds(double since_s) const { return since_s < beyond_until_s_ || stands_still_too_long(); }
  void agent_ended(bool with_host, std::uint64_t open_sequence);
  void guardian_ended(bool with_host);
  std::uint64_t settle_sequence() const { return settle_sequence_; }

 private:
  bool attended() const { return guardian_->runs() || agent_->runs(); }
  double pause_limit_s() const;
  bool stands_still_too_long() const;
  void both_ended();

  Surroundings& around_;
  Host& host_;
  WorkerNumber number_;
  std::string group_, id_;
  JobStart job_;
  TaskTable tasks_;
  std::unique_ptr<Guardian> guardian_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<workers::Journal> journal_;
  std::optional<double> unattended_since_s_;
  double beyond_until_s_ = -1;  // the end of the last pause that was too long
  double row_s_ = std::numeric_limits<double>::infinity();
  std::uint64_t settle_sequence_ = 0;
};

}  // namespace wflow::simulation
