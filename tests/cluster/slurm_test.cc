// SPDX-License-Identifier: Apache-2.0
// The Slurm adapter against a real Slurm of four nodes on this machine (slurm-local). WaitTime=5 in its
// configuration is what ends the neighbours of a worker at some sites.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/batch/adapters.h"
#include "engine/batch/mpi_launch.h"

namespace wflow::engine::batch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double kDeadline_s = 240;  // a dead node's job takes about 30 s on an idle machine

std::string cluster_directory() {
  std::string folder = "/tmp/wflow-slurm-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "cannot make " << folder;
  return folder;
}

CommandResult slurm_local(const std::string& folder, std::vector<std::string> words) {
  SpawnRequest request;
  request.argv = {WFLOW_SLURM_LOCAL, words.front(), "-d", folder + "/cluster"};
  request.argv.insert(request.argv.end(), words.begin() + 1, words.end());
  return run_command(request);
}

class Cluster : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = cluster_directory();
    const CommandResult started =
        slurm_local(folder_, {"start", "--nodes", "4", "--cpus", "2", "--conf-line", "WaitTime=5"});
    constexpr int kMissingPackage = 3;
    ready_ = started.status == 0;
    missing_ = started.status == kMissingPackage ? started.err : "";
    if (!ready_ && missing_.empty()) ADD_FAILURE() << "slurm-local: " << started.out << started.err;
    ::setenv("SLURM_CONF", (folder_ + "/cluster/etc/slurm.conf").c_str(), 1);
  }

  static void TearDownTestSuite() {
    slurm_local(folder_, {"stop"});
    ::unsetenv("SLURM_CONF");
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void SetUp() override {
    if (!missing_.empty()) GTEST_SKIP() << "no Slurm here, so nothing was tested: " << missing_;
    ASSERT_TRUE(ready_);
    prefix_ = text::lower(testing::UnitTest::GetInstance()->current_test_info()->name()).substr(0, 8);
  }

  void TearDown() override {
    std::vector<std::string> ids;
    for (const JobStatus& job : slurm_->query("").jobs) {
      if (job.state != JobState::done && job.state != JobState::failed) ids.push_back(job.id);
    }
    slurm_->cancel(ids);
  }

  JobRequest request(int nodes, const std::string& command) {
    JobRequest request;
    request.token = prefix_ + std::to_string(++jobs_);
    request.nodes = nodes;
    request.walltime_s = 600;
    request.command = {"/bin/bash", "-c", command};
    request.directory = folder_ + "/" + prefix_;
    return request;
  }

  std::string file(const std::string& name) const { return folder_ + "/" + prefix_ + "/" + name; }
  bool there(const std::string& name) const { return fs::exists(file(name)); }

  Submission submit(const JobRequest& request) {
    Submission submission = slurm_->submit(request);
    EXPECT_EQ(submission.text, "");
    return submission;
  }

  // The job of that token, once it is as wanted.
  JobStatus wait_for(const std::string& token, const std::function<bool(const JobStatus&)>& wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline_s);
    JobStatus last;
    do {
      for (const JobStatus& job : slurm_->query(token).jobs) {
        last = job;
        if (wanted(job)) return job;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } while (std::chrono::steady_clock::now() < end);
    ADD_FAILURE() << token << " is " << last.raw << " (" << last.reason << ")";
    return last;
  }

  JobStatus wait_for_state(const std::string& token, JobState state) {
    return wait_for(token, [&](const JobStatus& job) { return job.state == state; });
  }

  void wait_until(const std::function<bool()>& wanted, const std::string& what) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline_s);
    while (!wanted()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  static std::string folder_, missing_;
  static bool ready_;
  std::unique_ptr<BatchSystem> slurm_ = make_slurm();
  std::string prefix_;
  int jobs_ = 0;
};

std::string Cluster::folder_;
std::string Cluster::missing_;
bool Cluster::ready_ = false;

constexpr const char* kStay = "exec sleep 1000";

