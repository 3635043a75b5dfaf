// SPDX-License-Identifier: Apache-2.0
// Decides which allocations a campaign has, wants and gives back, without a clock, process or
// socket. The coordinator machine feeds it with the backlog, with what the schedulers answer and with what
// its workers do, and carries out what it decides.
//
// An allocation is known by its token, which is durable before it is submitted and is its name at the
// scheduler: what was submitted while the coordinator died is found again by its name. Only a positive answer
// changes a state; `unknown` does not, nor does a query that fails. An id that three answers in a row do not
// name is lost.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain_types.h"
#include "engine/batch/allocation.h"
#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

struct PoolSpec {
  std::string name;
  std::string scheduler;
  int slots = 0;         // per node; 0: as many as its workers report
  int min = 0, max = 1;  // allocations at the same time
  int chain = 0;         // more than 0: so many are in the queue, and one runs after another
  double idle_timeout_s = 60;
  JobRequest job;  // job_of() completes it; `chain`: distinguishes the pool's chain from others
};

std::string joined(const std::vector<std::string>& names);  // "n1, n2"
std::string short_name(const std::string& host);     // without domain: schedulers and nodes may disagree
std::string nodes_of(const Allocation& allocation);  // "n1, n2", or "its nodes" while they are not known

// The job to submit under this token, which begins with `prefix` as all of the campaign do; `number`: its
// number in the pool.
JobRequest job_of(const PoolSpec& pool, const std::string& token, const std::string& prefix,
                  std::size_t number = 1);

// The open work of a pool.
struct Demand {
  std::uint64_t open = 0;     // tasks that have not ended, also those that wait for others
  double cores = 0;           // that the tasks which can run now could use at once
  double core_s = 0;          // sum over the open tasks with known durations
  bool measured = false;      // they are, for what can run now
  double longest_s = 0;       // a task may last so long
  std::uint64_t waiting = 0;  // tasks that could start now, and have not
  std::string obstacle;       // why no worker that is there takes them; empty: not known
};

struct PoolTiming {
  double query_s = 30;         // between two queries of one scheduler, ...
  double quiet_query_s = 300;  // ... while the workers of all its allocations report, ...
  double silent_query_s =
      5;  // ... and while one of them is silent or has left, whose tasks wait for the answer
  double first_failure_s = 10;  // after a start that failed; the second waits six times as long
  int failures = 3;             // in a row; then the pool submits no more
  double first_refusal_s = 15;  // doubled with every refusal, ...
  double longest_refusal_s = 300;
  double quick_s = 300;  // a start that fails within this time is a quick failure of its nodes
  int quick_failures = 2;
  int missing = 3;  // answers in a row that do not name a job
  // An allocation that runs for so long without a worker, or without one of a node of it, is reported; and
  // one that runs for so long without any is cancelled.
  double late_s = 120, unmanned_s = 600;
  double drain_s = 60;  // workers of an allocation that is given back have so long to leave
};

struct PoolNote {
  bool warning = false;
  std::string text;
};

struct PoolActions {
  struct Submit {
    std::string scheduler;
    JobRequest job;
  };
  struct Cancel {
    std::string scheduler;
    std::vector<std::string> ids;
  };
  std::vector<Allocation> changed;  // rows to record; those of `submits` before these are carried out
  std::vector<Submit> submits;
  std::vector<Cancel> cancels;
  std::vector<std::string> queries;  // schedulers to ask for all jobs of the campaign
  std::vector<std::string> drains;   // tokens: their workers get no new tasks
  // According to the scheduler none of its processes is left: on these nodes, or on all if none is named.
  struct Gone {
    std::string token;
    std::vector<std::string> nodes;
  };
  std::vector<Gone> gone;
  std::vector<PoolNote> notes;
  bool empty() const {
    return changed.empty() && submits.empty() && cancels.empty() && queries.empty() && drains.empty() &&
           gone.empty() && notes.empty();
  }
};

// The workers of an allocation, as they are now.
struct AllocationWorkers {
  int count = 0;
  bool busy = false;    // one of them holds a lease
  bool silent = false;  // one of them has been silent for a while
  int slots = 0;        // the largest
  std::vector<std::string> hosts;
  bool worked = false;             // one of them has ended a task
  std::vector<std::string> nodes;  // of workers of the newest incarnation, as the scheduler calls them
  int incarnation = 0;             // that one: a requeued job has a new one
};

struct Forecast {
  double used_node_h = 0;
  double left_node_h = 0;        // for the open work, as far as durations are known
  std::optional<double> ends_s;  // Unix time, with the allocations that run
  int more = 0;                  // allocations beyond those that are queued or run
};

