# SPDX-License-Identifier: Apache-2.0
"""Disk trouble, before and during a campaign: a file system of a few MB over the place of the campaigns, and writes that fail
(disk_faults.c). The campaign pauses with one sentence and goes on by itself when the cause is gone."""

import errno
import json
import os
import signal
import subprocess
import unittest
from collections import Counter
from pathlib import Path

from wflow_test import OK, SMALL, SYSTEM, CampaignTest, Gate, gated_study, quickstart, wait_for

TASKS = 8
FREE = 3


class DiskTest(CampaignTest):
    def note(self, text):
        """Returns whether the status names the trouble."""
        status = self.status()
        return status["state"] == "paused" and any(text in row["text"] for row in status["history"])

    def assert_each_once(self, gate):
        self.assertEqual(Counter(gate.began()), Counter(range(TASKS)))
        self.assertEqual(Counter(gate.passed()), Counter(range(TASKS)))
        self.assertEqual(self.counts("work")["done"], TASKS)


class FullDisk(DiskTest):
    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.mount("4m")

    def mount(self, size):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.disk], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"a small file system can't be mounted here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], capture_output=True)

    def campaign(self):
        found = [path.parent.parent for path in self.disk.glob("*/.wflow/campaign.db")]
        return found[0] if len(found) == 1 else None

    def fill(self):
        """Not a byte is left; gives the file to delete."""
        filler = self.disk / "filler"
        with open(filler, "ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass
        return filler

    def write_study(self, gate, then="true"):
        return self.study(f"""
description: {{name: full, description: runs on a small disk}}
env: {{variables: {{OUTPUT_PATH: {self.disk}}}}}
samples: {{design: uniform, count: {TASKS}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {gate.command()}
        : $(x)
        {then}
      max_retries: 0
""")

    def run_to_the_gate(self, then="true"):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.write_study(gate, then), "-j", "2")
        self.wait(self.campaign, "a campaign", run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", run)
        return gate, run

    def test_full_from_the_start(self):
        study = self.write_study(Gate(self.folder, TASKS))
        filler = self.fill()
        run = self.wflow("run", study, code=SYSTEM)
        self.assert_one_sentence(run, "No space left on device")
        self.assertEqual([p for p in self.disk.rglob("*") if p.is_file() and p != filler and p.stat().st_size > 0], [])
        self.assertEqual([p for p in self.disk.iterdir() if p != filler], [], "no campaign that never began")

    def test_full_in_the_middle(self):
        gate, run = self.run_to_the_gate()
        filler = self.fill()
        gate.open()
        self.wait(lambda: self.note("the disk is full"), "the campaign pauses and says so", run)
        for options in ((), ("--table",), ("--brief",), ("--json",)):
            self.assertIn("paused", self.wflow("status", *options, code=OK).out, options)
        self.assertIn("ask again when that has changed", self.wflow("retry", code=SYSTEM).err)
        filler.unlink()
        self.assertEqual(run.wait(), OK, run.out + run.err)
        self.assert_each_once(gate)
        self.assertEqual(len([text for text in self.history("note") if "the campaign paused for" in text]), 1)
        self.assertEqual(run.err.count("; the campaign pauses, and goes on by itself"), 1, run.err)

    def test_a_signal_ends_a_campaign_that_pauses(self):
        gate, run = self.run_to_the_gate()
        directory = self.campaign()
        filler = self.fill()
        gate.open()
        self.wait(lambda: self.note("the disk is full"), "the campaign pauses", run)
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), SYSTEM, run.out + run.err)
        self.assertIn(f"wflow resume {directory}", run.err)
        self.wait(lambda: not self.processes(), "all processes have ended")
        filler.unlink()
        self.wflow("resume", directory, "-j", "2", code=OK)
        began = Counter(gate.began())
        for task in range(FREE):
            self.assertEqual(began[task], 1, f"task {task} had finished")
        self.assertEqual(self.counts("work")["done"], TASKS)

    def test_a_task_that_fails_for_a_full_disk_is_not_charged(self):
        """The output of a task does not fit: with max_retries 0 an ordinary failure would be its last."""
        gate, run = self.run_to_the_gate(then='head -c 100000 /dev/zero > "result_$(MERLIN_SAMPLE_ID)"')
        filler = self.fill()
        gate.open()
        self.wait(lambda: gate.passed() and len(gate.passed()) > FREE, "tasks have tried to write", run)
        self.wait(lambda: self.note("the disk is full"), "the campaign pauses", run)
        filler.unlink()
        self.assertEqual(run.wait(), OK, run.out + run.err)
        sizes = [path.stat().st_size for path in self.disk.glob("*/work/**/result_*")]
        self.assertEqual(sizes, [100000] * TASKS)


