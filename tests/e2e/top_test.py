# SPDX-License-Identifier: Apache-2.0
"""wflow top in a real terminal (tmux): sizes, keys, a resize, a coordinator that is killed, a replay."""

import json
import re
import shutil
import signal
import os
import unittest

from tmux_screen import Screen
from wflow_test import OK, USAGE, CampaignTest, Gate

TASKS = 12
FREE = 6  # of these, 1 and 3 fail
SIZES = ((60, 20), (80, 24), (120, 40), (200, 60))
STUDY = """
description: {{name: dashboard, description: what wflow top shows}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {tasks}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: simulate
    run:
      cmd: |
        {gate}
        case $(MERLIN_SAMPLE_ID) in
          1|3) for i in $(seq 200); do echo "cell $i is fine"; done
               echo "no root in cell 7 of $(x)" >&2
               exit 3 ;;
        esac
  - name: collect
    run: {{cmd: "true", depends: [simulate_*]}}
  - name: fit
    run:
      cmd: |
        for epoch in $(seq 30); do
          wflow event metric name=train_loss value=$(echo "2 / $epoch" | awk '{{print $1 / $3}}') epoch=$epoch step=$epoch
          wflow event metric name=validation_loss value=$(echo "3 / $epoch" | awk '{{print $1 / $3}}') epoch=$epoch step=$epoch
        done
        wflow event metric name=samples_per_second value=412.5 epoch=30 step=30
        wflow event checkpoint path=$PWD/c hash=00 epoch=29 step=29
        wflow event progress done=30 total=90 unit=epochs
        until [ -e {folder}/gate/open ]; do sleep 0.1; done
"""


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed (scripts/install-deps)")
class TopTest(CampaignTest):
    def setUp(self):
        super().setUp()
        self.gate = Gate(self.folder, FREE)
        self.path = self.study(STUDY.format(tasks=TASKS, gate=self.gate.command(), folder=self.folder))

    def begin(self):
        """The campaign runs in the background: two have failed, four are done, the others wait for the gate."""
        self.wflow("run", self.path, "-q", "-j", "2", "--detach")
        self.wait_for_campaign()
        self.wait(lambda: self.counts("simulate")["failed"] == 2 and self.counts("simulate")["done"] == FREE - 2, "the first tasks")
        self.addCleanup(self.end)

    def end(self):
        self.gate.open()
        if self.campaign():
            self.wait(lambda: not self.processes("wflow"), "the end of the campaign")

    def top(self, columns=80, rows=24, *arguments, **environment):
        return Screen(self, ["top", *(arguments or [self.campaign()])], columns, rows, **environment)

    def see(self, screen, what, *patterns, absent=None):
        def shown():
            rows = screen.rows()
            text = "\n".join(rows)
            return rows if all(re.search(p, text, re.M) for p in patterns) and not (absent and re.search(absent, text)) else None

        try:
            return self.wait(shown, what)
        except AssertionError:
            raise AssertionError(f"waited for {what}: {patterns}\n" + "\n".join(screen.rows())) from None

    def quit(self, screen):
        screen.press("q")
        self.see(screen, "the end", f"exit code {OK}")


# The picture of a second question: the first one may come before the workers'.
WORKERS = r"^ 1 worker, [\d.]+ of 2 cores used"


