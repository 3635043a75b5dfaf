#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Damage to the files of campaigns: it is recovered or said in a sentence, and never a silent difference in shards, weights or predictions.

  tests/chaos/damage.py [--trials N] [--bin DIR] [--jobs N] [--seed N] [--json FILE] [--keep] [-v]

Each trial takes one file of a campaign, changes one byte of it, cuts it or removes it, and does what a user would do next: status, doctor,
resume, doctor, predict, and the training again. Half of the campaigns are finished, the others were killed in the middle. Kinds of files are drawn
first, then a file of the kind, so that thousands of outputs of tasks do not hide the others. Where data or a model are hit, the Python package
reads them, too, and the conversion is made again.

Outputs of tasks that are not converted yet have no checksum: a changed byte in one of them is the simulation's result to wflow. Such trials
are not drawn.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from campaign import wait_for
from kill_schedules import arguments

SAMPLES = 48
DEADLINE_S = 120
MARK = "WFLOW_DAMAGE_FOLDER"
HOWS = ("a byte", "cut", "removed")
RAW = "simulate/#/o.json"

STUDY = """description: {{name: damage}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{file: points.csv}}
study:
  - name: simulate
    run:
      cmd: |
        awk 'BEGIN {{printf "{{\\"y\\": %.9f}}", $(x) * $(x) + $(z)}}' > o.json
        {sleep}
        echo simulated $(x)
  - name: note
    run: {{cmd: echo $(x) of $(MERLIN_SAMPLE_ID), output: packed}}
  - name: data
    convert:
      from: simulate
      inputs: {{p: {{parameters: [x, z]}}}}
      targets: {{y: {{file: o.json, json: $.y}}}}
      shard_samples: 16
  - name: train
    train: {{data: data, epochs: 3, batch: 8}}
"""


# Prints a checksum of all values that the package gives, or the sentence of its error.
PYTHON = """
import hashlib, sys, warnings
import wflow
said = hashlib.sha256()
try:
    if sys.argv[1] == "data":
        data = wflow.open(sys.argv[2])
        for split in ("train", "validation", "test"):
            for name in data.inputs + data.targets:
                said.update(data[split].all(name).tobytes())
    else:
        said.update(wflow.load_model(sys.argv[2])([[0.25, 0.5], [0.75, 0.125]]).tobytes())
except wflow.Error as error:
    sys.exit(f"{error}")
print(said.hexdigest())
"""


def kind_of(path):
    """The path without what differs between files of a kind."""
    text = re.sub(r"^simulate/[0-9/]+/", "simulate/#/", str(path))
    text = re.sub(r"(coordinator|worker|guardian)-[^/]*\.log", r"\1.log", text)
    text = re.sub(r"tfevents.*", "tfevents", text)
    text = re.sub(r"(workers|packed)/[^/]*?(\.\d+)?(\.\w+)$", r"\1/#\3", text)
    return re.sub(r"\d+", "#", text.replace(".h5", ".hdf")).replace(".hdf", ".h5")


@dataclass
class Trial:
    seed: int
    state: str = ""
    file: str = ""
    kind: str = ""
    how: str = ""
    outcome: str = ""
    said: str = ""
    problems: list = field(default_factory=list)

    def text(self):
        return f"seed {self.seed}: {self.how} of {self.file} ({self.state}): {self.outcome}" + "".join(f"\n  {p}" for p in self.problems + [self.said] if p)


