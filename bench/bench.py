# SPDX-License-Identifier: Apache-2.0
"""What the benchmark programs share: where the programs are, timing, and what else the machine was doing."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("WFLOW_BIN", os.path.join(ROOT, "build", "release", "bin"))


def program(name):
    path = os.path.join(BIN, name)
    if not os.path.exists(path):
        sys.exit(f"{path} is missing; build it with scripts/build release {name}, or set WFLOW_BIN")
    return path


def wflow_for(arguments):
    """wflow; with --zero-workers or --zero-failures the one whose workers complete everything at once (target wflow_zero). In earlier
    revisions wflow itself had these options."""
    zero = any(str(word).startswith("--zero-") for word in arguments)
    return program("zero/wflow" if zero and os.path.exists(os.path.join(BIN, "zero", "wflow")) else "wflow")


def environment():
    return dict(os.environ, PATH=BIN + ":" + os.environ["PATH"], OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def _busy_ticks():
    with open("/proc/stat") as stat:
        fields = [int(x) for x in stat.readline().split()[1:]]
    return sum(fields) - fields[3] - fields[4]


class Measurement:
    """Wall seconds, CPU seconds of the command and all its children, and the cores that others took meanwhile."""

    def __init__(self, command, **options):
        before, busy, start = resource.getrusage(resource.RUSAGE_CHILDREN), _busy_ticks(), time.monotonic()
        result = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        self.wall = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        total = (_busy_ticks() - busy) / os.sysconf("SC_CLK_TCK")
        self.foreign = max(0.0, total - self.cpu) / self.wall
        self.output = result.stdout
        if result.returncode != 0:
            sys.exit(f"{command} ended with {result.returncode}:\n{result.stdout[-2000:]}")


def draw(path, figure, plotter=None):
    """Writes a figure of wflow-plot as SVG."""
    subprocess.run([plotter or program("wflow-plot")], input=json.dumps([{"path": str(path), "width": 640, "height": 400, "figure": figure}]), text=True,
                   check=True)


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def temporary_directory():
    return tempfile.TemporaryDirectory(prefix="wflow-bench-")
