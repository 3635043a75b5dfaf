#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings with alternating updates (GAN, WAE, cycle surrogate) against the same ones written with torch.nn, killed and continued, and on several
ranks."""

import argparse
import glob
import json
import math
import subprocess
import sys
import unittest

import h5py
import numpy
import torch
from torch import nn
from torch.nn import functional

import train_run_test

SIDE, TRAIN, STEPS, MASK = 12, 20, 100, (1 << 64) - 1
ADAM = {"name": "adam", "learning_rate": 2e-4, "beta1": 0.5, "beta2": 0.999}


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def hash64(seed, counter):
    """As in base/random.h."""
    return mix((mix(seed + 0x9E3779B97F4A7C15 & MASK) + (counter + 1) * 0x9E3779B97F4A7C15) & MASK)


def normal(key, i):
    u, v = (1 - (hash64(key, 2 * i) >> 11) * 2.0 ** -53, (hash64(key, 2 * i + 1) >> 11) * 2.0 ** -53)
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)


def random_inputs(seed, step, samples, size, which=0):
    """The numbers that wflow-train draws for a random input in a step."""
    key = hash64(hash64(hash64(seed, 7), step), which)
    return torch.tensor([[normal(hash64(key, n), i) for i in range(size)] for n in range(samples)], dtype=torch.float32)


class Alternating(train_run_test.TrainRun):
    @classmethod
    def setUpClass(cls):
        cls.directory = train_run_test.tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = train_run_test.pathlib.Path(cls.directory.name)
        rng = numpy.random.default_rng(1)
        rows = ["id,file,a,b,u,v,w"]
        y, x = numpy.mgrid[0:SIDE, 0:SIDE] / SIDE
        for i in range(TRAIN + 8):
            a, b = rng.uniform(-1, 1, 2)
            numpy.savez(cls.root / f"{i}.npz", x=(numpy.cos(3 * a * x + 2 * b * y) + 0.1 * rng.normal(size=x.shape)).astype(numpy.float32))
            rows.append(f"{i},{cls.root}/{i}.npz,{a},{b},{a * b},{a + b},{numpy.sin(a)}")
        (cls.root / "table.csv").write_text("\n".join(rows) + "\n")
        (cls.root / "convert.yaml").write_text(
            f"samples: {cls.root}/table.csv\ninputs: {{x: {{dataset: x, layout: HW}}}}\ntargets: [a, b, u, v, w]\n"
            f"split: {{train: {TRAIN}, validation: 4, test: 4}}\noutput: {cls.root}/shards\nname: pictures\n")
        subprocess.run([train_run_test.PROGRAMS.convert, cls.root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)

    def run_of(self, name, ranks=1, *options, **keys):
        """Steps of all training samples, so that their order does not matter."""
        settings = {"transform": None, "augment": None, "schedule": "none", "epochs": STEPS, "batch": TRAIN, "optimizer": ADAM,
                    "checkpoint": {"every_epochs": STEPS}}
        return self.train(self.config(name, **{**settings, **keys}), ranks, *options)

    def parameters(self, name):
        data, header = self.weights(name)
        return {a["name"]: torch.from_numpy(numpy.frombuffer(data, "<f4", int(numpy.prod(a["shape"])), a["offset"]).reshape(a["shape"]).copy())
                for a in header["arrays"] if a["kind"] == "parameter"}

    def begin(self, name, **keys):
        """The weights before the first step, in the order of the layers."""
        self.run_of(name, **{**keys, "epochs": 1, "optimizer": {**ADAM, "learning_rate": 0}})
        return self.parameters(name)

    def truth(self, name):
        """The training samples, normalised, in the order of the shards: pictures, and the labels by name."""
        pictures, labels = [], []
        for shard in sorted(glob.glob(str(self.root / "shards/train/*.h5"))):
            with h5py.File(shard) as file:
                pictures.append(file["x"][:])
                labels.append(file["y"][:])
        _, header = self.weights(name)
        scale = header["normalisation"]
        x = torch.from_numpy(numpy.concatenate(pictures)).float().reshape(-1, 1, SIDE, SIDE)
        return (x - scale["x_mean"][0]) / scale["x_std"][0], dict(zip("abuvw", numpy.concatenate(labels).T))

    def check(self, name, expected):
        """`expected`: parameters in the order of the layers. Weights and biases of a layer are compared together."""
        layers = {}
        for (key, found), wanted in zip(self.parameters(name).items(), expected, strict=True):
            both = layers.setdefault(key.rsplit(".", 1)[0], ([], []))
            both[0].append(found.flatten().double())
            both[1].append(wanted.detach().flatten().double())
        for layer, both in layers.items():
            found, wanted = (torch.cat(arrays) for arrays in both)
            self.assertLess(float((found - wanted).norm() / wanted.norm()), 1e-4, f"{name} {layer}")

    LAYERS = [{"dense": 8 * 9, "from": "z", "part": "generator"}, {"reshape": [8, 3, 3]}, "batch_norm", "relu",
              {"transposed_convolution": 4, "kernel": 4, "stride": 2, "padding": "same", "bias": False}, "batch_norm", "relu",
              {"transposed_convolution": 1, "kernel": 5, "stride": 2, "padding": "same", "name": "made"},
              {"convolution": 4, "kernel": 4, "stride": 2, "from": "x", "part": "discriminator"}, {"leaky_relu": 0.2},
              {"convolution": 8, "kernel": 4, "stride": 2, "bias": False}, "batch_norm", {"leaky_relu": 0.2}, "flatten",
              {"dense": 1, "name": "score"}, {"apply": "discriminator", "from": "made", "name": "score_made"}]
    GAN = {"inputs": ["x"], "random_inputs": {"z": 5}, "model": {"layers": LAYERS},
           "heads": [{"name": "real", "output": "score", "constant": 1, "loss": "bce"},
                     {"name": "found", "output": "score_made", "constant": 0, "loss": "bce"},
                     {"name": "fooled", "output": "score_made", "constant": 1, "loss": "bce"},
                     {"name": "picture", "output": "made", "like": "x"}],
           "alternate": [{"heads": ["real", "found"], "learn": "discriminator"}, {"heads": "fooled", "learn": "generator"}]}

    def test_a_gan_is_that_of_torch(self):
        generator = nn.Sequential(
            nn.Linear(5, 72), nn.Unflatten(1, (8, 3, 3)), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 1, 5, 2, 2, 1))
        discriminator = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8),
                                      nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(72, 1))
        parameters = [*generator.parameters(), *discriminator.parameters()]
        begun = self.begin("gan-begin", **self.GAN)
        with torch.no_grad():
            for parameter, values in zip(parameters, begun.values(), strict=True):
                parameter.copy_(values.reshape(parameter.shape))
        x, _ = self.truth("gan-begin")
        optimizers = [torch.optim.Adam(net.parameters(), 2e-4, (0.5, 0.999)) for net in (discriminator, generator)]

        def loss(scores, constant):
            return functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, constant))

        for step in range(STEPS):
            z = random_inputs(1, step, TRAIN, 5)
            optimizers[0].zero_grad()
            (loss(discriminator(x), 1) + loss(discriminator(generator(z).detach()), 0)).backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            loss(discriminator(generator(z)), 1).backward()
            optimizers[1].step()
        self.run_of("gan", **self.GAN)
        self.check("gan", parameters)
        self.assertGreater(float((begun["dense1.weight"] - parameters[0]).abs().max()), 1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--train", "--convert", "--mpirun"):
        parser.add_argument(option, required=True)
    train_run_test.PROGRAMS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