class Pools {
 public:
  // `prefix` begins the tokens of this campaign alone; `known`: what earlier coordinators recorded, the ended
  // ones too.
  Pools(std::vector<PoolSpec> pools, std::string prefix, std::uint64_t epoch, PoolTiming timing,
        std::vector<Allocation> known, Now now);

  // ---- what happens
  void set_demand(const std::string& pool, const Demand& demand);
  void set_workers(std::map<std::string, AllocationWorkers> by_token) { workers_ = std::move(by_token); }
  void submitted(const std::string& token, const Submission& submission, Now now);
  void listed(const std::string& scheduler, const JobList& list, Now now);
  void cancelled(const std::string& scheduler, const std::vector<std::string>& ids,
                 const std::optional<std::string>& error, Now now);

  // ---- requests of users; each returns a sentence if it refuses
  std::optional<std::string> add(const std::string& pool, int count, Now now);
  // By token or id; an empty name: all.
  std::optional<std::string> cancel(const std::string& name, Now now);
  std::optional<std::string> drain(const std::string& name, Now now);
  // True after a request to cancel it, or if its scheduler reports it as cancelled or preempted: later
  // reports of failures in it count as caused by that.
  bool is_cancelled(const std::string& token) const;
  // True if it ended after this coordinator had asked to cancel it to give it back, or for a cause that can
  // no longer be known: its losses charge no attempt.
  bool was_given_back(const std::string& token) const { return given_back_.contains(token); }
  // Nothing more is submitted; what waits is cancelled, what runs is given back once its workers have left.
  void stop_submitting();
  // The campaign ends: the workers have no more than PoolTiming::drain_s to leave; abandon(): no time at all.
  void finish(Now now);
  void abandon() { abandoned_ = true; }

  // ---- the allocation in which the coordinator itself runs (engine/coordinate/machine.h: OwnAllocation)
  // Where it is one of these it is given back only once another one can have the coordinator, and at the
  // campaign's end it is not cancelled: it ends with the coordinator.
  // It runs, independent of the record.
  void set_own(std::string token, Now now);
  // Null: none, or it is being given back.
  const Allocation* own() const;
  // The coordinator leaves it: the remaining work needs another one.
  void leave_own();
  bool has_successor(Now now) const;
  bool needs_successor(Now now) const;
  // At the campaign's end: as if it had ended.
  void close_own(Now now);

  // ---- decisions: to be called about once a second
  void decide(Now now);
  PoolActions take_actions() { return std::exchange(actions_, {}); }

  // ---- questions
  const std::map<std::string, Allocation>& allocations() const { return allocations_; }
  const Allocation* find(const std::string& token) const;
  // True if a job of this campaign is queued or runs, or may be: also one whose submission was not answered.
  bool any_left() const;
  // The allocation of this pool that is on its way, if the status should show it.
  const Allocation* waited_for(const std::string& pool) const;
  // Nothing can be had any more: no pool with work has an allocation, and each has given up. Why.
  std::optional<std::string> stuck() const;
  bool is_leaving(const std::string& token) const;
  int slots(const std::string& pool) const { return pools_.at(pool).slots; }
  const std::string* gave_up(const std::string& pool) const;
  const std::set<std::string>& excluded_nodes() const { return excluded_; }
  // A host of this allocation on which tasks fail: its node is left out of what is submitted from now on.
  void exclude(const std::string& token, const std::string& host);
  void include(const std::string& host);
  Forecast forecast(const std::string& pool, Now now) const;
  const std::vector<PoolSpec>& pools() const { return specs_; }

