# SPDX-License-Identifier: Apache-2.0
"""Workspaces as Merlin 1.13 and Maestro 1.1 leave them, made by running the studies here with Debian's python3: layouts,
names, markers and status files are written down a second time, so that wflow's own code is compared with them."""

import hashlib
import itertools
import json
import re
import subprocess
from pathlib import Path

CODES = {0: "MERLIN_SUCCESS", 100: "MERLIN_RESTART", 102: "MERLIN_HARD_FAIL", 104: "MERLIN_RETRY", 105: "MERLIN_STOP_WORKERS"}


def sample_path(row, count, fan):
    """Directory of a row: [1] is prepended with first*fan until it is >= count, then dropped; digits of `fan`."""
    if count == 1:
        return ""
    sizes = [1]
    while sizes[0] < count:
        sizes.insert(0, sizes[0] * fan)
    parts = []
    for size in sizes[1:]:
        parts.append(str(row // size).zfill(len(str(fan))))
        row %= size
    return "/".join(parts)


def snapshot(folder):
    """Every file and directory below, with its bytes: what adopt must leave as it is."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
            for path in sorted(Path(folder).rglob("*")) if ".wflow" not in path.relative_to(folder).parts}


class Step:
    """`uses`: parameters whose tokens it has or inherits. `sampled`: it has a token of a sample."""

    def __init__(self, name, cmd, depends=(), uses=(), sampled=False):
        self.name, self.cmd, self.depends, self.uses, self.sampled = name, cmd, list(depends), sorted(uses), sampled


class Tree:
    def __init__(self, output, steps, name="adopted study", stamp="20250901-101500", parameters=None, samples=(), fan=25):
        self.steps, self.parameters, self.samples, self.fan = steps, parameters or {}, list(samples), fan
        self.name = name
        self.workspace = Path(output) / f"{name.replace(' ', '_')}_{stamp}"
        self.workspace.mkdir(parents=True)

    def combinations(self, step):
        """Zipped row by row, restricted to what the step uses: (values by name, labels joined)."""
        rows = list(zip(*([(name, value) for value in values] for name, values in sorted(self.parameters.items()))))
        found = {}
        for row in rows or [()]:
            mine = {name: value for name, value in row if name in step.uses}
            found[".".join(f"{name}.{value}" for name, value in sorted(mine.items()))] = mine
        return found

    def tasks(self):
        for step in self.steps:
            for label, values in self.combinations(step).items():
                rows = range(len(self.samples)) if step.sampled else [None]
                for row in rows:
                    yield step, label, values, row

    def directory(self, step, label, row=None):
        path = self.workspace / step.name / label
        return path if row is None else path / sample_path(row, len(self.samples), self.fan)

    def substitute(self, text, step, label, values, row):
        for other in self.steps:
            inherits = set(other.uses) <= set(step.uses)
            text = text.replace(f"$({other.name}.workspace)", str(self.directory(other, label if inherits and other.uses else "")))
        text = text.replace("$(WORKSPACE)", str(self.directory(step, label)))
        for name, value in values.items():
            text = text.replace(f"$({name})", str(value))
        if row is not None:
            text = text.replace("$(MERLIN_SAMPLE_ID)", str(row)).replace("$(X)", str(self.samples[row]))
            text = text.replace("$(MERLIN_SAMPLE_PATH)", sample_path(row, len(self.samples), self.fan))
        return text

    def execute(self, step, label, values, row, base):
        directory = self.directory(step, label, row)
        directory.mkdir(parents=True, exist_ok=True)
        script = directory / f"{base}.sh"
        script.write_text("#!/bin/bash\n\n" + self.substitute(step.cmd, step, label, values, row) + "\n")
        script.chmod(0o755)
        with open(directory / f"{base}.out", "a") as out, open(directory / f"{base}.err", "a") as err:
            return subprocess.run([str(script)], cwd=directory, stdout=out, stderr=err, check=False).returncode

    def yaml_steps(self):
        steps = [{"name": s.name, "description": s.name, "run": {"cmd": s.cmd, **({"depends": s.depends} if s.depends else {})}}
                 for s in self.steps]
        parameters = {name: {"values": values, "label": f"{name}.%%"} for name, values in self.parameters.items()}
        return {"study": steps, **({"global.parameters": parameters} if parameters else {})}


class MerlinTree(Tree):
    """`merlin run --local`, or, with condense(), what the workers of a distributed run leave."""

    def __init__(self, output, steps, **options):
        super().__init__(output, steps, **options)
        self.info = self.workspace / "merlin_info"
        self.info.mkdir()
        merlin = {"resources": {"task_server": "celery", "overlap": False,
                                "workers": {"default_worker": {"steps": ["all"], "nodes": None, "batch": None}}}}
        if self.samples:
            table = self.info / "samples.csv"
            table.write_text("".join(f"{value}\n" for value in self.samples))
            merlin["samples"] = {"generate": {"cmd": "echo 'Insert sample-generating command here'"}, "file": str(table),
                                 "column_labels": ["X"], "level_max_dirs": self.fan}
        study = {"description": {"name": self.name, "description": "made by a test"},
                 "batch": {"type": "local", "shell": "/bin/bash", "dry_run": False},
                 "env": {"variables": {"OUTPUT_PATH": str(self.workspace.parent), "PLACE": str(self.info)}},
                 **self.yaml_steps(), "merlin": merlin}
        for kind in ("orig", "partial", "expanded"):
            (self.info / f"study.{kind}.yaml").write_text(json.dumps(study, indent=2))  # JSON is YAML

    def run(self, most=None):
        """The first `most` tasks, one after the other; the directories of those after them are there, as Merlin makes them."""
        for number, (step, label, values, row) in enumerate(self.tasks()):
            self.directory(step, label, row).mkdir(parents=True, exist_ok=True)
            if most is not None and number >= most:
                self.write_status(step, label, row, "INITIALIZED", None)
                continue
            code = self.execute(step, label, values, row, f"{step.name}_{label}" if label else step.name)
            directory = self.directory(step, label, row)
            if code == 0:
                (directory / "MERLIN_FINISHED").touch()
                self.write_status(step, label, row, "FINISHED", "MERLIN_SUCCESS")
            elif code == 105:
                self.write_status(step, label, row, "CANCELLED", "MERLIN_STOP_WORKERS")
            else:
                self.write_status(step, label, row, "FAILED", CODES.get(code, "MERLIN_SOFT_FAIL"))
        return self

    def write_status(self, step, label, row, status, code):
        directory = self.directory(step, label, row)
        entry = {"status": status, "return_code": code, "elapsed_time": "0d:00h:00m:00s", "run_time": "0d:00h:00m:00s",
                 "restarts": 0}
        key = f"{step.name}_{label}" if label else step.name
        (directory / "MERLIN_STATUS.json").write_text(json.dumps(
            {key: {"parameters": {"cmd": None, "restart": None}, str(directory.relative_to(self.workspace)): entry}}))
        (directory / "status.lock").touch()

    def condense(self):
        """One status file for each step and combination; those of the samples are gone."""
        for step in self.steps:
            for label in self.combinations(step):
                top = self.directory(step, label)
                merged = {}
                for file in sorted(top.rglob("MERLIN_STATUS.json")):
                    for key, entries in json.loads(file.read_text()).items():
                        merged.setdefault(key, {}).update(entries)
                    file.unlink()
                    (file.parent / "status.lock").unlink()
                (top / "MERLIN_STATUS.json").write_text(json.dumps(merged))
        return self


class MaestroTree(Tree):
    """`maestro run`: the study's copy, status.csv, meta/, logs/. A failure fails all that waits for it."""

    HEADERS = {"1.1.7": "Step Name,Workspace,State,Run Time,Elapsed Time,Start Time,Submit Time,End Time,Number Restarts",
               "1.1.11": "Step Name,Job ID,Workspace,State,Run Time,Elapsed Time,Start Time,Submit Time,End Time,Number Restarts,"
                         "Params"}

    def __init__(self, output, steps, version="1.1.11", **options):
        super().__init__(output, steps, **options)
        self.version = version
        (self.workspace / "logs").mkdir()
        (self.workspace / "meta").mkdir()
        (self.workspace / "meta" / "metadata.yaml").write_text("dependencies: {}\n")
        (self.workspace / "meta" / "environment.yaml").write_text(f"HOME: /home/u\nPWD: {output}\n")
        (self.workspace / f"{self.workspace.name[:5]}.pkl").write_bytes(b"\x80\x04N.")
        study = {"description": {"name": self.name, "description": "made by a test"}, "batch": {"type": "local"},
                 "env": {"variables": {"OUTPUT_PATH": str(self.workspace.parent)}}, **self.yaml_steps()}
        (self.workspace / "study.yaml").write_text(json.dumps(study, indent=2))
        self.rows = {}

    def run(self, most=None):
        failed = set()
        for number, (step, label, values, _) in enumerate(self.tasks()):
            name = f"{step.name}_{label}" if label else step.name
            waits = {(re.sub(r"_?\*$", "", d), d.endswith("*")) for d in step.depends}
            below = any(s == other and (funnel or not l or l == label) for s, l in failed for other, funnel in waits)
            if below:
                failed.add((step.name, label))
                self.rows[name] = (step, label, "FAILED", False)
            elif most is not None and number >= most:
                self.rows[name] = (step, label, "INITIALIZED", False)
            else:
                code = self.execute(step, label, values, None, name)
                if code:
                    failed.add((step.name, label))
                self.rows[name] = (step, label, "FAILED" if code else "FINISHED", True)
        self.write_status()
        return self

    def write_status(self):
        lines = [self.HEADERS[self.version]]
        for number, (name, (step, label, state, started)) in enumerate(self.rows.items()):
            time = "2025-09-01 10:15:00.000001" if started else "--"
            duration = "0:00:01.000000" if started else "--:--:--"
            job, params = ([str(100 + number)], [""]) if self.version == "1.1.11" else ([], [])
            workspace = f"{step.name}/{label}" if label and job else label or step.name
            lines.append(",".join(itertools.chain([name], job, [workspace, state, duration, duration, time, time, time, "0"], params)))
        (self.workspace / "status.csv").write_text("\n".join(lines))
