# SPDX-License-Identifier: Apache-2.0
"""SIGKILL in the middle of the simulations: what had finished never runs again, whatever was killed."""

import os
import re
import signal
import unittest
from collections import Counter

from wflow_test import OK, CampaignTest, Gate, quickstart

UNIVERSES = 12
FREE = 5  # universes that are done when the axe falls; two more are in the middle


class KillSimulations(CampaignTest):
    def setUp(self):
        super().setUp()
        self.gate = Gate(self.folder, FREE)
        self.run_ = self.start("run", self.study(quickstart(UNIVERSES, epochs=2, gate=self.gate)), "-j", "2")
        self.wait_for_campaign(self.run_)
        self.wait_for_done("simulate", FREE, self.run_)
        self.wait(lambda: self.gate.waiting() == 2, "two universes are in the middle", self.run_)
        self.directory = self.campaign()

    def held(self):
        """Simulators at the gate; not what these have forked just now and which still looks like them."""
        found = self.processes("pass.sh")
        return [pid for pid in found if self.parent(pid) not in found and any("pass.sh" in word for word in self.words(pid)[1:2])]

    def finish(self):
        self.gate.open()
        self.wflow("resume", self.directory, "-j", "2", code=OK)

    def check_simulated_once(self, twice=()):
        """By what the simulator printed, one line a universe made, and by how often each was begun: `twice` were killed
        in the middle."""
        self.assertEqual(self.status()["state"], "finished")
        self.assertTrue((self.directory / "train" / "model.pt").exists())
        self.assert_nothing_half_written()
        made = Counter()
        for out in (self.directory / "simulate").rglob("simulate.out"):
            made.update(int(n) for n in re.findall(r"^universe (\d+):", out.read_text(), flags=re.M))
        self.assertEqual(made, Counter(range(UNIVERSES)))
        self.assertEqual(Counter(self.gate.began()), Counter({n: 2 if n in twice else 1 for n in range(UNIVERSES)}))

    def test_coordinator_only(self):
        os.kill(self.run_.pid, signal.SIGKILL)
        self.run_.wait()
        self.assertEqual(self.status()["state"], "interrupted")
        self.finish()
        self.check_simulated_once()
        self.assertTrue(any("came back" in text for text in self.history("worker")), self.history())
        self.assertEqual(len(self.history("resumed")), 1)

    def test_coordinator_only_while_it_was_away(self):
        # Results that ended without a coordinator are kept by the worker until there is one again.
        os.kill(self.run_.pid, signal.SIGKILL)
        self.run_.wait()
        self.gate.open()
        self.wait(lambda: len(self.gate.passed()) >= FREE + 2 and not self.processes("wflow-cola"), "the two end")
        self.finish()
        self.check_simulated_once()

    def test_process_group(self):
        os.killpg(self.run_.pid, signal.SIGKILL)
        self.run_.wait()
        self.finish()
        self.check_simulated_once()  # the worker is in a session of its own, and went on

    def test_everything(self):
        everything = self.kill_everything()
        self.run_.wait()
        self.wait_until_gone(everything)
        self.assertEqual(self.processes(), [])
        self.finish()
        self.check_simulated_once(twice=(FREE, FREE + 1))
        self.assertEqual(len(self.history("resumed")), 1)

    def test_all_of_wflow_but_not_the_simulators(self):
        # Guardian and agent too: no process is left that ends the simulators' own children.
        ours = [pid for pid in self.processes() if self.words(pid)[0].endswith("/wflow")]
        self.assertGreaterEqual(len(ours), 3, "coordinator, guardian, agent")
        self.kill(ours)
        self.run_.wait()
        self.assertEqual(len(self.held()), 2, "the simulators' children live on")
        resume = self.start("resume", self.directory, "-j", "2")
        self.wait(lambda: len(self.gate.began()) == FREE + 4, "the two begin again", resume)
        self.assertEqual(len(self.held()), 2, "two at once would write the same files")
        self.gate.open()
        self.assertEqual(resume.wait(), OK, resume.out + resume.err)
        self.check_simulated_once(twice=(FREE, FREE + 1))
        self.assertTrue(any("left behind" in text for text in self.history("worker")), self.history())

    def test_agent_only(self):
        # The campaign goes on by itself: its guardian settles, the coordinator starts another worker.
        workers = self.processes(" worker ")
        agent = next(pid for pid in workers if self.parent(pid) in workers)
        os.kill(agent, signal.SIGKILL)
        self.wait(lambda: len(self.gate.began()) == FREE + 4, "the two begin again")
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.out + self.run_.err)
        self.check_simulated_once(twice=(FREE, FREE + 1))
        self.assertTrue(any("lost" in text for text in self.history("worker")), self.history())


if __name__ == "__main__":
    unittest.main()
