// SPDX-License-Identifier: Apache-2.0
// Flux, PBS, LSF and SGE by recorded answers and fake commands.
#include "engine/batch/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/batch/test_commands.h"

namespace wflow::engine::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

JobRequest request_in(const std::string& directory) {
  JobRequest request;
  request.token = "wfa1";
  request.nodes = 2;
  request.walltime_s = 90 * 60;
  request.account = "astro";
  request.partition = "compute";
  request.cores = 8;
  request.setup = {"module load x"};
  request.command = {"/opt/wflow", "worker"};
  request.directory = directory;
  return request;
}

TEST(Adapters, AreMadeByName) {
  for (const char* name : {"slurm", "flux", "pbs", "lsf", "sge"})
    EXPECT_EQ(make_batch_system(name)->name(), name);
  EXPECT_EQ(make_batch_system("lsf-srun")->name(), "lsf");
  EXPECT_EQ(make_batch_system("local"), nullptr);
}

TEST(Adapters, ThatAreNotHereSaySo) {
  TestCommands commands(TestCommands::Path::alone);
  for (const char* name : {"flux", "pbs", "lsf", "sge"}) {
    const auto system = make_batch_system(name);
    EXPECT_THAT(system->check().value_or(""), HasSubstr("is not on this machine")) << name;
    EXPECT_FALSE(system->query("w").answered) << name;
    JobRequest request = request_in(commands.folder());
    request.args = {"-pe mpi 2"};
    EXPECT_EQ(system->submit(request).refusal, Submission::Refusal::fatal) << name;
  }
}

TEST(Adapters, TakeAPoolsWords) {
  specs::AllocationSpec pool;
  pool.nodes = 3;
  pool.exclusive = false;
  pool.account = "a";
  pool.args = {"-x"};
  pool.launch_pre = "env";
  const JobRequest request = request_of(pool, 4);
  EXPECT_EQ(request.nodes, 3);
  EXPECT_FALSE(request.exclusive);
  EXPECT_EQ(request.cores, 4);
  EXPECT_EQ(request.account, "a");
  EXPECT_THAT(request.args, ElementsAre("-x"));
  EXPECT_EQ(request.launch_pre, "env");
}

// One line for each field of a request: as version 0.1 wrote them.
TEST(Scripts, HaveALineForEachField) {
  TestCommands commands(TestCommands::Path::alone);
  JobRequest request = request_in("/scratch/c");
  request.token = "wa1b2c3001001";
  request.name = "survey-sim-3";
  request.nodes = 1;
  request.walltime_s = 1;
  request.account = "a b{x}";
  request.qos = "high";
  request.constraint = "a&b";
  request.reservation = "res1";
  request.memory = "64G";
  request.gpus = 2;
  request.exclusive = false;
  const auto options = [&](const char* scheduler) {
    const std::string script = make_batch_system(scheduler)->script(request);
    const std::size_t begin = script.find('\n', script.find('\n') + 1) + 1;
    return script.substr(begin, script.find("\n\n") + 1 - begin);
  };
  EXPECT_EQ(options("slurm"), R"script(#SBATCH --job-name=survey-sim-3
#SBATCH --comment=wa1b2c3001001
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=1
#SBATCH --account=a b{x}
#SBATCH --partition=compute
#SBATCH --qos=high
#SBATCH --constraint=a&b
#SBATCH --reservation=res1
#SBATCH --gpus-per-node=2
#SBATCH --chdir=/scratch/c
#SBATCH --output=/scratch/c/wa1b2c3001001.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --no-kill
)script");
  EXPECT_EQ(options("flux"), R"script(#FLUX: --job-name=wa1b2c3001001.survey-sim-3
#FLUX: --nodes=1
#FLUX: --nslots=1
#FLUX: --cores-per-slot=8
#FLUX: --gpus-per-slot=2
#FLUX: --time-limit=1m
#FLUX: --bank=a b{x}
#FLUX: --queue=compute
#FLUX: --setattr=system.qos=high
#FLUX: --requires='a&b'
#FLUX: --cwd=/scratch/c
#FLUX: --output=/scratch/c/wa1b2c3001001.out
#FLUX: --setopt=exit-timeout=none
)script");
  EXPECT_EQ(options("pbs"), R"script(#PBS -N wa1b2c3001001
#PBS -l select=1:ncpus=8:mpiprocs=1:mem=64G:ngpus=2:a&b
#PBS -l place=scatter
#PBS -l walltime=00:01:00
#PBS -A a b{x}
#PBS -q res1
#PBS -l qos=high
#PBS -j oe
#PBS -o /scratch/c/wa1b2c3001001.out
#PBS -r n
)script");
  EXPECT_EQ(options("lsf"), R"script(#BSUB -J wa1b2c3001001.survey-sim-3
#BSUB -R "select[a&b]"
#BSUB -n 8
#BSUB -R "span[ptile=8]"
#BSUB -R "rusage[mem=64G]"
#BSUB -gpu "num=2"
#BSUB -W 1
#BSUB -P a b{x}
#BSUB -q compute
#BSUB -sla high
#BSUB -U res1
#BSUB -cwd /scratch/c
#BSUB -o /scratch/c/wa1b2c3001001.out
#BSUB -rn
)script");
  EXPECT_EQ(options("sge"), R"script(#$ -N wa1b2c3001001.survey-sim-3
#$ -S /bin/bash
#$ -l h_rt=60
#$ -P a b{x}
#$ -q compute
#$ -l high
#$ -l a&b
#$ -ar res1
#$ -l h_vmem=64G
#$ -l gpu=2
#$ -wd /scratch/c
#$ -j y
#$ -o /scratch/c/wa1b2c3001001.out
#$ -r n
)script");
}

