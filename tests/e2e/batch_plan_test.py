# SPDX-License-Identifier: Apache-2.0
"""What wflow says of batch allocations before anything is submitted, and how it asks, with schedulers of fake commands."""

import json
import os
import pwd
import unittest

from wflow_test import INTERRUPTED, OK, SPEC, SYSTEM, CampaignTest, read_text, wait_for

STUDY = """
description: {name: batched}
env: {variables: {OUTPUT_PATH: .}}
batch: {type: slurm, account: astro, nodes: 4, walltime: 2h, setup: [module load fftw]}
workers:
  sim: {steps: [simulate], max: 3, slots: 8}
  fit: {steps: [fit], nodes: 1, walltime: 30min, batch: {partition: gpu, gpus: 2}}
study:
  - {name: simulate, run: {cmd: echo 1}}
  - {name: fit, run: {cmd: echo 2, depends: [simulate], walltime: "%s"}}
"""


class FakeScheduler(CampaignTest):
    def setUp(self):
        super().setUp()
        self.commands = self.folder / "commands"
        self.commands.mkdir()
        self.environment["PATH"] = f"{self.commands}:{self.environment['PATH']}"

    def command(self, name, script):
        path = self.commands / name
        path.write_text(f"#!/bin/sh\necho \"{name} $*\" >> {self.folder}/calls\n{script}\n")
        path.chmod(0o755)

    def calls(self, name):
        return [line for line in read_text(self.folder / "calls").splitlines() if line.split()[0] == name]

    def one_step(self, batch, workers="{slots: 4}"):
        return self.study(f"""
description: {{name: batched}}
env: {{variables: {{OUTPUT_PATH: .}}}}
batch: {batch}
workers: {{all: {workers}}}
study: [{{name: simulate, run: {{cmd: echo 1}}}}]
""")