class Top(TopTest):
    def check_frame(self, rows, columns):
        self.assertRegex(rows[0], r"^ dashboard  running .*\d\d:\d\d:\d\d$")
        self.assertRegex(rows[1], r"^ 28 % done: 4 of 14 tasks  2 failed  for ")
        self.assertRegex(rows[2], WORKERS)
        self.assertIn("4 training", rows[3])
        self.assertIn("q quit", rows[-1])
        for row in rows:
            self.assertLessEqual(len(row), columns, row)

    def test_sizes(self):
        self.begin()
        for columns, rows in SIZES:
            with self.subTest(columns=columns, rows=rows):
                screen = self.top(columns, rows)
                shown = self.see(screen, "steps", WORKERS, r"^>simulate .* 4/12 ", r"^ fit .* 30/90 epochs", r"simulate/\d failed after ", "q quit$")
                self.assertEqual(len(shown), rows)
                self.check_frame(shown, columns)
                head = next(n for n, row in enumerate(shown) if re.match(r" step ", row))
                # Numbers end below the end of their heads.
                self.assertEqual(shown[head].index("done") + 4, re.search(r"4/12", shown[head + 1]).end())
                self.assertEqual(shown[head].index("left") + 4, len(shown[head + 1].rstrip()))
                if columns >= 120:
                    self.assertRegex(shown[head], r"failed +assigned +.*waiting +rate +.*median +p95")
                screen.press("2")
                shown = self.see(screen, "workers", r"^>.*2/2 cores", r"simulate/\d+ +for ", r"fit +for ")
                self.check_frame(shown, columns)
                screen.press("3")
                shown = self.see(screen, "failures", r"^>simulate/[13] +exit code 3", r"the end of what simulate/[13] printed", "no root in cell 7")
                self.check_frame(shown, columns)
                screen.press("4")
                shown = self.see(screen, "training", r"train_loss 0\.06667", r"samples/s 412\.5", r"epoch 30, 30/90 ep", r"[\u2801-\u28ff]{3}",
                                 r"checkpoint: epoch 29")
                self.check_frame(shown, columns)
                screen.press("?")
                self.see(screen, "help", r"explain: why a task waits")
                screen.press("q", "q")
                self.see(screen, "the end", f"exit code {OK}")

    def test_keys(self):
        self.begin()
        screen = self.top(100, 30)
        self.see(screen, "steps", r"^>simulate ", r"^ fit ")
        screen.press("f")
        screen.type("fi")
        screen.press("Enter")
        self.see(screen, "the filter's steps", r"^>fit ", "filter: fi", absent=r"^.simulate +\S* +4/12")
        screen.press("Escape")
        self.see(screen, "all steps", r"^.simulate ", absent="filter: fi")
        screen.press("s")
        self.see(screen, "the order", "by failed")
        screen.press("3", "s")
        self.see(screen, "failures by task", "by task", r"^>simulate/1 ")
        screen.press("l")
        self.see(screen, "the log", "what simulate/1 printed", "line 1 of 20", "cell 3 is fine")
        screen.press("/")
        screen.type("NO ROOT")
        screen.press("Enter")
        self.see(screen, "what was searched", r"^> no root in cell 7", r"line 20\d of 20\d")
        screen.press("q", "e")
        self.see(screen, "the explanation", "explain simulate/1", "execution 1: exit code 3")
        screen.press("q")
        # A step, its tasks, and the story of one of them.
        screen.press("1", "Enter")
        self.see(screen, "the step's tasks", r"^ simulate: \d running, 2 failed", r"^>simulate/\d+ +running ", r"simulate/1 +failed ")
        screen.press("s", "s", "s")
        self.see(screen, "the failed ones", r"^>simulate/[13] +failed .*exit code 3: no root", absent=r"simulate/\d+ +running ")
        screen.press("Enter")
        self.see(screen, "the story", r"explain simulate/[13]", "execution 1: exit code 3")
        screen.press("q", "q")
        self.see(screen, "the steps", r"^ collect ", absent="running, 2 failed")
        screen.press("3", "p")
        self.see(screen, "a pause", "dashboard  paused", "paused: nothing new starts")
        self.assertEqual(self.status()["state"], "paused")
        screen.press("p")
        self.see(screen, "no pause", "dashboard  running", "the campaign goes on")
        screen.press("r")
        self.see(screen, "the retry", "1 task will run again")
        # Cancel asks, and takes no for an answer.
        screen.press("1", "f")
        screen.type("collect")
        screen.press("Enter")
        self.see(screen, "the step", r"^>collect +\S+ +0/1 ", "filter: collect")
        screen.press("c")
        self.see(screen, "the question", r"Cancel what has not started of collect \(1 open\)\? y/n")
        screen.press("n")
        self.see(screen, "no question", r"^>collect ", absent="y/n")
        self.assertEqual(self.counts("collect")["cancelled"], 0)
        screen.press("c")
        self.see(screen, "the question", "y/n")
        screen.press("y")
        self.see(screen, "the answer", r"1 task cancelled")
        self.assertEqual(self.counts("collect")["cancelled"], 1)
        self.quit(screen)

    def test_resize_without_its_signal(self):
        """A program that starts this one may block SIGWINCH."""
        self.begin()
        screen = Screen(self, ["top", self.campaign()], 120, 40, starter="env --block-signal=WINCH")
        self.see(screen, "a wide picture", r"median", r"^>simulate ", "q quit$")
        screen.resize(60, 20)
        self.check_frame(self.see(screen, "a narrow picture", WORKERS, r"^>simulate ", "q quit$", absent="median"), 60)
        self.quit(screen)

    def test_resize_in_the_middle_of_a_run(self):
        self.begin()
        screen = self.top(120, 40)
        self.see(screen, "a wide picture", r"median", r"^>simulate ", "q quit$")
        screen.resize(60, 20)
        shown = self.see(screen, "a narrow picture", WORKERS, r"^>simulate ", r"4/12", "q quit$", absent="median")
        self.check_frame(shown, 60)
        self.assertEqual(len(shown), 20)
        screen.resize(40, 10)
        self.see(screen, "what is needed", "wflow top needs 60 x 20 cells")
        screen.resize(200, 60)
        shown = self.see(screen, "a very wide picture", WORKERS, "memory p95", r"^>simulate ", "q quit$")
        self.check_frame(shown, 200)
        self.gate.open()
        self.see(screen, "the end of the campaign", "finished with failures", "85 % done: 12 of 14 tasks")
        self.quit(screen)

    def test_ascii_and_without_colours(self):
        self.begin()
        screen = self.top(80, 24, LC_ALL="C", TERM="vt100")
        shown = self.see(screen, "steps", WORKERS, r"^>simulate +#+x+>+\.* +4/12 ", "q quit$")
        self.check_frame(shown, 80)
        screen.press("4")
        shown = self.see(screen, "training", r"\* train_loss 0\.06667", r"o validation_loss 0\.1", r"\|\*")
        self.assertTrue(all(row.isascii() for row in shown), "\n".join(shown))
        self.quit(screen)

    def test_the_coordinator_is_killed_and_another_one_comes(self):
        self.begin()
        screen = self.top(100, 30)
        self.see(screen, "the campaign", "dashboard  running", r"^>simulate .* 4/12 ")
        endpoint = json.loads((self.campaign() / ".wflow" / "endpoint.json").read_text())
        os.kill(endpoint["pid"], signal.SIGKILL)
        self.see(screen, "that nobody coordinates", "dashboard  no coordinator", r"^>simulate .* 4/12 ")
        screen.press("p")
        self.see(screen, "why nothing can be paused", "no coordinator runs; wflow resume continues the campaign")
        self.wflow("resume", self.campaign(), "-q", "-j", "2", "--detach")
        self.see(screen, "the next coordinator", "dashboard  running", "1 worker", absent="no coordinator")
        self.gate.open()
        self.see(screen, "the end", "dashboard  finished with failures", "85 % done: 12 of 14 tasks", absent="no coordinator")
        self.quit(screen)


