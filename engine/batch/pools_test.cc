// SPDX-License-Identifier: Apache-2.0
// The coordinator's pools in virtual time, beside a scheduler that is a list of jobs.
#include "engine/batch/pools.h"

#include <gtest/gtest.h>

#include <memory>

namespace wflow::engine::batch {

namespace {

PoolSpec pool(int max = 4, int slots = 2, double walltime_s = 600) {
  PoolSpec spec;
  spec.name = "all";
  spec.scheduler = "slurm";
  spec.slots = slots;
  spec.max = max;
  spec.job.walltime_s = walltime_s;
  spec.job.directory = "/campaign/.wflow/allocations";
  return spec;
}

Demand work(double cores, double core_s) {
  Demand demand;
  demand.open = cores > 0 ? static_cast<std::uint64_t>(cores) : 0;
  demand.cores = cores;
  demand.core_s = core_s;
  demand.measured = core_s > 0;
  return demand;
}

Allocation from_an_earlier_epoch(AllocationState state) {
  Allocation known;
  known.token = "wabcdef000001";
  known.pool = "all";
  known.scheduler = "slurm";
  known.id = "5";
  known.state = state;
  return known;
}

// Ids are 1, 2, ...; jobs stay queued until a test lets them run.
class Cluster {
 public:
  explicit Cluster(PoolSpec spec = pool(), std::vector<Allocation> known = {}) {
    now.steady_s = 1000;
    now.unix_s = 5e8;
    pools = std::make_unique<Pools>(std::vector{std::move(spec)}, "wabcdef", 1, PoolTiming{},
                                    std::move(known), now);
  }

  // Decides once a second, carries out, answers at once.
  void pass(double seconds) {
    for (double until_s = now.steady_s + seconds; now.steady_s < until_s;) {
      now.steady_s += 1;
      now.unix_s += 1;
      step();
    }
  }
  void step() {
    pools->set_workers(workers);
    pools->decide(now);
    PoolActions actions = pools->take_actions();
    for (const Allocation& row : actions.changed) rows[row.token] = row;
    for (const PoolNote& note : actions.notes) notes.push_back(note.text);
    drains.insert(drains.end(), actions.drains.begin(), actions.drains.end());
    gone.insert(gone.end(), actions.gone.begin(), actions.gone.end());
    for (const auto& submit : actions.submits) this->submit(submit.job);
    for (const auto& cancel : actions.cancels) {
      cancels.insert(cancels.end(), cancel.ids.begin(), cancel.ids.end());
      for (const std::string& id : cancel.ids)
        std::erase_if(
            jobs, [&](const auto& job) { return !cancel_error && !keep_cancelled && job.second.id == id; });
      pools->cancelled("slurm", cancel.ids, cancel_error, now);
    }
    for (const std::string& scheduler : actions.queries) query(scheduler);
  }
  void submit(const JobRequest& job) {
    submitted.push_back(job);
    EXPECT_TRUE(rows.contains(job.token)) << "submitted before its row was handed over";
    if (hold_submissions) return;
    if (!refusal.text.empty()) return pools->submitted(job.token, refusal, now);
    JobStatus& status = jobs[job.token];
    status.token = job.token;
    status.id = std::to_string(submitted.size());
    status.state = JobState::queued;
    status.reason = "Priority";
    pools->submitted(job.token, {status.id, Submission::Refusal::none, {}}, now);
  }
  void query(const std::string& scheduler) {
    queries.push_back(now.steady_s);
    JobList list;
    list.answered = answers;
    list.text = answers ? "" : "slurm_load_jobs error: Unable to contact slurm controller";
    if (answers) {
      for (const auto& [token, job] : jobs) list.jobs.push_back(job);
    }
    pools->listed(scheduler, list, now);
  }
  // On nodes n<id>; a worker joins from each with `slots`.
  void run(const std::string& token, int slots = 2) {
    JobStatus& job = jobs.at(token);
    job.state = JobState::running;
    job.nodes = {"n" + job.id};
    job.starts_unix_s = now.unix_s;
    job.ends_unix_s = now.unix_s + 600;
    if (slots > 0) workers[token] = {1, true, false, slots, {"n" + job.id}, false, {}};
  }
  void end(const std::string& token, JobEnd end) {
    jobs.at(token).state = end == JobEnd::none ? JobState::done : JobState::failed;
    jobs.at(token).end = end;
    workers.erase(token);
  }
  std::string token(std::size_t i) const { return submitted.at(i).token; }
  const Allocation& row(std::size_t i) const { return rows.at(token(i)); }
  bool noted(const std::string& part) const {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const auto& note) { return note.find(part) != std::string::npos; });
  }

