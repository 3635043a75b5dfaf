# SPDX-License-Identifier: Apache-2.0
"""Campaigns on a real Slurm of four nodes on this machine (slurm-local): pools, walltimes, and what goes wrong there."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from wflow_test import INTERRUPTED, OK, SYSTEM, USAGE, CampaignTest, Gate, lines_of, read_text, wait_for  # noqa: E402

SLURM_LOCAL = Path(__file__).resolve().parent / "slurm-local"
MISSING_PACKAGE = 3
SCHEDULER_CALLS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct")


class Cluster:
    """Four nodes with addresses of their own, as root; else four of this machine's. Started once for all tests."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="wflow-slurm-")
        namespaces = ["--netns"] if os.geteuid() == 0 else []
        started = self.call("start", "--nodes", "4", "--cpus", "2", "--conf-line", "WaitTime=5", *namespaces)
        self.ready = started.returncode == 0
        self.why = started.stderr.strip()
        if not self.ready and started.returncode != MISSING_PACKAGE:
            raise RuntimeError(f"slurm-local: {started.stdout}{started.stderr}")

    def call(self, verb, *arguments):
        return subprocess.run([SLURM_LOCAL, verb, "-d", f"{self.folder}/cluster", *arguments], capture_output=True, text=True)

    def conf(self):
        return f"{self.folder}/cluster/etc/slurm.conf"

    def stop(self):
        self.call("stop")
        subprocess.run(["rm", "-rf", self.folder], check=False)


