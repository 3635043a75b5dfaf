#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stops of campaigns whose tasks end all the time: what has succeeded does not run again.

  tests/chaos/stops.py [--stops N] [--beside N] [--bin DIR] [--jobs N] [--seed N] [--json FILE] [-v]

Campaigns of 25 stops each, four tasks of 20 to 70 ms at a time; after each stop `wflow resume`. The stops are, in turn: `wflow stop`,
SIGTERM, Ctrl-C twice, SIGTERM of the worker, and `wflow resume --update`, by which another coordinator takes over while the first one still
runs. `--beside` starts so many other processes first: a search through all processes of the machine takes longer then. As root: the kernel
says which tasks a signal has ended between their last line and their exit.
"""

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

from campaign import POLL_S, Campaign, compile_c, send, wait_for
from kill_schedules import arguments
from truth import KilledProcesses

SLOTS = 4
STOPS = 25
DURATIONS_MS = (20, 70)
KINDS = ("wflow stop", "SIGTERM", "Ctrl-C twice", "takeover by an update", "SIGTERM of the worker")
DEADLINE_S = 120


@dataclass
class Result:
    stops: Counter = field(default_factory=Counter)
    executions: int = 0
    again: Counter = field(default_factory=Counter)  # by the stop before the second execution
    ended_by_signals: int = 0
    overlaps: int = 0
    problems: list = field(default_factory=list)

    def add(self, other):
        self.stops += other.stops
        self.again += other.again
        self.executions += other.executions
        self.ended_by_signals += other.ended_by_signals
        self.overlaps += other.overlaps
        self.problems += other.problems

    def broken(self):
        return bool(self.again or self.overlaps or self.problems)


class Stops:
    """One campaign."""

    def __init__(self, campaign, rng, result, killed):
        self.campaign, self.rng, self.result, self.killed = campaign, rng, result, killed
        self.moments = []  # (nanoseconds, kind)
        self.updates = 0

    def tasks_end(self, count, since):
        """Returns whether so many tasks have ended since then; the campaign may be over."""
        self.campaign.truth.read()
        return self.campaign.truth.ended >= since + count or self.campaign.coordinator.poll() is not None

    def stop(self, kind):
        campaign, coordinator = self.campaign, self.campaign.coordinator
        self.moments.append((time.monotonic_ns(), kind))
        if kind == "wflow stop":
            subprocess.run([campaign.wflow, "stop", campaign.directory()], env=campaign.environment, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=DEADLINE_S)
        elif kind == "SIGTERM":
            send(signal.SIGTERM, [coordinator.pid])
        elif kind == "Ctrl-C twice":
            send(signal.SIGINT, [coordinator.pid])
            time.sleep(self.rng.random() * 0.03)  # as far apart as a person's are, or less
            send(signal.SIGINT, [coordinator.pid])
        elif kind == "SIGTERM of the worker":
            send(signal.SIGTERM, [w["guardian"] for w in campaign.workers().values() if "guardian" in w])
            return  # the coordinator starts another one
        else:
            self.update()
            campaign.coordinator = campaign.spawn("resume", campaign.directory(), "--update", "-y", "-q", "-j", SLOTS)
            campaign.starts += 1
            coordinator.wait(DEADLINE_S)
            return
        coordinator.wait(DEADLINE_S)
        campaign.start(SLOTS)

    def update(self):
        """Applies to what runs from now on: nothing is stale."""
        study = self.campaign.folder / "study.yaml"
        self.updates += 1
        lines = [line.replace("max_retries: 50", f"max_retries: {50 + self.updates}") for line in self.study]
        study.write_text("\n".join(lines))

    def play(self, stops, first):
        # The stops let so many tasks end; a few more are left over.
        self.campaign.write_study(stops * 40 + 40, DURATIONS_MS)
        self.study = (self.campaign.folder / "study.yaml").read_text().split("\n")
        self.campaign.start(SLOTS)
        for i in range(stops):
            self.campaign.truth.read()
            since, count = self.campaign.truth.ended, self.rng.randint(4, 30)
            wait_for(lambda: self.tasks_end(count, since), f"{count} more tasks", DEADLINE_S)
            if (code := self.campaign.coordinator.poll()) is not None:
                if code != 0:
                    self.result.problems.append(f"a coordinator ended with {code}: {self.campaign.printed()[-500:]}")
                break
            time.sleep(self.rng.random() * 0.05)
            kind = KINDS[(first + i) % len(KINDS)]
            self.stop(kind)
            self.result.stops[kind] += 1
        code = self.campaign.coordinator.wait(DEADLINE_S)
        for _ in range(3):
            if code == 0:
                break
            code = self.campaign.start(SLOTS).wait(DEADLINE_S)
        if code != 0:
            self.result.problems.append(f"the campaign does not end, code {code}: {self.campaign.printed()[-500:]}")
        self.check()

    def check(self):
        campaign, result, truth = self.campaign, self.result, self.campaign.truth
        truth.read()
        result.ended_by_signals = truth.without_killed(self.killed, {})
        result.executions = len(truth.executions)
        for _, again in truth.reruns():
            before = [kind for at, kind in self.moments if at < again.begin]
            result.again[before[-1] if before else "nothing"] += 1
        result.overlaps = len(truth.overlaps())
        if left := campaign.left():
            result.problems.append(f"processes are left: {left}")
        done = campaign.done()
        if done - truth.succeeded():
            result.problems.append(f"done in the database, and did not succeed: {sorted(done - truth.succeeded())[:5]}")
        if campaign.expected - done:
            result.problems.append(f"not done in the database: {sorted(campaign.expected - done)[:5]}")


def play(binary, task, killed, stops, seed, keep=False):
    campaign, result = Campaign(binary, task), Result()
    try:
        Stops(campaign, random.Random(seed), result, killed).play(stops, seed)
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        result.problems.append(f"seed {seed}: {error}: {campaign.printed()[-500:]}")
    finally:
        if keep and result.broken():
            shutil.copytree(campaign.folder, Path(tempfile.gettempdir()) / f"stops-{seed}", dirs_exist_ok=True)
        campaign.clean_up()
    return result


class Beside:
    """So many processes that only sleep."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        self.shell = None
        if self.count > 0:
            self.shell = subprocess.Popen(["/bin/sh", "-c", f"i=0; while [ $i -lt {self.count} ]; do sleep 86400 & i=$((i+1)); done; wait"],
                                          start_new_session=True)
            wait_for(lambda: len(self.mine()) >= self.count, "other processes")
        return self

    def mine(self):
        found = subprocess.run(["ps", "-o", "pid=", "-s", str(self.shell.pid)], capture_output=True, text=True)
        return found.stdout.split()

    def __exit__(self, *_):
        if self.shell:
            os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.wait()