TEST(FluxScript, StartsWorkersBesideTheBrokers) {
  JobRequest request = request_in("/d");
  request.constraint = "avx512";
  request.exclude = {"n3"};
  EXPECT_EQ(make_flux()->script(request), R"(#!/bin/bash
# Made by wflow for Flux: an allocation with a worker on each of its nodes.
#FLUX: --job-name=wfa1
#FLUX: --nodes=2
#FLUX: --nslots=2
#FLUX: --exclusive
#FLUX: --time-limit=90m
#FLUX: --bank=astro
#FLUX: --queue=compute
#FLUX: --requires='(avx512) -host:n3'
#FLUX: --cwd=/d
#FLUX: --output=/d/wfa1.out
#FLUX: --setopt=exit-timeout=none

cd /d || exit 1
export WFLOW_ENDS_AT=$(($(date +%s) + 5400))
module load x
flux exec --noinput --rank=all /opt/wflow worker
)");
}

TEST(FluxJobs, Read) {
  const JobList list = parse_flux_jobs(
      R"({"jobs":[{"id":1573896650752,"name":"wfa1","state":"RUN","t_run":1795325823.5,"expiration":1795329423.0,"nodelist":"n[1-2]"},
      {"id":1,"name":"other","state":"RUN"},
      {"id":2,"name":"wfa2","state":"INACTIVE","result":"TIMEOUT"},
      {"id":3,"name":"wfa3","state":"INACTIVE","result":"CANCELED","exception_type":"preempt"},
      {"id":4,"name":"wfa4","state":"INACTIVE"},
      {"id":5,"name":"wfa5","state":"SCHED"},
      {"id":6,"name":"wfa6","state":"INACTIVE","result":"COMPLETED"}]})",
      "wfa");
  ASSERT_TRUE(list.answered);
  ASSERT_EQ(list.jobs.size(), 6U);
  EXPECT_EQ(list.jobs[0].id, "1573896650752");
  EXPECT_EQ(list.jobs[0].state, JobState::running);
  EXPECT_THAT(list.jobs[0].nodes, ElementsAre("n1", "n2"));
  EXPECT_EQ(list.jobs[0].ends_unix_s, 1795329423.0);
  EXPECT_EQ(list.jobs[1].end, JobEnd::walltime);
  EXPECT_EQ(list.jobs[2].end, JobEnd::preempted);
  EXPECT_EQ(list.jobs[3].state, JobState::unknown) << "its end is not known yet";
  EXPECT_EQ(list.jobs[4].state, JobState::queued);
  EXPECT_EQ(list.jobs[5].state, JobState::done);
  EXPECT_EQ(parse_flux_jobs(R"({"id":7,"name":"wfa7","state":"SCHED"})", "wfa").jobs.size(), 1U);
  EXPECT_FALSE(parse_flux_jobs("flux-jobs: ERROR", "w").answered);
}

