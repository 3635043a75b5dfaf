# SPDX-License-Identifier: Apache-2.0
"""A fixed set of kill_schedules.py, stops.py and targeted.py that takes a minute: the rest is run by hand."""

import os
import tempfile
import unittest
from pathlib import Path

import damage
import stops
import targeted
from campaign import compile_c
from kill_schedules import Schedule, play
from truth import KilledProcesses

BIN = Path(os.environ.get("WFLOW_BIN", Path(__file__).resolve().parents[2] / "build" / "dev" / "bin")).resolve()
SMALL = os.environ.get("WFLOW_E2E_SMALL", "") not in ("", "0")  # sanitized programs are some times slower
SCALE = 0.1 if SMALL else 0.3
# Chosen so that every kind of fault comes up, and the states that once broke.
SEEDS = (2, 13, 16) if SMALL else (2, 8, 13, 16, 23, 34, 41, 51)


class ChaosTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="wfchaos-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.task = compile_c("task.c", cls.folder / "task")
        cls.killed = KilledProcesses().killed

    def assert_kept(self, result):
        self.assertEqual((result.reruns, result.overlaps, result.problems), (0, 0, []), result.text())


class KillSchedules(ChaosTest):
    def test_random_schedules(self):
        for seed in SEEDS:
            schedule = Schedule.of(seed, SCALE)
            with self.subTest(schedule.text()):
                self.assert_kept(play(schedule, BIN, self.task, self.killed))


class TargetedKills(ChaosTest):
    def play(self, fault, times, tasks, durations_ms, **more):
        result = play(targeted.repeated(fault, times, tasks, durations_ms, **more), BIN, self.task, self.killed)
        self.assertGreater(sum(result.faults.values()), 0)
        self.assert_kept(result)

    def special(self, scenario, environment=None):
        self.assert_kept(targeted.special(scenario, 1, BIN, self.task, self.killed, environment))

    def test_guardian_alone(self):
        self.play("kill guardian", 6, 300, (4, 40))

    def test_coordinator_and_guardian(self):
        self.play("kill coordinator and guardian", 6, 300, (4, 40))

    def test_guardian_of_a_frozen_agent(self):
        self.play("freeze agent, kill guardian", 2, 150, (4, 40), thaw_s=2)

    def test_coordinator_alone(self):
        self.play("kill coordinator", 6, 200, (4, 400), groups=(2, 2))

    @unittest.skipIf(SMALL, "a sanitizer's library must come first")
    def test_coordinator_before_its_worker_is_durable(self):
        library = compile_c("slow_sync.c", self.folder / "slow_sync.so", "-shared", "-fPIC", "-ldl")
        self.special(targeted.kill_before_row_is_durable, {"LD_PRELOAD": str(library), "SLOW_SYNC_MS": "300"})

    def test_coordinator_before_its_worker_said_hello(self):
        self.special(targeted.kill_before_hello)


class Stops(ChaosTest):
    def test_what_has_succeeded_does_not_run_again(self):
        result = stops.play(BIN, self.task, self.killed, 5, 1)
        self.assertEqual(sum(result.stops.values()), 5)
        self.assertEqual((dict(result.again), result.overlaps, result.problems), ({}, 0, []))


class DamagedCampaigns(unittest.TestCase):
    # A shard, a manifest, a journal, the database, a model, the keys.
    SEEDS = (8, 34, 46, 49, 50) if SMALL else (8, 29, 33, 34, 46, 48, 49, 50, 93)

    def test_no_silent_difference(self):
        for trial in damage.play(BIN, self.SEEDS):
            self.assertEqual(trial.problems, [], trial.text())


if __name__ == "__main__":
    unittest.main()
