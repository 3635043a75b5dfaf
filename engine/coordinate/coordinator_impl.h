// SPDX-License-Identifier: Apache-2.0
// The edge of the coordinator machine: it turns sockets, signals, processes, journals and the database into
// events, and carries out actions. It decides nothing. For coordinator.cc and carry_out.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/loop_inputs.h"
#include "engine/batch/batch_thread.h"
#include "engine/batch/local_pool.h"
#include "engine/batch/orphans.h"
#include "engine/coordinate/coordinator.h"
#include "engine/coordinate/journals.h"
#include "engine/coordinate/machine.h"
#include "engine/monitor/live_status.h"
#include "engine/monitor/merlin_status.h"
#include "engine/schedule/graph.h"
#include "engine/store/commit_thread.h"
#include "engine/store/store.h"
#include "engine/wire/transport.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// Measures the files of a simulation that a conversion reads and then deletes.
class RawOutputs {
 public:
  // `plan` outlives it.
  explicit RawOutputs(const specs::Plan& plan);

  // The bytes of the files that this element of a simulation's array has left for its conversion; empty
  // unless all of them exist. Checks one file or a few.
  std::optional<std::uint64_t> bytes(specs::ArrayId array, specs::Element element);

 private:
  struct Place {
    specs::TaskTemplate source;
    std::set<std::string> files;  // in the directory of a sample; $(MERLIN_SAMPLE_ID) is its number
  };
  const Place& place_of(specs::ArrayId array);

  const specs::Plan& plan_;
  std::map<specs::ArrayId, specs::ArrayId>
      conversions_;                         // conversions that delete, by the array that makes the files
  std::map<specs::ArrayId, Place> places_;  // cached
};

class Coordinator {
 public:
  Coordinator(const specs::Plan& plan, const CoordinatorOptions& options, const StatusSink& sink);
  CoordinatorEnd run();

 private:
  // coordinator.cc
  std::unique_ptr<CoordinatorMachine> make_machine();
  wire::Listen listens(const std::vector<KnownWorker>& known) const;
  std::vector<LocalGroup> find_local_groups() const;
  void work();
  void wait();
  void take_events();
  void finish_commit();
  void write_due_status();
  void take_messages();
  std::vector<event::JournalRead> take_journals();
  void take_signals();
  void take_batch_replies();
  void take_side_work();
  void handle(CoordinatorEvent event);
  void abandon_workers();
  void show(double now_s, bool last);
  void note_refused();
  CampaignState state() const;
  void set_state(CampaignState state);
  CoordinatorEnd finish();

  // carry_out.cc: one function an action
  void carry_out();
  void on(action::Send& send);
  void on(action::Commit& commit);
  void on(action::StartWorker& start);
  void on(action::Watch& watch);
  void on(action::Kill& kill);
  void on(action::ReadJournal& read);
  void on(action::LookAtJournal& look);
  void on(action::RemoveJournal& remove);
  void on(action::AnswerQuery& question);
  void on(action::ResolveRetry& resolve);
  void on(action::MeasureOutputs& measure);
  void on(action::SubmitJob& submit);
  void on(action::CancelJobs& cancel);
  void on(action::QueryJobs& query);
  void on(action::Log& log);
  void on(action::Fail& fail);
  void make_snapshot(const PeerId& peer, const std::string& path);
  void add_wait(const wire::ExplainRequest& request, wire::Answer& answer) const;

  const specs::Plan& plan_;
  CoordinatorOptions options_;
  const StatusSink& sink_;
  wire::CampaignKeys keys_;
  SignalQueue signals_;
  store::CampaignLock lock_;
  store::Store store_;
  std::uint64_t epoch_;
  Groups groups_;
  LiveStatus status_;
  std::unique_ptr<wire::ServerSocket> socket_;  // made once the machine knows which hosts must reach it
  batch::LocalPool pool_;
  batch::AdoptedProcesses adopted_;
  int adopted_looks_ = 0;
  MerlinStatus merlin_status_;
  RawOutputs raw_outputs_;
  std::unique_ptr<CoordinatorMachine> machine_;
  std::vector<CoordinatorEvent> answers_;  // to actions; handled once all actions are carried out
  std::vector<JournalReading> readings_;   // under way
  bool has_new_readings_ = false;          // which were not looked at yet
  std::set<PeerId> unreachable_;           // a Send of these actions has failed: send nothing else to them
  CampaignState state_ = CampaignState::running;
  double next_status_s_ = 0;
  std::uint64_t next_refused_ = 1;                // so many are in the log next
  std::unique_ptr<batch::BatchThread> batch_;     // for a study with a scheduler
  std::unique_ptr<store::CommitThread> commits_;  // its thread uses store_
  // Last: their work uses store_, raw_outputs_ and plan_. A copy of the database may take minutes.
  std::optional<SideThread> copies_;
  std::optional<SideThread> files_;
};

}  // namespace wflow::engine
