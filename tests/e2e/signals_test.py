# SPDX-License-Identifier: Apache-2.0
"""How a user, a terminal and a batch system end a campaign, and that it goes on afterwards."""

import signal
import unittest
from collections import Counter

from wflow_test import INTERRUPTED, OK, USAGE, CampaignTest, Gate, gated_study, lines_of, quickstart

TASKS = 10
FREE = 3


class Signals(CampaignTest):
    def begin(self, *options):
        self.gate = Gate(self.folder, FREE)
        self.run_ = self.start("run", self.study(gated_study(self.gate, TASKS)), "-j", "2", *options)
        self.wait_for_campaign(self.run_)
        self.wait(lambda: self.gate.waiting() == 2 and len(self.gate.passed()) == FREE, "two tasks wait", self.run_)

    def wait_for_state(self, state):
        self.wait(lambda: self.status()["state"] == state, f"the campaign is {state}", self.run_)

    def finish(self, began_twice):
        self.assertIn(f"continue with: wflow resume {self.campaign()}", self.run_.out)
        self.assertEqual(self.status()["state"], "interrupted")
        self.assertEqual(self.processes(), [])
        self.gate.open()
        self.wflow("resume", self.campaign(), "-j", "2", code=OK)
        self.assertEqual(self.status()["state"], "finished")
        expected = Counter({n: 2 if n in began_twice else 1 for n in range(TASKS)})
        self.assertEqual(Counter(self.gate.began()), expected)

    def test_interrupt_once_lets_what_runs_finish(self):
        self.begin()
        self.run_.signal(signal.SIGINT)
        self.wait_for_state("draining")
        self.gate.open()
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(len(self.gate.began()), FREE + 2, "nothing new is started")
        self.assertIn("interrupted", self.run_.out)
        self.finish(began_twice=())

    def test_interrupt_twice_ends_what_runs(self):
        self.begin()
        self.run_.signal(signal.SIGINT)
        self.wait_for_state("draining")
        self.run_.signal(signal.SIGINT)
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.finish(began_twice=(FREE, FREE + 1))

    def test_terminate(self):
        self.begin()
        self.run_.signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.finish(began_twice=(FREE, FREE + 1))

    def test_hang_up_does_not_end_it(self):
        self.begin()
        self.run_.signal(signal.SIGHUP)
        self.wait(lambda: any("terminal" in text for text in self.history()), "the hang-up is told", self.run_)
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.err)
        self.assertEqual(self.status()["state"], "finished")

    def test_time_limit(self):
        self.begin("--time-limit", "1s")
        self.wait_for_state("draining")
        self.gate.open()
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertTrue(any("time limit" in text for text in self.history()))
        self.finish(began_twice=())

    def test_a_task_that_succeeds_after_its_own_time_limit_is_done(self):
        """Its exit code counts, also after its worker has decided to end it: it ignores SIGTERM."""
        self.wflow("run", self.study(f"""
description: {{name: late}}
env: {{variables: {{OUTPUT_PATH: .}}}}
study:
  - name: late
    run:
      cmd: |
        trap '' TERM
        echo began >> {self.folder}/ran
        sleep 1.5
        echo ended >> {self.folder}/ran
      timeout: 1s
      max_retries: 1
"""), "-j", "1", code=OK)
        self.assertEqual(lines_of(self.folder / "ran"), ["began", "ended"])
        self.assertEqual(self.status()["failures"], [])

    def test_bad_time_limit(self):
        run = self.wflow("run", self.study(gated_study(Gate(self.folder, 0), 1)), "--time-limit", "soon", code=USAGE)
        self.assert_one_sentence(run, "--time-limit", "soon")
        self.assertIsNone(self.campaign())


class SignalsInTraining(CampaignTest):
    def test_interrupt_writes_a_checkpoint(self):
        run = self.start("run", self.study(quickstart(12, 200)), "-j", "2")
        directory = self.wait_for_campaign(run)
        checkpoints = directory / "train" / "checkpoints"
        self.wait(lambda: list(checkpoints.glob("step-*.wfck")), "a checkpoint", run)
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assertFalse((directory / "train" / "model.pt").exists())
        self.assertIn("stopped at epoch", (directory / "train" / "train.out").read_text())
        self.assertEqual(self.status()["failures"], [])
        self.assertEqual(self.counts("train")["failed"], 0)


if __name__ == "__main__":
    unittest.main()
