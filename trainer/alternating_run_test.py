#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings with alternating updates (GAN, WAE, cycle surrogate) against the same ones written with torch.nn, killed and continued, and on several
ranks."""

import glob
import json
import math
import struct
import subprocess

import h5py
import numpy
import torch
import yaml
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
    """The function of base/random.h."""
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
        if scale["x_mean"]:
            x = (x - scale["x_mean"][0]) / scale["x_std"][0]
        return x, dict(zip("abuvw", numpy.concatenate(labels).T))

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

    def load(self, begun, *nets):
        """Sets the weights before the first step; returns all parameters in the order of the layers."""
        parameters = [p for net in nets for p in net.parameters()]
        with torch.no_grad():
            for parameter, values in zip(parameters, begun.values(), strict=True):
                parameter.copy_(values.reshape(parameter.shape))
        return parameters

    def check_gan(self, name, border, generator):
        """100 steps of the GAN of this name, with the generator of torch.nn and a discriminator with such a border."""
        keys = {"model": {"name": "gan", "width": 4, "depth": 2, "latent": 5, **({"padding": "periodic"} if border == "circular" else {})}}
        discriminator = discriminator_of(4, border)
        begun = self.begin(f"{name}-begin", **keys)
        parameters = self.load(begun, generator, discriminator)
        x, _ = self.truth(f"{name}-begin")
        optimizers = [torch.optim.Adam(net.parameters(), 2e-4, (0.5, 0.999)) for net in (discriminator, generator)]
        for step in range(STEPS):
            z = random_inputs(1, step, TRAIN, 5)
            descend(optimizers[0], score(discriminator(x), 1) + score(discriminator(generator(z).detach()), 0))
            descend(optimizers[1], score(discriminator(generator(z)), 1))
        self.run_of(name, **keys)
        self.check(name, parameters)
        moved = [float((p - b.reshape(p.shape)).abs().max()) for p, b in zip(parameters, begun.values())]
        self.assertGreater(min(moved), 1e-4)

    def test_a_gan_is_that_of_torch(self):
        self.check_gan("gan", "zeros", generator_of(5, 4))

    def test_a_periodic_gan_is_that_of_torch(self):
        self.check_gan("periodic-gan", "circular", periodic_generator_of(5, 4))

    def test_a_wasserstein_autoencoder_is_that_of_torch(self):
        keys = {"model": {"name": "wae", "width": 4, "depth": 2, "latent": 3, "dense": [16]}, "loss": {"kl_weight": 0.1}}
        encoder = nn.Sequential(
            nn.Conv2d(1, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Conv2d(4, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8),
            nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(72, 16), nn.LeakyReLU(0.2), nn.Linear(16, 3))
        decoder = generator_of(3, 4)
        discriminator = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        parameters = self.load(self.begin("wae-begin", **keys), encoder, decoder, discriminator)
        x, _ = self.truth("wae-begin")
        first = torch.optim.Adam(discriminator.parameters(), 2e-4, (0.5, 0.999))
        second = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 2e-4, (0.5, 0.999))
        for step in range(STEPS):
            z = random_inputs(1, step, TRAIN, 3)
            descend(first, score(discriminator(z), 1) + score(discriminator(encoder(x).detach()), 0))
            code = encoder(x)
            descend(second, functional.mse_loss(decoder(code), x) + 0.1 * score(discriminator(code), 1))
        self.run_of("wae", **keys)
        self.check("wae", parameters)

    def test_a_cycle_surrogate_is_that_of_torch(self):
        keys = {"model": {"name": "cycle", "latent": 3, "dense": [16], "auxiliary_weight": 0.1}, "inputs": ["a", "b"], "targets": ["u", "v", "w"]}
        elu = nn.ELU()
        encoder = nn.Sequential(nn.Linear(3, 16), elu, nn.Linear(16, 3))
        decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))
        forward = nn.Sequential(nn.Linear(2, 32), elu, nn.Linear(32, 256), elu, nn.Linear(256, 1024), elu, nn.Linear(1024, 3))
        inverse = nn.Sequential(nn.Linear(3, 16), elu, nn.Linear(16, 128), elu, nn.Linear(128, 64), elu, nn.Linear(64, 2))
        nets = (encoder, decoder, forward, inverse)
        parameters = self.load(self.begin("cycle-begin", **keys), *nets)
        _, labels = self.truth("cycle-begin")
        truth = {key: torch.from_numpy((values - values.mean()) / values.std()).float()[:, None] for key, values in labels.items()}
        p, y = torch.cat([truth["a"], truth["b"]], 1), torch.cat([truth["u"], truth["v"], truth["w"]], 1)
        optimizers = [torch.optim.Adam([q for net in part for q in net.parameters()], 2e-4, (0.5, 0.999))
                      for part in ((encoder, decoder), (forward,), (inverse,))]
        mse = functional.mse_loss
        for _ in range(STEPS):
            descend(optimizers[0], mse(decoder(encoder(y)), y))
            code = forward(p)
            descend(optimizers[1], mse(code, encoder(y).detach()) + 0.1 * (mse(decoder(code), y) + mse(inverse(code), p)))
            found = inverse(encoder(y).detach())
            descend(optimizers[2], mse(found, p) + 0.1 * mse(decoder(forward(found)), y))
        self.run_of("cycle", **keys)
        self.check("cycle", parameters)
        self.assertEqual(self.result("cycle")["model"]["name"], "cycle")


    GAN = {"inputs": ["x"], "random_inputs": {"z": 5},
           "model": {"layers": [
               {"dense": 72, "from": "z", "part": "generator"}, {"reshape": [8, 3, 3]}, "batch_norm", "relu",
               {"transposed_convolution": 4, "kernel": 4, "stride": 2, "padding": "same"}, "batch_norm", "relu",
               {"transposed_convolution": 1, "kernel": 4, "stride": 2, "padding": "same", "name": "made"},
               {"convolution": 4, "kernel": 4, "stride": 2, "from": "x", "part": "discriminator"}, "leaky_relu", {"dropout": 0.2},
               {"convolution": 8, "kernel": 4, "stride": 2}, "batch_norm", "leaky_relu", "flatten", {"dense": 1, "name": "score"},
               {"apply": "discriminator", "from": "made", "name": "score_made"}]},
           "heads": [{"name": "real", "output": "score", "constant": 1, "loss": "wasserstein"},
                     {"name": "found", "output": "score_made", "constant": 0, "loss": "wasserstein"},
                     {"name": "fooled", "output": "score_made", "constant": 1, "loss": "bce"},
                     {"name": "picture", "output": "made", "like": "x"}],
           "alternate": [{"heads": ["real", "found"], "learn": "discriminator"}, {"heads": "fooled", "learn": "generator", "every": 2}],
           "parts": {"generator": {"optimizer": {"name": "sgd", "learning_rate": 0.01}, "export": True}}}

    def gradients(self, name, **keys):
        """The gradients of one step, and the weights before it."""
        begun = self.begin(f"{name}-begin", **keys)
        self.run_of(name, **{**keys, "epochs": 1, "optimizer": {"name": "sgd", "learning_rate": 1, "momentum": 0}})
        return {key: begun[key] - values for key, values in self.parameters(name).items()}, begun

    def test_a_penalty_on_gradients_is_that_of_torch(self):
        layers = [{"convolution": 4, "kernel": 4, "stride": 2, "from": "x", "part": "discriminator"}, "silu",
                  {"convolution": 8, "kernel": 4, "stride": 2}, "silu", "flatten", {"dense": 1, "name": "score"}]
        keys = {"inputs": ["x"], "model": {"layers": layers}, "heads": [{"name": "real", "output": "score", "constant": 1, "loss": "bce", "weight": 0.1}],
                "alternate": [{"heads": "real", "gradient_penalty": {"of": "score", "from": "x", "weight": 3}}]}
        net = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.SiLU(), nn.Conv2d(4, 8, 4, 2, 1), nn.SiLU(), nn.Flatten(), nn.Linear(72, 1))
        found, begun = self.gradients("penalty", **keys)
        parameters = self.load(begun, net)
        x = self.truth("penalty")[0].requires_grad_(True)
        scores = net(x)
        slopes, = torch.autograd.grad(scores.sum(), x, create_graph=True)
        penalty = 3 * slopes.square().sum((1, 2, 3)).mean()
        (0.1 * score(scores, 1) + penalty).backward()
        for (key, gradient), parameter in zip(found.items(), parameters, strict=True):
            wanted = parameter.grad.reshape(gradient.shape)
            self.assertLess(float((gradient - wanted).norm() / wanted.norm()), 1e-3, key)
        row = json.loads((self.root / "penalty/metrics.jsonl").read_text().splitlines()[-1])
        self.assertAlmostEqual(row["train_loss"], float(0.1 * score(scores, 1) + penalty), places=4)

    def test_a_penalty_between_real_and_made_samples(self):
        """The slope of a linear score is the same everywhere: the mixture of samples does not matter."""
        layers = [{"dense": SIDE * SIDE, "from": "z", "part": "generator"}, {"reshape": [1, SIDE, SIDE], "name": "made"},
                  {"flatten": "x", "part": "critic"}, {"dense": 1, "name": "score"}, {"mix": ["x", "made"], "part": "losses", "name": "between"},
                  {"apply": "critic", "from": "made", "name": "score_made"}, {"apply": "critic", "from": "between", "name": "score_between"}]
        heads = [{"name": name, "output": output, "constant": constant, "loss": "wasserstein"}
                 for name, output, constant in (("real", "score", 1), ("found", "score_made", 0), ("mixed", "score_between", 0))]
        keys = {"inputs": ["x"], "random_inputs": {"z": 4}, "model": {"layers": layers}, "heads": heads}
        plain = {"heads": ["real", "found"], "learn": "critic"}
        without, begun = self.gradients("critic", **keys, alternate=[plain])
        penalty = {"of": "score_between", "from": "between", "norm": 1}
        found, _ = self.gradients("penalised", **keys, alternate=[{**plain, "gradient_penalty": penalty}])
        weight = begun["score.weight"]
        wanted = 2 * 10 * (weight.norm() - 1) * weight / weight.norm()
        self.assertLess(float((found["score.weight"] - without["score.weight"] - wanted).norm() / wanted.norm()), 1e-3)
        for wrong, said in (({**penalty, "of": "scores"}, "has neither an input nor a layer of this name; did you mean 'score'?"),
                            ({**penalty, "from": "z", "of": "score"}, "it does not depend on its 'from'"),
                            ({"of": "made_up"}, "'from'")):
            done = self.train(self.config("wrong-penalty", transform=None, augment=None, **keys, alternate=[{**plain, "gradient_penalty": wrong}]), code=3)
            self.assertIn(said, done.stderr)
        layers.insert(4, "batch_norm")
        layers[3]["name"], layers[4] = "before", {"batch_norm": "before", "name": "score"}
        done = self.train(self.config("mixed-samples", transform=None, augment=None, **keys, alternate=[{**plain, "gradient_penalty": penalty}]), code=3)
        self.assertIn("and the batch norm 'score_between' mixes the samples: use group_norm, layer_norm or none", done.stderr)

    def test_sigkill_and_ranks(self):
        keys = {**self.GAN, "epochs": 8, "batch": 7, "ema": 0.9, "checkpoint": {"every_steps": 1, "keep_last": 2}, "accumulate": 2}
        self.run_of("whole", **keys)
        path = self.config("killed", transform=None, augment=None, schedule="none", optimizer=ADAM, **{k: v for k, v in keys.items()})
        self.kill_after_step(path, 9)
        self.train(path)
        self.assertEqual(self.weights("killed")[0], self.weights("whole")[0])
        self.assertEqual(self.weights("whole")[1]["optimizer_steps"], [0, 12, 24])
        for ranks in (2, 4):
            self.run_of(f"ranks-{ranks}", ranks, **{**keys, "model": {"layers": [layer for layer in keys["model"]["layers"] if layer != "batch_norm"]}})
        two, four = self.arrays("ranks-2")["parameter"], self.arrays("ranks-4")["parameter"]
        self.assertLess(numpy.abs(two - four).max(), 1e-4 * numpy.abs(two).max())

    def test_each_update_moves_its_parts_only(self):
        keys = {**self.GAN, "parts": None, "epochs": 1, "batch": TRAIN}
        begun = self.begin("still-begin", **keys)
        generator = {key for key in begun if not key.startswith(("convolution", "batch_norm3", "score"))}
        # The two losses of scores move the last bias in opposite directions.
        for part, expected in (("generator", generator), ("discriminator", set(begun) - generator - {"score.bias"})):
            only = [entry for entry in keys["alternate"] if entry["learn"] == part]
            self.run_of(f"only-{part}", **{**keys, "alternate": only})
            found = self.parameters(f"only-{part}")
            self.assertEqual({key for key in found if not torch.equal(found[key], begun[key])}, expected)

    def test_dry_run_names_the_updates(self):
        done = self.train(self.config("dry", transform=None, augment=None, **self.GAN), 1, "--dry-run")
        self.assertIn("part            discriminator: 677 parameters\n", done.stdout)
        self.assertIn("update 1        discriminator moved by real, found\nupdate 2        generator moved by fooled, every 2 steps\n", done.stdout)

    def test_what_is_exported(self):
        self.run_of("exported", **{**self.GAN, "epochs": 2})
        model = torch.jit.load(str(self.root / "exported/model.pt"))
        self.assertEqual((model.inputs, model.random_inputs, model.targets), (["z"], ["z"], ["x"]))
        made = model(torch.zeros(3, 5)).detach()
        self.assertEqual(made.shape, (3, 1, 1, SIDE, SIDE))
        self.assertTrue(torch.equal(torch.jit.load(str(self.root / "exported/model-generator.pt"))(torch.zeros(3, 5)), made))
        import onnx_run
        z = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
        onnx = onnx_run.Model(str(self.root / "exported/model.onnx"))(z.reshape(4, 5, 1, 1, 1))
        self.assertLess(float((onnx - model(z)).abs().max()), 1e-5 * float(model(z).abs().max()))
        files = [self.root / f"made-{k}.h5" for k in range(3)]
        for file, seed in zip(files, (1, 1, 2)):
            self.predict(self.root / "exported", 6, "-o", file, "--seed", seed, "--batch", 4 if seed == 1 else 6)
        one, again, other = (h5py.File(file)["prediction"][:] for file in files)
        self.assertEqual(one.shape, (6, SIDE, SIDE))
        self.assertTrue(numpy.array_equal(one, again))
        self.assertFalse(numpy.array_equal(one, other))
        self.assertGreater(one.std(axis=0).max(), 0)
        done = self.predict(self.root / "exported", self.root / "shards", "-o", self.root / "never.h5", code=2)
        self.assertIn("reads random numbers only: give a number of samples in place of", done.stderr)
        png = (self.root / "exported/samples/picture-0002.png").read_bytes()
        self.assertEqual((png[1:4], struct.unpack(">II", png[16:24])), (b"PNG", (2 * SIDE + 1, 2 * SIDE + 1)))  # of four validation samples
        pictures = json.loads((self.root / "exported/pictures.json").read_text())["samples"][0]["pictures"]
        self.assertEqual([picture["role"] for picture in pictures], ["input", "prediction"])
        row = json.loads((self.root / "exported/metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(set(row["validation_heads"]), {"real", "found", "fooled"})

    def test_the_ring_of_gaussians_is_covered(self):
        """Eight normal distributions on a circle, a classic of generators that forget some of them."""
        rng = numpy.random.default_rng(1)
        rows = ["id,a,b,t"]
        for i in range(1040):
            a, b = math.cos(i * math.pi / 4), math.sin(i * math.pi / 4)
            rows.append(f"{i},{a + 0.02 * rng.normal()},{b + 0.02 * rng.normal()},{i % 8}")
        (self.root / "ring.csv").write_text("\n".join(rows) + "\n")
        (self.root / "ring.yaml").write_text(
            f"samples: {self.root}/ring.csv\ninputs: {{p: {{parameters: [a, b]}}}}\ntargets: [t]\nsplit: {{train: 1024, validation: 8, test: 8}}\n"
            f"output: {self.root}/ring\n")
        subprocess.run([train_run_test.PROGRAMS.convert, self.root / "ring.yaml"], check=True, stdout=subprocess.DEVNULL)
        path = self.config("ring-gan", data=str(self.root / "ring"), inputs=["p"], transform=None, augment=None, epochs=300, batch=256, model={"name": "gan", "latent": 8, "dense": [64, 64]},
                           optimizer={"name": "adam", "learning_rate": 1e-3, "beta1": 0.5}, schedule="none", checkpoint={"every_epochs": 300})
        self.train(path)
        self.predict(self.root / "ring-gan", 800, "-o", self.root / "ring.h5")
        with h5py.File(self.root / "ring.h5") as file:
            x, y = file["prediction"][:].T
        angle, radius = numpy.arctan2(y, x) * 4 / math.pi, numpy.hypot(x, y)
        near = numpy.hypot(radius - 1, 0.785 * (angle - numpy.round(angle))) < 0.2
        counts = numpy.bincount(numpy.round(angle[near]).astype(int) % 8, minlength=8)
        self.assertGreater(counts.min(), 20, counts)
        self.assertGreater(near.mean(), 0.6)

    def test_a_field_depends_on_numbers(self):
        layers = [{"convolution": 4, "from": "x", "name": "seen"}, {"dense": 8, "from": "a", "name": "settings"}, {"film": ["seen", "settings"]}, "relu",
                  {"spread": ["settings", "relu1"], "name": "wide"}, {"concatenate": ["relu1", "wide"]}, {"convolution": 1, "name": "all"},
                  {"flatten": "all"}, {"dense": 2, "name": "up"}, {"stop": "settings"}, {"slice": [0, 2]}, {"flatten": "slice1", "name": "cut"},
                  {"subtract": ["up", "cut"]}]
        self.run_of("conditioned", inputs=["x", "a"], targets=["u", "v"], model={"layers": layers}, epochs=10, optimizer="adam")
        import onnx_run
        model = torch.jit.load(str(self.root / "conditioned/model.pt"))
        x, a = torch.randn(3, 1, 1, SIDE, SIDE), torch.randn(3, 1)
        expected = model(x, a)
        onnx = onnx_run.Model(str(self.root / "conditioned/model.onnx"))(x, a)
        self.assertLess(float((onnx - expected).abs().max()), 1e-5 * float(expected.abs().max()))
        self.assertGreater(float((model(x, a + 1) - expected).abs().max()), 0)
        self.predict(self.root / "conditioned", self.root / "shards", "--split", "test", "-o", self.root / "conditioned.h5")
        with h5py.File(self.root / "conditioned.h5") as one, h5py.File(self.root / "conditioned/predictions.h5") as two:
            for sample, prediction in zip(one["id"][:], one["prediction"][:]):
                wanted = two["prediction"][:][list(two["id"][:]).index(sample)]
                self.assertLess(numpy.abs(prediction - wanted).max(), 1e-5)

    def test_names_stand_for_lists(self):
        """train.yaml has the lists; they are the same training."""
        self.train(self.config("named", model={"name": "gan", "width": 4, "depth": 2}, epochs=2, batch=7, optimizer=None, transform=None, augment=None))
        lists = yaml.safe_load((self.root / "named/train.yaml").read_text())
        self.assertEqual(lists["optimizer"] | {"name": "adam", "learning_rate": 2e-4, "beta1": 0.5}, lists["optimizer"])
        self.train(self.config("listed", **{**lists, "output": str(self.root / "listed")}))
        self.assertEqual(self.weights("listed")[0], self.weights("named")[0])

    def test_what_does_not_fit(self):
        for change, said in (
                ({"alternate": [{"heads": "reel", "learn": "generator"}]}, "'alternate' names 'reel', which is no head; did you mean 'real'?"),
                ({"alternate": [{"heads": "real", "learn": "critic"}]}, "'alternate' names 'critic', which is no part of the network"),
                ({"heads": [{"name": "real", "output": "score", "loss": "bce"}]}, "the head 'real' needs one of 'targets', 'constant' and 'like'"),
                ({"heads": [{"name": "real", "output": "score", "constant": 1, "loss": "dice"}]}, "a 'constant' is compared by mse"),
                ({"heads": [{"name": "real", "output": "score", "targets": "a", "loss": "bce"}]}, "compares a score with a 'constant'"),
                ({"optimizer": {"name": "sgd", "lag": 1}}, "'lag: 1' applies gradients a step later"),
                ({"model": {"layers": [{"apply": "judge", "from": "x"}, {"dense": 1, "name": "score"}]}}, "no layer before it has 'part: judge'"),
                ({"model": "gan"}, "the network gan has heads, updates and random inputs of its own"),
                ({"random_inputs": {"z": 0}}, "z")):
            done = self.train(self.config("wrong", **{**self.GAN, "parts": None, **change}), code=3)
            self.assertIn(said, done.stderr)


def generator_of(latent, width):
    return nn.Sequential(
        nn.Linear(latent, 18 * width), nn.Unflatten(1, (2 * width, 3, 3)), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 5, 2, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, 1, 5, 2, 2, 1))


def periodic_generator_of(latent, width):
    border = {"padding": 1, "padding_mode": "circular"}
    return nn.Sequential(
        nn.Linear(latent, 18 * width), nn.Unflatten(1, (2 * width, 3, 3)), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.Conv2d(2 * width, 4 * width, 3, bias=False, **border), nn.PixelShuffle(2), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 4, 3, **border), nn.PixelShuffle(2))


def discriminator_of(width, border="zeros"):
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1, padding_mode=border), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False, padding_mode=border),
        nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(18 * width, 1))


def score(scores, constant):
    return functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, constant))


def descend(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    train_run_test.run_tests()
