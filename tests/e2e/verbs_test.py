# SPDX-License-Identifier: Apache-2.0
"""The verbs about single tasks: tasks, explain, retry, cancel, pause; and those about whole campaigns."""

import json
import sqlite3
import unittest

from wflow_test import BUSY, INTERRUPTED, OK, TASKS_FAILED, USAGE, CampaignTest, Gate, gated_study

TASKS = 6


class Verbs(CampaignTest):
    def failing(self, free=TASKS):
        """Task 2 fails while there is no file `cure`; `collect` runs in spite of it."""
        self.gate = Gate(self.folder, free)
        collect = f"""
  - name: collect
    run: {{cmd: 'echo ran >> "{self.folder}/collected"', depends: [work_*]}}
"""
        return self.study(gated_study(self.gate, TASKS, then=f'[ $(MERLIN_SAMPLE_ID) != 2 ] || [ -e "{self.folder}/cure" ] || {{ echo ill >&2; exit 3; }}',
                                      extra=collect))

    def tasks(self, *arguments):
        return [row["task"] for row in json.loads(self.wflow("tasks", self.campaign(), *arguments, "--json").out)]

    def test_at_rest(self):
        self.wflow("run", self.failing(), "-j", "2", code=TASKS_FAILED)
        self.assertEqual(self.tasks("--state", "failed"), ["work/2"])
        self.assertEqual(self.tasks("--where", "state = failed and exit_code = 3 and x >= 0 and not x > 1"), ["work/2"])
        self.assertEqual(self.tasks("--step", "work", "--range", "1:3"), ["work/1", "work/2", "work/3"])
        self.assertEqual(self.wflow("tasks", "--count", "--state", "done").out, f"{TASKS}\n")
        self.assert_one_sentence(self.wflow("tasks", "--where", "stat = failed", code=USAGE), "column 1", "did you mean 'state'?")
        out = self.wflow("explain", "work/2").out
        for part in ("failed for good", "exit code 3", "ill"):
            self.assertIn(part, out)
        self.assertIn("5 of 6 done, 1 failed", self.wflow("explain", "collect").out)
        for verb in ("pause", "unpause", "cancel", "drain", "stop"):
            self.assert_one_sentence(self.wflow(verb, code=USAGE), "no coordinator runs")

        self.assertIn("nothing to run again", self.wflow("retry", "--exit-code", "4").out)
        (self.folder / "cure").touch()
        self.wflow("retry", "--exit-code", "3", "-j", "2", code=OK)
        self.assertEqual(self.tasks("--state", "failed"), [])
        self.assertEqual(sorted(self.gate.began()), sorted([*range(TASKS), 2]), "only the failed one ran again")
        self.assertEqual((self.folder / "collected").read_text(), "ran\nran\n", "what ran without it ran again")
        self.assertEqual(self.status()["failures"], [])
        self.assertIn("succeeded after 1 execution that did not", self.wflow("explain", "work/2").out)

    def test_live(self):
        run = self.start("run", self.failing(free=3), "-j", "2")
        self.wait_for_campaign(run)
        self.wait(lambda: self.tasks("--state", "failed") == ["work/2"], "task 2 has failed", run)
        self.assertIn("ill", self.wflow("explain", "work/2").out)
        self.assertIn("waits for what is listed below", self.wflow("explain", "collect").out)
        self.assert_one_sentence(self.wflow("rm", self.campaign(), "--yes", code=BUSY), "another coordinator")
        self.wflow("pause")
        self.assertEqual(self.status()["state"], "paused")
        (self.folder / "cure").touch()
        self.assertEqual(json.loads(self.wflow("retry", "--json").out), {"count": 1, "live": True})
        self.assertEqual(self.tasks("--state", "failed"), [])
        copy = self.folder / "copy.db"
        self.wflow("snapshot", self.campaign(), copy)
        with sqlite3.connect(copy) as database:
            for (view,) in database.execute("select name from sqlite_master where type = 'view'").fetchall():
                database.execute(f"select * from {view}").fetchall()
            self.assertEqual(database.execute("select state, failed_executions from v_tasks").fetchall(), [("pending", 1)])
            self.assertEqual(database.execute("select failed from v_progress where step = 'work'").fetchone(), (0,))
        self.wflow("unpause")
        self.gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.wflow("rm", self.campaign(), code=USAGE)  # nobody to ask
        self.wflow("rm", self.campaign(), "--yes")
        self.assertIsNone(self.campaign())

    def test_cancel_detach_attach(self):
        self.wflow("run", self.failing(free=0), "-j", "1", "--detach")
        self.wait(lambda: self.gate.waiting() == 1, "the first task runs")
        self.assertIn("running", self.wflow("ls").out)
        self.wflow("cancel", "--step", "work", "--range", "4:")
        self.assertEqual(self.tasks("--state", "cancelled"), ["work/4", "work/5"])
        (self.folder / "cure").touch()
        self.gate.open()
        self.wflow("attach", "-q", code=INTERRUPTED)
        self.assertEqual(self.status()["state"], "cancelled")
        self.assertEqual(self.tasks("--state", "skipped"), ["collect"])
        self.wflow("retry", code=OK)
        self.assertEqual(self.tasks("--state", "done"), [*(f"work/{i}" for i in range(TASKS)), "collect"])


if __name__ == "__main__":
    unittest.main()
