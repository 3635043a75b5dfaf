#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train on samples of different lengths, and on batches of samples that are alike. With Debian's python3 (h5py)."""

import json
import pathlib
import subprocess
import tempfile

import numpy

import train_run_test as whole

MOST = 32


def length(i):
    return 12 + i * 8 % 21  # 12 to MOST


def series(i):
    """The amplitude is to be learned, from a sample or the mean over its own length."""
    return ((1 + i % 8) * numpy.sin(numpy.arange(length(i)) / 3 + i)).astype("f4")


class Ragged(whole.TrainRun):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="wflow-ragged-test-")
        cls.root = pathlib.Path(cls.directory.name)
        rows = ["id,directory,amplitude,type"]
        for i in range(48):
            (cls.root / str(i)).mkdir()
            numpy.save(cls.root / f"{i}/u.npy", series(i))
            rows.append(f"{i},{i},{1 + i % 8},{i * 5 % 4}")
        (cls.root / "t.csv").write_text("\n".join(rows) + "\n")
        cls.convert("ragged", {"ragged": "T"})
        cls.convert("padded", {"pad": [MOST]})
        cls.convert("ragged_target", {"ragged": "T"}, target={"ragged": "T"})
        cls.convert("padded_target", {"pad": [MOST]}, target={"pad": [MOST]})

    @classmethod
    def convert(cls, name, form, target=None):
        targets = {"v": {"file": "u.npy", **target}} if target else {"amplitude": "parameter", "type": "parameter"}
        config = {"samples": "t.csv", "output": name, "name": "data", "shard_samples": 20, "inputs": {"u": {"file": "u.npy", **form}},
                  "targets": targets, "split": {"train": 32, "validation": 8, "test": 8}}
        path = cls.root / f"{name}-convert.yaml"
        path.write_text(json.dumps({"convert": config}))
        subprocess.run([whole.PROGRAMS.convert, path], check=True, stdout=subprocess.DEVNULL)

    def config(self, name, data="ragged", **keys):
        settings = {"data": str(self.root / data), "epochs": 3, "batch": 8, "transform": None, "augment": None, "targets": ["amplitude"],
                    "model": {"name": "cnn", "width": 3}}
        return super().config(name, **{**settings, **keys})

    def same_bits(self, *names):
        weights = [self.weights(name)[0] for name in names]
        for other in weights[1:]:
            self.assertEqual(other, weights[0])

    def test_a_ragged_field_trains_as_a_padded_one(self):
        for number, keys in enumerate(({}, {"inputs": ["u"]}, {"cache": 0, "loader_threads": 2})):
            for data in ("ragged", "padded"):
                self.train(self.config(f"{data}{number}", data, normalise=False, **keys))
            self.same_bits(f"ragged{number}", f"padded{number}")

    def test_losses_of_a_ragged_target_leave_out_the_padding(self):
        keys = {"targets": ["v"], "inputs": ["u"], "model": {"name": "unet", "width": 2, "depth": 1, "norm": "none"}, "normalise": False}
        for data in ("ragged_target", "padded_target"):
            self.train(self.config(data + "1", data, **keys))
        self.same_bits("ragged_target1", "padded_target1")
        ours, padded = (self.result(data + "1")["test"] for data in ("ragged_target", "padded_target"))
        self.assertEqual(ours["targets"], padded["targets"])
        self.assertAlmostEqual(ours["loss"], padded["loss"], places=12)

    def test_the_same_on_ranks_and_from_memory(self):
        self.train(self.config("direct"), 2)
        self.train(self.config("staged", stage="memory"), 2)
        self.same_bits("direct", "staged")

    def test_batches_of_samples_that_are_alike(self):
        keys = {"batch_by": ["type", "length"], "batch_run": 4, "epochs": 2, "optimizer": {"name": "sgd", "learning_rate": 0.001}}
        self.train(self.config("alike", **keys))
        self.train(self.config("plain", **{**keys, "batch_by": None, "batch_run": None}))
        self.assertNotEqual(self.weights("alike")[0], self.weights("plain")[0])
        self.train(self.config("alike2", **keys), 2)
        one, two = (self.arrays(name)["parameter"] for name in ("alike", "alike2"))
        numpy.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
        # Stopped at a step inside an epoch and continued.
        self.train(self.config("halves", max_seconds=0.001, **keys), code=6)
        self.train(self.config("halves", **keys))
        self.same_bits("alike", "halves")
        # The sorted data set has the same order of samples that are alike.
        subprocess.run([whole.PROGRAMS.convert, "shards", "sort", self.root / "ragged", self.root / "sorted", "--by", "type,length"],
                       check=True, stdout=subprocess.DEVNULL)
        self.train(self.config("of_sorted", "sorted", **keys))
        self.same_bits("alike", "of_sorted")

    def test_wrong_keys(self):
        done = self.train(self.config("typ", batch_by=["typ"]), code=3)
        self.assertIn("batch_by: typ: no label or input of one number has this name; there are amplitude, type, length(u); did you mean 'type'?",
                      done.stderr)
        done = self.train(self.config("run", batch_run=4), code=3)
        self.assertIn("'batch_run' needs 'batch_by'", done.stderr)


if __name__ == "__main__":
    whole.run_tests()
