#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks of wflow-train against the same ones written with torch.nn: with the same weights, equal outputs, and equal gradients of the loss on a batch."""

import glob
import json
import subprocess

import h5py
import numpy
import torch
from torch import nn
from torch.nn import functional

import train_run_test

HEIGHT, WIDTH, CLASSES, TRAIN = 12, 16, 3, 20
RATE = 10  # of one step of plain descent: (before - after) / RATE is the gradient, to the last bits of float32


def convolution(channels_in, channels_out, size=3, stride=1, dilation=1, groups=1, bias=False):
    """wflow's `padding: same` for an even number of cells: a stride of 2 adds a row and a column behind the field."""
    pad = (0, 1, 0, 1) if (size, stride) == (3, 2) else 4 * (dilation * (size // 2),)
    return nn.Sequential(nn.ZeroPad2d(pad), nn.Conv2d(channels_in, channels_out, size, stride, 0, dilation, groups, bias))


def block(channels_in, channels_out, size=3, **more):
    return nn.Sequential(convolution(channels_in, channels_out, size, **more), nn.BatchNorm2d(channels_out), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, channels_in, channels_out, stride=1, dilation=1, pre_activation=False):
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(channels_in), nn.ReLU()) if pre_activation else nn.Identity()
        self.first = block(channels_in, channels_out, stride=stride, dilation=dilation)
        self.second = convolution(channels_out, channels_out, dilation=dilation)
        self.second_norm = nn.Identity() if pre_activation else nn.BatchNorm2d(channels_out)
        self.projection = None
        if stride > 1 or channels_in != channels_out:
            self.projection = convolution(channels_in, channels_out, 1, stride)
            self.projection_norm = nn.Identity() if pre_activation else nn.BatchNorm2d(channels_out)
        self.after = nn.Identity() if pre_activation else nn.ReLU()

    def forward(self, x):
        active = self.before(x)
        shortcut = x if self.projection is None else self.projection_norm(self.projection(active))
        return self.after(self.second_norm(self.second(self.first(active))) + shortcut)


class ResNet(nn.Module):
    def __init__(self, pre_activation):
        super().__init__()
        self.stem = convolution(2, 4) if pre_activation else block(2, 4)
        self.blocks = nn.Sequential(*(Residual(a, b, s, 1, pre_activation) for a, b, s in ((4, 4, 1), (4, 4, 1), (4, 8, 2), (8, 8, 1))))
        self.end = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()) if pre_activation else nn.Identity()
        self.out = nn.Linear(8, 1)

    def forward(self, x, kind):
        return self.out(self.end(self.blocks(self.stem(x))).mean((2, 3)))


class DeepLab(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(block(2, 4), Residual(4, 4))
        self.coarse = nn.Sequential(Residual(4, 8, 2), Residual(8, 16, 1, 2))
        self.parallel = nn.ModuleList([block(16, 8, 1), block(16, 8, dilation=2), block(16, 8, dilation=3)])
        self.context = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1, bias=False), nn.ReLU())
        self.project = block(32, 8, 1)
        self.skip = block(4, 4, 1)
        self.decode = nn.Sequential(block(12, 8), block(8, 8), nn.Conv2d(8, 1, 1))

    def forward(self, x, kind):
        fine = self.fine(x)
        coarse = self.coarse(fine)
        branches = [branch(coarse) for branch in self.parallel] + [self.context(coarse).expand(-1, -1, *coarse.shape[2:])]
        risen = functional.interpolate(self.project(torch.cat(branches, 1)), x.shape[2:], mode="bilinear", align_corners=False)
        return self.decode(torch.cat([risen, self.skip(fine)], 1))


class Tiramisu(nn.Module):
    def __init__(self):
        super().__init__()

        def layer(channels_in, channels_out=3, size=3):
            return nn.Sequential(nn.BatchNorm2d(channels_in), nn.ReLU(), convolution(channels_in, channels_out, size))

        self.stem = convolution(2, 4)
        self.down = nn.ModuleList([layer(4), layer(7)])
        self.pool = nn.Sequential(layer(10, 10, 1), nn.MaxPool2d(2))
        self.bottom = nn.ModuleList([layer(10), layer(13)])
        self.rise = nn.ConvTranspose2d(6, 6, 3, 2, bias=False)
        self.up = nn.ModuleList([layer(16), layer(19)])
        self.out = nn.Conv2d(22, 1, 1)

    @staticmethod
    def dense(layers, x):
        for layer in layers:
            x = torch.cat([x, layer(x)], 1)
        return x

    def forward(self, x, kind):
        skip = self.dense(self.down, self.stem(x))
        new = self.dense(self.bottom, self.pool(skip))[:, 10:]
        return self.out(self.dense(self.up, torch.cat([self.rise(new)[:, :, :HEIGHT, :WIDTH], skip], 1)))