  Now now;
  std::unique_ptr<Pools> pools;
  std::map<std::string, JobStatus> jobs;
  std::map<std::string, AllocationWorkers> workers;
  std::map<std::string, Allocation> rows;
  std::vector<JobRequest> submitted;
  std::vector<std::string> cancels, drains, notes;
  std::vector<double> queries;
  std::vector<PoolActions::Gone> gone;
  Submission refusal;
  std::optional<std::string> cancel_error;
  bool keep_cancelled = false;  // jobs take a while to end
  bool answers = true;
  bool hold_submissions = false;
};

TEST(Pools, SubmitWhatTheBacklogFills) {
  Cluster cluster;
  cluster.pass(5);
  EXPECT_TRUE(cluster.submitted.empty()) << "nothing to do";
  cluster.pools->set_demand("all", work(6, 0));
  cluster.pass(5);
  EXPECT_EQ(cluster.submitted.size(), 3U) << "6 tasks at 2 slots";
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(5);
  EXPECT_EQ(cluster.submitted.size(), 4U) << "at most `max`";
}

TEST(Pools, TokensAreUniqueNamesOfASchedulersJob) {
  Cluster cluster;
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  std::set<std::string> tokens;
  for (const JobRequest& job : cluster.submitted) {
    tokens.insert(job.token);
    EXPECT_LE(job.token.size(), 14U);
    EXPECT_TRUE(job.token.starts_with("wabcdef"));
  }
  EXPECT_EQ(tokens.size(), 4U);
}

TEST(Pools, OneAllocationShowsHowManySlotsANodeHas) {
  Cluster cluster(pool(4, 0));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(40);
  ASSERT_EQ(cluster.submitted.size(), 1U);
  cluster.run(cluster.token(0), 64);
  cluster.pass(2);
  EXPECT_EQ(cluster.submitted.size(), 4U);
}

TEST(Pools, ShortWorkJustifiesNoMoreAllocations) {
  Cluster cluster;
  cluster.pools->set_demand("all", work(1000, 100));  // 1,000 tasks of 0.1 s
  cluster.pass(5);
  EXPECT_EQ(cluster.submitted.size(), 1U) << "100 s of work for 2 slots";
}

TEST(Pools, SurplusIsCancelledOnceDurationsAreKnown) {
  Cluster cluster;
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  ASSERT_EQ(cluster.submitted.size(), 4U);
  cluster.run(cluster.token(0));
  cluster.pass(2);
  cluster.pools->set_demand("all", work(1000, 100));
  cluster.pass(2);
  EXPECT_EQ(cluster.cancels.size(), 3U);
  EXPECT_EQ(cluster.row(3).state, AllocationState::ended);
  EXPECT_EQ(cluster.row(0).state, AllocationState::running);
}

TEST(Pools, ASuccessorComesBeforeTheWalltimeEnds) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 10'000));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(500);
  EXPECT_EQ(cluster.submitted.size(), 1U);
  cluster.pass(90);
  EXPECT_EQ(cluster.submitted.size(), 2U);
  EXPECT_EQ(cluster.row(0).state, AllocationState::running) << "before the end of the first";
}

TEST(Pools, NoSuccessorForWorkThatTheLastOneEnds) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 10'000));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(560);
  cluster.pools->set_demand("all", work(4, 8));  // 20 s are left for 2 slots
  cluster.pass(25);
  EXPECT_EQ(cluster.submitted.size(), 1U);
}

TEST(Pools, AnAllocationWithoutWorkIsGivenBack) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(10, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(5);
  Demand blocked = work(0, 0);
  blocked.open = 1;  // waits for another pool
  cluster.pools->set_demand("all", blocked);
  cluster.workers[cluster.token(0)].busy = false;
  cluster.pass(50);
  EXPECT_TRUE(cluster.drains.empty());
  cluster.pass(20);
  ASSERT_EQ(cluster.drains.size(), 1U);
  EXPECT_TRUE(cluster.cancels.empty()) << "its workers leave first";
  cluster.workers.clear();
  cluster.pass(2);
  EXPECT_EQ(cluster.cancels, std::vector<std::string>{"1"});
  EXPECT_TRUE(cluster.noted("no work for 60 s"));
}

