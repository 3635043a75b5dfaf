// SPDX-License-Identifier: Apache-2.0
// The SGE adapter against a real Grid Engine of one node on this machine (sge-local).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double kDeadline_s = 240;

CommandResult sge_local(const std::string& verb, const std::string& folder) {
  SpawnRequest request;
  request.argv = {WFLOW_SGE_LOCAL, verb, folder};
  return run_command(request);
}

class GridEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = "/tmp/wflow-sge-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    const CommandResult started = sge_local("start", folder_);
    constexpr int kMissing = 3;
    if (started.status == kMissing) missing_ = started.err;
    ASSERT_TRUE(started.status == 0 || started.status == kMissing) << started.out << started.err;
    for (const std::string& line : text::split(sge_local("env", folder_).out, '\n')) {
      const std::string assignment = line.substr(std::min(line.size(), std::string("export ").size()));
      const std::size_t equals = assignment.find('=');
      if (equals != std::string::npos)
        ::setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(), 1);
    }
    ::setenv("USER", "root", 1);
  }

  static void TearDownTestSuite() {
    sge_local("stop", folder_);
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void SetUp() override {
    if (!missing_.empty()) GTEST_SKIP() << "no Grid Engine here, so nothing was tested: " << missing_;
    prefix_ = text::lower(testing::UnitTest::GetInstance()->current_test_info()->name()).substr(0, 8);
  }

  JobRequest request(const std::string& command) {
    JobRequest request;
    request.token = prefix_ + std::to_string(++jobs_);
    request.walltime_s = 600;
    request.command = {"/bin/bash", "-c", command};
    request.directory = folder_ + "/" + prefix_;
    return request;
  }

  JobStatus wait_for(const std::string& token, const std::function<bool(const JobStatus&)>& wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kDeadline_s);
    JobStatus last;
    do {
      for (const JobStatus& job : sge_->query(token).jobs) {
        last = job;
        if (wanted(job)) return job;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    } while (std::chrono::steady_clock::now() < end);
    ADD_FAILURE() << token << " is " << last.raw;
    return last;
  }

  JobStatus wait_for_state(const std::string& token, JobState state) {
    return wait_for(token, [&](const JobStatus& job) { return job.state == state; });
  }

  static std::string folder_, missing_;
  std::unique_ptr<BatchSystem> sge_ = make_sge();
  std::string prefix_;
  int jobs_ = 0;
};

std::string GridEngine::folder_;
std::string GridEngine::missing_;

TEST_F(GridEngine, RunsAWorkerAndSaysHowItEnded) {
  EXPECT_EQ(sge_->check(), std::nullopt);
  EXPECT_TRUE(sge_->query("nosuchjob").answered);
  JobRequest job = request("until [ -e go ]; do sleep 0.1; done; echo $READY > ran");
  job.setup = {"export READY=yes"};
  const Submission submission = sge_->submit(job);
  ASSERT_EQ(submission.text, "");
  const JobStatus running = wait_for_state(job.token, JobState::running);
  EXPECT_EQ(running.id, submission.id);
  EXPECT_EQ(running.nodes.size(), 1U);
  write_file_durably(job.directory + "/go", "");
  wait_for_state(job.token, JobState::done);
  EXPECT_EQ(read_file(job.directory + "/ran"), "yes\n");
  const JobRequest failing = request("exit 3");
  ASSERT_EQ(sge_->submit(failing).text, "");
  EXPECT_EQ(wait_for_state(failing.token, JobState::failed).end, JobEnd::exit);
}

TEST_F(GridEngine, CancelsJobsAndForgivesWhatHasEnded) {
  const JobRequest job = request("exec sleep 1000");
  const Submission submission = sge_->submit(job);
  wait_for_state(job.token, JobState::running);
  EXPECT_EQ(sge_->cancel({submission.id}), std::nullopt);
  EXPECT_EQ(wait_for_state(job.token, JobState::failed).end, JobEnd::cancelled);
  EXPECT_EQ(sge_->cancel({submission.id, "999"}), std::nullopt);
}

TEST_F(GridEngine, TellsAWalltimeFromAFailure) {
  JobRequest job = request("exec sleep 1000");
  job.walltime_s = 0;
  job.args = {"-l h_rt=3"};
  ASSERT_EQ(sge_->submit(job).text, "");
  EXPECT_EQ(wait_for_state(job.token, JobState::failed).end, JobEnd::walltime);
}

TEST_F(GridEngine, RefusesWhatCanNeverRun) {
  JobRequest job = request("exit 0");
  job.partition = "nosuch";
  const Submission refused = sge_->submit(job);
  EXPECT_EQ(refused.refusal, Submission::Refusal::fix);
  EXPECT_THAT(refused.text, HasSubstr("nosuch"));
}

TEST_F(GridEngine, StartsWorkersThroughAParallelEnvironment) {
  JobRequest job = request("echo $PE_HOSTFILE > \"ran.$(hostname)\"");
  job.args = {"-pe mpi 2"};
  ASSERT_EQ(sge_->submit(job).text, "");
  wait_for(job.token, [](const JobStatus& status) {
    return status.state == JobState::done || status.state == JobState::failed;
  });
  EXPECT_TRUE(fs::exists(job.directory + "/ran." + host_name()))
      << read_file(job.directory + "/" + job.token + ".out");
}

}  // namespace
}  // namespace wflow::engine::batch
