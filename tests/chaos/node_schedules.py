#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of faults over simulate -> convert -> train on three nodes.

  tests/chaos/node_schedules.py [--seeds FIRST COUNT] [--bin DIR] [--jobs N] [--json FILE] [--keep] [-v]

Nodes are network namespaces (nodes.py); needs root. A seed decides on the faults, their places and their times after the
campaign's begin; the machine decides on what they hit. Killed programs are started again, a coordinator on any of the
nodes. At the end: every sample stands in the shards once, no finished simulation ran again, no two executions of one at a
time, the executions are within the attempts, no process is left, the database is consistent and says all is done, and the
trained weights are those of a run that was left alone.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from campaign import compile_c
from kill_schedules import TOGETHER_NS, arguments
from node_campaign import LOSSES, RETRIES, NodeCampaign, differences
from truth import KilledProcesses

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 300
POLL_S = 0.02
SPAN_S = 4        # faults come within this time after the begin of a campaign that takes about as long when nothing disturbs it
MEMORY_GROUP = Path("/sys/fs/cgroup/memory")
MEMORY_BYTES = 16 << 20

# Name: (how often it is chosen, seconds that it lasts at most).
FAULTS = {
    "kill coordinator": (6, 0), "kill guardian": (3, 0), "kill agent": (3, 0), "kill worker": (3, 0), "kill task": (3, 0), "kill rank": (4, 0),
    "kill converter": (2, 0), "kill coordinator, start it on another node": (1, 0),
    "restart coordinator": (2, 0), "restart worker": (3, 0),
    "freeze coordinator": (3, 9), "freeze agent": (3, 9), "freeze worker": (3, 9), "freeze guardian": (1, 9), "freeze task": (1, 3), "freeze rank": (2, 3),
    "cut": (4, 9), "one way: hears nothing": (2, 9), "one way: is not heard": (2, 9), "flapping": (2, 4), "loss": (3, 6),
    "delay": (3, 6), "half-open": (2, 9), "reset": (2, 0),
    "freeze node": (0, 9), "file system stands still": (0, 9),
    "full disk": (2, 2), "clock jump": (2, 4), "out of memory": (2, 0),
}


@dataclass
class Fault:
    name: str
    at_s: float
    node: str
    lasts_s: float
    which: float    # of several processes: 0 to 1
    again_s: float  # until what was killed is started again
    home: str       # where a coordinator goes on

    def text(self):
        return f"{self.at_s:.1f} s: {self.name} on {self.node}" + (f" for {self.lasts_s:.1f} s" if self.lasts_s else "")


@dataclass
class Schedule:
    """Everything that a seed decides."""
    seed: int
    failures: int
    faults: list

    @classmethod
    def of(cls, seed, names=None, most=8):
        rng = random.Random(seed)
        names = names or list(FAULTS)
        weights = [FAULTS[name][0] for name in names]
        faults = []
        together = rng.random() < 0.3  # several at once
        for _ in range(rng.randint(2, most)):
            name = rng.choices(names, weights)[0]
            at_s = faults[-1].at_s if together and faults and rng.random() < 0.5 else rng.random() * SPAN_S
            lasts_s = FAULTS[name][1] * rng.random() if FAULTS[name][1] else 0
            faults.append(Fault(name, at_s, rng.choice(("n0", "n1", "n2")), lasts_s, rng.random(), rng.choice((0, 0.1, 1, 2)), rng.choice(("n0", "n1", "n2"))))
        return cls(seed, rng.choice((0, 0, 60)), sorted(faults, key=lambda f: f.at_s))

    def text(self):
        return f"seed {self.seed}: " + "; ".join(fault.text() for fault in self.faults)


@dataclass
class Result:
    seed: int
    faults: Counter = field(default_factory=Counter)
    missed: int = 0  # faults for which there was no such process
    executions: int = 0
    starts: int = 0
    exceptions: int = 0
    problems: list = field(default_factory=list)
    seconds: float = 0

    def text(self):
        return (f"{self.seconds:.1f} s, {self.executions} executions, {sum(self.faults.values())} faults, {self.starts} coordinators, "
                f"{self.exceptions} exceptions" + "".join(f"\n  {p}" for p in self.problems))


class Clock:
    """Time in which this program ran: what all of it stood still for, with all of the nodes, does not count."""

    def __init__(self):
        self.now_s, self.looked_s = 0.0, time.monotonic()

    def look(self):
        now = time.monotonic()
        self.now_s += min(now - self.looked_s, 0.5)
        self.looked_s = now
        return self.now_s


