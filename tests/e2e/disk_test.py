# SPDX-License-Identifier: Apache-2.0
"""A full disk, before and during a campaign: a file system of a few MB is mounted over the place of the campaigns."""

import subprocess
import unittest
from collections import Counter

from wflow_test import OK, SYSTEM, CampaignTest, Gate

TASKS = 8
FREE = 3


class FullDisk(CampaignTest):
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

    def write_study(self, gate):
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
      max_retries: 0
""")

    def test_full_from_the_start(self):
        study = self.write_study(Gate(self.folder, TASKS))
        filler = self.fill()
        run = self.wflow("run", study, code=SYSTEM)
        self.assert_one_sentence(run, "No space left on device")
        self.assertEqual([p for p in self.disk.rglob("*") if p.is_file() and p != filler and p.stat().st_size > 0], [])
        self.assertEqual([p for p in self.disk.iterdir() if p != filler], [], "no campaign that never began")

    def test_full_in_the_middle(self):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.write_study(gate), "-j", "2")
        directory = self.wait(self.campaign, "a campaign", run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", run)
        filler = self.fill()
        gate.open()
        self.assertEqual(run.wait(), SYSTEM, run.out + run.err)
        self.assert_one_sentence(run, "full", f"wflow resume {directory}")
        self.wait(lambda: not self.processes(), "all processes have ended")
        filler.unlink()
        self.wflow("resume", directory, "-j", "2", code=OK)
        began = Counter(gate.began())
        for task in range(FREE):
            self.assertEqual(began[task], 1, f"task {task} had finished")
        self.assertEqual(sorted(began), list(range(TASKS)))
        self.assertEqual(self.status()["state"], "finished")


if __name__ == "__main__":
    unittest.main()