class Listed(nn.Module):
    LAYERS = [{"embedding": 3, "classes": CLASSES, "from": "kind"}, {"resize": [HEIGHT, WIDTH]},
              {"convolution": 10, "groups": 2, "from": "x"}, "instance_norm", "relu", {"concatenate": ["relu1", "resize1"]},
              {"convolution": 8, "dilation": 2}, "silu", {"slice": [0, 6]},
              {"slice": [2, 10], "axis": "height"}, {"gather": [5, 1, 3, 0]}, {"pixel_shuffle": 2}, {"resize": 0.75},
              {"convolution": 4, "kernel": 2, "dilation": 3, "padding": "valid"}, {"resize": [HEIGHT, WIDTH]}, {"convolution": 1}]

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 3)
        self.first = nn.Sequential(convolution(2, 10, groups=2, bias=True), nn.InstanceNorm2d(10, affine=True), nn.ReLU())
        self.dilated = nn.Sequential(convolution(13, 8, dilation=2, bias=True), nn.SiLU())
        self.shuffle = nn.PixelShuffle(2)
        self.second = nn.Conv2d(1, 4, 2, dilation=3)
        self.last = convolution(4, 1, bias=True)

    def forward(self, x, kind):
        spread = self.embedding(kind.long().flatten())[:, :, None, None].expand(-1, -1, HEIGHT, WIDTH)
        y = self.dilated(torch.cat([self.first(x), spread], 1))[:, :6, 2:10][:, [5, 1, 3, 0]]
        y = functional.interpolate(self.shuffle(y), scale_factor=0.75, mode="bilinear", align_corners=False)
        return self.last(functional.interpolate(self.second(y), (HEIGHT, WIDTH), mode="bilinear", align_corners=False))


