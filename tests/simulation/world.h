// SPDX-License-Identifier: Apache-2.0
// One schedule: a campaign from its start to its end, with everything that happens to it drawn from the seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/coordinator.h"
#include "tests/simulation/surroundings.h"

namespace wflow::simulation {

// Clients of the coordinator: those that query and command, and unknown peers that send invalid messages.

class Users final : public Client {
 public:
  Users(Surroundings& around, Draw draw) : around_(around), draw_(draw) {}

  void ask();
  void pause(bool pause);
  void retry();
  void cancel(bool kill);
  void drain();
  // A message that no worker or client of this campaign would send.
  void send_strange();
  // Questions on connections that live, to this coordinator, without an answer.
  std::size_t unanswered(std::uint64_t listener) const;
  // A question was asked on it, and has no answer yet.
  bool waits_on(ConnectionId connection) const { return waiting_.contains(connection); }

  void connected(ConnectionId) override {}
  void connection_lost(ConnectionId connection) override;
  void receive(ConnectionId connection, wire::Message message) override;

 private:
  void send(wire::Message message);
  wire::Selection some_tasks();

  Surroundings& around_;
  Draw draw_;
  std::map<ConnectionId, std::uint64_t> waiting_;  // and the listener that was asked
};

struct RunOptions {
  Trace::Mode trace = Trace::Mode::off;
  Planted planted = Planted::none;
  std::size_t workers = 0;  // on other hosts; 0: drawn
};

struct RunResult {
  std::optional<std::string> violation;
  std::string invariant;  // its name
  std::vector<std::string> last_lines;
  FaultCounts faults;
  double simulated_s = 0;
  double over_bound = 0;  // time taken after the faults, as a part of the allowed time
  std::uint64_t steps = 0;
  std::uint64_t executions = 0;
  std::uint64_t lost_results = 0;
  std::uint64_t fingerprint = 0;  // equal for equal schedules
};

// The parameters of a schedule.
struct Settings {
  std::size_t hosts = 1;
  std::size_t remote_workers = 0;
  double faults_until_s = 0;
  double fault_every_s = 0;
  std::vector<Fault> kinds;  // that happen in it
  double resume_within_s = 10;
  double linger_s = 0;
  bool keep_going = false;
  bool journals_unseen = false;
  bool waits_for_workers = false;  // at the end, for those that live on by themselves
  double drift = 0;
};

class World {
 public:
  World(std::uint64_t seed, const Studies& studies, Vfs& vfs, const RunOptions& options);
  RunResult run();

 private:
  void simulate();
  void set_up();
  void step_until_over();
  void look_after();
  void start_coordinator();
  Coordinator& start_coordinator_on(Host& host);
  void start_second_coordinator(Host& host);
  void start_remote_worker();
  void keep_allocation();
  void schedule_lost_node();
  void schedule_failing_disk();
  void schedule_takeover();
  void schedule_fault();
  void inject(Fault fault);
  void inject_coordinator(Fault fault);
  void inject_worker(Fault fault);
  void inject_surroundings(Fault fault);
  void freeze(Process& process, double for_s);
  void crash_host(Host& host, double down_s);
  std::set<ResultId> journaled() const;
  void forget_lost_journals(const std::set<ResultId>& before);
  void partition(bool one_way);
  void end_faults();
  void check_end();
  Coordinator* coordinator();  // the last one that has begun and lives; null: there is none
  Worker* some_worker();
  double total_work_s() const;
  void set_many_workers();

  std::uint64_t seed_;
  const SimulatedStudy& study_;
  RunOptions options_;
  double now_s_ = 0;
  Timeline timeline_;
  FaultCounts faults_;
  Draw draw_;
  Draw allocations_;
  Draw draw_lost_;  // nodes of jobs
  Draw draw_lock_;  // of the campaign
  Draw draw_disk_;  // calls of the disk that fail
  Trace trace_;
  Disk disk_;
  Network network_;
  Hosts hosts_;
  TaskScripts scripts_;
  History history_;
  Surroundings around_;
  Workers workers_;
  Users users_;
  std::unique_ptr<Batch> batch_;  // null: the campaign has no pools
  Settings settings_;
  std::vector<std::unique_ptr<Coordinator>> coordinators_;
  std::optional<double> resume_at_s_;
  std::size_t coordinator_host_ = 0;
  std::string allocation_;  // allocation of the workers that are started now; empty: none
  int allocations_made_ = 0;
  double next_allocation_s_ = 0;
  bool healed_ = false;
  double healed_s_ = 0;
  double bound_s_ = 0;
  bool over_ = false;
};

}  // namespace wflow::simulation
