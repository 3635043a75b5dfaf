#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of SIGKILL and SIGSTOP/SIGCONT over the processes of small campaigns, resumed until they have ended.

  tests/chaos/kill_schedules.py [--seeds FIRST COUNT] [--bin DIR] [--jobs N] [--json FILE] [--keep] [-v]

A seed decides on the campaign and its faults; the timing is the machine's. Checked for each campaign, against the record
that the simulator itself keeps: what has succeeded does not run again, no two executions of an element at once, the
database says what the record says, no process is left, and all of it within a bounded time. A sample that runs again since
its agent and guardian were killed together, between its end and the journal's write, is the documented exception: it is counted apart.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from campaign import POLL_S, Campaign, compile_c
from truth import SECOND, KilledProcesses

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240
PATIENCE_S = 3        # a fault comes so long after the last one, where the campaign makes no progress
MISSED_S = 1          # so long for what a fault is for to be there at all
TOGETHER_NS = SECOND // 2  # an agent that has run for less after a task's end was killed "in the same instant"

# Name: what is frozen, what is killed, how often it is chosen.
FAULTS = {
    "kill coordinator": ((), ("coordinator",), 6),
    "kill guardian": ((), ("guardian",), 4),
    "kill agent": ((), ("agent",), 4),
    "kill task": ((), ("task",), 3),
    "kill coordinator and guardian": ((), ("coordinator", "guardian"), 3),
    "kill coordinator and agent": ((), ("coordinator", "agent"), 2),
    "kill guardian and agent": ((), ("guardian", "agent"), 1),
    "kill everything": ((), ("everything",), 2),
    "freeze coordinator": (("coordinator",), (), 2),
    "freeze guardian": (("guardian",), (), 1),
    "freeze agent": (("agent",), (), 2),
    "freeze task": (("task",), (), 1),
    "freeze everything": (("everything",), (), 1),
    "freeze agent, kill guardian": (("agent",), ("guardian",), 3),
    "freeze agent, kill coordinator": (("agent",), ("coordinator",), 2),
    "freeze guardian, kill agent": (("guardian",), ("agent",), 1),
    "freeze guardian, kill coordinator": (("guardian",), ("coordinator",), 1),
    "freeze task, kill guardian": (("task",), ("guardian",), 1),
}
DURATIONS_MS = ((0.4, 0.4), (0.4, 4), (4, 40), (40, 400), (0.4, 400))


@dataclass
class Fault:
    name: str
    after: int          # successes
    jitter_s: float
    thaw_s: float
    which: float        # of several workers or tasks: 0 to 1
    resume_after_s: float


@dataclass
class Schedule:
    """Everything that a seed decides."""
    seed: int
    durations_ms: tuple
    tasks: int
    steps: str
    groups: tuple
    slots: int
    output: str
    failures: int
    faults: list
    deadline_s: int = DEADLINE_S

    @classmethod
    def of(cls, seed, scale=1.0, most_faults=8):
        rng = random.Random(seed)
        durations = rng.choice(DURATIONS_MS)
        steps = rng.choice(("a", "ab"))
        groups = rng.choice(((), (), (1, 1), (2, 1), (1, 1, 2)))
        slots = rng.randint(1, 4)
        middle_ms = (durations[0] + durations[1]) / 4 + 1  # with what it takes to start one
        tasks = max(12, min(1500, int(scale * 3000 * (sum(groups) or slots) / middle_ms / len(steps))))
        output, failures = rng.choice(("files", "packed")), rng.choice((0, 0, 30))
        names, weights = list(FAULTS), [weight for _, _, weight in FAULTS.values()]
        count = rng.randint(1, most_faults)
        moments = sorted(rng.random() * 0.95 for _ in range(count))
        faults = [Fault(rng.choices(names, weights)[0], int(moment * tasks * len(steps)), rng.random() ** 2 * 0.05,
                        rng.choice((0.02, 0.2, 1, 3)) * rng.random(), rng.random(), rng.choice((0, 0, 0.05, 0.5)) * rng.random())
                  for moment in moments]
        return cls(seed, durations, tasks, steps, groups, slots, output, failures, faults)

    def text(self):
        faults = ", ".join(f"{f.name} after {f.after}" for f in self.faults)
        return (f"seed {self.seed}: {self.tasks} tasks of {self.durations_ms[0]} to {self.durations_ms[1]} ms, steps {self.steps}, "
                f"{f'groups {self.groups}' if self.groups else f'-j {self.slots}'}, {self.output}, {self.failures} failures in 1,000; {faults}")