class Place:
    """One campaign's place, in which trials follow each other: its paths are in its files."""

    def __init__(self, binary, keep):
        self.wflow, self.keep = Path(binary).resolve() / "wflow", keep
        self.folder = Path(tempfile.mkdtemp(prefix="wfdamage-")).resolve()
        self.environment = {**os.environ, MARK: str(self.folder), "XDG_STATE_HOME": str(self.folder / "state"), "OMP_NUM_THREADS": "1"}
        rng = random.Random(1)
        (self.folder / "points.csv").write_text("x,z\n" + "".join(f"{rng.random():.6f},{rng.random():.6f}\n" for _ in range(SAMPLES)))
        self.campaigns = {}
        for state in ("killed", "finished"):
            self.make(state)
        self.restore("finished")
        self.reference = self.results()
        if (code := self.run("redo", self.campaign, "train", "-y", "-q")[0]) != 0:
            raise RuntimeError(f"redo ends with {code}")
        if self.results() != self.reference:
            raise RuntimeError("the same training gave other weights: no trial can be judged")

    def run(self, *words):
        done = subprocess.run([self.wflow, *map(str, words)], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=DEADLINE_S)
        return done.returncode, done.stdout, done.stderr

    def make(self, state):
        """A campaign stays in its place, and a copy of it beside that."""
        place = self.folder / state
        place.mkdir()
        study = place / "study.yaml"
        study.write_text(STUDY.format(sleep="sleep 0.05" if state == "killed" else ":"))
        shutil.copy(self.folder / "points.csv", place)
        command = ["run", study, "-j", "2", "-q", "--vars", f"OUTPUT_PATH={place}"]
        if state == "finished":
            code, _, err = self.run(*command)
            if code != 0:
                raise RuntimeError(f"the campaign ends with {code}: {err}")
        else:
            process = subprocess.Popen([self.wflow, *map(str, command)], cwd=place, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            wait_for(lambda: len(list(place.rglob("o.json"))) >= SAMPLES * 2 // 3, "two thirds of the samples", DEADLINE_S)
            self.kill_all()
            process.wait()
        self.campaigns[state] = next(place.glob("damage_*"))
        shutil.copytree(self.campaigns[state], self.template(state), symlinks=True)

    def template(self, state):
        return self.folder / f"template-{state}"

    def mine(self):
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"{MARK}={self.folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def kill_all(self):
        while pids := self.mine():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)

    def restore(self, state):
        self.campaign = self.campaigns[state]
        shutil.rmtree(self.campaign, ignore_errors=True)
        shutil.copytree(self.template(state), self.campaign, symlinks=True)

    def results(self):
        """The values that must not differ silently."""
        files = sorted(self.campaign.glob("data/*/shard-*.h5")) + [self.campaign / "train" / "model.pt"]
        return {str(path.relative_to(self.campaign)): path.read_bytes() for path in files if path.is_file()}

    def predictions(self):
        path = self.folder / "p.csv"
        path.unlink(missing_ok=True)
        code, out, err = self.run("predict", self.campaign / "train", self.campaign / "data", "--split", "test", "-o", path)
        return code, out, err, path.read_bytes() if path.is_file() else None

    def python(self, what):
        """The output of the package, its error, and its exit code."""
        path = self.campaign / ("data" if what == "data" else "train/model.pt")
        environment = {**self.environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "python")}
        done = subprocess.run(["/usr/bin/python3", "-c", PYTHON, what, path], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=DEADLINE_S)
        return done.returncode, done.stdout, done.stderr

    def read_by_python(self, trial):
        """Reads the campaign in place; only if the damage hit a file that it reads."""
        for what in ("data", "model"):
            if not trial.file.startswith("data/" if what == "data" else "train/model.pt"):
                continue
            code, out, err = self.python(what)
            self.judge(trial, f"python {what}", code, out, err)
            if code == 0 and out != self.read[what]:
                trial.problems.append(f"python reads another {what}")

    def damage(self, trial, rng):
        files = defaultdict(list)
        for path in sorted(self.campaign.rglob("*")):
            if path.is_file() and not path.is_symlink():
                files[kind_of(path.relative_to(self.campaign))].append(path)
        while True:
            trial.kind = rng.choice(sorted(files))
            trial.how = rng.choice(HOWS)
            path = rng.choice(files[trial.kind])
            content = path.read_bytes()
            empty = not content and trial.how != "removed"
            raw = trial.kind == RAW and trial.state == "killed" and trial.how == "a byte"
            if not empty and not raw:
                break
        trial.file = str(path.relative_to(self.campaign))
        if trial.how == "removed":
            path.unlink()
        elif trial.how == "cut":
            os.truncate(path, rng.randrange(len(content)))
        else:
            at = rng.randrange(len(content))
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(bytes([content[at] ^ (1 << rng.randrange(8))]))
        self.damaged = path.read_bytes() if path.is_file() else None

    def judge(self, trial, what, code, out, err):
        if code < 0 or code > 8 or code == 70 or "internal error" in err or "Traceback" in err or "terminate called" in err:
            trial.problems.append(f"{what} ends with {code}: {(err or out)[-600:]}")
        lines = err.splitlines() + [line for line in out.splitlines() if code != 0 or re.search("missing|lost|damaged|left out", line)]
        if what == "predict" and code == 0:
            lines = []  # the table
        for line in lines:
            line = f"{what}: {line.strip()}"
            if self.listens:
                self.usual.add(re.sub(r"\d+", "#", line))
            elif not trial.said and re.sub(r"\d+", "#", line) not in self.usual:
                trial.said = line

    def listen(self):
        """Messages about campaigns without damage, for instance that one was killed."""
        self.listens, self.usual, self.damaged = True, set(), None
        for state in ("finished", "killed"):
            self.restore(state)
            self.follow(trial := Trial(0, state))
            if trial.problems:
                raise RuntimeError(trial.text())
        self.listens = False

    def play(self, seed):
        rng = random.Random(seed)
        trial = Trial(seed, rng.choice(("finished", "killed")))
        self.restore(trial.state)
        self.damage(trial, rng)
        self.follow(trial)
        self.kill_all()
        trial.outcome = "BROKEN" if trial.problems else "said" if trial.said else "recovered or of no effect"
        if trial.problems and self.keep:
            shutil.copytree(self.campaign, Path(tempfile.gettempdir()) / f"damage-{seed}", symlinks=True, dirs_exist_ok=True)
        return trial

    def follow(self, trial):
        try:
            if trial.state == "finished":
                self.read_by_python(trial)
                self.predict(trial)
            for words in (("status", self.campaign), ("doctor", self.campaign), ("resume", self.campaign, "-j", 2), ("doctor", self.campaign)):
                self.judge(trial, words[0], *self.run(*words))
            self.compare(trial, "after resume")
            self.predict(trial)
            step = "data" if trial.file.startswith("data/") and trial.seed % 2 else "train"
            code, out, err = self.run("redo", self.campaign, step, "-y", "-j", 2)
            self.judge(trial, f"redo {step}", code, out, err)
            self.compare(trial, f"after redo {step}", trained=code == 0)
            if code == 0:
                self.predict(trial)
        except subprocess.TimeoutExpired as error:
            trial.problems.append(f"hangs: {error.cmd[1:]}")

    def predict(self, trial):
        code, out, err, rows = self.predictions()
        self.judge(trial, "predict", code, out, err)
        # A data set without a sample whose output is gone says so, and gives other weights.
        if code == 0 and rows != self.rows and not (trial.kind == RAW and trial.said):
            trial.problems.append("other predictions")

    def compare(self, trial, when, trained=False):
        now = self.results()
        for name, content in self.reference.items():
            if name == trial.file and now.get(name) == self.damaged:
                # It lies there as it was left: doctor must say so.
                if not trial.said:
                    trial.problems.append(f"{when}: {name} is damaged, and nothing was said")
            elif name not in now:
                if trained and not trial.said:
                    trial.problems.append(f"{when}: {name} is missing, and nothing was said")
            elif now[name] != content and not trial.said:
                trial.problems.append(f"{when}: {name} differs, and nothing was said")
        # Weights that a training gives without complaint are those of the sound data.
        model = "train/model.pt"
        if trained and model in now and now[model] not in (self.reference[model], self.damaged) and trial.kind != RAW:
            trial.problems.append(f"{when}: other weights")

    def clean_up(self):
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)