class BatchPlan(FakeScheduler):
    def setUp(self):
        super().setUp()
        self.command("sbatch", 'case "$1" in --version) echo slurm 22.05;; '
                               '*) echo "sbatch: Job 3 to start at 1795325825 using 2 processors on nodes n1 in partition x" >&2;; esac')
        self.command("squeue", "exit 0")

    def batch_study(self, walltime="10:00"):
        return self.study(STUDY % walltime)

    def test_the_plan_shows_what_would_be_submitted(self):
        out = self.wflow("plan", self.batch_study(), code=OK).out
        self.assertIn("allocations of the pool sim (slurm): up to 3, each of 4 nodes for 2 h", out)
        for line in ("#SBATCH --nodes=4", "#SBATCH --account=astro", "module load fftw", "#SBATCH --partition=gpu",
                     "#SBATCH --gpus-per-node=2", "#SBATCH --time=30"):
            self.assertIn(f"  {line}\n", out)
        self.assertRegex(out, r"--kill-on-bad-exit=0 .*wflow worker --campaign \S+ --group=sim .*--slots 8")
        self.assertFalse((self.folder / "calls").exists(), "the plan alone asks nobody")

    def test_dry_writes_the_scripts(self):
        self.wflow("run", self.batch_study(), "--dry", code=OK)
        scripts = sorted((self.campaign() / ".wflow" / "allocations").iterdir())
        self.assertEqual([script.name for script in scripts], ["wfit.sh", "wsim.sh"])
        self.assertIn("#SBATCH --partition=gpu", scripts[0].read_text())

    def test_allocations_node_hours_and_starts(self):
        out = self.wflow("plan", self.batch_study(), "--batch", code=OK).out
        self.assertIn("sim (slurm): 0 to 3 allocations at a time, each 4 nodes for 2 h 00 min: 8.0 node-hours", out)
        self.assertIn("  starts  about 2026-11-2", out)
        self.assertIn("at most 24.5 node-hours at a time", out)
        pools = json.loads(self.wflow("plan", self.batch_study(), "--batch", "--json", code=OK).out)
        self.assertEqual([(pool["pool"], pool["node_hours_each"], pool["starts_unix_s"]) for pool in pools],
                         [("sim", 8.0, 1795325825), ("fit", 0.5, 1795325825)])

    def test_a_task_longer_than_its_allocation_is_refused(self):
        study = self.batch_study("45:00")
        for command in (("plan", study, "--batch"), ("validate", study)):
            done = self.wflow(*command, code=SPEC)
            self.assertIn("the step 'fit' asks for 45 min 00 s of walltime, and the allocations that serve it last 30 min 00 s", done.err)

    def test_a_scheduler_that_does_not_answer_is_a_warning(self):
        done = self.wflow("validate", self.batch_study(), code=OK)
        self.assertNotIn("warning", done.err)
        self.command("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
        done = self.wflow("validate", self.batch_study(), code=OK)
        self.assertIn("warning: the study asks for slurm: slurm does not answer: slurm_load_jobs error", done.err)
        self.assertIn("--local", done.err)
        doctor = self.start("doctor")
        doctor.wait()
        self.assertRegex(doctor.out, "note +slurm +slurm does not answer")

    def test_keys_that_other_programs_have(self):
        out = self.wflow("plan", self.one_step("{type: slurm, job_name: survey, mail: me@there, modules: [fftw, hdf5], exclude: [n1, n2],"
                                               " walltime: 1h, setup: [export A=1]}")).out
        for line in ("#SBATCH --job-name=survey", "#SBATCH --mail-user=me@there", "#SBATCH --mail-type=END,FAIL", "#SBATCH --exclude=n1,n2"):
            self.assertIn(f"  {line}\n", out)
        self.assertIn("  module load fftw hdf5\n  export A=1\n", out)
        for wrong, right in (("time", "walltime"), ("name", "job_name"), ("mail_user", "mail"), ("module", "modules"), ("exclude_nodes", "exclude"),
                             ("project", "account"), ("sbatch_args", "args")):
            found = self.wflow("validate", self.one_step(f"{{type: slurm, {wrong}: x}}"), code=SPEC)
            self.assertIn(f"unknown key '{wrong}' in batch:; its name here is '{right}'", found.err)


class Submissions(FakeScheduler):
    """Requests to schedulers. A campaign ends with the refusal of its first submission."""

    def refused(self, study, sentence):
        run = self.wflow("run", study, code=SYSTEM)
        self.assertIn(sentence, run.err)
        return run

    def test_a_study_with_a_scheduler_inside_an_allocation_says_that_it_submits_another(self):
        self.command("sbatch", "echo 'sbatch: error: invalid partition specified: nosuch' >&2; exit 1")
        self.command("squeue", "exit 0")
        self.environment.update(SLURM_JOB_ID="77", SLURM_JOB_NODELIST="n[1-2]", SLURM_JOB_CPUS_PER_NODE="8(x2)")
        run = self.refused(self.one_step("{type: slurm, partition: nosuch}"), "invalid partition specified: nosuch")
        self.assertIn("this runs in the slurm allocation 77 (n1, n2), and the study's batch: block submits allocations beside it", run.out)

    def test_grid_engine_is_asked_for_as_many_slots_as_a_worker_has(self):
        self.command("qsub", "echo 'Unable to run job: unknown queue' >&2; exit 1")
        self.command("qstat", "echo '<job_info/>'")
        self.command("qconf", """case "$*" in -spl) echo mpi; echo smp;; '-sp mpi') echo 'allocation_rule    $fill_up';; """
                              """'-sp smp') echo 'allocation_rule    $pe_slots';; esac""")
        for workers, line in (("{slots: 4}", "#$ -pe smp 4\n"), ("{slots: 1}", None)):
            with self.subTest(workers):
                self.refused(self.one_step("{type: sge}", workers), "unknown queue")
                script = read_text(next(self.campaign().glob(".wflow/allocations/*.sh")))
                self.assertIn(line, script) if line else self.assertNotIn("-pe", script)
                self.wflow("rm", self.campaign(), "--yes")

    def test_a_user_without_the_variable_is_the_one_of_the_password_file(self):
        """PBS: without $USER no job was found, for ever."""
        for name in ("USER", "LOGNAME"):
            self.environment.pop(name, None)
        self.command("qsub", "echo 1.server")
        self.command("qselect", "exit 0")
        self.command("qstat", "exit 0")
        self.command("qdel", "exit 0")
        run = self.start("run", self.one_step("{type: pbs}"))
        self.wait(lambda: self.calls("qselect"), "the jobs are asked for", run)
        self.wflow("stop", self.wait_for_campaign(run))
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assertEqual({line.split(" -u ")[1] for line in self.calls("qselect")}, {pwd.getpwuid(os.geteuid()).pw_name})

    def test_a_cancelled_allocation_does_not_count_as_running(self):
        """It was shown as running until the next list of jobs, 30 s later, and then as given back. Here Slurm shows it for ever."""
        job = self.folder / "job"
        self.command("sbatch", f'case "$*" in *--version*) echo slurm 22.05;; *--test-only*) ;; *) '
                               f'for last; do :; done; [ -e {job} ] || echo "$last" > {job}; grep -c "^sbatch.*sh$" {self.folder}/calls;; esac')
        self.command("squeue", f'[ ! -e {job} ] || echo "1|RUNNING|x|0|1795325823|4795326423|n1|None||`cat {job}`"')
        self.command("scancel", "exit 0")
        run = self.start("run", self.one_step("{type: slurm, nodes: 1}", "{slots: 4, max: 1}"))
        directory = self.wait_for_campaign(run)
        pool = lambda: next((line for line in self.wflow("status", directory).out.splitlines() if "pool all (slurm)" in line), "")
        self.wait(lambda: "1 running, 0 queued" in pool(), "its job runs", run)
        self.wflow("allocations", "cancel", "1")
        wait_for(lambda: "0 running" in pool(), "it is no running one", 20)
        listed = self.wflow("allocations", "list").out
        self.assertIn("it was cancelled by wflow allocations cancel", listed)
        self.assertNotIn("given back", listed)
        self.assertEqual([line.split()[-1] for line in self.calls("scancel")], ["1"])
        self.wflow("stop", directory)
        self.assertEqual(run.wait(), INTERRUPTED, run.err)


if __name__ == "__main__":
    unittest.main()
