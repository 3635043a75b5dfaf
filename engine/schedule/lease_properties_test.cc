// SPDX-License-Identifier: Apache-2.0
// Leases under random joins, hand-overs, duplicated, late and lost messages, retries, cancellations and
// restarts of the coordinator: what holds at every moment, and that everything ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {
namespace {

using specs::EdgeKind;
using Task = std::pair<ArrayId, Element>;

std::vector<ArraySpec> arrays() {
  std::vector<ArraySpec> arrays(3);
  arrays[0].count = arrays[1].count = 40;
  arrays[0].failure_retries = 2;
  arrays[1].step = 1;
  arrays[1].priority = 1;
  arrays[1].edges = {{0, EdgeKind::element, 0}};
  arrays[2].count = 1;
  arrays[2].step = 2;
  arrays[2].edges = {{1, EdgeKind::all, 0}};
  return arrays;
}

class World {
 public:
  explicit World(unsigned seed) : random_(seed) { restart(); }

  // Applies one event, then checks all invariants.
  void step() {
    const unsigned dice = random_() % 100;
    if (workers_.size() < 3) join();
    if (dice < 40) finish(pick_held());
    if (dice >= 40 && dice < 50) resend();
    if (dice >= 50 && dice < 56) reconnect(pick_worker());
    if (dice >= 56 && dice < 60) lose(pick_worker());
    if (dice >= 60 && dice < 63) scheduler_->cancel(random_() % 2, {5, 9}, chance(50));
    if (dice >= 63 && dice < 66) scheduler_->retry_failed(random_() % 2, {0, 39});
    if (dice >= 66 && dice < 68) restart();
    if (dice >= 68 && dice < 72) scheduler_->cancel(0, {20, 20}, true);
    settle();
    check();
  }

  // No more faults: every element ends.
  void end_quietly() {
    for (int round = 0; round < 5000 && !scheduler_->ended(); ++round) {
      now_ += 1;
      if (workers_.empty()) join();
      settle();
      for (const auto& [worker, held] : workers_) {
        if (held.empty()) continue;
        finish({worker, *held.begin()});
        break;
      }
    }
    settle();
    check();
    EXPECT_TRUE(scheduler_->ended());
    EXPECT_EQ(scheduler_->leased(), 0U);
  }

 private:
  struct Held {
    LeaseId lease;
    Task task;
    std::uint32_t attempt;
    friend auto operator<=>(const Held&, const Held&) = default;
  };

  bool chance(unsigned percent) { return random_() % 100 < percent; }
  template <typename Items>
  auto any_of(Items& items) {
    return std::next(items.begin(), static_cast<std::ptrdiff_t>(random_() % items.size()));
  }
  WorkerId pick_worker() { return any_of(workers_)->first; }
  std::pair<WorkerId, std::optional<Held>> pick_held() {
    const auto& [worker, held] = *any_of(workers_);
    if (held.empty()) return {worker, std::nullopt};
    return {worker, *any_of(held)};
  }

  static Lease lease_of(const Held& held) {
    return {held.lease, held.task.first, held.task.second, 1, held.attempt, false, 0};
  }
  static DoneRun done_of(const Held& held) {
    return {held.lease, held.task.first, held.task.second, 1, held.attempt, 0.1, 0.01, 0};
  }
  static Outcome outcome_of(const Held& held, EndReason reason) {
    Outcome outcome;
    outcome.lease = held.lease;
    outcome.array = held.task.first;
    outcome.element = held.task.second;
    outcome.attempt = held.attempt;
    outcome.reason = reason;
    outcome.exit_code = 1;
    return outcome;
  }

  void join() {
    const WorkerId worker = "w" + std::to_string(joined_++);
    workers_[worker];
    scheduler_->worker_joined(worker, {1 + static_cast<int>(random_() % 4)}, {});
    scheduler_->handed_over(worker);
  }