TEST(Flux, SubmitsQueriesAndCancels) {
  TestCommands commands;
  commands.set("FLUX_URI", "local:///run/flux");
  commands.add("flux", "echo \"$*\" >> " + commands.file("calls") +
                           "\ncase \"$1 $2\" in batch*) echo ƒM7Zq9AKHno;; 'job id') echo 1573896650752;; "
                           "'job timeleft') echo 60;;"
                           " jobs*) echo '{\"jobs\":[{\"id\":7,\"name\":\"wfa1\",\"state\":\"RUN\"}]}';;"
                           " cancel*) echo 'flux-cancel: 7: job is inactive' >&2; exit 1;; esac");
  const auto flux = make_flux();
  EXPECT_EQ(flux->submit(request_in(commands.folder())).id, "1573896650752");
  EXPECT_EQ(flux->query("wfa").jobs.at(0).id, "7");
  EXPECT_EQ(flux->cancel({"7"}), std::nullopt);
  EXPECT_TRUE(flux->ends_unix_s().has_value());
  EXPECT_THAT(commands.text("calls"), HasSubstr("batch " + commands.file("wfa1.sh")));
}

TEST(PbsScript, CallsItselfOnEachNode) {
  JobRequest request = request_in("/d");
  request.memory = "64gb";
  request.walltime_s = 26 * 3600;
  EXPECT_EQ(make_pbs()->script(request), R"(#!/bin/bash
# Made by wflow for PBS: an allocation with a worker on each of its nodes.
#PBS -N wfa1
#PBS -l select=2:ncpus=8:mpiprocs=1:mem=64gb
#PBS -l place=scatter:excl
#PBS -l walltime=26:00:00
#PBS -A astro
#PBS -q compute
#PBS -j oe
#PBS -o /d/wfa1.out
#PBS -r n

if [ "$1" != agent ]; then
  set -- /bin/bash -l /d/wfa1.sh agent
  pbsdsh -- "$@"
  exit
fi
cd /d || exit 1
export WFLOW_ENDS_AT=$(($(date +%s) + 93600))
module load x
exec /opt/wflow worker
)");
}

constexpr const char* kPbsJobs = R"({
    "timestamp":1618429000, "pbs_version":"20.0.1", "pbs_server":"srv",
    "Jobs":{
        "1008.srv":{"Job_Name":"wfa1","job_state":"R","exec_host":"a/0*2+b/0*2","stime":"Wed Apr 14 23:34:19 2021",
            "Resource_List":{"walltime":"01:00:00"},"run_count":2,
            "Variable_List":{
                "BROKEN":"a"b",
                "HOME":"/home/x"
            },
            "comment":"Job run"},
        "1009.srv":{"Job_Name":"wfa2","job_state":"F","Exit_status":-29},
        "1010.srv":{"Job_Name":"wfa3","job_state":"F","Exit_status":265},
        "1011.srv":{"Job_Name":"wfa4","job_state":"F"},
        "1012.srv":{"Job_Name":"wfa5","job_state":"Q","comment":"Can Never Run: Insufficient amount of resource: ncpus"},
        "1013.srv":{"Job_Name":"wfa6","job_state":"F","Exit_status":0},
        "1014.srv":{"Job_Name":"wfa7","job_state":"F","Exit_status":271,"Resource_List":{"walltime":"00:01:00"},
            "resources_used":{"walltime":"00:01:10"}},
        "1015.srv":{"Job_Name":"mine","job_state":"R"}
    }
})";

