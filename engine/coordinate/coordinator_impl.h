// SPDX-License-Identifier: Apache-2.0
// The coordinator's loop and its handlers, one a message kind; for coordinator.cc and handlers.cc.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/batch/local_pool.h"
#include "engine/coordinate/coordinator.h"
#include "engine/coordinate/signals.h"
#include "engine/monitor/live_status.h"
#include "engine/monitor/merlin_status.h"
#include "engine/schedule/groups.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/commit_thread.h"
#include "engine/store/store.h"
#include "engine/wire/transport.h"
#include "engine/wire/worker_journal.h"

namespace wflow::engine {

class Coordinator {
 public:
  Coordinator(const specs::Plan& plan, const CoordinatorOptions& options, const StatusSink& sink);
  CoordinatorEnd run();

 private:
  struct Peer {
    std::string routing;  // where to send
    std::string host;
    std::int64_t pid = 0;
    double heard_s = 0;
    std::vector<wire::RunningElement> running;
    std::set<ArrayId> templates;    // arrays that it knows
    std::uint64_t acknowledge = 0;  // highest sequence in the batch being gathered
    bool local = false;
  };
  enum class Phase { running, draining, stopping };

  // coordinator.cc
  void recover();
  void take_worker_journal(const wire::WorkerJournal& journal);
  void start_pool();
  void start_worker(const std::string& group, int slots);
  void find_local_groups();
  void step();
  void wait();
  void receive_all();
  void carry_out();
  void send_grants(const std::vector<GrantLease>& grants);
  void commit();
  void send_acknowledgements();
  void take_signals();
  void check_processes();
  void check_expected();
  void check_silence(double now_s);
  void report_unserved();
  void request_drain(const std::string& why);
  void request_stop(const std::string& why);
  void show(double now_s, bool last);
  void record(const std::string& kind, const std::string& text);
  bool over() const;
  bool is_single(ArrayId array) const;
  CoordinatorEnd finish();
  void flush();
  void dismiss_workers();
  void abandon_workers();
  void forget_journal(const std::string& worker);
  void lose_worker(const std::string& worker, const std::string& reason);
  Peer* peer_by_routing(const std::string& routing, std::string* name);
  // commands.cc
  wire::Answer answer(const wire::Query& query);
  nlohmann::json execute(const std::string& verb, const nlohmann::json& arguments);
  std::uint64_t retry(const RetryRequest& request);
  std::uint64_t cancel(const nlohmann::json& arguments);

  bool waits_for_workers() const { return !expected_.empty(); }

  // handlers.cc
  void handle(const std::string& routing, wire::Message message);
  void on(const std::string& routing, const wire::Hello& hello);
  void on(const std::string& routing, const wire::Results& results);
  void on(const std::string& routing, const wire::Heartbeat& heartbeat);
  void on(const std::string& routing, const wire::Goodbye& goodbye);
  void on(const std::string& routing, const wire::Returned& returned);
  void on(const std::string& routing, const wire::Query& query);
  void apply(const wire::Results& results, const std::string& worker);
  std::optional<std::string> reason_to_refuse(const wire::Hello& hello) const;

  const specs::Plan& plan_;
  CoordinatorOptions options_;
  const StatusSink& sink_;
  wire::CampaignKeys keys_;
  SignalQueue signals_;
  store::Store store_;
  std::uint64_t epoch_;
  Groups groups_;
  Scheduler scheduler_;
  LiveStatus status_;
  wire::ServerSocket socket_;
  batch::LocalPool pool_;
  MerlinStatus merlin_status_;

  std::map<std::string, Peer> peers_;  // by worker
  std::map<std::string, std::string> by_routing_;
  struct Expected {
    std::int64_t pid = 0;
    double until_s = 0;
  };
  std::map<std::string, Expected>
      expected_;  // workers of an earlier coordinator that live and have not handed over yet
  store::Batch batch_;
  std::map<std::string, std::uint64_t> acknowledge_after_commit_;
  std::set<ArrayId> timed_arrays_;
  std::vector<std::string> journals_to_remove_;
  std::vector<std::string> journals_after_commit_;
  Phase phase_ = Phase::running;
  bool cancelled_ = false;  // the whole campaign: nothing may become ready again
  double next_status_s_ = 0;
  double next_pulse_s_ = 0;
  std::set<std::size_t> reported_unserved_;  // steps
  double deadline_s_ = 0;
  std::vector<std::pair<std::string, int>> local_groups_;  // and the slots of each one's worker
  struct Starts {
    int number = 0;  // since something ended
    std::uint64_t ended = 0;
  };
  std::map<std::string, Starts> starts_;          // of workers on this machine, by group
  std::unique_ptr<store::CommitThread> commits_;  // last: its thread uses store_
};

}  // namespace wflow::engine
