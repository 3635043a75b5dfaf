# SPDX-License-Identifier: Apache-2.0
"""What wflow prints, and where to: names and texts of others on a terminal, outputs that can't be written, devices and pipes in place of files,
campaigns that can only be read, coordinators that are silent."""

import json
import os
import signal
import stat
import subprocess
import threading
import time
import unittest

from wflow_test import BIN, OK, SMALL, SYSTEM, CampaignTest, Gate, Terminal, gated_study

EVIL = "\x1b[31mEVIL\x1b[2J\x07"
SHOWN = "^[[31mEVIL^[[2J^G"
LOOKING = [["status"], ["status", "--json"], ["status", "--table"], ["tasks"], ["tasks", "--json"], ["samples"], ["samples", "--csv"], ["usage"], ["workers"],
           ["history"], ["history", "--show", "1"], ["metrics"], ["curves"], ["allocations"], ["keys"], ["ls"], ["diff"], ["doctor"],
           ["explain", "work/0"], ["logs", "work/0"], ["logs", "work/0", "--json"], ["rerun", "work/0", "--print"]]


class OutputTest(CampaignTest):
    def begin(self):
        """A campaign of two samples whose cells, output and metrics hold escape sequences."""
        (self.folder / "table.tsv").write_text(f"name\nfirst{EVIL}\nsecond\n")
        (self.folder / "printed").write_text(f"printed{EVIL}\n")
        (self.folder / "metric").write_text(json.dumps({"type": "metric", "name": f"loss{EVIL}", "epoch": 1, "step": 1, "value": 0.5}) + "\n")
        self.path = self.study(f"""
description: {{name: evil, description: d}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{file: {self.folder}/table.tsv}}
study:
  - name: work
    run: {{cmd: 'cat {self.folder}/printed; cat {self.folder}/metric >> $WFLOW_EVENTS; : $(quote:name)'}}
""")
        return self.path

    def command(self, words):
        if words[0] == "allocations":
            return [*words, "--campaign", self.campaign()]
        return words if words[0] == "ls" else [words[0], self.campaign(), *words[1:]]


class Printing(OutputTest):
    def on_terminal(self, *words):
        terminal = Terminal(self, words, columns=200)
        self.assertEqual(terminal.finish(), OK, terminal.text)
        return terminal.text

    def test_texts_of_others_do_not_act_on_a_terminal(self):
        shown = self.on_terminal("run", self.begin(), "-j", "1")
        for words in (["status"], ["curves"], ["samples"], ["logs", "work/0"], ["metrics"], ["tasks", "--parameters"], ["explain", "work/0"]):
            with self.subTest(words):
                text = self.on_terminal(*self.command(words))
                self.assertNotIn("\x1b[31mEVIL", text)
                self.assertNotIn("\x1b[2J", text)
                self.assertNotIn("\x07", text)
                shown += text
        self.assertNotIn("\x1b[31mEVIL", shown)
        for begin in ("loss", "first", "printed"):
            self.assertIn(begin + SHOWN, shown)
        self.assertIn(EVIL, self.on_terminal("logs", self.campaign(), "work/0", "--raw"))
        self.assertIn(EVIL, self.wflow("logs", self.campaign(), "work/0").out, "a pipe gets what was printed")
        self.assertIn("\x1b[32mfinished\x1b[0m", self.on_terminal("status"), "own colours stay")

    def test_names_of_columns_do_not_act_on_a_terminal(self):
        """Nor where another program of wflow prints them."""
        (self.folder / "table.csv").write_text(f"id,a{EVIL},y\n1,1,2\n2,2,3\n3,1,2\n")
        (self.folder / "convert.yaml").write_text(json.dumps({
            "samples": "table.csv", "inputs": ["y"], "targets": [f"a{EVIL}"], "output": "data", "split": {"train": 1.0, "validation": 0.0, "test": 0.0}}))
        (self.folder / "train.yaml").write_text("data: data\nmodel: {name: mlp, dense: [4]}\nepochs: 1\nbatch: 2\noutput: out\n")
        shown = ""
        for program, *words in (["wflow-convert", "convert.yaml"], ["wflow-convert", "inspect", "data"], ["wflow", "shards", "stats", "data"],
                                ["wflow-train", "--dry-run", "train.yaml"], ["wflow-train", "train.yaml"],
                                ["wflow", "predict", "out/model.pt", "data"]):
            with self.subTest(program=program, words=words):
                terminal = Terminal(self, words, columns=200, program=program)
                self.assertEqual(terminal.finish(), OK, terminal.text)
                self.assertNotIn("\x1b[31mEVIL", terminal.text)
                shown += terminal.text
        self.assertIn("a" + SHOWN, shown)

    def test_output_that_cannot_be_written(self):
        self.wflow("run", self.begin(), "-q", "-j", "1")
        commands = [self.command(words) for words in LOOKING] + [["validate", self.path], ["plan", self.path], ["schema"], ["--help"], ["--version"], ["help", "run"],
                                                                 ["report", self.campaign(), "-o", self.folder / "r.html"], ["completion", "bash"]]
        commands += [["resume", self.campaign()], ["report", self.campaign(), "-o", "/dev/stdout"], ["exec", "--", "echo", ":::", "a"], ["exec", "--dry-run", "--", "echo", ":::", "a"]]
        commands += [["run", self.path, "-j", "1", "--vars", f"OUTPUT_PATH={self.folder / 'again'}"]]
        for words in commands:
            with self.subTest(words[0]), open("/dev/full", "w") as full:
                done = subprocess.run([str(BIN / "wflow"), *map(str, words)], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                      cwd=self.folder, env=self.environment, timeout=120)
                self.assertEqual(done.returncode, SYSTEM, done.stderr)
                self.assertIn("No space left on device", done.stderr)
                self.assertNotIn("internal error", done.stderr)

    def test_a_reader_that_goes_is_no_error(self):
        self.wflow("run", self.begin(), "-q", "-j", "1")
        script = f"trap '' PIPE; (sleep 0.1; {BIN}/wflow status {self.campaign()}; echo $? >&2) | true"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=self.folder, env=self.environment, timeout=60)
        self.assertEqual(done.stderr, "0\n")

    def test_a_report_into_a_pipe(self):
        self.wflow("run", self.begin(), "-q", "-j", "1")
        for name in ("report", "metrics"):
            pipe = self.folder / f"pipe-{name}"
            os.mkfifo(pipe)
            got = []
            reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
            reader.start()
            self.wflow(name, self.campaign(), "-o", pipe)
            reader.join()
            self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))
            self.assertGreater(len(got[0]), 100)
        before = os.readlink("/dev/stdout")
        page = self.wflow("report", self.campaign(), "-o", "/dev/stdout").out
        self.assertTrue(page.startswith("<!") and page.rstrip().endswith("</html>"), page[-200:])
        self.assertEqual(os.readlink("/dev/stdout"), before)

    def test_a_long_log_is_not_held_in_memory(self):
        self.wflow("run", self.begin(), "-q", "-j", "1")
        log = next(self.campaign().rglob("work.out"))
        line = b"0123456789" * 100 + b"\n"
        size = (20 if SMALL else 240) << 20
        with open(log, "wb") as file:
            while file.tell() < size:
                file.write(line * 1000)
        for words in ([], ["--json"]):
            script = f"ulimit -v {size // 1024 + (1 << 40 if SMALL else 0)}; exec {BIN}/wflow logs {self.campaign()} work/0 {' '.join(words)} --out | tail -c 40"
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=self.folder, env=self.environment, timeout=120)
            self.assertEqual(done.stderr, "")
            self.assertIn("0123456789" if not words else '"task": "work/0"', done.stdout)