def play(binary, seeds, keep=False, report=None):
    place, trials = Place(binary, keep), []
    try:
        code, _, err, place.rows = place.predictions()
        if code != 0:
            raise RuntimeError(f"predict ends with {code}: {err}")
        place.restore("finished")
        place.read = {}
        for what in ("data", "model"):
            code, place.read[what], err = place.python(what)
            if code != 0:
                raise RuntimeError(f"python reads no {what}: {err}")
        place.listen()
        for seed in seeds:
            trials.append(place.play(seed))
            if report:
                report(trials[-1])
    finally:
        place.clean_up()
    return trials


def table(trials):
    rows = defaultdict(Counter)
    for trial in trials:
        rows[trial.kind][trial.outcome] += 1
    outcomes = ("recovered or of no effect", "said", "BROKEN")
    lines = [f"{'file':50}" + "".join(f"{o:>28}" for o in outcomes)]
    lines += [f"{kind:50}" + "".join(f"{rows[kind][o]:28}" for o in outcomes) for kind in sorted(rows)]
    total = Counter(trial.outcome for trial in trials)
    return "\n".join(lines + [f"{'all':50}" + "".join(f"{total[o]:28}" for o in outcomes)])


def main():
    parser = arguments(__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", action="store_true", help="a line for each trial")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.trials)
    begin = time.monotonic()

    def report(trial):
        if options.v or trial.problems:
            print(trial.text(), flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        parts = pool.map(lambda first: play(options.bin, seeds[first :: options.jobs], options.keep, report), range(options.jobs))
        trials = [trial for part in parts for trial in part]
    print(table(trials))
    broken = [trial for trial in trials if trial.problems]
    print(f"{len(trials)} trials in {time.monotonic() - begin:.0f} s, {len(broken)} broken")
    if options.json:
        options.json.write_text(json.dumps([vars(trial) for trial in sorted(trials, key=lambda t: t.seed)], indent=1) + "\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