TEST(PbsJobs, ReadThoughVariablesAreBroken) {
  const JobList list = parse_pbs_jobs(kPbsJobs, "wfa");
  ASSERT_TRUE(list.answered) << list.text;
  ASSERT_EQ(list.jobs.size(), 7U);
  EXPECT_EQ(list.jobs[0].id, "1008.srv");
  EXPECT_EQ(list.jobs[0].state, JobState::running);
  EXPECT_EQ(list.jobs[0].restarts, 1);
  EXPECT_THAT(list.jobs[0].nodes, ElementsAre("a", "b"));
  EXPECT_EQ(*list.jobs[0].ends_unix_s - *list.jobs[0].starts_unix_s, 3600);
  EXPECT_EQ(list.jobs[1].end, JobEnd::walltime);
  EXPECT_EQ(list.jobs[2].end, JobEnd::cancelled);
  EXPECT_EQ(list.jobs[3].state, JobState::unknown) << "finished, and nobody says how";
  EXPECT_THAT(list.jobs[4].never_clears, HasSubstr("Can Never Run"));
  EXPECT_EQ(list.jobs[5].state, JobState::done);
  EXPECT_EQ(list.jobs[6].end, JobEnd::walltime);
  EXPECT_FALSE(parse_pbs_jobs("qstat: cannot connect to server", "w").answered);
}

TEST(Pbs, SubmitsQueriesAndCancels) {
  TestCommands commands;
  commands.add("qsub", "echo 'welcome'; echo 1008.srv");
  commands.add("qselect", "[ \"$1\" = -x ] && { echo 'no history' >&2; exit 1; }; echo 1008.srv; echo 9.srv");
  commands.add(
      "qstat",
      "echo \"$*\" >> " + commands.file("calls") +
          "; echo '{\"Jobs\":{\"1008.srv\":{\"Job_Name\":\"wfa1\",\"job_state\":\"R\"}}}'; exit 153");
  commands.add("qdel", "echo 'qdel: Unknown Job Id 9.srv' >&2; exit 153");
  const auto pbs = make_pbs();
  EXPECT_EQ(pbs->submit(request_in(commands.folder())).id, "1008.srv");
  EXPECT_EQ(pbs->query("wfa").jobs.at(0).state, JobState::running);
  EXPECT_EQ(commands.text("calls"), "-x -f -F json 1008.srv 9.srv\n") << "all in one call";
  EXPECT_EQ(pbs->cancel({"9.srv"}), std::nullopt);
  commands.add("qsub", "echo 'qsub: Unauthorized Request  MSG=group ACL is not satisfied' >&2; exit 159");
  EXPECT_EQ(pbs->submit(request_in(commands.folder())).refusal, Submission::Refusal::fix);
  commands.add("qsub", "echo 'qsub: would exceed queue generic per-user limit' >&2; exit 1");
  EXPECT_EQ(pbs->submit(request_in(commands.folder())).refusal, Submission::Refusal::wait);
}

TEST(LsfScript, AsksForSlotsOrNodes) {
  TestCommands commands(TestCommands::Path::alone);
  JobRequest request = request_in("/d");
  request.exclude = {"n3"};
  const auto lsf = make_lsf(LsfLauncher::jsrun);
  EXPECT_EQ(lsf->script(request), R"script(#!/bin/bash
# Made by wflow for LSF: an allocation with a worker on each of its nodes.
#BSUB -J wfa1
#BSUB -R "select[hname!='n3']"
#BSUB -n 2
#BSUB -R "span[ptile=1]"
#BSUB -x
#BSUB -W 90
#BSUB -P astro
#BSUB -q compute
#BSUB -cwd /d
#BSUB -o /d/wfa1.out
#BSUB -rn

if [ "$1" != agent ]; then
  set -- /bin/bash -l /d/wfa1.sh agent
  blaunch -z "$(sort -u "$LSB_DJOB_HOSTFILE" | tr '\n' ' ')" "$@"
  exit
fi
cd /d || exit 1
export WFLOW_ENDS_AT=$(($(date +%s) + 5400))
module load x
exec /opt/wflow worker
)script");
  commands.add("jsrun", "");
  EXPECT_THAT(lsf->script(request), HasSubstr("#BSUB -nnodes 2\n"));
  EXPECT_THAT(lsf->script(request),
              HasSubstr("jsrun --nrs 2 --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS"));
  EXPECT_THAT(make_lsf(LsfLauncher::srun)->script(request),
              HasSubstr("\nsrun --nodes=2 --ntasks=2 --wait=0"));
}

