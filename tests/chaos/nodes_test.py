# SPDX-License-Identifier: Apache-2.0
"""Faults that need several hosts, each on a campaign of its own, and a small fixed set of node_schedules.py. Needs root."""

import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import node_schedules
from node_campaign import FENCE_S, SIMULATIONS, NodeCampaign
from node_schedules import Fault, Schedule
from nodes import available, processes_with, wait_for
from truth import KilledProcesses

BIN = Path(os.environ.get("WFLOW_BIN", Path(__file__).resolve().parents[2] / "build" / "dev" / "bin")).resolve()
SEEDS = (1, 2, 3)
LONG = {"study": SIMULATIONS, "samples": 18, "durations_ms": (1500, 4000)}
# Longer than a fence, its margin and the restart of whatever ended.
PAST_S = FENCE_S * 1.25 + 4


@unittest.skipUnless(available(), "no root here, so nothing was tested")
class NodesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="wfnodes-")
        cls.addClassCleanup(folder.cleanup)
        cls.task, cls.preload = node_schedules.prepare(folder.name)
        cls.killed = KilledProcesses().killed

    def play(self, *faults, **more):
        """The faults at their times on a campaign of long tasks; all invariants hold."""
        schedule = Schedule(0, 0, [Fault(name, at_s, node, lasts_s, 0.3, 0.1, home) for name, at_s, node, lasts_s, home in faults])
        result, _ = node_schedules.play(schedule, BIN, self.task, self.killed, None, self.preload, **{**LONG, **more})
        self.assertEqual(result.problems, [], result.text())
        self.assertEqual(result.exceptions, 0, result.text())
        self.assertEqual(sum(result.faults.values()), len(faults), "each fault hit something")
        return result


class NodeSchedules(NodesTest):
    def test_random_schedules(self):
        reference = node_schedules.undisturbed(BIN, self.task, self.killed, self.preload)
        for seed in SEEDS:
            schedule = Schedule.of(seed)
            with self.subTest(schedule.text()):
                result, _ = node_schedules.play(schedule, BIN, self.task, self.killed, reference, self.preload)
                self.assertEqual(result.problems, [], result.text())


class NodeFaults(NodesTest):
    def test_coordinator_frozen_for_longer_than_the_fence(self):
        """Its workers end their tasks meanwhile; it must not count them as running, nor take two results of one."""
        self.play(("freeze coordinator", 2, "n0", PAST_S, "n0"))

    def test_worker_cut_off_for_longer_than_the_fence(self):
        self.play(("cut", 2, "n1", PAST_S, "n0"))

    def test_worker_that_hears_nothing(self):
        self.play(("one way: hears nothing", 2, "n1", PAST_S, "n0"))

    def test_worker_that_is_not_heard(self):
        self.play(("one way: is not heard", 2, "n2", PAST_S, "n0"))

    def test_flapping_cable(self):
        self.play(("flapping", 2, "n1", 5, "n0"))

    def test_half_open_connections(self):
        self.play(("half-open", 2, "n1", PAST_S, "n0"))

    def test_file_system_stands_still_while_the_network_is_up(self):
        """Like a file server that does not answer: a writer hangs in the kernel, and goes on late."""
        with tempfile.TemporaryDirectory() as folder:
            image, mounted = Path(folder) / "image", Path(folder) / "mounted"
            mounted.mkdir()
            script = f"truncate -s 8M {image} && mkfs.ext4 -q {image} && mount -o loop {image} {mounted} && fsfreeze -f {mounted} && fsfreeze -u {mounted}"
            able = subprocess.run(["sh", "-c", script], check=False, capture_output=True).returncode == 0
            subprocess.run(["umount", mounted], check=False, capture_output=True)
        if not able:
            self.skipTest("no loop device, or no fsfreeze, here")
        self.play(("file system stands still", 2, "n0", PAST_S, "n0"), block_device=True)

    def test_coordinator_starts_on_another_host(self):
        """Workers follow the endpoint file."""
        result = self.play(("kill coordinator, start it on another node", 2, "n0", 0, "n1"))
        self.assertGreater(result.starts, 1)

    def test_frozen_node_that_thaws_after_the_fence(self):
        """Its agent looks at its deadline before anything else: tasks that go on are ended, and what they say does not count."""
        campaign = NodeCampaign(BIN, self.task, 0, None, study=self.gated_study(), samples=6)
        self.addCleanup(campaign.clean_up)
        began, passed = campaign.folder / "began", campaign.folder / "passed"
        campaign.start_coordinator("n0")
        wait_for(campaign.endpoint, "the coordinator")
        campaign.follow_endpoint()
        for name in campaign.workers:
            campaign.start_worker(name)
        lines = lambda path: path.read_text().split() if path.exists() else []  # noqa: E731
        wait_for(lambda: len(lines(began)) == 6, "all tasks run, two on each node")
        frozen = []
        while new := [pid for (node, _), pids in campaign.kinds().items() for pid in pids if node == "n1" and pid not in frozen]:
            self.signal(signal.SIGSTOP, new)  # what is stopped forks no more
            frozen += new
        for name in ("n0", "n2"):
            (campaign.folder / f"open-{name}").touch()
        wait_for(lambda: len(set(lines(passed))) == 6, "the others have run what the frozen node had")
        self.signal(signal.SIGCONT, frozen)
        wait_for(lambda: campaign.coordinator.poll() is not None, "the campaign's end")
        self.assertEqual(campaign.coordinator.returncode, 0, campaign.printed())
        wait_for(lambda: not campaign.processes(), "the end of all processes")
        self.assertEqual(sorted(lines(passed)), sorted(set(lines(passed))), "each passed once")
        self.assertEqual(len(lines(began)), 8, "no third copy")
        self.assertEqual(campaign.database_problems(), [])

    @staticmethod
    def signal(number, pids):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    @staticmethod
    def gated_study():
        """Tasks that wait for their own node's gate."""
        command = ("echo $(MERLIN_SAMPLE_ID) >> {folder}/began; until [ -e {folder}/open-$WFLOW_CHAOS_NODE ]; do sleep 0.1; done; "
                   "echo $(MERLIN_SAMPLE_ID) >> {folder}/passed; true $(x)")
        lines = SIMULATIONS.splitlines()
        return "\n".join(f'      cmd: "{command}"' if line.startswith("      cmd:") else line for line in lines) + "\n"


class OtherNamespaces(NodesTest):
    def test_worker_of_another_pid_namespace_under_the_same_name(self):
        """The number of its process means another process here: that one must not be hit."""
        campaign = NodeCampaign(BIN, self.task, 0, None, **{**LONG, "samples": 8})
        self.addCleanup(campaign.clean_up)
        stranger = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        campaign.start_coordinator("n0")
        wait_for(campaign.endpoint, "the coordinator")
        campaign.follow_endpoint()
        # In a PID namespace the next process gets the number of an unrelated one.
        inside = (f"echo {stranger.pid - 1} > /proc/sys/kernel/ns_last_pid && "
                  f"{{ {campaign.wflow} worker --campaign {campaign.directory()} --group all --slots 2 & }}; echo $! > {campaign.folder}/number; wait")
        worker = campaign.nodes.start("n0", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", inside],
                                      campaign.environment, campaign.out("stranger"), campaign.folder)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        number = wait_for(lambda: (campaign.folder / "number").exists() and (campaign.folder / "number").read_text().strip(), "its number")
        if int(number) != stranger.pid:
            self.skipTest("this kernel does not let one choose the number of a process")
        campaign.truth.read()
        wait_for(lambda: campaign.truth.read() or len(campaign.truth.executions) >= 4, "it runs tasks beside the other worker")
        worker.kill()
        wait_for(lambda: campaign.coordinator.poll() is not None, "the campaign's end", 120)
        self.assertEqual(campaign.coordinator.returncode, 0, campaign.printed())
        self.assertIsNone(stranger.poll(), "it lives")
        self.assertEqual(campaign.database_problems(), [])