TEST(Pools, WithoutOpenTasksEverythingIsGivenBackAtOnce) {
  Cluster cluster;
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(2);
  cluster.pools->set_demand("all", work(0, 0));
  cluster.pass(1);
  EXPECT_EQ(cluster.cancels.size(), 3U) << "those in the queue";
  EXPECT_EQ(cluster.drains.size(), 4U);
  cluster.workers.clear();
  cluster.pass(1);
  EXPECT_EQ(cluster.cancels.size(), 4U);
  EXPECT_FALSE(cluster.pools->any_left());
}

TEST(Pools, MinIsKeptWhileThereIsWork) {
  PoolSpec spec = pool();
  spec.min = 2;
  Cluster cluster(spec);
  Demand blocked;
  blocked.open = 1;
  cluster.pools->set_demand("all", blocked);
  cluster.pass(2);
  EXPECT_EQ(cluster.submitted.size(), 2U);
}

TEST(Pools, AsksAtMostOnceInThirtySecondsAndLessWhileWorkersReport) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(300);
  EXPECT_GE(cluster.queries.size(), 9U);
  EXPECT_LE(cluster.queries.size(), 11U);
  for (std::size_t i = 1; i < cluster.queries.size(); ++i)
    EXPECT_GE(cluster.queries[i] - cluster.queries[i - 1], 30);
  cluster.run(cluster.token(0));
  cluster.jobs.at(cluster.token(0)).ends_unix_s = cluster.now.unix_s + 1e6;
  cluster.pass(60);
  const std::size_t before = cluster.queries.size();
  cluster.pass(600);
  EXPECT_LE(cluster.queries.size() - before, 2U);
}

TEST(Pools, PendingReasonsAreKeptAndThoseThatNeverClearAreReported) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(5);
  EXPECT_EQ(cluster.row(0).reason, "Priority");
  ASSERT_NE(cluster.pools->waited_for("all"), nullptr);
  cluster.jobs.at(cluster.token(0)).reason = "PartitionTimeLimit";
  cluster.jobs.at(cluster.token(0)).never_clears = "the walltime is longer than the partition allows";
  cluster.pass(60);
  EXPECT_TRUE(cluster.noted("will never start: the walltime is longer"));
}

TEST(Pools, UnknownIsNotDone) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(40);
  cluster.workers.at(cluster.token(0)).count = 1;
  cluster.jobs.at(cluster.token(0)).state = JobState::unknown;
  cluster.pass(600);
  EXPECT_EQ(cluster.row(0).state, AllocationState::running);
}

TEST(Pools, ASchedulerThatDoesNotAnswerChangesNothing) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(40);
  cluster.answers = false;
  cluster.pass(600);
  EXPECT_EQ(cluster.row(0).state, AllocationState::queued);
  EXPECT_EQ(cluster.submitted.size(), 1U);
  EXPECT_TRUE(cluster.noted("does not answer"));
  cluster.answers = true;
  cluster.pass(60);
  EXPECT_TRUE(cluster.noted("answers again"));
}

TEST(Pools, AnIdMissingFromThreeAnswersIsLost) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(5);
  cluster.jobs.clear();
  cluster.pass(60);
  EXPECT_EQ(cluster.row(0).state, AllocationState::queued) << "two answers";
  cluster.pass(40);
  EXPECT_EQ(cluster.row(0).state, AllocationState::ended);
  EXPECT_TRUE(cluster.noted("does not know its job any more"));
}

TEST(Pools, RefusalsBackOff) {
  Cluster cluster(pool(1));
  cluster.refusal = {"", Submission::Refusal::wait, "Job violates accounting/QOS policy"};
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(600);
  EXPECT_GE(cluster.submitted.size(), 4U);
  EXPECT_LE(cluster.submitted.size(), 8U);
  EXPECT_EQ(cluster.pools->stuck(), std::nullopt);
  EXPECT_TRUE(cluster.noted("QOS policy"));
  cluster.refusal = {};
  cluster.pass(400);
  EXPECT_EQ(cluster.jobs.size(), 1U);
}

