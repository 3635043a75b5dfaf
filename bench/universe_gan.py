#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A generator of universes: `model: gan` on slices of 64 x 64 cells, and the power spectra of real and made slices.

    wflow run examples/cosmoflow/slices.yaml                # in a folder of your own
    bench/universe_gan.py campaigns/slices_* --bin build/release/bin --seeds 1 2 3

CosmoGAN (Mustafa et al. 2019) does this for maps of weak lensing. The made slices have other phases than any real one; what must agree is their
statistics. Prints the ratio of the mean power spectra in bands of the wave number, for the density contrast and for the logarithm that the network
sees, and how many are within 10 %. The ratio of the training slices to the test slices says how far two sets of real ones differ."""

import argparse
import glob
import json
import pathlib
import subprocess

import h5py
import numpy

CELLS, THICKNESS, OFFSET = 64, 4, 0.1
WITHIN = 0.1  # what is wanted of the ratios
VALUES = {"contrast": lambda x: x - 1, "logarithm": lambda x: numpy.log(numpy.maximum(x, -OFFSET + 1e-6) + OFFSET)}


def slices(density):
    """Means over four cells along each axis of a box: 48 slices of 64 x 64 cells."""
    for axis in range(3):
        thick = numpy.moveaxis(density, axis, 0).reshape(CELLS // THICKNESS, THICKNESS, CELLS, CELLS).mean(1)
        yield from thick.astype(numpy.float32)


def make_data(campaign, folder, convert):
    rows = ["id,file,t"]
    for box in sorted(glob.glob(f"{campaign}/**/universe.h5", recursive=True)):
        with h5py.File(box) as file:
            density = numpy.asarray(file["density"])[-1]
        for one in slices(density):
            path = folder / f"slices/{len(rows) - 1}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            numpy.save(path, one)
            rows.append(f"{len(rows) - 1},{path},{one.mean()}")
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    test = (len(rows) - 1) // 6
    (folder / "convert.yaml").write_text(f"samples: {folder}/table.csv\ninputs: {{x: {{layout: HW}}}}\ntargets: [t]\n"
                                         f"split: {{train: {len(rows) - 1 - test - 8}, validation: 8, test: {test}}}\noutput: {folder}/data\n")
    subprocess.run([convert, folder / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)
    return test


def power(fields, bands):
    """The mean power spectrum in bands of |k|, in units of the lowest wave number."""
    spectra = numpy.abs(numpy.fft.fft2(fields)) ** 2
    k = numpy.hypot(*numpy.meshgrid(*2 * [numpy.fft.fftfreq(CELLS, 1 / CELLS)]))
    return numpy.array([spectra[:, (k >= low) & (k < high)].mean() for low, high in zip(bands, bands[1:])])


def print_ratio(title, name, ratio):
    near = numpy.count_nonzero(numpy.abs(ratio - 1) <= WITHIN)
    print(f"{title:<15} {name:<10} {'  '.join(f'{r:.2f}' for r in ratio)}  within {WITHIN:.0%}: {near} of {len(ratio)}", flush=True)


def made_slices(arguments, folder, seed, count):
    """Slices of a network that is trained first."""
    output, made_file = folder / f"seed-{seed}", folder / f"made-{seed}.h5"
    config = {"data": str(folder / "data"), "output": str(output), "seed": seed, "epochs": arguments.epochs, "batch": 32, "inputs": ["x"],
              "threads": arguments.threads, "transform": {"log": OFFSET}, "augment": ["shift", "flip", "permute"],
              "model": {"name": "gan", "width": arguments.width, "depth": 4, "padding": arguments.padding}, "schedule": "linear", "ema": arguments.ema}
    (folder / f"seed-{seed}.yaml").write_text(json.dumps(config))
    subprocess.run([arguments.bin / "wflow-train", folder / f"seed-{seed}.yaml", "--fresh"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([arguments.bin / "wflow-train", "predict", output, str(count), "-o", made_file, "--batch", "64"], check=True)
    with h5py.File(made_file) as file:
        return file["prediction"][:].reshape(-1, CELLS, CELLS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign")
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("universe_gan"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--ema", type=float, default=0.995)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--padding", choices=["same", "periodic"], default="same")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not (folder / "data/manifest.json").exists():
        make_data(arguments.campaign, folder, arguments.bin / "wflow-convert")

    def slices_of(split):
        return numpy.concatenate([h5py.File(path)["x"][:].reshape(-1, CELLS, CELLS) for path in sorted(folder.glob(f"data/{split}/*.h5"))])

    real, training = slices_of("test"), slices_of("train")
    bands = numpy.array([1, 2, 3, 4, 6, 8, 11, 16, 22, 32])
    print(f"{len(real)} test slices; bands of k from {', '.join(f'{k}-{m}' for k, m in zip(bands, bands[1:]))}")
    for name, of in VALUES.items():
        print_ratio("training slices", name, power(of(training), bands) / power(of(real), bands))
    for seed in arguments.seeds:
        made = made_slices(arguments, folder, seed, len(real))
        for name, of in VALUES.items():
            print_ratio(f"seed {seed}", name, power(of(made), bands) / power(of(real), bands))


if __name__ == "__main__":
    main()
