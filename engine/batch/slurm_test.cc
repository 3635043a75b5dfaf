// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/batch/allocation.h"
#include "engine/batch/test_commands.h"

namespace wflow::engine::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Recorded from Slurm 22.05 with kSqueueFormat and SLURM_TIME_FORMAT=%s.
constexpr const char* kRunning = "1|RUNNING|wfa1|0|1795325823|1795326423|n[1-2]|None|";
constexpr const char* kFailed = "2|FAILED|wfa2|0|1795325823|1795325823|n1|NonZeroExitCode|";

JobRequest request_in(const std::string& directory) {
  JobRequest request;
  request.token = "wfa1b2c3";
  request.nodes = 2;
  request.walltime_s = 3601;
  request.command = {"/opt/wflow", "worker", "--campaign", "/a b"};
  request.directory = directory;
  return request;
}

TEST(SlurmScript, AsksForWholeNodesAndStartsAWorkerOnEach) {
  JobRequest request = request_in("/scratch/c");
  request.account = "astro";
  request.partition = "compute";
  request.gpus = 4;
  request.exclude = {"n7", "n9"};
  request.args = {"--mail-type=NONE"};
  request.setup = {"module load openmpi"};
  EXPECT_EQ(make_slurm()->script(request), R"(#!/bin/bash
# Made by wflow for Slurm: an allocation with a worker on each of its nodes.
#SBATCH --job-name=wfa1b2c3
#SBATCH --comment=wfa1b2c3
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=61
#SBATCH --account=astro
#SBATCH --partition=compute
#SBATCH --gpus-per-node=4
#SBATCH --exclude=n7,n9
#SBATCH --chdir=/scratch/c
#SBATCH --output=/scratch/c/wfa1b2c3.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --no-kill
#SBATCH --mail-type=NONE

unset SLURM_EXPORT_ENV SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION
unset ${!SLURM_CPU_BIND*} ${!SLURM_MEM_BIND*} ${!SBATCH_*}
cd /scratch/c || exit 1
export WFLOW_ENDS_AT=$(($(date +%s) + 3660))
module load openmpi
ends=$(SLURM_TIME_FORMAT=%s squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e) && [ "$ends" -gt 0 ] && export WFLOW_ENDS_AT=$ends
srun --nodes=2 --ntasks=2 --overlap --no-kill --wait=0 --kill-on-bad-exit=0 --cpu-bind=none --mpi=none /opt/wflow worker --campaign '/a b'
)");
}

TEST(SlurmScript, SharesNodesOnRequest) {
  JobRequest request = request_in("/d");
  request.exclusive = false;
  request.cores = 8;
  request.memory = "per_cpu 4G";
  request.walltime_s = 0;
  const std::string script = make_slurm()->script(request);
  EXPECT_THAT(script, HasSubstr("#SBATCH --cpus-per-task=8\n#SBATCH --mem-per-cpu=4G\n"));
  EXPECT_THAT(script, Not(HasSubstr("--exclusive")));
  EXPECT_THAT(script, Not(HasSubstr("--time")));
  request.args = {"--mem-per-gpu=3G"};
  EXPECT_THAT(make_slurm()->script(request), Not(HasSubstr("--mem-per-cpu")))
      << "the forms exclude each other";
}

TEST(SlurmScript, TakesMerlinsWordsForTheLauncher) {
  JobRequest request = request_in("/d");
  request.launch_pre = "env A=1";
  request.launch_args = "--label";
  EXPECT_THAT(make_slurm()->script(request), HasSubstr("env A=1 srun --nodes=2 "));
  EXPECT_THAT(make_slurm()->script(request), HasSubstr("--mpi=none --label /opt/wflow worker"));
  request.worker_launch = "mylauncher -x";
  EXPECT_THAT(make_slurm()->script(request), HasSubstr("env A=1 mylauncher -x --label /opt/wflow worker"));
  EXPECT_THAT(make_slurm()->script(request), Not(HasSubstr("srun ")));
}

TEST(Squeue, Reads) {
  const JobStatus running = parse_squeue_line(kRunning).value();
  EXPECT_EQ(running.id, "1");
  EXPECT_EQ(running.token, "wfa1");
  EXPECT_EQ(running.state, JobState::running);
  EXPECT_THAT(running.nodes, ElementsAre("n1", "n2"));
  EXPECT_EQ(running.starts_unix_s, 1795325823);
  EXPECT_EQ(running.ends_unix_s, 1795326423);
  EXPECT_EQ(running.reason, "");
  const JobStatus failed = parse_squeue_line(kFailed).value();
  EXPECT_EQ(failed.state, JobState::failed);
  EXPECT_EQ(failed.end, JobEnd::exit);
  EXPECT_FALSE(parse_squeue_line("slurm_load_jobs error: Unable to contact slurm controller"));
}

