# SPDX-License-Identifier: Apache-2.0
"""What used to be retried for ever on a cluster: GPUs, tasks that end their allocation, walltimes, nodes without power, refused submissions;
and a study in the allocation that wflow stands in."""

import os
import subprocess
import sys
import time
import unittest

from slurm_cluster import AS_ROOT, SLOW, SlurmTest
from wflow_test import OK, SPEC, SYSTEM, TASKS_FAILED, lines_of, read_text

MORE = "      {}\n"  # a key of run: of the study's step


def left_at(rows, at_s):
    """The time left of the youngest allocation of those (started, ends, ...) when a task began."""
    return next(ends - at_s for started, ends, *_ in reversed(rows) if started <= at_s)


class GpusOfPools(SlurmTest):
    SHAPE = ("--nodes", "2", "--cpus", "4", "--gpus", "4")

    def test_each_task_has_a_device_of_its_own(self):
        """Eight devices, eight tasks at a time: each waits until eight are there, so that all devices are in use at once."""
        log, tasks = self.folder / "devices", 24
        command = (f'echo "begin $(MERLIN_SAMPLE_ID) `hostname` $CUDA_VISIBLE_DEVICES" >> {log}; '
                   f'until [ `grep -c begin {log}` -ge 8 ]; do sleep 0.1; done; sleep 0.2; '
                   f'echo "end $(MERLIN_SAMPLE_ID) `hostname` $CUDA_VISIBLE_DEVICES" >> {log}')
        self.wflow("run", self.cluster_study(command, count=tasks, workers="{nodes: 2, slots: 4}", batch="type: slurm, gpus: 4",
                                             extra=MORE.format("gpus: 1")))
        used, done, most = set(), set(), 0
        for line in read_text(log).splitlines():
            what, task, host, device = line.split()
            self.assertRegex(device, r"^[0-3]$", line)
            if what == "end":
                used.remove((host, device))
                done.add(int(task))
                continue
            self.assertNotIn((host, device), used, f"{line}: two tasks have this device at once")
            used.add((host, device))
            most = max(most, len(used))
        self.assertEqual(done, set(range(tasks)))
        self.assertEqual(most, 8)
        self.assertEqual(len(self.submissions()), 1)
        self.assert_queue_empties()

    def test_tasks_of_several_devices(self):
        log = self.folder / "devices"
        self.wflow("run", self.cluster_study(f'echo "$CUDA_VISIBLE_DEVICES" >> {log} # $(MERLIN_SAMPLE_ID)', count=6,
                                             workers="{nodes: 1, slots: 4}", extra=MORE.format("gpus: 2")))
        self.assertLessEqual(set(lines_of(log)), {"0,1", "2,3", "0,2", "0,3", "1,2", "1,3"})
        self.assertEqual(len(lines_of(log)), 6)

    def test_what_no_pool_holds_is_refused_before(self):
        for batch, asked, said in (("type: slurm, gpus: 2", "gpus: 4", "asks for 4 GPUs, and a node of the pools that serve it (all) has 2"),
                                   ("type: slurm, memory: 1 GB", "memory: 4 GB", "of memory, and a node"),
                                   ("type: slurm, exclusive: false", "cores: 9", "asks for 9 processors")):
            refused = self.wflow("validate", self.cluster_study("true", batch=batch, extra=MORE.format(asked)), code=SPEC)
            self.assertIn(said, refused.err)
        self.assertEqual(self.submissions(), [])

    def test_allocations_that_run_nothing_stop_the_pool(self):
        """Nodes that have one device where the scheduler promised more: no worker can take the tasks."""
        study = self.cluster_study("true $(MERLIN_SAMPLE_ID)", workers="{nodes: 1, slots: 2, max: 1, idle_timeout: 2}",
                                   extra=MORE.format("gpus: 2"), batch="type: slurm, setup: [export SLURM_GPUS_PER_NODE=1]")
        run = self.start("run", study)
        self.wait_for_campaign(run)
        said = self.wait(lambda: [text for text in self.history() if "in a row ended without having run a task" in text],
                         "the pool gives up", run)
        print(said, file=sys.stderr)
        self.assertIn("a task of the step 'work' asks for 2 GPUs, and the workers have 1", said[0])
        self.assertIn("in a row ended without having run a task", self.wflow("status").out)
        self.assertNotEqual(run.wait(), OK, "it ends by itself")
        self.assertEqual(len(self.submissions()), 3, self.calls())
        self.assert_queue_empties()


