# SPDX-License-Identifier: Apache-2.0
"""A campaign whose processes are found, killed, frozen and cleaned up, and what its database says at the end."""

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from truth import Truth

HERE = Path(__file__).resolve().parent
MARK = "WFLOW_CHAOS_FOLDER"
POLL_S = 0.005
LEFT_S = 30  # what belongs to a campaign may take so long to end after it


def compile_c(source, target, *options):
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-o", target, HERE / source, *options, "-lm"], check=True)
    return Path(target)


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(POLL_S)
    return value


def read_bytes(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def stat_of(pid):
    """State, parent, session; None when it has ended."""
    fields = read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[1]), int(fields[3])) if fields and fields[0] not in b"ZX" else None


def send(number, pids):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Campaign:
    """One campaign in a temporary folder: `steps` of the simulator, each sample of a step after the same one of the step before."""

    def __init__(self, binary, task, environment=None):
        self.wflow, self.task = binary / "wflow", task
        self.folder = Path(tempfile.mkdtemp(prefix="wfchaos-")).resolve()
        self.truth = Truth(self.folder / "truth")
        self.environment = {**os.environ, MARK: str(self.folder), "XDG_STATE_HOME": str(self.folder / "state"), "LC_ALL": "C.UTF-8",
                            **(environment or {})}
        self.coordinator = None
        self.starts = 0
        self.faults = defaultdict(list)  # pid: (nanoseconds, signal)

    # ---- the study and its coordinators

    def write_study(self, tasks, durations_ms, steps="a", groups=(), output="files", failures=0):
        study = ["description: {name: chaos, description: nothing}", f"env: {{variables: {{OUTPUT_PATH: {self.folder}}}}}",
                 f"samples: {{design: uniform, count: {tasks}, seed: 1, parameters: {{x: [0, 1]}}}}"]
        if groups:
            study.append("workers: {" + ", ".join(f"group{i}: {{slots: {slots}}}" for i, slots in enumerate(groups)) + "}")
        study.append("study:")
        for i, step in enumerate(steps):
            command = f"{self.task} {self.folder}/truth {self.folder}/locks {step} $(MERLIN_SAMPLE_ID) {durations_ms[0]} {durations_ms[1]} {failures}"
            depends = f", depends: [{steps[i - 1]}]" if i else ""
            study += [f"  - name: {step}", f'    run: {{cmd: "{command}", max_retries: 50, retry_delay: 0, output: {output}{depends}}}']
        (self.folder / "study.yaml").write_text("\n".join(study) + "\n")
        self.expected = {(step, element) for step in steps for element in range(tasks)}

    def directory(self):
        found = [path.parent.parent for path in self.folder.glob("chaos_*/.wflow/campaign.db")]
        return found[0] if found else None

    def start(self, slots=0):
        """`wflow run`, or `wflow resume` where there is a campaign already."""
        directory = self.directory()
        arguments = ["resume", directory] if directory else ["run", self.folder / "study.yaml"]
        self.coordinator = self.spawn(*arguments, "-q", *(["-j", str(slots)] if slots else []))
        self.starts += 1
        return self.coordinator

    def spawn(self, *arguments):
        with open(self.folder / "out", "ab") as out:
            return subprocess.Popen([str(a) for a in (self.wflow, *arguments)], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                    stdout=out, stderr=out, start_new_session=True)

    def printed(self):
        return read_bytes(self.folder / "out").decode(errors="replace")

    # ---- processes

    def processes(self):
        """Every process of this campaign, by its environment."""
        mark = f"{MARK}={self.folder}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if mark in read_bytes(f"/proc/{pid}/environ").split(b"\0") and stat_of(pid)]

    def workers(self):
        """Session: {"guardian": pid, "agent": pid} as far as they live. A guardian leads its session; what an agent has
        forked and what has not become a task yet looks like an agent whose parent is one."""
        found = defaultdict(dict)
        ours = {}
        for pid in self.processes():
            command = read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
            if len(command) > 1 and command[1] == b"worker" and (stat := stat_of(pid)):
                ours[pid] = stat
        for pid, (_, parent, session) in ours.items():
            if pid == session:
                found[session]["guardian"] = pid
            elif parent == session or parent not in ours:
                found[session]["agent"] = pid
        return found

    def tasks(self):
        program = os.fsencode(self.task)
        return [pid for pid in self.processes() if read_bytes(f"/proc/{pid}/cmdline").split(b"\0")[0] == program]

    def signal(self, number, pids):
        now = time.monotonic_ns()
        for pid in pids:
            self.faults[pid].append((now, number))
        send(number, pids)

    def kill(self, pids):
        """In the same instant, as far as they can tell."""
        if len(pids) > 1:
            self.signal(signal.SIGSTOP, pids)
        self.signal(signal.SIGKILL, pids)

    def stop_everything(self):
        """Every process, with what they fork meanwhile: what is stopped forks no more."""
        stopped = []
        while new := [pid for pid in self.processes() if pid not in stopped]:
            self.signal(signal.SIGSTOP, new)
            stopped += new
        return stopped

    def running_ns(self, pid, since):
        """How long it has run after that moment, until it was killed; None when it was not killed."""
        total, running_since = 0, since
        for at, number in self.faults.get(pid, ()):
            if number == signal.SIGSTOP:
                total += max(0, at - running_since) if running_since is not None else 0
                running_since = None
            elif number == signal.SIGCONT and running_since is None:
                running_since = max(at, since)
            elif number == signal.SIGKILL:
                return total + (max(0, at - running_since) if running_since is not None else 0), at
        return None

    # ---- the end

    def left(self):
        """Processes that do not end by themselves after the campaign's end."""
        try:
            wait_for(lambda: not self.processes(), "the end of all processes", LEFT_S)
            return []
        except TimeoutError:
            return [read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in self.processes()]

    def done(self):
        """(step, element) that the database says are done."""
        # A connection that is left open keeps every command from reading the record.
        with closing(sqlite3.connect(f"file:{self.directory()}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            runs = database.execute("SELECT step, first, last FROM v_runs WHERE state = 'done'").fetchall()
        return {(step, element) for step, first, last in runs for element in range(first, last + 1)}

    def clean_up(self):
        while left := self.processes():
            send(signal.SIGKILL, left)
            time.sleep(POLL_S)
        if self.coordinator:
            self.coordinator.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