TEST(SlurmScript, ChainsByOneName) {
  JobRequest request = request_in("/d");
  request.chain = "wabcdef-0";
  const std::string script = make_slurm()->script(request);
  EXPECT_THAT(script, HasSubstr("#SBATCH --job-name=wabcdef-0\n#SBATCH --comment=" + request.token + "\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --dependency=singleton\n"));
}

TEST(Squeue, KnowsJobsOfAChainByTheirComment) {
  const auto token = [](const std::string& name, const std::string& comment) {
    return parse_squeue_line("7|PENDING|" + name + "|0|N/A|N/A||Dependency|" + comment + "|").value().token;
  };
  EXPECT_EQ(token("wabcdef-0", "wabcdef000001"), "wabcdef000001");
  EXPECT_EQ(token("wabcdef000002", "what the site writes"), "wabcdef000002");
  EXPECT_EQ(token("wabcdef000002", ""), "wabcdef000002");
}

TEST(Squeue, KnowsAJobByItsScriptWhateverItsNameAndComment) {
  const auto token = [](const std::string& comment, const std::string& command) {
    return parse_squeue_line("7|RUNNING|survey-sim-3|0|N/A|N/A|n1|None|" + comment + "|" + command + "|")
        .value()
        .token;
  };
  EXPECT_EQ(token("wabcdef000001 /scratch/me/survey_1", "(null)"), "wabcdef000001");
  EXPECT_EQ(token("the user's own", "/scratch/me/survey_1/.wflow/allocations/wabcdef000002.sh"),
            "wabcdef000002");
  EXPECT_EQ(token("(null)", "/home/me/run.sh"), "survey-sim-3") << "another job of this user";
}

TEST(SlurmScript, NamesAreForPeopleAndTheCommentNamesTheCampaign) {
  JobRequest request = request_in("/d");
  request.name = "survey-sim-3";
  request.campaign = "/scratch/my files/survey_1";
  request.args = {"--comment=hello world", "--licenses=x", "--gres=a:1 --x", "--wckey=\"a b\""};
  const std::string script = make_slurm()->script(request);
  EXPECT_THAT(script, HasSubstr("#SBATCH --job-name=survey-sim-3\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --comment=\"" + request.token + " /scratch/my files/survey_1\"\n"));
  request.exclude = {"n7"};
  request.args = {"--exclude=n1,n2"};
  EXPECT_THAT(make_slurm()->script(request), HasSubstr("#SBATCH --exclude=n7,n1,n2\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --comment=\"hello world\"\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --licenses=x\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --wckey=\"a b\"\n"));
}

TEST(SlurmPreset, WhatTheUserSetForAllJobsCountsWhereTheStudySaysNothing) {
  TestCommands commands;
  commands.set("SBATCH_ACCOUNT", "astro");
  commands.set("SBATCH_PARTITION", "debug");
  commands.set("SBATCH_QOS", "normal");
  specs::AllocationSpec spec;
  spec.type = "slurm";
  spec.partition = "compute";
  const JobRequest request = request_of(spec, 2);
  EXPECT_EQ(request.account, "astro");
  EXPECT_EQ(request.partition, "compute");
  EXPECT_EQ(request.qos, "normal");
  spec.type = "pbs";
  EXPECT_EQ(request_of(spec, 2).account, "");
}

TEST(AllocationAround, IsTheJobWithAllItsNodes) {
  std::map<std::string, std::string> variables;
  const auto around = [&](bool has_srun = true) {
    return allocation_around(
        [&](const char* name) {
          const auto at = variables.find(name);
          return at == variables.end() ? nullptr : at->second.c_str();
        },
        has_srun);
  };
  EXPECT_FALSE(around());
  variables = {
      {"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_JOB_CPUS_PER_NODE", "4(x2)"}};
  ASSERT_TRUE(around());
  EXPECT_THAT(around()->nodes, ElementsAre("n1", "n2"));
  EXPECT_EQ(around()->cores, 4);
  EXPECT_TRUE(around()->starts_workers);
  EXPECT_EQ(around()->launcher.at(0), "srun");
  EXPECT_THAT(around()->launcher, testing::Contains("--ntasks=2"));
  EXPECT_FALSE(around(false)->starts_workers);
  variables["SLURM_JOB_NODELIST"] = "n1";
  EXPECT_TRUE(around()) << "salloc's command stands somewhere else";
  variables["SLURMD_NODENAME"] = "n1";
  EXPECT_FALSE(around()) << "a worker of this machine is one in the allocation";
}