class Losses(SlurmTest):
    def failures(self, directory, sample):
        return self.query(directory, f"select attempt, reason, detail from v_failures where sample = {sample} order by attempt")

    def test_a_poison_task_and_its_neighbours(self):
        """On one-node allocations: each loss ends the allocation, with the neighbours that ran in it."""
        study = self.cluster_study(f"test $(MERLIN_SAMPLE_ID) != 3 || kill -9 $PPID; sleep 0.5; {self.note()}",
                                   workers="{nodes: 1, slots: 2, max: 2}")
        began = time.monotonic()
        run = self.wflow("run", study, code=TASKS_FAILED)
        took = time.monotonic() - began
        directory = self.campaign()
        failures = self.failures(directory, 3)
        print(f"{took:.0f} s, {len(self.submissions())} allocations, {failures}, {self.history()}", file=sys.stderr)
        self.assertEqual(set(self.ran()), set(range(12)) - {3}, run.out)
        self.assertEqual([reason for _, reason, _ in failures], ["worker_lost"] * 3)
        losses = [text for text in self.history("worker") if " lost: " in text]
        self.assertEqual(len(losses), 3, losses)
        self.assertIn("in quarantine: 3 workers were lost while this task ran", failures[-1][2])
        self.assertEqual(self.counts("work")["failed"], 1)
        self.assertLessEqual(len(self.submissions()), 6)
        self.assert_queue_empties()


class MemoryKills(SlurmTest):
    """Slurm looks at the memory of a job every second, and ends what uses more than the node has."""
    SHAPE = ("--nodes", "2", "--cpus", "2", "--mem", "400")
    LINES = ("SelectTypeParameters=CR_CPU_Memory", "JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=task=1",
             "JobAcctGatherParams=OverMemoryKill")

    def test_memory_is_named(self):
        glutton = self.folder / "glutton.py"
        glutton.write_text("import time\nx = bytearray(800 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(10)\n")
        study = self.cluster_study(f"test $(MERLIN_SAMPLE_ID) != 3 || {sys.executable} {glutton}; sleep 0.5; {self.note()}",
                                   workers="{nodes: 1, slots: 2, max: 2}")
        began = time.monotonic()
        self.wflow("run", study, code=TASKS_FAILED)
        took = time.monotonic() - began
        directory = self.campaign()
        failures = self.query(directory, "select attempt, reason, detail from v_failures where sample = 3 order by attempt")
        print(f"{took:.0f} s, {len(self.submissions())} allocations, {failures}, {self.history()}", file=sys.stderr)
        self.assertEqual(set(self.ran()), set(range(12)) - {3})
        self.assertLessEqual(len(failures), 3)
        self.assertIn("memory", failures[-1][2])
        self.assertEqual(failures[-1][1], "out_of_memory")
        self.assertIn("memory", self.wflow("status").out)
        self.assert_queue_empties()


@unittest.skipUnless(SLOW, "walltimes of a minute: three minutes")
class Walltimes(SlurmTest):
    def test_a_task_longer_than_the_walltime(self):
        study = self.cluster_study(f"test $(MERLIN_SAMPLE_ID) != 3 || exec sleep 300; {self.note()}",
                                   workers="{nodes: 1, slots: 2, max: 1}", batch="type: slurm, walltime: '1:00'")
        began = time.monotonic()
        run = self.wflow("run", study, code=TASKS_FAILED)
        failures = self.query(self.campaign(), "select attempt, reason, detail from v_failures where sample = 3 order by attempt")
        print(f"{time.monotonic() - began:.0f} s, {len(self.submissions())} allocations, {failures}", file=sys.stderr)
        self.assertIn("raise 'walltime' of batch: or of its pool above 60 s", failures[-1][2])
        self.assertEqual(set(self.ran()), set(range(12)) - {3}, run.out)
        self.assertLessEqual(len(failures), 2)
        self.assert_queue_empties()

    def test_a_task_that_nearly_fills_the_walltime(self):
        """It is cut in what was left of the first allocation, and begins again where there is more than that, in a fresh one."""
        begun = self.folder / "begun"
        extra = f"""
  - name: long
    depends: [work_*]
    run:
      cmd: |
        echo `date +%s.%N`:`hostname` >> {begun}
        exec sleep 48
"""
        study = self.cluster_study("sleep 20", count=1, workers="{nodes: 1, slots: 2, max: 1}",
                                   batch="type: slurm, walltime: '1:00'", extra=extra)
        began = time.monotonic()
        self.wflow("run", study)
        directory = self.campaign()
        failures = self.query(directory, "select attempt, reason, detail from v_failures order by attempt")
        rows = self.query(directory, "select started, ends, ended, reason from v_allocations order by created")
        print(f"{time.monotonic() - began:.0f} s, {rows}, {failures}, {lines_of(begun)}", file=sys.stderr)
        self.assertEqual(len(lines_of(begun)), 2)
        left_s = left_at(rows, float(lines_of(begun)[1].split(":")[0]))
        self.assertGreater(left_s, 31, "it is not started again where less is left than it has taken already")
        self.assertEqual(len(failures), 1)
        self.assertEqual(failures[0][1], "walltime")
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()


