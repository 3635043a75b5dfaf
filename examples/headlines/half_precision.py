#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainings and the figures of half_precision.yaml."""

import argparse
import collections
import json
import math
import statistics
from pathlib import Path

import headlines

WAYS = {"full": {}, "half_wire": {"gradients": {"wire": "half"}}, "bf16": {"precision": "bf16"}}
NAMES = {"full": "full precision", "half_wire": "gradients in bfloat16 between nodes", "bf16": "products in bfloat16"}
# Of Student's distribution, for a 95 % interval of a mean of 2 to 10 differences.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


def train(options):
    training = headlines.Training(
        "training", ranks=2, data=options.data, seed=options.seed, epochs=options.epochs, batch=8,
        model={"name": "cosmoflow", "width": options.width}, transform={"log": 0.1}, augment=["shift", "flip", "permute"],
        optimizer={"name": "adamw", "learning_rate": 0.003, "clip_norm": 1}, schedule="one_cycle", ema=0.98,
        checkpoint={"every_epochs": 0}, **WAYS[options.way])
    training.run(environment={"WFLOW_RANKS_PER_GROUP": 1})
    result = training.result()
    errors = {name: target["mae_ratio"] for name, target in result["test"]["targets"].items()}
    measured = {"way": options.way, "seed": options.seed, "errors": errors, "kernels": result["kernels"],
                "error": statistics.mean(errors.values())}
    Path("measured.json").write_text(json.dumps(measured, indent=1) + "\n")


def compare(errors, way):
    """Mean difference to full precision on the same seeds, its half 95 % interval, and the spread of seeds in full precision."""
    seeds = sorted(errors["full"])
    differences = [errors[way][seed] - errors["full"][seed] for seed in seeds]
    half = STUDENT[len(seeds) - 2] * statistics.stdev(differences) / math.sqrt(len(seeds))
    return statistics.mean(differences), half, statistics.stdev(errors["full"].values())


def statement(errors, way):
    difference, half, spread = compare(errors, way)
    here = f"{difference:+.4f} ± {half:.4f}; full precision {statistics.mean(errors['full'].values()):.4f}, spread of seeds {spread:.4f}"
    return headlines.row(f"{NAMES[way]}: change of the test error", "half precision does not hurt", here, "within the spread of seeds",
                         abs(difference) <= spread)


def figures(options):
    errors = collections.defaultdict(dict)
    for path in Path(options.trainings).rglob("measured.json"):
        measured = json.loads(path.read_text())
        errors[measured["way"]][measured["seed"]] = measured["error"]
        if measured["way"] == "bf16":
            kernels = measured["kernels"]
    seeds = sorted(errors["full"])
    table = {"head": ["", *(f"seed {seed}" for seed in seeds), "mean"],
             "rows": [[NAMES[way], *(f"{errors[way][seed]:.4f}" for seed in seeds), f"{statistics.mean(errors[way].values()):.4f}"]
                      for way in WAYS]}
    plot = {"kind": "lines", "title": "Test error by seed", "x": {"name": "seed"}, "y": {"name": "test error over the mean guess's", "low": 0},
            "series": [{"name": NAMES[way], "x": seeds, "y": [errors[way][seed] for seed in seeds], "marks": True} for way in WAYS]}
    headlines.finish("half_precision", [statement(errors, way) for way in ("half_wire", "bf16")], plot, table,
                     bf16_layers=[line for line in kernels if "bf16" in line])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("train")
    one.add_argument("--data", required=True)
    one.add_argument("--way", choices=WAYS, required=True)
    for name in ("seed", "epochs", "width"):
        one.add_argument(f"--{name}", type=int, required=True)
    one.set_defaults(action=train)
    one = commands.add_parser("figures")
    one.add_argument("--trainings", required=True)
    one.set_defaults(action=figures)
    options = parser.parse_args()
    options.action(options)


if __name__ == "__main__":
    main()