TEST(SlurmTrial, ARefusalIsInSlurmsWords) {
  TestCommands commands;
  commands.add("sbatch", "echo 'sbatch: error: invalid partition specified: nosuch' >&2; exit 1");
  const BatchSystem::Trial trial = make_slurm()->try_out(request_in(commands.folder()));
  EXPECT_EQ(trial.answer.refusal, Submission::Refusal::fix);
  EXPECT_THAT(trial.answer.text, HasSubstr("invalid partition specified: nosuch"));
}

TEST(Squeue, SortsStatesAndEnds) {
  const auto job = [](const std::string& state) {
    return parse_squeue_line("7|" + state + "|t|1|N/A|N/A||None|").value();
  };
  const auto end = [&](const std::string& state) { return job(state).end; };
  EXPECT_EQ(end("TIMEOUT"), JobEnd::walltime);
  EXPECT_EQ(end("DEADLINE"), JobEnd::walltime);
  EXPECT_EQ(end("NODE_FAIL"), JobEnd::node);
  EXPECT_EQ(end("BOOT_FAIL"), JobEnd::node);
  EXPECT_EQ(end("OUT_OF_MEMORY"), JobEnd::memory);
  EXPECT_EQ(end("PREEMPTED"), JobEnd::preempted);
  EXPECT_EQ(end("CANCELLED"), JobEnd::cancelled);
  EXPECT_EQ(job("COMPLETED").state, JobState::done);
  EXPECT_EQ(job("COMPLETING").state, JobState::ending);
  EXPECT_EQ(job("SUSPENDED").state, JobState::running);
  EXPECT_EQ(job("CONFIGURING").state, JobState::queued);
  EXPECT_EQ(job("REQUEUE_HOLD").state, JobState::held);
  EXPECT_EQ(job("SOMETHING_OF_2031").state, JobState::unknown);
  EXPECT_EQ(job("PENDING").restarts, 1);
  EXPECT_EQ(job("PENDING").starts_unix_s, std::nullopt);
}

TEST(Squeue, SaysWhatNeverClears) {
  const auto pending = [](const std::string& reason) {
    return parse_squeue_line("7|PENDING|t|0|N/A|N/A||" + reason + "|").value();
  };
  EXPECT_EQ(pending("Priority").never_clears, "");
  EXPECT_EQ(pending("Resources").state, JobState::queued);
  EXPECT_THAT(pending("PartitionTimeLimit").never_clears, HasSubstr("longer than the partition allows"));
  EXPECT_THAT(pending("InvalidAccount").never_clears, HasSubstr("account"));
  EXPECT_THAT(pending("DependencyNeverSatisfied").never_clears, HasSubstr("depends on a job"));
  EXPECT_EQ(pending("JobHeldUser").state, JobState::held);
  EXPECT_EQ(pending("launch failed requeued held").state, JobState::held);
}