TEST_F(Cluster, Answers) {
  EXPECT_EQ(slurm_->check(), std::nullopt);
  const JobList none = slurm_->query("nosuchjob");
  EXPECT_TRUE(none.answered);
  EXPECT_TRUE(none.jobs.empty());
}

TEST_F(Cluster, RunsAWorkerOnEachNode) {
  const JobRequest job =
      request(3, "echo $SLURMD_NODENAME > on.$SLURMD_NODENAME; nproc; until [ -e go ]; do sleep 0.1; done");
  const Submission submission = submit(job);
  const JobStatus running = wait_for_state(job.token, JobState::running);
  EXPECT_EQ(running.id, submission.id);
  EXPECT_EQ(running.token, job.token);
  EXPECT_EQ(running.restarts, 0);
  ASSERT_EQ(running.nodes.size(), 3U);
  ASSERT_TRUE(running.starts_unix_s && running.ends_unix_s);
  EXPECT_NEAR(*running.ends_unix_s - *running.starts_unix_s, 600, 1);
  for (const std::string& node : running.nodes) {
    wait_until([&] { return there("on." + node); }, "no worker on " + node);
  }
  ::setenv("SLURM_JOB_ID", running.id.c_str(), 1);
  EXPECT_EQ(slurm_->ends_unix_s(), running.ends_unix_s);
  ::unsetenv("SLURM_JOB_ID");
  write_file_durably(file("go"), "");
  EXPECT_EQ(wait_for_state(job.token, JobState::done).end, JobEnd::none);
}

TEST_F(Cluster, CancelsJobsAndForgivesWhatHasEnded) {
  const JobRequest job = request(1, kStay);
  const Submission submission = submit(job);
  wait_for_state(job.token, JobState::running);
  EXPECT_EQ(slurm_->cancel({submission.id}), std::nullopt);
  EXPECT_EQ(wait_for_state(job.token, JobState::failed).end, JobEnd::cancelled);
  EXPECT_EQ(slurm_->cancel({submission.id, "999999"}), std::nullopt);
  EXPECT_EQ(slurm_->cancel({"999999"}), std::nullopt);
}

TEST_F(Cluster, RefusesWhatCanNeverRun) {
  JobRequest job = request(1, kStay);
  job.partition = "nosuch";
  Submission refused = slurm_->submit(job);
  EXPECT_EQ(refused.refusal, Submission::Refusal::fix);
  EXPECT_THAT(refused.text, HasSubstr("nosuch"));
  job = request(9, kStay);
  EXPECT_EQ(slurm_->submit(job).refusal, Submission::Refusal::fix);
  job = request(1, kStay);
  job.partition = "short";
  job.walltime_s = 3600;
  refused = slurm_->submit(job);
  EXPECT_EQ(refused.refusal, Submission::Refusal::fix);
  EXPECT_THAT(refused.text, HasSubstr("time limit"));
  EXPECT_TRUE(slurm_->query(prefix_).jobs.empty());
}

TEST_F(Cluster, EstimatesStarts) {
  const auto estimate = slurm_->try_out(request(2, kStay)).starts_unix_s;
  ASSERT_TRUE(estimate);
  EXPECT_NEAR(*estimate, unix_now_s(), 3600);
  EXPECT_EQ(slurm_->try_out(request(9, kStay)).answer.refusal, Submission::Refusal::fix);
  EXPECT_TRUE(slurm_->query(prefix_).jobs.empty());
}

TEST_F(Cluster, SaysWhyAJobNeverStarts) {
  JobRequest job = request(1, kStay);
  job.args = {"--hold"};
  submit(job);
  const JobStatus held = wait_for_state(job.token, JobState::held);
  EXPECT_THAT(held.never_clears, HasSubstr("scontrol release"));

  const JobRequest failing = request(1, "exit 3");
  const Submission first = submit(failing);
  EXPECT_EQ(wait_for_state(failing.token, JobState::failed).end, JobEnd::exit);
  JobRequest dependent = request(1, kStay);
  dependent.args = {"--dependency=afterok:" + first.id};
  const Submission second = slurm_->submit(dependent);
  if (second.id.empty()) return;  // newer versions refuse it at once
  wait_for(dependent.token, [](const JobStatus& status) { return !status.never_clears.empty(); });
}