class TopAtRest(TopTest):
    def setUp(self):
        super().setUp()
        self.gate.open()
        self.wflow("run", self.path, "-q", "-j", "2", code=1)

    def test_finished_replayed_and_listed(self):
        screen = self.top(100, 30)
        self.see(screen, "the record", "dashboard  finished with failures", "85 % done: 12 of 14 tasks", r"^>simulate .* 10/12 ", r"^ fit .* done")
        screen.press("3", "e")
        self.see(screen, "the explanation", "execution 1: exit code 3")
        screen.press("q", "r")
        self.see(screen, "what continues it", "no coordinator runs; wflow retry continues the campaign")
        # The dashboard holds nothing: the campaign can be continued under it.
        self.wflow("retry", self.campaign(), "-q", "-j", "2", code=1)
        screen.press("1")
        self.see(screen, "the end again", "dashboard  finished with failures", "85 % done: 12 of 14 tasks")
        self.quit(screen)

        screen = self.top(100, 30, self.campaign(), "--replay", "--speed", "0.001")
        self.see(screen, "the begin", "dashboard  replay  running", r"0 % done: 0 of 14 tasks", r"0\.001x")
        screen.press("Space")
        self.see(screen, "the pause", "paused")
        screen.press(*["Right"] * 50)
        self.see(screen, "the end", "dashboard  replay  finished with failures", "85 % done: 12 of 14 tasks")
        screen.press("4")
        self.see(screen, "the curves", r"train_loss 0\.06667")
        screen.press("1", "Enter")
        self.see(screen, "the tasks of the replay", r"^ simulate: 0 running, 2 failed", r"simulate/[13] +failed ", r"simulate/\d+ +ended ")
        screen.press("q", "4")
        screen.press(*["Left"] * 50)
        self.see(screen, "no curve yet", "no task has reported a metric yet")
        self.quit(screen)

        screen = self.top(100, 30, "--all")
        self.see(screen, "the list", "1 campaign ", r"^>dashboard_\S+ +finished with failures .* 12/14 +2 ")
        screen.press("Enter")
        self.see(screen, "the campaign", r"^>simulate .* 10/12 ")
        screen.press("q")
        self.see(screen, "the list again", "1 campaign ")
        self.quit(screen)

    def test_not_a_terminal(self):
        run = self.wflow("top", self.campaign(), code=USAGE)
        self.assert_one_sentence(run, "wflow top needs a terminal", "wflow status")


if __name__ == "__main__":
    unittest.main()