TEST(HostList, Expands) {
  EXPECT_THAT(expand_host_list("n[1-3,7],m01"), ElementsAre("n1", "n2", "n3", "n7", "m01"));
  EXPECT_THAT(expand_host_list("c[08-10]"), ElementsAre("c08", "c09", "c10"));
  EXPECT_THAT(expand_host_list("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(expand_host_list(""), ElementsAre());
  EXPECT_THAT(expand_host_list("x[1-"), ElementsAre("x[1-"));
  EXPECT_THAT(expand_host_list("x[1-99999999999999]"), ElementsAre("x1-99999999999999"));
  EXPECT_THAT(expand_host_list(",,"), ElementsAre());
}

TEST(Sbatch, GivesItsIdBehindTheSitesText) {
  EXPECT_EQ(parse_sbatch_id("-----\n--> Verifying 5 limits...OK\n\n1234\n"), "1234");
  EXPECT_EQ(parse_sbatch_id("77;cluster\n"), "77");
  EXPECT_EQ(parse_sbatch_id("all is well\n"), std::nullopt);
}

TEST(Sbatch, RefusalsAreSorted) {
  const auto refusal = [](const std::string& words) {
    CommandAnswer answer;
    answer.started = true;
    answer.status = 1;
    answer.err = words;
    return slurm_refusal(answer).refusal;
  };
  using Refusal = Submission::Refusal;
  for (const char* words :
       {"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates "
        "accounting/QOS "
        "policy (job submit limit, user's size and/or time limits)",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable"}) {
    EXPECT_EQ(refusal(words), Refusal::wait) << words;
  }
  for (const char* words :
       {"sbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds "
        "some limit)",
        "sbatch: error: Batch job submission failed: More processors requested than permitted",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination "
        "specified",
        "sbatch: error: Our site wants a comment on each job"}) {
    EXPECT_EQ(refusal(words), Refusal::fix) << words;
  }
  EXPECT_EQ(
      refusal("sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job "
              "violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
      Refusal::fix)
      << "the same words behind it, but this limit does not pass";
  EXPECT_EQ(slurm_refusal(CommandAnswer{}).refusal, Refusal::fatal);
}

TEST(Slurm, GetsACleanEnvironmentAndKeepsTheSite) {
  TestCommands commands;
  commands.add("sbatch",
               "env | grep -E '^(SBATCH|SLURM|PMI)' | sort > " + commands.file("environment") + "; echo 12");
  commands.set("SLURM_CONF", "/etc/slurm.conf");
  commands.set("SLURM_JOB_ID", "5");
  commands.set("SLURM_EXPORT_ENV", "NONE");
  commands.set("SBATCH_PARTITION", "debug");
  commands.set("PMI_RANK", "3");
  EXPECT_EQ(make_slurm()->submit(request_in(commands.folder())).id, "12");
  EXPECT_EQ(commands.text("environment"), "SLURM_CONF=/etc/slurm.conf\n");
}

TEST(Slurm, KnowsItsJobsByNameInOneCall) {
  TestCommands commands;
  commands.add("squeue", "echo call >> " + commands.file("calls") + "; echo '" + kRunning + "'; echo '" +
                             kFailed + "'; echo '9|RUNNING|other|0|N/A|N/A|n3|None|'");
  const JobList list = make_slurm()->query("wfa");
  ASSERT_TRUE(list.answered);
  ASSERT_EQ(list.jobs.size(), 2U);
  EXPECT_EQ(list.jobs[0].token, "wfa1");
  EXPECT_EQ(commands.text("calls"), "call\n");
}

TEST(Slurm, WithoutAnAnswerNothingHasEnded) {
  TestCommands commands;
  commands.add(
      "squeue",
      "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1");
  const JobList list = make_slurm()->query("wfa");
  EXPECT_FALSE(list.answered);
  EXPECT_THAT(list.text, HasSubstr("Unable to contact"));
  EXPECT_THAT(make_slurm()->check().value(), HasSubstr("slurm does not answer: slurm_load_jobs error"));
}

TEST(Slurm, ThatIsNotHereIsFatal) {
  TestCommands commands(TestCommands::Path::alone);
  const Submission submission = make_slurm()->submit(request_in(commands.folder()));
  EXPECT_EQ(submission.refusal, Submission::Refusal::fatal);
  EXPECT_EQ(make_slurm()->check(), "slurm is not on this machine (no 'squeue' in PATH)");
  EXPECT_FALSE(make_slurm()->query("w").answered);
}

TEST(Slurm, ReadsTheEndOfItsOwnJob) {
  TestCommands commands;
  EXPECT_EQ(make_slurm()->ends_unix_s(), std::nullopt);
  commands.set("SLURM_JOB_ID", "7");
  commands.set("SLURM_JOB_END_TIME", "100");
  commands.add("squeue", "exit 1");
  EXPECT_EQ(make_slurm()->ends_unix_s(), 100);
  commands.add("squeue", "[ \"$2\" = --jobs=7 ] && echo 200");
  EXPECT_EQ(make_slurm()->ends_unix_s(), 200) << "the limit of a running job can change";
}

TEST(Slurm, EstimatesAStart) {
  TestCommands commands;
  commands.add("sbatch",
               "echo 'sbatch: Job 3 to start at 1795325825 using 2 processors on nodes n[1-2] in partition "
               "batch' >&2");
  EXPECT_EQ(make_slurm()->try_out(request_in(commands.folder())).starts_unix_s, 1795325825);
  commands.add("sbatch", "echo 'allocation failure: More processors requested than permitted' >&2; exit 1");
  EXPECT_EQ(make_slurm()->try_out(request_in(commands.folder())).starts_unix_s, std::nullopt);
}

TEST(Slurm, CancelsWhatHasEnded) {
  TestCommands commands;
  commands.add("scancel", "echo \"$*\" > " + commands.file("arguments"));
  EXPECT_EQ(make_slurm()->cancel({"3", "4"}), std::nullopt);
  EXPECT_EQ(commands.text("arguments"), "--quiet 3 4\n");
  commands.add("scancel",
               "echo 'scancel: error: Kill job error on job id 3: Invalid job id specified' >&2; exit 1");
  EXPECT_EQ(make_slurm()->cancel({"3"}), std::nullopt);
  commands.add("scancel", "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1");
  EXPECT_THAT(make_slurm()->cancel({"3"}).value(), HasSubstr("Unable to contact"));
}

}  // namespace
}  // namespace wflow::engine::batch
