// SPDX-License-Identifier: Apache-2.0
#include "base/batch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace wflow {
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