TEST(Pools, ARefusalThatAUserMustMendEndsIt) {
  Cluster cluster;
  cluster.refusal = {"", Submission::Refusal::fix, "invalid partition specified: nosuch"};
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(600);
  EXPECT_LE(cluster.submitted.size(), 4U);
  ASSERT_TRUE(cluster.pools->stuck());
  EXPECT_NE(cluster.pools->stuck()->find("invalid partition specified: nosuch"), std::string::npos);
}

TEST(Pools, RepeatedFailuresAtStartNameNodeAndReason) {
  Cluster cluster(pool(2));
  cluster.pools->set_demand("all", work(1000, 0));
  for (std::size_t i = 0; i < 1000; ++i) {
    cluster.pass(1);
    for (const JobRequest& job : cluster.submitted) {
      if (!cluster.jobs.contains(job.token)) continue;
      JobStatus& status = cluster.jobs.at(job.token);
      if (status.state != JobState::queued) continue;
      status.state = JobState::failed;
      status.end = JobEnd::exit;
      status.reason = "exit code 127";
      status.nodes = {"n7"};
      status.starts_unix_s = cluster.now.unix_s;
    }
  }
  EXPECT_LE(cluster.submitted.size(), 4U);
  ASSERT_TRUE(cluster.pools->stuck());
  EXPECT_NE(cluster.pools->stuck()->find("n7"), std::string::npos);
  EXPECT_NE(cluster.pools->stuck()->find("exit code 127"), std::string::npos);
}

TEST(Pools, TwoQuickFailuresOnANodeExcludeIt) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  const auto fail_on = [&](const std::string& token, const std::string& node) {
    JobStatus& status = cluster.jobs.at(token);
    status.state = JobState::running;
    status.nodes = {node};
    status.starts_unix_s = cluster.now.unix_s;
    cluster.pass(32);
    status.state = JobState::failed;
    status.end = JobEnd::exit;
    cluster.pass(100);
  };
  cluster.pass(1);
  fail_on(cluster.token(0), "n3");
  fail_on(cluster.token(1), "n3");
  ASSERT_EQ(cluster.submitted.size(), 3U);
  EXPECT_EQ(cluster.submitted[2].exclude, std::vector<std::string>{"n3"});
  EXPECT_TRUE(cluster.noted("node n3 has let 2 allocations fail"));
}

TEST(Pools, ARequeuedJobIsANewIncarnation) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(40);
  JobStatus& job = cluster.jobs.at(cluster.token(0));
  job.state = JobState::queued;
  job.restarts = 1;
  cluster.workers.clear();
  cluster.now.steady_s += 400;
  cluster.query("slurm");
  cluster.step();
  EXPECT_EQ(cluster.row(0).state, AllocationState::queued);
  EXPECT_EQ(cluster.row(0).restarts, 1);
  EXPECT_TRUE(cluster.noted("was requeued"));
  cluster.run(cluster.token(0));
  cluster.pass(40);
  EXPECT_EQ(cluster.row(0).state, AllocationState::running);
  EXPECT_EQ(cluster.submitted.size(), 1U);
  EXPECT_TRUE(cluster.cancels.empty());
}

TEST(Pools, WhatACoordinatorIntendedIsFoundByItsName) {
  Cluster first(pool(1));
  first.hold_submissions = true;  // it dies in between
  first.pools->set_demand("all", work(1000, 0));
  first.pass(1);
  ASSERT_EQ(first.rows.size(), 1U);
  Cluster second(pool(1), {first.rows.begin()->second});
  const std::string token = first.token(0);
  second.jobs[token] = {"77", token, JobState::queued, JobEnd::none, {}, "Resources", {}, {}, {}, {}, 0};
  second.pools->set_demand("all", work(1000, 0));
  second.pass(40);
  EXPECT_TRUE(second.submitted.empty());
  EXPECT_EQ(second.rows.at(token).id, "77");
  EXPECT_EQ(second.rows.at(token).state, AllocationState::queued);
}

TEST(Pools, WhatWasNeverSubmittedIsReplaced) {
  Cluster first(pool(1));
  first.hold_submissions = true;
  first.pools->set_demand("all", work(1000, 0));
  first.pass(1);
  Cluster second(pool(1), {first.rows.begin()->second});
  second.pools->set_demand("all", work(1000, 0));
  second.pass(20);
  EXPECT_TRUE(second.submitted.empty()) << "one answer is not enough";
  second.pass(40);
  EXPECT_EQ(second.submitted.size(), 1U);
}

