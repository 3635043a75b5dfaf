# SPDX-License-Identifier: Apache-2.0
"""Tasks on several nodes of a real Slurm (slurm-local): MPI programs beside small tasks, lost nodes, training."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from slurm_cluster import SlurmTest  # noqa: E402
from wflow_test import BIN, OK, TASKS_FAILED, quickstart, read_text, wait_for  # noqa: E402

RING = Path(__file__).resolve().parent / "ring.c"
MPICC = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
SECONDS = 5  # in which no rank may be left of a task that has lost a node


def alive(pid):
    """Zombies have ended."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


class GangTest(SlurmTest):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0 or MPICC is None:
            raise unittest.SkipTest("no Slurm here with nodes of their own and Open MPI: root and mpicc are needed")
        super().setUpClass()
        cls.ring = Path(cls.cluster.folder) / "ring"
        subprocess.run([MPICC, str(RING), "-o", str(cls.ring)], check=True)

    def gang_study(self, steps, batch="type: slurm, nodes: 4, walltime: '30:00'", workers="{slots: 2}"):
        return self.study(f"""
description: {{name: gangs, description: tasks on several nodes}}
env: {{variables: {{OUTPUT_PATH: .}}}}
batch: {{{batch}}}
workers: {{all: {workers}}}
study:
{steps}""")

    def step(self, name, nodes, more="", launcher="$(LAUNCHER)", seconds=0):
        return (f"  - {{name: {name}, run: {{cmd: '{launcher} {self.ring} {self.folder}/go {seconds}', nodes: {nodes}"
                f"{more}}}}}\n")

    def go(self):
        (self.folder / "go").touch()

    def ranks(self, name):
        """(rank, size, host, pid) of all executions."""
        found = re.findall(r"rank (\d+) of (\d+) on (\S+) pid (\d+)", read_text(self.campaign() / name / f"{name}.slurm.out"))
        return [(int(rank), int(size), host, int(pid)) for rank, size, host, pid in found]

    @staticmethod
    def lead(ranks):
        """The node whose worker has the task: the first that they name."""
        return re.search(r"WFLOW_NODES=(\w+)", read_text(f"/proc/{ranks[0][3]}/environ")).group(1)

    def failures(self, directory):
        return self.query(directory, "select reason, final from v_failures")

    def assert_one_loss(self, directory):
        """One node was lost, which no attempt is charged for. Its reason is `node` once Slurm has reported it, which may be before the
        campaign's end (docs/reliability.md, late evidence)."""
        self.assertIn(self.failures(directory), ([("worker_lost", 0)], [("node", 0)]))

    def revive(self, node):
        self.cluster.call("revive", node)