class NothingLeft(NodesTest):
    """kill -9 of a worker that runs a shell which runs a shell which sleeps, in a new session with a cleaned environment."""

    def left_after_kill(self, *kinds, alone=False):
        """`alone`: the coordinator stands still, so that only a second worker of this machine can do something."""
        folder = Path(tempfile.mkdtemp(prefix="wfnodes-"))
        mark = f"9{os.getpid()}{len(kinds)}.{int(time.time()) % 1000}"  # the seconds that it sleeps: known by its command line
        (folder / "study.yaml").write_text(f"""
description: {{name: nested, description: a task that hides}}
env: {{variables: {{OUTPUT_PATH: {folder}}}}}
study:
  - name: hide
    run:
      cmd: env -i /usr/bin/setsid --wait /bin/bash -c "/bin/bash -c '/bin/sleep {mark}; true'; true"
      max_retries: 0
""")
        run = subprocess.Popen([BIN / "wflow", "run", folder / "study.yaml", "-q", "-j", "1"], cwd=folder, start_new_session=True,
                               env={**os.environ, "XDG_STATE_HOME": str(folder), "WFLOW_CHAOS_FOLDER": str(folder)}, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: self.sleepers(mark), "the sleeping task")
            agents, guardians = [], []
            for pid in processes_with(f"WFLOW_CHAOS_FOLDER={folder}".encode()):
                words = NodeCampaign.words(pid)
                if len(words) > 1 and words[1] == b"worker":
                    (guardians if os.getsid(pid) == pid else agents).append(pid)
            victims = {"agent": agents[:1], "guardian": guardians[:1]}
            pids = [pid for kind in kinds for pid in victims[kind]]
            self.assertEqual(len(pids), len(kinds))
            first = self.sleepers(mark)
            if alone:
                self.start_idle_worker(folder)
                os.kill(run.pid, signal.SIGSTOP)
            for number in (signal.SIGSTOP, signal.SIGKILL) if len(pids) > 1 else (signal.SIGKILL,):
                for pid in pids:
                    os.kill(pid, number)
            began = time.monotonic()
            wait_for(lambda: not set(first) & set(self.sleepers(mark)), "the end of what the worker ran", 20)
            return time.monotonic() - began
        finally:
            run.kill()
            run.wait()
            for pid in [*processes_with(f"WFLOW_CHAOS_FOLDER={folder}".encode()), *self.sleepers(mark)]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["rm", "-rf", folder], check=False)

    def start_idle_worker(self, folder):
        campaign = next(folder.glob("nested_*"))
        worker = subprocess.Popen([BIN / "wflow", "worker", "--campaign", campaign, "--slots", "1"], cwd=folder, start_new_session=True,
                                  env={**os.environ, "WFLOW_CHAOS_FOLDER": str(folder)}, stderr=subprocess.DEVNULL)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        wait_for(lambda: len(list(campaign.glob(".wflow/workers/*.journal"))) == 2, "the second worker")

    @staticmethod
    def sleepers(mark):
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and any(word.startswith(mark.encode()) or mark.encode() + b"; true" in word for word in NodeCampaign.words(name)):
                found.append(int(name))
        return [pid for pid in found if b"wflow" not in b" ".join(NodeCampaign.words(pid))]

    def test_of_its_guardian(self):
        self.left_after_kill("guardian")

    def test_of_its_agent(self):
        self.left_after_kill("agent")

    def test_of_both_at_once(self):
        self.left_after_kill("agent", "guardian")

    def test_of_both_while_no_coordinator_runs(self):
        """The other worker of the machine ends it, by its control group."""
        if not any(os.access(f"/sys/fs/cgroup/{name}/cgroup.procs", os.W_OK) for name in (".", "unified", "systemd", "pids", "freezer")):
            self.skipTest("no control groups may be made here")
        self.left_after_kill("agent", "guardian", alone=True)


if __name__ == "__main__":
    unittest.main()
