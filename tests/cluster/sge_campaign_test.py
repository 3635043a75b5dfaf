# SPDX-License-Identifier: Apache-2.0
"""Campaigns on a real Grid Engine of one node on this machine (sge-local)."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from wflow_test import OK, CampaignTest, Gate, lines_of  # noqa: E402

SGE_LOCAL = Path(__file__).resolve().parent / "sge-local"
MISSING_PACKAGE = 3


class SgeCampaigns(CampaignTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = tempfile.mkdtemp(prefix="wflow-sge-")
        cls.addClassCleanup(subprocess.run, f"'{SGE_LOCAL}' stop '{cls.cluster}'; rm -rf '{cls.cluster}'", shell=True, capture_output=True)
        started = subprocess.run([SGE_LOCAL, "start", cls.cluster], capture_output=True, text=True)
        if started.returncode == MISSING_PACKAGE:
            raise unittest.SkipTest("no Grid Engine here, so nothing was tested: " + started.stderr.strip())
        if started.returncode != 0:
            raise RuntimeError(f"sge-local: {started.stdout}{started.stderr}")
        shell = f'eval "$("{SGE_LOCAL}" env "{cls.cluster}")"; env -0'
        listed = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
        cls.variables = {name: value for name, _, value in (entry.partition("=") for entry in listed.split("\0")) if name.startswith("SGE_")}

    def setUp(self):
        super().setUp()
        self.environment.update(self.variables)
        self.environment["USER"] = "root"
        self.addCleanup(self.sge, "qdel", "-u", "*")

    def sge(self, *command):
        return subprocess.run(command, capture_output=True, text=True, env=self.environment)

    def jobs(self):
        return [line.split()[0] for line in self.sge("qstat", "-u", "*").stdout.splitlines() if line.split()[0].isdigit()]

    def sge_study(self, command, count):
        return self.study(f"""
description: {{name: sge, description: tasks on a Grid Engine}}
env: {{variables: {{OUTPUT_PATH: .}}}}
batch: {{type: sge, walltime: 30 min}}
workers: {{all: {{slots: 2}}}}
samples: {{design: uniform, count: {count}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {command}
""")

    def assert_queue_empties(self):
        end = time.monotonic() + 15  # the scheduler of this one looks every two seconds, and its daemons at their ease
        while self.jobs():
            self.assertLess(time.monotonic(), end, self.sge("qstat", "-u", "*").stdout)
            time.sleep(0.1)

    def test_a_campaign(self):
        self.wflow("run", self.sge_study(f"echo $(MERLIN_SAMPLE_ID) >> {self.folder}/ran", 40))
        self.assert_queue_empties()
        self.assertEqual(sorted(map(int, lines_of(self.folder / "ran"))), list(range(40)), "each once")
        self.assertIn("given back", self.wflow("allocations", "list").out)

    def test_qdel_of_an_allocation(self):
        gate = Gate(self.folder, 1)
        run = self.start("run", self.sge_study(gate.command(), 4))
        self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 2, "two tasks are in the middle", run)
        job = self.jobs()
        self.sge("qdel", *job)
        self.wait(lambda: job[0] not in self.jobs(), "its job is gone", run)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(set(gate.passed()), set(range(4)))
        self.assert_queue_empties()


if __name__ == "__main__":
    unittest.main()
