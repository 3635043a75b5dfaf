#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The grid, the trainings and the statements of bit_flips.yaml.

A training has failed if it ends with an error, or if its validation loss is more than a tenth above those of all clean trainings of
the network, with any seed: the study's measure is the range of error-free runs, too."""

import argparse
import collections
import csv
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import headlines

NETWORKS = {"cosmoflow": {"name": "cosmoflow", "width": 3}, "cnn": {"name": "cnn", "width": 4}, "mlp": {"name": "mlp", "dense": [32, 32]}}
# A flip hits the data or the model, in the forward or in the backward phase: the network's outputs, their gradients, the weights,
# or Adam's second moments.
PLACES = {"activations": "data, forward", "gradients": "data, backward", "weights": "model, forward", "optimizer": "model, backward"}
KINDS = ("convolution", "dense")
COLUMNS = ("network", "place", "layer", "iteration", "bit", "seed")
UNIVERSES, TRAIN, TEST, EPOCHS, BATCH = 120, 96, 12, 8, 8
# The bits that each bit of the grid stands for.
STANDS_FOR = {31: 1, 30: 1, 29: 1, 28: 1, 27: 5, 22: 23}


def grid(options):
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    seed = 0
    for network, place in itertools.product(options.networks, PLACES):
        layers = ("output",) if place in ("activations", "gradients") else KINDS if network != "mlp" else ("dense",)
        for layer, iteration, bit, _ in itertools.product(layers, options.iterations, options.bits, range(options.positions)):
            seed += 1
            writer.writerow((network, place, layer, iteration, bit, seed))


def data(_):
    with open("rows.csv", "w", encoding="utf-8") as rows, open("table.csv", "w", encoding="utf-8") as table:
        print("index,omega_m,sigma_8", file=rows)
        print("id,file,omega_m,sigma_8", file=table)
        for i in range(UNIVERSES):
            # Two additive sequences fill the square evenly.
            point = f"{0.1 + 0.4 * (i * 0.7548776662 % 1):.6f},{0.6 + 0.4 * (i * 0.5698402910 % 1):.6f}"
            print(f"{i},{point}", file=rows)
            print(f"{i},{Path.cwd()}/universe-{i}.h5,{point}", file=table)
    subprocess.run([headlines.program("wflow-cola"), "--rows", "rows.csv", "--particles", "16", "--mesh", "32", "--cells", "16", "--box", "64",
                    "--redshifts", "1,0", "--output", "universe-{index}.h5"], check=True, stdout=subprocess.DEVNULL)
    config = {"samples": str(Path.cwd() / "table.csv"), "dataset": "density", "targets": ["omega_m", "sigma_8"], "channels": ["z=1", "z=0"],
              "shard_samples": UNIVERSES, "split": {"train": TRAIN, "validation": TEST, "test": TEST, "seed": 1},
              "output": str(Path.cwd() / "shards")}
    Path("convert.yaml").write_text(json.dumps(config))
    subprocess.run([headlines.program("wflow-convert"), "convert.yaml"], check=True)


def training_of(network, options, seed, guard):
    return headlines.Training("training", data=Path(options.data) / "shards", seed=seed, epochs=EPOCHS, batch=BATCH, guard=guard,
                              model=NETWORKS[network], transform={"log": 0.1}, checkpoint={"every_epochs": 1},
                              optimizer={"name": "adamw", "learning_rate": 0.005})


def outcome(training, flip=None):
    """Rollbacks and losses; a training that ends with an error has an infinite loss."""
    try:
        done = training.run(*(["--inject-bit-flips", flip] if flip else []))
    except RuntimeError as error:
        if "not finite" not in str(error):
            raise
        return {"rollbacks": 0, "loss": None, "train_loss": None}
    if flip and "injected" not in done.stderr:
        raise RuntimeError(f"{flip} was not injected: {done.stderr}")
    result = training.result()
    return {"rollbacks": result["rollbacks"], "loss": result["validation"]["loss"], "train_loss": result["train_loss"],
            "injected": next((line for line in done.stderr.splitlines() if "injected" in line), None)}


