# SPDX-License-Identifier: Apache-2.0
"""Campaigns for measuring the coordinator: studies of any size, runs whose memory is watched, and a kill of everything."""
import functools
import json
import os
import re
import resource
import signal
import subprocess
import time

import bench

MARK = "WFLOW_BENCH_FOLDER"


def study(folder, elements, arrays=1, command="true $(MERLIN_SAMPLE_ID)", retries=None):
    """A study of one step over `arrays` parameter combinations and `elements` samples; the path of its file."""
    parameters = ""
    if arrays > 1:
        parameters = "global.parameters: {P: {values: [%s], label: P.%%%%}}\n" % ", ".join(map(str, range(arrays)))
        command += " $(P)"
    more = "" if retries is None else f", max_retries: {retries}, retry_delay: 0"
    if retries == 0:
        more += ", max_failures: none"  # where all fail, all are to be tried
    path = os.path.join(folder, f"study_{arrays}_{elements}.yaml")
    with open(path, "w") as file:
        file.write(f"""description: {{name: scale, description: nothing}}
env: {{variables: {{OUTPUT_PATH: {folder}}}}}
{parameters}samples: {{design: uniform, count: {elements}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: "{command}"{more}}}
""")
    return path


def kept_open(folder, tasks, failures):
    """A live campaign whose tasks have all ended, this fraction of them badly: its second step has no worker. (process, directory)"""
    path = study(folder, tasks, retries=0)
    with open(path, "a") as file:
        file.write('  - name: hold\n    run: {cmd: "true"}\nworkers: {here: {steps: [work]}, away: {steps: [hold], machines: [no-such-host]}}\n')
    before = all_of(folder)
    process = start(folder, "run", path, "-j", "1", "--zero-failures", str(failures))
    campaign = wait_for(lambda: next((path for path in all_of(folder) - before if started(path)), None), process)

    def ended():
        counts = status(campaign)["steps"][0]["counts"]
        return counts["done"] + counts["failed"] == tasks

    wait_for(ended, process, pause_s=0.2)
    return process, campaign


def started(campaign):
    """Its database is there: until then a kill leaves nothing to resume."""
    return os.path.exists(os.path.join(campaign, ".wflow", "campaign.db"))


def wait_for(condition, process, pause_s=0.001):
    while not (value := condition()):
        if process.poll() is not None:
            raise SystemExit(f"wflow ended with {process.returncode}: {process.stderr.read()}")
        time.sleep(pause_s)
    return value


def all_of(folder):
    return {entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name.startswith("scale_")}


def newest(folder):
    """Their names are times."""
    return max(all_of(folder))


@functools.lru_cache
def has_new(program):
    """Earlier revisions always began a new campaign."""
    return "--new" in subprocess.run([program, "run", "--help"], capture_output=True, text=True).stdout


def start(folder, *arguments):
    program = bench.wflow_for(arguments)
    if arguments[0] == "run" and has_new(program):
        arguments = ("run", "--new", *arguments[1:])  # what an earlier measurement left is not asked about
    return subprocess.Popen([program, *arguments, "-q"], cwd=folder, env={**bench.environment(), MARK: folder},
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def peak_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            found = re.search(r"^VmHWM:\s+(\d+) kB", status.read(), flags=re.M)
        return int(found.group(1)) * 1024 if found else 0
    except OSError:
        return 0


def cpu_s(pid):
    """The usage of this process, without its children."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Run:
    """A run to its end: wall seconds, CPU seconds of the coordinator alone and of all, the coordinator's peak memory."""

    def __init__(self, folder, *arguments, codes=(0,)):
        begin, before = time.monotonic(), children_cpu_s()
        process = start(folder, *arguments)
        self.peak = self.cpu = 0
        while process.poll() is None:
            self.peak = max(self.peak, peak_bytes(process.pid))
            try:
                self.cpu = cpu_s(process.pid)
            except OSError:
                pass
            time.sleep(0.002)
        self.wall, self.cpu_of_all = time.monotonic() - begin, children_cpu_s() - before
        if process.returncode not in codes:
            raise SystemExit(f"wflow {' '.join(arguments)} ended with {process.returncode}: {process.stderr.read()}")
        self.campaign = arguments[1] if arguments[0] == "resume" else newest(folder)

    @property
    def database(self):
        return os.path.getsize(os.path.join(self.campaign, ".wflow", "campaign.db"))


def ours(folder):
    mark = f"{MARK}={folder}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            pass
    return found


def kill_everything(folder):
    """SIGKILL to coordinator, workers and tasks alike, until none is left."""
    while found := ours(folder):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        time.sleep(0.01)


def status(campaign):
    text = subprocess.run([bench.program("wflow"), "status", campaign, "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(text)


def best(repeats, function):
    return min(function() for _ in range(repeats))


def timed(command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin
