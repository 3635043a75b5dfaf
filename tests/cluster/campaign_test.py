# SPDX-License-Identifier: Apache-2.0
"""Campaigns on a real Slurm: pools, chains, walltimes, environments, and how campaigns end there."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

from slurm_cluster import AS_ROOT, SLOW, SlurmTest
from wflow_test import INTERRUPTED, OK, SOURCE, SYSTEM, USAGE, CampaignTest, Gate, lines_of, read_text, wait_for


class SlurmCampaigns(SlurmTest):
    def test_a_campaign_on_four_nodes(self):
        run = self.wflow("run", self.cluster_study(self.note() + "; sleep 0.1", count=1000))
        self.assert_queue_empties()
        self.assertEqual(self.ran(), list(range(1000)), "each once")
        hosts = {line.split(":")[1] for line in lines_of(self.folder / "ran")}
        if AS_ROOT:
            self.assertEqual(len(hosts), 4, hosts)
        calls = self.calls()
        self.assertLessEqual(len(calls), 8, calls)
        self.assertEqual(len(self.submissions()), 1)
        directory = self.campaign()
        self.assert_nothing_charged(directory)
        rows = self.query(directory, "select state, nodes, reason, node_hours > 0 from v_allocations")
        self.assertEqual(rows, [("ended", 4, "given back", 1)], run.out)

    def test_the_plan_shows_what_is_submitted(self):
        study = self.cluster_study(self.note(), batch="type: slurm, walltime: 5 min, setup: [export A=1], linger: 60, args: [--comment=x]")
        self.wflow("run", study)
        directory = self.campaign()
        submitted = next((directory / ".wflow" / "allocations").glob("*.sh"))
        plan = self.wflow("plan", study).out
        shown = "\n".join(line[2:] for line in plan[plan.index("  #!/bin/bash"):].splitlines())
        shown = re.sub(r"cluster_[0-9YMDHS-]+|\bwall\b", "X", shown).strip()
        text = re.sub(rf"{directory.name}|{submitted.stem}", "X", submitted.read_text()).strip()
        self.assertEqual(shown, text)

    def test_walltimes_chain(self):
        """Allocations of one minute for a campaign that needs several."""
        tasks = 600 if SLOW else 180
        study = self.cluster_study(self.note() + "; sleep 1", count=tasks, workers="{nodes: 1, slots: 2, max: 1}",
                                   batch="type: slurm, walltime: '1:00'")
        run = self.start("run", study)
        self.assertEqual(run.wait(1200), OK, run.err)
        self.assert_queue_empties()
        directory = self.campaign()
        self.assert_nothing_charged(directory)
        self.assertLessEqual(self.reasons(directory), {"walltime"})
        self.assertEqual(set(self.ran()), set(range(tasks)))
        rows = self.query(directory, "select started, ended, reason from v_allocations order by started")
        self.assertGreaterEqual(len(rows), 2, rows)
        used = sum(ended - started for started, ended, _ in rows)
        busy = self.query(directory, "select mean_duration * done / 2 from v_progress")[0][0]
        idle = 1 - busy / used
        print(f"{len(rows)} allocations, {used:.0f} s used, tasks ran for {busy:.0f} s: {100 * idle:.1f} % idle; {rows}", file=sys.stderr)
        self.assertLess(idle, 0.1 if SLOW else 0.2, "idle")
        for (_, ended, _), (started, _, _) in zip(rows, rows[1:]):
            self.assertLess(started, ended + 30, "a successor comes in time")

    def test_a_chain(self):
        """Three jobs of one name: one runs, two wait for it."""
        gate, run, directory = self.gated(free=0, workers="{nodes: 4, slots: 2, chain: 3}")
        jobs = self.jobs(form="%i:%j:%t:%r")
        self.assertEqual(len(jobs), 3, jobs)
        self.assertEqual(len({job.split(":")[1] for job in jobs}), 1, jobs)
        self.assertEqual(sorted(job.split(":")[2] for job in jobs), ["PD", "PD", "R"], jobs)
        first = next(job.split(":")[0] for job in jobs if ":R:" in job)
        self.slurm("scancel", first)
        self.wait(lambda: first not in self.jobs(), "the first one is gone", run)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_queue_empties()
        self.assert_nothing_charged(directory)
        self.assertEqual(self.reasons(directory), {"preempted"})
        self.assertEqual(set(gate.passed()), set(range(12)))

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
        self.assert_queue_empties()

    def test_people_add_cancel_and_drain(self):
        gate = Gate(self.folder, 0)
        run = self.start("run", self.cluster_study(gate.command(), workers="{nodes: 1, slots: 2}"))
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 2, "two tasks are in the middle", run)
        first = self.jobs()
        self.wflow("allocations", "add", "--count", "2")
        self.wait(lambda: gate.waiting() == 6, "four more are", run)
        cancelled, drained = sorted(set(self.jobs()) - set(first), key=int)
        self.wflow("allocations", "cancel", cancelled)
        self.wait(lambda: cancelled not in self.jobs(), "it is cancelled", run)
        self.wflow("allocations", "drain", drained)
        self.assertIn(drained, self.jobs(), "its tasks may end")
        gate.open()
        code = run.wait()
        self.assert_nothing_charged(directory)
        self.assertEqual(code, OK, run.err)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assert_queue_empties()

    def test_what_never_starts_is_in_the_status(self):
        run = self.start("run", self.cluster_study("true", batch="type: slurm, args: [--hold]"))
        self.wait_for_campaign(run)
        said = self.wait(lambda: "will never start" in (text := self.wflow("status").out) and text, "the reason is known", run)
        self.assertIn("JobHeldUser: the job is held; `scontrol release` lets it go", said)
        self.slurm("scontrol", "release", *self.jobs())
        self.assertEqual(run.wait(), OK, run.err)
        self.assert_queue_empties()

    def test_a_refused_submission(self):
        run = self.wflow("run", self.cluster_study("true", batch="type: slurm, partition: nosuch"), code=SYSTEM)
        self.assertIn("refused an allocation for the pool 'all'", run.err)
        self.assertIn("invalid partition specified: nosuch", run.err)
        self.assertEqual(len(self.submissions()), 1)
        self.assertIn("refused an allocation", self.wflow("status").out)

    def test_steps_of_a_task_and_a_bare_environment(self):
        """`srun` in a task, in a job that begins without the submitter's environment."""
        names = f"{self.folder}/names"
        study = self.cluster_study(f"srun --overlap --nodes=2 --ntasks=2 hostname >> {names}; {self.note()}", count=3,
                                   batch="type: slurm, args: [--export=NONE]")
        self.wflow("run", study)
        self.assertEqual(self.ran(), [0, 1, 2])
        self.assertEqual(len(lines_of(names)), 6)
        self.assertEqual(len(set(lines_of(names))), 2 if AS_ROOT else 1, lines_of(names))
        self.assert_queue_empties()

    def test_inside_an_allocation_of_somebody_else(self):
        """`salloc` leaves its variables in the environment of what it starts."""
        study = self.cluster_study(self.note(), workers="{nodes: 3, slots: 2}")
        outer = ["salloc", "--nodes=1", "--quiet", "wflow", "run", str(study)]
        done = subprocess.run(outer, capture_output=True, text=True, env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assertEqual(self.ran(), list(range(12)))
        self.assert_queue_empties()

    def test_workers_that_end_early_do_not_end_the_others(self):
        """WaitTime=5 in slurm.conf would end a step five seconds after its first program."""
        gate, run, directory = self.gated()
        guardian = next(pid for pid in self.processes("worker --campaign") if self.words(pid)[0].endswith("/wflow"))
        self.kill([guardian])
        self.wait(lambda: self.said("worker", "worker"), "a worker is gone", run)
        time.sleep(7)  # what is looked for is that nothing happens in it
        self.assertEqual(len(self.jobs("R")), 1)
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(set(gate.passed()), set(range(12)))
        self.assertEqual(len(self.query(directory, "select * from v_allocations")), 1)
        self.assert_queue_empties()


class SlurmEnds(SlurmTest):
    def test_interrupted_twice(self):
        _, run, directory = self.gated()
        run.signal(signal.SIGINT)
        self.wait(lambda: self.said("running ones may finish"), "the first one is heard", run)
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assert_queue_empties()
        self.assert_nothing_charged(directory)

    def test_cancelled(self):
        _, run, _ = self.gated()
        self.wflow("cancel", "--kill")
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assert_queue_empties()

    def test_stopped(self):
        _, run, directory = self.gated()
        self.wflow("stop")
        self.assertEqual(run.wait(), INTERRUPTED, run.err)
        self.assert_queue_empties()
        self.assert_nothing_charged(directory)

    def test_a_killed_coordinator_finds_its_allocation_again(self):
        gate, run, directory = self.gated()
        job = self.jobs()
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        again = self.start("resume", directory)
        self.wait(lambda: self.said("came back", "worker"), "its workers are back", again)
        gate.open()
        self.assertEqual(again.wait(), OK, again.err)
        self.assertEqual(len(self.submissions()), 1, "nothing was submitted twice")
        self.assertEqual(self.query(directory, "select id from v_allocations"), [(job[0],)])
        self.assertEqual(sorted(gate.passed()), list(range(12)), "each once")
        self.assert_nothing_charged(directory)
        self.assert_queue_empties()

    def test_without_a_coordinator_the_allocation_ends_by_itself(self):
        gate, run, _ = self.gated(batch="type: slurm, walltime: '30:00', linger: 5")
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        gate.open()
        wait_for(lambda: not self.jobs(), "the end of the allocation")
        again = self.start("resume", self.campaign())
        self.assertEqual(again.wait(), OK, again.err)
        self.assertEqual(sorted(gate.passed()), list(range(12)), "each once")
        self.assert_queue_empties()


class SlurmQuickstart(SlurmTest):
    """examples/cluster, with fewer universes."""

    def quickstart(self, name):
        text = (SOURCE / "examples" / "cluster" / "quickstart.yaml").read_text()
        for variable, value in (("OUTPUT_PATH", name), ("UNIVERSES", 40), ("TRAIN", 32), ("VALIDATION", 4), ("TEST", 4), ("EPOCHS", 2)):
            text, count = re.subn(rf"^    {variable}: \S+", f"    {variable}: {value}", text, flags=re.M)
            self.assertEqual(count, 1, variable)
        return self.study(text.replace("shard_samples: 50", "shard_samples: 10"), f"{name}.yaml")

    def data(self, name):
        """Bytes of every shard, by name."""
        folder = next((self.folder / name).glob("cosmoflow_cluster_*/data"))
        return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.h5"))}

    def test_the_same_data_and_model_as_here(self):
        self.wflow("run", self.quickstart("cluster"))
        self.assert_queue_empties()
        self.wflow("run", "--local", self.quickstart("here"))
        there, here = self.data("cluster"), self.data("here")
        self.assertEqual(list(there), list(here))
        self.assertGreater(len(there), 3)
        for name, data in there.items():
            self.assertTrue(data == here[name], f"{name} differs")
        self.assert_same_weights(*(next((self.folder / name).glob("cosmoflow_cluster_*/train/model.pt")) for name in ("cluster", "here")))


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
