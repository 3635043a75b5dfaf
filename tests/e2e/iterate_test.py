# SPDX-License-Identifier: Apache-2.0
"""iterate: a study that is run again until a task says converged, its samples chosen by the iteration before."""

import json
import unittest
from collections import Counter

from wflow_test import BUSY, INTERRUPTED, OK, TASKS_FAILED, CampaignTest, Gate


class Iterate(CampaignTest):
    def loop(self, most=5, work="true", choose="true", converged_in=3):
        """Three samples, then two that `choose` of the iteration before has written. Each iteration doubles what the
        one before found."""
        return self.study(f"""
description: {{name: loop, description: a study that runs again}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: list, columns: [x], values: [1, 2, 3]}}
iterate: {{max: {most}, samples: $(PREVIOUS)/choose/next.csv}}
study:
  - name: work
    run:
      cmd: |
        {work}
        echo $(ITERATION)/$(x) >> "{self.folder}/log"
  - name: choose
    run:
      cmd: |
        {choose}
        before=1; [ -z "$(PREVIOUS)" ] || before=$(cat "$(PREVIOUS)/choose/found")
        echo $((2 * before)) > found
        printf '%s\\n' $((10 * before)) $((20 * before)) > next.csv
        [ $(ITERATION) -lt {converged_in} ] || wflow event converged
      depends: [work]
""")

    def log(self):
        return Counter((self.folder / "log").read_text().split())

    def check_three(self):
        top = self.campaign()
        self.assertEqual(self.log(), Counter(["1/1", "1/2", "1/3", "2/10", "2/20", "3/20", "3/40"]))
        self.assertEqual((top / "iterations" / "003" / "choose" / "found").read_text(), "8\n")
        self.assertFalse((top / "iterations" / "004").exists())
        status = self.status()
        self.assertEqual(status["iterations"], "converged in iteration 3")
        self.assertEqual([(f["kind"], f["iteration"], f["state"], f["ended"], f["elements"], f["directory"]) for f in status["followups"]],
                         [("iteration", n, "finished", 3, 3, str(top / "iterations" / f"00{n}")) for n in (2, 3)])

    def test_converges(self):
        self.wflow("run", self.loop(), "-j", "2", code=OK)
        self.check_three()
        out = self.wflow("status").out
        self.assertIn("iteration 3   finished, 3 of 3 tasks done", out)
        self.assertIn("converged in iteration 3", out)
        self.assertNotIn("resume", out)
        self.assertEqual(len(json.loads(self.wflow("ls", "--json").out)), 1, "iterations are inside of their campaign")
        self.wflow("resume", code=OK)  # nothing is left
        self.check_three()
        self.assertEqual(len(self.history("resumed")), 0)

    def test_max(self):
        self.wflow("run", self.loop(most=2), "-j", "2", code=OK)
        self.assertEqual(self.log(), Counter(["1/1", "1/2", "1/3", "2/10", "2/20"]))
        self.assertEqual(self.status()["iterations"], "ended with iteration 2, the last (max), and not converged")

    def test_failure_ends_it_until_it_is_mended(self):
        cure = self.folder / "cure"
        work = f'[ $(ITERATION)/$(x) != 2/20 ] || [ -e "{cure}" ] || exit 3'
        self.wflow("run", self.loop(work=work), "-j", "2", code=TASKS_FAILED)
        self.assertEqual(self.status()["iterations"], "stopped, because tasks of iteration 2 failed")
        self.wflow("resume", self.campaign(), code=TASKS_FAILED)
        cure.touch()
        self.wflow("retry", self.campaign() / "iterations" / "002", code=OK)
        self.wflow("resume", self.campaign(), code=OK)
        self.check_three()

    def gated(self):
        """In the second iteration the first sample passes, the second is held."""
        self.gate = Gate(self.folder, 1)
        held = f"[ $(ITERATION) != 2 ] || {self.gate.command()}"
        run = self.start("run", self.loop(work=held), "-j", "2")
        self.wait_for_campaign(run)
        second = self.campaign() / "iterations" / "002"
        self.wait(lambda: self.gate.waiting() == 1 and len(self.gate.began()) == 2, "a task of iteration 2 is held", run)
        self.wait(lambda: [(f["state"], f["ended"]) for f in self.status()["followups"]] == [("running", 1)], "its status", run)
        self.assertTrue(second.exists())
        return run

    def test_killed_and_resumed(self):
        run = self.gated()
        everything = self.kill_everything()
        run.wait()
        self.wait_until_gone(everything)
        self.assertEqual([f["state"] for f in self.status()["followups"]], ["interrupted"])
        self.assertIn("continue with: wflow resume", self.wflow("status").out)
        self.gate.open()
        self.wflow("resume", self.campaign(), "-j", "2", code=OK)
        self.check_three()
        self.assertEqual(Counter(self.gate.began()), Counter({0: 1, 1: 2}), "only what was in the middle ran again")
        self.assert_nothing_half_written()

    def test_drained_and_resumed(self):
        run = self.gated()
        self.assert_one_sentence(self.wflow("resume", self.campaign(), code=BUSY), "another coordinator", "iterations/002")
        self.assert_one_sentence(self.wflow("rm", self.campaign(), "--yes", code=BUSY), "another coordinator")
        self.wflow("drain", self.campaign())
        self.gate.open()
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assertIn(f"wflow resume {self.campaign()}\n", run.out)
        self.wflow("resume", self.campaign(), "-j", "2", "--detach", code=OK)
        self.wflow("attach", self.campaign(), "-q", code=OK)
        self.check_three()


if __name__ == "__main__":
    unittest.main()