  void finish(const std::pair<WorkerId, std::optional<Held>>& at) {
    if (!at.second) return;
    const Held held = *at.second;
    workers_[at.first].erase(held);
    told_.push_back({at.first, held, chance(80)});
    tell(told_.back());
  }

  struct Told {
    WorkerId worker;
    Held held;
    bool success;
  };

  // A success must count at once, or as soon as its parent's is known.
  void tell(const Told& told) {
    const auto [array, element] = told.held.task;
    if (!told.success) {
      scheduler_->ended_badly(outcome_of(told.held, EndReason::exited), told.worker, now_);
      return;
    }
    const ElementState before = scheduler_->states(array).at(element);
    scheduler_->done(done_of(told.held));
    const bool below_floor = told.held.lease < floors_[told.held.task] && !has_ended(before);
    EXPECT_FALSE(below_floor && has_ended(scheduler_->states(array).at(element))) << "it ran on old input";
    const bool counts = told.held.lease >= floors_[told.held.task] && !has_ended(before);
    if (!counts || before == ElementState::blocked) return;
    EXPECT_EQ(scheduler_->states(array).at(element), ElementState::done);
  }

  // A message of any time arrives again, or one that was never sent.
  void resend() {
    if (told_.empty()) return;
    const Told told = *any_of(told_);
    switch (random_() % 3) {
      case 0:
        tell(told);
        break;
      case 1:
        scheduler_->returned({lease_of(told.held)});
        break;
      default:
        scheduler_->ended_badly(outcome_of(told.held, EndReason::cancelled), told.worker, now_);
    }
  }

  // Messages under way are lost; Hello names the rest, one element a part.
  void reconnect(const WorkerId& worker) {
    std::set<Held>& held = workers_[worker];
    if (chance(50)) std::erase_if(held, [&](const Held&) { return chance(30); });
    std::vector<Lease> named;
    for (const Held& one : held) named.push_back(lease_of(one));
    std::shuffle(named.begin(), named.end(), random_);
    scheduler_->worker_joined(worker, {2}, named);
    take();
    if (!held.empty() && chance(30)) finish({worker, *held.begin()});
    scheduler_->handed_over(worker);
  }

  void lose(const WorkerId& worker) {
    std::vector<RunningElement> running;
    for (const Held& held : workers_[worker]) {
      if (chance(20)) running.push_back({held.task.first, held.task.second, now_});
    }
    // It did finish some of them: its journal is read late.
    for (const Held& held : workers_[worker]) {
      if (chance(30)) told_.push_back({worker, held, true});
    }
    workers_.erase(worker);
    scheduler_->worker_lost(worker, running);
  }

  // A new coordinator knows the records, and what workers say they hold.
  void restart() {
    scheduler_ = std::make_unique<Scheduler>(arrays(), ++epoch_);
    for (const auto& [task, state] : ended_)
      scheduler_->restore_end(task.first, {task.second, task.second}, state);
    for (const auto& [task, floor] : floors_)
      scheduler_->restore_floor(task.first, {task.second, task.second}, floor);
    for (const auto& [task, attempt] : attempts_)
      scheduler_->restore_attempt(task.first, task.second, attempt);
    scheduler_->start();
    std::vector<WorkerId> known;
    for (const auto& [worker, held] : workers_) known.push_back(worker);
    for (const WorkerId& worker : known) reconnect(worker);
    scheduler_->drop_early_results();
  }

  void settle() {
    now_ += 0.1;
    for (int round = 0; round < 3; ++round) {
      scheduler_->saving();
      scheduler_->saved();
      scheduler_->assign(now_);
      take();
    }
  }

