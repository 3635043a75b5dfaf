#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares trainings on sub-cubes of some universes with trainings on the whole boxes, on the same test universes: each cube by
itself, the mean of a universe's cubes, and ridge regressions on the whole boxes. Installed as cosmoflow-whole-box.

  cosmoflow-whole-box --trainings campaign/train
  cosmoflow-whole-box --trainings campaign/train --json whole_box.json --svg whole_box.svg
  cosmoflow-whole-box --trainings 'campaign/train/*same*' --variant 'periodic=campaign/train/*periodic*'

A variant is a folder of trainings with another setting, all on the largest cubes, or a pattern of folders: each is compared with the
one of --trainings that has its seed.

Each training has result.json and predictions.h5; their data sets must be where they were. Errors are mean absolute errors over
those of the mean guess, the mean over the targets.

Exit codes: 0 done, 1 failed, 2 wrong options, 3 a training or data set can't be read, 4 a file or standard output can't be
written.
"""
import argparse
import glob
import json
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import baseline  # tells if numpy or the package is missing
import h5py
import numpy
import wflow

INPUT, OUTPUT = 3, 4
ALONE, AVERAGED = "each cube", "mean of a universe's cubes"


class Training:
    """Errors of one training. `cells`: along a side of its cubes."""

    def __init__(self, folder):
        try:
            result = json.loads((folder / "result.json").read_text())
            self.data, self.seed = Path(result["data"]["directory"]), result["seeds"]["seed"]
            guess = [target["mean_guess_mae"] for target in result["test"]["targets"].values()]
            with h5py.File(folder / "predictions.h5") as file:
                ids, truth, prediction = (file[name][:] for name in ("id", "truth", "prediction"))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise baseline.Unusable(f"cannot use the training in {folder}: {error}") from None
        data = wflow.open(self.data)
        self.cells = data.fields[baseline.cubes_of(data)].shape[-1]
        universes = numpy.unique(ids)
        self.cubes = len(ids) // len(universes)
        self.universes = universes.tolist()
        mean = [numpy.stack([values[ids == universe].mean(axis=0) for universe in universes]) for values in (prediction, truth)]
        self.errors = {ALONE: self.ratio(prediction, truth, guess), AVERAGED: self.ratio(*mean, guess)}

    @staticmethod
    def ratio(prediction, truth, guess):
        return float((abs(prediction - truth).mean(axis=0) / guess).mean())


def trainings_in(folder):
    """Those in a folder, or in the folders that a pattern matches."""
    pattern = Path(folder, "*") if os.path.isdir(folder) else Path(folder)
    found = [Training(Path(result).parent) for result in sorted(glob.glob(str(pattern / "result.json")))]
    if not found:
        raise baseline.Unusable(f"{folder} has no folder with result.json")
    if any(training.universes != found[0].universes for training in found):
        raise baseline.Unusable(f"the trainings in {folder} have different test universes")
    return found


def variant_of(name, trainings, whole):
    """Trainings with another setting against those of `whole`, seed by seed."""
    trainings = sorted(trainings, key=lambda training: training.seed)
    if any(training.cells != whole["cells"] for training in trainings) or [training.seed for training in trainings] != whole["seeds"]:
        raise baseline.Unusable(f"the trainings of '{name}' are not of {whole['cells']}^3 cells with the seeds {whole['seeds']}")
    errors = [training.errors[ALONE] for training in trainings]
    mean = sum(errors) / len(errors)
    return {"name": name, "cells": whole["cells"], "seeds": whole["seeds"], "errors": errors, "mean": mean, "over_whole": mean / whole["mean"],
            "each_seed": [a / b for a, b in zip(errors, whole["errors"])]}


def report_of(trainings, variants):
    rows = []
    for cells in sorted({training.cells for training in trainings}):
        group = sorted((training for training in trainings if training.cells == cells), key=lambda training: training.seed)
        for kind in (ALONE, AVERAGED) if group[0].cubes > 1 else (ALONE,):
            errors = [training.errors[kind] for training in group]
            rows.append({"cells": cells, "cubes": group[0].cubes, "kind": kind, "seeds": [training.seed for training in group],
                         "errors": errors, "mean": sum(errors) / len(errors)})
    largest = max(trainings, key=lambda training: training.cells)
    ridges = [{"name": row["name"], "error": sum(row["ratio"]) / len(row["ratio"])} for row in baseline.measure(largest.data)["baselines"]]
    whole = rows[-1]
    quotients = [{"cells": row["cells"], "kind": row["kind"], "whole_over_it": whole["mean"] / row["mean"],
                  "each_seed": [a / b for a, b in zip(whole["errors"], row["errors"])]} for row in rows[:-1]]
    return {"version": 1, "test_universes": len(trainings[0].universes), "trainings": rows, "ridge_on_the_largest": ridges, "quotients": quotients,
            "variants": [variant_of(name, found, whole) for name, found in variants.items()]}


def as_table(report):
    def name(row):
        return f"{row['cells']}^3 cells, " + (f"1/{row['cubes']}, {row['kind']}" if row["cubes"] > 1 else "whole")

    lines = [f"test error over that of the mean guess, {report['test_universes']} universes", ""]
    for row in report["trainings"]:
        each = ", ".join(f"{error:.4f}" for error in row["errors"])
        lines.append(f"{name(row):<46} {row['mean']:.4f}   seeds {', '.join(map(str, row['seeds']))}: {each}")
    for row in report["variants"]:
        each = ", ".join(f"{error:.4f}" for error in row["errors"])
        lines.append(f"{str(row['cells']) + '^3 cells, ' + row['name']:<46} {row['mean']:.4f}   seeds {', '.join(map(str, row['seeds']))}: {each}")
    for row in report["ridge_on_the_largest"]:
        lines.append(f"{row['name'] + ', whole':<46} {row['error']:.4f}")
    lines.append("")
    for row, quotient in zip(report["trainings"], report["quotients"]):
        each = ", ".join(f"{value:.2f}" for value in quotient["each_seed"])
        lines.append(f"{'whole / ' + name(row):<54} {quotient['whole_over_it']:.2f}   {each}")
    for row in report["variants"]:
        each = ", ".join(f"{value:.2f}" for value in row["each_seed"])
        lines.append(f"{row['name'] + ' / whole':<54} {row['over_whole']:.2f}   {each}")
    return "\n".join(lines)


class Plot:
    """Errors against cells, both on logarithmic axes."""
    WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 400, 70, 20, 20, 50

    def __init__(self, report):
        rows = report["trainings"]
        self.ridge = min(row["error"] for row in report["ridge_on_the_largest"])
        errors = [error for row in rows + report["variants"] for error in row["errors"]] + [self.ridge]
        self.x = [math.log(row["cells"] ** 3) for row in rows]
        self.range_x = (min(self.x) - 0.7, max(self.x) + 0.7)
        self.range_y = (math.log(min(errors)) - 0.2, math.log(max(errors)) + 0.2)
        self.parts = []
        self.frame(rows)
        self.line(rows[-1:], "#555", f"best ridge on whole boxes, {self.ridge:.3f}", 2, [(self.range_x[0], self.ridge), (self.range_x[1], self.ridge)])
        self.line([row for row in rows if row["kind"] == ALONE], "#0b62a4", "network: " + ALONE, 0)
        self.line([row for row in rows if row["kind"] == AVERAGED] + rows[-1:], "#c2571a", "network: " + AVERAGED, 1)
        for place, row in enumerate(report["variants"], 3):
            self.line([row], ("#3a8f3a", "#8a4fa3", "#777")[place % 3], f"network: whole, {row['name']}", place)

    def at(self, x, error):
        across = (x - self.range_x[0]) / (self.range_x[1] - self.range_x[0])
        up = (math.log(error) - self.range_y[0]) / (self.range_y[1] - self.range_y[0])
        return (self.LEFT + across * (self.WIDTH - self.LEFT - self.RIGHT), self.HEIGHT - self.BOTTOM - up * (self.HEIGHT - self.TOP - self.BOTTOM))

    def text(self, x, y, text, anchor="middle", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{text}</text>')

    def frame(self, rows):
        bottom = self.HEIGHT - self.BOTTOM
        for cells in sorted({row["cells"] for row in rows}):
            x, _ = self.at(math.log(cells**3), 1)
            self.parts.append(f'<line x1="{x:.1f}" y1="{self.TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
            self.text(x, bottom + 18, f"{cells}³")
        for tick in (step * 10.0**power for power in range(-4, 1) for step in (1, 2, 5)):
            if not self.range_y[0] <= math.log(tick) <= self.range_y[1]:
                continue
            _, y = self.at(self.range_x[0], tick)
            self.parts.append(f'<line x1="{self.LEFT}" y1="{y:.1f}" x2="{self.WIDTH - self.RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
            self.text(self.LEFT - 8, y + 4, f"{tick:g}", "end")
        self.text((self.LEFT + self.WIDTH) / 2, self.HEIGHT - 8, "cells of a training sample")
        self.text(0, 0, "test error over that of the mean guess", more=f' transform="translate(16 {(self.TOP + bottom) / 2}) rotate(-90)"')

    def line(self, rows, colour, label, place, points=()):
        points = points or [(math.log(row["cells"] ** 3), row["mean"]) for row in rows]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))
        dashes = ' stroke-dasharray="6 4"' if place == 2 else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for row in rows if place != 2 else ():
            for error in row["errors"]:
                x, y = self.at(math.log(row["cells"] ** 3) + 0.12 * max(0, place - 2), error)  # beside the others
                self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        x, y = self.WIDTH - self.RIGHT - 250, self.TOP + 16 + 20 * place
        self.parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" stroke="{colour}" stroke-width="2"{dashes}/>')
        self.text(x + 30, y + 4, label, "start")

    def svg(self):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.WIDTH}" height="{self.HEIGHT}" font-family="sans-serif" font-size="12">',
                f'<rect width="{self.WIDTH}" height="{self.HEIGHT}" fill="white"/>')
        return "\n".join([*head, *self.parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(prog="cosmoflow-whole-box", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", required=True, metavar="DIRECTORY", help="has a folder for each training, or a pattern of such folders")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=DIRECTORY", help="trainings with another setting on the largest cubes")
    parser.add_argument("--json", metavar="FILE", help="file to write the figures to as well")
    parser.add_argument("--svg", metavar="FILE", help="file to draw them to")
    options = parser.parse_args()
    if wrong := [words for words in options.variant if not all(words.partition("="))]:
        parser.error(f"--variant {wrong[0]}: expected NAME=DIRECTORY")
    try:
        variants = {name: trainings_in(folder) for name, _, folder in (words.partition("=") for words in options.variant)}
        report = report_of(trainings_in(options.trainings), variants)
    except (baseline.Unusable, wflow.Error, OSError) as error:
        print(f"cosmoflow-whole-box: {error}", file=sys.stderr)
        return INPUT
    target = options.json
    try:
        if target:
            baseline.write_json(target, report)
        target = options.svg
        if target:
            Path(target).write_text(Plot(report).svg())
        target = "standard output"
        print(as_table(report), flush=True)
    except OSError as error:
        print(f"cosmoflow-whole-box: cannot write {target}: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries once more when it ends
        return OUTPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