class Gangs(GangTest):
    def test_mpi_programs_beside_small_tasks(self):
        small = ("  - {name: small, run: {cmd: 'echo $(N) `hostname` >> %s/ran; sleep 0.2', priority: 1}}\n" % self.folder)
        text = self.gang_study(self.step("two", 2) + self.step("three", 3) + small)
        body = text.read_text() + "parameters: {N: [%s]}\n" % ", ".join(str(n) for n in range(80))
        text.write_text(body)
        self.go()
        run = self.wflow("run", text)
        self.assert_queue_empties()
        directory = self.campaign()
        self.assert_nothing_charged(directory)
        for name, nodes in (("two", 2), ("three", 3)):
            ranks = self.ranks(name)
            self.assertEqual(sorted(rank for rank, *_ in ranks), list(range(nodes)), run.out)
            self.assertEqual({size for _, size, *_ in ranks}, {nodes})
            self.assertEqual(len({host for _, _, host, _ in ranks}), nodes, "a node each")
        self.assertEqual(sorted(int(n) for n in lines_of_first(self.folder / "ran")), list(range(80)), "each once")

    def lose(self, lead):
        run = self.start("run", self.gang_study(self.step("two", 2)))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: len(self.ranks("two")) == 2, "both ranks run", run)
        first = self.ranks("two")
        # For Slurm's PMIx the step's nodes are the job's, else 1 to 3 of 100 starts hang in MPI_Init (engine/batch/mpi_launch.cc).
        nodes = re.search(r"SLURM_JOB_NODELIST=([^\0]*)", read_text(f"/proc/{first[0][3]}/environ")).group(1)
        self.assertEqual(nodes.split(","), sorted(host for _, _, host, _ in first))
        node = next(host for _, _, host, _ in first if (host == self.lead(first)) == lead)
        self.cluster.call("crash", node)
        self.addCleanup(self.revive, node)
        crashed = time.monotonic()
        self.wait(lambda: not any(alive(pid) for *_, pid in first), "no rank is left", run)
        print(f"lost {'the first' if lead else 'another'} node: no rank after {time.monotonic() - crashed:.1f} s", file=sys.stderr)
        self.wait(lambda: len(self.ranks("two")) == 4, "it runs again", run)
        print(f"and again after {time.monotonic() - crashed:.1f} s", file=sys.stderr)
        self.assertNotIn(node, {host for _, _, host, _ in self.ranks("two")[2:]})
        self.go()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_one_loss(directory)
        self.assertFalse([row for row in self.ranks("two") if alive(row[3])])
        return self.history()

    def test_a_lost_node(self):
        history = self.lose(lead=False)
        self.assertTrue(any("node" in text and "runs again" in text for text in history), history)

    def test_the_first_node_lost(self):
        self.lose(lead=True)

    def test_a_killed_worker_leaves_no_rank(self):
        """The worker that has the task dies with its launcher: its ranks on other nodes are ended by their workers."""
        run = self.start("run", self.gang_study(self.step("two", 2)))
        self.wait_for_campaign(run)
        self.wait(lambda: len(self.ranks("two")) == 2, "both ranks run", run)
        first = self.ranks("two")
        lead = self.lead(first)
        worker = [pid for pid in self.processes("wflow worker") if f"SLURMD_NODENAME={lead}\0" in read_text(f"/proc/{pid}/environ")]
        self.assertTrue(worker)
        self.kill(worker)
        self.wait(lambda: not any(alive(pid) for *_, pid in first), "no rank is left", run)
        self.go()
        self.assertEqual(run.wait(), OK, run.err)

    def test_cancelled(self):
        run = self.start("run", self.gang_study(self.step("three", 3)))
        self.wait_for_campaign(run)
        self.wait(lambda: len(self.ranks("three")) == 3, "all ranks run", run)
        self.wflow("cancel", "--kill")
        run.wait()
        wait_for(lambda: not any(alive(pid) for *_, pid in self.ranks("three")), "no rank is left", SECONDS)
        self.assert_queue_empties()

    def test_an_allocation_of_its_own(self):
        self.go()
        small = "  - {name: small, run: {cmd: 'hostname'}}\n"
        self.wflow("run", self.gang_study(self.step("two", 2, ", batch: own, walltime: '5:00'") + small,
                                          batch="type: slurm, walltime: '30:00'", workers="{slots: 2, nodes: 1}"))
        self.assertEqual(self.query(self.campaign(), "select pool, nodes from v_allocations order by pool"), [("all", 1), ("two", 2)])
        self.assertEqual(len(self.ranks("two")), 2)
        self.assert_queue_empties()

    def test_the_wrong_process_interface(self):
        self.go()
        run = self.wflow("run", self.gang_study(self.step("two", 2, ", slurm: --mpi=none")), code=TASKS_FAILED)
        said = read_text(self.campaign() / "two" / "two.slurm.err")
        self.assertIn("--mpi=none", said, run.out)
        self.assertIn("2 worlds of one process", said)

    @unittest.skipUnless(shutil.which("mpicc.mpich"), "MPICH is not here")
    def test_programs_of_mpich(self):
        """Under srun --mpi=pmix they would be worlds of one process, and end well."""
        self.ring = self.folder / "ring"
        subprocess.run(["mpicc.mpich", str(RING), "-o", str(self.ring)], check=True)
        self.go()
        steps = self.step("right", 2) + self.step("wrong", 2, ", slurm: --mpi=pmix")
        self.wflow("run", self.gang_study(steps), code=TASKS_FAILED)
        self.assertEqual({size for _, size, *_ in self.ranks("right")}, {2})
        self.assertEqual(self.ranks("wrong"), [])
        self.assertIn("2 worlds of one process; leave the option out, or say --mpi=pmi2",
                      read_text(self.campaign() / "wrong" / "wrong.slurm.err"))

    def test_more_nodes_than_there_can_be(self):
        study = self.gang_study(self.step("two", 2), workers="{slots: 2, nodes: 1}")
        refused = self.wflow("validate", study, code=3)
        self.assertIn("asks for 2 nodes, and the allocations that serve it (all) have 1", refused.err)


def lines_of_first(path):
    return [line.split()[0] for line in read_text(path).splitlines()]


