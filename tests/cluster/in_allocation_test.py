# SPDX-License-Identifier: Apache-2.0
"""A coordinator that lives in the campaign's allocations, on a real Slurm of four nodes: it moves, is killed, is cancelled."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from slurm_cluster import SlurmTest  # noqa: E402
from wflow_test import INTERRUPTED, OK, Gate, lines_of, wait_for  # noqa: E402


class InAllocation(SlurmTest):
    BATCH = "type: slurm, walltime: '30:00', coordinator: in_allocation"

    def endpoint(self, directory):
        try:
            return json.loads((directory / ".wflow" / "endpoint.json").read_text())
        except (OSError, ValueError):
            return None

    def record(self, directory):
        return json.loads((directory / ".wflow" / "coordinator.lock").read_text().split("\n")[0])

    def coordinators(self):
        """(pid, token) of those that coordinate or wait, by their command lines."""
        found = []
        for pid in self.processes("coordinate"):
            words = self.words(pid)
            if words[1:2] == ["coordinate"]:
                found.append((pid, words[words.index("--allocation") + 1]))
        return found

    def wait_for_coordinator(self, directory, run=None, other_than=None):
        """The endpoint of a coordinator in an allocation; not of the process that submitted the first one."""

        def host():
            at = self.endpoint(directory)
            ours = at and any(pid == at["pid"] for pid, _ in self.coordinators())
            return at if ours and at["epoch"] != (other_than or {}).get("epoch") else None

        return self.wait(host, "a coordinator in an allocation", run)

    def job_of(self, directory, pid):
        token = dict(self.coordinators())[pid]
        names = self.slurm("squeue", "--noheader", "--format=%i %k").stdout.split("\n")
        return next(line.split()[0] for line in names if token in line)  # the comment of the job

    def test_it_moves_as_walltimes_end(self):
        """Allocations of one minute for a campaign of about three."""
        tasks = 300
        study = self.cluster_study(self.note() + "; sleep 1", count=tasks, workers="{nodes: 1, slots: 2, max: 1}",
                                   batch="type: slurm, walltime: '1:00', coordinator: in_allocation")
        run = self.start("run", study)
        directory = self.wait_for_campaign(run)
        epochs, hosts = set(), set()
        while run.running():
            status = self.status()  # from the login node, the whole time
            self.assertIn(status["state"], ("running", "interrupted", "finished"))
            at = self.endpoint(directory)
            if at:
                epochs.add(at["epoch"])
                hosts.add(at["host"])
            time.sleep(0.5)
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_queue_empties()
        self.assert_nothing_charged(directory)
        self.assertEqual(set(self.ran()), set(range(tasks)))
        rows = self.query(directory, "select started, ended, reason from v_allocations order by started")
        handed = [text for text in self.history("batch") if "hands over" in text]
        print(f"{len(rows)} allocations {rows}; coordinators on {hosts}, epochs {epochs}; {handed}", file=sys.stderr)
        self.assertGreaterEqual(len(rows), 3)
        self.assertGreaterEqual(len(handed), 3, "the login node to the first allocation, and then from one to the next")
        if os.geteuid() == 0:
            self.assertTrue(all(host.startswith("n") for host in hosts - {os.uname().nodename}), hosts)
        self.assertEqual(self.record(directory)["state"], 2, "released")

    def gated(self, count=12, free=4, workers="{nodes: 1, slots: 2, max: 2}", batch=BATCH, options=()):
        gate = Gate(self.folder, free)
        # One process a task: the scheduler's signal reaches a shell and what it waits for in any order.
        command = f"exec bash {gate.script} $(MERLIN_SAMPLE_ID)"
        run = self.start("run", self.cluster_study(command, count=count, workers=workers, batch=batch), *options)
        directory = self.wait_for_campaign(run)
        return gate, run, directory

    def test_the_coordinator_is_killed(self):
        gate, run, directory = self.gated()
        first = self.wait_for_coordinator(directory, run)
        self.wait(lambda: gate.waiting() == 4, "four tasks are in the middle, on two allocations", run)
        self.wait(lambda: len(self.coordinators()) == 2, "one coordinates, one waits", run)
        os.kill(first["pid"], signal.SIGKILL)
        second = self.wait_for_coordinator(directory, run, other_than=first)
        self.assertNotEqual(first["pid"], second["pid"])
        self.wait(lambda: sum("came back" in text for text in self.history("worker")) >= 2, "its workers are back", run)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(sorted(gate.passed()), list(range(12)), "each once")
        self.assertEqual(sorted(gate.began()), list(range(12)), "each once")
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_its_allocation_is_cancelled(self):
        gate, run, directory = self.gated()
        first = self.wait_for_coordinator(directory, run)
        self.wait(lambda: gate.waiting() == 4, "four tasks are in the middle, on two allocations", run)
        self.slurm("scancel", self.job_of(directory, first["pid"]))
        self.wait_for_coordinator(directory, run, other_than=first)
        gate.open()
        self.assertEqual(run.wait(), OK, f"{run.err}{run.out}{self.query(directory, 'select * from v_failures')}")
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_the_only_allocation_is_cancelled_and_nobody_follows(self):
        """The coordinator submits its successor before it ends; no process on the login node is needed."""
        gate, run, directory = self.gated(workers="{nodes: 1, slots: 2, max: 1}", options=["--detach"])
        self.assertEqual(run.wait(), OK, run.err)
        first = self.wait_for_coordinator(directory)
        wait_for(lambda: gate.waiting() == 2, "two tasks are in the middle")
        self.slurm("scancel", self.job_of(directory, first["pid"]))
        self.wait_for_coordinator(directory, other_than=first)
        gate.open()
        self.assertEqual(self.start("attach").wait(), OK, self.query(directory, "select * from v_failures"))
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_everything_is_gone_and_resume_goes_on(self):
        gate, run, directory = self.gated(workers="{nodes: 1, slots: 2, max: 1}",
                                          batch=self.BATCH + ", linger: 20")
        first = self.wait_for_coordinator(directory, run)
        self.wait(lambda: gate.waiting() == 2, "two tasks are in the middle", run)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        os.kill(first["pid"], signal.SIGKILL)
        gate.open()
        wait_for(lambda: not self.jobs(), "the end of the allocation")
        again = self.start("resume", directory)
        self.assertEqual(again.wait(), OK, again.err)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_commands_from_the_login_node(self):
        gate, run, directory = self.gated()
        self.wait_for_coordinator(directory, run)
        self.wait(lambda: gate.waiting() == 4, "four tasks are in the middle", run)
        self.wflow("pause")
        self.assertEqual(self.status()["state"], "paused")
        self.wflow("unpause")
        self.assertIn("running", self.wflow("allocations", "list").out)
        attached = self.start("attach")
        self.wflow("stop")
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assertEqual(attached.wait(), INTERRUPTED, attached.err)
        self.assert_queue_empties()
        self.assert_nothing_charged(directory)

    def test_stopped_while_it_waits_in_the_queue(self):
        """No coordinator runs: the command itself coordinates, for as long as it takes."""
        for node in ("n1", "n2", "n3", "n4"):
            self.slurm("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
            self.addCleanup(self.slurm, "scontrol", "update", f"nodename={node}", "state=resume")
        run = self.start("run", self.cluster_study("true", batch=self.BATCH), "--detach")
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(len(self.jobs()), 1)
        status = self.wflow("status").out
        self.assertIn(f"allocation {self.jobs()[0]}: pending for", status)
        self.assertIn("the coordinator of the next allocation goes on", status)
        self.wflow("stop")
        self.assert_queue_empties()
        self.assertEqual(self.record(self.campaign())["state"], 2, "released")

    def test_interrupt_of_the_process_that_follows(self):
        gate, run, directory = self.gated()
        self.wait_for_coordinator(directory, run)
        self.wait(lambda: gate.waiting() == 4, "four tasks are in the middle", run)
        run.signal(signal.SIGINT)
        self.wait(lambda: self.status()["state"] == "draining", "it drains", run)
        gate.open()
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assert_queue_empties()
        self.assertEqual(len(gate.passed()), len(lines_of(self.folder / "gate" / "began")))

    def test_a_second_coordinator_is_refused(self):
        gate, run, directory = self.gated()
        at = self.wait_for_coordinator(directory, run)
        second = self.start("resume", directory)
        second.wait()
        self.assertIn("another coordinator runs this campaign", second.err)
        self.assertEqual(self.endpoint(directory)["epoch"], at["epoch"])
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_queue_empties()


if __name__ == "__main__":
    unittest.main()