def main():
    parser = arguments(__doc__)
    parser.add_argument("--stops", type=int, default=2000)
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="other processes on the machine")
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", action="store_true", help="a line for each campaign")
    options = parser.parse_args()
    killed = KilledProcesses()
    if not killed.available:
        print("without root a task that is killed between its last line and its exit counts as finished")
    total, begin = Result(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool, Beside(options.beside):
        task = compile_c("task.c", Path(folder) / "task")
        seeds = range(options.seed, options.seed + max(1, options.stops // STOPS))
        for seed, result in zip(seeds, pool.map(lambda s: play(options.bin.resolve(), task, killed.killed, min(STOPS, options.stops), s, options.keep), seeds)):
            if options.v or result.broken():
                print(f"seed {seed}: {sum(result.stops.values())} stops, {result.executions} executions, again {dict(result.again)}, "
                      f"{result.ended_by_signals} ended by signals at their exit, problems {result.problems}", flush=True)
            total.add(result)
    summary = {"stops": dict(sorted(total.stops.items())), "all": sum(total.stops.values()), "beside": options.beside, "executions": total.executions,
               "finished ones run again": sum(total.again.values()), "by stop": dict(total.again), "twice at once": total.overlaps,
               "ended by signals at their exit": total.ended_by_signals, "problems": len(total.problems), "seconds": round(time.monotonic() - begin)}
    print(json.dumps(summary, indent=2))
    if options.json:
        options.json.write_text(json.dumps(summary, indent=1) + "\n")
    sys.exit(1 if total.broken() else 0)


if __name__ == "__main__":
    main()