class Player:
    """Plays one schedule on one campaign."""

    def __init__(self, schedule, campaign, result):
        self.campaign, self.result = campaign, result
        self.waiting = list(schedule.faults)
        self.later = []                 # (time, what to do)
        self.home, self.coordinator_again = "n0", 0.0
        self.worker_again = {name: 0.0 for name in campaign.workers}
        self.history = defaultdict(list)  # pid: (nanoseconds, signal)
        self.full_disk = []  # (from, until) in nanoseconds
        self.began = None
        self.clock = Clock()

    def play(self):
        """Until the campaign has ended; false where it does not."""
        self.campaign.start_coordinator("n0")
        while (now := self.clock.look()) < DEADLINE_S:
            self.campaign.follow_endpoint()
            if self.began is None and self.campaign.directory():
                self.began = now
            self.do_what_is_due(now)
            if self.campaign.coordinator.poll() == 0:
                self.campaign.nodes.heal()
                self.finish_what_is_due()
                return True
            if self.campaign.coordinator.poll() == 1:
                self.result.problems.append(f"tasks failed: {self.campaign.failures()}")
                return True
            self.start_again(now)
            time.sleep(POLL_S)
        return False

    def do_what_is_due(self, now):
        for item in [i for i in self.later if i[0] <= now]:
            self.later.remove(item)
            item[1]()
        while self.waiting and self.began and now >= self.began + self.waiting[0].at_s:
            fault = self.waiting.pop(0)
            if self.apply(fault):
                self.result.faults[fault.name] += 1
            else:
                self.result.missed += 1

    def finish_what_is_due(self):
        for _, action in sorted(self.later, key=lambda i: i[0]):
            action()
        self.later = []

    def start_again(self, now):
        code = self.campaign.coordinator.poll()
        if code is not None and now > self.coordinator_again:
            self.check_code(code)
            if self.coordinator_again == 0.0:
                self.coordinator_again = now + 0.2
                return
            self.campaign.start_coordinator(self.home)
            self.coordinator_again = 0.0
        if not self.campaign.directory() or not self.campaign.endpoint():
            return
        for name, process in self.campaign.workers.items():
            if process is not None and process.poll() is None:
                continue
            if process is not None and self.worker_again[name] == 0.0:
                self.worker_again[name] = now + 0.5
            if process is None or now > self.worker_again[name]:
                self.campaign.start_worker(name)
                self.worker_again[name] = 0.0

    def check_code(self, code):
        """6: told to stop; 5: the disk is full; 7: the one before is not known to be dead yet, as on another host."""
        if code in (6, 7, -signal.SIGKILL, -signal.SIGTERM) or (code == 5 and self.full_disk):
            return
        said = f"a coordinator ended with {code}: {self.campaign.printed()[-800:]}"
        if said not in self.result.problems:
            self.result.problems.append(said)

    # ---- faults: each gives false where it finds nothing to hit

    def signal(self, number, pids):
        now = time.monotonic_ns()
        for pid in pids:
            self.history[pid].append((now, number))
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def in_s(self, seconds, action):
        self.later.append((self.clock.now_s + seconds, action))

    def pids(self, kind, fault):
        found = self.campaign.kinds()
        if kind in ("coordinator", "rank", "converter"):  # wherever it is
            every = sorted(pid for (_, k), pids in found.items() for pid in pids if k == kind)
            return [every[int(fault.which * len(every))]] if every else []
        if kind == "worker":
            guardian, agent = found.get((fault.node, "guardian"), []), found.get((fault.node, "agent"), [])
            return guardian[:1] + agent[:1] if guardian and agent else []
        if kind == "node":  # a virtual machine that stands still, say
            return [pid for (node, _), pids in found.items() for pid in pids if node == fault.node]
        here = sorted(found.get((fault.node, kind), []))
        return [here[int(fault.which * len(here))]] if here else []

    def apply(self, fault):
        verb, _, rest = fault.name.partition(" ")
        if verb in ("kill", "restart"):
            kind = rest.split(",")[0]
            pids = self.pids("guardian" if fault.name == "restart worker" else kind, fault)
            if not pids:
                return False
            self.home = fault.home if "another node" in rest else self.campaign.home
            self.coordinator_again = self.clock.now_s + fault.again_s if kind == "coordinator" else self.coordinator_again
            if verb == "kill" and len(pids) > 1:
                self.signal(signal.SIGSTOP, pids)
            self.signal(signal.SIGKILL if verb == "kill" else signal.SIGTERM, pids)
            return True
        if verb == "freeze":
            pids = self.pids(rest, fault)
            self.signal(signal.SIGSTOP, pids)
            self.in_s(fault.lasts_s, lambda: self.signal(signal.SIGCONT, pids))
            return bool(pids)
        return getattr(self, "fault_" + fault.name.replace(": ", "_").replace(" ", "_").replace("-", "_"))(fault)

    def fault_cut(self, fault):
        self.campaign.nodes.cut(fault.node)
        self.in_s(fault.lasts_s, lambda: self.campaign.nodes.join(fault.node))
        return True

    def drop(self, fault, *chains, percent=100):
        for chain in chains:
            self.campaign.nodes.drop(fault.node, chain, percent)
        self.in_s(fault.lasts_s, lambda: self.campaign.nodes.flush(fault.node))
        return True

    def fault_one_way_hears_nothing(self, fault):
        return self.drop(fault, "inward")

    def fault_one_way_is_not_heard(self, fault):
        return self.drop(fault, "outward")

    def fault_loss(self, fault):
        return self.drop(fault, "inward", "outward", percent=20)

    def fault_flapping(self, fault):
        nodes = self.campaign.nodes
        for turn in range(int(fault.lasts_s / 0.6) + 1):
            self.in_s(turn * 0.6, lambda: nodes.cut(fault.node))
            self.in_s(turn * 0.6 + 0.3, lambda: nodes.join(fault.node))
        return True

    def relay(self, mode, lasts_s):
        self.campaign.nodes.command_relay(mode)
        self.in_s(lasts_s, lambda: self.campaign.nodes.command_relay("normal"))
        return True

    def fault_delay(self, fault):
        return self.relay(f"delay {int(100 + 900 * fault.which)} {int(fault.which * 1e6)}", fault.lasts_s)

    def fault_half_open(self, fault):
        return self.relay("hold", fault.lasts_s)

    def fault_reset(self, fault):
        return self.relay(f"reset {fault.which}", 0.1)

    def fault_full_disk(self, fault):
        began_ns = time.monotonic_ns()
        filler = self.campaign.disk / "filler"
        with open(filler, "ab", buffering=0) as file:
            for size in (1 << 20, 1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass

        def empty(number=len(self.full_disk)):
            filler.unlink(missing_ok=True)
            self.full_disk[number] = (began_ns, time.monotonic_ns())
        self.full_disk.append((began_ns, float("inf")))
        self.in_s(fault.lasts_s, empty)
        return True

    def fault_file_system_stands_still(self, fault):
        """The file system of all nodes stands still, the network does not: who writes hangs in the kernel."""
        subprocess.run(["fsfreeze", "-f", self.campaign.disk], check=True)
        self.in_s(fault.lasts_s, lambda: subprocess.run(["fsfreeze", "-u", self.campaign.disk], check=True))
        return True

    def fault_clock_jump(self, fault):
        jump = self.campaign.folder / f"jump-{fault.node}"
        jump.touch()
        self.in_s(fault.lasts_s, lambda: jump.unlink(missing_ok=True))
        return True

    def fault_out_of_memory(self, fault):
        pids = self.pids("task", fault)
        group = MEMORY_GROUP / self.campaign.folder.name
        try:
            group.mkdir(exist_ok=True)
            (group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
            for pid in pids:
                (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            return False
        self.signal(signal.SIGUSR1, pids)
        return bool(pids)

    def ran_ns(self, pid, since, until):
        """How long it ran between the two moments: neither stopped nor killed."""
        total, at, running = 0, since, True
        for moment, number in [*self.history.get(pid, ()), (until, None)]:
            end = min(max(moment, since), until)
            total += end - at if running else 0
            at = end
            if number == signal.SIGKILL:
                break
            if number in (signal.SIGSTOP, signal.SIGCONT):
                running = number == signal.SIGCONT
        return total


def is_exception(player, first, later):
    """The documented ones. Between a success and the execution that came after it, its agent was killed or stood still
    before it could write the journal, and so did its guardian; or the journal could not be written, since the disk was full
    when it ended."""
    if any(since <= first.end + TOGETHER_NS and first.end <= until for since, until in player.full_disk):
        return True
    agents = player.campaign.agents.get(first.guardian, ())
    agent_ran = min((player.ran_ns(pid, first.end, later.begin) for pid in agents), default=later.begin - first.end)
    guardian_stood = later.begin - first.end - player.ran_ns(first.guardian, first.end, later.begin)
    return agent_ran <= TOGETHER_NS and guardian_stood > 0


def check(campaign, player, killed, reference, result):
    truth = campaign.truth
    truth.read()
    truth.without_killed(killed, player.history, in_shell=True)
    result.executions, result.starts = len(truth.executions), campaign.starts
    for first, later in truth.reruns():
        if is_exception(player, first, later):
            result.exceptions += 1
        else:
            result.problems.append(f"sample {first.element} ran again after it had succeeded: {first} {later}")
    for execution in truth.overlaps():
        result.problems.append(f"two executions at once: {execution}")
    for (_, element), executions in truth.by_element().items():
        if len(executions) > 1 + RETRIES + LOSSES:
            result.problems.append(f"sample {element} ran {len(executions)} times")
    if left := campaign.left():
        result.problems.append(f"processes are left: {left}")
    if not campaign.directory():
        return
    if missing := set(range(campaign.samples)) - {element for _, element in truth.succeeded()}:
        result.problems.append(f"{len(missing)} samples never succeeded: {sorted(missing)[:5]}")
    result.problems += campaign.database_problems() + campaign.shard_problems()
    if reference is not None:
        result.problems += differences(campaign.weights(), reference)


def play(schedule, binary, task, killed, reference, preload, keep=False, **more):
    """The result, and the weights. `more`: of the campaign."""
    result, begin, weights = Result(schedule.seed), time.monotonic(), None
    campaign = NodeCampaign(binary, task, schedule.failures, preload, **more)
    group = MEMORY_GROUP / campaign.folder.name
    try:
        player = Player(schedule, campaign, result)
        if player.play():
            check(campaign, player, killed, reference, result)
            weights = campaign.weights() if campaign.trains and reference is None else None
        else:
            result.problems.append(f"not ended after {DEADLINE_S} s: {campaign.printed()[-1500:]}")
    except Exception as error:  # report the error with the campaign's seed
        result.problems.append(f"{type(error).__name__}: {error}")
    finally:
        campaign.clean_up(ROOT / "build" / "chaos" / f"nodes-{schedule.seed}" if keep and result.problems else None)
        if group.exists():
            group.rmdir()
    result.seconds = time.monotonic() - begin
    return result, weights


def prepare(folder):
    """The simulator, and the library that makes clocks jump."""
    jump = ROOT / "tests" / "e2e" / "clock_jump.c"
    return compile_c("task.c", Path(folder) / "task"), compile_c(jump, Path(folder) / "clock_jump.so", "-shared", "-fPIC", "-ldl")


def undisturbed(binary, task, killed, preload):
    result, weights = play(Schedule(0, 0, []), binary, task, killed, None, preload)
    if result.problems:
        raise SystemExit(f"a campaign that was left alone is not right: {result.text()}")
    return weights


def main():
    parser = arguments(__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(1, 200), metavar=("FIRST", "COUNT"))
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at a time")
    parser.add_argument("-v", action="store_true", help="say what each seed decides")
    options = parser.parse_args()
    killed = KilledProcesses()
    results = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        task, preload = prepare(folder)
        binary = options.bin.resolve()
        reference = undisturbed(binary, task, killed.killed, preload)
        schedules = [Schedule.of(seed) for seed in range(options.seeds[0], sum(options.seeds))]
        played = pool.map(lambda s: play(s, binary, task, killed.killed, reference, preload, options.keep)[0], schedules)
        for schedule, result in zip(schedules, played):
            results.append(result)
            if options.v or result.problems:
                print(schedule.text())
            print(f"seed {result.seed}: {result.text()}", flush=True)
    total = {"campaigns": len(results), "hours": round((time.monotonic() - began) / 3600, 2), "executions": sum(r.executions for r in results),
             "coordinators": sum(r.starts for r in results), "faults": dict(sorted(sum((r.faults for r in results), Counter()).items())),
             "exceptions": sum(r.exceptions for r in results), "longest_s": round(max((r.seconds for r in results), default=0), 1),
             "broken": [r.seed for r in results if r.problems]}
    print(json.dumps(total, indent=2))
    if options.json:
        options.json.write_text(json.dumps({**total, "results": [vars(r) for r in results]}, indent=1) + "\n")
    sys.exit(1 if total["broken"] else 0)


if __name__ == "__main__":
    main()