constexpr const char* kLsfJobs = R"({"COMMAND":"bjobs","JOBS":6,"RECORDS":[
  {"JOBID":"22005","JOB_NAME":"wfa1","STAT":"RUN","EXEC_HOST":"n01:n02","TIME_LEFT":"1:30 L"},
  {"JOBID":"22006","JOB_NAME":"wfa2","STAT":"EXIT","EXIT_CODE":"140","EXIT_REASON":"TERM_RUNLIMIT: job killed after reaching LSF run time limit"},
  {"JOBID":"22007","JOB_NAME":"wfa3","STAT":"UNKWN"},
  {"JOBID":"22008","JOB_NAME":"wfa4","STAT":"ZOMBI"},
  {"JOBID":"22009","ERROR":"Job <22009> is not found"},
  {"JOBID":"22010","JOB_NAME":"wfa5","STAT":"DONE","EXIT_REASON":"-"},
  {"JOBID":"22011","JOB_NAME":"wfa6","STAT":"EXIT","EXIT_REASON":"TERM_MEMLIMIT: job killed after reaching LSF memory usage limit"}]})";

TEST(LsfJobs, Read) {
  const JobList list = parse_lsf_jobs(kLsfJobs, "wfa", 1000);
  ASSERT_TRUE(list.answered) << list.text;
  ASSERT_EQ(list.jobs.size(), 6U);
  EXPECT_EQ(list.jobs[0].state, JobState::running);
  EXPECT_EQ(list.jobs[0].ends_unix_s, 1000 + 5400);
  EXPECT_THAT(list.jobs[0].nodes, ElementsAre("n01", "n02"));
  EXPECT_EQ(list.jobs[1].end, JobEnd::walltime);
  EXPECT_EQ(list.jobs[2].state, JobState::unknown);
  EXPECT_EQ(list.jobs[3].state, JobState::unknown);
  EXPECT_EQ(list.jobs[4].state, JobState::done);
  EXPECT_EQ(list.jobs[5].end, JobEnd::memory);
}

TEST(Lsf, SubmitsQueriesAndCancels) {
  TestCommands commands;
  commands.add(
      "bsub",
      "grep -q BSUB && echo '*** site text ***' && echo 'Job <22005> is submitted to queue <compute>.'");
  commands.add("bjobs", "echo 'Job <wfa*> is not found' >&2; exit 255");
  commands.add("bkill", "echo 'Job <22005>: Job has already finished' >&2; exit 255");
  const auto lsf = make_lsf(LsfLauncher::jsrun);
  EXPECT_EQ(lsf->submit(request_in(commands.folder())).id, "22005");
  EXPECT_TRUE(lsf->query("wfa").answered);
  EXPECT_EQ(lsf->cancel({"22005"}), std::nullopt);
  commands.add("bjobs", "echo 'LSF is down. Please wait ...' >&2; exit 255");
  EXPECT_FALSE(lsf->query("wfa").answered) << "its exit code means nothing, its words do";
  commands.add("bsub", "echo 'Job not accepted: No such queue' >&2; exit 255");
  EXPECT_EQ(lsf->submit(request_in(commands.folder())).refusal, Submission::Refusal::fix);
}

