# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on a cluster: each fault on a real Slurm, and what the campaign's history says of it."""

import unittest

from slurm_cluster import AS_ROOT, SLOW, SlurmTest
from wflow_test import OK


class SlurmFaults(SlurmTest):
    def test_scancel_of_an_allocation(self):
        gate, run, directory = self.gated()
        job = self.jobs()
        self.slurm("scancel", *job)
        self.wait(lambda: job[0] not in self.jobs(), "its job is gone", run)
        self.wait(lambda: self.said("it was cancelled"), "its end is explained", run)
        self.assertTrue(self.said(f"allocation {job[0]} has ended: it was cancelled"), self.history())
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assertEqual(self.allocations(directory), [("ended", "it was cancelled"), ("ended", "given back")])
        self.assert_queue_empties()

    def test_a_slurmd_dies_under_a_task(self):
        """Its tasks live on, and so does their worker: nothing is lost."""
        gate, run, directory = self.gated()
        self.addCleanup(self.cluster.call, "revive", "n2")
        self.assertEqual(self.cluster.call("kill", "n2").returncode, 0)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        self.assertEqual(sorted(gate.passed()), list(range(12)), "each once")
        self.assert_queue_empties("PD,R")  # it is ending until the node is declared dead

    @unittest.skipUnless(SLOW and AS_ROOT, "until a silent worker's tasks run elsewhere: more than a minute")
    def test_a_node_loses_its_power(self):
        gate, run, directory = self.gated()
        self.addCleanup(self.cluster.call, "revive", "n2")
        self.assertEqual(self.cluster.call("crash", "n2").returncode, 0)
        self.wait(lambda: self.said("nothing heard for"), "the worker is given up", run)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(set(gate.passed()), set(range(12)))
        print(self.wflow("status", directory).out)

    def away(self, leave, come_back):
        """Tasks do not wait for the controller; what must be cancelled at the end does."""
        gate, run, directory = self.gated()
        self.addCleanup(self.cluster.call, *come_back)
        self.assertEqual(self.cluster.call(*leave).returncode, 0)
        gate.open()
        self.wait(lambda: len(gate.passed()) == 12, "the tasks end", run)
        self.wait(lambda: self.said("slurm did not cancel allocation"), "the coordinator has noticed", run)
        self.assertTrue(self.said("it is asked again"), self.history())
        self.cluster.call(*come_back)
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        # The nodes have ended the job meanwhile, and Slurm asks them again only after a minute: until then it is ending.
        self.assert_queue_empties("PD,R")

    def test_slurmctld_is_stopped_and_comes_back(self):
        # With SIGTERM it saves its state. After SIGKILL it may take a job that it has just started for a pending one,
        # start it again and drain the node for the duplicate.
        self.away(("kill", "ctld", "TERM"), ("revive", "ctld"))

    @unittest.skipUnless(SLOW, "Slurm takes minutes to settle afterwards")
    def test_slurmctld_is_frozen_for_a_while(self):
        self.away(("kill", "ctld", "STOP"), ("kill", "ctld", "CONT"))

    @unittest.skipUnless(AS_ROOT, "nodes with names of their own need root")
    def test_a_node_on_which_every_task_fails(self):
        study = self.cluster_study(f"test `hostname` != n3 || exit 127; {self.note()}; sleep 0.2", count=160)
        run = self.wflow("run", study)
        self.assertEqual(set(self.ran()), set(range(160)))
        self.assertRegex("\n".join(self.history()), r"node n3: the last \d+ tasks there failed, and on other nodes 0 of \d+ did")
        self.assertIn("work", run.out)
        self.assert_queue_empties()

    def test_a_requeued_job(self):
        gate, run, directory = self.gated(batch="type: slurm, walltime: '30:00', args: [--requeue]")
        job = self.jobs()[0]
        self.assertEqual(self.slurm("scontrol", "requeue", job).returncode, 0)
        self.wait(lambda: self.said("was requeued"), "the coordinator has noticed", run)
        self.assertTrue(self.said(f"allocation {job} was requeued by slurm"), self.history())
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assert_queue_empties()


class SlurmPreemption(SlurmTest):
    LINES = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE",
             "PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=10 State=UP")

    def test_a_preempted_job(self):
        gate, run, directory = self.gated()
        job = self.jobs()[0]
        urgent = self.slurm("sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", "--time=5",
                            "--output=/dev/null", "--wrap", "sleep 300").stdout.strip()
        self.wait(lambda: self.said("it was preempted"), "the coordinator has noticed", run)
        self.assertTrue(self.said(f"allocation {job} has ended: it was preempted"), self.history())
        self.slurm("scancel", urgent)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_nothing_charged(directory)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assert_queue_empties()


if __name__ == "__main__":
    unittest.main()