class Equality(train_run_test.TrainRun):
    @classmethod
    def setUpClass(cls):
        cls.directory = train_run_test.tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = train_run_test.pathlib.Path(cls.directory.name)
        rng = numpy.random.default_rng(1)
        rows = ["id,file,kind,t"]
        for i in range(TRAIN + 8):
            fields = rng.normal(1, 2, size=(3, HEIGHT, WIDTH)).astype(numpy.float32)
            numpy.savez(cls.root / f"{i}.npz", x=fields[:2], y=fields[2])
            rows.append(f"{i},{cls.root}/{i}.npz,{i % CLASSES},{fields.mean()}")
        (cls.root / "table.csv").write_text("\n".join(rows) + "\n")
        (cls.root / "convert.yaml").write_text(
            f"samples: {cls.root}/table.csv\ninputs: {{x: {{dataset: x, layout: CHW}}, kind: parameter}}\n"
            f"targets: {{y: {{dataset: y, layout: HW}}, t: parameter}}\nsplit: {{train: {TRAIN}, validation: 4, test: 4}}\n"
            f"output: {cls.root}/shards\nname: pictures\n")
        subprocess.run([train_run_test.PROGRAMS.convert, cls.root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)

    def split(self, name):
        """Returns the fields of a split as tensors, in the order of the files."""
        fields = {}
        for shard in sorted(glob.glob(str(self.root / f"shards/{name}/*.h5"))):
            with h5py.File(shard) as file:
                for field in ("id", "x", "kind", "y", "t"):
                    fields.setdefault(field, []).append(file[field][:].reshape((len(file[field]), *file[field].shape[1:])))
        return {field: numpy.concatenate(parts) for field, parts in fields.items()}

    def parameters(self, name, kind="parameter"):
        data, header = self.weights(name)
        return [numpy.frombuffer(data, "<f4", int(numpy.prod(a["shape"])), a["offset"]) for a in header["arrays"] if a["kind"] == kind]

    def check(self, name, net, target, model):
        """`net` has its parameters in the order of the layers, as a checkpoint has them."""
        keys = {"model": model, "inputs": ["x", "kind"] if "layers" in model else ["x"], "targets": [target], "epochs": 1,
                "batch": TRAIN, "augment": None, "transform": None, "schedule": "none", "loss": "mse"}
        sgd = {"name": "sgd", "momentum": 0}
        self.train(self.config(f"{name}-begin", optimizer={**sgd, "learning_rate": 0}, **keys))
        self.train(self.config(f"{name}-step", optimizer={**sgd, "learning_rate": RATE}, init_from=str(self.root / f"{name}-begin"), **keys))
        before, after = self.parameters(f"{name}-begin"), self.parameters(f"{name}-step")
        self.assertEqual([p.numel() for p in net.parameters()], [p.size for p in before])
        with torch.no_grad():
            for parameter, values in zip(net.parameters(), before):
                parameter.copy_(torch.from_numpy(values.copy()).reshape(parameter.shape))

        _, header = self.weights(f"{name}-begin")
        scale = {key: torch.tensor(values, dtype=torch.float32) for key, values in header["normalisation"].items() if key != "fields"}

        def normalised(fields):
            x = torch.from_numpy(fields["x"]).float().reshape(-1, 2, HEIGHT, WIDTH)
            y = torch.from_numpy(fields[target]).float().reshape(len(x), 1, *((HEIGHT, WIDTH) if target == "y" else ()))
            mean, std = (scale[key].reshape(1, 2, 1, 1) for key in ("x_mean", "x_std"))
            return (x - mean) / std, torch.from_numpy(fields["kind"]), (y - scale["y_mean"]) / scale["y_std"]

        x, kind, y = normalised(self.split("train"))
        (net(x, kind) - y).square().mean().backward()
        # A norm after the sum cancels the gradients of some biases: their bits are those of larger terms.
        least = 1e-3 * numpy.sqrt(sum(float(p.grad.square().sum()) for p in net.parameters()))
        for parameter, one, two in zip(net.parameters(), before, after):
            gradient = parameter.grad.numpy().flatten()
            error = numpy.linalg.norm((one.astype(float) - two) / RATE - gradient) / max(least, numpy.linalg.norm(gradient))
            self.assertLess(error, 1e-5, f"{name} {tuple(parameter.shape)}")

        # The means and variances of the norms that model.pt has are measured over the training samples.
        exported = torch.jit.load(str(self.root / f"{name}-begin/model.pt"))
        buffers = [value for key, value in exported.named_buffers() if "running" in key]
        buffers += [value for key, value in exported.named_parameters() if "running" in key]
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
        self.assertEqual(len(buffers), 2 * len(norms))
        test = self.split("test")
        x, kind, _ = normalised(test)
        for norm, mean, variance in zip(norms, buffers[::2], buffers[1::2]):
            norm.running_mean, norm.running_var = mean.detach().clone(), variance.detach().clone()
        with torch.no_grad():
            expected = net.eval()(x, kind) * scale["y_std"] + scale["y_mean"]
        rows = dict(zip(test["id"], expected.numpy()))
        with h5py.File(self.root / f"{name}-begin/predictions.h5") as file:
            for sample, prediction in zip(file["id"][:], file["prediction"][:]):
                wanted = rows.pop(sample).reshape(prediction.shape)
                self.assertLess(numpy.abs(prediction - wanted).max(), 1e-5 * numpy.abs(expected).max(), name)
        self.assertEqual(rows, {})

    def test_kinds_of_layers(self):
        self.check("listed", Listed(), "y", {"layers": Listed.LAYERS})

    def test_resnet(self):
        for name, pre_activation in (("classic", False), ("pre_activation", True)):
            model = {"name": "resnet", "width": 4, "depth": 1, "blocks": 2, "pre_activation": pre_activation}
            self.check(name, ResNet(pre_activation), "t", model)

    def test_deeplab(self):
        self.check("deeplab", DeepLab(), "y", {"name": "deeplab", "width": 4, "depth": 1, "blocks": 1, "dilations": [2, 3]})

    def test_tiramisu(self):
        self.check("tiramisu", Tiramisu(), "y", {"name": "tiramisu", "width": 4, "depth": 1, "blocks": 2, "growth": 3})


if __name__ == "__main__":
    train_run_test.run_tests()
