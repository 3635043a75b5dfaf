// SPDX-License-Identifier: Apache-2.0
// Against what the launchers really printed: Slurm 22.05.8, Open MPI 4.1.4.
#include "workers/execute/slot_table.h"

#include <gtest/gtest.h>

namespace wflow::workers {
namespace {

TEST(LaunchFailure, IsWhatLaunchersSayInTheirOwnWords) {
  EXPECT_TRUE(is_launch_failure(
      "step 1\nsrun: error: Unable to create step for job 2: More processors requested than permitted\n"));
  EXPECT_TRUE(is_launch_failure(
      "srun: error: Task launch for StepId=4.0 failed on node n2: Communication connection failure\n"
      "srun: error: Application launch failed: Communication connection failure\n"));
  EXPECT_TRUE(
      is_launch_failure("srun: error: Unable to confirm allocation for job 99999: Invalid job id specified\n"
                        "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 99999\n"));
  EXPECT_TRUE(is_launch_failure("--------\nORTE was unable to reliably start one or more daemons.\n"));
  EXPECT_TRUE(
      is_launch_failure("There are not enough slots available in the system to satisfy the 1000\nslots"));
}

TEST(LaunchFailure, IsNothingElse) {
  EXPECT_FALSE(is_launch_failure(""));
  EXPECT_FALSE(is_launch_failure("\n\n"));
  // The program itself failed, or does not exist.
  EXPECT_FALSE(is_launch_failure("srun: error: n1: task 0: Exited with exit code 3\n"));
  EXPECT_FALSE(is_launch_failure("srun: error: n1: task 1: Killed\n"));
  EXPECT_FALSE(is_launch_failure("slurmstepd-n1: error: execve(): /nosuch: No such file or directory\n"));
  EXPECT_FALSE(
      is_launch_failure("mpirun was unable to launch the specified application as it could not access\nor "
                        "execute an executable:"));
  EXPECT_FALSE(
      is_launch_failure("srun: error: Invalid MPI type 'nosuch', --mpi=list for acceptable types\n"));
  // A quotation within a line.
  EXPECT_FALSE(is_launch_failure("see 'srun: error: Unable to create step for job 2' in the manual\n"));
  EXPECT_FALSE(is_launch_failure("srun: error: Task launch for StepId=4.0\nfailed on node n2"));
}

TEST(FailureReason, IsTheLastErrorAndNoWarning) {
  EXPECT_EQ(without_warnings("wflow-train: warning: 2 threads a rank on 1 core\n"
                             "wflow-train: warning: the loss rose to 41.2 from about 0.38\n"
                             "wflow-train: the loss is not finite at epoch 1, step 9\n"),
            "wflow-train: the loss is not finite at epoch 1, step 9\n");
  EXPECT_EQ(without_warnings("[n1] a library says this\nwflow-train: rank 1: no shard 3\n"
                             "--------------------------------\nMPI_ABORT was invoked on rank 1\n"),
            "[n1] a library says this\nwflow-train: rank 1: no shard 3\n");
  EXPECT_EQ(without_warnings(
                "wflow-convert: two of them:\n  a\nwflow-convert: warning: b\n  c\n----------\nmpirun"),
            "wflow-convert: two of them:\n  a\n  c");
  // Killed before it named an error, and programs that are not wflow's.
  for (const char* other :
       {"", "\n", "wflow-train: warning: 2 threads a rank on 1 core\n", "warning: a\nerror: b\n-------\n",
        "wflow-train: warning: a\n-----------\nmpirun: killed"})
    EXPECT_EQ(without_warnings(other), other);
}

}  // namespace
}  // namespace wflow::workers