@unittest.skipIf(SMALL, "a sanitizer's library must come first")
class BrokenDisk(DiskTest):
    def setUp(self):
        super().setUp()
        library = self.folder / "disk_faults.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("disk_faults.c"), "-ldl"], check=True)
        self.control = self.folder / "fault"
        self.environment |= {"LD_PRELOAD": str(library), "DISK_FAULT": str(self.control)}

    def break_disk(self, number, text):
        whole = self.folder / "fault.new"
        whole.write_text(f"{number} {text}\n")
        whole.rename(self.control)

    def run_to_the_gate(self, then="true"):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS, then, extra="      max_retries: 0\n")), "-j", "2")
        self.wait_for_campaign(run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", run)
        return gate, run

    def check_database(self, number):
        gate, run = self.run_to_the_gate()
        self.break_disk(number, "campaign.db")
        gate.open()
        self.wait(lambda: self.note(os.strerror(number)), "the campaign pauses and says why", run)
        self.control.unlink()
        self.assertEqual(run.wait(), OK, run.out + run.err)
        self.assert_each_once(gate)
        self.assertEqual(run.err.count("; the campaign pauses, and goes on by itself"), 1, run.err)

    def test_database_eio(self):
        self.check_database(errno.EIO)

    def test_database_over_quota(self):
        self.check_database(errno.EDQUOT)

    def test_database_read_only(self):
        self.check_database(errno.EROFS)

    def worker_log(self):
        return "".join(path.read_text() for path in self.campaign().glob(".wflow/logs/worker-*.log"))

    def test_journal(self):
        """The coordinator has the results all the same: the campaign goes on, one task after the other."""
        gate, run = self.run_to_the_gate()
        self.break_disk(errno.EIO, ".journal")
        gate.open()
        self.assertEqual(run.wait(), OK, run.out + run.err)
        self.assertIn("no task starts before its results can be kept", self.worker_log())
        self.control.unlink()
        self.assert_each_once(gate)

    def test_journal_and_database(self):
        """Nothing can be kept: nothing more starts. Then all goes on, and nothing runs twice."""
        gate, run = self.run_to_the_gate()
        self.break_disk(errno.EROFS, "/.wflow/")
        gate.open()
        self.wait(lambda: self.note(os.strerror(errno.EROFS)), "the campaign pauses", run)
        wait_for(lambda: len(gate.passed()) == FREE + 2, "the two that ran have ended")
        self.assertEqual(len(gate.began()), FREE + 2, "no other has begun")
        self.control.unlink()
        self.assertEqual(run.wait(), OK, run.out + run.err)
        self.assert_each_once(gate)

    def test_output_of_tasks(self):
        """A task fails because its directory takes nothing: it is not charged, and the others wait."""
        gate, run = self.run_to_the_gate(then="head -c 100000 /dev/zero > result")
        self.break_disk(errno.EIO, "/work/")
        gate.open()
        self.wait(lambda: "tasks wait until that has changed" in self.worker_log(), "the worker waits", run)
        self.control.unlink()
        self.assertEqual(run.wait(), OK, run.out + run.err)
        sizes = [path.stat().st_size for path in self.campaign().glob("work/**/result")]
        self.assertEqual(sizes, [100000] * TASKS)
        began = Counter(gate.began())
        self.assertEqual([began[task] for task in range(FREE)], [1] * FREE)

    def check_quickstart(self, text, reason):
        self.break_disk(errno.ENOSPC, text)
        run = self.start("run", self.study(quickstart(6, 2, checkpoint_steps=1)), "-j", "2")
        self.wait_for_campaign(run)
        self.wait(lambda: self.rows(), f"{reason} failed for the disk", run)
        self.control.unlink()
        self.assertEqual(run.wait(), OK, run.out + run.err)

    def rows(self):
        return json.loads(self.wflow("tasks", self.campaign(), "--where", "reason = disk", "--json").out)

    def test_shards(self):
        self.check_quickstart("shard-0", "a conversion")

    def test_checkpoints(self):
        self.check_quickstart("/checkpoints/", "the training")


if __name__ == "__main__":
    unittest.main()
