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
        self.wflow("rm", self.campaign(), code=USAGE)  # no terminal to ask on
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

    def test_retry_by_expression(self):
        text = gated_study(Gate(self.folder, TASKS), TASKS,
                           then=f'[ -e "{self.folder}/cure" ] || exit $(( $(MERLIN_SAMPLE_ID) % 3 ))')
        self.wflow("run", self.study(text), "-q", code=TASKS_FAILED)
        self.assertEqual(self.tasks("--state", "failed"), ["work/1", "work/2", "work/4", "work/5"])
        (self.folder / "cure").touch()
        self.assertIn("nothing to run again", self.wflow("retry", "--where", "sample = 3").out)
        self.wflow("retry", "--where", "sample > 3 and exit_code = 2", "-q", code=TASKS_FAILED)
        self.assertEqual(self.tasks("--state", "failed"), ["work/1", "work/2", "work/4"])
        self.wflow("retry", "--range", "1:2", "--exit-code", "1", "-q", code=TASKS_FAILED)
        self.assertEqual(self.tasks("--state", "failed"), ["work/2", "work/4"])
        answer = self.wflow("retry", "--step", "work", "--json", code=OK).out
        self.assertEqual(json.loads(answer), {"count": 2, "live": False})
        self.assertEqual(self.tasks("--state", "failed"), [])

    def test_remove_but_keep(self):
        self.wflow("run", self.failing(), "-q", code=TASKS_FAILED)
        directory = self.campaign()
        self.assert_one_sentence(self.wflow("rm", directory, "--keep", "wrok", "--yes", code=USAGE), "wrok", "work")
        self.wflow("rm", directory, "--keep", "work,collect", "--yes")
        self.assertEqual({p.name for p in directory.iterdir()}, {"work", "collect"})
        self.assert_one_sentence(self.wflow("rm", directory, "--yes", code=USAGE), "not a campaign")


