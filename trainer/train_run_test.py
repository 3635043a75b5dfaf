#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train: end to end, killed and continued, wrong input. With Debian's python3 (torch, h5py)."""

import argparse
import contextlib
import csv
import functools
import glob
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

import h5py
import numpy

from tensorboard_file import scalars

PROGRAMS = None


@functools.lru_cache
def more_ranks_than_cores():
    """Open MPI's option; MPICH's launcher needs none."""
    version = subprocess.run([PROGRAMS.mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    return ["--oversubscribe"] if "Open MPI" in version else []


EXPORT = """
import pathlib, sys, torch
from torch import nn
root = pathlib.Path(sys.argv[1])
torch.manual_seed(1)

class Cnn(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.convolution = nn.Conv3d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm3d(4)
        self.out = nn.Linear(4, outputs)

    def forward(self, x):
        x = torch.relu(self.norm(self.convolution(x)))
        x = nn.functional.dropout(x.square().mean(dim=(2, 3, 4)), 0.05, self.training)
        return self.out(x)

torch.jit.script(Cnn()).save(root / "cnn.pt")
torch.jit.script(Cnn()).save(root / "other.pt")
torch.jit.script(Cnn(3)).save(root / "three.pt")
torch.jit.script(Cnn().double()).save(root / "double.pt")
torch.jit.script(nn.Sequential(nn.Conv2d(1, 2, 3))).save(root / "other_input.pt")
torch.jit.freeze(torch.jit.script(Cnn().eval())).save(root / "frozen.pt")

class Squares(nn.Module):
    def forward(self, y, t):
        return (y - t).square().flatten(1).mean(1)

class MeanError(nn.Module):
    def forward(self, y, t):
        return (y - t).abs().flatten(1).mean(1)

class Roots(nn.Module):
    def forward(self, y, t):
        return (y - t).abs().sqrt().flatten(1).mean(1)

class Rough(nn.Module):
    def forward(self, y, t):
        return ((y - t)[:, :, 1:] - (y - t)[:, :, :-1]).square().flatten(1).mean(1)

class ThreeAxes(nn.Module):
    def forward(self, y, t):
        assert y.dim() == 3
        return y.flatten(1).mean(1)

class Differences(nn.Module):
    def forward(self, y, t):
        return y - t

class Constant(nn.Module):
    def forward(self, y, t):
        return t.flatten(1).mean(1)

for name, score in {"squares": Squares(), "mean_error": MeanError(), "huber": Roots(), "rough": Rough(),
                    "three_axes": ThreeAxes(), "sum_of_none": Differences(), "constant": Constant()}.items():
    torch.jit.script(score).save(root / f"{name}.pt")
"""
CELLS = 8


def make_data(root, more=""):
    """Converts 48 boxes whose amplitude and slope are the targets."""
    rng = numpy.random.default_rng(1)
    rows = ["id,file,amplitude,slope"]
    ramp = numpy.linspace(-1, 1, CELLS, dtype=numpy.float32)[:, None, None]
    for i in range(48):
        amplitude, slope = rng.uniform(0.5, 1.5), rng.uniform(-1, 1)
        noise = rng.normal(size=(1, CELLS, CELLS, CELLS)).astype(numpy.float32)
        numpy.save(root / f"{i}.npy", numpy.exp(amplitude * noise + slope * ramp).astype(numpy.float32))
        rows.append(f"{i},{root}/{i}.npy,{amplitude},{slope}")
    (root / "table.csv").write_text("\n".join(rows) + "\n")
    (root / "convert.yaml").write_text(
        f"samples: {root}/table.csv\ntargets: [amplitude, slope]\nshard_samples: 20\n"
        f"split: {{train: 30, validation: 9, test: 9, seed: 3}}\noutput: {root}/shards\nname: boxes\n{more}")
    subprocess.run([PROGRAMS.convert, root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)


def processes_of_session(session):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = pathlib.Path(path).read_text().rpartition(")")[2].split()[:4]
            if its_session == str(session) and state not in "ZX":
                found.append(path)
    return found


class TrainRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = pathlib.Path(cls.directory.name)
        make_data(cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def config(self, name, **keys):
        """Writes a configuration file; a key with the value None is left out."""
        settings = {"data": str(self.root / "shards"), "output": str(self.root / name), "epochs": 4, "batch": 7,
                    "transform": {"log": 0.1}, "augment": ["flip", "shift"], "model": {"name": "cosmoflow", "width": 3},
                    "optimizer": {"name": "adamw", "learning_rate": 0.01}}
        settings.update(keys)
        path = self.root / f"{name}.yaml"
        path.write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
        return path

    def command(self, config, ranks=1, *options):
        launcher = [] if ranks == 1 else [PROGRAMS.mpirun, "-n", str(ranks), *more_ranks_than_cores()]
        return [*launcher, PROGRAMS.train, str(config), *options]

    def train(self, config, ranks=1, *options, code=0, env=None):
        done = subprocess.run(self.command(config, ranks, *options), capture_output=True, text=True, timeout=240,
                              env={**os.environ, "XDG_CACHE_HOME": str(self.root / "cache"), **(env or {})})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def weights(self, name):
        """Returns the arrays of the last checkpoint, as bytes, and its header."""
        path = sorted(glob.glob(str(self.root / name / "checkpoints" / "step-*.wfck")))[-1]
        data = pathlib.Path(path).read_bytes()
        length = int.from_bytes(data[16:24], "little")
        header = json.loads(data[24:24 + length])
        return data[(24 + length + 63) // 64 * 64:-32 * (len(header["arrays"]) + 1)], header

    def arrays(self, name):
        """Returns all values of each kind in the last checkpoint."""
        data, header = self.weights(name)
        kinds = {}
        for array in header["arrays"]:
            values = numpy.frombuffer(data, "<f4", int(numpy.prod(array["shape"])), array["offset"])
            kinds.setdefault(array["kind"], []).append(values)
        return {kind: numpy.concatenate(parts) for kind, parts in kinds.items()}

    def check_tensorboard(self, name):
        """TensorBoard's file has the values of metrics.jsonl."""
        expected = {}
        for line in (self.root / name / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            values = {"loss/train": row["train_loss"], "loss/validation": row["validation_loss"],
                      "learning_rate": row["learning_rate"], "samples_per_second": row["samples_per_second"]}
            for target, errors in row["validation"].items():
                values |= {f"{error}/{target}": value for error, value in errors.items() if value is not None}
            expected |= {(tag, row["step"]): float(numpy.float32(value)) for tag, value in values.items()}
        self.assertEqual(scalars(self.root / name / "tensorboard"), expected)

    def result(self, name):
        return json.loads((self.root / name / "result.json").read_text())

    def kill_after_step(self, path, step, ranks=1, folder="checkpoints", env=None):
        """Sends SIGKILL when a checkpoint of this step or a later one exists; a run that ended before starts again."""
        for attempt in range(5):
            process = subprocess.Popen(self.command(path, ranks, *(["--fresh"] if attempt else [])), start_new_session=True,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
            checkpoints = pathlib.Path(json.loads(path.read_text())["output"]) / folder
            while process.poll() is None:
                if any(int(p.name[5:17]) >= step for p in checkpoints.glob("step-*.wfck")):
                    os.killpg(process.pid, signal.SIGKILL)
                    break
                time.sleep(0.001)
            if process.wait() == -signal.SIGKILL:
                # mpirun's ranks are in process groups of their own, and end a moment after it.
                while processes_of_session(process.pid):
                    time.sleep(0.001)
                return
        self.fail("five runs were done before they were killed")

    def predict(self, *words, code=0):
        done = subprocess.run([PROGRAMS.train, "predict", *map(str, words)], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done


class EndToEnd(TrainRun):
    def test_predictions_do_not_depend_on_the_ranks(self):
        # 9 test samples: with 4 ranks and 2 samples a round, the last rank has one round more than the first.
        self.train(self.config("ranks", epochs=1, batch=8))
        table = self.root / "ranks/predictions.csv"
        expected = table.read_text().splitlines()
        self.assertEqual(len(expected), 1 + 9)
        for ranks in (2, 4):
            table.unlink()
            self.train(self.config("ranks", epochs=1, batch=8), ranks)
            found = table.read_text().splitlines()
            self.assertEqual(len(found), len(expected))
            for one, other in zip(expected[1:], found[1:]):
                for value, again in zip(map(float, one.split(",")), map(float, other.split(","))):
                    self.assertAlmostEqual(value, again, delta=1e-4 * abs(value) + 1e-6)

    def test_libtorch_is_loaded_where_it_is_needed(self):
        libraries = subprocess.run(["ldd", PROGRAMS.train], capture_output=True, text=True, check=True).stdout
        if "libtorch" in libraries:
            self.skipTest("a sanitizer's wflow-train is linked with libtorch")
        # An installation without the module: networks of wflow's own kernels are trained and exported.
        bare = self.root / "bare/bin/wflow-train"
        bare.parent.mkdir(parents=True)
        shutil.copy(PROGRAMS.train, bare)
        done = subprocess.run([bare, self.config("own", epochs=2, augment=None)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.root / "own/model.pt").exists())
        # A layer of libtorch: nothing is trained.
        config = self.config("resize", epochs=1, augment=None,
                             model={"layers": [{"convolution": 4}, "relu", {"resize": 8}, "global_mean", {"dense": 2}]})
        done = subprocess.run([bare, config], capture_output=True, text=True)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, r"can't load libtorch: .*bare/lib/wflow/libwflow_torch.so: .*; is the installation whole\?")
        self.assertNotIn("epoch", done.stdout)
        self.train(config)

    def test_trains_reports_and_exports(self):
        events = self.root / "events.jsonl"
        done = self.train(self.config("whole", epochs=12, augment=None), env={"WFLOW_EVENTS": str(events)})
        self.assertEqual(len(re.findall(r"^epoch \d+/12 ", done.stdout, re.M)), 12)
        result = self.result("whole")
        for label in ("amplitude", "slope"):
            self.assertLess(result["test"]["targets"][label]["mae_ratio"], 0.6)
        self.assertEqual(result["data"]["test"], 9)

        lines = [json.loads(line) for line in events.read_text().splitlines()]
        names = {line["name"] for line in lines if line["type"] == "metric"}
        self.assertLessEqual({"train_loss", "validation_loss", "validation_mae_ratio/slope", "learning_rate",
                              "samples_per_second"}, names)
        self.assertEqual({line["kind"] for line in lines if line["type"] == "artifact"}, {"model", "predictions"})
        self.assertEqual([line["done"] for line in lines if line["type"] == "progress"][-1], 60)
        self.assertEqual(sum(line["type"] == "checkpoint" for line in lines), 12)
        with open(self.root / "whole/metrics.csv") as file:
            table = list(csv.DictReader(file))
        rows = [json.loads(line) for line in (self.root / "whole/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([row["epoch"] for row in rows], list(range(1, 13)))
        for row, in_table in zip(rows, table, strict=True):
            self.assertEqual(row["validation_loss"], float(in_table["validation_loss"]))
            self.assertEqual(row["validation"]["slope"]["mae"], float(in_table["validation_mae/slope"]))
            self.assertAlmostEqual(row["validation"]["slope"]["rmse"] ** 2, float(in_table["validation_mse/slope"]), places=6)
        self.check_tensorboard("whole")

        # Python's torch, without code of this project, predicts the values of predictions.csv.
        import torch
        model = torch.jit.load(str(self.root / "whole/model.pt"))
        with open(self.root / "whole/predictions.csv") as file:
            rows = {int(row["id"]): row for row in csv.DictReader(file)}
        self.assertEqual(len(rows), 9)
        for shard in glob.glob(str(self.root / "shards/test/*.h5")):
            with h5py.File(shard) as file:
                predicted = model(torch.from_numpy(file["x"][:])).tolist()
                for sample, targets, values in zip(file["id"][:], file["y"][:], predicted):
                    row = rows.pop(int(sample))
                    for label, true, value in zip(model.targets, targets, values):
                        self.assertEqual(float(row[label]), true)
                        expected = float(row[label + "_predicted"])
                        self.assertLess(abs(value - expected), 1e-4 * abs(expected) + 1e-6)
        self.assertEqual(rows, {})

        # predictions.h5 has the same rows.
        with open(self.root / "whole/predictions.csv") as file:
            rows = {int(row["id"]): row for row in csv.DictReader(file)}
        with h5py.File(self.root / "whole/predictions.h5") as file:
            labels = list(file.attrs["targets"])
            self.assertEqual(sorted(file["id"][:]), sorted(rows))
            for sample, truth, prediction in zip(file["id"][:], file["truth"][:], file["prediction"][:]):
                for label, true, value in zip(labels, truth, prediction):
                    self.assertAlmostEqual(float(rows[sample][label]), true, places=5)
                    self.assertAlmostEqual(float(rows[sample][label + "_predicted"]), value, places=5)
            truth, prediction = file["truth"][:].astype(float), file["prediction"][:].astype(float)
        for i, label in enumerate(labels):
            errors = result["test"]["targets"][label]
            difference = prediction[:, i] - truth[:, i]
            self.assertAlmostEqual(errors["rmse"], (difference ** 2).mean() ** 0.5, places=5)
            self.assertAlmostEqual(errors["r2"], 1 - (difference ** 2).mean() / truth[:, i].var(), places=5)
        self.assertIn("rms error", done.stdout)
        self.assertRegex(done.stdout, r"training: \d+\.\d samples/s, \d+\.\d GFLOP/s, \d+\.\d % of the time waiting for data; "
                                      r"up to \d+\.\d MiB of memory\n")

        # The same command again has nothing to train and prints the same result.
        again = self.train(self.root / "whole.yaml")
        self.assertEqual(self.result("whole")["performance"]["gflops"], result["performance"]["gflops"])
        self.assertIn("continued from epoch 12, step 60", again.stdout)
        self.assertEqual(self.result("whole")["test"], result["test"])

    def test_other_models_and_options(self):
        for name, keys in {
            "mlperf": {"model": {"name": "mlperf", "width": 4, "tanh_output": True}, "loss": "mae",
                       "optimizer": {"name": "sgd", "clip_norm": 1}, "transform": "log1p"},
            "sc18": {"model": {"name": "sc18", "width": 2, "dense": [8]}, "targets": ["slope"], "loss": "huber",
                     "optimizer": {"name": "adam", "larc_trust": 0.02}, "transform": None},
            "best": {"select": "best", "early_stop": 1, "epochs": 30, "optimizer": {"name": "adamw", "learning_rate": 0.05}},
            # No loss is lower by more than the whole of the best one, the first.
            "strict": {"early_stop": 2, "min_improvement": 1, "epochs": 30},
        }.items():
            self.train(self.config(name, **{"epochs": 2, **keys}))
            self.assertTrue((self.root / name / "model.pt").exists())
        self.assertTrue(self.result("best")["stopped_early"])
        self.assertEqual(self.result("strict")["epochs"], 3)
        self.assertEqual(list(self.result("sc18")["test"]["targets"]), ["slope"])

    def test_networks_and_losses_of_every_kind(self):
        listed = [{"convolution": 4}, "batch_norm", {"relu": "batch_norm1", "name": "r"}, {"max_pool": 2}, {"upsample": 2},
                  {"add": ["upsample1", "r"]}, "global_mean", {"concatenate": ["global_mean1", "slope"]}, {"dense": 2}]
        for name, keys in {
            "automatic": {"model": None},
            "surrogate": {"model": {"name": "mlp", "dense": [8]}, "inputs": ["slope"], "targets": ["amplitude"],
                          "optimizer": "lamb", "augment": None, "transform": None},
            "decoder": {"model": {"name": "decoder", "width": 2, "dense": [8]}, "optimizer": "larc", "augment": None},
            "autoencoder": {"model": {"name": "autoencoder", "width": 2, "dense": [], "latent": 3}, "schedule": "one_cycle"},
            "noisy": {"model": {"name": "cosmoflow", "width": 2}, "augment": ["permute", {"noise": 0.1}]},
            "vae": {"model": {"name": "vae", "width": 2, "latent": 3, "norm": "batch"}, "loss": {"name": "mse", "kl_weight": 0.1}},
            "unet": {"model": {"name": "unet", "width": 2, "depth": 1}, "inputs": ["x"], "targets": ["x"], "loss": "huber"},
            "resnet": {"model": {"name": "resnet", "width": 2, "depth": 1, "blocks": 1, "pre_activation": True}},
            "deeplab": {"model": {"name": "deeplab", "width": 2, "depth": 1, "blocks": 1, "dilations": [2]}, "inputs": ["x"], "targets": ["x"]},
            "tiramisu": {"model": {"name": "tiramisu", "width": 3, "depth": 1, "blocks": 2, "growth": 2, "dropout": 0.1},
                         "inputs": ["x"], "targets": ["x"]},
            "gaussian": {"model": {"name": "cnn", "width": 2}, "loss": "gaussian", "ema": 0.9},
            "listed": {"model": {"layers": listed}, "inputs": ["x", "slope"], "targets": ["amplitude"], "loss": {
                "name": "gaussian"}, "optimizer": {"name": "lars", "reference_batch": 14}},
            "classes": {"model": {"name": "cnn", "width": 2}, "targets": ["amplitude"], "loss": {"name": "cross_entropy",
                        "class_weights": [1, 2]}, "data": str(self.classes())},
        }.items():
            done = self.train(self.config(name, **{"epochs": 2, **keys}))
            self.assertTrue((self.root / name / "model.pt").exists(), name)
            self.assertIn("most common class" if name == "classes" else "mean abs error", done.stdout)
            self.assertEqual(len((self.root / name / "predictions.csv").read_text().splitlines()), 10, name)
        header = (self.root / "gaussian/predictions.csv").read_text().splitlines()[0]
        self.assertEqual(header, "id,amplitude,amplitude_predicted,amplitude_deviation,slope,slope_predicted,slope_deviation")
        self.assertEqual(list(self.result("vae")["test"]["targets"]), ["x"])
        lines = (self.root / "classes/predictions.csv").read_text().splitlines()
        self.assertIn(next(csv.DictReader(lines))["amplitude_predicted"], "01")

        self.check_predicted_fields("unet")
        for name in ("automatic", "surrogate", "decoder", "autoencoder", "vae", "unet", "resnet", "deeplab", "tiramisu", "gaussian", "listed", "classes"):
            with self.subTest(name):
                self.check_onnx(name)
                self.check_predict(name)
        self.check_predict_tables()
        self.check_damaged_models()
        with h5py.File(self.root / "classes/predictions.h5") as file:
            self.assertEqual(file["probability"].shape, (9, 2))
            numpy.testing.assert_allclose(file["probability"][:].sum(1), 1, rtol=1e-6)
            numpy.testing.assert_array_equal(file["probability"][:].argmax(1), file["prediction"][:, 0])
        with h5py.File(self.root / "gaussian/predictions.h5") as file:
            self.assertTrue((file["deviation"][:] > 0).all())

    def test_padded_fields_of_the_data_s_own_shape(self):
        rng = numpy.random.default_rng(3)
        (self.root / "padded").mkdir()
        rows = ["id,file,k"]
        for i in range(40):
            k, height = rng.uniform(-1, 1), rng.integers(3, 8)
            numpy.save(self.root / f"padded/{i}.npy", numpy.full((height, 8), k) + numpy.linspace(0, 1, 8))
            rows.append(f"{i},{self.root}/padded/{i}.npy,{k}")
        (self.root / "padded.csv").write_text("\n".join(rows) + "\n")
        (self.root / "padded.convert.yaml").write_text(
            f"samples: {self.root}/padded.csv\ninputs: [k]\ntargets: {{f: {{layout: HW, pad: [8, 8], pad_value: -1000}}}}\n"
            f"split: {{train: 24, validation: 8, test: 8}}\noutput: {self.root}/padded/shards\nname: padded\n")
        subprocess.run([PROGRAMS.convert, self.root / "padded.convert.yaml"], check=True, stdout=subprocess.DEVNULL)
        self.train(self.config("padded", data=str(self.root / "padded/shards"), model={"name": "decoder", "width": 4}, transform=None,
                               augment=None, batch=8, epochs=2))
        self.predict(self.root / "padded", self.root / "padded/shards", "--split", "test", "-o", self.root / "padded.h5")
        result = self.result("padded")
        self.assertEqual(list(result["test"]["targets"]), ["f"])
        # The loss is the mean over the samples of the mean over their cells that are not padding.
        std = json.loads((self.root / "padded/shards/manifest.json").read_text())["statistics"]["f"][0]["std"]
        with h5py.File(self.root / "padded/predictions.h5") as file:
            squares = ((file["prediction"][:] - file["truth"][:]) / std) ** 2
        self.assertAlmostEqual(result["test"]["loss"] / numpy.nanmean(squares, axis=(1, 2)).mean(), 1, places=4)
        for path in (self.root / "padded/predictions.h5", self.root / "padded.h5"):
            with h5py.File(path) as file:
                truth, prediction = file["truth"][:], file["prediction"][:]
                self.assertEqual((truth.shape, prediction.shape), ((8, 8, 8), (8, 8, 8)))
            padding = numpy.isnan(truth)
            self.assertTrue(padding.any(axis=(1, 2)).any())
            self.assertTrue((truth[~padding] > -2).all())
            self.assertFalse(numpy.isnan(prediction).any())
            self.assertAlmostEqual(result["test"]["targets"]["f"]["mae"], numpy.nanmean(numpy.abs(prediction - truth)), places=2)
        rows = list(csv.DictReader((self.root / "padded/predictions.csv").read_text().splitlines()))
        self.assertEqual(list(rows[0]), ["id", "f_mean", "f_mean_predicted", "f_mae", "f_rmse"])
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
        import wflow
        self.assertEqual(wflow.load_model(self.root / "padded/model.pt")(numpy.zeros((3, 1))).shape, (3, 8, 8))

    def check_onnx(self, name, **given):
        """model.onnx and model.pt give the same values."""
        import onnx_run
        import torch
        model = torch.jit.load(str(self.root / name / "model.pt"))
        onnx_model = onnx_run.Model(str(self.root / name / "model.onnx"))
        self.assertEqual((onnx_model.inputs, onnx_model.targets), (list(model.inputs), list(model.targets)))
        rng = numpy.random.default_rng(1)
        inputs = [torch.from_numpy(given[field](rng) if field in given else
                                   rng.lognormal(size=(3, 1, CELLS, CELLS, CELLS) if field == "x" else (3, 1))).float()
                  for field in model.inputs]
        expected = model(*inputs)
        self.assertLess((onnx_model(*inputs) - expected).abs().max(), 1e-5 * expected.abs().max() + 1e-6)

    def check_predict(self, name):
        """model.pt, used alone on the same samples, gives the values of predictions.h5."""
        data = json.loads((self.root / f"{name}.yaml").read_text())["data"]
        again = self.root / name / "again.h5"
        done = self.predict(self.root / name, data, "--split", "test", "-o", again)
        expected = self.result(name)["test"]["targets"]
        for target, errors in expected.items():
            (line,) = [line for line in done.stderr.splitlines() if line.startswith(target + " ")]
            self.assertAlmostEqual(float(line.split()[1]), errors["mae"], delta=1e-3 * errors["mae"])
        with h5py.File(self.root / name / "predictions.h5") as before, h5py.File(again) as now:
            self.assertEqual(set(before), set(now))
            self.assertEqual(list(before.attrs["targets"]), list(now.attrs["targets"]))
            for dataset in before:
                numpy.testing.assert_allclose(before[dataset][:], now[dataset][:], rtol=2e-3, atol=1e-3, err_msg=dataset)

    def check_predict_tables(self):
        (self.root / "points.csv").write_text("name,slope\nfirst,0.25\n\"the, last\",-0.5\n")
        done = self.predict(self.root / "surrogate/model.pt", self.root / "points.csv")
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertEqual([(row["id"], row["name"], row["slope"]) for row in rows],
                         [("0", "first", "0.25"), ("1", "the, last", "-0.5")])
        import torch
        expected = torch.jit.load(str(self.root / "surrogate/model.pt"))(torch.tensor([[0.25], [-0.5]]))
        numpy.testing.assert_allclose([float(row["amplitude_predicted"]) for row in rows], expected[:, 0].numpy(), rtol=1e-5)

        # Another network, without names.
        class Mean(torch.nn.Module):
            def forward(self, x):
                return x.mean([1, 2, 3, 4]).unsqueeze(1)
        torch.jit.script(Mean()).save(str(self.root / "mean.pt"))
        done = self.predict(self.root / "mean.pt", self.root / "shards", "--batch", "7")
        means = {int(row["id"]): float(row["output0_predicted"]) for row in csv.DictReader(done.stdout.splitlines())}
        self.assertEqual(len(means), 48)
        for sample, mean in means.items():
            self.assertAlmostEqual(mean, numpy.load(self.root / f"{sample}.npy").mean(), delta=1e-4)

        (self.root / "numbers.csv").write_text("x\n1\n")
        (self.root / "letters.csv").write_text("slope\n1\nb\n")
        for words, said in (
                ((self.root / "surrogate", self.root / "table.csv", "-o", "p.txt"), "ends in .csv or .h5"),
                ((self.root / "unet", self.root / "shards"), "predicts fields"),
                ((self.root / "gaussian", self.root / "points.csv"), "has no column 'x'"),
                ((self.root / "points.csv", self.root / "points.csv"), "no TorchScript file"),
                ((self.root / "nothing", self.root / "points.csv"), "no such file"),
                ((self.root / "gaussian", self.root / "numbers.csv"), "the model was trained with x of 1 x 8 x 8 x 8 (channels x cells)"),
                ((self.root / "surrogate", self.root / "letters.csv"), "letters.csv:3: 'b' of column 'slope' is no number")):
            failed = subprocess.run([PROGRAMS.train, "predict", *map(str, words)], capture_output=True, text=True, timeout=240)
            self.assertIn(said, failed.stderr)
            self.assertIn(failed.returncode, (2, 4), failed.stderr)

    def check_damaged_models(self):
        """libtorch compares no checksum: a flipped bit of a weight changed predictions, a flipped bit of the code changed the network."""
        model = self.root / "surrogate" / "model.pt"
        whole = model.read_bytes()
        with zipfile.ZipFile(model) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(("data/0", "__torch__.py"))]
        self.assertEqual(len(members), 2)
        damaged = self.root / "damaged.pt"
        for member in members:
            begin = member.header_offset + 30 + sum(struct.unpack("<HH", whole[member.header_offset + 26:member.header_offset + 30]))
            at = begin + member.compress_size // 2
            damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            failed = subprocess.run([PROGRAMS.train, "predict", damaged, self.root / "points.csv"], capture_output=True, text=True, timeout=240)
            self.assertEqual(failed.returncode, 4, failed.stdout + failed.stderr)
            self.assertIn(f"its member {member.filename} is damaged", failed.stderr)
            self.assertEqual(len(failed.stderr.strip().splitlines()), 1, failed.stderr)

    def test_onnx_of_every_kind_of_layer(self):
        listed = [{"convolution": 4, "stride": 2, "padding": "periodic"}, {"convolution": 4, "kernel": 4, "padding": "periodic"}, "elu",
                  "layer_norm", {"convolution": 8, "kernel": 2, "name": "even"}, "group_norm",
                  "gelu", {"transposed_convolution": 4, "name": "up"}, "batch_norm", "softplus", {"average_pool": 2}, {"upsample": 2},
                  "sigmoid", {"convolution": 3, "padding": "valid"}, "tanh", {"dropout": 0.1, "name": "d"}, {"global_max": "d", "name": "most"},
                  {"flatten": "d"}, {"dense": 8}, "layer_norm", "group_norm", "silu", {"reshape": [1, 8]},
                  {"convolution": 2, "name": "last"}, {"flatten": "last", "name": "flat"}, {"concatenate": ["flat", "most"]}, {"dense": 4}, "softmax", {"dense": 2},
                  {"tanh_scale": 1.5}]
        self.train(self.config("kinds", epochs=1, model={"layers": listed}, transform="log1p", augment=None))
        self.check_onnx("kinds")

    def test_onnx_of_more_kinds_of_layer(self):
        """With class numbers as an input, which stay as they are, beside a field."""
        listed = [{"embedding": 3, "classes": 2, "from": "amplitude", "name": "e"}, {"resize": [8, 8, 8], "name": "spread"},
                  {"concatenate": ["x", "spread"]}, {"convolution": 8, "groups": 4, "dilation": 2}, "instance_norm", {"resize": 0.75},
                  {"convolution": 8, "kernel": 2, "dilation": 3, "padding": "valid"}, {"pixel_shuffle": 2}, {"slice": [1, 4], "axis": "depth"},
                  {"flatten": "slice1"}, {"gather": [0, 5, 5, 7], "from": "flatten1"}, {"slice": [0, 2], "from": "e", "name": "part"},
                  {"slice": [0, 1], "axis": "width", "from": "x", "name": "face"}, {"flatten": "face", "name": "f"},
                  {"concatenate": ["gather1", "part", "f"]}, {"dense": 1}]
        keys = {"data": str(self.classes()), "epochs": 2, "augment": None, "inputs": ["x", "amplitude"], "targets": ["slope"]}
        self.train(self.config("more", model={"layers": listed}, **keys))
        self.check_onnx("more", amplitude=lambda rng: rng.integers(0, 2, (3, 1)))
        self.check_predict("more")
        listed[0]["classes"] = 1
        done = self.train(self.config("few", model={"layers": listed}, **keys), code=4)
        self.assertIn("the embedding 'e' reads class numbers from 0 to 0, and a sample has 1; correct the data or 'classes'", done.stderr)

    def check_predicted_fields(self, name):
        """Compares predictions.h5 of a field with model.pt, and the truth with the shard."""
        import torch
        model = torch.jit.load(str(self.root / name / "model.pt"))
        with h5py.File(self.root / name / "predictions.h5") as file:
            rows = {sample: (file["truth"][i], file["prediction"][i]) for i, sample in enumerate(file["id"][:])}
        for shard in glob.glob(str(self.root / "shards/test/*.h5")):
            with h5py.File(shard) as file:
                predicted = model(torch.from_numpy(file["x"][:])).numpy()
                for sample, x, y in zip(file["id"][:], file["x"][:], predicted):
                    truth, prediction = rows.pop(sample)
                    numpy.testing.assert_allclose(truth, x, rtol=1e-4, atol=1e-4)
                    numpy.testing.assert_allclose(prediction, y, rtol=1e-3, atol=1e-3)
        self.assertEqual(rows, {})

    def classes(self):
        """The same boxes with a class number as target."""
        rows = (self.root / "table.csv").read_text().splitlines()
        values = [row.split(",") for row in rows[1:]]
        (self.root / "classes.csv").write_text("\n".join(
            ["id,file,amplitude,slope"] + [f"{r[0]},{r[1]},{int(float(r[2]) > 1)},{r[3]}" for r in values]) + "\n")
        (self.root / "classes.yaml.convert").write_text(
            f"samples: {self.root}/classes.csv\ntargets: [amplitude, slope]\noutput: {self.root}/class-shards\n"
            "split: {train: 30, validation: 9, test: 9}\n")
        subprocess.run([PROGRAMS.convert, self.root / "classes.yaml.convert"], check=True, stdout=subprocess.DEVNULL)
        return self.root / "class-shards"

    def test_one_pass_or_many_take_the_same_steps(self):
        keys = {"epochs": 2, "optimizer": {"name": "sgd", "learning_rate": 0.01}, "model": {"name": "cosmoflow", "width": 3}}
        self.train(self.config("at_once", **keys))
        self.train(self.config("in_parts", accumulate=3, **keys))
        a, b = (numpy.frombuffer(self.weights(name)[0], numpy.float32) for name in ("at_once", "in_parts"))
        self.assertLess(numpy.abs(a - b).max(), 1e-4 * numpy.abs(a).max())

    def test_statistics_of_norms_are_those_of_the_evaluated_weights(self):
        # With this high rate, the running statistics are far behind the weights after so few steps.
        keys = {"epochs": 2, "model": {"name": "cosmoflow", "width": 3, "norm": "batch"}, "augment": None}
        self.train(self.config("norms", **keys))
        import torch
        model = torch.jit.load(str(self.root / "norms/model.pt"))
        x = []
        for shard in sorted(glob.glob(str(self.root / "shards/train/*.h5"))):
            with h5py.File(shard) as file:
                x.append(torch.from_numpy(file["x"][:]))
        x = (torch.log(torch.cat(x) + 0.1) - model.x_mean) / model.x_std
        y = torch.nn.functional.conv3d(x, model.p_conv1_weight, padding=1)
        expected = y.mean((0, 2, 3, 4))
        self.assertLess((model.p_norm1_running_mean - expected).abs().max(), 1e-3 * y.std())
        self.assertLess((model.p_norm1_running_variance / y.var((0, 2, 3, 4)) - 1).abs().max(), 0.02)

    def test_lost_best_weights_are_reported(self):
        path = self.config("lost", select="best", epochs=3)
        self.train(path)
        best = self.result("lost")["best_epoch"]
        self.assertEqual(self.result("lost")["selected_epoch"], best)
        wanted = self.root / "lost/checkpoints/best.wfck"
        wanted.write_bytes(wanted.read_bytes()[:100])
        done = self.train(path)
        self.assertIn("best.wfck", done.stderr)
        self.assertIn(f"the weights of epoch {best}, the best in validation, are not there", done.stderr)
        self.assertEqual(self.result("lost")["selected_epoch"], 3)
        wanted.unlink()
        self.assertIn("are not there", self.train(path).stderr)

    def test_checkpoints_of_the_best_epochs_are_kept(self):
        self.train(self.config("kept", epochs=6, checkpoint={"keep_last": 1, "keep_best": 2}))
        with open(self.root / "kept/metrics.csv") as file:
            rows = [(float(row["validation_loss"]), int(row["step"])) for row in csv.DictReader(file)]
        wanted = {step for _, step in sorted(rows)[:2]} | {30}
        there = {int(p.name[5:17]) for p in (self.root / "kept/checkpoints").glob("step-*.wfck")}
        self.assertEqual(there, wanted)

    def test_dry_run_and_help(self):
        done = self.train(self.config("dry"), 1, "--dry-run")
        self.assertRegex(done.stdout, r"parameters +\d")
        self.assertIn("steps           5 an epoch, 20 in all", done.stdout)
        self.assertFalse((self.root / "dry").exists())
        self.assertIn("Examples:", subprocess.run([PROGRAMS.train, "--help"], capture_output=True, text=True).stdout)

    def test_dry_run_shows_the_plan_of_a_grid(self):
        path = self.config("grid")
        plan = self.train(path, 1, "--dry-run", "--grid", "2x2x1").stdout
        self.assertIn("grid            2 x 2 x 1: 4 ranks share a sample", plan)
        self.assertRegex(plan, r"conv1 +convolution +\d+ x 4 x 4 x 8 +[\d.]+ \w+ ")
        self.assertRegex(plan, r"memory a rank   at most .* of activations with their halos; .* on one rank")
        self.assertNotIn("\ngrid ", self.train(path, 1, "--dry-run").stdout)
        self.assertIn("can be cut into 16 x 1 x 1 parts",
                      self.train(path, 1, "--dry-run", "--grid", "16x1x1", code=3).stderr)
        self.assertIn("'2x2' is no grid of ranks", self.train(path, 1, "--dry-run", "--grid", "2x2", code=2).stderr)
        self.assertIn("--grid needs --dry-run, which prints the plan: a training has the key 'grid'",
                      self.train(path, 1, "--grid", "2x1x1", code=2).stderr)
        self.assertFalse((self.root / "grid").exists())

    def test_keys_may_stand_under_train(self):
        path = self.config("nested", epochs=1)
        path.write_text(json.dumps({"train": json.loads(path.read_text())}))
        self.train(path)
        self.assertTrue((self.root / "nested/result.json").exists())


class Offsets(TrainRun):
    """A time of 2460000.5 days, which float32 stores in steps of a quarter."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = pathlib.Path(cls.directory.name)
        cls.u = numpy.random.default_rng(1).uniform(0, 1, 400).tolist()
        rows = [f"{i},{2460000.5 + u!r},{math.sin(3 * u)!r},{-3e6 + 0.1 * math.cos(3 * u)!r}" for i, u in enumerate(cls.u)]
        (cls.root / "table.csv").write_text("\n".join(["id,t,y,z", *rows]) + "\n")
        (cls.root / "convert.yaml").write_text(
            f"samples: {cls.root}/table.csv\ninputs: [t]\ntargets: [y, z]\nsplit: {{train: 320, validation: 40, test: 40}}\n"
            f"output: {cls.root}/shards\nname: far\n")
        subprocess.run([PROGRAMS.convert, cls.root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)

    def ratios(self, text):
        return {line.split()[0]: float(line.split()[4]) for line in text.splitlines() if line.startswith(("y ", "z "))}

    def test_training_export_and_predict_keep_what_varies(self):
        for name, transform in (("plain", None), ("logarithm", {"log": 0.1})):
            done = self.train(self.config(name, augment=None, transform=transform, epochs=160, batch=16,
                                          model={"name": "mlp", "dense": [32, 32], "activation": "gelu"}, optimizer={"name": "adam", "learning_rate": 0.01}))
            self.assertRegex(done.stderr, r"warning: the input 't' varies by 0\.\d+ around 246000[01]")
            test = self.result(name)["test"]["targets"]
            for target in "yz":
                self.assertLess(test[target]["mae_ratio"], 0.01, (name, target))
        # predict, on the data set and on a table, gives the predictions of the training.
        found = self.ratios(self.predict(self.root / "plain", self.root / "shards", "--split", "test").stderr)
        test = self.result("plain")["test"]["targets"]
        for target in "yz":
            self.assertAlmostEqual(found[target], test[target]["mae_ratio"], places=3)
        rows = list(csv.DictReader((self.root / "plain/predictions.csv").read_text().splitlines()))
        table = self.root / "points.csv"
        table.write_text("id,t\n" + "".join(f"{row['id']},{2460000.5 + self.u[int(row['id'])]!r}\n" for row in rows))
        again = list(csv.DictReader(self.predict(self.root / "plain", table).stdout.splitlines()))
        with h5py.File(self.root / "plain/predictions.h5") as file:
            self.assertEqual((file["truth"].dtype, file["prediction"].dtype), (numpy.float64, numpy.float64))
            truths, predictions = file["truth"][:], file["prediction"][:]
        for row, other, truth, prediction in zip(rows, again, truths, predictions):
            u = self.u[int(row["id"])]
            self.assertEqual((truth[0], truth[1]), (math.sin(3 * u), -3e6 + 0.1 * math.cos(3 * u)))
            for k, target in enumerate("yz"):
                self.assertEqual(float(row[target]), truth[k])
                self.assertAlmostEqual(float(row[target + "_predicted"]), prediction[k], places=7)
                self.assertAlmostEqual(float(other[target + "_predicted"]), prediction[k], places=4)
        # The exported models, in Python.
        import onnx_run
        import torch
        t = torch.tensor([[2460000.5 + self.u[int(row["id"])]] for row in rows], dtype=torch.float64)
        for found in (torch.jit.load(str(self.root / "plain/model.pt"))(t), onnx_run.Model(str(self.root / "plain/model.onnx"))(t[:, :, None, None, None])):
            self.assertEqual(found.dtype, torch.float64)
            numpy.testing.assert_allclose(found.numpy(), predictions, rtol=0, atol=1e-4)
        logarithm = torch.jit.load(str(self.root / "logarithm/model.pt"))(t).numpy()
        self.assertLess(numpy.abs(logarithm - truths).mean(0).max(), 0.01)
        # Points outside of the training data.
        table.write_text("t\n2460000.7\n2460002.5\n")
        self.assertRegex(self.predict(self.root / "plain", table).stderr, r"1 of 2 rows lie outside the training samples \(t 2460000\.5\d* to 2460001\.\d+\)")


class Modules(TrainRun):
    """Networks that a user has exported from Python."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = cls.root / "export.py"
        path.write_text(EXPORT)
        subprocess.run([sys.executable, path, cls.root], check=True)

    def module(self, name, file="cnn.pt", **keys):
        return self.config(name, model=str(self.root / file), augment=None, **keys)

    def test_trains_and_exports(self):
        done = self.train(self.module("own", epochs=30))
        self.assertIn("model.onnx is not written", done.stdout)
        result = self.result("own")
        self.assertEqual(result["model"]["name"], "module")
        self.assertEqual(result["model"]["parameters"], 4 * 27 + 4 + 4 + 4 + 2 * 4 + 2)
        self.assertLess(result["test"]["mean_mae_ratio"], 0.8)
        self.assertFalse((self.root / "own/model.onnx").exists())
        torch = __import__("torch")
        model = torch.jit.load(str(self.root / "own/model.pt"))
        with h5py.File(self.root / "own/predictions.h5") as file:
            ids, predicted = file["id"][:], file["prediction"][:]
        raw = numpy.stack([numpy.load(self.root / f"{i}.npy") for i in ids])
        with torch.no_grad():
            given = model(torch.from_numpy(raw)).numpy()
        numpy.testing.assert_allclose(given, predicted, rtol=2e-4, atol=2e-4)

    def test_restarts_and_ranks(self):
        """Batch norm's statistics, its integer counter and dropout's random numbers continue as without the restart."""
        for ranks in (1, 2):
            keys = {"epochs": 3}
            self.train(self.module(f"whole-{ranks}", **keys), ranks)
            path = self.module(f"cut-{ranks}", **keys)
            self.train(path, ranks)
            (self.root / f"cut-{ranks}/checkpoints/step-{15:012}.wfck").unlink()
            self.assertIn("continued from epoch", self.train(path, ranks).stdout)
            self.assertEqual(self.weights(f"cut-{ranks}")[0], self.weights(f"whole-{ranks}")[0])

    def test_another_file_is_another_training(self):
        path = self.module("changed", epochs=1)
        self.train(path)
        shutil.copy(self.root / "cnn.pt", self.root / "kept.pt")
        shutil.copy(self.root / "other.pt", self.root / "cnn.pt")
        try:
            self.assertIn("model.file", self.train(path, code=4).stderr)
        finally:
            shutil.copy(self.root / "kept.pt", self.root / "cnn.pt")

    def test_a_loss_and_metrics_in_files(self):
        """A loss in TorchScript takes the steps of the loss that it writes out, and a metric in a file is that of the formula."""
        keys = {"epochs": 3, "optimizer": {"name": "sgd", "learning_rate": 0.002}}
        metrics = {"error": "abs(prediction - target)", "mean_error": str(self.root / "mean_error.pt")}
        for ranks in (1, 2):
            self.train(self.config(f"mse{ranks}", loss="mse", **keys), ranks)
            self.train(self.config(f"squares{ranks}", loss={"file": str(self.root / "squares.pt")}, metrics=metrics, **keys), ranks)
            expected = self.arrays(f"mse{ranks}")["parameter"]
            self.assertLess(numpy.abs(self.arrays(f"squares{ranks}")["parameter"] - expected).max(), 1e-6 * numpy.abs(expected).max())
            found, plain = (self.result(name + str(ranks))["test"] for name in ("squares", "mse"))
            self.assertAlmostEqual(found["loss"] / plain["loss"], 1, places=5)
            errors = [target["metrics"]["error"] for target in found["targets"].values()]
            first = next(iter(found["targets"].values()))
            self.assertAlmostEqual(first["metrics"]["mean_error"] / (sum(errors) / 2), 1, places=5)
            path = self.config(f"squares{ranks}", loss={"file": str(self.root / "squares.pt")}, metrics=metrics, **keys)
            before = self.arrays(f"squares{ranks}")["parameter"]
            (self.root / f"squares{ranks}/checkpoints/step-{15:012}.wfck").unlink()
            self.assertIn("continued from epoch", self.train(path, ranks).stdout)
            numpy.testing.assert_array_equal(self.arrays(f"squares{ranks}")["parameter"], before)

    def test_a_loss_of_fields_sees_their_grid(self):
        """The loss module adds up differences of neighbours, which the formula of one cell can't."""
        keys = {"inputs": ["amplitude"], "targets": ["x"], "model": "decoder", "augment": None, "epochs": 2}
        self.train(self.config("rough", loss={"file": str(self.root / "rough.pt")}, metrics={"rough": str(self.root / "rough.pt")}, **keys))
        done = self.train(self.config("shape", loss={"file": str(self.root / "three_axes.pt")}, **keys), code=4)
        self.assertIn("three_axes.pt: fails on the data", done.stderr)

    def test_wrong_losses(self):
        for file, reason in (("sum_of_none.pt", "must give one number for each sample"), ("constant.pt", "has no gradient"),
                             ("text.pt", "is no TorchScript file"), ("absent.pt", "no such file")):
            (self.root / "text.pt").write_text("no module")
            for ranks in (1, 2):
                command = self.command(self.config("wrong", loss={"file": str(self.root / file)}, epochs=1), ranks, "--fresh")
                done = subprocess.run(command, capture_output=True, text=True, timeout=240)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(reason, done.stderr)
                self.assertIn(file, done.stderr)

    def test_another_loss_is_another_training(self):
        path = self.config("other_loss", loss={"file": str(self.root / "moving.pt")}, epochs=1)
        shutil.copy(self.root / "squares.pt", self.root / "moving.pt")
        self.train(path)
        shutil.copy(self.root / "huber.pt", self.root / "moving.pt")
        self.assertIn("loss.file", self.train(path, code=4).stderr)

    def test_wrong_modules(self):
        (self.root / "text.pt").write_text("no module")
        for file, reason in (("text.pt", "is no TorchScript file"), ("three.pt", "gives 3 a sample, and targets and loss want 2"),
                             ("frozen.pt", "has no parameters to train"), ("double.pt", "export the module in float32"),
                             ("other_input.pt", "fails on the data"), ("absent.pt", "no such file")):
            done = subprocess.run(self.command(self.module("wrong", file), 1, "--dry-run"), capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(reason, done.stderr)
            self.assertIn(file, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("TorchScript module", self.train(self.module("dry"), 1, "--dry-run").stdout)


class SeveralHeads(TrainRun):
    """Several outputs in one network: losses and files of each."""

    HEADS = [{"name": "labels", "targets": ["amplitude", "slope"], "weight": 2},
             {"name": "field", "targets": ["x"], "loss": "mae", "weight": 0.5}]

    def heads(self, name, **keys):
        settings = {"model": {"name": "autoencoder", "width": 2, "latent": 3, "dense": [8]}, "inputs": ["x"],
                    "heads": self.HEADS, "epochs": 3, "augment": ["flip"]}
        return self.config(name, **{**settings, **keys})

    def check_loss(self, name):
        """The test loss is the weighted sum of the losses of the heads, computed here from predictions.h5."""
        test = self.result(name)["test"]
        manifest = json.loads((self.root / "shards/manifest.json").read_text())
        deviations = dict(zip(["amplitude", "slope"], (label["std"] for label in manifest["statistics"]["y"])))
        with h5py.File(self.root / name / "predictions.h5") as file:
            self.assertEqual(list(file.attrs["heads"]), ["labels", "field"])
            squares = [((file["labels/prediction"][:, i] - file["labels/truth"][:, i]) / deviations[target]) ** 2
                       for i, target in enumerate(file["labels"].attrs["targets"])]
            self.assertEqual(file["field/prediction"].shape, (9, 1, CELLS, CELLS, CELLS))
        self.assertAlmostEqual(test["heads"]["labels"]["loss"] / numpy.mean(squares), 1, places=3)
        self.assertAlmostEqual(test["loss"], 2 * test["heads"]["labels"]["loss"] + 0.5 * test["heads"]["field"]["loss"], places=6)

    def test_an_encoder_feeds_numbers_and_a_decoder(self):
        done = self.train(self.heads("both"))
        self.assertRegex(done.stdout, r"epoch 3/3 .* labels [0-9.e-]+ \([0-9.]+\)  field [0-9.e-]+ \([0-9.]+\)")
        self.assertIn("test labels", done.stdout)
        self.check_loss("both")
        rows = [json.loads(line) for line in (self.root / "both/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(set(rows[-1]["validation_heads"]), {"labels", "field"})
        header = (self.root / "both/predictions.csv").read_text().splitlines()[0]
        self.assertEqual(header, "id,amplitude,amplitude_predicted,slope,slope_predicted,x_mean,x_mean_predicted,x_mae,x_rmse")
        self.check_exports("both")
        self.check_predicted_parts("both")
        # A head alone is a network of its own, and with equal weights it learns as well.
        self.assertIn("learns", self.train(self.heads("dry"), 1, "--dry-run").stdout)

    def check_exports(self, name):
        import onnx_run
        import torch
        model = torch.jit.load(str(self.root / name / "model.pt"))
        self.assertEqual((model.heads, model.head_losses), (["labels", "field"], ["mse", "mae"]))
        x = torch.rand(3, 1, CELLS, CELLS, CELLS) + 0.5
        labels, field = model(x)
        self.assertEqual((tuple(labels.shape), tuple(field.shape)), ((3, 2), (3, 1, CELLS, CELLS, CELLS)))
        onnx_model = onnx_run.Model(str(self.root / name / "model.onnx"))
        for one, other in zip(onnx_model(x), (labels, field)):
            self.assertLess((one - other).abs().max(), 1e-4 * other.abs().max() + 1e-6)
        self.assertEqual(model.layers(x)["latent"].shape, (3, 3))
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
        import wflow
        answers = wflow.load_model(self.root / name / "model.pt")(x.numpy())
        self.assertEqual(list(answers), ["labels", "field"])
        numpy.testing.assert_allclose(answers["labels"], labels, rtol=1e-5)

    def check_predicted_parts(self, name):
        shards = self.root / "shards"
        again = self.root / name / "again.h5"
        done = self.predict(self.root / name, shards, "--split", "test", "-o", again)
        self.assertIn("test labels", done.stderr)
        self.assertIn("test field", done.stderr)
        with h5py.File(self.root / name / "predictions.h5") as before, h5py.File(again) as now:
            for dataset in ("labels/truth", "labels/prediction", "field/truth", "field/prediction"):
                numpy.testing.assert_allclose(before[dataset][:], now[dataset][:], rtol=2e-3, atol=1e-3, err_msg=dataset)
        table = self.predict(self.root / name, shards, "--split", "test", "--layer", "labels").stdout.splitlines()
        self.assertEqual(table[0], "id,amplitude,amplitude_predicted,slope,slope_predicted")
        code = self.predict(self.root / name, shards, "--split", "test", "--layer", "latent").stdout.splitlines()
        self.assertEqual((code[0], len(code)), ("id,latent0_predicted,latent1_predicted,latent2_predicted", 10))
        for words, said in ((("--layer", "latant"), "did you mean 'latent'"), ((), "the model predicts fields ('field')")):
            failed = subprocess.run([PROGRAMS.train, "predict", self.root / name, shards, *words], capture_output=True, text=True, timeout=240)
            self.assertIn(said, failed.stderr)

    def check_ensemble(self, name, members):
        """Means and deviations of each head in predictions.h5, with those of the noise that the head `labels` predicts."""
        folder = self.root / name
        with h5py.File(folder / "predictions.h5") as both, contextlib.ExitStack() as stack:
            each = [stack.enter_context(h5py.File(folder / f"member-{k + 1}/predictions.h5")) for k in range(members)]
            self.assertEqual(list(both.attrs["heads"]), ["labels", "field"])
            for head in ("labels", "field"):
                means = numpy.stack([file[head]["prediction"][:] for file in each]).astype(float)
                variance = means.var(axis=0)
                if head == "labels":
                    variance += numpy.mean([file[head]["deviation"][:].astype(float) ** 2 for file in each], axis=0)
                numpy.testing.assert_array_equal(both[head]["truth"], each[0][head]["truth"])
                numpy.testing.assert_allclose(both[head]["prediction"], means.mean(axis=0), rtol=1e-5, atol=1e-6)
                numpy.testing.assert_allclose(both[head]["deviation"], numpy.sqrt(variance), rtol=1e-3, atol=1e-5)
            numpy.testing.assert_array_equal(both["labels/member_prediction"][:].swapaxes(0, 1),
                                             numpy.stack([file["labels/prediction"][:] for file in each]))
            return {head: (both[head]["prediction"][:], both[head]["deviation"][:]) for head in ("labels", "field")}

    def test_an_ensemble_has_all_heads(self):
        heads = [{**self.HEADS[0], "loss": "gaussian"}, self.HEADS[1]]
        done = self.train(self.heads("ensemble", heads=heads, members=2, epochs=2))
        self.assertIn("test, 2 members labels", done.stdout)
        self.assertRegex(done.stdout, r"slope: ratio [\d.]+ of the mean, [\d.]+ to [\d.]+ of single members")
        expected = self.check_ensemble("ensemble", 2)
        result = self.result("ensemble")
        self.assertEqual(set(result["test"]["heads"]), {"labels", "field"})
        self.assertEqual(set(result["calibration"]), {"amplitude", "slope", "x"})
        table = (self.root / "ensemble/predictions.csv").read_text().splitlines()
        self.assertEqual((table[0], len(table)), (
            "id,amplitude,amplitude_predicted,amplitude_deviation,slope,slope_predicted,slope_deviation", 10))
        again = self.root / "ensemble/again.h5"
        self.predict(self.root / "ensemble", self.root / "shards", "--split", "test", "-o", again)
        with h5py.File(again) as file:
            for head, (prediction, deviation) in expected.items():
                numpy.testing.assert_allclose(file[head]["prediction"][:], prediction, rtol=2e-3, atol=1e-3)
                numpy.testing.assert_allclose(file[head]["deviation"][:], deviation, rtol=2e-2, atol=2e-3)

    def test_kill_and_ranks_give_the_same_training(self):
        keys = {"epochs": 8, "checkpoint": {"every_steps": 1, "keep_last": 2}}
        self.train(self.heads("whole", **keys))
        path = self.heads("killed", **keys)
        self.kill_after_step(path, 7)
        self.train(path)
        self.assertEqual(self.weights("killed")[0], self.weights("whole")[0])
        self.assertEqual(self.result("killed")["test"], self.result("whole")["test"])
        self.train(self.heads("ranks", **keys), 2)
        one, two = self.result("whole")["test"], self.result("ranks")["test"]
        for head in ("labels", "field"):
            self.assertAlmostEqual(two["heads"][head]["loss"] / one["heads"][head]["loss"], 1, delta=0.05)

    def test_samples_without_a_label_count_in_the_other_heads(self):
        rows = (self.root / "table.csv").read_text().splitlines()
        rows[1:] = [row if i % 3 == 0 else ",".join([*row.split(",")[:2], "nan", "nan"]) for i, row in enumerate(rows[1:])]
        (self.root / "few.csv").write_text("\n".join(rows) + "\n")
        (self.root / "few.convert.yaml").write_text(
            f"samples: {self.root}/few.csv\ntargets: [amplitude, slope]\ncheck_finite: false\n"
            f"split: {{train: 30, validation: 9, test: 9, seed: 3}}\noutput: {self.root}/few-shards\n")
        subprocess.run([PROGRAMS.convert, self.root / "few.convert.yaml"], check=True, stdout=subprocess.DEVNULL)
        self.train(self.heads("few", data=str(self.root / "few-shards"), epochs=2))
        test = self.result("few")["test"]
        with h5py.File(self.root / "few/predictions.h5") as file:
            truth, prediction = file["labels/truth"][:], file["labels/prediction"][:]
        labelled = ~numpy.isnan(truth[:, 0])
        self.assertTrue(0 < labelled.sum() < 9)
        self.assertFalse(numpy.isnan(prediction).any())
        self.assertAlmostEqual(test["targets"]["slope"]["mae"], numpy.abs(prediction - truth)[labelled, 1].mean(), places=5)

    def test_networks_of_every_family_and_lists_of_layers(self):
        layers = [{"convolution": 4, "name": "trunk"}, "relu", {"convolution": 1, "kernel": 1, "name": "field"},
                  {"global_mean": "relu1", "name": "means"}, {"dense": 2, "name": "numbers"}]
        unet = [{"name": "same", "targets": ["x"]}, {"name": "labels", "targets": ["amplitude"], "loss": "gaussian"}]
        for name, keys in {
            "automatic": {"model": None},
            "unet": {"model": {"name": "unet", "width": 2, "depth": 1}, "heads": unet},
            "vae": {"model": {"name": "vae", "width": 2, "latent": 3}},
            "cnn": {"model": {"name": "cnn", "width": 2}, "heads": [{"name": "a", "targets": ["amplitude"]}, {
                "name": "b", "targets": ["amplitude", "slope"], "loss": "huber"}]},
            "listed": {"model": {"layers": layers}, "heads": [{**self.HEADS[0], "output": "numbers"}, self.HEADS[1]]},
        }.items():
            with self.subTest(name):
                self.train(self.heads(name, **{"epochs": 1, **keys}))
                self.assertEqual(len(self.result(name)["test"]["heads"]), 2)
        # Both heads of `cnn` learn the amplitude.
        self.assertEqual(sorted(self.result("cnn")["test"]["targets"]), ["a/amplitude", "b/amplitude", "slope"])

    def test_wrong_heads(self):
        for keys, said in (
                ({"heads": []}, "'heads' is a list"),
                ({"heads": [{"name": "a"}]}, "the head 'a' needs one of 'targets', 'constant' and 'like'"),
                ({"heads": [{"name": "a", "targets": ["amplitude"]}] * 2}, "two heads have the name 'a'"),
                ({"heads": [{"name": "a/b", "targets": ["amplitude"]}]}, "must not contain '/'"),
                ({"targets": ["slope"]}, "'targets' stands beside 'heads'"),
                ({"members": 2, "heads": [{"name": "a", "targets": ["slope"]}, {"name": "b", "constant": 1}]},
                 "'members' combine predictions of targets, and the head 'b' has none"),
                ({"members": 2, "heads": [{"name": "a", "targets": ["slope"], "loss": "quantile"}]}, "which the loss quantile does not predict"),
                ({"heads": [{"name": "a", "targets": ["x", "slope"]}]}, "'targets' of the head 'a' names the field x and labels"),
                ({"heads": [{"name": "a", "targets": ["amplitud"]}]}, "did you mean 'amplitude'"),
                ({"model": {"name": "cnn", "width": 2}}, "the target of the head 'field' is a field"),
                ({"model": {"layers": [{"dense": 2, "name": "labels"}]}}, "the head 'field' needs the layer 'field'")):
            with self.subTest(said):
                self.assertIn(said, self.train(self.heads("wrong", **keys), code=3).stderr)


class Parts(TrainRun):
    """Named parts of a network: frozen, begun from another training, with an optimizer of their own, exported alone."""

    MODEL = {"name": "autoencoder", "width": 2, "latent": 3, "dense": [8]}

    def parameters(self, name):
        data, header = self.weights(name)
        return {array["name"]: numpy.frombuffer(data, "<f4", int(numpy.prod(array["shape"])), array["offset"])
                for array in header["arrays"] if array["kind"] == "parameter"}

    def test_a_frozen_encoder_of_another_training(self):
        self.train(self.config("whole", model=self.MODEL, augment=None, optimizer="sgd",
                               parts={"encoder": {"export": True}, "decoder": {"rate": 0.5, "export": True}}))
        before = self.parameters("whole")
        done = self.train(self.config("tuned", model=self.MODEL, augment=None, inputs=["x"], transform={"log": 0.1},
                                      heads=[{"name": "labels", "targets": ["amplitude", "slope"]}, {"name": "field", "targets": ["x"]}],
                                      parts={"encoder": {"freeze": True, "init_from": str(self.root / "whole")},
                                             "labels": {"optimizer": {"name": "sgd", "learning_rate": 0.1}}}))
        self.assertIn("the part 'encoder' begins with ", done.stdout)
        after = self.parameters("tuned")
        encoder = [name for name in before if name.startswith(("conv1.", "conv2.", "dense", "latent"))]
        self.assertGreater(len(encoder), 4)
        for name in encoder:
            numpy.testing.assert_array_equal(after[name], before[name], err_msg=name)
        self.assertTrue(numpy.isfinite(after["labels.out.weight"]).all())
        kinds = {(a["kind"], a["name"]) for a in self.weights("tuned")[1]["arrays"]}
        self.assertIn(("momentum", "labels.out.weight"), kinds)
        self.assertIn(("first_moment", "field.out.weight"), kinds)
        self.assertFalse([kind for kind, name in kinds if name == "conv1.weight" and kind != "parameter"])
        self.assertIn("encoder of ", self.result("tuned")["begun_from"])
        self.check_exported_parts("whole")
        dry = self.train(self.root / "tuned.yaml", 1, "--dry-run").stdout
        self.assertRegex(dry, r"part +encoder: [0-9,]+ parameters, frozen, begins with ")

    def check_exported_parts(self, name):
        """The decoder's values of the encoder's code are those of the whole model."""
        import onnx_run
        import torch
        model, encoder, decoder = (torch.jit.load(str(self.root / name / file)) for file in ("model.pt", "model-encoder.pt", "model-decoder.pt"))
        x = torch.rand(3, 1, CELLS, CELLS, CELLS) + 0.5
        code = encoder(x)
        self.assertEqual(code.shape, (3, 3))
        self.assertEqual((list(encoder.inputs), list(decoder.inputs)), (["x"], ["latent"]))
        torch.testing.assert_close(decoder(code), model(x), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.layers(x)["latent"], code)
        torch.testing.assert_close(onnx_run.Model(str(self.root / name / "model-encoder.onnx"))(x), code, rtol=1e-4, atol=1e-5)
        table = self.predict(self.root / name / "model-encoder.pt", self.root / "shards", "--split", "test").stdout.splitlines()
        self.assertEqual((table[0], len(table)), ("id,latent0_predicted,latent1_predicted,latent2_predicted", 10))

    def test_sigkill_with_parts_gives_the_same_bits(self):
        layers = [{"convolution": 4, "part": "trunk"}, "relu", "global_mean", {"dense": 8, "part": "top"}, "silu", {"dense": 2}]
        keys = {"model": {"layers": layers}, "epochs": 8, "checkpoint": {"every_steps": 1, "keep_last": 2}, "ema": 0.9,
                "parts": {"trunk": {"rate": 0.1}, "top": {"optimizer": {"name": "lamb", "learning_rate": 0.02}}}}
        self.train(self.config("parts-whole", **keys))
        path = self.config("parts-killed", **keys)
        self.kill_after_step(path, 7)
        self.train(path)
        self.assertEqual(self.weights("parts-killed")[0], self.weights("parts-whole")[0])

    def test_wrong_parts(self):
        for parts, said, code in (
                ({"encodr": {"freeze": True}}, "the network's parts are encoder, head; did you mean 'encoder'", 3),
                ({"encoder": {"freeze": True}, "head": {"freeze": True}}, "nothing is left to learn", 3),
                ({"encoder": {"freeze": True, "optimizer": "sgd"}}, "needs no 'optimizer'", 3),
                ({"encoder": {"frozen": True}}, "unknown key 'frozen' in the part 'encoder'", 3),
                ({"encoder": {"init_from": "nowhere"}}, "is no checkpoint and no folder of a training", 4),
                ("encoder", "'parts' is a mapping", 3)):
            with self.subTest(said):
                self.assertIn(said, self.train(self.config("wrong", parts=parts), code=code).stderr)


class Sequences(TrainRun):
    """Series of different lengths, frames and fields, with recurrent, attention and spectral layers."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = numpy.random.default_rng(5)
        (cls.root / "series").mkdir()
        rows = ["id,file,rate"]
        for i in range(40):
            rate, length = rng.uniform(0.2, 1), rng.integers(6, 20)
            t = numpy.arange(length)
            numpy.save(cls.root / f"series/{i}.npy", numpy.stack([numpy.sin(rate * t), numpy.cos(rate * t)]))
            rows.append(f"{i},{cls.root}/series/{i}.npy,{rate}")
        (cls.root / "series.csv").write_text("\n".join(rows) + "\n")
        (cls.root / "series.convert.yaml").write_text(
            f"samples: {cls.root}/series.csv\ninputs: {{s: {{layout: CW, pad: [2, 20]}}}}\ntargets: [rate]\n"
            f"split: {{train: 24, validation: 8, test: 8}}\noutput: {cls.root}/series/shards\nname: series\n")
        subprocess.run([PROGRAMS.convert, cls.root / "series.convert.yaml"], check=True, stdout=subprocess.DEVNULL)

    LISTED = [{"lstm": 5, "from": ["s", "s_mask"], "output": "sequence", "bidirectional": True, "name": "a"},
              {"positions": "a"}, {"attention": 2, "from": ["positions1", "s_mask"], "name": "b"}, {"positions": "b", "learned": True},
              {"gru": 4, "from": ["positions2", "s_mask"], "output": "sequence", "name": "c"},
              {"gru": 3, "from": ["c", "s_mask"], "bidirectional": True, "name": "d"}, {"lstm": 3, "from": ["c", "s_mask"], "name": "e"},
              {"spectral_convolution": 2, "modes": 4, "from": "c", "name": "f"}, {"coordinates": "f"}, {"flatten": "coordinates1", "name": "g"},
              {"concatenate": ["d", "e", "g"]}, {"dense": 1}]

    def series(self, name, **keys):
        return self.config(name, **{"data": str(self.root / "series/shards"), "inputs": ["s", "s_mask"], "augment": None, "transform": None,
                                    "batch": 8, "model": {"name": "lstm", "width": 16, "depth": 1, "dense": [8]}, **keys})

    def check_exports(self, name, data):
        """model.pt, model.onnx and predictions.h5 give the same values for the samples of the test split."""
        import onnx_run
        import torch
        model = torch.jit.load(str(self.root / name / "model.pt"))
        onnx_model = onnx_run.Model(str(self.root / name / "model.onnx"))
        with h5py.File(self.root / name / "predictions.h5") as file:
            expected = dict(zip(file["id"][:].tolist(), file["prediction"][:]))
        for shard in glob.glob(str(data / "test/*.h5")):
            with h5py.File(shard) as file:
                ids = file["id"][:].tolist()
                inputs = [torch.from_numpy(file[field][:]) for field in model.inputs]
            given = model(*inputs)
            # Fields without an axis of channels get one; missing axes are flat.
            fields = [x.float() if x.dim() == 5 else x.float().reshape(len(x), *shape) for x, shape in zip(inputs, model.shapes)]
            self.assertLess((onnx_model(*fields) - given).abs().max(), 1e-5 * given.abs().max() + 1e-6)
            for sample, prediction in zip(ids, given.numpy()):
                numpy.testing.assert_allclose(prediction.reshape(-1), expected[sample].reshape(-1), rtol=1e-4, atol=1e-5)

    def test_series_of_different_lengths(self):
        self.train(self.series("lstm", epochs=60))
        self.assertLess(self.result("lstm")["test"]["mean_mae_ratio"], 0.7)
        self.train(self.series("listed", epochs=3, model={"layers": self.LISTED}))
        for name in ("lstm", "listed"):
            with self.subTest(name):
                self.check_exports(name, self.root / "series/shards")
                self.predict(self.root / name, self.root / "series/shards", "--split", "test")

    def test_fields_and_frames(self):
        for name, keys in {
            "fno": {"model": {"name": "fno", "width": 4, "depth": 2, "modes": 3, "dense": [8]}, "targets": ["x"]},
            "fno_numbers": {"model": {"name": "fno", "width": 4, "depth": 2, "modes": 20, "dense": [8]}},
            "frames": {"model": {"name": "conv_lstm", "width": 4, "depth": 2, "dense": [8]}, "targets": ["x"]},
            "frames_numbers": {"model": {"name": "conv_lstm", "width": 4, "dense": [8]}},
        }.items():
            with self.subTest(name):
                self.train(self.config(name, **{"inputs": ["x"], "augment": None, "epochs": 2, **keys}))
                self.check_exports(name, self.root / "shards")

    def test_ranks_take_the_steps_of_one(self):
        keys = {"epochs": 2, "optimizer": {"name": "sgd", "learning_rate": 0.01}, "model": {"layers": self.LISTED}}
        self.train(self.series("one", **keys))
        one = self.arrays("one")["parameter"]
        for ranks in (2, 4):
            self.train(self.series(f"many{ranks}", **keys), ranks)
            self.assertLess(numpy.abs(self.arrays(f"many{ranks}")["parameter"] - one).max(), 1e-5 * numpy.abs(one).max())

    def test_sigkill_gives_the_same_bits(self):
        for ranks in (1, 2):
            keys = {"epochs": 12, "checkpoint": {"every_steps": 1, "keep_last": 2}, "model": {"layers": self.LISTED}}
            self.train(self.series(f"whole{ranks}", **keys), ranks)
            path = self.series(f"killed{ranks}", **keys)
            self.kill_after_step(path, 7, ranks)
            self.assertRegex(self.train(path, ranks).stdout, r"continued from epoch \d+, step \d+")
            self.assertEqual(self.weights(f"killed{ranks}")[0], self.weights(f"whole{ranks}")[0])

    def test_what_does_not_fit(self):
        mask = {"inputs": ["s", "s_mask"]}
        for name, keys, sentence in (
                ("vector", {"model": {"layers": ["flatten", {"lstm": 4}, {"dense": 1}]}, "inputs": ["s"]},
                 "the lstm layer 'lstm1' reads a series [channels, steps], and 'flatten1' gives 40; put reshape between them"),
                ("mask", {"model": {"layers": [{"gru": 4, "from": ["s_mask", "s"]}, {"dense": 1}]}, **mask},
                 "the mask 's' of the gru layer 'gru1' has 2 x 1 x 1 x 20"),
                ("heads", {"model": {"layers": [{"attention": 3}, "flatten", {"dense": 1}]}, "inputs": ["s"]},
                 "can't divide the 2 channels of 's' among 3 heads"),
                ("modes", {"model": {"layers": [{"spectral_convolution": 3}, "flatten", {"dense": 1}]}, "inputs": ["s"]},
                 "keeps 12 modes along an axis of 20 cells of 's'; use at most 10"),
                ("frames", {"model": "conv_lstm", "inputs": ["s"]}, "reads frames [channels, steps, cells ...]")):
            self.assertIn(sentence, self.train(self.series(f"unfit-{name}", **keys), 1, "--dry-run", code=3).stderr)


def make_pictures(root):
    """Pictures of two channels; class 1 is where the first is high, class 2, which is rare, where both are."""
    rng = numpy.random.default_rng(4)
    rows = ["id,file"]
    for i in range(48):
        x = rng.normal(size=(2, 16, 16)).astype(numpy.float32)
        kind = (x[0] > 0.5).astype(numpy.int32)
        kind[(x[0] > 1) & (x[1] > 1)] = 2
        with h5py.File(root / f"picture{i}.h5", "w") as file:
            file["x"], file["kind"] = x, kind
        rows.append(f"{i},{root}/picture{i}.h5")
    (root / "pictures.csv").write_text("\n".join(rows) + "\n")
    (root / "pictures.convert.yaml").write_text(
        f"samples: {root}/pictures.csv\ninputs: {{x: {{dataset: x, layout: CHW}}}}\n"
        f"targets: {{kind: {{dataset: kind, layout: HW}}}}\nshard_samples: 20\n"
        f"split: {{train: 30, validation: 9, test: 9, seed: 3}}\noutput: {root}/pictures\nname: pictures\n")
    subprocess.run([PROGRAMS.convert, root / "pictures.convert.yaml"], check=True, stdout=subprocess.DEVNULL)


def area_under_roc(scores, positive):
    """By ranks, with halves for ties (Mann and Whitney 1947)."""
    order = numpy.concatenate([[0], numpy.cumsum(numpy.unique(scores, return_counts=True)[1])])
    _, inverse = numpy.unique(scores, return_inverse=True)
    ranks = ((order[:-1] + 1 + order[1:]) / 2)[inverse]
    count = positive.sum()
    return (ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(scores) - count))


class Classes(TrainRun):
    """Metrics and weights of classes, quantiles, and epochs compared by a metric."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        make_pictures(cls.root)

    def segmentation(self, name, **keys):
        return self.config(name, **{"data": str(self.root / "pictures"), "transform": None, "augment": None, "batch": 8,
                                    "model": {"name": "unet", "width": 4, "depth": 1}, "epochs": 4,
                                    "loss": {"name": "cross_entropy", "class_weights": "inverse_root"}, **keys})

    def truths(self, split):
        manifest = json.loads((self.root / "pictures/manifest.json").read_text())
        parts = []
        for shard in manifest["splits"][split]["shards"]:
            with h5py.File(self.root / "pictures" / shard["file"]) as file:
                parts.append(file["kind"][:])
        return numpy.concatenate(parts)

    def check_metrics(self, name):
        """result.json has the metrics that numpy finds in predictions.h5."""
        found = self.result(name)["test"]["targets"]["kind"]
        with h5py.File(self.root / name / "predictions.h5") as file:
            truth, prediction, mask = (file[key][:] for key in ("truth", "prediction", "mask"))
            probability = file["probability"][:]
        self.assertEqual((mask.dtype, mask.shape), (numpy.dtype("u1"), truth.shape))
        numpy.testing.assert_array_equal(mask, prediction)
        matrix = [[int(((truth == row) & (mask == column)).sum()) for column in range(3)] for row in range(3)]
        self.assertEqual(found["confusion"], matrix)
        self.assertAlmostEqual(found["accuracy"], (truth == mask).mean())
        for k, one in enumerate(found["classes"]):
            of_truth, predicted = truth == k, mask == k
            both = (of_truth & predicted).sum()
            self.assertEqual((one["truth"], one["predicted"], one["right"]), (of_truth.sum(), predicted.sum(), both))
            self.assertAlmostEqual(one["iou"], both / (of_truth | predicted).sum())
            self.assertAlmostEqual(one["dice"], 2 * both / (of_truth.sum() + predicted.sum()))
            self.assertAlmostEqual(one["recall"], both / of_truth.sum())
            if predicted.any():
                self.assertAlmostEqual(one["precision"], both / predicted.sum())
            self.assertAlmostEqual(one["auc"], area_under_roc(probability[:, k].ravel(), of_truth.ravel()), delta=2e-3)
        self.assertAlmostEqual(found["mean_iou"], numpy.mean([one["iou"] for one in found["classes"]]))
        return found

    def test_metrics_and_weights(self):
        done = self.train(self.segmentation("pictures_run", metric="iou_2/kind", select="best", checkpoint={"keep_best": 1}))
        self.check_metrics("pictures_run")
        self.assertIn("ROC AUC", done.stdout)
        result = self.result("pictures_run")
        # The weights follow from the training cells alone.
        cells = numpy.bincount(self.truths("train").astype(int).ravel(), minlength=3)
        self.assertEqual(result["classes"]["training_cells"], cells.tolist())
        weights = numpy.sqrt(cells.sum() / cells)
        numpy.testing.assert_allclose(result["classes"]["weights"], weights / ((weights * cells).sum() / cells.sum()))
        # The best epoch is that of the highest IoU, in validation.
        rows = [json.loads(line) for line in (self.root / "pictures_run/metrics.jsonl").read_text().splitlines()]
        values = [row["validation"]["kind"]["iou_2"] or 0 for row in rows]
        self.assertGreater(max(values), 0)
        self.assertEqual(result["selected_epoch"], 1 + numpy.argmax(values))
        with open(self.root / "pictures_run/metrics.csv") as file:
            for row, line in zip(rows, csv.DictReader(file)):
                self.assertEqual(float(line["validation_mean_iou/kind"]), row["validation"]["kind"]["mean_iou"])
        pictures = json.loads((self.root / "pictures_run/pictures.json").read_text())["samples"]
        self.assertEqual([p["role"] for p in pictures[0]["pictures"]], ["input", "truth", "prediction"])
        with h5py.File(self.root / "pictures_run/predictions.h5") as file:
            self.assertEqual(pictures[3]["id"], file["id"][3])
            self.assertEqual(pictures[3]["pictures"][2]["values"], file["prediction"][3].ravel().tolist())
        # wflow predict finds the same, and writes the same masks.
        done = self.predict(self.root / "pictures_run", self.root / "pictures", "--split", "test", "-o", self.root / "again.h5")
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("2 ")]
        self.assertAlmostEqual(float(line.split()[2]), result["test"]["targets"]["kind"]["classes"][2]["iou"], places=3)
        with h5py.File(self.root / "again.h5") as again, h5py.File(self.root / "pictures_run/predictions.h5") as file:
            numpy.testing.assert_array_equal(again["mask"][:], file["mask"][:])

    def test_counts_do_not_depend_on_the_ranks_or_on_a_restart(self):
        keys = {"model": {"name": "unet", "width": 4, "depth": 1, "norm": "none"}, "epochs": 2}
        self.train(self.segmentation("whole", **keys))
        whole = self.result("whole")
        self.train(self.segmentation("parts", **keys), 2)
        self.assertEqual(self.result("parts")["classes"], whole["classes"])
        self.check_metrics("parts")
        # Begun with a short time, then continued: the files are the same, with the metrics of all epochs.
        self.train(self.segmentation("again", **keys, max_seconds=0.001), 1, code=6)
        self.train(self.segmentation("again", **keys))
        again = self.result("again")
        self.assertGreater(again["segments"], 1)
        for key in ("test", "validation", "classes"):
            self.assertEqual(again[key], whole[key], key)

    def test_focal_and_dice_losses_learn_the_rare_class(self):
        for loss in ("focal", "dice"):
            self.train(self.segmentation(loss, loss={"name": loss, "class_weights": "inverse_root"}, epochs=6))
            self.assertGreater(self.check_metrics(loss)["classes"][1]["iou"], 0.3)

    def test_quantiles_cover_their_shares(self):
        keys = {"inputs": ["amplitude"], "targets": ["slope"], "model": "mlp", "transform": None, "augment": None, "epochs": 40}
        self.train(self.config("quantiles", **keys, loss={"name": "quantile", "quantiles": [0.1, 0.5, 0.9]}))
        found = self.result("quantiles")["test"]["targets"]["slope"]["calibration"]
        with h5py.File(self.root / "quantiles/predictions.h5") as file:
            truth, prediction, quantile = (file[key][:] for key in ("truth", "prediction", "quantile"))
            self.assertEqual(file.attrs["quantiles"].tolist(), [0.1, 0.5, 0.9])
        self.assertEqual(quantile.shape, (9, 3, 1))
        numpy.testing.assert_array_equal(prediction, quantile[:, 1])
        self.assertEqual(found, {f"below_{q}": (truth[:, 0] <= quantile[:, k, 0]).mean() for k, q in enumerate((0.1, 0.5, 0.9))})
        self.assertLess(found["below_0.1"], found["below_0.9"])
        header = (self.root / "quantiles/predictions.csv").read_text().splitlines()[0]
        self.assertEqual(header, "id,slope,slope_predicted,slope_q0.1,slope_q0.5,slope_q0.9")
        self.predict(self.root / "quantiles", self.root / "shards", "--split", "test", "-o", self.root / "quantiles.h5")
        with h5py.File(self.root / "quantiles.h5") as file:
            numpy.testing.assert_allclose(file["quantile"][:], quantile, rtol=1e-4, atol=1e-5)
            numpy.testing.assert_array_equal(file["prediction"][:], file["quantile"][:, 1])

    def test_metrics_that_a_training_does_not_have(self):
        for keys, message in (({"metric": "iou_3"}, "the classes have the numbers 0 to 2"),
                              ({"metric": "mean_iou/other"}, "the targets are kind")):
            done = self.train(self.segmentation("wrong", **keys), code=3)
            self.assertIn(message, done.stderr)


def make_boxes(root):
    """Pictures with up to three rectangles, bright (class 0) or dark (class 1), and the targets of a grid of 4 pixels a cell."""
    rng = numpy.random.default_rng(8)
    rows = ["id,file"]
    for i in range(300):
        picture = rng.normal(0, 0.1, size=(32, 32)).astype(numpy.float32)
        cells = numpy.zeros((6, 8, 8), numpy.float32)
        for place in rng.permutation(4)[:rng.integers(0, 4)]:
            # Each lies in a quarter of its own: no two centres share a cell, and no two rectangles overlap.
            length = rng.integers(5, 12, size=2)
            corner = 16 * numpy.array(divmod(place, 2)) + rng.integers(0, 16 - length)
            kind = rng.integers(0, 2)
            picture[tuple(slice(a, b) for a, b in zip(corner, corner + length))] += 1 - 2 * kind
            centre = (corner + length / 2) / 4
            cell = tuple(centre.astype(int))
            cells[(slice(None), *cell)] = [1, kind, *(centre - cell), *(length / 4)]
        if i % 10 == 0:
            cells[0, 7, 7] = numpy.nan
        with h5py.File(root / f"boxes{i}.h5", "w") as file:
            file["x"], file["objects"] = picture, cells
            file["counts"] = [(cells[0] * (cells[1] == kind) == 1).sum() for kind in (0.0, 1.0)]
        rows.append(f"{i},{root}/boxes{i}.h5")
    (root / "boxes.csv").write_text("\n".join(rows) + "\n")
    (root / "boxes.convert.yaml").write_text(
        f"samples: {root}/boxes.csv\ninputs: {{x: {{dataset: x, layout: HW}}}}\n"
        f"targets: {{objects: {{dataset: objects, layout: CHW}}, counts: {{dataset: counts, layout: C, channels: [bright, dark]}}}}\ncheck_finite: false\nsplit: {{train: 200, validation: 50, test: 50, seed: 3}}\n"
        f"output: {root}/boxes\nname: boxes\n")
    subprocess.run([PROGRAMS.convert, root / "boxes.convert.yaml"], check=True, stdout=subprocess.DEVNULL)


def overlap(one, other):
    """IoU of two boxes: centres along both axes, then lengths."""
    one, other = (numpy.array(box, float).reshape(2, 2) for box in (one, other))
    low = numpy.maximum(one[0] - one[1] / 2, other[0] - other[1] / 2)
    high = numpy.minimum(one[0] + one[1] / 2, other[0] + other[1] / 2)
    shared = numpy.clip(high - low, 0, None).prod()
    return shared / (one[1].prod() + other[1].prod() - shared)


def average_precisions(truths, predictions, classes):
    """Computes the average precision of each class by the definition in docs/train.md."""
    shift = numpy.stack(numpy.meshgrid(range(8), range(8), indexing="ij"))
    found, objects = [[] for _ in range(classes)], numpy.zeros(classes)
    for truth, prediction in zip(truths, predictions):
        known = ~numpy.isnan(truth[0])
        boxes = [numpy.concatenate([one[2:4] + shift, one[4:6]]) for one in (truth, prediction)]
        here = [[int(truth[1][cell]), boxes[0][(slice(None), *cell)]] for cell in zip(*numpy.nonzero(known & (truth[0] == 1)))]
        for kind, _ in here:
            objects[kind] += 1
        for cell in sorted(zip(*numpy.nonzero(known)), key=lambda at: -prediction[0][at]):
            kind, box = int(prediction[1][cell]), boxes[1][(slice(None), *cell)]
            best = max((o for o in here if o[0] == kind), key=lambda o: overlap(o[1], box), default=None)
            right = best is not None and overlap(best[1], box) >= 0.5
            if right:
                here = [o for o in here if o is not best]
            found[kind].append((prediction[0][cell], right))
    values = []
    for kind in range(classes):
        right = numpy.array([r for _, r in sorted(found[kind], key=lambda pair: -pair[0])], int)
        precision = numpy.cumsum(right) / numpy.arange(1, len(right) + 1)
        precision = numpy.maximum.accumulate(precision[::-1])[::-1]
        values.append((precision * right).sum() / objects[kind])
    return values


class Detection(TrainRun):
    """Boxes on a grid: losses and metrics of objects."""

    LAYERS = [{"convolution": 12}, "relu", {"max_pool": 2}, {"convolution": 24}, "relu", {"max_pool": 2}, {"convolution": 32}, "relu",
              {"convolution": 32}, "relu", {"convolution": 7, "kernel": 1, "name": "boxes"}]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        make_boxes(cls.root)

    def boxes(self, name, **keys):
        return self.config(name, **{"data": str(self.root / "boxes"), "transform": None, "augment": None, "batch": 10, "epochs": 15,
                                    "model": {"layers": self.LAYERS}, "targets": ["objects"], "loss": "detection", "metric": "map", "select": "best", **keys})

    def predictions(self, name):
        with h5py.File(self.root / name / "predictions.h5") as file:
            return {key: file[key][:] for key in ("id", "truth", "prediction", "probability")}

    def logits(self, name, split):
        """Returns the outputs of the network for the samples of a split, and their targets."""
        import torch
        model = torch.jit.load(str(self.root / name / "model.pt"))
        found = []
        for shard in sorted(glob.glob(str(self.root / f"boxes/{split}/*.h5"))):
            with h5py.File(shard) as file:
                x = torch.from_numpy(file["x"][:])
                found.append((model.layers(x)["boxes"].reshape(len(x), 7, 8, 8), torch.from_numpy(file["objects"][:])))
        return tuple(torch.cat(parts) for parts in zip(*found))

    @staticmethod
    def torch_loss(outputs, truths):
        """The loss with torch's own functions."""
        import torch
        from torch.nn import functional
        losses = []
        for out, truth in zip(outputs, truths):
            known, there = ~truth[0].isnan(), truth[0] == 1
            confidence = functional.binary_cross_entropy_with_logits(out[0], truth[0].nan_to_num(), reduction="none")
            total = (confidence * torch.where(there, 1.0, 0.5))[known].sum()
            total = total + functional.cross_entropy(out[1:3][:, there].T, truth[1][there].long(), reduction="sum")
            boxes = torch.cat([truth[2:4] - 0.5, truth[4:6].log()])
            total = total + 5 * functional.smooth_l1_loss(out[3:][:, there], boxes[:, there], reduction="sum")
            losses.append(total / known.sum())
        return torch.stack(losses).mean()

    def test_finds_rectangles(self):
        done = self.train(self.boxes("boxes_run"))
        self.assertRegex(done.stdout, r"epoch 15/15 .*\(map 0\.[0-9]{4}\)")
        result = self.result("boxes_run")
        found = result["test"]["targets"]["objects0"]["metrics"]
        self.assertGreater(found["map"], 0.8)
        self.assertGreater(found["mean_precision"], 0.7)
        files = self.predictions("boxes_run")
        self.assertEqual((files["prediction"].shape, files["probability"].shape), ((50, 6, 8, 8), (50, 2, 8, 8)))
        numpy.testing.assert_array_equal(files["prediction"][:, 1], files["probability"].argmax(1))
        expected = average_precisions(files["truth"], files["prediction"], 2)
        numpy.testing.assert_allclose([found["ap_0"], found["ap_1"]], expected, atol=1e-6)
        self.assertAlmostEqual(found["map"], numpy.mean(expected), places=6)
        # The loss is that of torch's functions.
        outputs, truths = self.logits("boxes_run", "test")
        self.assertAlmostEqual(float(self.torch_loss(outputs, truths)) / result["test"]["loss"], 1, places=5)
        # The best epoch has the highest mAP in validation.
        rows = [json.loads(line) for line in (self.root / "boxes_run/metrics.jsonl").read_text().splitlines()]
        values = [row["validation"]["objects0"]["map"] for row in rows]
        self.assertEqual(result["selected_epoch"], 1 + numpy.argmax(values))
        header, first, *_ = (self.root / "boxes_run/predictions.csv").read_text().splitlines()
        self.assertEqual(header, "id,objects0_objects,objects0_objects_predicted")
        self.assertEqual(int(first.split(",")[1]), (files["truth"][0, 0] == 1).sum())
        self.check_exports("boxes_run", found)
        self.check_metrics_on_ranks("boxes_run", values)

    def check_exports(self, name, found):
        import onnx_run
        import torch
        x = torch.randn(3, 1, 1, 32, 32)
        answer = torch.jit.load(str(self.root / name / "model.pt"))(x)
        self.assertLess((onnx_run.Model(str(self.root / name / "model.onnx"))(x) - answer).abs().max(), 1e-4)
        done = self.predict(self.root / name, self.root / "boxes", "--split", "test", "-o", self.root / "boxes_again.h5")
        self.assertIn(f"objects0: map {found['map']:.4f}, mean_precision {found['mean_precision']:.4f}", done.stderr)
        before = self.predictions(name)
        with h5py.File(self.root / "boxes_again.h5") as file:
            for key in ("truth", "prediction", "probability"):
                numpy.testing.assert_allclose(file[key][:], before[key], rtol=1e-4, atol=1e-4, err_msg=key)

    def check_metrics_on_ranks(self, name, values):
        """The same weights have the same metrics on every number of ranks."""
        keys = {"epochs": 1, "init_from": str(self.root / name), "optimizer": {"name": "sgd", "learning_rate": 0, "momentum": 0}}
        found = []
        for ranks in (1, 2, 4):
            self.train(self.boxes(f"ranks{ranks}", **keys), ranks)
            row = json.loads((self.root / f"ranks{ranks}/metrics.jsonl").read_text())
            found.append((row["validation"], self.result(f"ranks{ranks}")["test"]["targets"]["objects0"]["metrics"]))
        self.assertAlmostEqual(found[0][0]["objects0"]["map"], max(values), places=9)
        for other in found[1:]:
            self.assertEqual(other[1], found[0][1])
            for key, value in found[0][0]["objects0"].items():
                self.assertAlmostEqual(other[0]["objects0"][key], value, places=9, msg=key)

    def test_beside_numbers(self):
        """One network with a head for objects and one for numbers, which have the names that the data give them."""
        layers = [*self.LAYERS[:-1], {**self.LAYERS[-1], "name": "objects"}, {"global_mean": "relu4"}, {"dense": 2, "name": "counts"}]
        heads = [{"name": "objects", "targets": ["objects"], "loss": "detection"}, {"name": "counts", "targets": ["counts"]}]
        keys = {"heads": heads, "model": {"layers": layers}, "targets": None, "loss": None, "epochs": 12, "metrics": {"wrong": "abs(prediction - target)"}}
        self.train(self.boxes("both", **keys))
        test = self.result("both")["test"]
        self.assertEqual(set(test["targets"]), {*(f"objects{i}" for i in range(6)), "bright", "dark"})
        self.assertGreater(test["targets"]["objects0"]["metrics"]["map"], 0.5)
        self.assertAlmostEqual(test["targets"]["dark"]["metrics"]["wrong"], test["targets"]["dark"]["mae"], places=9)
        self.assertNotIn("wrong", test["targets"]["objects0"]["metrics"])
        with h5py.File(self.root / "both/predictions.h5") as file:
            self.assertEqual(list(file["counts"].attrs["targets"]), ["bright", "dark"])
            expected = average_precisions(file["objects/truth"][:], file["objects/prediction"][:], 2)
            self.assertLess(numpy.abs(file["counts/prediction"][:, 1] - file["counts/truth"][:, 1]).mean(), 1)
        self.assertAlmostEqual(test["targets"]["objects0"]["metrics"]["map"], numpy.mean(expected), places=6)
        again = self.predict(self.root / "both", self.root / "boxes", "--split", "test", "-o", self.root / "both.h5").stderr
        self.assertIn(f"objects0: map {test['targets']['objects0']['metrics']['map']:.4f}", again)
        self.assertRegex(again, r"\nbright +[0-9.]+")

    def test_the_step_is_that_of_torch(self):
        """One step of plain descent: (before - after) / rate is the gradient of torch's loss."""
        import torch
        keys = {"epochs": 1, "batch": 200, "schedule": "none", "metric": "loss", "select": "last", "model": {"layers": [self.LAYERS[-1] | {"kernel": 3, "stride": 4}]}}
        weights = []
        for name, rate in (("begin", 0), ("step", 1)):
            more = {} if rate == 0 else {"init_from": str(self.root / "begin")}
            self.train(self.boxes(name, optimizer={"name": "sgd", "momentum": 0, "learning_rate": rate}, **keys, **more))
            data, header = self.weights(name)
            weights.append([numpy.frombuffer(data, "<f4", int(numpy.prod(a["shape"])), a["offset"]).astype(float)
                            for a in header["arrays"] if a["kind"] == "parameter"])
        outputs, truths = self.logits("begin", "train")
        outputs = outputs.detach().requires_grad_()
        self.torch_loss(outputs, truths).backward()
        # The bias of the last layer has the gradient of the outputs, summed over samples and cells.
        expected = outputs.grad.sum((0, 2, 3)).numpy()
        (bias,) = [i for i, values in enumerate(weights[0]) if values.size == 7]
        numpy.testing.assert_allclose(weights[0][bias] - weights[1][bias], expected, rtol=1e-4, atol=1e-6)

    def test_kill_gives_the_same_bits(self):
        keys = {"epochs": 3, "checkpoint": {"every_steps": 1}}
        self.train(self.boxes("whole", **keys))
        path = self.boxes("killed", **keys)
        self.kill_after_step(path, 30)
        self.train(path)
        self.assertEqual(self.weights("killed")[0], self.weights("whole")[0])
        for key in ("test", "validation"):
            self.assertEqual(self.result("killed")[key], self.result("whole")[key], key)

    def test_what_does_not_fit(self):
        two = {"layers": [{"max_pool": 2}, {"max_pool": 2}, {"convolution": 7}]}
        for keys, code, message in (
                ({"augment": ["flip"]}, 3, "'flip' and 'permute' move the cells"),
                ({"members": 2}, 3, "boxes of several networks have none"),
                ({"metric": "mean_iou"}, 3, "is for classes, and the loss detection learns objects"),
                ({"inputs": ["objects"], "model": two}, 3, "is an input and the target of a detection"),
                ({"targets": ["x"], "inputs": ["counts"], "model": two}, 3, "needs 6 channels on a grid of 2 axes"),
                ({"metric": "ap_2"}, 3, "the classes have the numbers 0 to 1"),
                ({"loss": {"name": "detection", "classes": 1}, "model": {"layers": [*self.LAYERS[:-1], {"convolution": 6}]}}, 4,
                 "whole class numbers from 0 to 0")):
            done = self.train(self.boxes("wrong", **keys), code=code)
            self.assertIn(message, done.stderr)


class Members(TrainRun):
    """`members: K`: an ensemble of seeds."""

    def member(self, name, member):
        return self.root / name / f"member-{member}"

    def predictions(self, folder):
        with h5py.File(folder / "predictions.h5") as file:
            return {name: file[name][...] for name in file}

    def ask(self, name, path):
        """Runs wflow-train predict on the test samples."""
        done = subprocess.run([PROGRAMS.train, "predict", self.root / name, self.root / "shards", "--split", "test", "-o", path],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def check_combination(self, name, members, gaussian=False):
        """predictions.h5 and result.json of the ensemble are those of its members, combined here again."""
        each = [self.predictions(self.member(name, k + 1)) for k in range(members)]
        both = self.predictions(self.root / name)
        means = numpy.stack([one["prediction"] for one in each]).astype(float)
        variance = means.var(axis=0)
        if gaussian:
            variance += numpy.mean([one["deviation"].astype(float) ** 2 for one in each], axis=0)
        numpy.testing.assert_array_equal(both["id"], each[0]["id"])
        numpy.testing.assert_array_equal(both["truth"], each[0]["truth"])
        numpy.testing.assert_array_equal(both["member_prediction"], means.swapaxes(0, 1))
        numpy.testing.assert_allclose(both["prediction"], means.mean(axis=0), rtol=1e-5, atol=1e-6)
        numpy.testing.assert_allclose(both["deviation"], numpy.sqrt(variance), rtol=1e-4, atol=1e-6)
        error = numpy.abs(both["prediction"] - both["truth"])
        result = self.result(name)
        for t, target in enumerate(["amplitude", "slope"]):
            found = result["test"]["targets"][target]
            self.assertAlmostEqual(found["mae"], error[:, t].mean(), places=5)
            self.assertAlmostEqual(found["r2"], 1 - (error[:, t] ** 2).mean() / both["truth"][:, t].var(), places=4)
            self.assertAlmostEqual(found["mae_ratio"], found["mae"] / found["mean_guess_mae"], places=6)
            for count, key in ((1, "within_1_deviation"), (2, "within_2_deviations")):
                self.assertAlmostEqual(result["calibration"][target][key],
                                       (error[:, t] <= count * both["deviation"][:, t]).mean(), places=6)
            self.assertAlmostEqual(result["calibration"][target]["spread_over_error"],
                                   numpy.sqrt(variance[:, t].mean() / (error[:, t] ** 2).mean()), places=3)
        self.assertEqual([one["test"] for one in result["members"]],
                         [json.loads((self.member(name, k + 1) / "result.json").read_text())["test"] for k in range(members)])

    def check_events(self, path):
        """The members train one after the other, as one curve and one bar. Files and test errors are those of the ensemble."""
        told = [json.loads(line) for line in path.read_text().splitlines()]
        losses = [event for event in told if event["type"] == "metric" and event["name"] == "train_loss"]
        self.assertEqual([(event["epoch"], event["step"]) for event in losses], [(k, 5 * k) for k in range(1, 7)])
        rows = [json.loads(line) for line in (self.root / "members/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([(row["epoch"], row["step"], row["train_loss"]) for row in rows],
                         [(event["epoch"], event["step"], event["value"]) for event in losses])
        self.assertEqual([row["member"] for row in rows], [1, 1, 2, 2, 3, 3])
        tested = [event["name"] for event in told if event["type"] == "metric" and event["name"].startswith("test_")]
        self.assertEqual(tested, ["test_mae_ratio/amplitude", "test_mae_ratio/slope"])
        self.assertEqual([event["path"] for event in told if event["type"] == "artifact"],
                         [str(self.root / "members" / name) for name in ("model.pt", "predictions.csv")])
        steps = [(event["done"], event["total"]) for event in told if event["type"] == "progress"]
        self.assertEqual(steps[-1], (30, 30))
        self.assertEqual(steps, sorted(steps))

    def test_a_metric_of_the_user(self):
        self.train(self.config("measured", members=2, epochs=1, metrics={"error": "abs(prediction - target)"}))
        mae = self.result("measured")["test"]["targets"]["slope"]["mae"]
        self.assertIn(f"slope: error {mae:.4f}\n", self.ask("measured", self.root / "measured.h5"))

    def test_mean_and_spread_of_the_members(self):
        events = self.root / "members.events"
        config = self.config("members", members=3, seed=5, epochs=2)
        done = self.train(config, env={"WFLOW_EVENTS": str(events)})
        self.assertRegex(done.stdout, r"amplitude: ratio [\d.]+ of the mean, [\d.]+ to [\d.]+ of single members")
        self.assertRegex(done.stdout, r"within 1 deviation [\d.]+ % of the truths \(68.3 % .*\), within 2 [\d.]+ %")
        self.assertRegex(done.stdout, r"(?m)^member 3/3 epoch 2/2  loss")
        self.check_combination("members", 3)
        self.assertEqual([one["seed"] for one in self.result("members")["members"]], [5, 6, 7])
        self.check_events(events)
        # A member equals a training with its seed.
        for member, seed in ((1, 5), (2, 6)):
            self.train(self.config(f"alone{seed}", seed=seed, epochs=2))
            alone, _ = self.weights(f"alone{seed}")
            self.assertEqual(self.weights(f"members/member-{member}")[0], alone)
            self.assertEqual((self.member("members", member) / "predictions.csv").read_bytes(),
                             (self.root / f"alone{seed}/predictions.csv").read_bytes())
        self.assertNotEqual(self.weights("members/member-1")[0], alone)
        self.assertNotIn("members", (self.root / "alone5/train.yaml").read_text())
        # The table and the exported model have the values of predictions.h5.
        both = self.predictions(self.root / "members")
        self.ask("members", self.root / "again.csv")
        for path in (self.root / "members/predictions.csv", self.root / "again.csv"):
            rows = list(csv.DictReader(path.read_text().splitlines()))
            for t, target in enumerate(["amplitude", "slope"]):
                for key, name in (("predicted", "prediction"), ("deviation", "deviation")):
                    numpy.testing.assert_allclose([float(row[f"{target}_{key}"]) for row in rows], both[name][:, t],
                                                  rtol=1e-3, atol=1e-4)
        self.assertFalse((self.root / "members/model.onnx").exists())
        self.assertTrue((self.member("members", 3) / "model.onnx").exists())
        # One more member does not change the others.
        self.train(self.config("members", members=4, seed=5, epochs=2))
        self.assertEqual(self.weights("members/member-2")[0], alone)
        self.check_combination("members", 4)

    def test_the_model_runs_in_python(self):
        self.train(self.config("python", members=3, epochs=1), 2)
        both = self.predictions(self.root / "python")
        program = """
import sys, h5py, numpy, wflow
model = wflow.load_model(sys.argv[1] + "/python/model.pt")
with h5py.File(sys.argv[1] + "/shards/test/shard-00000.h5") as file:
    raw = file["x"][...]
    found = model(raw)
    each = model.module.members(__import__("torch").from_numpy(raw)).detach().numpy()
numpy.savez(sys.argv[1] + "/found.npz", found=found, each=each)
"""
        package = pathlib.Path(__file__).resolve().parents[1] / "python"
        subprocess.run([sys.executable, "-c", program, str(self.root)], check=True, timeout=120,
                       env={**os.environ, "PYTHONPATH": str(package)})
        with numpy.load(self.root / "found.npz") as file:
            count = len(file["found"])
            numpy.testing.assert_allclose(file["found"][:, :2], both["prediction"][:count], rtol=1e-4, atol=1e-5)
            numpy.testing.assert_allclose(file["found"][:, 2:], both["deviation"][:count], rtol=1e-2, atol=1e-4)
            numpy.testing.assert_allclose(file["each"].swapaxes(0, 1), both["member_prediction"][:count], rtol=1e-4, atol=1e-5)

    def test_ensembles_of_other_losses(self):
        self.train(self.config("sure", members=2, epochs=2, loss="gaussian", model={"name": "cnn", "width": 2}), 2)
        self.check_combination("sure", 2, gaussian=True)
        for network in ("unet", "vae"):
            self.train(self.config(network, members=2, epochs=1, model={"name": network, "width": 2, "depth": 1, "latent": 2},
                                   inputs=["x"], targets=["x"], augment=None))
            both = self.predictions(self.root / network)
            each = [self.predictions(self.member(network, k))["prediction"] for k in (1, 2)]
            numpy.testing.assert_allclose(both["prediction"], numpy.mean(each, axis=0), rtol=1e-5)
            numpy.testing.assert_allclose(both["deviation"], numpy.std(each, axis=0), rtol=1e-3, atol=1e-5)
        for name in ("sure", "unet", "vae"):
            path = self.root / f"{name}.h5"
            self.ask(name, path)
            both = self.predictions(self.root / name)
            with h5py.File(path) as file:
                for key in ("prediction", "deviation"):
                    numpy.testing.assert_allclose(file[key][...], both[key], rtol=1e-2, atol=1e-3)

    def test_classes_have_mean_probabilities(self):
        with tempfile.TemporaryDirectory(prefix="wflow-train-test-") as folder:
            root = pathlib.Path(folder)
            rng = numpy.random.default_rng(2)
            points = rng.uniform(-1, 1, (120, 2))
            lines = [f"{i},{x},{y},{int(x > 0) + int(y > 0)}" for i, (x, y) in enumerate(points)]
            (root / "table.csv").write_text("\n".join(["id,a,b,kind", *lines]) + "\n")
            (root / "convert.yaml").write_text(
                f"samples: {root}/table.csv\ninputs: [a, b]\ntargets: [kind]\n"
                f"split: {{train: 80, validation: 20, test: 20}}\noutput: {root}/shards\nname: classes\n")
            subprocess.run([PROGRAMS.convert, root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)
            self.train(self.config("classes", data=str(root / "shards"), members=3, model="mlp", loss="cross_entropy",
                                   transform=None, augment=None))
        each = [self.predictions(self.member("classes", k)) for k in (1, 2, 3)]
        both = self.predictions(self.root / "classes")
        shares = numpy.mean([one["probability"] for one in each], axis=0)
        numpy.testing.assert_allclose(both["probability"], shares, rtol=1e-5)
        numpy.testing.assert_array_equal(both["prediction"][:, 0], shares.argmax(axis=1))
        self.assertNotIn("deviation", both)
        test = self.result("classes")["test"]["targets"]["kind"]
        self.assertAlmostEqual(test["mae"], (both["prediction"] != both["truth"]).mean(), places=6)

    def test_sigkill_in_the_middle_gives_the_same_bits(self):
        keys = {"members": 3, "epochs": 20, "checkpoint": {"every_steps": 3}}
        self.train(self.config("unbroken", **keys))
        path = self.config("broken", **keys)
        for member in (1, 2, 3):
            self.kill_after_step(path, 6, folder=f"member-{member}/checkpoints")
            self.assertFalse((self.root / "broken/result.json").exists())
        self.train(path)
        for member in (1, 2, 3):
            found, header = self.weights(f"broken/member-{member}")
            self.assertEqual(found, self.weights(f"unbroken/member-{member}")[0])
            self.assertEqual(header["step"], 100)
        for key in ("test", "calibration"):
            self.assertEqual(self.result("broken")[key], self.result("unbroken")[key])
        self.assertEqual((self.root / "broken/predictions.csv").read_bytes(), (self.root / "unbroken/predictions.csv").read_bytes())

    def test_ranks_give_the_same_ensemble(self):
        keys = {"members": 2, "epochs": 1, "augment": None, "stage": "memory"}
        self.train(self.config("ranks1", **keys))
        self.train(self.config("ranks2", **keys), 2)
        one, two = (self.predictions(self.root / name) for name in ("ranks1", "ranks2"))
        numpy.testing.assert_allclose(one["prediction"], two["prediction"], rtol=1e-3, atol=1e-3)
        self.check_combination("ranks2", 2)

    def test_begins_with_the_members_of_another_ensemble(self):
        self.train(self.config("teachers", members=2, epochs=1))
        self.train(self.config("pupils", members=2, epochs=1, init_from=str(self.root / "teachers")))
        for member in (1, 2):
            begun = json.loads((self.member("pupils", member) / "result.json").read_text())["begun_from"]
            self.assertIn("epoch 1", begun)
        self.assertNotEqual(self.weights("pupils/member-1")[0], self.weights("pupils/member-2")[0])

    def test_fresh_forgets_every_member(self):
        config = self.config("fresh", members=2, epochs=1)
        self.train(config)
        self.train(self.config("fresh", members=2, epochs=2), code=4)  # the checkpoint of another training
        self.train(self.config("fresh", members=2, epochs=1), 1, "--fresh")
        self.assertEqual(self.weights("fresh/member-2")[1]["segments"], 1)

    def test_dry_run_names_seeds_and_totals(self):
        done = self.train(self.config("dry", members=5, seed=3), 1, "--dry-run")
        self.assertIn("members         5, seeds 3 to 7, one after the other: 100 steps and ", done.stdout)
        self.assertFalse((self.root / "dry").exists())
        for wrong in (0, 101, "many"):
            done = subprocess.run(self.command(self.config("wrong", members=wrong)), capture_output=True, text=True)
            self.assertEqual(done.returncode, 3)
            self.assertIn("'members' must be", done.stderr)


class Ranks(TrainRun):
    def test_two_ranks_take_the_steps_of_one(self):
        keys = {"model": {"name": "cosmoflow", "width": 3, "norm": "none"}, "epochs": 2,
                "optimizer": {"name": "sgd", "learning_rate": 0.002}}
        self.train(self.config("one", **keys))
        one, _ = self.weights("one")
        for ranks in (2, 3):
            self.train(self.config(f"many{ranks}", **keys), ranks)
            many, _ = self.weights(f"many{ranks}")
            a, b = numpy.frombuffer(one, numpy.float32), numpy.frombuffer(many, numpy.float32)
            self.assertLess(numpy.abs(a - b).max(), 1e-4 * numpy.abs(a).max())

    def test_networks_with_shortcuts_on_several_ranks(self):
        """The statistics of a batch norm are those of each rank: group norm makes the steps comparable."""
        field = {"inputs": ["x"], "targets": ["x"]}
        for name, keys in {
            "resnet": {"model": {"name": "resnet", "width": 2, "depth": 1, "blocks": 1, "norm": "group"}},
            "deeplab": {"model": {"name": "deeplab", "width": 2, "depth": 1, "blocks": 1, "dilations": [2], "norm": "group"}, **field},
            "tiramisu": {"model": {"name": "tiramisu", "width": 3, "depth": 1, "blocks": 2, "growth": 2, "norm": "group"}, **field},
        }.items():
            keys |= {"epochs": 1, "batch": 15, "optimizer": {"name": "sgd", "learning_rate": 0.002}}
            self.train(self.config(f"{name}1", **keys))
            one = numpy.frombuffer(self.weights(f"{name}1")[0], numpy.float32)
            for ranks in (2, 4):
                self.train(self.config(f"{name}{ranks}", **keys), ranks)
                many = numpy.frombuffer(self.weights(f"{name}{ranks}")[0], numpy.float32)
                self.assertLess(numpy.abs(one - many).max(), 1e-4 * numpy.abs(one).max())

    def test_ranks_without_samples_in_the_last_batch(self):
        # 30 samples in batches of 29: the last batch has one sample for three ranks.
        self.train(self.config("uneven", batch=29, epochs=2), 3)
        self.assertEqual(self.result("uneven")["steps"], 4)
        performance = self.result("uneven")["performance"]
        self.assertEqual(len(performance["peak_memory_bytes"]), 3)
        self.assertGreater(min(performance["peak_memory_bytes"]), 10 << 20)
        self.assertTrue(0 < performance["exposed_communication"] < 1)
        self.assertTrue(0 <= performance["data_wait"] < 1)

    def test_predicted_fields_of_all_ranks_are_in_the_file(self):
        keys = {"model": {"name": "unet", "width": 2, "depth": 1, "norm": "none"}, "inputs": ["x"], "targets": ["x"],
                "epochs": 1, "optimizer": {"name": "sgd", "learning_rate": 0.001}}
        files = []
        for ranks in (1, 3):
            self.train(self.config(f"fields{ranks}", **keys), ranks)
            with h5py.File(self.root / f"fields{ranks}/predictions.h5") as file:
                files.append({name: file[name][:] for name in ("id", "truth", "prediction")})
        numpy.testing.assert_array_equal(files[0]["id"], files[1]["id"])
        numpy.testing.assert_array_equal(files[0]["truth"], files[1]["truth"])
        numpy.testing.assert_allclose(files[0]["prediction"], files[1]["prediction"], rtol=1e-3, atol=1e-4)

    def test_same_ranks_same_bits(self):
        for name in ("bits1", "bits2"):
            self.train(self.config(name, epochs=2), 2)
        self.assertEqual(self.weights("bits1")[0], self.weights("bits2")[0])

    def test_groups_of_ranks_give_the_bits_of_one_node(self):
        # With groups of two, the tree of the sums is the same.
        self.train(self.config("node", epochs=1), 4)
        self.train(self.config("nodes", epochs=1), 4, env={"WFLOW_RANKS_PER_GROUP": "2"})
        self.assertEqual(self.weights("node")[0], self.weights("nodes")[0])

    def test_half_precision_between_nodes(self):
        keys = {"epochs": 3, "optimizer": {"name": "sgd", "learning_rate": 0.002}}
        groups = {"WFLOW_RANKS_PER_GROUP": "1"}
        self.train(self.config("full", **keys), 2, env=groups)
        keys["gradients"] = {"wire": "half"}
        self.train(self.config("half", **keys), 2, env=groups)
        # Stopped at a step inside an epoch and continued.
        self.train(self.config("halves", max_seconds=0.001, **keys), 2, env=groups, code=6)
        self.train(self.config("halves", **keys), 2, env=groups)
        full, half = (self.arrays(name) for name in ("full", "half"))
        # Momentum is a sum of a few gradients; steps are small against the weights.
        for kind, tolerance in (("parameter", 1e-3), ("momentum", 1 / 64)):
            self.assertFalse(numpy.array_equal(full[kind], half[kind]))
            self.assertLess(numpy.abs(full[kind] - half[kind]).max(), tolerance * numpy.abs(full[kind]).max())
        self.assertEqual(self.weights("half")[0], self.weights("halves")[0])

    def test_threads_and_bits(self):
        """Shows what docs/train.md promises: the same threads give the same bits, others round differently. Loader threads and cache change nothing."""
        for name, keys in {"conv": {}, "unet": {"model": {"name": "unet", "width": 2, "depth": 1}, "inputs": ["x"], "targets": ["x"]}}.items():
            for number, more in enumerate(({"threads": 2}, {"threads": 2, "loader_threads": 3, "cache": 0}, {"threads": 1})):
                self.train(self.config(f"{name}{number}", epochs=1, **keys, **more))
            first, again, other = (numpy.frombuffer(self.weights(f"{name}{number}")[0], numpy.float32) for number in range(3))
            numpy.testing.assert_array_equal(first.view(numpy.uint32), again.view(numpy.uint32))
            self.assertLess(numpy.abs(first - other).max(), 1e-2 * numpy.abs(first).max())

    def test_one_rank_needs_no_folder_for_temporary_files(self):
        # Its sums do not either: the bits are those of mpirun with one rank.
        self.train(self.config("alone", epochs=1), env={"TMPDIR": "/dev/null"})
        launched = subprocess.run([PROGRAMS.mpirun, "-n", "1", PROGRAMS.train, self.config("launched", epochs=1)], capture_output=True, text=True)
        self.assertEqual(launched.returncode, 0, launched.stdout + launched.stderr)
        self.assertEqual(self.weights("alone")[0], self.weights("launched")[0])

    def test_world_of_one_where_more_were_asked_for(self):
        path = self.config("world", ranks=2, epochs=1)
        done = self.train(path, code=5)
        self.assertRegex(done.stderr, r"asks for 2 ranks and MPI \((Open MPI|MPICH)")
        self.train(path, 1, "--allow-any-ranks")

    def test_a_rank_that_fails_ends_all(self):
        # The damage is in the middle of the first sample: one of the ranks reads it.
        shards = self.root / "damaged"
        shutil.copytree(self.root / "shards", shards)
        shard = sorted((shards / "train").glob("*.h5"))[0]
        with h5py.File(shard) as file:
            offset = int(file["wflow/index/x"][0][0])
        data = bytearray(shard.read_bytes())
        data[offset + 20] ^= 0xff
        shard.write_bytes(data)
        done = self.train(self.config("damage", data=str(shards)), 2, code=4)
        self.assertRegex(done.stderr, r"wflow-train: rank \d: .*shard-0000")


class SlowNodes(TrainRun):
    """A rank that sleeps in each step: what is said of it."""

    def slow(self, name, *options, nodes=3, **keys):
        events = self.root / f"{name}.events"
        env = {"WFLOW_EVENTS": str(events)}
        if nodes > 1:
            env["WFLOW_RANKS_PER_GROUP"] = "1"
        done = self.train(self.config(name, batch=6, **keys), 3, *options, env=env)
        rows = [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]
        return done, rows, [json.loads(line) for line in events.read_text().splitlines()]

    def test_names_the_node_that_the_others_wait_for(self):
        done, rows, events = self.slow("slow", "--inject-slow-rank", "rank=1,seconds=0.1", exclude_slow=1.5)
        node = f"{socket.gethostname()}/1"
        said = re.findall(r"node (\S+) takes [\d.]+ times as long as the others \(rank (\d): \S+ s of an epoch against \S+ s, computing\)",
                          done.stdout)
        self.assertEqual(set(said), {(node, "1")}, done.stdout)
        for row in rows:
            self.assertEqual((row["ranks"]["ranks"], row["ranks"]["slowest"]["rank"]), (3, 1))
            least, median, most = row["ranks"]["rank_wait"]
            self.assertLess(least, median)  # the slow one waits least
            self.assertGreater(row["ranks"]["computing"][2], 0.5)  # 5 steps
        result = self.result("slow")["ranks_this_segment"]
        self.assertEqual(result["slowest"]["name"], f"node {node}")
        self.assertIn(f"node {node} takes ", result["slow"])
        notes = [event["text"] for event in events if event["type"] == "note"]
        self.assertTrue(any(f"node {node} takes" in note for note in notes), notes)
        metrics = [event for event in events if event["type"] == "metric" and event["name"] == f"slow_node/{node}"]
        self.assertGreater(metrics[0]["value"], 1.2)
        asked = [event for event in events if event["type"] == "exclude_node"]
        self.assertEqual(asked[0]["node"], node)
        # There is a checkpoint to go on from when the campaign is asked.
        before = [event["type"] for event in events[:events.index(asked[0])]]
        self.assertIn("checkpoint", before)
        _, rows, events = self.slow("even", exclude_slow=1000)
        self.assertEqual(self.weights("even")[0], self.weights("slow")[0])
        self.assertNotIn("exclude_node", [event["type"] for event in events])

    def test_names_the_rank_where_there_is_one_node(self):
        done, _, events = self.slow("one", "--inject-slow-rank", "rank=2,seconds=0.1", nodes=1, exclude_slow=1.5)
        self.assertRegex(done.stdout, rf"rank 2 of node {socket.gethostname()} takes [\d.]+ times as long as the others \(\S+ s of an epoch")
        self.assertNotIn("exclude_node", [event["type"] for event in events])

    def test_wrong_delays(self):
        for wrong in ("rank=1", "seconds=1,node=3", "rank=x,seconds=1"):
            self.assertIn("--inject-slow-rank", self.train(self.config("wrong"), 1, "--inject-slow-rank", wrong, code=2).stderr)


class SharedState(TrainRun):
    """`shard`: the bits of a training whose ranks have the whole state."""

    MODEL = {"name": "mlp", "dense": [96, 80]}  # 17 blocks of 4,096 weights, of which two to nine are a rank's
    STAGES = ("optimizer", "gradients", "weights")

    def numbers(self, name, **keys):
        return self.config(name, **{"inputs": ["x"], "model": self.MODEL, "epochs": 2, "augment": [], **keys})

    def test_every_optimizer_has_the_bits_of_the_whole_state(self):
        for name, keys in {
            "sgd": {"optimizer": {"name": "sgd", "learning_rate": 0.002, "nesterov": True}},
            "adamw": {"optimizer": {"name": "adamw", "learning_rate": 0.003, "clip_norm": 0.1}, "ema": 0.9},
            "lars": {"optimizer": {"name": "lars", "learning_rate": 1}},
            "larc": {"optimizer": {"name": "larc", "learning_rate": 0.1}},
            "lamb": {"optimizer": {"name": "lamb", "learning_rate": 0.01}},
        }.items():
            stages = self.STAGES if name in ("adamw", "lamb") else ("weights",)
            self.equal_in_stages(name, self.numbers, 2, stages, **keys)

    def equal_in_stages(self, name, config, ranks, stages=("gradients", "weights"), env=None, **keys):
        self.train(config(name, **keys), ranks, env=env)
        whole, header = self.weights(name)
        result = self.result(name)
        for stage in stages:
            self.train(config(f"{name}_{stage}", shard=stage, **keys), ranks, env=env)
            shared, shared_header = self.weights(f"{name}_{stage}")
            self.assertEqual(whole, shared, (name, stage))
            self.assertEqual(header["arrays"], shared_header["arrays"])
            self.assertEqual(self.result(f"{name}_{stage}")["test"], result["test"])

    def result(self, name):
        return json.loads((self.root / name / "result.json").read_text())

    def test_between_nodes(self):
        # Two groups of two ranks, which act as nodes; their sums travel in 16 bits.
        keys = {"gradients": {"wire": "half"}, "optimizer": {"name": "adamw", "clip_norm": 0.1}}
        self.equal_in_stages("nodes", self.numbers, 4, env={"WFLOW_RANKS_PER_GROUP": "2"}, **keys)

    def test_passes_that_some_ranks_do_not_make(self):
        # 30 samples in batches of 7: the last one has 2, for four ranks. Passes are added up, or sums come a step late.
        for name, keys in {
            "accumulate": {"batch": 7, "accumulate": 2},
            "lag": {"batch": 7, "optimizer": {"name": "adamw", "lag": 1}},
            "noise": {"batch": 7, "noise_scale": 2},
            "norms": {"batch": 7, "model": {"name": "cosmoflow", "width": 3, "norm": "batch"}, "ema": 0.9},
        }.items():
            self.equal_in_stages(name, self.numbers, 4, **keys)

    def test_with_a_grid(self):
        keys = {"model": {"name": "cosmoflow", "width": 16}, "grid": [2, 1, 1], "batch": 5}
        self.equal_in_stages("shared_samples", lambda name, **more: self.numbers(name, ranks=4, **more), 4, **keys)

    def test_an_autoencoder_layer_by_layer(self):
        """Each training has one new pair of layers, between frozen ones of the trainings before."""
        sizes = (CELLS**3, 96, 48, 24)
        for stage in (1, 2, 3):
            layers, parts = ["flatten"], {}
            for k in range(1, stage + 1):
                layers += [{"dense": sizes[k], "name": f"code{k}", "part": f"encoder{k}"}, "tanh"]
            for k in range(stage, 0, -1):
                layers += [{"dense": sizes[k - 1], "name": f"back{k}", "part": f"decoder{k}"}] + (["tanh"] if k > 1 else [])
            layers.append({"reshape": [1, CELLS, CELLS, CELLS]})
            for k in range(1, stage):
                parts |= {f"{half}{k}": {"freeze": True, "init_from": str(self.root / f"stage_{stage - 1}")} for half in ("encoder", "decoder")}
            keys = {"inputs": ["x"], "targets": ["x"], "model": {"layers": layers}, "parts": parts or None, "augment": [], "epochs": 8,
                    "optimizer": {"name": "adamw", "learning_rate": 0.003}}
            self.train(self.config(f"whole_{stage}", **keys), 2)
            self.train(self.config(f"stage_{stage}", shard="weights", **keys), 2)
            self.assertEqual(self.weights(f"stage_{stage}")[0], self.weights(f"whole_{stage}")[0])
            values, header = self.weights(f"stage_{stage}")
            arrays = {(a["kind"], a["name"]): values[a["offset"]:a["offset"] + 4 * int(numpy.prod(a["shape"]))] for a in header["arrays"]}
            learns = {name.split(".")[0] for kind, name in arrays if kind == "first_moment"}
            self.assertEqual(learns, {f"code{stage}", f"back{stage}"}, "frozen layers have no state")
            if stage > 1:
                for name in (f"code{stage - 1}.weight", f"back{stage - 1}.weight"):
                    self.assertEqual(arrays["parameter", name], before["parameter", name])
            before = arrays
            losses = [row["train_loss"] for row in header["history"]]
            self.assertLess(losses[-1], losses[0])

    def test_frozen_layers_take_no_more_memory_with_every_step(self):
        # 8 MiB of frozen weights, of which half is another rank's; 80 steps.
        layers = ["flatten", {"dense": 4096, "part": "encoder"}, "relu", {"dense": 2, "part": "head"}]
        keys = {"model": {"layers": layers}, "epochs": 20, "shard": "gradients"}
        peaks = []
        for name, parts in (("learns", None), ("frozen", {"encoder": {"freeze": True}})):
            self.train(self.numbers(f"grows_{name}", parts=parts, **keys), 2)
            peaks.append(max(self.result(f"grows_{name}")["performance"]["peak_memory_bytes"]))
        self.assertLess(peaks[1], peaks[0] + (32 << 20), peaks)

    def test_goes_on_with_other_ranks_and_without_shares(self):
        keys = {"epochs": 4, "optimizer": {"name": "adamw", "learning_rate": 0.003}}
        self.train(self.numbers("steady", **keys), 4)
        whole, header = self.weights("steady")
        last = f"step-{header['step']:012}.wfck"
        first = self.numbers("moved", shard="optimizer", **keys)
        self.kill_after_step(first, 1, 4)
        # Shares of another size, then none, then again as it began.
        moves = ((2, "optimizer", "two"), (4, "none", "none"), (4, "optimizer", "four"), (4, "gradients", "gradients"),
                 (4, "weights", "weights"), (2, "weights", "two_weights"))
        for ranks, shard, name in moves:
            shutil.copytree(self.root / "moved", self.root / name)
            for path in (self.root / name / "checkpoints").glob(last):
                path.unlink()
            done = self.train(self.numbers(name, shard=shard, **keys), ranks)
            self.assertIn("continued from epoch", done.stdout)
            if ranks == 4:
                self.assertEqual(self.weights(name)[0], whole, name)

    def test_the_guard_goes_back_to_shares(self):
        for stage in ("optimizer", "weights"):
            keys = {"epochs": 3, "shard": stage, "checkpoint": {"every_steps": 5}}
            self.train(self.numbers(f"sound_{stage}", **keys), 2)
            done = self.train(self.numbers(f"flipped_{stage}", **keys), 2, "--inject-bit-flips", "gradients,step=8,bit=30")
            self.assertIn("going back to step", done.stdout + done.stderr)
            self.assertEqual(self.weights(f"flipped_{stage}")[0], self.weights(f"sound_{stage}")[0])

    def test_parts_with_settings_of_their_own(self):
        for name, settings in {"rate": {"rate": 0.5}, "frozen": {"freeze": True}}.items():
            self.equal_in_stages(name, self.config, 2, parts={"encoder": settings})


class Restarts(TrainRun):
    def reference(self, name, ranks, **keys):
        self.train(self.config(name, **keys), ranks)
        return self.weights(name)

    def test_sigkill_at_any_time_gives_the_same_bits(self):
        keys = {"epochs": 30, "checkpoint": {"every_steps": 3, "keep_last": 2}, "select": "best"}
        whole, header = self.reference("unbroken", 2, **keys)
        path = self.config("broken", **keys)
        for least in (1, 40, 90):
            self.kill_after_step(path, least, 2)
        left = self.root / "broken/tensorboard/.events.tmp-1-0-1"  # as of a kill in the middle of writing it
        left.touch()
        done = self.train(path, 2)
        self.assertFalse(left.exists())
        self.assertRegex(done.stdout, r"continued from epoch \d+, step \d+")
        broken, broken_header = self.weights("broken")
        self.assertEqual(broken, whole)
        self.assertEqual(broken_header["history"][-1]["train_loss"], header["history"][-1]["train_loss"])
        self.assertEqual(self.result("broken")["test"], self.result("unbroken")["test"])
        self.assertEqual(len((self.root / "broken/metrics.csv").read_text().splitlines()), 31)
        self.check_tensorboard("broken")
        self.assertEqual(list((self.root / "broken/checkpoints").glob("*.tmp*")), [])

    def test_every_family_continues_with_the_same_bits(self):
        listed = [{"convolution": 4}, "group_norm", "silu", {"max_pool": 2}, {"dropout": 0.2}, "global_mean", {"dense": 2}]
        more = [{"convolution": 8, "dilation": 2}, {"convolution": 8, "groups": 4}, "instance_norm", {"resize": 0.5}, {"pixel_shuffle": 2},
                {"slice": [1, 7], "axis": "depth"}, "flatten", {"gather": [0, 5, 9]}, {"dense": 2}]
        field = {"inputs": ["x"], "targets": ["x"]}
        for name, keys in {
            "data": {"model": {"name": "cosmoflow", "width": 3, "init": "data"}, "ema": 0.9},
            "mlperf": {"model": {"name": "mlperf", "width": 4}, "optimizer": {"name": "sgd", "clip_norm": 0.1}},
            "sc18": {"model": {"name": "sc18", "width": 2, "dense": [8]}, "optimizer": "larc"},
            "mlp": {"model": {"name": "mlp", "dense": [8], "dropout": 0.1}, "inputs": ["slope"], "targets": ["amplitude"],
                    "augment": None, "transform": None, "optimizer": "lamb"},
            "cnn": {"model": {"name": "cnn", "width": 2, "norm": "batch"}, "loss": "gaussian", "accumulate": 2},
            "unet": {"model": {"name": "unet", "width": 2, "depth": 1}, **field},
            "resnet": {"model": {"name": "resnet", "width": 2, "depth": 1, "blocks": 1}},
            "deeplab": {"model": {"name": "deeplab", "width": 2, "depth": 1, "blocks": 1, "dilations": [2]}, **field},
            "tiramisu": {"model": {"name": "tiramisu", "width": 3, "depth": 1, "blocks": 2, "growth": 2, "dropout": 0.1}, **field},
            "decoder": {"model": {"name": "decoder", "width": 2, "dense": [8]}, "augment": None, "optimizer": "lars"},
            "autoencoder": {"model": {"name": "autoencoder", "width": 2, "latent": 3}, "loss": "huber"},
            "noisy": {"model": {"name": "cosmoflow", "width": 2}, "augment": ["permute", {"noise": 0.1}]},
            "vae": {"model": {"name": "vae", "width": 2, "latent": 3}, "schedule": "one_cycle"},
            "listed": {"model": {"layers": listed}, "optimizer": {"name": "adam", "larc_trust": 0.02}},
            "more": {"model": {"layers": more}},
            "lagging": {"model": {"name": "cosmoflow", "width": 3}, "optimizer": {"name": "sgd", "learning_rate": 0.0005, "lag": 1}},
            "half": {"model": {"name": "cosmoflow", "width": 3}, "precision": "fp16"},
            "fno": {"model": {"name": "fno", "width": 3, "depth": 2, "modes": 3, "dense": [8]}, "augment": None, **field},
            "conv_lstm": {"model": {"name": "conv_lstm", "width": 3, "dense": [8], "dropout": 0.1}, "augment": None},
            "plateau": {"model": {"name": "cosmoflow", "width": 3}, "optimizer": {"learning_rate": 0.05},
                        "schedule": {"decay": "plateau", "plateau_epochs": 1, "step_factor": 0.5}},
            "growing": {"model": {"name": "cnn", "width": 2, "norm": "batch"}, "schedule": {"batch_epochs": [1, 3]}, "noise_scale": 2},
        }.items():
            with self.subTest(name):
                keys = {"epochs": 12, "checkpoint": {"every_steps": 1, "keep_last": 2}, **keys}
                whole, _ = self.reference(f"{name}-whole", 1, **keys)
                path = self.config(f"{name}-killed", **keys)
                self.kill_after_step(path, 7)
                self.assertRegex(self.train(path).stdout, r"continued from epoch \d+, step \d+")
                self.assertEqual(self.weights(f"{name}-killed")[0], whole)
                self.assertEqual(self.result(f"{name}-killed")["test"], self.result(f"{name}-whole")["test"])

    def test_a_lagging_gradient_is_of_the_weights_before(self):
        """Two steps of an epoch compute their gradients with the same weights: they equal one step of twice the batch and the rate."""
        keys = {"epochs": 1, "augment": None, "model": {"name": "cosmoflow", "width": 3}, "schedule": "none"}
        sgd = {"name": "sgd", "momentum": 0}

        def parameters(name, ranks=1, **optimizer):
            values, header = self.reference(name, ranks, optimizer={**sgd, **optimizer}, **keys | {"batch": 30 if name == "one-step" else 15})
            return numpy.concatenate([numpy.frombuffer(values, numpy.float32, int(numpy.prod(a["shape"])), a["offset"])
                                      for a in header["arrays"] if a["kind"] == "parameter"])
        whole = parameters("one-step", learning_rate=0.004)
        for ranks in (1, 2):
            lagging = parameters(f"two-steps-{ranks}", ranks, learning_rate=0.002, lag=1)
            self.assertLess(numpy.abs(whole - lagging).max(), 1e-5 * numpy.abs(whole).max())
        apart = parameters("two-steps-apart", learning_rate=0.002)
        self.assertGreater(numpy.abs(whole - apart).max(), 1e-4 * numpy.abs(whole).max())

    def test_a_scaled_loss_trains_as_without(self):
        """The first steps of fp16 overflow. They are left out, and the scale halves until no step overflows."""
        keys = {"epochs": 12, "model": {"name": "cosmoflow", "width": 3}}
        self.train(self.config("full", **keys))
        self.train(self.config("scaled", precision="fp16", **keys))
        scale, good_steps = self.weights("scaled")[1]["loss_scale"]
        self.assertLess(scale, 65536)
        self.assertGreater(good_steps, 30)
        self.assertEqual(self.result("scaled")["precision"], "fp16")
        full, scaled = (self.result(name)["test"]["loss"] for name in ("full", "scaled"))
        self.assertLess(abs(scaled - full), 0.25 * full)

    def test_signal_writes_a_checkpoint_and_ends_with_6(self):
        keys = {"epochs": 25}
        whole, _ = self.reference("calm", 1, **keys)
        path = self.config("asked", **keys)
        process = subprocess.Popen(self.command(path), stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("epoch 2/"):
                break
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 6, rest)
        self.assertIn("the same command continues", rest)
        self.train(path)
        self.assertEqual(self.weights("asked")[0], whole)

    def test_time_limit_on_two_ranks(self):
        path = self.config("limited", epochs=100000, max_seconds=1)
        done = self.train(path, 2, code=6)
        self.assertIn("stopped at epoch", done.stdout)

    def test_average_and_norms_survive_a_restart(self):
        keys = {"epochs": 6, "ema": 0.9, "model": {"name": "cosmoflow", "width": 3, "norm": "batch"}, "select": "best"}
        whole, _ = self.reference("averaged", 1, **keys)
        path = self.config("averaged2", **keys)
        self.train(path)
        for name in ("step-000000000030.wfck",):
            (self.root / "averaged2/checkpoints" / name).unlink()
        self.assertIn("continued from epoch 5, step 25", self.train(path).stdout)
        self.assertEqual(self.weights("averaged2")[0], whole)
        self.assertEqual(self.result("averaged2")["test"], self.result("averaged")["test"])

    def test_other_ranks_continue_with_the_same_order(self):
        keys = {"model": {"name": "cosmoflow", "width": 3, "norm": "none"}, "epochs": 3,
                "optimizer": {"name": "sgd", "learning_rate": 0.002}}
        whole, _ = self.reference("steady", 1, **keys)
        path = self.config("moved", **keys)
        self.train(path)
        (self.root / "moved/checkpoints/step-000000000015.wfck").unlink()
        done = self.train(path, 2)
        self.assertIn("continued from epoch 2, step 10", done.stdout)
        a, b = (numpy.frombuffer(w, numpy.float32) for w in (whole, self.weights("moved")[0]))
        self.assertLess(numpy.abs(a - b).max(), 1e-4 * numpy.abs(a).max())

    def test_damaged_newest_falls_back(self):
        keys = {"epochs": 3}
        whole, _ = self.reference("sound", 1, **keys)
        path = self.root / "sound/checkpoints/step-000000000015.wfck"
        path.write_bytes(path.read_bytes()[:1000])
        done = self.train(self.root / "sound.yaml")
        self.assertIn("is damaged", done.stderr)
        self.assertIn("continued from epoch 2, step 10", done.stdout)
        self.assertEqual(self.weights("sound")[0], whole)

    def test_other_configuration_is_refused(self):
        self.train(self.config("first", epochs=1))
        path = self.config("first", epochs=1, seed=9)
        done = self.train(path, code=4)
        self.assertIn("'seed' was 1 and is 9; use --fresh to start anew", done.stderr)
        self.assertIn("epoch 1/1", self.train(path, 1, "--fresh").stdout)


class Guard(TrainRun):
    def arrays(self, name, ranks=1, *flips, **keys):
        options = [word for flip in flips for word in ("--inject-bit-flips", flip)]
        done = self.train(self.config(name, epochs=8, **keys), ranks, *options)
        self.assertEqual(done.stderr.count("injected"), len(flips), done.stderr)
        return self.weights(name)[0], self.result(name)["rollbacks"], done.stdout + done.stderr

    def test_a_flipped_bit_leaves_no_trace(self):
        """Flips bits of the exponent: in a weight, an output, a gradient, and Adam's second moment."""
        clean, rollbacks, _ = self.arrays("clean")
        self.assertEqual(rollbacks, 0)
        for number, flip in enumerate(("weights,step=33,bit=30,seed=5", "activations,step=31,bit=30",
                                       "gradients,step=27,bit=30", "optimizer,step=36,bit=31,seed=2",
                                       "weights,step=2,bit=30")):
            with self.subTest(flip=flip):
                mended, rollbacks, said = self.arrays(f"flip{number}", 1, flip)
                self.assertEqual(mended, clean, said)
                self.assertEqual(rollbacks, 1)
                self.assertIn("going back to step", said)
                self.assertRegex(said, "warning: the (loss|gradient) of step .* when computed again: memory or a processor has failed")
                self.check_tensorboard(f"flip{number}")
        # Without the guard the flip changes the result.
        harmed, rollbacks, _ = self.arrays("unguarded", 1, "weights,step=33,bit=29,seed=5", guard=False)
        self.assertNotEqual(harmed, clean)
        self.assertEqual(rollbacks, 0)

    def test_ranks_that_differ(self):
        """The lowest bit of a weight changes no loss."""
        clean, _, _ = self.arrays("two", 2)
        for number, keys in enumerate(({}, {"guard": {"agree_every": 3}})):
            mended, rollbacks, said = self.arrays(f"two{number}", 2, "weights,step=23,bit=0,rank=1", **keys)
            self.assertEqual(mended, clean, said)
            self.assertEqual(rollbacks, 1)
            self.assertIn("differ from the others'", said)

    def test_it_gives_up(self):
        done = self.train(self.config("often", epochs=8, guard={"rollbacks": 1}), 1, "--inject-bit-flips", "weights,step=3,bit=30",
                          "--inject-bit-flips", "weights,step=9,bit=30", code=4)
        self.assertIn("the training has gone back 1 time", done.stderr)

    def test_wrong_flips(self):
        for flip in ("disk", "weights,bit=40"):
            self.assertIn("--inject-bit-flips", self.train(self.config("wrong"), 1, "--inject-bit-flips", flip, code=2).stderr)


class Schedules(TrainRun):
    def rows(self, name):
        return [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]

    def test_a_plateau_lowers_the_rate(self):
        keys = {"epochs": 12, "optimizer": {"learning_rate": 0.05}, "schedule": {"decay": "plateau", "plateau_epochs": 1, "step_factor": 0.5}}
        done = self.train(self.config("plateau", **keys))
        rows = self.rows("plateau")
        rate, best = 0.05, math.inf
        for row in rows:  # the rule, from the validation losses
            self.assertEqual(row["learning_rate"], rate)
            rate *= 1 if row["validation_loss"] < best else 0.5
            best = min(best, row["validation_loss"])
        self.assertLess(rate, 0.05)
        self.assertEqual(len(re.findall("the learning rate falls after epoch", done.stdout)), self.weights("plateau")[1]["plateaus"])
        self.train(self.config("plateau2", **keys), 2)
        self.assertLess(self.weights("plateau2")[1]["history"][-1]["learning_rate"], 0.05)

    def test_the_batch_grows(self):
        keys = {"epochs": 4, "augment": None, "optimizer": {"name": "sgd", "learning_rate": 0.002}, "model": {"name": "cosmoflow", "width": 3},
                "schedule": {"decay": "none", "batch_epochs": [1, 2], "batch_factor": 2}}
        self.train(self.config("growing", **keys))
        rows = self.rows("growing")
        self.assertEqual([row["batch"] for row in rows], [7, 14, 28, 28])
        self.assertEqual([row["step"] for row in rows], [5, 8, 10, 12])  # 30 samples: 5, 3, 2 and 2 steps
        self.assertEqual({row["learning_rate"] for row in rows}, {0.002})
        self.assertEqual(self.result("growing")["steps"], 12)
        with open(self.root / "growing/metrics.csv") as file:
            self.assertEqual([int(row["batch"]) for row in csv.DictReader(file)], [7, 14, 28, 28])
        self.assertIn("batch 28 and 2 steps an epoch after epoch 2", self.train(self.config("growing", **keys), 1, "--dry-run").stdout)
        one = self.arrays("growing")["parameter"]
        self.train(self.config("growing3", **keys), 3)
        self.assertLess(numpy.abs(self.arrays("growing3")["parameter"] - one).max(), 1e-4 * numpy.abs(one).max())

    def test_the_noise_scale_changes_nothing_else(self):
        keys = {"epochs": 3, "batch": 10, "augment": None}
        for ranks in (1, 2):
            self.train(self.config(f"plain{ranks}", **keys), ranks)
            events = self.root / f"noise{ranks}.jsonl"
            self.train(self.config(f"noise{ranks}", noise_scale=1, **keys), ranks, env={"WFLOW_EVENTS": str(events)})
            self.assertEqual(self.weights(f"noise{ranks}")[0], self.weights(f"plain{ranks}")[0])
            scale = self.result(f"noise{ranks}")["noise_scale"]
            self.assertEqual(len(scale["epochs"]), 3)
            self.assertEqual(scale["measurements"], 6)  # two epochs of three steps
            self.assertEqual([row["noise_scale"] for row in self.rows(f"noise{ranks}")], scale["epochs"])
            self.assertNotIn("noise_scale", self.result(f"plain{ranks}"))

    def test_the_noise_of_a_known_gradient(self):
        """With weights of 0 and a rate of 0, the gradient of a sample is -2 t (x, 1) in every step."""
        self.train(self.config("known", epochs=200, batch=30, inputs=["slope"], targets=["amplitude"], augment=None, transform=None,
                               model={"layers": [{"dense": 1, "init": "zero"}]}, noise_scale=1,
                               optimizer={"name": "sgd", "learning_rate": 0}, checkpoint={"every_epochs": 0}))
        header = self.weights("known")[1]
        labels = []
        for shard in glob.glob(str(self.root / "shards/train/*.h5")):
            with h5py.File(shard) as file:
                labels.extend(file["y"][:])
        amplitude, slope = numpy.array(labels).T
        normal = header["normalisation"]
        t = (amplitude - normal["y_mean"][0]) / normal["y_std"][0]
        x = (slope - normal["numbers_mean"][0]) / normal["numbers_std"][0]
        gradients = -2 * t[:, None] * numpy.stack([x, numpy.ones_like(x)], axis=1)
        noise = numpy.array([row["noise"] for row in header["history"]])
        self.assertEqual(set(noise[:, 2]), {1})
        whole = (gradients.mean(axis=0) ** 2).sum()
        self.assertLess(numpy.abs(noise[:, 1] + noise[:, 0] / 30 - whole).max(), 1e-4 * (1 + whole))
        trace = gradients.var(axis=0, ddof=1).sum()
        self.assertLess(abs(noise[:, 0].mean() / trace - 1), 0.2)

    def test_a_large_run_is_predicted_from_small_ones(self):
        small = {"epochs": 3, "batch": 5, "augment": None, "noise_scale": 1, "optimizer": {"name": "sgd", "learning_rate": 0.001}}
        self.train(self.config("small1", **small))
        self.train(self.config("small2", **small | {"seed": 2}))
        large = self.config("large", **small | {"batch": 30, "model": {"name": "cosmoflow", "width": 5}})
        folders = [self.root / "small1", self.root / "small2"]
        done = self.train(large, 1, "--scale-from", str(folders[0]), "--scale-from", str(folders[1]))
        scale = numpy.median([self.result(folder.name)["noise_scale"]["second_half"] for folder in folders])
        rate = float(re.search(r"learning_rate: ([^}]+)}", done.stdout)[1])
        self.assertAlmostEqual(rate / (0.001 * (1 + scale / 5) / (1 + scale / 30)), 1, delta=0.01)
        self.assertRegex(done.stdout, r"(?m)^ +30 .* your file$")
        self.assertIn("'model.width' was 3 and is 5", done.stdout)
        self.assertFalse((self.root / "large").exists())
        self.train(self.config("small3", **small | {"noise_scale": None, "epochs": 1}))
        done = self.train(large, 1, "--scale-from", str(self.root / "small3"), code=4)
        self.assertIn("has no gradient noise scale: train it with 'noise_scale: 5'", done.stderr)
        other = self.config("other", **small | {"optimizer": "adamw"})
        self.assertIn("was trained with sgd", self.train(other, 1, "--scale-from", str(folders[0]), code=3).stderr)

    def test_a_loss_of_the_user(self):
        """A formula takes the steps of the loss that it writes out."""
        keys = {"epochs": 3, "optimizer": {"name": "sgd", "learning_rate": 0.002}}
        self.train(self.config("mse", loss="mse", **keys))
        self.train(self.config("formula", loss={"formula": "(prediction - target)^2"}, **keys))
        self.train(self.config("both", **keys, loss={"formula": "0.5 * (prediction.slope - target.slope)^2 + "
                                                                "0.5 * (prediction.amplitude - target.amplitude)^2"}))
        expected = self.arrays("mse")["parameter"]
        for name in ("formula", "both"):
            self.assertLess(numpy.abs(self.arrays(name)["parameter"] - expected).max(), 1e-6 * numpy.abs(expected).max())
            self.assertAlmostEqual(self.result(name)["test"]["loss"] / self.result("mse")["test"]["loss"], 1, places=5)
        self.assertIn("the targets are amplitude, slope",
                      self.train(self.config("unknown", loss={"formula": "prediction.mass"}), code=3).stderr)

    def test_metrics_of_the_user(self):
        """In physical units, also where a transform is undone, on any number of ranks; epochs are compared by one of them."""
        keys = {"inputs": ["amplitude"], "targets": ["slope"], "model": "mlp", "transform": None, "augment": None, "epochs": 12, "select": "best",
                "metrics": {"error": "abs(prediction - target)", "relative": "abs(prediction - target) / (1 + abs(target))"}, "metric": "relative"}
        done = self.train(self.config("own", **keys))
        self.assertRegex(done.stdout, r"slope: error [0-9.]+, relative [0-9.]+")
        with h5py.File(self.root / "own/predictions.h5") as file:
            truth, prediction = file["truth"][:], file["prediction"][:]
        found = self.result("own")["test"]["targets"]["slope"]
        self.assertAlmostEqual(found["metrics"]["relative"], (numpy.abs(prediction - truth) / (1 + numpy.abs(truth))).mean(), places=5)
        self.assertAlmostEqual(found["metrics"]["error"], found["mae"], places=9)
        rows = [json.loads(line) for line in (self.root / "own/metrics.jsonl").read_text().splitlines()]
        values = [row["validation"]["slope"]["relative"] for row in rows]
        self.assertEqual(self.result("own")["selected_epoch"], 1 + numpy.argmin(values))
        with open(self.root / "own/metrics.csv") as file:
            self.assertEqual([float(row["validation_relative/slope"]) for row in csv.DictReader(file)], values)
        self.check_tensorboard("own")
        again = self.predict(self.root / "own", self.root / "shards", "--split", "test", "-o", self.root / "own.h5").stderr
        self.assertIn("slope: error {error:.4f}, relative {relative:.4f}\n".format(**found["metrics"]), again)
        # A field whose transform the model undoes, beside numbers, of two targets together.
        heads = [{"name": "numbers", "targets": ["amplitude", "slope"]}, {"name": "field", "targets": ["x"]}]
        keys = {"inputs": ["x"], "heads": heads, "model": {"name": "autoencoder", "width": 2, "latent": 3, "dense": [8]}, "epochs": 2, "augment": None,
                "metrics": {"squares": "(prediction - target)^2", "both": "prediction.amplitude * target.slope"}}
        for ranks in (1, 2):
            self.train(self.config(f"fields{ranks}", **keys, optimizer={"name": "sgd", "learning_rate": 0}), ranks)
        one, two = (self.result(f"fields{ranks}")["test"]["targets"] for ranks in (1, 2))
        for target in one:
            self.assertAlmostEqual(one[target]["metrics"]["squares"] / one[target]["mse"], 1, places=5)
            self.assertEqual(set(one[target]["metrics"]), {"squares", "both"} if target == "amplitude" else {"squares"})
            for name, value in one[target]["metrics"].items():
                self.assertAlmostEqual(two[target]["metrics"][name] / value, 1, places=6)
        with h5py.File(self.root / "fields1/predictions.h5") as file:
            expected = (file["numbers/prediction"][:, 0] * file["numbers/truth"][:, 1]).mean()
        self.assertAlmostEqual(one["amplitude"]["metrics"]["both"] / expected, 1, places=4)
        again = self.predict(self.root / "fields1", self.root / "shards", "--split", "test", "-o", self.root / "fields.h5").stderr
        self.assertIn("amplitude: squares {squares:.4f}, both {both:.4f}\n".format(**one["amplitude"]["metrics"]), again)
        self.assertIn("\nx: squares {squares:.4f}\n".format(**one["x"]["metrics"]), again)
        for metrics, message in (({"m": "prediction.mass"}, "the metric 'm' is 'prediction.mass', which needs targets that no head has"),
                                 ({"m": "prediction + truth"}, "'truth' is unknown")):
            done = self.train(self.config("wrong", **{**keys, "metrics": metrics}), 2, code=3)
            self.assertEqual(done.stderr.count(message), 1, done.stderr)

    def test_one_rank_reports_an_unknown_target_of_a_formula(self):
        keys = {"targets": ["slope"], "loss": {"formula": "(prediction.slope - target.mass)^2"}}
        done = self.train(self.config("unknown", **keys), 2, code=3)
        self.assertEqual(done.stderr.count("the formula of the loss has 'target.mass'"), 1, done.stderr)

    def test_rates_are_found_without_a_trace(self):
        path = self.config("finder", optimizer={"name": "adamw"}, epochs=2)
        self.train(path)
        before = {p: p.read_bytes() for p in (self.root / "finder").rglob("*") if p.is_file()}
        done = self.train(path, 1, "--find-rate")
        rate = float(re.search(r"learning_rate: (\S+)\}", done.stdout)[1])
        self.assertTrue(1e-4 < rate < 0.2, done.stdout)
        with open(self.root / "finder/find_rate.csv") as file:
            rows = list(csv.DictReader(file))
        self.assertGreater(len(rows), 40)
        self.assertAlmostEqual(float(rows[0]["learning_rate"]), 2e-7)
        for one, other in zip(rows, rows[1:]):
            self.assertAlmostEqual(float(other["learning_rate"]) / float(one["learning_rate"]), 1e8 ** (1 / 119))
        self.assertEqual({p: p.read_bytes() for p in (self.root / "finder").rglob("*") if p.is_file() and p.name != "find_rate.csv"}, before)
        again = (self.root / "finder/find_rate.csv").read_text()
        self.train(path, 1, "--find-rate")
        self.assertEqual((self.root / "finder/find_rate.csv").read_text(), again)
        self.train(path, 2, "--find-rate")
        two = numpy.genfromtxt(self.root / "finder/find_rate.csv", delimiter=",", skip_header=1)
        one = numpy.genfromtxt(again.splitlines(), delimiter=",", skip_header=1)
        self.assertLess(numpy.abs(two[:30, 2] / one[:30, 2] - 1).max(), 1e-3)


class WrongInput(TrainRun):
    def test_spec_errors(self):
        path = self.config("wrong", epohcs=3, batch="x")
        done = self.train(path, code=3)
        self.assertIn("did you mean 'epochs'?", done.stderr)
        self.assertIn("'batch' must be a whole number", done.stderr)
        done = self.train(self.config("label", targets=["amplitud"]), code=3)
        self.assertIn("did you mean 'amplitude'?", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_key_without_effect_is_warned_of_once(self):
        path = self.config("idle", epochs=1, model={"name": "cosmoflow", "width": 3, "modes": 4})
        sentence = "warning: 'modes' has no effect in the model: block: it is a key of fno; remove it"
        for ranks, options in ((2, ()), (1, ("--dry-run",)), (1, ("--plan",))):
            self.assertEqual(self.train(path, ranks, *options).stderr.count(sentence), 1, options)

    def test_noise_where_it_makes_no_sense(self):
        for name, keys, sentence in (
                ("target", {"model": {"name": "unet", "width": 2, "depth": 1}, "inputs": ["x"], "targets": ["x"]},
                 "would change the target too: x is input and target"),
                ("numbers", {"model": "mlp", "inputs": ["slope"], "targets": ["amplitude"], "transform": None},
                 "is for fields, and no input is one"),
                ("raw", {"normalise": False}, "'normalise' is false")):
            path = self.config(f"noise-{name}", **{"augment": [{"noise": 0.1}], **keys})
            for options in ((), ("--dry-run",)):
                self.assertIn(sentence, self.train(path, 1, *options, code=3).stderr)

    def test_data_that_can_not_be_meant(self):
        numbers = {"model": "mlp", "inputs": ["slope"], "transform": None}
        for name, keys, sentence in (
                ("copy", {"inputs": ["slope"], "targets": ["slope"], "model": "mlp", "augment": None},
                 "'slope' is an input and a target: the network would copy it"),
                ("flip", {**numbers, "augment": ["flip"]}, "'augment' moves the cells of fields, and the inputs and targets are numbers")):
            self.assertIn(sentence, self.train(self.config(f"senseless-{name}", **keys), 1, code=3).stderr)
        # 12 samples, with two constant columns.
        rows = [f"{i},{i / 7},3,5" for i in range(12)]
        (self.root / "small.csv").write_text("\n".join(["id,a,b,c", *rows]) + "\n")
        (self.root / "small.yaml").write_text(
            f"samples: {self.root}/small.csv\ninputs: [a, b]\ntargets: [c]\nsplit: {{train: 12, validation: 0, test: 0}}\n"
            f"output: {self.root}/small\nname: small\n")
        subprocess.run([PROGRAMS.convert, self.root / "small.yaml"], check=True, stdout=subprocess.DEVNULL)
        path = self.config("doubts", data=str(self.root / "small"), model="mlp", transform=None, augment=None, batch=64, epochs=2,
                           early_stop=1, select="best")
        done = self.train(path)
        planned = self.train(path, 1, "--dry-run").stdout
        for sentence in ("the data set has 12 training, 0 validation and 0 test samples", "'batch' is 64 and there are 12 training samples",
                         "'early_stop' goes by the training loss", "the best epoch is that of the least training loss",
                         "the input 'b' is 3 in all training samples", "the target 'c' is 5 in all training samples"):
            self.assertEqual(done.stderr.count(f"warning: {sentence}"), 1, done.stderr)
            self.assertIn(sentence, planned)
        result = self.result("doubts")
        self.assertEqual(result["test"], {"loss": None, "mean_mae_ratio": None, "targets": {}})
        self.assertEqual(result["validation"], result["test"])
        # A single sample.
        (self.root / "single.csv").write_text("id,a,c\n0,1,5\n")
        (self.root / "single.yaml").write_text(
            f"samples: {self.root}/single.csv\ninputs: [a]\ntargets: [c]\nsplit: {{train: 1, validation: 0, test: 0}}\n"
            f"output: {self.root}/single\nname: single\n")
        subprocess.run([PROGRAMS.convert, self.root / "single.yaml"], check=True, stdout=subprocess.DEVNULL)
        done = self.train(self.config("single-doubts", data=str(self.root / "single"), model="mlp", transform=None, augment=None, epochs=1), 1)
        self.assertIn("warning: there is 1 training sample, and a network learns from what differs", done.stderr)
        # The data have another shape.
        self.train(self.config("eight", epochs=1))
        done = self.predict(self.root / "eight", self.root / "small", code=4)
        self.assertRegex(done.stderr, r"the model was trained with x of 1 channels or numbers, and .*/small has 2: predict from data")

    def test_networks_that_do_not_fit(self):
        for name, keys, sentence in (
                ("vector", {"model": {"layers": [{"convolution": 4}, {"dense": 2}]}}, "takes a vector"),
                ("halves", {"model": {"name": "unet", "depth": 5}, "targets": ["x"]}, "are no multiple of 32"),
                ("field", {"model": "unet"}, "gives a field, and the targets are 2 numbers"),
                ("shuffle", {"model": {"layers": [{"pixel_shuffle": 2}, "flatten", {"dense": 2}]}}, "'x' gives 1 channels, which is no multiple"),
                ("deep", {"model": {"name": "resnet", "depth": 3}}, "halves each axis 3 times, and the samples are 1 x 8 x 8 x 8"),
                ("classes", {"loss": "cross_entropy"}, "learns the classes of one target"),
                ("mixed", {"targets": ["x", "slope"]}, "give each a head of its own ('heads')"),
                ("nothing", {"inputs": ["slope", "amplitude"], "model": "mlp"}, "nothing is left to learn")):
            for options in ((), ("--dry-run",)):
                self.assertIn(sentence, self.train(self.config(f"unfit-{name}", **keys), 1, *options, code=3).stderr)

    def test_missing_things(self):
        self.train(self.root / "no.yaml", code=4)
        done = self.train(self.config("nodata", data=str(self.root / "nowhere")), code=4)
        self.assertIn("manifest.json", done.stderr)
        self.train("--no-such-option", code=2)

    def test_diverging_loss_names_epoch_and_step(self):
        path = self.config("diverge", optimizer={"name": "sgd", "learning_rate": 900}, model={"norm": "none"})
        for ranks in (1, 2):
            done = self.train(path, ranks, "--fresh", code=4)
            self.assertRegex(done.stderr, r"the (loss|gradient) is not finite at epoch \d+, step \d+")

    def test_values_that_the_transform_cannot_take(self):
        done = self.train(self.config("negative", transform={"log": 1e-30}, data=str(self.negative())), code=4)
        self.assertIn("that 'transform: log' cannot take", done.stderr)

    def negative(self):
        numpy.save(self.root / "negative.npy", -numpy.ones((1, 8, 8, 8), dtype=numpy.float32))
        (self.root / "n.csv").write_text("id,file,a\n" + "".join(
            f"{i},{self.root}/negative.npy,{i}\n" for i in range(6)))
        (self.root / "n.yaml").write_text(f"samples: {self.root}/n.csv\ntargets: [a]\noutput: {self.root}/n\n"
                                          "split: {train: 4, validation: 1, test: 1}\n")
        subprocess.run([PROGRAMS.convert, self.root / "n.yaml"], check=True, stdout=subprocess.DEVNULL)
        return self.root / "n"


def run_tests():
    """Runs the tests of the program's own file, with the programs that its command line names."""
    global PROGRAMS
    parser = argparse.ArgumentParser()
    for option in ("--train", "--convert", "--mpirun"):
        parser.add_argument(option, required=True)
    PROGRAMS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    del TrainRun  # has no tests of its own
    run_tests()
