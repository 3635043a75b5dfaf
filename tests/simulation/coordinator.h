// SPDX-License-Identifier: Apache-2.0
// A simulated coordinator process: the real machine and the real store, on a simulated disk and network.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/coordinate/machine.h"
#include "engine/store/store.h"
#include "tests/simulation/batch.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/surroundings.h"
#include "tests/simulation/worker.h"

namespace wflow::simulation {

// All workers that there ever were.
class Workers {
 public:
  explicit Workers(Surroundings& around) : around_(around) {}
  Worker& start(Host& host, const std::string& group, int slots, std::uint64_t started_by, double linger_s,
                JobStart job = {});
  Worker* find(const std::string& id);
  Worker* with_agent(const ProcessIdentity& agent);
  const std::vector<std::unique_ptr<Worker>>& all() const { return workers_; }

 private:
  Surroundings& around_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

struct CoordinatorOptions {
  bool resumed = false;
  bool keep_going = false;
  double linger_s = 300;         // linger time of the workers that it starts
  bool journals_unseen = false;  // the last writes to journals of other hosts are not visible here
  bool moves = false;            // it lives in an allocation: SIGTERM makes it hand over
  Batch* batch = nullptr;        // null: the campaign has no pools
};

class Coordinator final : public Process, public Server {
 public:
  Coordinator(Surroundings& around, Host& host, Workers& workers, CoordinatorOptions options);
  ~Coordinator();

  // Takes the campaign's lock, which may last, and begins. Ends this process where another one holds the
  // campaign, or where the disk is full.
  void begin();
  bool begun() const { return machine_ != nullptr; }
  void signal(engine::event::SignalKind kind);
  // Killed before the so many-th change of the disk from now, in the commit that is under way. False: none
  // is.
  bool die_in_commit(std::uint64_t changes);
  void die_after(std::uint64_t actions) { die_after_ = actions; }
  bool committing() const { return committing_.has_value(); }
  // It has ended in good order, and all elements have ended.
  bool campaign_over() const { return campaign_over_; }
  const engine::CoordinatorMachine* machine() const { return machine_.get(); }
  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t listener() const { return listener_; }
  double begun_s() const { return begun_s_; }

  void receive(ConnectionId connection, wire::Message message) override;

 protected:
  void woken() override;
  void ended(bool with_host) override;

 private:
  void open_store();
  void beat();
  void lose(const Error& error);
  void succeed_others();
  void expect_alone() const;
  std::vector<engine::KnownWorker> known_workers(const engine::store::Restored& restored) const;
  void make_machine(const engine::store::Restored& restored);
  ProcessIdentity another_host() const;  // of a worker elsewhere; its own where there is none
  void schedule(double delay_s);
  void turn();
  bool take_some();
  void handle(engine::CoordinatorEvent event);
  void post(engine::CoordinatorEvent event);
  void acknowledge_early(const engine::CoordinatorEvent& event);
  void carry_out(std::vector<engine::CoordinatorAction> actions);
  void look_at(const engine::action::Send& send);
  void finish_commit(std::uint64_t number);
  void fail(const std::string& why);
  void forget_answers();
  void check_answer(const engine::PeerId& peer);
  void follow_request(const engine::CoordinatorEvent& event);
  void check_confirmation(const engine::action::Send& send);
  std::uint64_t ended_elements() const;
  void on(engine::action::Send& send);
  void on(engine::action::Commit& commit);
  void on(engine::action::StartWorker& start);
  void on(engine::action::Watch& watch);
  void on(engine::action::Kill& kill);
  void on(engine::action::ReadJournal& read);
  void on(engine::action::LookAtJournal& look);
  void on(engine::action::RemoveJournal& remove);
  void on(engine::action::AnswerQuery& answer);
  void on(engine::action::ResolveRetry& resolve);
  void on(engine::action::MeasureOutputs& measure);
  void on(engine::action::SubmitJob& submit);
  void on(engine::action::CancelJobs& cancel);
  void on(engine::action::QueryJobs& query);
  void expect_leased_again();
  void on(engine::action::Log& log);
  void on(engine::action::Fail& fail);
  std::string journal_bytes(Worker* worker, const std::string& id, bool here);

  Surroundings& around_;
  Workers& workers_;
  CoordinatorOptions options_;
  std::shared_ptr<DiskUser> disk_user_;
  CoordinatorLock lock_;
  std::unique_ptr<engine::store::Store> store_;
  std::unique_ptr<engine::CoordinatorMachine> machine_;
  std::uint64_t epoch_ = 0;
  std::uint64_t listener_ = 0;
  double begun_s_ = 0;
  std::deque<engine::CoordinatorEvent> urgent_;  // before any message
  std::deque<engine::CoordinatorEvent> messages_;
  std::deque<engine::CoordinatorEvent> others_;
  std::optional<engine::store::Batch> committing_;
  std::uint64_t commits_ = 0;
  bool commit_due_ = false;
  std::set<std::string> durable_workers_;
  std::map<engine::PeerId, std::string> peer_workers_;     // by the last Hello of each
  std::map<std::string, double> greeted_s_;                // the last Hello of each worker
  std::map<engine::PeerId, std::uint64_t> answered_from_;  // elements that had ended when it asked
  std::map<engine::PeerId, std::uint64_t> recorded_by_;    // the commit with what its request changes
  std::set<engine::PeerId> undelivered_;                   // while actions are carried out
  double scheduled_s_ = -1;
  std::uint64_t turn_number_ = 0;
  std::uint64_t idle_turns_ = 0;
  std::uint64_t pauses_ = 0;  // how often it has stood still
  double idle_since_s_ = 0;
  std::optional<std::uint64_t> die_after_;
  bool failing_ = false;
  bool campaign_over_ = false;
};

}  // namespace wflow::simulation