@dataclass
class Result:
    seed: int
    faults: Counter = field(default_factory=Counter)
    executions: int = 0
    resumes: int = 0
    reruns: int = 0
    exceptions: int = 0
    overlaps: int = 0
    killed_at_exit: int = 0
    problems: list = field(default_factory=list)
    seconds: float = 0

    def broken(self):
        return self.reruns + self.overlaps > 0 or bool(self.problems)

    def text(self):
        return (f"{self.seconds:.1f} s, {self.executions} executions, {sum(self.faults.values())} faults, {self.resumes} resumes, "
                f"{self.reruns} reruns, {self.overlaps} overlaps, {self.exceptions} exceptions" + "".join(f"\n  {p}" for p in self.problems))


class Player:
    """Plays one schedule on one campaign."""

    def __init__(self, schedule, campaign, result):
        self.schedule, self.campaign, self.result = schedule, campaign, result
        self.waiting = list(schedule.faults)
        self.thaws = []  # (time, pids)
        self.resume_after_s = 0
        self.last_progress = (time.monotonic(), 0)
        self.due = None

    def play(self):
        """Until the campaign has ended; false where it does not."""
        end = time.monotonic() + self.schedule.deadline_s
        slots = 0 if self.schedule.groups else self.schedule.slots
        self.campaign.start(slots)
        ended_at = None
        while time.monotonic() < end:
            now = time.monotonic()
            self.campaign.truth.read()
            self.thaw(now)
            self.strike(now)
            code = self.campaign.coordinator.poll()
            if code == 0 and not self.thaws:
                return True
            if code not in (None, 0):
                ended_at = ended_at or now
                if now > ended_at + self.resume_after_s:
                    self.check_code(code)
                    self.campaign.start(slots)
                    ended_at = None
            time.sleep(POLL_S)
        return False

    def check_code(self, code):
        # 6: told to stop; every other one that is no signal of ours is a coordinator that gave up.
        if code != -signal.SIGKILL:
            self.result.problems.append(f"a coordinator ended with {code}: {self.campaign.printed()[-500:]}")
            self.resume_after_s = 1

    def thaw(self, now):
        for at, pids in list(self.thaws):
            if now >= at:
                self.campaign.signal(signal.SIGCONT, pids)
                self.thaws.remove((at, pids))

    def strike(self, now):
        if not self.waiting or not self.campaign.directory():
            return
        fault = self.waiting[0]
        if self.campaign.truth.ended != self.last_progress[1]:
            self.last_progress = (now, self.campaign.truth.ended)
        reached = self.campaign.truth.ended >= fault.after or now > self.last_progress[0] + PATIENCE_S
        if self.due is None and reached:
            self.due = now + fault.jitter_s
        if self.due is None or now < self.due:
            return
        if self.apply(fault, now):
            self.result.faults[fault.name] += 1
        elif now < self.due + MISSED_S:
            return  # there is no such process at this moment: a worker or a coordinator is just starting
        self.waiting.pop(0)
        self.due = None
        self.last_progress = (time.monotonic(), self.campaign.truth.ended)

    def apply(self, fault, now):
        freeze, kill, _ = FAULTS[fault.name]
        worker = self.worker(fault)
        frozen = [pid for kind in freeze for pid in self.pids(kind, worker, fault)]
        killed = [pid for kind in kill for pid in self.pids(kind, worker, fault)]
        if len(frozen) < len(freeze) or len(killed) < len(kill):
            if "everything" in freeze:
                self.campaign.signal(signal.SIGCONT, frozen)
            return False
        if frozen:
            self.campaign.signal(signal.SIGSTOP, frozen)
            self.thaws.append((now + fault.thaw_s, frozen))
        if killed:
            self.campaign.kill(killed)
        self.resume_after_s = fault.resume_after_s
        return True

    def worker(self, fault):
        workers = [w for _, w in sorted(self.campaign.workers().items()) if len(w) == 2]
        return workers[int(fault.which * len(workers))] if workers else {}

    def pids(self, kind, worker, fault):
        if kind == "everything":
            return self.campaign.stop_everything()
        if kind == "coordinator":
            return [self.campaign.coordinator.pid] if self.campaign.coordinator.poll() is None else []
        if kind == "task":
            tasks = sorted(self.campaign.tasks())
            return [tasks[int(fault.which * len(tasks))]] if tasks else []
        return [worker[kind]] if kind in worker else []