class LiveVerbs(CampaignTest):
    """Verbs on a campaign of six tasks, two of which run."""

    def begin(self):
        self.gate = Gate(self.folder, 1)
        self.run_ = self.start("run", self.study(gated_study(self.gate, TASKS)), "-j", "2")
        self.wait_for_campaign(self.run_)
        self.wait(lambda: self.gate.waiting() == 2, "two tasks wait", self.run_)

    def states(self, state):
        return [row["task"] for row in json.loads(self.wflow("tasks", "--state", state, "--json").out)]

    def test_cancel_and_kill_a_part(self):
        self.begin()
        answer = json.loads(self.wflow("cancel", "--step", "work", "--range", "1:3", "--kill", "--json").out)
        self.assertEqual(answer["count"], 3)
        self.assertGreaterEqual(answer["running"], 2)
        self.wait(lambda: self.states("cancelled") == ["work/1", "work/2", "work/3"], "what ran has ended", self.run_)
        self.wait(lambda: len(self.gate.began()) == 5, "others take their place", self.run_)
        self.assertNotIn(3, self.gate.began())
        self.gate.open()
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(self.states("done"), ["work/0", "work/4", "work/5"])
        self.wflow("retry", "-q", code=OK)
        self.assertEqual(len(self.states("done")), TASKS)

    def test_cancel_names_kill_for_what_runs(self):
        self.begin()
        said = self.wflow("cancel", "--range", "1:2").out
        self.assertRegex(said, r"^2 tasks have started and go on; wflow cancel --kill ends them$")
        self.assertEqual(json.loads(self.wflow("cancel", "--range", "1", "--json").out), {"count": 0, "running": 1})
        self.assertRegex(self.wflow("cancel", "--where", "sample = 1").out, r"^1 task has started and goes on; wflow cancel --kill ends it$")
        self.assertRegex(self.wflow("cancel", "--range", "0").out, r"^0 tasks cancelled: all of these have ended$")
        self.assertEqual(self.states("cancelled"), [])
        self.assertRegex(self.wflow("cancel", "--range", "2:5").out, r"(?s)^\d tasks? cancelled; wflow retry .*--kill")
        self.gate.open()
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(self.states("done")[:3], ["work/0", "work/1", "work/2"])

    def test_cancel_and_kill_everything(self):
        self.begin()
        self.wflow("cancel", "--kill")
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(len(self.states("cancelled")), TASKS - 1)
        self.assertEqual(len(self.gate.began()), 3)

    def test_cancel_what_runs_too_long(self):
        self.begin()
        timed = ("tasks", "--duration", ">=0", "--range", "1", "--count")
        self.wait(lambda: self.wflow(*timed).out == "1\n", "its worker has said since when it runs", self.run_)
        self.wflow("cancel", "--kill", "--where", "state = running and duration >= 0 and sample = 1")
        self.wait(lambda: self.states("cancelled") == ["work/1"], "it has ended", self.run_)
        self.gate.open()
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(len(self.states("done")), TASKS - 1)

    def test_workers_and_what_becomes_of_them(self):
        self.begin()
        (worker,) = json.loads(self.wflow("workers", "--json").out)
        self.assertEqual((worker["state"], worker["cores"]), ("working", 2))
        self.assertIn(worker["id"], self.wflow("workers").out)
        self.assertEqual(self.states("running")[:2], ["work/1", "work/2"])
        running = self.wait(lambda: [r for r in json.loads(self.wflow("tasks", "--state", "running", "--worker", worker["id"], "--duration", ">=0", "--json").out)],
                            "the worker has said what runs", self.run_)
        self.assertLessEqual({r["task"] for r in running}, {"work/1", "work/2"})
        self.assertIn("on worker " + worker["id"], self.wflow("explain", running[0]["task"]).out)
        self.kill([worker["pid"]])
        self.wait(lambda: len(json.loads(self.wflow("workers", "--json").out)) == 2, "another worker", self.run_)
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.err)
        for row in json.loads(self.wflow("workers", "--json").out):
            self.assertEqual(row["state"], "ended")
        # Long after the worker is gone.
        told = "".join(self.wflow("explain", f"work/{i}").out for i in (1, 2))
        self.assertIn("succeeded", told)
        self.assertIn(worker["id"], "".join(text for text in self.history("worker")))

    def test_drain(self):
        self.begin()
        self.assertIn("wflow resume", self.wflow("drain").out)
        self.wait(lambda: self.status()["state"] == "draining", "it drains", self.run_)
        self.gate.open()
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(len(self.gate.began()), 3, "nothing new is started")
        self.wflow("resume", "-q")
        self.assertEqual(sorted(self.gate.began()), list(range(TASKS)))

    def test_stop(self):
        self.begin()
        self.assertEqual(json.loads(self.wflow("stop", "--json").out)["asked"], "stop")
        self.assertEqual(self.run_.wait(), INTERRUPTED, self.run_.err)
        self.assertEqual(self.processes(), [])
        self.gate.open()
        self.wflow("resume", "-q")
        self.assertEqual(sorted(self.gate.began()), sorted([*range(TASKS), 1, 2]))

    def test_snapshot_is_one_moment(self):
        # While results come in: each copy is whole, and later ones have no less.
        run = self.start("run", self.study(gated_study(Gate(self.folder, 400), 400)), "-j", "2", "-q")
        self.wait_for_campaign(run)
        done = [0]
        while run.running():
            copy = self.folder / f"copy-{len(done)}.db"
            self.wflow("snapshot", self.campaign(), copy)
            with sqlite3.connect(copy) as database:
                self.assertEqual(database.execute("pragma integrity_check").fetchone(), ("ok",))
                (elements, now_done, still_open), = database.execute("select elements, done, open from v_progress")
                self.assertEqual(now_done + still_open, elements)
                self.assertGreaterEqual(now_done, done[-1])
                done.append(now_done)
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_one_sentence(self.wflow("snapshot", self.campaign(), self.folder / "copy-1.db", code=USAGE), "exists already")
        said = self.wflow("snapshot", "newest.db").out  # of the newest campaign here
        self.assertEqual(said.strip(), str(self.folder / "newest.db"))
        self.assertTrue((self.folder / "newest.db").exists())


if __name__ == "__main__":
    unittest.main()