  void take() {
    const Actions actions = scheduler_->take_actions();
    for (const RecordEnd& end : actions.ends) record(end);
    for (const RecordFloor& floor : actions.floors) {
      for (Element at = floor.range.first; at <= floor.range.last; ++at)
        floors_[{floor.array, at}] = floor.lease;
    }
    for (const RecordFailure& failure : actions.failures) {
      const Task task{failure.outcome.array, failure.outcome.element};
      if (!failure.final) attempts_[task] = failure.counts;
    }
    for (const GrantLease& grant : actions.grants) {
      for (std::uint64_t i = 0; i < grant.lease.count; ++i)
        workers_.at(grant.worker)
            .insert({grant.lease.id, {grant.lease.array, grant.lease.first + i}, grant.lease.attempt});
    }
    for (const RevokeLease& revoke : actions.revokes) give_back(revoke);
  }

  void record(const RecordEnd& end) {
    for (Element at = end.range.first; at <= end.range.last; ++at) {
      const Task task{end.array, at};
      attempts_.erase(task);
      if (!has_ended(end.state)) {
        EXPECT_EQ(ended_.erase(task), 1U);
      } else {
        EXPECT_TRUE(ended_.emplace(task, end.state).second) << "ends twice";
      }
    }
  }

  void give_back(const RevokeLease& revoke) {
    const auto found = workers_.find(revoke.worker);
    if (found == workers_.end()) return;
    std::vector<Lease> returned;
    std::erase_if(found->second, [&](const Held& held) {
      const bool named = held.lease == revoke.part.id && held.task.first == revoke.part.array &&
                         held.task.second >= revoke.part.first &&
                         held.task.second - revoke.part.first < revoke.part.count;
      if (named) returned.push_back(lease_of(held));
      return named;
    });
    scheduler_->returned(returned);
  }

  void check() {
    std::map<WorkerId, std::uint64_t> by_worker;
    std::set<Task> leased;
    std::optional<Scheduler::LeaseCursor> cursor = Scheduler::LeaseCursor{};
    while (cursor) {
      const Scheduler::LeasePage page = scheduler_->leases(*cursor, 7);
      for (const Scheduler::LeasePart& part : page.parts) {
        by_worker[part.worker] += part.range.size();
        for (Element at = part.range.first; at <= part.range.last; ++at) {
          ASSERT_TRUE(leased.emplace(part.array, at).second) << "in two leases";
          ASSERT_EQ(scheduler_->states(part.array).at(at), ElementState::leased);
        }
      }
      cursor = page.next;
    }
    ASSERT_EQ(leased.size(), scheduler_->leased());
    for (const auto& [worker, held] : workers_) {
      for (const Held& one : held)
        ASSERT_EQ(scheduler_->worker_of(one.task.first, one.task.second), worker) << "runs beside its lease";
    }
    for (const auto& [worker, view] : scheduler_->workers()) ASSERT_EQ(view.elements, by_worker[worker]);
    std::uint64_t open = 0;
    for (ArrayId array = 0; array < scheduler_->array_count(); ++array) {
      const auto& states = scheduler_->states(array);
      for (Element at = 0; at < states.count(); ++at) {
        const ElementState state = states.at(at);
        open += !has_ended(state);
        ASSERT_EQ(state == ElementState::leased, leased.contains({array, at}));
        const auto recorded = ended_.find({array, at});
        ASSERT_EQ(has_ended(state), recorded != ended_.end());
        if (recorded == ended_.end()) continue;
        ASSERT_EQ(state, recorded->second) << "a record was lost";
      }
    }
    ASSERT_EQ(scheduler_->ended(), open == 0);
  }

  std::mt19937 random_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<WorkerId, std::set<Held>> workers_;
  std::vector<Told> told_;
  std::map<Task, ElementState> ended_;
  std::map<Task, LeaseId> floors_;
  std::map<Task, AttemptCounts> attempts_;
  std::uint64_t epoch_ = 0;
  int joined_ = 0;
  double now_ = 0;
};

TEST(LeaseProperties, HoldUnderRandomEvents) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    for (int step = 0; step < 300; ++step) {
      world.step();
      if (testing::Test::HasFailure()) return;
    }
    world.end_quietly();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace wflow::engine