TEST(Pools, NothingIsSubmittedBeforeWhatRunsIsKnown) {
  const Allocation known = from_an_earlier_epoch(AllocationState::queued);
  Cluster cluster(pool(4), {known});
  cluster.answers = false;
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(100);
  EXPECT_TRUE(cluster.submitted.empty());
  cluster.jobs[known.token] = {"5", known.token, JobState::queued, JobEnd::none, {}, {}, {}, {}, {}, {}, 0};
  cluster.answers = true;
  cluster.pass(40);
  EXPECT_EQ(cluster.submitted.size(), 3U);
}

// The simulation, seed 3976: the job of workers that were about to join again was cancelled, and their tasks
// with it.
TEST(Pools, WorkersOfAnEarlierCoordinatorMayLeaveByThemselves) {
  const Allocation known = from_an_earlier_epoch(AllocationState::running);
  Cluster cluster(pool(4), {known});
  cluster.jobs[known.token] = {"5", known.token, JobState::running, JobEnd::none, {}, {}, {}, {}, {}, {}, 0};
  cluster.pass(10);
  EXPECT_EQ(cluster.drains.size(), 1U) << "nothing is open";
  EXPECT_TRUE(cluster.cancels.empty()) << "its workers may join yet";
  cluster.pass(15);
  EXPECT_EQ(cluster.cancels.size(), 1U);
}

// The simulation, seed 8239: once the scheduler had accepted the cancellation, it was not asked again.
TEST(Pools, TheEndOfACancelledJobIsReportedWhileItHasWorkers) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(40);
  cluster.keep_cancelled = true;
  EXPECT_FALSE(cluster.pools->cancel(cluster.row(0).id, cluster.now));
  cluster.pass(10);
  EXPECT_EQ(cluster.row(0).state, AllocationState::ended);
  EXPECT_TRUE(cluster.gone.empty()) << "its job is ending";
  cluster.jobs.erase(cluster.token(0));
  cluster.pass(10);
  ASSERT_EQ(cluster.gone.size(), 1U);
  EXPECT_EQ(cluster.gone[0].token, cluster.token(0));
}

// The simulation, seed 1189405: one list left a job out while the campaign ended, and its tasks counted as
// lost.
TEST(Pools, AtTheEndOneAnswerWithoutAJobDoesNotTakeItsWorkersForLost) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(40);
  cluster.pools->stop_submitting();
  cluster.jobs.erase(cluster.token(0));
  const std::size_t asked = cluster.queries.size();
  for (int s = 0; s < 600 && cluster.queries.size() < asked + 2; ++s) cluster.pass(1);
  EXPECT_TRUE(cluster.gone.empty());
  cluster.pass(600);
  EXPECT_EQ(cluster.gone.size(), 1U);
}

TEST(Pools, AtTheEndAllIsCancelledAlsoWhatIsUnderWay) {
  Cluster cluster;
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.hold_submissions = true;
  cluster.pass(1);
  cluster.pools->finish(cluster.now);
  cluster.pass(2);
  EXPECT_TRUE(cluster.pools->any_left());
  int id = 100;
  for (const JobRequest& job : cluster.submitted)
    cluster.pools->submitted(job.token, {std::to_string(id++), Submission::Refusal::none, {}}, cluster.now);
  cluster.pass(1);
  EXPECT_EQ(cluster.cancels.size(), 4U);
  EXPECT_FALSE(cluster.pools->any_left());
}

// sbatch may time out although the job is in the queue: the next list has its name.
TEST(Pools, TheEndWaitsForASubmissionThatWasNotAnswered) {
  Cluster cluster(pool(1));
  cluster.refusal = {"", Submission::Refusal::wait, "Socket timed out"};
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  ASSERT_EQ(cluster.submitted.size(), 1U);
  JobStatus& job = cluster.jobs[cluster.token(0)];
  job.token = cluster.token(0);
  job.id = "7";
  job.state = JobState::queued;
  cluster.pools->finish(cluster.now);
  EXPECT_TRUE(cluster.pools->any_left());
  cluster.pass(60);
  EXPECT_EQ(cluster.cancels, std::vector<std::string>{"7"});
  EXPECT_FALSE(cluster.pools->any_left());
}

