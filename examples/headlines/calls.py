#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts of calls.yaml: the calls that one epoch makes, as a difference of runs of one and of three epochs.

With --read, it is the reader whose calls are counted."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import h5py
import headlines
import numpy

SHORT, LONG = 1, 3
WAYS = ("a file a sample", "h5py on the shards", "wflow", "wflow, staged")
CALLS = ("open", "stat", "read", "seek", "close")


def shards_of(data):
    return sorted(Path(data, "train").glob("shard-*.h5"))


def write_files(data, folder):
    """A file for each training sample, as a program writes them that knows no other format. Returns their number."""
    folder.mkdir(exist_ok=True)
    count = 0
    for shard in shards_of(data):
        with h5py.File(shard) as file:
            for sample in file["x"]:
                sample.tofile(folder / f"{count}.raw")
                count += 1
    return count


def read_files(folder, epochs):
    """With the fewest calls that read a file of unknown size."""
    names = sorted(os.listdir(folder))
    for epoch in range(epochs):
        for i in numpy.random.default_rng(epoch).permutation(len(names)):
            descriptor = os.open(f"{folder}/{names[i]}", os.O_RDONLY)
            numpy.frombuffer(os.read(descriptor, os.fstat(descriptor).st_size), "f4")
            os.close(descriptor)


def read_shards(data, epochs):
    """In random order, from files that stay open."""
    files = [h5py.File(shard) for shard in shards_of(data)]
    places = [(file["x"], row) for file in files for row in range(len(file["x"]))]
    for epoch in range(epochs):
        for i in numpy.random.default_rng(epoch).permutation(len(places)):
            values, row = places[i]
            values[row]


READERS = {"files": read_files, "h5py": read_shards}


class Counter:
    def __init__(self, data):
        self.data, self.files = Path(data).resolve(), Path("files").resolve()
        self.library = headlines.compile_library("shared_folder.c", "shared_folder.so")
        self.samples = write_files(data, self.files)

    def of_reader(self, how, folder, epochs):
        shared = headlines.SharedFolder(self.library, folder, "state")
        command = [sys.executable, __file__, "--data", str(folder), "--read", how, "--epochs", str(epochs)]
        subprocess.run(command, check=True, env={**os.environ, **shared.environment, "LD_PRELOAD": str(self.library)})
        return shared.counts()

    def of_training(self, epochs, **keys):
        shared = headlines.SharedFolder(self.library, self.data, "state")
        training = headlines.Training("training", data=self.data, epochs=epochs, batch=8, cache=0, model={"name": "cosmoflow", "width": 2},
                                      checkpoint={"every_epochs": 0}, transform={"log": 0.1}, **keys)
        training.run(preload=self.library, environment=shared.environment)
        return shared.counts()

    def count(self, way, epochs):
        if way == "a file a sample":
            return self.of_reader("files", self.files, epochs)
        if way == "h5py on the shards":
            return self.of_reader("h5py", self.data, epochs)
        return self.of_training(epochs, **({"stage": "memory"} if "staged" in way else {}))

    def of_epoch(self, way):
        """Calls of one more epoch per 1,000 samples, and calls before it: opening, staging, normalisation."""
        one, more = self.count(way, SHORT), self.count(way, LONG)
        epoch = {kind: (more[kind] - one[kind]) / (LONG - SHORT) for kind in one}
        start = sum(one[kind] - epoch[kind] for kind in CALLS)
        return {kind: 1000 * value / self.samples for kind, value in epoch.items()}, start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--read", choices=READERS)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    if options.read:
        READERS[options.read](options.data, options.epochs)
        return
    counter = Counter(options.data)
    found = {way: counter.of_epoch(way) for way in WAYS}
    totals = {way: sum(epoch[kind] for kind in CALLS) for way, (epoch, _) in found.items()}
    table = {"head": ["calls per 1,000 samples of an epoch", *CALLS, "together", "MB read", "once, before the first epoch"],
             "rows": [[way, *(f"{epoch[kind]:.0f}" for kind in CALLS), f"{totals[way]:.0f}", f"{epoch['bytes'] / 1e6:.1f}", f"{start:.0f}"]
                      for way, (epoch, start) in found.items()]}
    plot = {"kind": "bars", "title": "Calls of the file system per 1,000 samples of an epoch", "x": {"name": "calls"}, "y": {"name": ""},
            "categories": list(WAYS), "series": [{"name": kind, "y": [found[way][0][kind] for way in WAYS]} for kind in CALLS]}
    rows = [
        headlines.row("calls of the file system per 1,000 samples, staged", "117 million open, stat and close and 180 million reads load the shared file system",
                      f"{totals['wflow, staged']:.0f} in each epoch, {found['wflow, staged'][1]:.0f} once "
                      f"(a file a sample: {totals['a file a sample']:.0f}, h5py {totals['h5py on the shards']:.0f}, wflow {totals['wflow']:.0f})",
                      "none after staging", totals["wflow, staged"] == 0),
        headlines.row("metadata calls (open, stat, close) per 1,000 samples, shards", "one file a sample",
                      f"{sum(found['wflow'][0][kind] for kind in ('open', 'stat', 'close')):.0f} "
                      f"(a file a sample: {sum(found['a file a sample'][0][kind] for kind in ('open', 'stat', 'close')):.0f})",
                      "fewer than 100", sum(found["wflow"][0][kind] for kind in ("open", "stat", "close")) < 100)]
    headlines.finish("calls", rows, plot, table, training_samples=counter.samples)


if __name__ == "__main__":
    main()
