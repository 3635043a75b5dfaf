#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Faults that broke the promise once, each as a campaign of its own, with the checks of kill_schedules.py.

  tests/chaos/targeted.py [NAME...] [--bin DIR] [--json FILE]        all of them where none is named

guardian              the guardian alone, 41 times: its agent's results are in the journal
coordinator_guardian  both at once, 32 times
frozen_agent          the agent is frozen and its guardian killed, 10 times
coordinator           the coordinator alone, 15 times, while some tasks take long and others end: what runs has been leased in parts
coordinator_short     the coordinator alone, 15 times, at 100,000 tasks of 0.4 ms with two workers
slow_sync             the coordinator is killed before its worker's row is on a disk that takes 300 ms, 6 times
orphan                the coordinator is killed before its worker has said Hello, under -j 2, 6 times: never more than two tasks at once
"""

import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from campaign import Campaign, compile_c, wait_for
from kill_schedules import Fault, Result, Schedule, arguments, check, play, summary
from truth import KilledProcesses


def repeated(name, times, tasks, durations_ms, groups=(), thaw_s=0.0, deadline_s=240):
    """One campaign with the same fault again and again."""
    faults = [Fault(name, int(tasks * 0.95 * (i + 1) / (times + 1)), 0.0005 * (i % 7), thaw_s, i * 0.37 % 1, 0.0) for i in range(times)]
    return Schedule(0, durations_ms, tasks, "a", groups, 2, "packed", 0, faults, deadline_s)


SCHEDULES = {
    "guardian": lambda: repeated("kill guardian", 41, 2000, (4, 40)),
    "coordinator_guardian": lambda: repeated("kill coordinator and guardian", 32, 2000, (4, 40)),
    "frozen_agent": lambda: repeated("freeze agent, kill guardian", 10, 1000, (4, 40), thaw_s=2),
    "coordinator": lambda: repeated("kill coordinator", 15, 600, (4, 400), (2, 2)),
    "coordinator_short": lambda: repeated("kill coordinator", 15, 100_000, (0.4, 0.4), (1, 1), deadline_s=900),
}


def finish(campaign, result, slots, deadline_s=240):
    """Resumes the campaign to its end, and checks what ran."""
    end = time.monotonic() + deadline_s
    while campaign.start(slots).wait(max(1, end - time.monotonic())) != 0:
        time.sleep(0.2)
    result.resumes = campaign.starts - 1


def kill_before_row_is_durable(campaign, result):
    """Its first task runs: the lease came before the row was on disk, or the row is there. The next coordinator's disk is
    fast again, so that it comes while the tasks run."""
    campaign.write_study(4, (3000, 3000))
    campaign.start(2)
    wait_for(campaign.tasks, "the first task")
    campaign.signal(signal.SIGKILL, [campaign.coordinator.pid])
    campaign.coordinator.wait()
    result.faults["kill coordinator"] += 1
    campaign.environment["SLOW_SYNC_MS"] = "0"
    finish(campaign, result, 2)


def kill_before_hello(campaign, result):
    """The worker is frozen as soon as it is there, and goes on when the next coordinator has a worker of its own."""
    campaign.write_study(12, (300, 300))
    campaign.start(2)
    orphans = wait_for(lambda: [pid for worker in campaign.workers().values() for pid in worker.values()], "a worker")
    campaign.signal(signal.SIGSTOP, orphans)
    campaign.kill([campaign.coordinator.pid])
    campaign.coordinator.wait()
    result.faults["kill coordinator"] += 1
    if not campaign.directory():
        raise SystemExit("the worker came before the database")
    resumed = campaign.start(2)
    wait_for(lambda: campaign.tasks() or resumed.poll() is not None, "a task of the second coordinator", 90)
    campaign.signal(signal.SIGCONT, orphans)
    if resumed.wait(240) != 0:
        finish(campaign, result, 2)
    campaign.truth.read()
    if campaign.truth.most_at_once() > 2:
        result.problems.append(f"{campaign.truth.most_at_once()} tasks at once under -j 2")


def special(scenario, times, binary, task, killed, environment=None):
    result, begin = Result(0), time.monotonic()
    for _ in range(times):
        campaign, one = Campaign(binary, task, environment), Result(0)
        try:
            scenario(campaign, one)
            check(campaign, killed, one)
        finally:
            campaign.clean_up()
        add(result, one)
    result.seconds = time.monotonic() - begin
    return result


def add(result, one):
    for name in ("executions", "resumes", "reruns", "exceptions", "overlaps", "killed_at_exit"):
        setattr(result, name, getattr(result, name) + getattr(one, name))
    result.faults += one.faults
    result.problems += one.problems


def run(name, binary, folder, killed, keep=False):
    task = compile_c("task.c", Path(folder) / "task")
    if name in SCHEDULES:
        return play(SCHEDULES[name](), binary, task, killed, keep)
    if name == "slow_sync":
        library = compile_c("slow_sync.c", Path(folder) / "slow_sync.so", "-shared", "-fPIC", "-ldl")
        return special(kill_before_row_is_durable, 6, binary, task, killed, {"LD_PRELOAD": str(library), "SLOW_SYNC_MS": "300"})
    return special(kill_before_hello, 6, binary, task, killed)


def main():
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    names = options.names or [*SCHEDULES, "slow_sync", "orphan"]
    if unknown := set(names) - {*SCHEDULES, "slow_sync", "orphan"}:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    killed, results = KilledProcesses(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            results[name] = run(name, options.bin.resolve(), folder, killed.killed, options.keep)
            print(f"{name}: {results[name].text()}", flush=True)
    broken = Counter(name for name, result in results.items() if result.broken())
    if options.json:
        options.json.write_text(json.dumps({name: {**summary([result]), "problems": result.problems} for name, result in results.items()}, indent=1) + "\n")
    print(f"broken: {', '.join(broken) or 'none'}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
