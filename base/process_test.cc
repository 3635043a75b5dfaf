// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>

#include "base/error.h"

namespace wflow {
namespace {

CommandResult shell(const std::string& script) {
  SpawnRequest request;
  request.argv = {"sh", "-c", script};
  return run_command(request);
}

TEST(Process, CapturesOutputAndStatus) {
  const CommandResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.status, 3);
}

TEST(Process, DeathBySignalIsReportedAsShellsDo) {
  EXPECT_EQ(shell("kill -9 $$").status, 137);
}

TEST(Process, StandardInputIsEmptyUnlessGiven) {
  EXPECT_EQ(shell("cat | wc -c").out, "0\n");
}

TEST(Process, DirectoryAndEnvironment) {
  SpawnRequest request;
  request.argv = {"/bin/sh", "-c", "pwd; echo $A"};
  request.directory = "/usr";
  request.environment = std::vector<std::string>{"A=b"};
  EXPECT_EQ(run_command(request).out, "/usr\nb\n");
}

TEST(Process, MissingProgramOrDirectoryIsAnErrorOfTheCaller) {
  SpawnRequest request;
  request.argv = {"/no/such/program"};
  EXPECT_THROW(spawn(request), Error);
  request.argv = {"no-such-program-in-path"};
  EXPECT_THROW(spawn(request), Error);
  request.argv = {"true"};
  request.directory = "/no/such/directory";
  EXPECT_THROW(spawn(request), Error);
}

TEST(Process, OwnGroupCanBeKilledAsAWhole) {
  SpawnRequest request;
  request.argv = {"sh", "-c", "sleep 1000 & sleep 1000"};
  request.own_group = true;
  const pid_t pid = spawn(request);
  EXPECT_EQ(::kill(-pid, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(exit_status(status), 137);
}

TEST(Process, BlockedSignalsDoNotReachTheChild) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const CommandResult result = shell("kill -TERM $$; echo survived");
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  EXPECT_EQ(result.status, 128 + SIGTERM);
}

TEST(RunCommand, EndsWhatTakesTooLong) {
  const auto run = [](const std::string& script, double timeout_s) {
    SpawnRequest request;
    request.argv = {"/bin/sh", "-c", script};
    return run_command(request, timeout_s);
  };
  const CommandResult slow = run("echo first; sleep 1000", 0.2);
  EXPECT_TRUE(slow.timed_out);
  EXPECT_EQ(slow.status, 128 + SIGKILL);
  EXPECT_EQ(slow.out, "first\n");
  EXPECT_TRUE(run("sleep 1000 & exit 0", 0.2).timed_out) << "what it started holds its output";
  EXPECT_TRUE(run("exec >&- 2>&-; sleep 1000", 0.2).timed_out) << "it closed its output";
  const CommandResult quick = run("echo out; echo err >&2; exit 3", 1000);
  EXPECT_FALSE(quick.timed_out);
  EXPECT_EQ(quick.status, 3);
  EXPECT_EQ(quick.out, "out\n");
  EXPECT_EQ(quick.err, "err\n");
}

}  // namespace

namespace {

using testing::ElementsAre;
using Words = std::vector<std::string>;

TEST(SchedulerEnvironment, DropsWhatOverridesAScript) {
  EXPECT_THAT(scheduler_environment("slurm", {"PATH=/bin", "SBATCH_PARTITION=debug", "SBATCH_TIMELIMIT=1",
                                              "SQUEUE_FORMAT=%i", "SCANCEL_INTERACTIVE=1", "HOME=/h"}),
              ElementsAre("PATH=/bin", "HOME=/h"));
}

TEST(SchedulerEnvironment, DropsAnOuterJobButKeepsTheSite) {
  EXPECT_THAT(
      scheduler_environment(
          "slurm", {"SLURM_CONF=/etc/s.conf", "SLURM_CONF_SERVER=c1", "SLURM_JWT=t", "SLURM_JOB_ID=7",
                    "SLURM_EXPORT_ENV=NONE", "SLURM_NTASKS=1", "SLURM_MEM_PER_NODE=100", "SLURMD_NODENAME=n1",
                    "PMI_RANK=0", "PMIX_NAMESPACE=x", "OMPI_COMM_WORLD_SIZE=1", "OMPI_MCA_btl=tcp"}),
      ElementsAre("SLURM_CONF=/etc/s.conf", "SLURM_CONF_SERVER=c1", "SLURM_JWT=t", "OMPI_MCA_btl=tcp"));
}

TEST(SchedulerEnvironment, FluxKeepsItsInstanceAndOthersDoNot) {
  const Words outer = {"FLUX_URI=local:///x", "FLUX_JOB_ID=f1", "PBS_CONF_FILE=/etc/pbs.conf",
                       "PBS_JOBID=3",         "LSB_JOBID=4",    "LSF_ENVDIR=/lsf",
                       "SGE_ROOT=/sge",       "JOB_ID=5"};
  EXPECT_THAT(scheduler_environment("flux", outer),
              ElementsAre("FLUX_URI=local:///x", "PBS_CONF_FILE=/etc/pbs.conf", "LSF_ENVDIR=/lsf",
                          "SGE_ROOT=/sge", "JOB_ID=5"));
  EXPECT_THAT(scheduler_environment("slurm", outer),
              ElementsAre("PBS_CONF_FILE=/etc/pbs.conf", "LSF_ENVDIR=/lsf", "SGE_ROOT=/sge", "JOB_ID=5"))
      << "SGE's names without a prefix may be anyone's";
  EXPECT_THAT(scheduler_environment("sge", {"JOB_ID=5", "SGE_ROOT=/sge"}), ElementsAre("SGE_ROOT=/sge"));
}

TEST(TaskEnvironment, LosesTheStepAndKeepsTheJob) {
  for (const char* name : {"SLURM_CPU_BIND_LIST", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NTASKS_PER_NODE",
                           "SLURM_TASKS_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_DISTRIBUTION",
                           "SLURM_EXPORT_ENV", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_TASK", "PMI_FD",
                           "PMIX_RANK", "SLURM_JOBID", "SLURM_NODELIST"}) {
    EXPECT_TRUE(leaks_into_tasks(name)) << name;
  }
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURMD_NODENAME", "SLURM_JOB_END_TIME",
        "FLUX_URI", "OMPI_MCA_pml", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_CPUS_PER_NODE", "PATH"}) {
    EXPECT_FALSE(leaks_into_tasks(name)) << name;
  }
}

TEST(TaskEnvironment, IsCleanedInThisProcess) {
  ::setenv("SLURM_STEP_ID", "0", 1);
  ::setenv("SLURM_JOB_ID", "7", 1);
  clean_task_environment();
  EXPECT_EQ(std::getenv("SLURM_STEP_ID"), nullptr);
  ASSERT_NE(std::getenv("SLURM_JOB_ID"), nullptr);
  ::unsetenv("SLURM_JOB_ID");
}

}  // namespace

}  // namespace wflow