TEST(Pools, ACancelThatFailsIsAskedForAgain) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.cancel_error = "scancel: error: Kill job error";
  cluster.pools->finish(cluster.now);
  cluster.pass(5);
  EXPECT_EQ(cluster.cancels.size(), 1U);
  EXPECT_TRUE(cluster.pools->any_left());
  cluster.cancel_error.reset();
  cluster.pass(15);
  EXPECT_FALSE(cluster.pools->any_left());
}

TEST(Pools, AnAllocationWithoutAnyWorkerIsCancelledAndItsNodeNamed) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0), 0);
  cluster.jobs.at(cluster.token(0)).ends_unix_s = cluster.now.unix_s + 1e6;
  cluster.pass(200);
  EXPECT_TRUE(cluster.noted("on n1 and none of its workers has reached this coordinator"));
  EXPECT_TRUE(cluster.cancels.empty());
  cluster.pass(500);
  EXPECT_EQ(cluster.cancels, std::vector<std::string>{"1"});
  EXPECT_EQ(cluster.row(0).reason, "no worker came within 600 s");
  EXPECT_EQ(cluster.submitted.size(), 2U) << "another one is tried";
}

TEST(Pools, ANodeThatSendsNoWorkerIsNamed) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.jobs.at(cluster.token(0)).nodes = {"n1", "n2.site.org", "n3"};
  cluster.workers.at(cluster.token(0)).hosts = {"n1.site.org", "n2"};
  cluster.pass(250);
  EXPECT_TRUE(cluster.noted("no worker has come from n3"));
  EXPECT_TRUE(cluster.cancels.empty()) << "the others work";
}

TEST(Pools, WhyWorkersLeftIsAskedBeforeTheJobIsCancelled) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(100);
  cluster.end(cluster.token(0), JobEnd::cancelled);  // scancel
  cluster.pass(5);
  EXPECT_EQ(cluster.submitted.size(), 2U) << "the work does not wait for the answer";
  cluster.pass(60);
  EXPECT_TRUE(cluster.cancels.empty());
  EXPECT_EQ(cluster.row(0).reason, "it was cancelled");
  EXPECT_TRUE(cluster.noted("allocation 1 has ended: it was cancelled"));
}

TEST(Pools, AJobThatOutlivesItsWorkersIsCancelled) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.jobs.at(cluster.token(0)).ends_unix_s = cluster.now.unix_s + 1e6;
  cluster.pass(100);
  cluster.workers.clear();
  cluster.pass(60);
  EXPECT_EQ(cluster.cancels, std::vector<std::string>{"1"});
  EXPECT_EQ(cluster.row(0).reason, "its workers left it");
}

TEST(Pools, ARequeuedJobIsKept) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(100);
  JobStatus& job = cluster.jobs.at(cluster.token(0));
  job.state = JobState::queued;  // preempted
  job.restarts = 1;
  cluster.workers.clear();
  cluster.pass(40);
  EXPECT_TRUE(cluster.noted("was requeued"));
  EXPECT_NE(cluster.row(0).state, AllocationState::ended);
}

TEST(Pools, AChainIsSubmittedAtOnceUnderOneName) {
  PoolSpec spec = pool(1);
  spec.chain = 4;
  spec.job.chain = "0";
  Cluster cluster(spec);
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(2);
  ASSERT_EQ(cluster.submitted.size(), 4U);
  for (const JobRequest& job : cluster.submitted) EXPECT_EQ(job.chain, "wabcdef-0");
  EXPECT_NE(cluster.token(0), cluster.token(1));
  cluster.run(cluster.token(0));
  cluster.pass(100);
  EXPECT_TRUE(cluster.cancels.empty());
  cluster.pools->set_demand("all", work(1000, 2500));  // 2 slots: 1,250 s, of which the first does 500 s
  cluster.pass(2);
  EXPECT_EQ(cluster.cancels, std::vector<std::string>{"4"}) << "two of 600 s behind it are enough";
  cluster.pools->set_demand("all", work(100, 100));
  cluster.pass(2);
  EXPECT_EQ(cluster.cancels.size(), 3U);
  EXPECT_EQ(cluster.row(0).state, AllocationState::running);
}

TEST(Pools, RefusalsOfOneMomentAreOne) {
  Cluster cluster;
  cluster.refusal = {"", Submission::Refusal::wait, "QOSMaxSubmitJobPerUserLimit"};
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  EXPECT_EQ(cluster.submitted.size(), 4U);
  cluster.refusal = {};
  cluster.pass(75);  // two answers that do not name them, and the first wait of 15 s
  EXPECT_EQ(cluster.jobs.size(), 4U);
}