class GangTraining(GangTest):
    UNIVERSES, EPOCHS = 12, 24

    def training(self, more):
        text = quickstart(self.UNIVERSES, self.EPOCHS, checkpoint_steps=1)
        text = re.sub(r"^    RANKS: \S+", "    RANKS: 2", text, flags=re.M)
        text = text.replace("      ranks: $(RANKS)\n", f"      ranks: $(RANKS)\n      nodes: 2\n{more}")
        return self.study(text + "batch: {type: slurm, nodes: 3, walltime: '30:00'}\nworkers: {all: {slots: 2}}\n")

    def assert_equal_to_a_local_run(self, train):
        output = self.folder / "reference"
        lines = (train / "train.yaml").read_text().splitlines()
        lines = [f'output: "{output}"' if line.startswith("output:") else line for line in lines]
        config = self.study("\n".join(lines) + "\n", "reference.yaml")
        mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
        command = [mpirun, "-n", "2", "--oversubscribe", "--bind-to", "none", BIN / "wflow-train", config]
        done = subprocess.run([str(w) for w in command], env=self.environment, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assert_same_weights(train / "model.pt", output / "model.pt")

    def test_on_two_nodes_as_on_one(self):
        run = self.wflow("run", self.training(""))
        directory = self.campaign()
        self.assert_nothing_charged(directory)
        self.assert_equal_to_a_local_run(directory / "train")
        self.assertEqual(json.loads((directory / "train" / "result.json").read_text())["ranks"], 2, run.out)
        self.assert_queue_empties()

    def data_set(self):
        """24 small boxes and a target."""
        import numpy
        rng = numpy.random.default_rng(1)
        rows = ["id,file,amplitude"]
        for i in range(24):
            numpy.save(self.folder / f"{i}.npy", rng.normal(size=(1, 8, 8, 8)).astype("f4"))
            rows.append(f"{i},{self.folder}/{i}.npy,{rng.uniform()}")
        (self.folder / "table.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "convert.yaml").write_text(f"samples: table.csv\ntargets: [amplitude]\nsplit: {{train: 18, validation: 3, test: 3}}\n"
                                                  f"output: {self.folder}/data\n")
        subprocess.run([BIN / "wflow-convert", self.folder / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)

    def test_leaves_out_a_slow_node(self):
        """The node that is the second of the first start sleeps in each step: the training goes on from its checkpoint without it."""
        self.data_set()
        config = {"data": str(self.folder / "data"), "output": str(self.folder / "out"), "ranks": 3, "batch": 6, "epochs": 40,
                  "model": {"name": "cosmoflow", "width": 2}, "exclude_slow": 1.5}
        (self.folder / "train.yaml").write_text(json.dumps(config))
        slow = self.folder / "slow"
        run = self.wflow("run", self.gang_study(f"""
  - name: train
    run:
      cmd: |
        [ -e {slow} ] || echo $WFLOW_NODES | cut -d, -f2 > {slow}
        $(LAUNCHER) {BIN}/wflow-train {self.folder}/train.yaml --inject-slow-rank host=`cat {slow}`,seconds=0.4
      nodes: 3
      min_nodes: 2
      procs: 3
""", "type: slurm, nodes: 3, walltime: '30:00'"))
        directory = self.campaign()
        node = slow.read_text().strip()
        self.assertEqual(self.failures(directory), [("worker_lost", 0)], run.out)
        self.assertTrue(any(f"runs again: without the node {node}: node {node} takes " in text for text in self.history()), self.history())
        out = read_text(directory / "train" / "train.slurm.out")
        self.assertIn("continued from epoch", out)
        self.assertEqual(json.loads((self.folder / "out" / "result.json").read_text())["ranks"], 2)

    def stop_rank(self, run, train, rank):
        """Stops it once there is a checkpoint, so that the training waits for it: {pid: environment} of its processes. The training has
        enough steps that it is still under way when its processes have been found."""
        self.wait(lambda: list((train / "checkpoints").glob("step-*.wfck")), "the training is under way", run)
        found = {pid: read_text(f"/proc/{pid}/environ") for pid in self.processes("wflow-train")}
        found = {pid: text for pid, text in found.items() if f"SLURM_PROCID={rank}\0" in text}
        self.signal_each(found, signal.SIGSTOP)
        return found

    def crash_node_of(self, processes):
        node = re.search(r"SLURMD_NODENAME=(\w+)", next(iter(processes.values())))[1]
        self.cluster.call("crash", node)
        self.addCleanup(self.revive, node)

    def on_two_nodes(self, name, **keys):
        """A study with a training of two ranks. Two ranks on each node are not tested: one of six starts, and more on a busy
        machine, crashes in MPI_Init of Open MPI 4.1.4 with PMIx 4.2.2 under Slurm 22.05, whatever the program is."""
        config = {"data": f"{self.folder}/data", "ranks": 2, "nodes": 2, "batch": 6, "epochs": 60, "seed": 5,
                  "model": {"name": "cosmoflow", "width": 2}, "checkpoint": {"every_steps": 1, "keep": 2}, **keys}
        return self.study(f"""
description: {{name: {name}, description: a training on two nodes}}
env: {{variables: {{OUTPUT_PATH: .}}}}
batch: {{type: slurm, nodes: 3, walltime: '30:00'}}
workers: {{all: {{slots: 2}}}}
study:
  - {{name: train, max_retries: 3, train: {json.dumps(config)}}}
""", name + ".yaml")

    def disturbed(self, disturb, name, **keys):
        """A training goes on after its second rank was lost in a step, and ends as if nothing had been: returns the causes and its output."""
        self.data_set()
        run = self.start("run", self.on_two_nodes(name, **keys))
        directory = self.wait_for_campaign(run)
        disturb(self.stop_rank(run, directory / "train", 1))
        self.assertEqual(run.wait(), OK, run.err)
        out = read_text(directory / "train" / "train.out")
        self.assertIn("continued from epoch", out)
        self.assert_equal_to_a_local_run(directory / "train")
        failures = self.failures(directory)
        self.assertEqual({final for _, final in failures}, {0})
        return {reason for reason, _ in failures}, out

    def test_ranks_of_two_nodes_share_samples_and_a_node_is_lost(self):
        """Each sample is cut in two, so that halos travel between the nodes."""
        reasons, out = self.disturbed(self.crash_node_of, "grid", grid={"space": [1, 2, 1]})
        self.assertLessEqual(reasons, {"worker_lost", "node"})
        self.assertIn("2 ranks share each sample, in 1 x 2 x 1 parts", out)

    def test_ranks_of_two_nodes_divide_the_state_and_one_is_killed(self):
        self.disturbed(self.kill, "weights", shard="weights")

    def test_ranks_of_two_nodes_divide_the_optimizer_and_a_node_is_lost(self):
        self.disturbed(self.crash_node_of, "optimizer", shard="optimizer")

    def test_goes_on_from_its_checkpoint_when_a_node_is_lost(self):
        run = self.start("run", self.training(""))
        directory = self.wait_for_campaign(run)
        self.crash_node_of(self.stop_rank(run, directory / "train", 1))
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_one_loss(directory)
        self.assertIn("continued from epoch", read_text(directory / "train" / "train.out"))
        self.assert_equal_to_a_local_run(directory / "train")

    def tournament(self, form, batch=""):
        """A study with a tournament of two trainers, in one job or in tasks."""
        return self.study(f"""
description: {{name: {form}, description: a tournament}}
env: {{variables: {{OUTPUT_PATH: .}}}}
{batch}
study:
  - name: fit
    train: {{data: {self.folder}/data, ranks: 2, batch: 3, epochs: 3, seed: 5, model: {{name: cosmoflow, width: 2}},
            tournament: {{trainers: 2, fraction: 0.3, as: {form}}}}}
""", form + ".yaml")

    def test_a_tournament_in_tasks_loses_a_node(self):
        """The round of the trainer on the lost node runs again, and the result is that of one job on one machine."""
        self.data_set()
        run = self.start("run", self.tournament("tasks", "batch: {type: slurm, nodes: 2, walltime: '30:00'}\nworkers: {all: {slots: 2}}\n"))
        directory = self.wait_for_campaign(run)
        part = f"{directory}/fit.trainer_2.part_2"

        def at_work():
            """Processes of the part, stopped, so that it cannot end before its node does."""
            found = [pid for pid in self.processes("wflow-train") if part in read_text(f"/proc/{pid}/cmdline")]
            self.signal_each(found, signal.SIGSTOP)
            return [pid for pid in found if alive(pid)]

        self.wait(at_work, "the second round of a trainer", run)
        node = re.search(r"SLURMD_NODENAME=(\w+)", read_text(f"/proc/{at_work()[0]}/environ"))[1]
        # A task counts as lost once its worker has said that it runs.
        words = ("tasks", directory, "--step", "fit.trainer_2.part_2", "--json")
        self.wait(lambda: json.loads(self.wflow(*words).out)[0]["started"] is not None, "the coordinator knows of it", run)
        self.cluster.call("crash", node)
        self.addCleanup(self.revive, node)
        self.assertEqual(run.wait(), OK, run.err)
        failures = self.query(directory, "select step, reason, final from v_failures")
        self.assertLessEqual({reason for _, reason, _ in failures}, {"node", "worker_lost"}, failures)
        self.assertIn("fit.trainer_2.part_2", {step for step, *_ in failures})
        self.assertLessEqual({step for step, *_ in failures}, {"fit.trainer_1.part_2", "fit.trainer_2.part_2"}, "one round of each trainer")
        self.assertEqual({final for *_, final in failures}, {0})
        self.wflow("run", self.tournament("job"))
        (job,) = self.folder.glob("job_*")
        ours, theirs = (json.loads((one / "fit/result.json").read_text())["tournament"] for one in (directory, job))
        self.assertEqual(ours["bouts"], theirs["bouts"])
        self.assert_same_weights(directory / "fit/model.pt", job / "fit/model.pt")


if __name__ == "__main__":
    unittest.main()
