# SPDX-License-Identifier: Apache-2.0
"""The live display in a real terminal (tmux): two widths, a resize in the middle, both Ctrl-C; and what a pipe gets."""

import re
import shutil
import unittest

from tmux_screen import Screen
from wflow_test import INTERRUPTED, CampaignTest

TASKS = 150
EPOCHS = 90
# Step names of two lengths, so that the columns have something to align.
STUDY = """
description: {{name: screens, description: what the display shows}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {tasks}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: simulate
    run:
      cmd: |
        touch {folder}/began.$(MERLIN_SAMPLE_ID)
        until [ -e {folder}/pass.$(MERLIN_SAMPLE_ID) ] || [ -e {folder}/open ]; do sleep 0.1; done
  - name: fit
    run:
      cmd: |
        for epoch in $(seq {epochs}); do
          for name in train_loss validation_loss a_metric_whose_name_is_much_too_long_for_that_line_of_the_pipe another_metric_whose_name_is_too_long; do
            echo '{{"type": "metric", "name": "'$name'", "epoch": '$epoch', "step": '$epoch', "value": 0.'$epoch'}}'
          done
        done >> $WFLOW_EVENTS
        until [ -e {folder}/open ]; do sleep 0.1; done
"""


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed (scripts/install-deps)")
class Display(CampaignTest):
    def setUp(self):
        super().setUp()
        self.path = self.study(STUDY.format(tasks=TASKS, epochs=EPOCHS, folder=self.folder))
        self.passed = 0
        self.last = None

    def pass_one(self):
        """Lets the next task pass, once it has begun."""
        if (self.folder / f"began.{self.passed}").exists() and self.passed < TASKS:
            (self.folder / f"pass.{self.passed}").touch()
            self.passed += 1

    def see(self, screen, what, *patterns, absent=None):
        """Waits for a picture that has all of them, while tasks end one by one: rate and time left need that."""

        def shown():
            lines = screen.lines()
            if lines != self.last:  # a task a picture, however fast this machine is: else they end before the last picture
                self.pass_one()
            self.last = lines
            text = "\n".join(lines)
            return lines if all(re.search(p, text, re.M) for p in patterns) and not (absent and re.search(absent, text)) else None

        return self.wait(shown, what)

    def check_picture(self, lines, columns):
        """One picture, and no rest of an older one."""
        for begin in ("screens  running", "  simulate ", "  fit ", "  train_loss ", "  validation_loss "):
            self.assertEqual(len([line for line in lines if line.startswith(begin)]), 1, "\n".join(lines))
        head = next(n for n, line in enumerate(lines) if line.startswith("screens  running"))
        self.assertRegex(lines[head], r"^screens  running  \d+ % done  ")
        self.assertEqual("\n".join(lines).count("1 worker with 2 cores"), 1, "\n".join(lines))
        self.assertTrue(all(len(line) < columns for line in lines[head:]), "\n".join(lines))
        self.assertRegex(lines[-1], r"from epoch \d+$")
        # Above it nothing but the announcements; tmux breaks them, and scrolls some of it away when lines become more.
        said = "".join(lines[:head])
        self.assertTrue(f"screens: {TASKS + 1} tasks in {self.campaign()}".endswith(said[said.rfind("screens: "):]), "\n".join(lines))

    def test_resize_and_interrupt(self):
        screen = Screen(self, ["run", self.path, "-j", "2"], 100)
        numbers = (r"[\d.,]+/min", r"left")
        lines = self.see(screen, "a wide picture", r"simulate █*▓+░+ +\d+/150  \d assigned, ", *numbers, "validation_loss .*from epoch")
        self.check_picture(lines, 100)
        screen.resize(60)
        lines = self.see(screen, "a narrow picture", r"simulate [█▓░]{8} +\d+/150", *numbers, absent="[█▓░]{9}")
        self.check_picture(lines, 60)
        screen.resize(100)
        lines = self.see(screen, "a wide picture again", r"simulate [█▓░]{9,} +\d+/150", *numbers)
        self.check_picture(lines, 100)
        screen.resize(60)
        screen.press("C-c")
        joined = r"interrupted: no new tasks are started, running ones may\s+finish; Ctrl-C again kills them"
        self.see(screen, "what a second Ctrl-C does", joined)
        screen.press("C-c")
        lines = self.see(screen, "the end", f"exit code {INTERRUPTED}")
        self.assertNotIn("Ctrl-C again", "\n".join(lines))

    def test_pipe(self):
        (self.folder / "open").touch()
        run = self.wflow("run", self.path, "-j", "2")
        lines = run.out.split("\n")
        first = next(line for line in lines if line.startswith("["))
        self.assertRegex(first, r"^\[[\d.]+ m?s\] (\d+ % done: simulate|simulate: )")
        epochs = [line for line in lines if re.search(r"\] epoch ", line)]
        self.assertEqual([int(re.search(r"epoch (\d+): ", line)[1]) for line in epochs], list(range(1, EPOCHS + 1)))
        for line in epochs:
            self.assertRegex(line, r"\] epoch \d+: train_loss 0\.\d+, validation_loss 0\.\d+, and 2 more$")
            self.assertLessEqual(len(line), 100)


if __name__ == "__main__":
    unittest.main()