class SlurmTest(CampaignTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        if not cls.cluster.ready:
            raise unittest.SkipTest("no Slurm here, so nothing was tested: " + cls.cluster.why)

    def setUp(self):
        super().setUp()
        self.environment["SLURM_CONF"] = self.cluster.conf()
        self.count_calls()
        self.addCleanup(self.cancel_jobs)

    def count_calls(self):
        """Wrappers in front of the scheduler's commands note every call, of coordinator and workers."""
        wrappers = self.folder / "wrappers"
        wrappers.mkdir()
        for name in SCHEDULER_CALLS:
            real = subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()
            if not real:
                continue
            wrapper = wrappers / name
            wrapper.write_text(f'#!/bin/sh\necho {name} >> "{self.folder}/calls"\nexec {real} "$@"\n')
            wrapper.chmod(0o755)
        self.environment["PATH"] = f"{wrappers}:{self.environment['PATH']}"

    def calls(self, name=None):
        return [call for call in lines_of(self.folder / "calls") if name in (None, call)]

    def slurm(self, *command):
        """A command of Slurm that is not counted."""
        path = os.environ["PATH"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SLURM_CONF": self.cluster.conf(), "PATH": path})

    def jobs(self):
        """Ids of jobs that are queued or run."""
        return self.slurm("squeue", "--noheader", "--states=PD,R,CF,CG", "--format=%i").stdout.split()

    def cancel_jobs(self):
        jobs = self.jobs()
        if jobs:
            self.slurm("scancel", *jobs)

    def cluster_study(self, command, count=12, workers="{nodes: 4, slots: 2}", batch="type: slurm, walltime: '30:00'", extra=""):
        return self.study(f"""
description: {{name: cluster, description: tasks on Slurm}}
env: {{variables: {{OUTPUT_PATH: .}}}}
batch: {{{batch}}}
workers: {{all: {workers}}}
samples: {{design: uniform, count: {count}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {command}
{extra}""")

    def note(self):
        """A task's command: its number and host, in one write."""
        return f'echo "$(MERLIN_SAMPLE_ID):`hostname`" >> {self.folder}/ran'

    def ran(self):
        return sorted(int(line.split(":")[0]) for line in lines_of(self.folder / "ran"))

    def query(self, directory, sql):
        # Closed: an open connection would keep wflow's commands out.
        with contextlib.closing(sqlite3.connect(f"file:{directory}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            return database.execute(sql).fetchall()

    def assert_queue_empties(self):
        end = time.monotonic() + 5
        while self.jobs():
            self.assertLess(time.monotonic(), end, f"jobs are left in the queue: {self.slurm('squeue').stdout}")
            time.sleep(0.1)

    def assert_nothing_charged(self, directory):
        self.assertEqual(self.query(directory, "select * from v_failures"), [])


class SlurmCampaigns(SlurmTest):
    def test_a_campaign_on_four_nodes(self):
        run = self.wflow("run", self.cluster_study(self.note() + "; sleep 0.1", count=1000))
        self.assert_queue_empties()
        self.assertEqual(self.ran(), list(range(1000)), "each once")
        hosts = {line.split(":")[1] for line in lines_of(self.folder / "ran")}
        if os.geteuid() == 0:
            self.assertEqual(len(hosts), 4, hosts)
        calls = self.calls()
        self.assertLessEqual(len(calls), 16, calls)
        self.assertEqual(calls.count("sbatch"), 1)
        directory = self.campaign()
        self.assert_nothing_charged(directory)
        rows = self.query(directory, "select state, nodes, reason, node_hours > 0 from v_allocations")
        self.assertEqual(rows, [("ended", 4, "given back", 1)], run.out)

    def test_walltimes_chain(self):
        """Allocations of one minute for a campaign that needs several."""
        tasks = 200
        study = self.cluster_study(self.note() + "; sleep 1", count=tasks, workers="{nodes: 1, slots: 2, max: 1}",
                                   batch="type: slurm, walltime: '1:00'")
        self.wflow("run", study)
        self.assert_queue_empties()
        directory = self.campaign()
        self.assert_nothing_charged(directory)
        self.assertEqual(set(self.ran()), set(range(tasks)))
        rows = self.query(directory, "select started, ended, reason from v_allocations order by started")
        self.assertGreaterEqual(len(rows), 2, rows)
        used = sum(ended - started for started, ended, _ in rows)
        print(f"{len(rows)} allocations, {used:.0f} s used, {tasks / 2} s needed; {rows}", file=sys.stderr)
        for (_, ended, _), (started, _, _) in zip(rows, rows[1:]):
            self.assertLess(started, ended + 30, "a successor comes in time")

    def test_scancel_of_an_allocation(self):
        gate = Gate(self.folder, 4)
        run = self.start("run", self.cluster_study(gate.command(), count=12))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 8, "eight tasks are in the middle", run)
        self.slurm("scancel", *self.jobs())
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assertEqual(len(self.query(directory, "select * from v_allocations")), 2)
        self.assert_queue_empties()

    def test_slurmctld_away_for_a_while(self):
        gate = Gate(self.folder, 4)
        run = self.start("run", self.cluster_study(gate.command(), count=12))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 8, "eight tasks are in the middle", run)
        self.cluster.call("kill", "ctld")
        self.wait(lambda: any("does not answer" in text for text in self.history()), "the coordinator has noticed", run)
        self.cluster.call("revive", "ctld")
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_a_refused_submission(self):
        run = self.wflow("run", self.cluster_study("true", batch="type: slurm, partition: nosuch"), code=SYSTEM)
        self.assertIn("nosuch", run.err + run.out)
        self.assertIn("refused an allocation for the pool 'all'", run.err)
        self.assertEqual(len(self.calls("sbatch")), 1)

    def test_allocations_are_listed_and_explained(self):
        # More nodes than there are: the job stays in the queue.
        self.slurm("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
        self.addCleanup(self.slurm, "scontrol", "update", "nodename=n1", "state=resume")
        run = self.start("run", self.cluster_study("true"))
        self.wait_for_campaign(run)
        job = self.wait(self.jobs, "the job is in the queue", run)[0]
        explained = self.wait(lambda: (text := self.wflow("explain", "work/0").out) and job in text and text, "the job is known", run)
        self.assertIn(f"waits for allocation {job}, pending for", explained)
        self.assertIn(job, self.wflow("allocations", "list").out)
        self.assertIn("0 running, 1 queued", self.wflow("status").out)
        self.wflow("allocations", "cancel", "999", code=USAGE)
        self.slurm("scontrol", "update", "nodename=n1", "state=resume")
        self.assertEqual(run.wait(), OK, run.err)


class SlurmEnds(SlurmTest):
    def gated(self, count=12):
        gate = Gate(self.folder, 4)
        run = self.start("run", self.cluster_study(gate.command(), count=count))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 8, "eight tasks are in the middle", run)
        return gate, run, directory

    def test_interrupted_twice(self):
        _, run, directory = self.gated()
        run.signal(signal.SIGINT)
        self.wait(lambda: any("running ones may finish" in text for text in self.history()), "the first one is heard", run)
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assert_queue_empties()
        self.assert_nothing_charged(directory)

    def test_cancelled(self):
        _, run, _ = self.gated()
        self.wflow("cancel", "--kill")
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assert_queue_empties()

    def test_a_killed_coordinator_finds_its_allocation_again(self):
        gate, run, directory = self.gated()
        job = self.jobs()
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        again = self.start("resume", directory)
        self.wait(lambda: any("came back" in text for text in self.history("worker")), "its workers are back", again)
        gate.open()
        self.assertEqual(again.wait(), OK, again.err)
        self.assertEqual(len(self.calls("sbatch")), 1, "nothing was submitted twice")
        self.assertEqual(self.query(directory, "select id from v_allocations"), [(job[0],)])
        self.assertEqual(sorted(gate.passed()), list(range(12)), "each once")
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_without_a_coordinator_the_allocation_ends_by_itself(self):
        gate, run, _ = self.gated_with_linger("5")
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        gate.open()
        wait_for(lambda: not self.jobs(), "the end of the allocation")

    def gated_with_linger(self, linger):
        gate = Gate(self.folder, 4)
        study = self.cluster_study(gate.command(), batch=f"type: slurm, walltime: '30:00', linger: {linger}")
        run = self.start("run", study)
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 8, "eight tasks are in the middle", run)
        return gate, run, directory

    def test_inside_an_allocation_of_somebody_else(self):
        """`salloc` leaves its variables in the environment of what it starts."""
        study = self.cluster_study(self.note(), workers="{nodes: 3, slots: 2}")
        outer = ["salloc", "--nodes=1", "--quiet", "wflow", "run", str(study)]
        done = subprocess.run(outer, capture_output=True, text=True, env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assertEqual(self.ran(), list(range(12)))
        self.assert_queue_empties()


class WithoutScheduler(CampaignTest):
    STUDY = """
description: {name: nowhere, description: asks for a scheduler that is not here}
env: {variables: {OUTPUT_PATH: .}}
batch: {type: flux}
study:
  - name: one
    run: {cmd: "true"}
"""

    def test_it_says_so_and_local_runs_it(self):
        study = self.study(self.STUDY)
        self.environment["PATH"] = f"{self.folder}:/usr/bin:/bin"
        refused = self.wflow("run", study, code=USAGE)
        self.assertIn("--local", refused.err)
        self.assertEqual(len(refused.err.strip().splitlines()), 1, refused.err)
        self.assertEqual([entry.name for entry in self.folder.glob("nowhere_*")], [], "no campaign was made")
        self.wflow("run", "--local", study)
        self.assertIn("1/1", self.wflow("status").out)


if __name__ == "__main__":
    unittest.main()
