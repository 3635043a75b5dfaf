// SPDX-License-Identifier: Apache-2.0
// A batch scheduler: jobs that start workers on hosts, and what it says of them. It outlives coordinators.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/batch/pools.h"
#include "tests/simulation/surroundings.h"

namespace wflow::simulation {

class Worker;
class Workers;

class Batch {
 public:
  Batch(Surroundings& around, Workers& workers, std::uint64_t seed, double linger_s)
      : around_(around), workers_(workers), draw_(seed, Concern::batch), linger_s_(linger_s) {}

  // One pool for each group, beside the workers that the coordinator starts by itself.
  std::vector<engine::batch::PoolSpec> pools() const;
  static engine::batch::PoolTiming timing();

  std::string submit(const engine::batch::JobRequest& request);  // the job's id
  engine::batch::JobList list() const;
  // The coordinator has decided to cancel them, and its call is under way.
  void asked_to_cancel(const std::vector<std::string>& ids);
  void cancel(const std::vector<std::string>& ids);
  // Workers of which the list says that their job or their node is gone.
  std::vector<std::string> gone() const;

  // It crashes now; the scheduler notices in a while, and takes it out of its jobs or ends them.
  void host_crashes(const Host& host);
  // A host on which a worker of a job runs; null: there is none.
  Host* used_host();
  void close() { closed_ = true; }  // the campaign is over: nothing starts any more

 private:
  struct Job {
    engine::batch::JobStatus status;
    std::string group;
    int slots = 1;
    std::size_t nodes = 1;
    bool cancel_asked = false, cancelled = false;
    std::vector<Worker*> workers;
  };
  void start(const std::string& id);
  void end(Job& job, engine::batch::JobEnd end);
  void node_failed(const std::string& id, const std::string& host);

  Surroundings& around_;
  Workers& workers_;
  Draw draw_;
  double linger_s_;
  bool closed_ = false;
  std::map<std::string, Job> jobs_;  // by id
};

}  // namespace wflow::simulation