def is_exception(campaign, execution):
    """Agent and guardian were killed together between the task's end and the write of the journal. The agent would have
    written it, or after the agent's end the guardian: neither had the time to."""
    agent = campaign.running_ns(execution.agent, execution.end)
    if agent is None or agent[0] > TOGETHER_NS:
        return False
    guardian = campaign.running_ns(execution.guardian, max(execution.end, agent[1]))
    return guardian is not None and guardian[0] <= TOGETHER_NS


def check(campaign, killed, result):
    truth = campaign.truth
    truth.read()
    result.killed_at_exit = truth.without_killed(killed, campaign.faults)
    result.executions = len(truth.executions)
    for first, _ in truth.reruns():
        if is_exception(campaign, first):
            result.exceptions += 1
        else:
            result.reruns += 1
    result.overlaps = len(truth.overlaps())
    if left := campaign.left():
        result.problems.append(f"processes are left: {left}")
    if not campaign.directory():
        return
    done, succeeded = campaign.done(), truth.succeeded()
    if done - succeeded:
        result.problems.append(f"{len(done - succeeded)} are done in the database and did not succeed: {sorted(done - succeeded)[:5]}")
    if campaign.expected - done:
        result.problems.append(f"{len(campaign.expected - done)} are not done in the database: {sorted(campaign.expected - done)[:5]}")


def play(schedule, binary, task, killed, keep=False):
    campaign, result, begin = Campaign(binary, task), Result(schedule.seed), time.monotonic()
    try:
        campaign.write_study(schedule.tasks, schedule.durations_ms, schedule.steps, schedule.groups, schedule.output, schedule.failures)
        if not Player(schedule, campaign, result).play():
            result.problems.append(f"not ended after {schedule.deadline_s} s: {campaign.printed()[-500:]}")
            campaign.signal(signal.SIGKILL, campaign.stop_everything())
        check(campaign, killed, result)
        result.resumes = campaign.starts - 1
        if keep and result.broken():
            shutil.copytree(campaign.folder, ROOT / "build" / "chaos" / f"seed-{schedule.seed}", dirs_exist_ok=True)
    finally:
        campaign.clean_up()
    result.seconds = time.monotonic() - begin
    return result


def summary(results):
    faults = sum((r.faults for r in results), Counter())
    return {"campaigns": len(results), "executions": sum(r.executions for r in results), "resumes": sum(r.resumes for r in results),
            "faults": dict(sorted(faults.items())), "reruns": sum(r.reruns for r in results), "overlaps": sum(r.overlaps for r in results),
            "exceptions": sum(r.exceptions for r in results), "killed at exit": sum(r.killed_at_exit for r in results),
            "broken": sorted(r.seed for r in results if r.broken()), "longest_s": round(max((r.seconds for r in results), default=0), 1)}


def arguments(description):
    """The parser of what this program and targeted.py have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path(os.environ.get("WFLOW_BIN", ROOT / "build" / "release" / "bin")))
    parser.add_argument("--json", type=Path, help="write the summary and every result into this file")
    parser.add_argument("--keep", action="store_true", help="copy the folders of broken campaigns to build/chaos")
    return parser


def main():
    parser = arguments(__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(1, 200), metavar=("FIRST", "COUNT"))
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at a time")
    parser.add_argument("-v", action="store_true", help="say what each seed decides")
    options = parser.parse_args()
    killed = KilledProcesses()
    if not killed.available:
        print("without root a task that is killed between its last line and its exit counts as finished")
    results = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        task = compile_c("task.c", Path(folder) / "task")
        schedules = [Schedule.of(seed) for seed in range(options.seeds[0], sum(options.seeds))]
        for schedule, result in zip(schedules, pool.map(lambda s: play(s, options.bin.resolve(), task, killed.killed, options.keep), schedules)):
            results.append(result)
            if options.v or result.broken():
                print(schedule.text())
            print(f"seed {result.seed}: {result.text()}", flush=True)
    total = summary(results)
    print(json.dumps(total, indent=2))
    if options.json:
        options.json.write_text(json.dumps({**total, "results": [vars(r) for r in results]}, indent=1) + "\n")
    sys.exit(1 if total["broken"] else 0)


if __name__ == "__main__":
    main()