def sizes_of(training):
    """(kind of layer, number of values) of the parameters, in the order in which the trainer holds them: each begins a line of 16."""
    path = sorted((training.folder / "checkpoints").glob("*.wfck"))[-1]
    content = path.read_bytes()
    header = json.loads(content[24:24 + int.from_bytes(content[16:24], "little")])
    return [("convolution" if array["name"].startswith("conv") else "dense", -(-math.prod(array["shape"]) // 16) * 16)
            for array in header["arrays"] if array["kind"] == "parameter"]


def clean(options):
    found = {}
    for network in options.networks:
        runs = []
        for seed in range(1, options.seeds + 1):
            training = training_of(network, options, seed, guard=True)
            runs.append(outcome(training))
        found[network] = {"runs": runs, "parameters": sizes_of(training)}
    Path("clean.json").write_text(json.dumps(found, indent=1) + "\n")


def hash64(seed, counter):
    """base/random.h: it chooses the value that a flip hits."""
    mask, step = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    return mix((mix((seed + step) & mask) + (counter + 1) * step) & mask)


def kind_at(place, parameters):
    for kind, size in parameters:
        if place < size:
            return kind
        place -= size
    raise ValueError(place)


def seed_of(row, parameters):
    """A seed whose value lies in a layer of the wanted kind."""
    if row["layer"] == "output":
        return int(row["seed"])
    total = sum(size for _, size in parameters)
    candidates = itertools.count(int(row["seed"]), 1_000_003)
    return next(seed for seed in candidates if kind_at(hash64(seed, 11) % total, parameters) == row["layer"])


def trials(options):
    known = json.loads((Path(options.clean) / "clean.json").read_text())
    with open(options.rows, encoding="utf-8") as rows, open("trials.jsonl", "w", encoding="utf-8") as to:
        for row in csv.DictReader(rows):
            flip = f"{row['place']},step={row['iteration']},bit={row['bit']},seed={seed_of(row, known[row['network']]['parameters'])}"
            guarded = outcome(training_of(row["network"], options, 1, guard=True), flip)
            # Where the guard has found nothing, it has changed nothing.
            stepped_back = guarded["rollbacks"] > 0 or guarded["loss"] is None
            bare = outcome(training_of(row["network"], options, 1, guard=False), flip) if stepped_back else guarded
            print(json.dumps({**{name: row[name] for name in COLUMNS}, "flip": flip, "guarded": guarded, "bare": bare}), file=to)


class Trials:
    def __init__(self, folder, clean_runs):
        self.clean = clean_runs
        self.limit = {network: 1.1 * max(run["loss"] for run in one["runs"]) for network, one in clean_runs.items()}
        paths = sorted(Path(folder).rglob("trials.jsonl"))
        self.all = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        for trial in self.all:
            trial["failed"] = self.has_failed(trial, trial["bare"])
            trial["failed_guarded"] = self.has_failed(trial, trial["guarded"])
            trial["seen"] = trial["guarded"]["rollbacks"] > 0
            trial["worse"] = self.is_worse(trial, trial["bare"])

    def has_failed(self, trial, run):
        return run["loss"] is None or not run["loss"] <= self.limit[trial["network"]]

    def is_worse(self, trial, run):
        """bench/bit_flips' measure: the last training loss is more than 1 % above that of the same training without the flip."""
        return run["train_loss"] is None or not run["train_loss"] <= 1.01 * self.clean[trial["network"]]["runs"][0]["train_loss"]

    def groups(self, column):
        found = collections.defaultdict(list)
        for trial in self.all:
            found[trial[column]].append(trial)
        return found


def share(trials_, what="failed"):
    hits = sum(trial[what] for trial in trials_)
    low, high = headlines.share_interval(hits, len(trials_))
    return hits, len(trials_), hits / len(trials_) if trials_ else 0.0, low, high


def as_text(trials_, what="failed"):
    hits, count, value, low, high = share(trials_, what)
    return f"{100 * value:.1f} % ({hits} of {count}; {100 * low:.1f} to {100 * high:.1f})"


def chi_square(groups):
    """Probability of at least this difference between the groups' shares if they have one share."""
    hits, counts = [sum(t["failed"] for t in group) for group in groups], [len(group) for group in groups]
    mean = sum(hits) / sum(counts)
    if mean in (0.0, 1.0):
        return 1.0
    value = sum((h - n * mean) ** 2 / (n * mean * (1 - mean)) for h, n in zip(hits, counts))
    return upper_tail(value, len(groups) - 1)


def upper_tail(value, freedom):
    """Returns the probability of larger values in the chi-square distribution."""
    if freedom == 0:
        return 1.0
    tail, term = (math.erfc(math.sqrt(value / 2)), 1) if freedom % 2 else (math.exp(-value / 2), 2)
    for k in range(term, freedom, 2):
        tail += (value / 2) ** (k / 2) * math.exp(-value / 2) / math.gamma(k / 2 + 1)
    return tail


def of_random_bit(trials_):
    """P(failure | one flipped bit), each bit weighted by the bits it stands for, and its interval."""
    total = middle = variance = 0.0
    by_bit = collections.defaultdict(list)
    for trial in trials_:
        by_bit[int(trial["bit"])].append(trial)
    for bit, group in by_bit.items():
        _, count, value, _, _ = share(group)
        weight = STANDS_FOR[bit]
        smoothed = (value * count + 0.5) / (count + 1)
        total, middle, variance = total + weight, middle + weight * value, variance + weight**2 * smoothed * (1 - smoothed) / count
    half = 1.96 * math.sqrt(variance) / total
    return middle / total, max(0.0, middle / total - half), middle / total + half


def first_observation(all_trials):
    groups = all_trials.groups("iteration")
    p = chi_square(list(groups.values()))
    shares = ", ".join(f"step {step}: {as_text(group)}" for step, group in groups.items())
    return headlines.row("bit flips 1: failures do not depend on the iteration", "no dependence", f"p = {p:.2f} ({shares})", "p of χ² at least 0.05", p >= 0.05)


def second_observation(all_trials):
    groups = {int(bit): group for bit, group in all_trials.groups("bit").items()}
    highest, low = share(groups[30]), share(groups[22])
    shares = ", ".join(f"bit {bit}: {as_text(groups[bit])}" for bit in sorted(groups, reverse=True))
    return headlines.row("bit flips 2: high bits of the exponent harm, low ones rarely", "31 to 27 matter", shares,
                         "the interval of bit 30 lies above that of bit 22", highest[3] > low[4])


def third_observation(all_trials):
    both = [trial for trial in all_trials.all if trial["network"] != "mlp" and trial["layer"] in KINDS]
    convolution, dense = ([trial for trial in both if trial["layer"] == kind] for kind in KINDS)
    a, b = share(convolution), share(dense)
    low = a[2] - b[2] - math.hypot(a[2] - a[3], b[4] - b[2])
    return headlines.row("bit flips 3: convolutions are hit worst", "convolutions fail most", f"convolutions {as_text(convolution)}, dense layers {as_text(dense)}",
                         "the difference's 95 % interval is above 0", low > 0)


def fourth_observation(all_trials):
    failed = [trial for trial in all_trials.all if trial["failed"]]
    runs = [run for one in all_trials.clean.values() for run in one["runs"]]
    alarms = sum(run["rollbacks"] > 0 for run in runs)
    recall = share(failed, "seen")
    return headlines.row("bit flips 4: the loss of the next step detects them", "an effective detector",
                         f"the guard goes back in {as_text(failed, 'seen')} of the trainings that fail without it; false alarms in {alarms} of {len(runs)} clean trainings",
                         "at least 90 % of them, no false alarm", recall[2] >= 0.9 and alarms == 0)


def probabilities(all_trials):
    values = {network: of_random_bit(group) for network, group in all_trials.groups("network").items()}
    here = ", ".join(f"{network} {100 * p:.2f} % ({100 * low:.2f} to {100 * high:.2f})" for network, (p, low, high) in values.items())
    return headlines.row("bit flips: P(F|SDC), a random bit", "1.76 %, 1.22 %, 0.61 % of three networks", here,
                         "none: an estimate", None)


def recovered(all_trials):
    failed = [trial for trial in all_trials.all if trial["failed"]]
    left = [trial for trial in failed if trial["failed_guarded"]]
    return headlines.row("bit flips: failures with the guard", "none published", f"{len(failed)} of {len(all_trials.all)} trainings without it, {len(left)} with it",
                         "at most a tenth", len(left) <= 0.1 * len(failed))


def figures(options):
    all_trials = Trials(options.trials, json.loads((Path(options.clean) / "clean.json").read_text()))
    rows = [make(all_trials) for make in (first_observation, second_observation, third_observation, fourth_observation, probabilities, recovered)]
    head = ["marginal", "value", "failed, guard off", "failed, guard on", "guard went back", "last training loss over 1 % higher, guard off"]
    body = []
    for column in ("network", "place", "layer", "iteration", "bit"):
        for value, group in all_trials.groups(column).items():
            label = f"{value} ({PLACES[value]})" if column == "place" else value
            body.append([column, label, *(as_text(group, what) for what in ("failed", "failed_guarded", "seen", "worse"))])
    groups = {int(bit): group for bit, group in all_trials.groups("bit").items()}
    bits = sorted(groups)
    plot = {"kind": "lines", "title": "Trainings that fail, by the bit that flips", "x": {"name": "bit"}, "y": {"name": "per cent", "low": 0},
            "series": [{"name": name, "x": bits, "y": [100 * share(groups[bit], what)[2] for bit in bits], "marks": True}
                       for name, what in (("guard off", "failed"), ("guard on", "failed_guarded"))]}
    headlines.finish("bit_flips", rows, plot, {"head": head, "rows": body}, trials=len(all_trials.all))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    wanted = {grid: ("networks", "positions", "iterations", "bits"), data: (), clean: ("data", "networks", "seeds"), trials: ("data", "clean", "rows"), figures: ("clean", "trials")}
    for action, names in wanted.items():
        command = commands.add_parser(action.__name__)
        for name in names:
            numbers = name in ("positions", "iterations", "bits", "seeds")
            command.add_argument(f"--{name}", required=True, type=int if numbers else str, nargs="+" if name in ("networks", "iterations", "bits") else None)
        command.set_defaults(action=action)
    options = parser.parse_args()
    options.action(options)


if __name__ == "__main__":
    main()
