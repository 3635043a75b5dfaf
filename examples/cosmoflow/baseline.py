#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how well ridge regressions on power spectra and one-point statistics find the parameters, on the same split of the same
data set that a network is trained on. Installed as cosmoflow-baseline.

  cosmoflow-baseline --data campaign/data
  cosmoflow-baseline --data campaign/data --network campaign/train/predictions.csv --json baselines.json

The data set has one field of cubes, the density or counts, untransformed. The strength of the ridge is chosen on the validation
split, target by target.

Exit codes: 0 done, 1 failed, 2 wrong options, 3 the data set or the predictions can't be read, 4 the JSON file or
standard output can't be written.
"""
import argparse
import csv
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
try:
    import numpy
    import wflow
except ImportError as missing:
    sys.exit(f"cosmoflow-baseline: {missing}; it needs numpy and h5py: {sys.executable} -m pip install numpy h5py, or run "
             f"{Path(__file__).resolve()} with a Python that has them")

INPUT, OUTPUT = 3, 4
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
GROWTH = 1.18     # ratio of a shell's outer edge to its inner one, once wider than one unit
FLOOR = 0.1       # keeps the logarithm of an empty cell finite
NO_POWER = 1e-30  # and that of an empty shell
STRENGTHS = 1e-6 * 10.0 ** numpy.arange(9)


class Unusable(Exception):
    """The data set or the predictions."""


# ---- What a cosmologist would measure on a cube instead of showing it to a network


class SummaryStatistics:
    """`shape`: (channels, depth, height, width); `scale`: the mean of each channel, so that counts and densities give the same figures."""

    def __init__(self, shape, scale):
        sides = shape[1:]
        side = min(sides)
        if side < 4:
            raise Unusable("cubes of fewer than 4 cells a side have no power spectrum to speak of")
        if not all(scale > 0):
            raise Unusable("the first sample has a channel whose mean is not positive")
        self.scale = numpy.asarray(scale, float).reshape(-1, 1, 1, 1)
        edges = [0.5]  # in units of the lowest wave number of the shortest side
        while edges[-1] + 1 <= side / 2:
            edges.append(min(side / 2, max(edges[-1] + 1, edges[-1] * GROWTH)))
        self.shells = len(edges) - 1
        numbers = [numpy.fft.fftfreq(n, 1 / n) * side / n for n in sides[:-1]] + [numpy.fft.rfftfreq(sides[-1], 1 / sides[-1]) * side / sides[-1]]
        k = numpy.sqrt(sum(axis**2 for axis in numpy.meshgrid(*numbers, indexing="ij", sparse=True)))
        self.inside = (k >= edges[0]) & (k < edges[-1])
        self.shell = numpy.searchsorted(edges, k[self.inside], side="right") - 1
        once = numpy.zeros(sides[-1] // 2 + 1, bool)  # the other modes stand for their conjugate, too
        once[0] = True
        once[sides[-1] // 2 :] = sides[-1] % 2 == 0
        self.weight = numpy.broadcast_to(numpy.where(once, 1, 2), k.shape)[self.inside]
        self.weights = numpy.bincount(self.shell, self.weight, self.shells)

    def log_power(self, sample):
        """log P(k) of each channel in shells whose width grows with k, up to the Nyquist frequency of the shortest side."""
        modes = numpy.abs(numpy.fft.rfftn(sample / self.scale, axes=(1, 2, 3))) ** 2 / sample[0].size**2
        power = [numpy.bincount(self.shell, self.weight * channel[self.inside], self.shells) for channel in modes]
        return numpy.log(numpy.array(power) / numpy.maximum(self.weights, 1) + NO_POWER).ravel()

    def one_point(self, sample):
        """For each channel of log(density + 0.1): four moments and ten quantiles."""
        logs = numpy.log(sample / self.scale + FLOOR).reshape(len(sample), -1)
        mean = logs.mean(axis=1)
        m2, m3, m4 = (((logs - mean[:, None]) ** power).mean(axis=1) for power in (2, 3, 4))
        sigma = numpy.sqrt(m2) + NO_POWER
        at = [int(quantile * (logs.shape[1] - 1)) for quantile in QUANTILES]
        quantiles = numpy.partition(logs, at, axis=1)[:, at]
        return numpy.column_stack([mean, numpy.log(sigma), m3 / sigma**3, m4 / (m2**2 + NO_POWER), quantiles]).ravel()


# ---- Ridge regression


class Standardiser:
    """By the mean and deviation of the training samples. A column that never changes says nothing: it becomes zero."""

    def __init__(self, values):
        self.mean = values.mean(axis=0)
        self.deviation = values.std(axis=0)
        self.deviation[self.deviation < 1e-12 * (1 + abs(self.mean))] = numpy.inf

    def __call__(self, values):
        return (values - self.mean) / self.deviation

    def undo(self, values):
        return self.mean + values * numpy.where(numpy.isinf(self.deviation), 0, self.deviation)


def with_products(x):
    j, k = numpy.tril_indices(x.shape[1])
    return numpy.hstack([x, x[:, j] * x[:, k]])


def ridge(x, y, x_validation, y_validation, x_test, degree):
    """Predictions for the test samples, and the strength for each target, relative to the number of samples: the one with the least
    mean absolute error on the validation samples. Degree 2 adds all products of two features."""
    designs = [x, x_validation, x_test]
    for step in range(degree):
        if step:
            designs = [with_products(design) for design in designs]
        standardise = Standardiser(designs[0])
        designs = [standardise(design) for design in designs]
    of_target = Standardiser(y)
    x, *others = designs
    # In sample space: (X X^T + s) c = y, prediction x X^T c. In feature space: (X^T X + s) w = X^T y, prediction x w.
    by_sample = x.shape[0] < x.shape[1]
    right = of_target(y) if by_sample else x.T @ of_target(y)
    values, vectors = numpy.linalg.eigh(x @ x.T if by_sample else x.T @ x)
    on_validation, on_test = ((design @ x.T if by_sample else design) @ vectors for design in others)
    right = vectors.T @ right
    shrunk = [right / (numpy.maximum(values, 0) + strength * len(x))[:, None] for strength in STRENGTHS]
    errors = [abs(of_target.undo(on_validation @ weights) - y_validation).mean(axis=0) for weights in shrunk]
    best = numpy.argmin(errors, axis=0)
    prediction = numpy.column_stack([on_test @ shrunk[b][:, target] for target, b in enumerate(best)])
    return of_target.undo(prediction), STRENGTHS[best]


# ---- The data set


def labels_of(data):
    """Names of the targets as predictions.csv has them."""
    return [name for target in data.targets for name in (data.fields[target].channels or [target])]


def cubes_of(data):
    found = [name for name in data.inputs if len(data.fields[name].shape) == 4]
    if len(found) != 1:
        raise Unusable(f"{data.directory} has {len(found) or 'no'} fields of cubes with channels among its inputs; one is needed")
    return found[0]


class Table:
    """Features and targets of a split. `statistics` is made from the first training sample."""

    def __init__(self, data, split, statistics):
        if not len(split):
            raise Unusable(f"the split '{split.name}' of {data.directory} has no samples")
        cubes = cubes_of(data)
        self.targets = numpy.column_stack([split.all(name).reshape(len(split), -1) for name in data.targets]).astype(float)
        power, both = [], []
        for number in range(len(split)):
            sample = split.read(cubes, number).astype(float)
            statistics = statistics or SummaryStatistics(sample.shape, sample.mean(axis=(1, 2, 3)))
            with numpy.errstate(all="ignore"):
                power.append(statistics.log_power(sample))
                both.append(numpy.concatenate([power[-1], statistics.one_point(sample)]))
            if not numpy.isfinite(both[-1]).all():
                raise Unusable(f"sample {number} of the split '{split.name}' of {data.directory} has negative or non-finite values; the "
                               "baselines need the density itself, untransformed")
        self.statistics, self.power, self.both = statistics, numpy.array(power), numpy.array(both)


def measure(directory):
    data = wflow.open(directory)
    train = Table(data, data.train, None)
    validation, test = (Table(data, split, train.statistics) for split in (data.validation, data.test))
    guess = abs(test.targets - train.targets.mean(axis=0)).mean(axis=0)
    report = {"version": 1, "samples": {split: len(data[split]) for split in ("train", "validation", "test")}, "labels": labels_of(data),
              "mean_guess_mae": guess.tolist(), "baselines": []}
    for name, features, degree in (("ridge, log P(k), degree 1", "power", 1), ("ridge, log P(k), degree 2", "power", 2),
                                   ("ridge, log P(k) + one-point, degree 2", "both", 2)):
        x, x_validation, x_test = (getattr(table, features) for table in (train, validation, test))
        prediction, strength = ridge(x, train.targets, x_validation, validation.targets, x_test, degree)
        mae = abs(prediction - test.targets).mean(axis=0)
        report["baselines"].append({"name": name, "mae": mae.tolist(), "ratio": (mae / guess).tolist(), "ridge_strength": strength.tolist()})
    return report


def read_network(path, report):
    """The row of a network: its predictions.csv of the test split, with the columns NAME and NAME_predicted."""
    def unusable(why):
        return Unusable(f"cannot use the predictions in {path}: {why}")

    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unusable(error) from None
    if len(rows) != report["samples"]["test"]:
        raise unusable(f"it has {len(rows)} samples, the test split {report['samples']['test']}")
    mae = []
    for label in report["labels"]:
        try:
            mae.append(sum(abs(float(row[label]) - float(row[label + "_predicted"])) for row in rows) / len(rows))
        except KeyError:
            raise unusable(f"it has no columns for {label}") from None
        except (TypeError, ValueError):
            raise unusable(f"a cell of {label} is no number") from None
    return {"name": "network", "mae": mae, "ratio": [error / guess for error, guess in zip(mae, report["mean_guess_mae"])], "ridge_strength": []}


def as_table(report):
    width = max(10, *map(len, report["labels"]))

    def line(name, cells):
        return f"{name:<38}" + "".join(f"  {cell:>{width}}" for cell in cells)

    samples = ", ".join(f"{count} {split}" for split, count in report["samples"].items())
    lines = [f"samples: {samples}", "", line("test MAE / MAE of the mean guess", [*report["labels"], "mean"])]
    for row in report["baselines"]:
        lines.append(line(row["name"], [f"{ratio:.3f}" for ratio in [*row["ratio"], sum(row["ratio"]) / len(row["ratio"])]]))
    lines += ["", line("test MAE", report["labels"])]
    for name, mae in [("mean guess", report["mean_guess_mae"]), *((row["name"], row["mae"]) for row in report["baselines"])]:
        lines.append(line(name, [f"{error:.6g}" for error in mae]))
    return "\n".join(lines)


def write_json(path, report):
    text = json.dumps(report, indent=1) + "\n"
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):  # links, pipes and devices are not replaced
        Path(path).write_text(text)
        return
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def main():
    parser = argparse.ArgumentParser(prog="cosmoflow-baseline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIRECTORY", help="the data set, with manifest.json")
    parser.add_argument("--network", metavar="FILE", help="predictions.csv of a network on the same test split, to print beside them")
    parser.add_argument("--json", metavar="FILE", help="file to write the figures to as well")
    options = parser.parse_args()
    try:
        report = measure(options.data)
        if options.network:
            report["baselines"].insert(0, read_network(options.network, report))
    except (Unusable, wflow.Error, OSError) as error:
        print(f"cosmoflow-baseline: {error}", file=sys.stderr)
        return INPUT
    target = options.json
    try:
        if target:
            write_json(target, report)
        target = "standard output"
        print(as_table(report), flush=True)
    except OSError as error:
        print(f"cosmoflow-baseline: cannot write {target}: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries once more when it ends
        return OUTPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
