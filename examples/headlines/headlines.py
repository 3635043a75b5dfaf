# SPDX-License-Identifier: Apache-2.0
"""What the studies of this folder share: trainings from Python, intervals, and figures.json with its plot."""

import datetime
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def program(name):
    """Its path: in the folder of the running wflow, which a campaign puts into PATH."""
    path = shutil.which(name)
    if path is None:
        sys.exit(f"{name} is not in PATH: put the folder of wflow's programs there")
    return path


def compile_library(source, output):
    """A library to preload, from a C file beside this one."""
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(Path(__file__).parent / source), "-o", str(output), "-ldl"], check=True)
    return Path(output).resolve()


class SharedFolder:
    """A folder whose calls are counted and slowed for processes that preload `library` with `environment` (shared_folder.c)."""

    KINDS = ("open", "stat", "read", "seek", "close", "bytes")

    def __init__(self, library, folder, state, latency_us=0, bytes_per_second=0):
        self.library, self.state = library, Path(state).resolve()
        self.state.write_bytes(bytes(4096))
        self.environment = {"SHARED_FOLDER": str(Path(folder).resolve()), "SHARED_STATE": str(self.state),
                            "SHARED_LATENCY_US": str(latency_us), "SHARED_BYTES_PER_SECOND": str(bytes_per_second)}

    def counts(self):
        values = numpy.frombuffer(self.state.read_bytes(), "u8", len(self.KINDS)).tolist()
        return dict(zip(self.KINDS, values))


class Training:
    """A configuration of wflow-train in a folder of its own."""

    def __init__(self, folder, data, ranks=1, **keys):
        self.folder, self.ranks = Path(folder).resolve(), ranks
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = self.folder / "train.yaml"
        self.config.write_text(json.dumps({**keys, "data": str(Path(data).resolve()), "ranks": ranks, "output": str(self.folder)}))

    def run(self, *options, preload=None, environment=None):
        # Ranks that are bound to cores would share them with other programs' ranks.
        launcher = ["mpirun.openmpi", "-n", str(self.ranks), "--oversubscribe", "--bind-to", "none"] if self.ranks > 1 else []
        wanted = {**(environment or {}), **({"LD_PRELOAD": str(preload)} if preload else {})}
        given = ["env", *(f"{name}={value}" for name, value in wanted.items())]
        done = subprocess.run([*launcher, *given, program("wflow-train"), str(self.config), "--fresh", *options], capture_output=True,
                              text=True, env=self.environment())
        if done.returncode != 0:
            raise RuntimeError(f"{self.config} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    @staticmethod
    def environment():
        """That of the task, without the number of ranks which wflow gives a task: these trainings have ranks of their own."""
        return {name: value for name, value in {**os.environ, **MPI}.items() if name != "WFLOW_WORLD_SIZE"}

    def result(self):
        return json.loads((self.folder / "result.json").read_text())

    def epochs(self):
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]


def share_interval(hits, trials):
    """95 % interval of a share (Wilson)."""
    if trials == 0:
        return 0.0, 1.0
    z = 1.96
    share, scale = hits / trials, 1 + z * z / trials
    middle = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def campaign_seconds():
    """Since the campaign of the running task began, by the name of its folder; none outside of a campaign."""
    for folder in Path.cwd().parents:
        stamp = re.search(r"_(\d{8}-\d{6})$", folder.name)
        if stamp:
            return round((datetime.datetime.now() - datetime.datetime.strptime(stamp[1], "%Y%m%d-%H%M%S")).total_seconds())
    return None


def row(what, published, here, mark, passed):
    """One statement. `passed`: true, false, or None where nothing is claimed."""
    return {"what": what, "published": published, "here": here, "mark": mark, "passed": passed}


def finish(name, rows, plot, table=None, **more):
    """Writes figures.json and NAME.svg into the working directory and prints a line for each statement."""
    figures = {"version": 1, "name": name, "rows": rows, "table": table, "date": datetime.date.today().isoformat(),
               "machine": machine(), "load": round(os.getloadavg()[1], 1), "seconds": campaign_seconds(), **more}
    Path("figures.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    picture = [{"path": f"{name}.svg", "width": 640, "height": 400, "figure": {"id": name, **plot}}]
    subprocess.run([program("wflow-plot")], input=json.dumps(picture), text=True, check=True)
    for one in rows:
        print(f"{one['what']}: published {one['published']} / here {one['here']} / pass mark {one['mark']} / passed {verdict(one)}")


def verdict(one):
    return {True: "yes", False: "no", None: "-"}[one["passed"]]
