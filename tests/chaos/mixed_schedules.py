#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of what a user does to a campaign that runs - stops, updates, redo, extend, exec, doctor, status - mixed with SIGKILL.

  tests/chaos/mixed_schedules.py [--seeds FIRST COUNT] [--bin DIR] [--jobs N] [--json FILE] [--keep] [-v]

A seed decides the campaign and its events; the machine decides their timing. Each task appends a metric, so that steps that an update renames
have reported some. Checked against the simulator's own record: what succeeded runs again only where a redo asked for it, no two executions of
an element at once, the database and the record agree, every command ends with a documented exit code, no process is left.
"""

import json
import random
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
from kill_schedules import arguments, is_exception
from truth import KilledProcesses

STALLED_S = 3      # an event comes so long after the last success, where the campaign makes no progress
DEADLINE_S = 300
EVENTS = {  # and how often each is chosen
    "stop": 5, "term": 4, "interrupt twice": 3, "update": 5, "rename": 2, "redo": 4, "extend": 3,
    "exec": 2, "doctor": 2, "status": 2, "kill coordinator": 2, "kill agent": 1, "kill guardian": 1, "kill everything": 1}
LOOKS = (("status",), ("status", "--json"), ("history",), ("curves",), ("diff",), ("metrics",))
DOCUMENTED_CODES = {0, 1, 6, 7}


@dataclass
class Event:
    name: str
    after: int      # successes
    jitter_s: float
    number: int


@dataclass
class Schedule:
    """Everything that a seed decides."""
    seed: int
    tasks: int
    slots: int
    output: str
    events: list

    @classmethod
    def of(cls, seed, tasks=(60, 160), most_events=6):
        rng = random.Random(seed)
        count = rng.randint(*tasks)
        moments = sorted(rng.random() * 0.95 for _ in range(rng.randint(2, most_events)))
        names = rng.choices(list(EVENTS), list(EVENTS.values()), k=len(moments))
        events = [Event(name, int(moment * count * 2), rng.random() * 0.08, rng.randrange(1 << 16)) for name, moment in zip(names, moments)]
        return cls(seed, count, rng.randint(2, 4), rng.choice(("files", "packed")), events)

    def text(self):
        events = ", ".join(f"{e.name} after {e.after}" for e in self.events)
        return f"seed {self.seed}: {self.tasks} tasks in two steps, -j {self.slots}, {self.output}; {events}"


@dataclass
class Result:
    seed: int
    events: Counter = field(default_factory=Counter)
    executions: int = 0
    starts: int = 0
    reruns: int = 0
    asked: int = 0
    exceptions: int = 0
    overlaps: int = 0
    problems: list = field(default_factory=list)
    seconds: float = 0

    def broken(self):
        return self.reruns + self.overlaps > 0 or bool(self.problems)

    def text(self):
        return (f"{self.seconds:.1f} s, {self.executions} executions, {sum(self.events.values())} events, {self.starts} starts, {self.reruns} reruns, "
                f"{self.asked} asked for, {self.overlaps} overlaps, {self.exceptions} exceptions" + "".join(f"\n  {p}" for p in self.problems))


class Study:
    """The file that the events change. Each name of the second step is used once: so the record distinguishes what it ran."""

    def __init__(self, schedule, campaign):
        self.schedule, self.campaign = schedule, campaign
        self.count, self.second, self.retries = schedule.tasks, "b", 50

    def expected(self):
        return {(step, element) for step in ("a", self.second) for element in range(self.count)}

    def write(self):
        folder, lines = self.campaign.folder, []
        lines += ["description: {name: chaos, description: nothing}", f"env: {{variables: {{OUTPUT_PATH: {folder}}}}}",
                  f"samples: {{design: uniform, count: {self.count}, seed: 1, parameters: {{x: [0, 1]}}}}", "study:"]
        for step, depends in (("a", ""), (self.second, ", depends: [a]")):
            metric = '{"type": "metric", "name": "loss", "epoch": 1, "step": 1, "value": 1}'
            command = f"{self.campaign.task} {folder}/truth {folder}/locks {step} $(MERLIN_SAMPLE_ID) 20 70"
            # The record of what ran stands beside the study, and changes: it is no source of a step that an update adds.
            lines += [f"  - name: {step}", "    sources: none", "    run:", "      cmd: |", f"        echo '{metric}' >> $WFLOW_EVENTS", f"        exec {command}",
                      f"      max_retries: {self.retries}", "      retry_delay: 0", f"      output: {self.schedule.output}"]
            if depends:
                lines.append("      depends: [a]")
        (folder / "study.yaml").write_text("\n".join(lines) + "\n")


class Player:
    """Plays one schedule on one campaign."""

    def __init__(self, schedule, campaign, result):
        self.schedule, self.campaign, self.result = schedule, campaign, result
        self.study = Study(schedule, campaign)
        self.asked = Counter()  # (step, element): how often a redo was asked for
        self.others = []

    def play(self):
        self.end = time.monotonic() + DEADLINE_S
        self.study.write()
        self.start("run", self.campaign.folder / "study.yaml")
        for event in self.schedule.events:
            self.wait_until(event.after)
            time.sleep(event.jitter_s)
            self.apply(event)
            self.result.events[event.name] += 1
        return self.finish()

    def start(self, *command):
        arguments = [*command, "-q", "-j", str(self.schedule.slots)]
        self.campaign.coordinator = self.campaign.spawn(*arguments)
        self.others.append((command[0], self.campaign.coordinator))
        self.result.starts += 1

    def resume(self):
        if self.campaign.directory():
            self.start("resume", self.campaign.directory())
        else:
            self.start("run", self.campaign.folder / "study.yaml")

    def wait_until(self, successes):
        truth, last = self.campaign.truth, (time.monotonic(), -1)
        while True:
            truth.read()
            now = time.monotonic()
            if truth.ended != last[1]:
                last = (now, truth.ended)
            if truth.ended >= successes or now > last[0] + STALLED_S or now > self.end:
                return
            if self.campaign.coordinator.poll() is not None:
                self.resume()
            time.sleep(POLL_S)

    def beside(self, *command):
        """A command beside the coordinator that is expected to end by itself."""
        process = self.campaign.spawn(*command)
        self.others.append((command[0], process))
        return process

    def take_over(self, *command):
        """A command that drains the coordinator and goes on in its place."""
        self.start(*command)

    def apply(self, event):
        directory = self.campaign.directory()
        if not directory:
            return
        name, campaign = event.name, self.campaign
        if name == "stop":
            self.beside("stop", directory)
        elif name in ("term", "interrupt twice"):
            number = signal.SIGTERM if name == "term" else signal.SIGINT
            for _ in range(1 if name == "term" else 2):
                if campaign.coordinator.poll() is None:
                    campaign.coordinator.send_signal(number)
                time.sleep(event.number % 20 / 1000)
        elif name == "update":
            self.study.retries = 20 + event.number % 30
            self.study.write()
            self.take_over("resume", directory, "--update", "--yes")
        elif name == "rename":
            self.study.second = chr(ord(self.study.second) + 1)
            self.study.write()
            self.take_over("resume", directory, "--update", "--yes")
        elif name == "extend":
            self.study.count += 5 + event.number % 20
            self.study.write()
            self.take_over("extend", directory, "--count", self.study.count, "--yes")
        elif name == "redo":
            element = event.number % self.schedule.tasks
            for step in ("a", *(chr(c) for c in range(ord("b"), ord("z")))):
                self.asked[step, element] += 1
            self.take_over("redo", directory, f"a/{element}", "--yes")
        elif name == "exec":
            self.beside("exec", "-j", "2", "--", "sh", "-c", "exit 0", ":::", "1", "2", "3", "4")
        elif name == "doctor":
            self.beside("doctor", directory)
        elif name == "status":
            self.beside(*LOOKS[event.number % len(LOOKS)], directory)
        else:
            self.kill(name.removeprefix("kill "))

    def kill(self, kind):
        campaign = self.campaign
        if kind == "everything":
            campaign.signal(signal.SIGKILL, campaign.stop_everything())
        elif kind == "coordinator":
            campaign.signal(signal.SIGKILL, [campaign.coordinator.pid])
        else:
            campaign.signal(signal.SIGKILL, [w[kind] for w in campaign.workers().values() if kind in w][:1])

    def finish(self):
        """Resumes with the newest file until everything is done; false where that does not come to an end."""
        update_taken = False
        while time.monotonic() < self.end:
            try:
                code = self.campaign.coordinator.wait(max(1, self.end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
            if code == 0 and update_taken:
                return True
            update_taken = True
            self.start("resume", self.campaign.directory(), "--update", "--yes")
            if code not in (0, None):
                time.sleep(0.05)
        return False

    def check_codes(self):
        for name, process in self.others:
            try:
                code = process.wait(30)
            except subprocess.TimeoutExpired:
                self.result.problems.append(f"{name} does not end")
                continue
            ours = any(number == signal.SIGKILL for _, number in self.campaign.faults.get(process.pid, ()))
            # A signal that came before the program had a handler ends it.
            early = code in (-signal.SIGTERM, -signal.SIGINT)
            nothing_to_stop = name == "stop" and code == 2
            if code not in DOCUMENTED_CODES and not ours and not early and not nothing_to_stop:
                self.result.problems.append(f"{name} ended with {code}: {self.campaign.printed()[-800:]}")


def check(player, killed):
    campaign, result = player.campaign, player.result
    player.check_codes()
    truth = campaign.truth
    truth.read()
    truth.without_killed(killed, campaign.faults)
    result.executions = len(truth.executions)
    for key, executions in truth.by_element().items():
        successes = []
        for execution in executions:
            # A redo may be stopped and begin again: it has ended with a success.
            if len(successes) > player.asked[key]:
                if is_exception(campaign, successes[-1]):
                    result.exceptions += 1
                else:
                    result.reruns += 1
                    result.problems.append(f"{key[0]}/{key[1]} ran again {(execution.begin - successes[-1].end) / 1e6:.1f} ms after its success")
            elif successes:
                result.asked += 1
            if execution.success:
                successes.append(execution)
    result.overlaps = len(truth.overlaps())
    if left := campaign.left():
        result.problems.append(f"processes are left: {left}")
    done, succeeded, expected = campaign.done(), truth.succeeded(), player.study.expected()
    done = {entry for entry in done if entry[0] in ("a", player.study.second)}
    if done - succeeded:
        result.problems.append(f"{len(done - succeeded)} are done in the database and did not succeed: {sorted(done - succeeded)[:5]}")
    if expected - done:
        result.problems.append(f"{len(expected - done)} are not done in the database: {sorted(expected - done)[:5]}")
    for look in LOOKS:
        process = subprocess.run([str(a) for a in (campaign.wflow, *look, campaign.directory())], env=campaign.environment, capture_output=True,
                                 text=True, check=False)
        if process.returncode != 0 and look[0] != "curves":
            result.problems.append(f"{' '.join(look)} ended with {process.returncode}: {process.stderr[-300:]}")


def play(schedule, binary, task, killed, keep=None):
    campaign, result, begin = Campaign(binary, task), Result(schedule.seed), time.monotonic()
    try:
        player = Player(schedule, campaign, result)
        if not player.play():
            result.problems.append(f"not ended after {DEADLINE_S} s: {campaign.printed()[-800:]}")
            campaign.signal(signal.SIGKILL, campaign.stop_everything())
        check(player, killed)
        if keep and result.broken():
            subprocess.run(["cp", "-a", campaign.folder, keep / f"seed-{schedule.seed}"], check=False)
    finally:
        campaign.clean_up()
    result.seconds = time.monotonic() - begin
    return result


def summary(results):
    return {"campaigns": len(results), "executions": sum(r.executions for r in results), "starts": sum(r.starts for r in results),
            "events": dict(sorted(sum((r.events for r in results), Counter()).items())), "reruns": sum(r.reruns for r in results),
            "asked": sum(r.asked for r in results), "overlaps": sum(r.overlaps for r in results), "exceptions": sum(r.exceptions for r in results),
            "broken": sorted(r.seed for r in results if r.broken()), "longest_s": round(max((r.seconds for r in results), default=0), 1)}


def main():
    parser = arguments(__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(1, 200), metavar=("FIRST", "COUNT"))
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at a time")
    parser.add_argument("-v", action="store_true", help="print what each seed decides")
    options = parser.parse_args()
    killed = KilledProcesses()
    if not killed.available:
        print("without root a task that is killed between its last line and its exit counts as finished")
    keep = Path(tempfile.mkdtemp(prefix="mixed-")) if options.keep else None
    results = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        task = compile_c("task.c", Path(folder) / "task")
        schedules = [Schedule.of(seed) for seed in range(options.seeds[0], sum(options.seeds))]
        for schedule, result in zip(schedules, pool.map(lambda s: play(s, options.bin.resolve(), task, killed.killed, keep), schedules)):
            results.append(result)
            if options.v or result.broken():
                print(schedule.text())
            print(f"seed {result.seed}: {result.text()}", flush=True)
    total = summary(results)
    print(json.dumps(total, indent=2))
    if keep:
        print(f"campaigns that broke are kept in {keep}")
    if options.json:
        options.json.write_text(json.dumps({**total, "results": [vars(r) for r in results]}, indent=1) + "\n")
    sys.exit(1 if total["broken"] else 0)


if __name__ == "__main__":
    main()
