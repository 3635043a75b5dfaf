#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training with few labels: `model: semi_supervised` against the same network without the reconstruction, on the same labels.

    wflow run examples/cosmoflow/quickstart.yaml --until data          # in a folder of your own
    bench/semi_supervised.py campaigns/cosmoflow_quickstart_* --bin build/release/bin

5 % of the training universes keep their labels (for each seed others); all test universes keep them. Prints the ratio of the test error to that of
the mean guess, for both networks and each seed."""

import argparse
import csv
import glob
import json
import pathlib
import subprocess

import h5py
import numpy

LABELS = ("omega_m", "sigma_8")


def make_data(campaign, folder, share, seed, convert):
    """The campaign's universes with the labels of a share of the training samples."""
    ids = {name: numpy.concatenate([h5py.File(path)["id"][:] for path in sorted(glob.glob(f"{campaign}/data/{name}/*.h5"))])
           for name in ("train", "validation", "test")}
    kept = set(numpy.random.default_rng(seed).permutation(ids["train"])[:round(share * len(ids["train"]))].tolist())
    kept |= set(ids["validation"].tolist()) | set(ids["test"].tolist())
    truth = {}
    for name in ids:
        for path in glob.glob(f"{campaign}/data/{name}/*.h5"):
            with h5py.File(path) as file:
                truth |= dict(zip(file["id"][:].tolist(), file["y"][:].tolist()))
    # simulate/03/14: the paths are in order of the samples.
    boxes = dict(enumerate(sorted(glob.glob(f"{pathlib.Path(campaign).resolve()}/simulate/**/universe.h5", recursive=True))))
    with open(folder / "table.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "file", *LABELS])
        for members in ids.values():
            for sample in members.tolist():
                table.writerow([sample, boxes[sample], *(truth[sample] if sample in kept else len(LABELS) * ["nan"])])
    (folder / "convert.yaml").write_text(
        f"samples: {folder}/table.csv\ndataset: density\ntargets: [{', '.join(LABELS)}]\ncheck_finite: false\n"
        f"split: {{train: {len(ids['train'])}, validation: {len(ids['validation'])}, test: {len(ids['test'])}, seed: 1}}\noutput: {folder}/data\n")
    subprocess.run([convert, folder / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)
    again = numpy.concatenate([h5py.File(path)["id"][:] for path in glob.glob(f"{folder}/data/train/*.h5")])
    assert set(again.tolist()) == set(ids["train"].tolist()), "the split is that of the campaign"
    return len(kept & set(ids["train"].tolist())), len(ids["train"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign")
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("semi_supervised"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--weights", type=float, nargs="+", default=[0, 0.1])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        folder = arguments.folder.resolve() / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        labelled, samples = make_data(arguments.campaign, folder, arguments.share, seed, arguments.bin / "wflow-convert")
        for weight in arguments.weights:
            output = folder / f"weight-{weight}"
            config = {"data": str(folder / "data"), "output": str(output), "seed": seed, "epochs": arguments.epochs, "batch": 16,
                      "threads": arguments.threads, "transform": {"log": 0.1}, "augment": ["shift", "flip", "permute"],
                      "model": {"name": "semi_supervised", "width": 4, "latent": 32, "dense": [64], "auxiliary_weight": weight},
                      "optimizer": {"name": "adamw", "learning_rate": 0.003, "clip_norm": 1}}
            (folder / f"weight-{weight}.yaml").write_text(json.dumps(config))
            subprocess.run([arguments.bin / "wflow-train", folder / f"weight-{weight}.yaml", "--fresh"], check=True, stdout=subprocess.DEVNULL)
            targets = json.loads((output / "result.json").read_text())["test"]["targets"]
            ratios = "  ".join(f"{name} {targets[name]['mae_ratio']:.3f}" for name in LABELS)
            print(f"seed {seed}: {labelled} of {samples} labels, reconstruction times {weight}: {ratios}", flush=True)


if __name__ == "__main__":
    main()
