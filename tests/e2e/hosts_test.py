# SPDX-License-Identifier: Apache-2.0
"""Other hosts, as namespaces of this one: host names and process tables of their own over the same files and network. Coordinators
without working locks, workers in another process table under the same host name, workers that are frozen for longer than their
fence. The time-outs are the real ones: each test takes about one and a half minutes."""

import contextlib
import os
import re
import signal
import subprocess
import time
import unittest
from collections import Counter
from pathlib import Path

from wflow_test import BIN, BUSY, OK, SMALL, CampaignTest, lines_of, read_text, wait_for

FENCE_S = 60 + 15  # of a worker elsewhere, and the coordinator's margin


class HostsTest(CampaignTest):
    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "--uts", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode != 0:
            self.skipTest("namespaces can't be made here")

    def on_host(self, name, *arguments, last_pid=0):
        """A wflow program in a process table of its own, on a host of this name."""
        after = f"echo {last_pid} > /proc/sys/kernel/ns_last_pid; " if last_pid else ""
        words = " ".join(f"'{word}'" for word in (BIN / "wflow", *arguments))
        script = f"hostname {name}; {after}{words} & wait $!"  # not by exec: the first process of a table ignores signals
        self.count += 1
        out, err = (self.folder / f"{name}-{self.count}.{kind}" for kind in ("out", "err"))
        with open(out, "wb") as o, open(err, "wb") as e:
            process = subprocess.Popen(["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
                                       stdin=subprocess.DEVNULL, stdout=o, stderr=e, env=self.environment, cwd=self.folder,
                                       start_new_session=True)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        process.err_file = err
        return process

    def of_host(self, name):
        """Processes of wflow and its tasks there, with the numbers that they have here."""
        def host(pid):
            return subprocess.run(["nsenter", "--target", str(pid), "--uts", "uname", "-n"], capture_output=True, text=True).stdout.strip()
        return [pid for pid in self.processes() if self.words(pid)[0] != "unshare" and host(pid) == name]

    def study_elsewhere(self, tasks, *hosts):
        """Tasks of a group on other hosts; each waits for the gate of its host."""
        return self.study(f"""
description: {{name: elsewhere, description: a group on other hosts}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {tasks}, seed: 1, parameters: {{x: [0, 1]}}}}
workers:
  far: {{steps: [work], machines: [{", ".join(hosts)}]}}
study:
  - name: work
    run:
      cmd: |
        echo $(MERLIN_SAMPLE_ID) >> {self.folder}/began-$(uname -n)
        until [ -e {self.folder}/open-$(uname -n) ]; do sleep 0.1; done
        echo $(MERLIN_SAMPLE_ID) >> {self.folder}/passed
      shell: /bin/bash
""".replace("$(uname -n)", "`uname -n`"))

    def worker(self, name, directory, slots, last_pid=0):
        return self.on_host(name, "worker", "--campaign", directory, "--group", "far", "--slots", str(slots), last_pid=last_pid)

    def began(self, name):
        return sorted(int(n) for n in lines_of(self.folder / f"began-{name}"))


class FrozenWorker(HostsTest):
    def freeze(self, host):
        """All of its processes: one that is not stopped yet may start another, or end. Gives those that are stopped: one that was
        ending when the signal came is gone as soon as its parent looks."""
        frozen = []
        while new := [pid for pid in self.of_host(host) if pid not in frozen]:
            for pid in new:
                try:
                    os.kill(pid, signal.SIGSTOP)
                except ProcessLookupError:
                    continue
                frozen.append(pid)
        return [pid for pid in frozen if self.has_stopped(pid)]

    def has_stopped(self, pid):
        """Waits until it has stopped, or ended."""
        def state():
            stat = read_text(f"/proc/{pid}/stat")
            return stat.rpartition(") ")[2][:1] or "X"
        return wait_for(lambda: state() in "TZX" and state(), f"process {pid} stops") == "T"

    def test_thawed_after_its_fence(self):
        """Its tasks were leased again and are done elsewhere. What wakes up ends before it does anything."""
        run = self.start("run", self.study_elsewhere(4, "far1", "far2"))
        directory = self.wait_for_campaign(run)
        self.worker("far1", directory, 2)
        self.wait(lambda: len(self.began("far1")) == 2, "two tasks run on far1", run)
        frozen = self.freeze("far1")
        self.assertGreater(len(frozen), 4)
        (self.folder / "open-far2").touch()
        self.worker("far2", directory, 2)
        began = time.monotonic()
        silent = r"node far1 has been silent for \d+(\.\d)? s, with 2 running tasks: they run again elsewhere as soon as its scheduler says that it is gone, or in \d"
        self.wait(lambda: re.search(silent, self.wflow("status").out), "the status names the silent node", run)
        self.assertLess(time.monotonic() - began, FENCE_S / 2)
        self.assertEqual(run.wait(), OK, run.err)
        self.assertGreater(time.monotonic() - began, FENCE_S - 5, "not before the fence and the margin")
        self.assertEqual(Counter(lines_of(self.folder / "passed")), Counter("0123"))
        tasks = [pid for pid in frozen if "wflow" not in self.words(pid)[0]]
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):  # those that woke up first end the others
                os.kill(pid, signal.SIGCONT)
        # Only processes of this test count: beside many others, a number soon belongs to another process.
        left = lambda: [self.describe(pid) for pid in self.processes() if pid in tasks]
        try:
            wait_for(lambda: not left(), "the end of what was frozen", 30)
        except AssertionError as error:
            self.fail(f"{error}: {left()}")
        (self.folder / "open-far1").touch()
        self.assertEqual(Counter(lines_of(self.folder / "passed")), Counter("0123"), "no second copy came to its end")
        self.assertEqual(self.counts("work")["done"], 4)


