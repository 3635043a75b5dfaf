# SPDX-License-Identifier: Apache-2.0
"""Asking a campaign how it is, and what is shown on which kind of output."""

import json
import os
import re
import select
import signal
import time
import unittest
from pathlib import Path

import jsonschema

from wflow_test import BUSY, DEADLINE_S, OK, TASKS_FAILED, USAGE, CampaignTest, Gate, Terminal, gated_study, without_escapes

TASKS = 6
FREE = 2
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/formats/status.schema.json").read_text())
STATUS_KEYS = {"version", "trainings", "name", "directory", "state", "coordinator", "started_s", "elapsed_s", "time_s", "steps", "workers", "workers_total", "slow", "slow_total",
               "failures", "metrics", "artifacts", "artifacts_total", "history", "followups", "iterations", "allocations", "refused"}
STEP_KEYS = {"name", "kind", "arrays", "elements", "counts", "mean_s", "deviation_s", "rate_per_s", "left_s", "progress", "usage", "missing", "held"}
STATES = {"blocked", "ready", "running", "delayed", "done", "failed", "hard_failed", "skipped", "cancelled"}


class Status(CampaignTest):
    def setUp(self):
        super().setUp()
        self.gate = Gate(self.folder, FREE)
        self.path = self.study(gated_study(self.gate, TASKS))

    def begin(self):
        run = self.start("run", self.path, "-j", "2")
        self.wait_for_campaign(run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: self.gate.waiting() == 2, "two tasks wait", run)
        return run

    def check_schema(self, status):
        self.assertEqual(set(status), STATUS_KEYS)
        for step in status["steps"]:
            self.assertEqual(set(step), STEP_KEYS)
            self.assertEqual(set(step["counts"]), STATES)
            self.assertEqual(sum(step["counts"].values()), step["elements"])
        for row in status["history"]:
            self.assertEqual(set(row), {"time_s", "kind", "text"})
        for worker in status["workers"]:
            self.assertEqual(set(worker), {"id", "host", "cores", "running", "leased", "silent_s", "draining", "ended"})
        jsonschema.Draft202012Validator(SCHEMA).validate(status)

    def test_while_it_runs_killed_and_after(self):
        run = self.begin()
        status = self.wait(lambda: self.status()["workers"] and self.status(), "a worker", run)
        self.check_schema(status)
        self.assertEqual(status["state"], "running")
        self.assertIn(f"pid {run.pid}", status["coordinator"])
        self.assertEqual(status["workers"][0]["cores"], 2)
        self.assertIn("running", self.wflow("status", self.campaign()).out)

        run.signal(signal.SIGKILL)
        run.wait()
        status = self.status()
        self.check_schema(status)
        self.assertEqual((status["state"], status["coordinator"]), ("interrupted", ""))
        self.assertIn(f"wflow resume {self.campaign()}", self.wflow("status", self.campaign()).out)

        self.gate.open()
        self.wflow("resume", self.campaign(), code=OK)
        status = self.status()
        self.check_schema(status)
        self.assertEqual((status["state"], status["coordinator"]), ("finished", ""))
        # The output has the last events only, and a worker's return may be one of them.
        self.assertLessEqual({"started", "resumed", "end"}, {row["kind"] for row in status["history"]})
        self.assertIn("6 of 6 tasks done", self.wflow("status", self.campaign()).out)

    def test_the_schema_knows_every_key_of_its_version(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        self.assertEqual(SCHEMA["properties"]["version"], {"const": 1, "description": SCHEMA["properties"]["version"]["description"]})
        run = self.begin()
        status = self.status()
        self.gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        for key in ("steps", "history"):
            broken = {**status, key: [{**status[key][0], "unheard_of": 1}]}
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(SCHEMA).validate(broken)

    def test_watch_ends_with_the_campaign(self):
        run = self.begin()
        watch = self.start("status", self.campaign(), "--watch", "0.05", "--table")
        self.wait(lambda: watch.out.count("gated: running") >= 2, "two blocks", run)
        self.gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(watch.wait(), OK, watch.err)
        blocks = watch.out.split("\n\n\n")
        self.assertNotIn("\x1b", watch.out)
        self.assertIn("gated: finished", watch.out)
        # The last block is of the end, a row a step, and nothing follows it.
        self.assertIn(f"100 % done: {TASKS} of {TASKS} tasks", watch.out[watch.out.rindex("gated: "):], blocks)
        self.assertRegex(watch.out, rf"(?m)^work +{TASKS} +{TASKS} +- ")

    def test_interrupting_a_watch_is_no_error(self):
        run = self.begin()
        for words in (("--watch",), ("--watch", "30", "--json"), ("--watch", self.campaign())):
            watch = self.start("status", *words)
            self.wait(lambda: "gated" in watch.out, "a picture", run)
            watch.signal(signal.SIGINT)
            self.assertEqual(watch.wait(), OK, watch.err)
        self.assertEqual(watch.err, "")
        self.gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_one_sentence(self.wflow("status", self.campaign(), "--watch", "x", code=USAGE), "a number of seconds")

    def test_a_watch_on_a_terminal_is_drawn_in_place(self):
        self.gate.open()
        self.wflow("run", self.path, code=OK)
        terminal = Terminal(self, ["status", self.campaign(), "--watch", "1", "--table"], 60)
        self.assertEqual(terminal.finish(), OK)
        self.assertTrue(terminal.text.startswith("\x1b[2J\x1b[H"), terminal.text[:50])
        for line in without_escapes(terminal.text).splitlines():
            self.assertLess(len(line), 60)

    def test_two_coordinators(self):
        run = self.begin()
        second = self.wflow("resume", self.campaign(), code=BUSY)
        self.assert_one_sentence(second, "another coordinator runs this campaign", f"wflow attach {self.campaign()}")
        self.gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(sorted(self.gate.began()), list(range(TASKS)))

    def test_questions_never_stand_in_the_way(self):
        # Questions hold the database for a moment; a coordinator that begins just then must not give up.
        run = self.begin()
        run.signal(signal.SIGKILL)
        run.wait()
        directory = self.campaign()
        self.gate.open()
        resume = self.start("resume", directory)
        asked = 0
        while resume.running():
            asked += 1
            self.check_schema(json.loads(self.wflow("status", directory, "--json").out))
        self.assertEqual(resume.wait(), OK, resume.err)
        self.assertGreater(asked, 0)

    def test_resuming_what_has_ended_takes_no_time_of_it(self):
        self.wflow("run", self.study("""
description: {name: ended, description: one fails}
env: {variables: {OUTPUT_PATH: .}}
parameters: {P: {values: [0, 1, 3]}}
study:
  - {name: work, run: {cmd: exit $(P)}}
"""), "-q", code=TASKS_FAILED)
        before = self.status()
        again = self.wflow("resume", code=TASKS_FAILED)
        self.assertIn("nothing is left to run", again.out)
        self.assertIn(f"2 tasks are failed or cancelled; run them again with: wflow retry {self.campaign()}", again.out)
        self.assertEqual(self.wflow("resume", "-q", code=TASKS_FAILED).out, "")
        self.assertEqual(self.status(), before, "neither its time nor its history goes on")

    def test_found_by_name(self):
        self.gate.open()
        self.wflow("run", self.path)
        for words in ((), ("gated",), (self.campaign().name,)):
            self.assertIn("finished", self.wflow("status", *words).out)


class Output(CampaignTest):
    def setUp(self):
        super().setUp()
        self.gate = Gate(self.folder, TASKS)
        self.path = self.study(gated_study(self.gate, TASKS, then="[ $(MERLIN_SAMPLE_ID) != 1 ] || exit 3"))

    def test_piped(self):
        run = self.wflow("run", self.path, code=1)
        self.assertNotIn("\x1b", run.out)
        self.assertNotIn("\r", run.out)
        self.assertIn("work: 5/6, 1 failed", run.out)
        self.assertNotIn("\x1b", self.wflow("status", self.campaign()).out)

    def test_failures_that_are_alike_are_one(self):
        path = self.study(gated_study(self.gate, 20, then="echo sample $(MERLIN_SAMPLE_ID) is odd >&2; exit 3"))
        self.gate.open()
        run = self.wflow("run", path, "-j", "2", code=TASKS_FAILED)
        before, after = run.out.split("20 tasks failed:")
        for text in (after, self.wflow("status", self.campaign()).out):
            self.assertEqual(len(re.findall(r"sample \d+ is odd", text)), 1, text)
            self.assertRegex(text, r"  20 tasks like work/\d+ after 1 execution: exit code 3\n      sample \d+ is odd\n")
            self.assertIn(f"wflow tasks {self.campaign()} --failed", text)
        self.assertLessEqual(before.count("exit code 3"), 2, "the first at once, then at ten")

    def test_failures_that_are_alike_are_one_line_of_the_picture(self):
        path = self.study(gated_study(self.gate, 20, then="echo sample $(MERLIN_SAMPLE_ID) is odd >&2; exit 3"))
        terminal = Terminal(self, ["run", path, "-j", "2"], columns=100, environment={"NO_COLOR": "1"})
        seen = b""
        deadline = time.monotonic() + DEADLINE_S
        while not re.search(rb"6 tasks like work/\d+ after 1 execution: exit code 3: sample \d+ is odd", seen):
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([terminal.descriptor], [], [], 1)[0]:
                seen += os.read(terminal.descriptor, 65536)
        self.gate.open()
        self.assertEqual(terminal.finish(), TASKS_FAILED)

    def test_narrow_terminal(self):
        # The display is drawn again in place: a line that wraps would leave its rest behind. Paths are never cut.
        terminal = Terminal(self, ["run", self.path], columns=40)
        self.assertEqual(terminal.finish(), 1)
        drawn = [line for line in terminal.text.split("\n") if line.rstrip("\r").endswith("\x1b[K")]
        self.assertGreater(len(drawn), 0)
        for line in drawn:
            self.assertLessEqual(len(without_escapes(line).rstrip("\r")), 40, line)
        self.assertIn(str(self.campaign()), terminal.text)
        terminal = Terminal(self, ["status", "--brief", self.campaign()], columns=40)
        self.assertEqual(terminal.finish(), OK)
        for line in terminal.text.replace("\r", "").split("\n"):
            self.assertTrue(len(without_escapes(line)) <= 40 or str(self.campaign()) in line, line)

    def test_no_colour(self):
        terminal = Terminal(self, ["run", self.path], columns=100, environment={"NO_COLOR": "1"})
        self.assertEqual(terminal.finish(), 1)
        self.assertNotRegex(terminal.text, r"\x1b\[[0-9;]*m")

    def test_dumb_terminal(self):
        terminal = Terminal(self, ["run", self.path], columns=100, environment={"TERM": "dumb"})
        self.assertEqual(terminal.finish(), 1)
        self.assertNotIn("\x1b", terminal.text)

    def test_quiet(self):
        run = self.wflow("run", self.path, "-q", code=1)
        self.assertEqual(run.out, "")

    def test_reader_that_goes_away(self):
        terminal = Terminal(self, ["run", self.path], columns=80)
        self.assertEqual(terminal.finish(), 1)


if __name__ == "__main__":
    unittest.main()
