# SPDX-License-Identifier: Apache-2.0
"""What tasks used: counted by the kernel, kept for every execution, told by usage, explain and status."""

import json
import os
import re
import sqlite3
import unittest
from contextlib import closing
from pathlib import Path

from wflow_test import BIN, OK, SMALL, TASKS_FAILED, CampaignTest, Process

MEBIBYTE = 1 << 20
PYTHON = "/usr/bin/python3"
# Touches so many MiB in a child of its own, burns so many seconds of CPU, writes a MiB that reaches the disk.
WORK = """
import os, sys, time
if os.fork() == 0:
    block = bytearray(int(sys.argv[1]) << 20)
    os._exit(0)
os.wait()
while time.process_time() < float(sys.argv[2]):
    pass
with open("out.bin", "wb") as out:
    out.write(os.urandom(1 << 20))
    out.flush()
    os.fsync(out.fileno())
sys.exit(int(sys.argv[3]))
"""


class Usage(CampaignTest):
    def run_study(self, samples, command, code=OK):
        (self.folder / "work.py").write_text(WORK)
        study = self.study(f"""
description: {{name: used, description: what tasks use}}
samples: {{design: uniform, count: {samples}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: "{command}", max_retries: 0, memory: 1 GiB}}
""")
        self.wflow("run", study, "-j", "2", code=code)

    def usage(self):
        return json.loads(self.wflow("usage", self.campaign(), "--json", code=OK).out)["steps"][0]

    def explain(self, task):
        return json.loads(self.wflow("explain", self.campaign(), task, "--json", code=OK).out)

    def test_every_execution_is_counted_once(self):
        self.run_study(6, f"{PYTHON} {self.folder}/work.py 96 0.2 0 $(MERLIN_SAMPLE_ID)")
        used = self.usage()
        self.assertEqual(used["executions"], 6)
        self.assertGreaterEqual(used["peak_bytes"]["median"], 0.98 * 96 * MEBIBYTE)
        self.assertLess(used["peak_bytes"]["max"], 400 * MEBIBYTE)
        self.assertGreaterEqual(used["cpu_s"]["sum"], 6 * 0.2)
        self.assertGreaterEqual(used["cpu_s"]["max"], 0.2)
        self.assertGreaterEqual(used["duration_s"]["median"], 0.98 * 0.2)
        self.assertGreaterEqual(used["written_bytes"]["sum"], 0)
        self.assertEqual(used["memory_asked_bytes"], 1024 * MEBIBYTE)
        # Asked 1 GiB, used about 100 MiB: half as much again as 95 % need, in steps of 64.
        advice = used["advice"][0]
        self.assertEqual(advice["about"], "memory")
        asked = re.fullmatch(r"memory: (\d+) MiB", advice["line"])
        self.assertTrue(asked, advice)
        self.assertGreaterEqual(int(asked[1]) * MEBIBYTE, 1.4 * used["peak_bytes"]["p95"])
        self.assertLess(int(asked[1]), 1024)
        self.assertIn(f"write `{advice['line']}`", advice["sentence"])
        for name in ("duration_s", "peak_bytes"):
            bins = used[name]["histogram"]
            self.assertEqual(sum(each["count"] for each in bins), 6, name)
            self.assertGreaterEqual(bins[-1]["to"], used[name]["max"])
        self.assertEqual(used["failed"], [])
        answer = self.explain("work/3")
        self.assertEqual(len(answer["used"]), 1)
        self.assertEqual(answer["used"][0]["first"], 3)
        self.assertGreaterEqual(answer["used"][0]["peak_bytes"], 96 * MEBIBYTE)
        tasks = json.loads(self.wflow("tasks", self.campaign(), "--json", code=OK).out)
        self.assertEqual(len(tasks), 6)
        for task in tasks:
            self.assertGreaterEqual(task["cpu"], 0.2)
            self.assertGreaterEqual(task["duration"], 0.2 * 0.98)
            self.assertGreaterEqual(task["peak_bytes"], 96 * MEBIBYTE)
            self.assertTrue(task["worker"])
        table = self.wflow("tasks", self.campaign(), code=OK).out.splitlines()
        self.assertRegex(table[0], r"task +state +attempts +exit code +duration +cpu +memory +worker")
        self.assertIn("MiB", table[1])
        self.assertIn("of CPU", self.wflow("explain", self.campaign(), "work/3", code=OK).out)
        text = self.wflow("usage", self.campaign(), code=OK).out
        self.assertIn("work  6 executions", text)
        self.assertRegex(text, r"(?m)^  memory .* asked 1.0 GiB$")
        self.assertRegex(text, r"(?m)^node-hours  [0-9.e-]+ of 1 worker ")
        self.assertIn("for the next run\n  work: memory: asked 1.0 GiB, 95 % need", text)
        self.assertIn(f"`{advice['line']}`", " ".join(text.split()))
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertEqual(self.wflow("usage", self.campaign(), "--csv", code=OK).out.count("\n"), 2)

    def test_failures_and_retries_are_counted_too(self):
        self.run_study(2, f"{PYTHON} {self.folder}/work.py 1 0.01 $(( 1 - $(MERLIN_SAMPLE_ID) ))", code=TASKS_FAILED)
        self.assertEqual(self.usage()["executions"], 2)
        whole = json.loads(self.wflow("usage", self.campaign(), "--json", code=OK).out)
        self.assertEqual(whole["version"], 1)
        hours = whole["node_hours"]
        self.assertAlmostEqual(hours["used"] + hours["idle"], hours["all"])
        self.assertGreater(hours["lost"], 0)
        self.assertLessEqual(hours["lost"], hours["used"])
        lost = self.usage()["failed"]
        self.assertEqual([(part["reason"], part["executions"]) for part in lost], [("exited", 1)])
        self.assertGreaterEqual(lost[0]["seconds"], 0.01)
        self.wflow("retry", self.campaign(), "-j", "1", code=TASKS_FAILED)
        self.assertEqual(self.usage()["executions"], 3)
        self.assertEqual(len(self.explain("work/0")["used"]), 2)
        self.assertEqual(len(self.explain("work/1")["used"]), 1)


