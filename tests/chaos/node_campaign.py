# SPDX-License-Identifier: Apache-2.0
"""simulate -> convert -> train on three nodes: its processes, and what must hold at its end."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import h5py
import torch

from nodes import NODE, Nodes, processes_with
from truth import Truth

MARK = "WFLOW_CHAOS_FOLDER"
SAMPLES = 48
SHARD = 12
SLOTS = 2
FENCE_S = float(os.environ.get("WFLOW_CHAOS_FENCE_S", "3"))  # 0: as wflow has it, a minute
RETRIES = 20
LOSSES = 5      # of one task on workers that were lost
LINGER_S = 15   # of workers that no coordinator tells of the campaign's end
LEFT_S = 45
DISK_MB = 24

# Simulations alone, for what needs tasks of some seconds.
SIMULATIONS = """
description: {{name: nodes, description: long tasks on three nodes}}
env: {{variables: {{OUTPUT_PATH: {disk}}}}}
workers:
  all: {{steps: [simulate], machines: [n0, n1, n2], slots: {slots}}}
samples: {{design: uniform, count: {samples}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: simulate
    run:
      cmd: {task} {folder}/truth {folder}/locks a $(MERLIN_SAMPLE_ID) {shortest} {longest} {failures} field.npy; test $? -eq 0 || exit 1; true $(x)
      max_retries: {retries}
      retry_delay: 0
"""

STUDY = """
description: {{name: nodes, description: chaos on three nodes}}
env: {{variables: {{OUTPUT_PATH: {disk}}}}}
workers:
  all: {{steps: [simulate, data, train], machines: [n0, n1, n2], slots: {slots}}}
samples: {{design: uniform, count: {samples}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: simulate
    run:
      cmd: {task} {folder}/truth {folder}/locks a $(MERLIN_SAMPLE_ID) {shortest} {longest} {failures} field.npy; test $? -eq 0 || exit 1; true $(x)
      max_retries: {retries}
      retry_delay: 0
  - name: data
    convert: {{from: simulate, file: field.npy, targets: [x], shard_samples: {shard}, split: {{train: 36, validation: 6, test: 6, seed: 1}}}}
    max_retries: {retries}
  - name: train
    train:
      data: data
      epochs: 3
      batch: 4
      ranks: 2
      model: {{name: cosmoflow, width: 2}}
      checkpoint: {{every_steps: 4, keep: 2}}
    max_retries: {retries}
"""


class NodeCampaign:
    """One campaign in a separate folder, on separate nodes. `disk` is a small file system that can be filled, or, with
    `block_device`, made to stand still (fsfreeze)."""

    def __init__(self, binary, task, failures=0, preload=None, study=STUDY, samples=SAMPLES, durations_ms=(30, 600), block_device=False):
        self.samples, self.trains = samples, study is STUDY
        self.wflow = Path(binary) / "wflow"
        self.folder = Path(tempfile.mkdtemp(prefix="wfnodes-")).resolve()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        if block_device:
            self.mount_image()
        else:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", self.disk], check=True)
        for name in ("t", "state"):
            (self.folder / name).mkdir()
        self.environment = {**os.environ, MARK: str(self.folder), "PATH": f"{binary}:{os.environ['PATH']}", "TMPDIR": str(self.folder / "t"),
                            "XDG_STATE_HOME": str(self.folder / "state"), "LC_ALL": "C.UTF-8", "WFLOW_HOST": "10.77.0.99",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                            "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,vader", "OMPI_MCA_oob_tcp_if_include": "lo",
                            "OMP_NUM_THREADS": "1"}
        self.environment.pop("XDG_RUNTIME_DIR", None)
        if preload:
            self.environment |= {"LD_PRELOAD": str(preload)}
        (self.folder / "study.yaml").write_text(study.format(disk=self.disk, folder=self.folder, task=task, samples=samples, shard=SHARD,
                                                             slots=SLOTS, retries=RETRIES, failures=failures, shortest=durations_ms[0],
                                                             longest=durations_ms[1]))
        self.truth = Truth(self.folder / "truth")
        self.nodes = Nodes(self.folder)
        self.nodes.start_relay({**self.environment, MARK: "relay"})
        self.workers = {name: None for name in self.nodes.names[1:]}
        self.coordinator, self.home, self.starts = None, "n0", 0
        self.printed_endpoint = None
        self.agents = {}  # guardian: pids of its agent, as far as they were seen

    def mount_image(self):
        image = self.folder / "image"
        image.touch()
        os.truncate(image, 128 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.disk], check=True)

    # ---- programs

    def out(self, name):
        return self.folder / f"{name}.out"

    def directory(self):
        found = [path.parent.parent for path in self.disk.glob("nodes_*/.wflow/campaign.db")]
        return found[0] if found else None

    def spawn(self, name, *words, out):
        environment = {**self.environment, "CLOCK_JUMP": str(self.folder / f"jump-{name}")}
        return self.nodes.start(name, [self.wflow, *words], environment, self.out(out), self.folder)

    def start_coordinator(self, name):
        directory = self.directory()
        words = ["resume", directory] if directory else ["run", self.folder / "study.yaml"]
        self.home = name
        self.coordinator = self.spawn(name, *words, "-q", *(["--fence", FENCE_S] if FENCE_S else []), "-j", str(SLOTS), out="coordinator")
        self.starts += 1

    def start_worker(self, name):
        self.workers[name] = self.spawn(name, "worker", "--campaign", self.directory(), "--group", "all", "--slots", str(SLOTS), "--linger", str(LINGER_S),
                                         out=f"worker-{name}")

    def endpoint(self):
        try:
            return json.loads((self.directory() / ".wflow" / "endpoint.json").read_text())
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def follow_endpoint(self):
        """The relay listens where the coordinator does."""
        endpoint = self.endpoint()
        if endpoint and endpoint != self.printed_endpoint and endpoint["remote"]:
            self.nodes.relay_to(endpoint["host"], endpoint["remote"].rsplit(":", 1)[1])
            self.printed_endpoint = endpoint

    # ---- processes, by what they are

    def processes(self):
        return processes_with(f"{MARK}={self.folder}".encode())

    @staticmethod
    def words(pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return []

    def kinds(self):
        """(node, kind): pids. Kinds: coordinator, guardian, agent, task, rank, shell, other."""
        found = {}
        alive = self.processes()
        parents = {}
        for pid in alive:
            try:
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                parents[pid] = (int(fields[1]), int(fields[3]))
            except OSError:
                continue
        for pid, environment in alive.items():
            if pid not in parents:
                continue
            node = next((e.split(b"=")[1].decode() for e in environment if e.startswith(NODE.encode() + b"=")), "?")
            words = self.words(pid)
            program = os.path.basename(words[0]) if words else b""
            if program == b"wflow" and len(words) > 1 and words[1] in (b"run", b"resume"):
                kind = "coordinator"
            elif program == b"wflow" and len(words) > 1 and words[1] == b"worker":
                kind = "guardian" if parents[pid][1] == pid else "agent"
            elif program == b"task":
                kind = "task"
            elif program == b"wflow-train":
                kind = "rank"
            elif program == b"wflow-convert":
                kind = "converter"
            else:
                kind = "other"
            found.setdefault((node, kind), []).append(pid)
            if kind == "agent":
                self.agents.setdefault(parents[pid][1], set()).add(pid)
        return found

    # ---- the end

    def printed(self):
        parts = []
        for path in sorted(self.folder.glob("*.out")):
            text = path.read_text(errors="replace").strip()
            if text:
                parts.append(f"{path.name}: {text[-600:]}")
        return "\n".join(parts)

    def left(self):
        for _ in range(int(LEFT_S / 0.05)):
            if not (left := self.processes()):
                return []
            time.sleep(0.05)
        return [f"{pid}: " + b" ".join(self.words(pid)).decode(errors="replace") for pid in left]

    def query(self, text):
        with closing(sqlite3.connect(f"file:{self.directory()}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            return database.execute(text).fetchall()

    def failures(self):
        return self.query("SELECT step, sample, attempt, reason, exit_code, substr(detail, -200) FROM v_failures WHERE final")[:3]

    def database_problems(self):
        problems = []
        if (said := self.query("PRAGMA integrity_check")) != [("ok",)]:
            problems.append(f"integrity_check: {said[:3]}")
        for step, elements, state, count in self.query(
                "SELECT s.step, s.elements, r.state, sum(r.count) FROM v_steps s LEFT JOIN v_runs r ON r.step = s.step GROUP BY s.step, r.state"):
            if state != "done" or count != elements:
                problems.append(f"{step}: {count} of {elements} are {state}")
        return problems

    def shard_problems(self):
        if not self.trains:
            return []
        seen = []
        for path in sorted((self.directory() / "data").rglob("*.h5")):
            with h5py.File(path) as file:
                seen += [int(i) for i in file["id"][...]]
        return [] if sorted(seen) == list(range(self.samples)) else [f"the shards hold {len(seen)} samples, {len(set(seen))} different ones"]

    def weights(self):
        model = torch.jit.load(str(self.directory() / "train" / "model.pt"))
        return {name: value.clone() for name, value in model.state_dict().items()}

    def clean_up(self, keep=None):
        subprocess.run(["fsfreeze", "-u", self.disk], check=False, stderr=subprocess.DEVNULL)  # a process that hangs in the kernel does not end
        try:
            self.nodes.heal()
        except subprocess.CalledProcessError:
            pass
        while left := self.processes():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        for process in [self.coordinator, *self.workers.values()]:
            if process:
                process.wait()
        self.nodes.close()
        if keep:
            pipes = lambda folder, names: [n for n in names if (Path(folder) / n).is_fifo() or (Path(folder) / n).is_socket()]  # noqa: E731
            shutil.copytree(self.folder, keep, dirs_exist_ok=True, ignore=pipes, ignore_dangling_symlinks=True)
        subprocess.run(["umount", "-l", self.disk], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def differences(weights, reference):
    if weights.keys() != reference.keys():
        return ["the model has other parameters"]
    return [f"the weights {name} differ" for name in weights if not torch.equal(weights[name], reference[name])]