// Flux, LSF and SGE find jobs by the beginning of their names; names of PBS may have 15 letters.
TEST(JobNames, BeginWithTheTokenAndEndWithTheNameForUsers) {
  JobRequest request = request_in("/d");
  request.name = "survey-sim-3";
  EXPECT_THAT(make_flux()->script(request), HasSubstr("#FLUX: --job-name=wfa1.survey-sim-3\n"));
  EXPECT_THAT(make_lsf(LsfLauncher::srun)->script(request), HasSubstr("#BSUB -J wfa1.survey-sim-3\n"));
  EXPECT_THAT(make_sge()->script(request), HasSubstr("#$ -N wfa1.survey-sim-3\n"));
  EXPECT_THAT(make_pbs()->script(request), HasSubstr("#PBS -N wfa1\n"));
  const auto tokens = [](const JobList& list) {
    return list.jobs.size() == 1 ? list.jobs[0].token : "one job is expected";
  };
  EXPECT_EQ(tokens(parse_flux_jobs(R"({"jobs":[{"id":7,"name":"wfa1.survey-sim-3","state":"RUN"}]})", "wfa")),
            "wfa1");
  EXPECT_EQ(tokens(parse_lsf_jobs(
                R"({"RECORDS":[{"JOBID":"7","JOB_NAME":"wfa1.survey-sim-3","STAT":"RUN"}]})", "wfa", 0)),
            "wfa1");
  EXPECT_EQ(tokens(parse_sge_jobs(
                "<job_info><job_list><JB_job_number>7</JB_job_number><JB_name>wfa1.survey-sim-3</JB_name>"
                "<state>r</state></job_list></job_info>",
                "wfa")),
            "wfa1");
  EXPECT_EQ(tokens(parse_sge_accounting(
                "====\njobname      wfa1.survey-sim-3\njobnumber    4\nfailed       0\n", "wfa")),
            "wfa1");
}

TEST(SgeScript, NeedsAParallelEnvironmentForSeveralNodes) {
  TestCommands commands;
  commands.add("qsub", "echo 4");
  JobRequest request = request_in(commands.folder());
  EXPECT_THAT(make_sge()->submit(request).text, HasSubstr("-pe mpi 2"));
  request.args = {"-pe mpi 2"};
  EXPECT_EQ(make_sge()->submit(request).id, "4");
  EXPECT_THAT(commands.text("wfa1.sh"), HasSubstr("#$ -l h_rt=5400\n"));
  EXPECT_THAT(commands.text("wfa1.sh"), HasSubstr("qrsh -inherit"));
}

TEST(SgeJobs, Read) {
  const JobList list = parse_sge_jobs(R"(<?xml version='1.0'?>
<job_info xmlns:xsd="http://x"><queue_info>
    <job_list state="running"><JB_job_number>4</JB_job_number><JAT_prio>0.5</JAT_prio><JB_name>wfa1</JB_name>
      <state>r</state><queue_name>all.q@vm</queue_name><slots>1</slots></job_list></queue_info>
  <job_info><job_list state="pending"><JB_job_number>5</JB_job_number><JB_name>wfa2</JB_name><state>Eqw</state>
      <queue_name></queue_name></job_list>
    <job_list state="pending"><JB_job_number>6</JB_job_number><JB_name>wfa3</JB_name><state>qw</state></job_list>
    <job_list state="pending"><JB_job_number>7</JB_job_number><JB_name>else</JB_name><state>qw</state></job_list></job_info>
</job_info>)",
                                      "wfa");
  ASSERT_EQ(list.jobs.size(), 3U);
  EXPECT_EQ(list.jobs[0].state, JobState::running);
  EXPECT_THAT(list.jobs[0].nodes, ElementsAre("vm"));
  EXPECT_THAT(list.jobs[1].never_clears, HasSubstr("qstat -j 5"));
  EXPECT_EQ(list.jobs[2].state, JobState::queued);
}

TEST(SgeAccounting, SortsEnds) {
  const auto block = [](const std::string& name, const std::string& failed, const std::string& status) {
    return "==============================================================\nqname        all.q\nhostname     "
           "vm\njobname      " +
           name + "\njobnumber    4\nfailed       " + failed + "\nexit_status  " + status + "\n";
  };
  const JobList list = parse_sge_accounting(
      block("wfa1", "0", "0") + block("wfa2", "0", "3") +
          block("wfa3", "100 : assumedly after job", "137                  (Killed)") +
          block("wfa4", "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", "137") + block("x", "0", "0"),
      "wfa");
  ASSERT_EQ(list.jobs.size(), 4U);
  EXPECT_EQ(list.jobs[0].state, JobState::done);
  EXPECT_EQ(list.jobs[1].end, JobEnd::exit);
  EXPECT_EQ(list.jobs[2].end, JobEnd::cancelled);
  EXPECT_EQ(list.jobs[3].end, JobEnd::walltime);
}

}  // namespace
}  // namespace wflow::engine::batch
