# SPDX-License-Identifier: Apache-2.0
"""What wflow says of batch allocations before anything is submitted, with a scheduler of fake commands."""

import json
import unittest

from wflow_test import OK, SPEC, CampaignTest

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


class BatchPlan(CampaignTest):
    def setUp(self):
        super().setUp()
        self.commands = self.folder / "commands"
        self.commands.mkdir()
        self.environment["PATH"] = f"{self.commands}:{self.environment['PATH']}"
        self.command("sbatch", 'case "$1" in --version) echo slurm 22.05;; '
                               '*) echo "sbatch: Job 3 to start at 1795325825 using 2 processors on nodes n1 in partition x" >&2;; esac')
        self.command("squeue", "exit 0")

    def command(self, name, script):
        path = self.commands / name
        path.write_text(f"#!/bin/sh\necho \"{name} $*\" >> {self.folder}/calls\n{script}\n")
        path.chmod(0o755)

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


if __name__ == "__main__":
    unittest.main()
