// SPDX-License-Identifier: Apache-2.0
// A batch scheduler: its jobs start workers on hosts, wait, are preempted and requeued, and reach their
// walltime; its answers fail or leave jobs out. It outlives coordinators.
#pragma once

#include <map>
#include <optional>
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

  // A call that times out answers `wait`, and the job may be queued all the same.
  engine::batch::Submission submit(const engine::batch::JobRequest& request);
  // One answer in some leaves out a job or does not know its state, never twice in a row for the same job.
  engine::batch::JobList list();
  // The coordinator has decided to cancel them, and its call is under way.
  void asked_to_cancel(const std::vector<std::string>& ids);
  // Returns the error of a call that failed: nothing is cancelled then.
  std::optional<std::string> cancel(const std::vector<std::string>& ids);
  // Workers of which the last list says that their job or their node is gone.
  std::vector<std::string> gone() const;

  // It crashes now; the scheduler notices in a while, and takes it out of its jobs or ends them.
  void host_crashes(const Host& host);
  // A host on which a worker of a job runs; null: there is none.
  Host* used_host();
  void close() { closed_ = true; }  // the campaign is over: nothing starts any more
  // From now on calls succeed, lists are complete, and no further job is preempted.
  void heal() { healed_ = true; }

 private:
  struct Job {
    engine::batch::JobStatus status;
    std::string group;
    int slots = 1;
    std::size_t nodes = 1;
    bool cancel_asked = false, cancelled = false;
    bool ending = false;           // its processes have got the first signal
    bool is_hidden = false;        // the last list left it out, or did not know its state
    std::vector<Worker*> workers;  // of this start
    std::vector<Worker*> earlier;  // of the starts before
  };
  void queue(const std::string& id);
  void start(const std::string& id);
  void draw_end(const std::string& id);
  void reach_walltime(const std::string& id, int restarts);
  void preempt(const std::string& id, int restarts);
  void requeue(const std::string& id);
  void end(Job& job, engine::batch::JobEnd end);
  static void kill(const std::vector<Worker*>& workers);
  bool fails(double chance) { return !healed_ && draw_.chance(chance); }
  void node_failed(const std::string& id, const std::string& host);

  Surroundings& around_;
  Workers& workers_;
  Draw draw_;
  double linger_s_;
  bool closed_ = false, healed_ = false;
  std::map<std::string, Job> jobs_;  // by id
};

}  // namespace wflow::simulation