TEST_F(Cluster, TellsAWalltimeFromAFailure) {
  const JobRequest job = request(1, kStay);
  const Submission submission = submit(job);
  wait_for_state(job.token, JobState::running);
  SpawnRequest shorten;
  shorten.argv = {"scontrol", "update", "job=" + submission.id, "EndTime=now+2"};
  ASSERT_EQ(run_command(shorten).status, 0);
  EXPECT_EQ(wait_for_state(job.token, JobState::failed).end, JobEnd::walltime);
}

TEST_F(Cluster, CountsTheStartsOfAJob) {
  JobRequest job = request(1, kStay);
  job.args = {"--requeue"};
  const Submission submission = submit(job);
  wait_for_state(job.token, JobState::running);
  SpawnRequest requeue;
  requeue.argv = {"scontrol", "requeue", submission.id};
  ASSERT_EQ(run_command(requeue).status, 0);
  const JobStatus again = wait_for(job.token, [](const JobStatus& status) { return status.restarts == 1; });
  EXPECT_EQ(again.id, submission.id);
  EXPECT_NE(again.state, JobState::failed);
}

TEST_F(Cluster, AvoidsNodes) {
  JobRequest job = request(1, kStay);
  job.exclude = {"n1", "n2", "n3"};
  submit(job);
  EXPECT_THAT(wait_for_state(job.token, JobState::running).nodes, testing::ElementsAre("n4"));
}

TEST_F(Cluster, AWorkersEndIsNotItsNeighbours) {
  // Past the site's WaitTime of 5 s after the first end, and after a failure.
  const JobRequest job = request(2,
                                 "[ $SLURM_PROCID = 0 ] && { touch first; exit 3; }; until [ -e first ]; do "
                                 "sleep 0.1; done; sleep 8; touch survived");
  submit(job);
  wait_for(job.token, [](const JobStatus& status) {
    return status.state == JobState::failed || status.state == JobState::done;
  });
  EXPECT_TRUE(there("survived"));
}

TEST_F(Cluster, IsNotMisledByAnOuterJob) {
  const std::vector<std::pair<const char*, const char*>> outer = {
      {"SLURM_JOB_ID", "12345"},       {"SLURM_NTASKS", "1"},
      {"SLURM_EXPORT_ENV", "NONE"},    {"SLURM_CPUS_PER_TASK", "3"},
      {"SRUN_CPUS_PER_TASK", "4"},     {"SBATCH_PARTITION", "nosuch"},
      {"SLURM_CPU_BIND", "map_cpu:0"}, {"PMI_RANK", "3"}};
  for (const auto& [name, value] : outer) ::setenv(name, value, 1);
  JobRequest job = request(2, "env > env.$SLURMD_NODENAME; nproc >> cores; touch done.$SLURMD_NODENAME");
  job.args = {"--export=NONE"};
  submit(job);
  for (const auto& [name, value] : outer) ::unsetenv(name);
  wait_for_state(job.token, JobState::done);
  const JobStatus status = wait_for_state(job.token, JobState::done);
  ASSERT_EQ(status.nodes.size(), 2U);
  for (const std::string& node : status.nodes) {
    ASSERT_TRUE(there("done." + node));
    const std::string environment = read_file(file("env." + node));
    EXPECT_THAT(environment, HasSubstr("SLURM_JOB_ID=" + status.id));
    EXPECT_THAT(environment, HasSubstr("PATH="));
    EXPECT_THAT(environment, testing::Not(HasSubstr("PMI_RANK=3")));
  }
}

