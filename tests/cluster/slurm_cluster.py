# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of four nodes on this machine (slurm-local), and what all campaigns on it share."""

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from wflow_test import CampaignTest, Gate, lines_of, read_text  # noqa: E402

SLURM_LOCAL = Path(__file__).resolve().parent / "slurm-local"
MISSING_PACKAGE = 3
SCHEDULER_CALLS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct")
AS_ROOT = os.geteuid() == 0
# Minutes of Slurm's own time-outs: by hand.
SLOW = os.environ.get("WFLOW_SLOW_TESTS", "") not in ("", "0")


class Cluster:
    """Four nodes with addresses of their own, as root; else four of this machine's. Started once for a class of tests."""

    def __init__(self, lines=(), shape=("--nodes", "4", "--cpus", "2")):
        self.folder = tempfile.mkdtemp(prefix="wflow-slurm-")
        namespaces = ["--netns"] if AS_ROOT else []
        lines = [part for line in ("WaitTime=5", *lines) for part in ("--conf-line", line)]
        started = self.call("start", *shape, *lines, *namespaces)
        self.ready = started.returncode == 0
        self.why = started.stderr.strip()
        if not self.ready and started.returncode != MISSING_PACKAGE:
            raise RuntimeError(f"slurm-local: {started.stdout}{started.stderr}")

    def call(self, verb, *arguments):
        return subprocess.run([SLURM_LOCAL, verb, "-d", f"{self.folder}/cluster", *arguments], capture_output=True, text=True)

    def conf(self):
        return f"{self.folder}/cluster/etc/slurm.conf"

    def log(self):
        """The controller's, its end."""
        return read_text(f"{self.folder}/cluster/log/slurmctld.log")[-4000:]

    def stop(self):
        self.call("stop")
        subprocess.run(["rm", "-rf", self.folder], check=False)


class SlurmTest(CampaignTest):
    LINES = ()  # of slurm.conf, beside those of every test
    SHAPE = ("--nodes", "4", "--cpus", "2")

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(cls.LINES, cls.SHAPE)
        cls.addClassCleanup(cls.cluster.stop)
        if not cls.cluster.ready:
            raise unittest.SkipTest("no Slurm here, so nothing was tested: " + cls.cluster.why)

    def setUp(self):
        super().setUp()
        self.environment["SLURM_CONF"] = self.cluster.conf()
        self.environment["HOME"] = str(self.folder)  # workers' shells are login shells: they read no user's profile
        self.count_calls()
        self.earlier = set(self.jobs())  # of the test before: they complete for as long as a node that was crashed needs to come back
        self.addCleanup(self.cancel_jobs)

    def count_calls(self):
        """Wrappers in front of the scheduler's commands note every call, of coordinator, scripts and workers."""
        wrappers = self.folder / "wrappers"
        wrappers.mkdir()
        for name in SCHEDULER_CALLS:
            real = subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()
            if not real:
                continue
            wrapper = wrappers / name
            wrapper.write_text(f'#!/bin/sh\necho {name} "$@" >> "{self.folder}/calls"\nexec {real} "$@"\n')
            wrapper.chmod(0o755)
        self.environment["PATH"] = f"{wrappers}:{self.environment['PATH']}"

    def calls(self):
        return read_text(self.folder / "calls").splitlines()

    def submissions(self):
        return [call for call in self.calls() if call.startswith("sbatch --parsable")]

    def wait(self, condition, what, during=None):
        """A failure shows what the scheduler, the campaign and its workers are doing."""
        try:
            return super().wait(condition, what, during)
        except AssertionError as failure:
            status = self.start("status")
            status.wait()
            processes = subprocess.run(["ps", "-eo", "pid,ppid,stat,wchan:20,etimes,args"], capture_output=True, text=True).stdout.splitlines()
            shown = [self.slurm("squeue").stdout, self.slurm("sinfo", "-N", "-l").stdout, status.out + status.err, *self.calls(), self.cluster.log(), *self.logs(),
                     *(line for line in processes if str(self.folder) in line or "slurmstepd" in line)]
            raise AssertionError("\n".join([str(failure), *shown])) from failure

    def logs(self):
        """The end of each log of coordinators, workers and guardians, and of the output of each allocation."""
        campaign = self.campaign()
        files = [*campaign.glob(".wflow/logs/*.log"), *campaign.glob(".wflow/allocations/*.out")] if campaign else []
        return [f"{file.name}:\n{read_text(file)[-3000:]}" for file in sorted(files)]

    def slurm(self, *command):
        """A command of Slurm that is not counted."""
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SLURM_CONF": self.cluster.conf()})

    def jobs(self, states="PD,R,CF,CG", form="%i"):
        """Ids of jobs that are queued or run."""
        return self.slurm("squeue", "--noheader", f"--states={states}", f"--format={form}").stdout.split()

    def cancel_jobs(self):
        jobs = self.jobs()
        if jobs:
            self.slurm("scancel", *jobs)

    # ---- studies

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

    def gated(self, count=12, free=4, **study):
        """A campaign in which eight tasks, on four nodes, wait for its gate."""
        gate = Gate(self.folder, free)
        run = self.start("run", self.cluster_study(gate.command(), count=count, **study))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 8, "eight tasks are in the middle", run)
        return gate, run, directory

    # ---- what has happened

    def query(self, directory, sql):
        # Closed: an open connection would keep wflow's commands out.
        with contextlib.closing(sqlite3.connect(f"file:{directory}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            return database.execute(sql).fetchall()

    def allocations(self, directory):
        """(state, reason) of each, in order."""
        return self.query(directory, "select state, reason from v_allocations order by created")

    def said(self, part, kind=None):
        return any(part in text for text in self.history(kind))

    def assert_queue_empties(self, states="PD,R,CF,CG"):
        end = time.monotonic() + 5
        while set(self.jobs(states)) - self.earlier:
            if time.monotonic() > end:
                self.fail(f"jobs are left in the queue: {self.slurm('squeue').stdout}\n{self.calls()}\n{self.cluster.log()}")
            time.sleep(0.1)

    def assert_nothing_charged(self, directory):
        charged = "select * from v_failures where reason not in ('walltime', 'preempted', 'node')"
        self.assertEqual(self.query(directory, charged), [])

    def reasons(self, directory):
        return {reason for (reason,) in self.query(directory, "select reason from v_failures")}