class SameHostName(HostsTest):
    def test_a_stranger_with_the_worker_s_number_lives(self):
        """The guardian's number in its own table belongs to an unrelated process in the coordinator's: no process signals it."""
        stranger = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(lambda: (stranger.kill(), stranger.wait()))
        name = os.uname().nodename
        study = self.study_elsewhere(2, "far1", "far2")
        run = self.start("run", study)
        directory = self.wait_for_campaign(run)
        self.worker(name, directory, 1, last_pid=stranger.pid - 1)
        self.wait(lambda: self.began(name), "a task runs there", run)
        record = "".join(path.read_text(errors="replace") for path in directory.glob(".wflow/workers/*.journal"))
        self.assertTrue(record)
        inner = [line.split()[-1] for pid in self.of_host(name) for line in read_text(f"/proc/{pid}/status").splitlines()
                 if line.startswith("NSpid:") and len(line.split()) > 2]
        self.assertIn(str(stranger.pid), inner, "it has the stranger's number")
        # A coordinator that is killed must find out about its worker by its process: the worst case.
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        self.kill(self.processes("worker"))
        (self.folder / "open-far2").touch()
        resumed = self.start("resume", directory)
        self.worker("far2", directory, 1)
        self.assertEqual(resumed.wait(), OK, resumed.err)
        self.assertIsNone(stranger.poll(), "the stranger lives")
        self.assertEqual(Counter(lines_of(self.folder / "passed")), Counter("01"))


@unittest.skipIf(SMALL, "a sanitizer's library must come first")
class WithoutLocks(HostsTest):
    def test_two_coordinators(self):
        """The file system grants every lock to everybody: the record and its heartbeat decide."""
        library = self.folder / "no_locks.so"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("no_locks.c")], check=True)
        self.environment["LD_PRELOAD"] = str(library)
        first = self.on_host("login1", "run", self.study_elsewhere(2, "far1"))
        directory = wait_for(self.campaign, "a campaign")
        self.worker("far1", directory, 1)
        wait_for(lambda: len(self.began("far1")) == 1, "a task runs")
        second = self.on_host("login2", "resume", directory)
        self.assertEqual(second.wait(120), BUSY)
        self.assertRegex(read_text(second.err_file), r"another coordinator runs this campaign, on login1 \(pid \d+\)")
        # Frozen for so long that the next one may take over; thawed, it commits nothing.
        frozen = [pid for pid in self.of_host("login1") if "run" in self.words(pid)]
        self.assertTrue(frozen)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        third = self.on_host("login2", "resume", directory)
        wait_for(lambda: "login2" in read_text(directory / ".wflow" / "endpoint.json"), "the third has begun", 120)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(first.wait(120), BUSY, read_text(first.err_file))
        self.assertIn("has lost the campaign", read_text(first.err_file))
        # It has closed the database: the third one's commits are still there for the fourth.
        for pid in self.of_host("login2"):
            if "resume" in self.words(pid):
                os.kill(pid, signal.SIGKILL)
        third.wait(120)
        fourth = self.on_host("login2", "resume", directory)
        (self.folder / "open-far1").touch()
        self.assertEqual(fourth.wait(240), OK, read_text(fourth.err_file))
        self.assertEqual(Counter(lines_of(self.folder / "passed")), Counter("01"))
        self.assertEqual(self.began("far1"), [0, 1], "the worker followed, and ran nothing twice")


if __name__ == "__main__":
    unittest.main()