TEST(Pools, PeopleAddCancelAndDrain) {
  Cluster cluster(pool(1));
  Demand blocked;
  blocked.open = 1;
  cluster.pools->set_demand("all", blocked);
  EXPECT_TRUE(cluster.pools->add("nosuch", 1, cluster.now));
  EXPECT_EQ(cluster.pools->add("", 2, cluster.now), std::nullopt);
  cluster.pass(5);
  EXPECT_EQ(cluster.submitted.size(), 2U);
  EXPECT_TRUE(cluster.cancels.empty()) << "asked for by hand";
  EXPECT_EQ(cluster.pools->cancel("1", cluster.now), std::nullopt);
  cluster.run(cluster.token(1));
  cluster.pass(3);
  EXPECT_EQ(cluster.cancels, std::vector<std::string>{"1"});
  EXPECT_EQ(cluster.pools->drain(cluster.token(1), cluster.now), std::nullopt);
  cluster.pass(300);
  EXPECT_EQ(cluster.cancels.size(), 1U) << "its tasks take as long as they take";
  cluster.workers.clear();
  cluster.pass(2);
  EXPECT_EQ(cluster.cancels.size(), 2U);
  EXPECT_TRUE(cluster.pools->cancel("2", cluster.now)) << "it has ended";
}

TEST(Pools, TheForecastIsInNodeHours) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 7200));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(300);
  const Forecast forecast = cluster.pools->forecast("all", cluster.now);
  EXPECT_NEAR(forecast.used_node_h, 300.0 / 3600, 0.01);
  EXPECT_NEAR(forecast.left_node_h, 1, 1e-9);
  ASSERT_TRUE(forecast.ends_s);
  EXPECT_NEAR(*forecast.ends_s - cluster.now.unix_s, 3600, 1);
  EXPECT_EQ(forecast.more, 6) << "3,600 s less the 300 s that it has left, in allocations of 600 s";
}

// A worker that has none of the GPUs that its tasks ask for: 7 allocations in 40 s, for ever, without a word.
TEST(Pools, AllocationsThatRunNoTaskStopThePoolWithTheReason) {
  PoolSpec spec = pool(1);
  spec.idle_timeout_s = 1;
  Cluster cluster(spec);
  Demand demand = work(8, 0);
  demand.waiting = 8;
  demand.obstacle = "a task of the step 'fit' asks for 1 GPUs, and the workers have 0";
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.pools->set_demand("all", demand);
    for (int s = 0; s < 600 && cluster.submitted.size() <= i; ++s) cluster.pass(1);
    ASSERT_EQ(cluster.submitted.size(), i + 1);
    EXPECT_FALSE(cluster.pools->stuck());
    cluster.run(cluster.token(i));
    cluster.workers.at(cluster.token(i)).busy = false;
    cluster.pass(5);
    cluster.workers.erase(cluster.token(i));
    cluster.pass(5);
  }
  cluster.pass(3600);
  EXPECT_EQ(cluster.submitted.size(), 3U);
  ASSERT_TRUE(cluster.pools->stuck());
  EXPECT_NE(cluster.pools->stuck()->find(
                "without having run a task, and 8 tasks wait: a task of the step 'fit' asks for "
                "1 GPUs"),
            std::string::npos)
      << *cluster.pools->stuck();
}

// tests/cluster: a fourth was submitted between the word that ended the third one and its end.
TEST(Pools, NoAllocationIsSubmittedWhileOneThatRanNothingEnds) {
  PoolSpec spec = pool(1);
  spec.idle_timeout_s = 400;
  Cluster cluster(spec);
  Demand demand = work(8, 0);
  demand.waiting = 8;
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.pools->set_demand("all", demand);
    for (int s = 0; s < 600 && cluster.submitted.size() <= i; ++s) cluster.pass(1);
    ASSERT_EQ(cluster.submitted.size(), i + 1);
    cluster.run(cluster.token(i));
    cluster.workers.at(cluster.token(i)).busy = false;
    cluster.jobs.at(cluster.token(i)).ends_unix_s = cluster.now.unix_s + 1e6;
    cluster.pass(420);
    EXPECT_EQ(cluster.submitted.size(), i + 1);
    cluster.workers.erase(cluster.token(i));
    cluster.pass(5);
  }
  cluster.pass(3600);
  EXPECT_EQ(cluster.submitted.size(), 3U);
  EXPECT_TRUE(cluster.pools->stuck());
}