@unittest.skipUnless(AS_ROOT, "nodes with names of their own need root")
class PowerCuts(SlurmTest):
    def power_cut(self, workers):
        log = self.folder / "log"
        # Other nodes wait until n2, whose allocation may start after theirs, has its two tasks.
        command = (f'echo "$(MERLIN_SAMPLE_ID):`hostname`" >> {log}; if [ `hostname` = n2 ]; then until [ -e {self.folder}/open ]; '
                   f"do sleep 0.1; done; else until [ `grep -c n2 {log}` -ge 2 ]; do sleep 0.1; done; fi; sleep 0.2")
        run = self.start("run", self.cluster_study(command, count=40, workers=workers))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: self.counts("work")["done"] == 38, "all but those of n2 are done", run)
        lost = {line.split(":")[0] for line in lines_of(log) if line.endswith(":n2")}
        self.assertEqual(len(lost), 2, lines_of(log))
        self.addCleanup(self.cluster.call, "revive", "n2")
        self.assertEqual(self.cluster.call("crash", "n2").returncode, 0)
        time.sleep(2)
        self.assertEqual(self.slurm("scontrol", "update", "nodename=n2", "state=down", "reason=test").returncode, 0)
        told = time.monotonic()

        def again():
            return lost == {line.split(":")[0] for line in lines_of(log) if line.split(":")[0] in lost and not line.endswith(":n2")}

        self.wait(again, "they run elsewhere", run)
        took = time.monotonic() - told
        print(f"{workers}: {took:.1f} s from the scheduler's word to the next lease", file=sys.stderr)
        self.assertEqual(run.wait(), OK, run.err)
        print(self.history("worker"), self.history("batch"), file=sys.stderr)
        self.assertLess(took, 10)
        self.assert_nothing_charged(directory)
        self.assert_queue_empties("PD,R")

    def test_a_node_of_four(self):
        self.power_cut("{nodes: 4, slots: 2}")

    def test_an_allocation_of_one_node(self):
        self.power_cut("{nodes: 1, slots: 2, max: 4}")


class Refusals(SlurmTest):
    """Not the QOS: a Slurm without accounting takes any."""

    def test_validate_and_plan_print_what_slurm_says(self):
        for batch, said in (("partition: nosuch", "invalid partition specified: nosuch"),
                            ("constraint: nosuch", "Invalid feature specification"),
                            ("reservation: nosuch", "Requested reservation is invalid"),
                            ("walltime: 30 h", "Requested time limit is invalid"),
                            ("nodes: 9", "More processors requested than permitted"),
                            ("args: [--nosuch]", "unrecognized option '--nosuch'")):
            with self.subTest(batch):
                study = self.cluster_study("true", workers="{slots: 2}", batch="type: slurm, " + batch)
                for command in (("validate", study), ("plan", study, "--batch")):
                    refused = self.wflow(*command, code=SYSTEM)
                    self.assertIn(said, refused.err)
                    self.assertIn("the pool 'all'", refused.err)
        self.assertEqual(self.jobs(), [])


class AroundCampaigns(SlurmTest):
    """`wflow run` in an allocation that somebody has got already: no scheduler in the study."""

    def local_study(self, command, count=32):
        return self.study(f"""
description: {{name: around, description: tasks in the allocation around}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {count}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {command}
""")

    def assert_spread(self, out, nodes):
        self.assertEqual(self.ran(), list(range(32)), "each once")
        hosts = {line.split(":")[1] for line in lines_of(self.folder / "ran")}
        if AS_ROOT:
            self.assertEqual(len(hosts), nodes, hosts)
        said = [line for line in out.splitlines() if "tasks run in the slurm allocation" in line]
        self.assertEqual(len(said), 1, out)
        self.assertIn(f"a worker on each of its {nodes} nodes", said[0])
        self.assertEqual(self.submissions(), [])

    def test_salloc(self):
        study = self.local_study(self.note() + "; sleep 0.3")
        done = subprocess.run(["salloc", "-N2", "--quiet", "wflow", "run", str(study)], capture_output=True, text=True,
                              env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assert_spread(done.stdout, 2)
        self.assert_queue_empties()

    def test_a_batch_job(self):
        study = self.local_study(self.note() + "; sleep 0.3")
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\ncd {self.folder}\nwflow run {study}\necho code $?\n")
        out = self.folder / "job.out"
        sent = subprocess.run(["sbatch", "--wait", "-N2", f"--output={out}", str(script)], capture_output=True, text=True,
                              env=self.environment, cwd=self.folder)
        self.assertEqual(sent.returncode, OK, sent.stderr)
        self.assertIn("code 0", read_text(out))
        self.assert_spread(read_text(out), 2)
        self.assert_queue_empties()

    def test_this_machine_alone(self):
        study = self.local_study(self.note())
        done = subprocess.run(["salloc", "-N2", "--quiet", "wflow", "run", "--local", str(study)], capture_output=True, text=True,
                              env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assertNotIn("a worker on each", done.stdout)
        self.assertEqual({line.split(":")[1] for line in lines_of(self.folder / "ran")}, {os.uname().nodename})
        self.assert_queue_empties()


if __name__ == "__main__":
    unittest.main()