 private:
  struct Pool {
    const PoolSpec* spec = nullptr;
    Demand demand;
    int slots = 0;
    int failures = 0;      // starts in a row
    int refusals = 0;      // in a row
    int fruitless = 0;     // in a row: they had workers, and ran no task
    std::string obstacle;  // the last one that was known
    double not_before_s = 0;
    std::string gave_up;  // why it submits no more
    double wait_s = 0;    // mean time in the queue
    int waits = 0;
  };
  // The state of an allocation beyond its record.
  struct Live {
    bool under_way = false;  // its submission has not been answered
    bool recovered = false;  // an earlier coordinator's
    bool named = false;      // by an answer of the scheduler
    double since_s = 0;      // steady: since when this coordinator knows this incarnation
    int missing = 0;
    bool joined = false;  // a worker of this incarnation did
    bool had_workers = false;
    bool worked = false;             // ... and ran a task
    bool by_person = false;          // a request cancels it
    std::vector<std::string> nodes;  // as the scheduler named them last
    std::set<std::string> hosts;     // hosts of workers that joined, without the domain
    std::set<std::string> manned;    // nodes of workers that joined, as the scheduler calls them, ...
    int manned_in = 0;               // ... in this incarnation, which no list may have named yet
    std::string failure;             // why it is given back, if not for want of work
    bool leaving = false;            // it is given back, ...
    bool left = false;               // ... because its workers left unasked, ...
    bool goes_on = false;            // ... and its job runs on without them
    double leaving_since_s = 0;
    bool cancel_asked = false;  // and has not been answered
    double cancel_after_s = 0;  // steady
    int cancels_failed = 0;
    std::optional<double> idle_since_s, left_since_s;  // steady
    bool said_late = false;
    bool silent = false;  // a worker is silent, or all have left: the scheduler may know why
  };
  struct Asked {
    double last_s = -std::numeric_limits<double>::infinity();  // steady
    double soon_s = std::numeric_limits<double>::infinity();   // something has happened: ask then
    bool under_way = false;
    bool answered = false;  // since the start
    int unanswered = 0;
    std::set<std::string> known;  // tokens that the query under way must name
  };

  // pools.cc
  Pool& pool_of(const Allocation& allocation) { return pools_.at(allocation.pool); }
  void decide(Pool& pool, Now now);
  bool may_submit(const Pool& pool, Now now) const;
  int wanted(const Pool& pool, double core_s) const;
  int wanted_in_chain(const Pool& pool, int running, double core_s) const;
  static int most_now(const Pool& pool, int missing, int lasting, bool under_way);
  bool lasts(const Allocation& allocation, const Pool& pool, Now now) const;
  double lead_s(const Pool& pool) const;
  void submit(Pool& pool, bool by_hand, Now now);
  void follow_workers(Now now);
  void give_back_idle(Pool& pool, Now now);
  void follow(const std::string& token, Live& live, Now now);
  void look_for_workers(Allocation& allocation, Live& live, Now now);
  void cancel_surplus(Pool& pool, int surplus, Now now);
  void give_back(const std::string& token, Now now);
  void carry_out_cancels(Now now);
  bool has_workers(const std::string& token) const;
  void ask(Now now);
  double next_query_s(const std::string& scheduler) const;
  std::vector<std::string> matching(const std::string& name) const;
  std::string new_token();
  bool known_to_scheduler() const;

  // pools_answers.cc
  void learn(const JobStatus& job, Now now);
  void cancelled_job_is_gone(const std::string& token);
  void began(Allocation& allocation, double started_s, Now now);
  void ended(Allocation& allocation, JobEnd end, const std::string& reason, Now now);
  void start_failed(const Allocation& allocation, const Live& live, Now now);
  static std::vector<std::string> taken_out(const Live& live, const std::vector<std::string>& listed,
                                            int nodes);
  void ran_nothing(const Allocation& allocation, Now now);
  static std::vector<std::string> silent_nodes(const Allocation& allocation,
                                               const std::set<std::string>& hosts);
  void blame(const std::vector<std::string>& nodes, const std::string& why);
  void refused(Pool& pool, const Allocation& allocation, const Submission& submission, Now now);
  void ask_soon(const std::string& scheduler, double steady_s);
  void changed(const Allocation& allocation);
  void note(std::string text, bool warning = false) { actions_.notes.push_back({warning, std::move(text)}); }

  std::vector<PoolSpec> specs_;
  std::map<std::string, Pool> pools_;
  std::string prefix_;
  std::uint64_t epoch_;
  PoolTiming timing_;
  std::uint64_t numbered_ = 0;
  std::map<std::string, Allocation> allocations_;  // by token, ended ones too
  std::map<std::string, Live> live_;               // by token, of those that have not ended
  std::set<std::string> cancelled_;                // tokens: requested by this coordinator
  std::set<std::string> given_back_;               // tokens
  std::set<std::string>
      dying_;  // tokens: cancelled with workers that had not left; followed until their jobs end
  std::map<std::string, Asked> asked_;  // by scheduler
  std::map<std::string, AllocationWorkers> workers_;
  std::map<std::string, int> quick_failures_;  // by node
  std::set<std::string> excluded_;
  std::string own_;  // token
  bool cancel_own_ = false;
  bool finishing_ = false;
  bool patient_ = false;  // workers have as long as their tasks take
  bool abandoned_ = false;
  PoolActions actions_;
};

}  // namespace wflow::engine::batch