TEST_F(Cluster, StartsProgramsBesideTheWorkers) {
  // A task's launcher, inside the step of the worker that runs it.
  const std::string node = "$(scontrol show hostnames | sed -n ";
  MpiLaunch ranks;
  ranks.manager = "slurm";
  ranks.nodes = {node + "1p)", node + "2p)"};
  ranks.procs = 4;
  const std::string launch = text::join(launch_words(ranks), " ");
  const JobRequest job = request(
      2,
      "[ $SLURM_PROCID = 0 ] || exec sleep 1000; unset ${!SLURM_STEP*} SLURM_NTASKS SLURM_NPROCS "
      "SLURM_PROCID; " +
          launch +
          " /bin/bash -c 'echo $SLURM_NTASKS $SLURMD_NODENAME >> ranks.$SLURM_PROCID'; echo $? > code");
  submit(job);
  wait_until([&] { return there("code") && !read_file(file("code")).empty(); }, "the program did not start");
  EXPECT_EQ(read_file(file("code")), "0\n") << read_file(file(job.token + ".out"));
  for (const char* rank : {"0", "1", "2", "3"}) {
    ASSERT_TRUE(there(std::string("ranks.") + rank)) << rank;
    EXPECT_THAT(read_file(file(std::string("ranks.") + rank)), HasSubstr("4 n"));
  }
}

// Off in ctest, like the next one: on a busy machine Slurm 22.05 sometimes calls the end of a job on a dead
// node a failure of its program (NonZeroExitCode) before it notices that the node is gone. By hand:
// --gtest_also_run_disabled_tests.
TEST_F(Cluster, DISABLED_TellsADeadNodeFromAFailure) {
  const JobRequest job = request(1, kStay);
  submit(job);
  const JobStatus running = wait_for_state(job.token, JobState::running);
  ASSERT_EQ(running.nodes.size(), 1U);
  const std::string node = running.nodes.front();
  ASSERT_EQ(slurm_local(folder_, {"crash", node}).status, 0);
  const JobStatus ended = wait_for_state(job.token, JobState::failed);
  EXPECT_EQ(ended.end, JobEnd::node) << ended.raw;
  EXPECT_EQ(slurm_local(folder_, {"revive", node}).status, 0);
}

TEST_F(Cluster, DISABLED_ADeadNodeIsNotItsNeighbours) {
  const JobRequest job = request(2, "until [ -e lost ]; do sleep 0.1; done; touch survived.$SLURMD_NODENAME");
  submit(job);
  const JobStatus running = wait_for_state(job.token, JobState::running);
  ASSERT_EQ(running.nodes.size(), 2U);
  // Not the first: the script runs there, and the job ends with it.
  ASSERT_EQ(slurm_local(folder_, {"crash", running.nodes[1]}).status, 0);
  wait_for(job.token, [](const JobStatus& status) { return status.nodes.size() == 1; });
  write_file_durably(file("lost"), "");
  wait_until([&] { return there("survived." + running.nodes[0]); }, "the other worker has ended too");
  EXPECT_EQ(slurm_local(folder_, {"revive", running.nodes[1]}).status, 0);
}

// The last: a controller that is killed may forget its youngest jobs, and give their ids again.
TEST_F(Cluster, WithoutItsControllerNothingHasEnded) {
  const JobRequest job = request(1, kStay);
  submit(job);
  wait_for_state(job.token, JobState::running);
  ASSERT_EQ(slurm_local(folder_, {"kill", "ctld"}).status, 0);
  const JobList silent = slurm_->query(prefix_);
  EXPECT_FALSE(silent.answered);
  EXPECT_THAT(silent.text, HasSubstr("slurm"));
  EXPECT_EQ(slurm_->submit(request(1, kStay)).refusal, Submission::Refusal::wait);
  EXPECT_TRUE(slurm_->check());
  ASSERT_EQ(slurm_local(folder_, {"revive", "ctld"}).status, 0);
  EXPECT_EQ(slurm_->check(), std::nullopt);
}

}  // namespace
}  // namespace wflow::engine::batch