class OutOfMemory(CampaignTest):
    """In a control group of version 1 or 2 that this test makes, where it may."""

    LIMIT = 256 * MEBIBYTE

    def query(self, sql):
        with closing(sqlite3.connect(f"file:{self.campaign()}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            return database.execute(sql).fetchall()

    def group(self):
        for parent, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
            group = parent / f"wflow-test-{os.getpid()}"
            try:
                group.mkdir()
            except OSError:
                continue
            self.addCleanup(lambda: self.wait(lambda: self.removed(group), "the end of all processes in the group"))
            try:
                (group / limit).write_text(str(self.LIMIT))
                return group
            except OSError:
                continue
        self.skipTest("no control group for memory can be made here")

    @staticmethod
    def removed(group):
        try:
            group.rmdir()
        except OSError:
            return False
        return True

    @unittest.skipIf(SMALL, "sanitized programs need more memory than the task")
    def test_a_task_killed_for_its_memory_is_told_from_others(self):
        group = self.group()
        study = self.study(f"""
description: {{name: memory, description: one task takes too much of it}}
samples: {{design: uniform, count: 2, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: "{PYTHON} -c 'import sys; bytearray(int(sys.argv[1]) << 20)' $(( 1 + 1000 * $(MERLIN_SAMPLE_ID) ))", max_retries: 0}}
  - name: killed
    run: {{cmd: "kill -9 $$", max_retries: 0}}
""")
        shell = ["bash", "-c", 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"', "bash", group]
        run = Process(self, [*shell, BIN / "wflow", "run", study, "-j", "1"], "in-group")
        self.addCleanup(self.reap, run)
        self.assertEqual(run.wait(), TASKS_FAILED, run.out + run.err)
        reasons = {row["task"]: row["reason"] for row in self.status()["failures"]}
        self.assertEqual(set(reasons), {"work/1", "killed"})
        self.assertEqual(reasons["work/1"], "killed for want of memory")
        self.assertIn("signal 9", reasons["killed"])

    @unittest.skipIf(SMALL, "sanitized programs need more memory than the task")
    def test_a_task_killed_for_its_memory_is_tried_again_with_more(self):
        group = self.group()
        (self.folder / "greedy.py").write_text(
            "import os, sys\n"
            "enough = int(os.environ['WFLOW_MEMORY_BYTES']) >= int(sys.argv[1]) << 20\n"
            "bytearray((1 if enough else 1000) << 20)\n")
        study = self.study(f"""
description: {{name: memory, description: a task that needs more than it asks for}}
samples: {{design: uniform, count: 2, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: "{PYTHON} {self.folder}/greedy.py $(( 128 + 10000 * $(MERLIN_SAMPLE_ID) ))", max_retries: 0, retry_delay: 0,
          memory: 64 MiB, retry_memory: 2x}}
""")
        shell = ["bash", "-c", 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"', "bash", group]
        run = Process(self, [*shell, BIN / "wflow", "run", study, "-j", "1"], "in-group")
        self.addCleanup(self.reap, run)
        self.assertEqual(run.wait(), TASKS_FAILED, run.out + run.err)
        rows = self.query("select sample, attempt, reason from v_failures order by sample, attempt")
        # Sample 0 succeeds with twice the memory; sample 1 fails with all that its worker has (the group's limit).
        self.assertEqual(rows, [(0, 0, "out_of_memory"), (1, 0, "out_of_memory"), (1, 1, "out_of_memory"), (1, 2, "out_of_memory")])
        self.assertEqual(self.query("select first, last, state from v_runs order by first"), [(0, 0, "done"), (1, 1, "failed")])
        self.assertIn("it runs again with 128.0 MiB of memory", self.wflow("explain", self.campaign(), "work/0", code=OK).out)
        self.assertEqual(self.wflow("tasks", self.campaign(), "--where", "reason = out_of_memory", "--count", code=OK).out.strip(), "1")


if __name__ == "__main__":
    unittest.main()