TEST(Pools, AnAllocationThatCameTooLateForItsTasksIsNoFault) {
  PoolSpec spec = pool(2);
  spec.idle_timeout_s = 1;
  Cluster cluster(spec);
  cluster.pools->set_demand("all", work(8, 0));  // all of them run in the first one
  cluster.pass(1);
  cluster.run(cluster.token(0));
  for (std::size_t i = 1; i < 8; ++i) {
    for (int s = 0; s < 600 && cluster.submitted.size() <= i; ++s) cluster.pass(1);
    ASSERT_EQ(cluster.submitted.size(), i + 1);
    cluster.run(cluster.token(i));
    cluster.workers.at(cluster.token(i)).busy = false;
    cluster.pass(5);
    cluster.workers.erase(cluster.token(i));
    cluster.pass(5);
  }
  EXPECT_EQ(cluster.pools->gave_up("all"), nullptr);
}

TEST(Pools, ASilentWorkersAllocationIsAskedAboutEveryFiveSeconds) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.jobs.at(cluster.token(0)).ends_unix_s = cluster.now.unix_s + 1e6;
  cluster.pass(200);
  cluster.workers.at(cluster.token(0)).silent = true;
  const std::size_t before = cluster.queries.size();
  cluster.pass(60);
  EXPECT_GE(cluster.queries.size(), before + 8);
  EXPECT_LE(cluster.queries.size(), before + 13);
}

TEST(Pools, NodesAndJobsThatTheSchedulerSaysAreGoneAreReported) {
  PoolSpec spec = pool(1);
  spec.job.nodes = 2;
  Cluster cluster(spec);
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  JobStatus& job = cluster.jobs.at(cluster.token(0));
  job.nodes = {"n1", "n2"};
  cluster.pass(310);
  EXPECT_TRUE(cluster.gone.empty());
  job.nodes = {"n1"};
  cluster.pass(310);
  ASSERT_EQ(cluster.gone.size(), 1U);
  EXPECT_EQ(cluster.gone[0].token, cluster.token(0));
  EXPECT_EQ(cluster.gone[0].nodes, std::vector<std::string>{"n2"});
  cluster.end(cluster.token(0), JobEnd::node);
  cluster.pass(40);
  ASSERT_EQ(cluster.gone.size(), 2U);
  EXPECT_TRUE(cluster.gone[1].nodes.empty()) << "all of them";
}

// tests/cluster: a node lost its power before the scheduler had been asked once; its tasks ran again 72 s
// later.
TEST(Pools, ANodeThatIsMissingInTheFirstListIsReported) {
  for (const std::vector<std::string>& workers : {std::vector<std::string>{"n1", "n2"}, {"a", "b"}}) {
    PoolSpec spec = pool(1);
    spec.job.nodes = 2;
    Cluster cluster(spec);
    cluster.pools->set_demand("all", work(1000, 0));
    cluster.pass(1);
    cluster.run(cluster.token(0));
    cluster.workers.at(cluster.token(0)).nodes = workers;
    cluster.jobs.at(cluster.token(0)).nodes = {"n1"};
    cluster.pass(310);
    const bool known = workers[0] == "n1";
    ASSERT_EQ(cluster.gone.size(), known ? 1U : 0U) << "names of another kind say nothing";
    if (known) {
      EXPECT_EQ(cluster.gone[0].nodes, std::vector<std::string>{"n2"});
    }
  }
}

TEST(Pools, WhatAPersonCancelsIsNotGivenBack) {
  Cluster cluster(pool(1));
  cluster.pools->set_demand("all", work(1000, 0));
  cluster.pass(1);
  cluster.run(cluster.token(0));
  cluster.pass(5);
  EXPECT_FALSE(cluster.pools->cancel("1", cluster.now));
  cluster.pass(2);
  EXPECT_EQ(cluster.row(0).end, JobEnd::cancelled);
  EXPECT_EQ(cluster.row(0).reason, "it was cancelled by wflow allocations cancel");
}

}  // namespace

}  // namespace wflow::engine::batch
