#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The measurements of staging.yaml: one training on data of three kinds in a slowed folder, and on shards in a folder that is not."""

import argparse
import statistics
import subprocess
from pathlib import Path

import headlines

IDEAL, FILES, SHARDS, STAGED = "shards, folder not slowed", "a file a sample", "shards", "shards, staged"
SLOWED = (FILES, SHARDS, STAGED)


def one_sample_shards(data, folder):
    """The same samples with a shard for each: a file a sample."""
    command = [headlines.program("wflow-convert"), "shards", "reshard", str(data), str(folder), "--shard-samples", "1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder.resolve()


class Measurement:
    def __init__(self, options):
        self.options = options
        self.library = headlines.compile_library("shared_folder.c", "shared_folder.so")
        self.folders = {FILES: one_sample_shards(options.data, Path("one_sample_shards")), SHARDS: Path(options.data).resolve()}
        self.rates, self.whole = {}, {}

    def train(self, way, ranks):
        folder = self.folders[FILES if way == FILES else SHARDS]
        training = headlines.Training(
            "training", ranks=ranks, data=folder, epochs=self.options.epochs, batch=8 * ranks, cache=0,
            stage="memory" if way == STAGED else "none", model={"name": "cosmoflow", "width": 4}, transform={"log": 0.1},
            checkpoint={"every_epochs": 0})
        if way == IDEAL:
            training.run()
        else:
            shared = headlines.SharedFolder(self.library, folder, "state", self.options.latency_us, self.options.bytes_per_second)
            training.run(preload=self.library, environment=shared.environment)
        # The first epoch has the start of reading and of the kernels.
        rate = max(epoch["samples_per_second"] for epoch in training.epochs()[1:])
        self.rates.setdefault((way, ranks), []).append(rate)
        self.whole.setdefault((way, ranks), []).append(training.result()["seconds"]["this_segment"])

    def of_ideal(self, way, ranks):
        return self.rate(way, ranks) / self.rate(IDEAL, ranks)

    def rate(self, way, ranks):
        """That of the fastest epoch of all rounds: other programs on the machine count less then."""
        return max(self.rates[way, ranks])


def percent(value):
    return f"{100 * value:.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--ranks", type=int, nargs="+", required=True)
    for name in ("epochs", "rounds", "latency-us", "bytes-per-second"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    measured = Measurement(options)
    for _ in range(options.rounds):
        for ranks in options.ranks:
            for way in (IDEAL, *SLOWED):
                measured.train(way, ranks)
    report(measured, options)


def report(measured, options):
    ways = (IDEAL, *SLOWED)
    table = {"head": ["samples/s (share of the ideal; seconds of the whole training)", *(f"{ranks} rank{'s' * (ranks > 1)}" for ranks in options.ranks)],
             "rows": [[way, *(f"{measured.rate(way, ranks):.0f} ({percent(measured.of_ideal(way, ranks))}; {statistics.median(measured.whole[way, ranks]):.1f} s)"
                              for ranks in options.ranks)] for way in ways]}
    plot = {"kind": "lines", "title": "Samples a second of an epoch", "x": {"name": "ranks"}, "y": {"name": "samples/s", "low": 0},
            "series": [{"name": way, "x": options.ranks, "y": [measured.rate(way, ranks) for ranks in options.ranks], "marks": True} for way in ways]}
    shares = {way: [measured.of_ideal(way, ranks) for ranks in options.ranks] for way in SLOWED}
    where = f"on {', '.join(map(str, options.ranks))} ranks"
    rows = [
        headlines.row("rate with staged shards, of the ideal", "90.4 % (FanStore: 7,867 of 8,704 samples/s)",
                      f"{', '.join(map(percent, shares[STAGED]))} {where}", "at least 90 %", min(shares[STAGED]) >= 0.9),
        headlines.row("rate with a file a sample, of the ideal", "32 % (Lustre: at most 2,786 of 8,704 samples/s)",
                      f"{', '.join(map(percent, shares[FILES]))} {where}; shards that are not staged {', '.join(map(percent, shares[SHARDS]))}",
                      "at most 35 %", max(shares[FILES]) <= 0.35)]
    headlines.finish("staging", rows, plot, table, latency_us=options.latency_us, bytes_per_second=options.bytes_per_second)


if __name__ == "__main__":
    main()