class Archives(OutputTest):
    def assert_can_be_looked_at(self, *before):
        environment = {**self.environment, "XDG_STATE_HOME": "/proc/nowhere"}
        script = "\n".join(" ".join([str(BIN / "wflow"), *map(str, self.command(words))]) + f" > {self.folder}/out 2>&1 || {{ echo {words[0]}; cat {self.folder}/out; }}"
                           for words in LOOKING + [["snapshot", self.folder / "copy.db"], ["report", "-o", self.folder / "r.html"], ["export", "--csv", self.folder / "csv"]])
        refused = f"{BIN}/wflow resume {self.campaign()} > {self.folder}/out 2>&1; echo $?; {BIN}/wflow retry {self.campaign()} > {self.folder}/out 2>&1; cat {self.folder}/out"
        done = subprocess.run([*before, "bash", "-c", script + "\n" + refused], capture_output=True, text=True, cwd=self.folder, env=environment, timeout=120)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines()[0], str(SYSTEM), done.stdout)

    def read_only(self):
        mount = ["unshare", "-m", "bash", "-c", f'mount --bind {self.campaign()} {self.campaign()} && mount -o remount,bind,ro {self.campaign()} && exec "$@"', "x"]
        if os.geteuid() != 0 or subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        return mount

    def test_a_finished_campaign_on_a_read_only_file_system(self):
        self.wflow("run", self.begin(), "-q", "-j", "1")
        self.assert_can_be_looked_at(*self.read_only())

    def test_one_whose_coordinator_was_killed(self):
        gate = Gate(self.folder, 1)
        run = self.start("run", self.study(gated_study(gate, 3)), "-j", "1")
        self.wait_for_campaign(run)
        self.wait_for_done("work", 1, run)
        self.kill_everything()
        run.wait()
        mount = self.read_only()
        done = subprocess.run([*mount, str(BIN / "wflow"), "status", str(self.campaign()), "--json"], capture_output=True, text=True, env=self.environment, timeout=60)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(json.loads(done.stdout)["steps"][0]["counts"]["done"], 1)


class Silent(OutputTest):
    def test_one_silent_coordinator_does_not_hold_up_the_list(self):
        self.environment["XDG_STATE_HOME"] = str(self.folder / "state")
        gates, runs = [], []
        for place in ("a", "b", "c"):
            (self.folder / place).mkdir()
            gates.append(Gate(self.folder / place, 0))
            runs.append(self.start("run", self.study(gated_study(gates[-1], 1), f"{place}.yaml"), "-j", "1", "--vars", f"OUTPUT_PATH={self.folder / place}"))
            self.wait(lambda: gates[-1].waiting() == 1, "a task runs", runs[-1])
        for run in runs[:2]:
            os.kill(run.pid, signal.SIGSTOP)
        began = time.monotonic()
        rows = json.loads(self.wflow("status", "--all", "--json").out)
        took_s = time.monotonic() - began
        for run in runs[:2]:
            os.kill(run.pid, signal.SIGCONT)
        self.assertEqual([row["state"] for row in rows], ["no answer", "no answer", "running"])
        if not SMALL:
            self.assertLess(took_s, 10, "each was waited for 12 s, one after the other")
        for gate in gates:
            gate.open()
        for run in runs:
            self.assertEqual(run.wait(), OK, run.err)


if __name__ == "__main__":
    unittest.main()
