#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The package on data that wflow-convert makes.

Usage: data_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import dataclasses
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import h5py
import numpy as np
import torch

import wflow
import wflow._loader
import wflow.torch
from wflow._stage import draw

PROGRAM = ""
COUNT = 60

WITHOUT_LOADER = os.environ.get("WFLOW_LOADER") == "none"


class DataSet(unittest.TestCase):
    """60 samples: a field of a chunk each, a small packed one, a scalar, and two parameters."""

    @classmethod
    def setUpClass(cls):
        cls.original = Path(tempfile.mkdtemp(prefix="wflow-python-"))
        cls.addClassCleanup(shutil.rmtree, cls.original, ignore_errors=True)
        rows = ["directory,a,b"]
        for i in range(COUNT):
            folder = cls.original / f"s{i}"
            folder.mkdir()
            np.save(folder / "u.npy", cls.field(i))
            np.save(folder / "small.npy", np.arange(5, dtype="i2") * i)
            (folder / "log").write_text(f"E = {i / 8}\n")
            rows.append(f"s{i},{i / 3!r},{100 - i}")
        (cls.original / "t.csv").write_text("\n".join(rows) + "\n")
        config = {"samples": "t.csv", "output": "data", "shard_samples": 25, "split": {"train": 40, "validation": 10, "test": 10},
                  "inputs": {"u": {"file": "u.npy", "layout": "CHW"}, "small": {"file": "small.npy"}},
                  "targets": {"theta": {"parameters": ["a", "b"]}, "energy": {"file": "log", "regex": r"E = (\S+)"}}}
        (cls.original / "c.yaml").write_text(json.dumps(config))
        subprocess.run([PROGRAM, str(cls.original / "c.yaml")], check=True, capture_output=True)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        shutil.copytree(self.original / "data", self.folder / "data")
        self.data = wflow.open(self.folder / "data")

    @staticmethod
    def field(i):
        return np.random.default_rng(i).poisson(3, (2, 32, 32)).astype("f4")

    def check_sample(self, sample):
        i = sample["id"]
        np.testing.assert_array_equal(sample["u"], self.field(i))
        np.testing.assert_array_equal(sample["small"], np.arange(5) * i)
        np.testing.assert_array_equal(sample["theta"], [i / 3, 100 - i])
        self.assertEqual(sample["energy"], i / 8)
        self.assertEqual((sample["u"].dtype, sample["small"].dtype, sample["energy"].shape), (np.float32, np.int16, ()))

    def shards(self):
        return sorted((self.folder / "data").rglob("*.h5"))

    # ---- numpy

    def test_fields_and_splits(self):
        data = self.data
        self.assertEqual((len(data.train), len(data["validation"]), len(data.test)), (40, 10, 10))
        self.assertEqual((data.inputs, data.targets), (["u", "small"], ["theta", "energy"]))
        u = data.fields["u"]
        self.assertEqual((u.layout, u.shape, u.role, u.mean.shape), ("CHW", (2, 32, 32), "input", (2,)))
        self.assertEqual(data.fields["theta"].channels, ("a", "b"))
        everything = np.stack([self.field(i) for i in data.train.ids])
        np.testing.assert_allclose(u.mean, everything.mean(axis=(0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(u.std, everything.std(axis=(0, 2, 3)), rtol=1e-5)
        normal = np.stack([u.normalise(self.field(i)) for i in data.train.ids])
        self.assertLess(abs(normal.mean()), 1e-5)
        np.testing.assert_allclose(u.undo(normal[3]), self.field(data.train.ids[3]), atol=1e-5)
        with self.assertRaisesRegex(wflow.Error, "there is no field 'v'; the data has u, small, theta, energy"):
            data.train.read("v", 0)
        with self.assertRaises(IndexError):
            data.train[40]

    def test_normalisations(self):
        manifest = self.folder / "data/manifest.json"
        entry = json.loads(manifest.read_text())
        del entry["wflow_checksum"]
        values = np.stack([self.field(i) for i in self.data.train.ids])
        for shape in ("uniform", "normal"):
            entry["fields"][0]["normalisation"] = {"kind": "quantile", "shape": shape}
            for c, s in enumerate(entry["statistics"]["u"]):
                s["quantiles"] = [[level, float(np.quantile(values[:, c], level))] for level in np.linspace(0, 1, 101)]
            manifest.write_text(json.dumps(entry))
            u = wflow.open(self.folder / "data").fields["u"]
            x = self.field(4)
            y = u.normalise(x)
            for value in range(1, 6):  # a repeated value is at the middle of its levels
                level = (values[:, 0] < value).mean() + (values[:, 0] == value).mean() / 2
                found = float(y[0][x[0] == value][0])
                expected = level if shape == "uniform" else __import__("statistics").NormalDist().inv_cdf(level)
                self.assertAlmostEqual(found, expected, delta=0.03)
            inside = (x > 0) & (x < 8)
            np.testing.assert_allclose(u.undo(y)[inside], x[inside], atol=0.51)
        entry["fields"][0]["normalisation"] = {"kind": "min_max", "low": -1.0, "high": 1.0}
        manifest.write_text(json.dumps(entry))
        u = wflow.open(self.folder / "data").fields["u"]
        normal = np.stack([u.normalise(x) for x in values])
        self.assertEqual((normal.min(), normal.max()), (-1, 1))
        np.testing.assert_allclose(u.undo(normal[0]), values[0], atol=1e-5)

    def test_every_sample(self):
        seen = []
        for name in ("train", "validation", "test"):
            for sample in self.data[name]:
                self.check_sample(sample)
                seen.append(sample["id"])
        self.assertEqual(sorted(seen), list(range(COUNT)))
        self.check_sample(self.data.train[-1])
        np.testing.assert_array_equal(self.data.test.batch("u", [3, 1])[1], self.data.test[1]["u"])
        np.testing.assert_array_equal(self.data.test.all("theta")[:, 1], 100 - self.data.test.ids)

    def test_h5py_gives_the_same(self):
        for shard in self.shards():
            with h5py.File(shard) as file:
                for row, i in enumerate(file["id"]):
                    np.testing.assert_array_equal(file["u"][row], self.field(i))

    def test_threads_and_pickles(self):
        split = pickle.loads(pickle.dumps(self.data.train))
        errors = []

        def read(start):
            try:
                for i in range(start, len(split), 4):
                    self.check_sample(split[i])
            except Exception as error:  # reported below, because assertions of a thread are lost
                errors.append(error)

        threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_other_tools_rewrite_shards(self):
        for shard in self.shards():
            for options in (["-f", "NONE"], ["-f", "GZIP=4", "-l", "CHUNK=1x1x16x32"], ["-l", "CONTI"], []):
                copy = self.folder / "copy.h5"
                subprocess.run(["h5repack", *(f"u:{o}" if o[0] not in "-" else o for o in options), str(shard), str(copy)], check=True)
                copy.replace(shard)
                from wflow._shard import Shard

                again = Shard(shard, ["u", "small"])
                for row, i in enumerate(again.ids):
                    np.testing.assert_array_equal(again.read("u", row), self.field(i), str(options))
                    np.testing.assert_array_equal(again.read("small", row), np.arange(5) * i)

    def test_format_1(self):
        """Written here, with the layout of docs/formats/shards.md."""
        folder = self.folder / "old"
        (folder / "train").mkdir(parents=True)
        x = np.random.default_rng(1).random((3, 1, 2, 8, 8)).astype("f4")
        with h5py.File(folder / "train/shard-00000.h5", "w") as file:
            file.attrs["wflow_format"] = 1
            file.create_dataset("x", data=x, chunks=(1, 1, 2, 8, 8), compression="gzip", shuffle=True)
            file["y"], file["id"], file["missing"] = np.arange(6.0).reshape(3, 2), np.arange(3), np.zeros(0, "i8")
        empty = {"samples": 0, "shards": []}
        statistics = [{"mean": 0.5, "std": 0.2, "min": 0, "max": 1}]
        (folder / "manifest.json").write_text(json.dumps({
            "wflow_format": 1, "name": "old", "shape": [1, 2, 8, 8], "dtype": "float32", "labels": ["p", "q"], "channels": ["d"], "split_seed": 1,
            "splits": {"train": {"samples": 3, "shards": [{"file": "train/shard-00000.h5", "samples": 3}]}, "validation": empty, "test": empty},
            "missing": [], "statistics": {"x": statistics, "y": statistics * 2}}))
        train = wflow.open(folder).train
        np.testing.assert_array_equal(train[2]["x"], x[2])
        np.testing.assert_array_equal(train[2]["y"], [4, 5])

    # ---- errors

    def test_damage_is_an_error(self):
        shard = self.shards()[0]
        with h5py.File(shard) as file:
            offset, size = (int(n) for n in file["wflow/index/u"][1][:2])
            name = file["id"][1]
        good = shard.read_bytes()
        for at in (offset + 4, offset + size // 2, offset + size - 1):
            shard.write_bytes(good[:at] + bytes([good[at] ^ 8]) + good[at + 1:])
            with self.assertRaisesRegex(wflow.DamagedData, f"sample {name} of .* is damaged"):
                self.read_all(shard)
        for name in ("theta", "small", "energy"):  # packed: a chunk of several samples
            with h5py.File(shard) as file:
                offset, size = (int(n) for n in file[f"wflow/index/{name}"][0][:2])
            shard.write_bytes(good[:offset + 5] + bytes([good[offset + 5] ^ 8]) + good[offset + 6:])
            damaged = wflow.open(self.folder / "data")[shard.parent.name]
            with self.assertRaisesRegex(wflow.DamagedData, f"{name} of samples .* is damaged"):
                damaged.read(name, 0)
            with self.assertRaisesRegex(wflow.DamagedData, f"{name} of samples .* is damaged"):
                damaged.all(name)
            with self.assertRaises(wflow.DamagedData):
                list(damaged)
        with h5py.File(shard) as file:
            offset = file["id"].id.get_offset()
        shard.write_bytes(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1:])
        with self.assertRaisesRegex(wflow.DamagedData, "sample numbers"):
            wflow.open(self.folder / "data")[shard.parent.name][0]
        for size in (0, 100, len(good) // 2, len(good) - 1):
            shard.write_bytes(good[:size])
            with self.assertRaises(wflow.DamagedData):
                self.read_all(shard)

    @staticmethod
    def read_all(shard):
        from wflow._shard import Shard

        opened = Shard(shard, ["u"])
        for row in range(len(opened)):
            opened.read("u", row)

    def test_wrong_folders(self):
        with self.assertRaisesRegex(wflow.Error, "has no manifest.json"):
            wflow.open(self.folder)
        manifest = self.folder / "data/manifest.json"
        text = manifest.read_text()
        manifest.write_text(text[:100])
        with self.assertRaisesRegex(wflow.DamagedData, "manifest.json is damaged"):
            wflow.open(self.folder / "data")
        at = text.index('"mean"') + 8
        for changed in (text[:at] + "7" + text[at + 1:], json.dumps(json.loads(text))):
            manifest.write_text(changed)
            with self.assertRaisesRegex(wflow.DamagedData, "its checksum does not match"):
                wflow.open(self.folder / "data")
        without = "{\n" + text.split("\n", 2)[2]
        manifest.write_text(without)  # as older versions wrote it
        self.assertEqual(len(wflow.open(self.folder / "data").train), 40)
        manifest.write_text(without.replace('"wflow_format": 2', '"wflow_format": 99'))
        with self.assertRaisesRegex(wflow.NewerFormat, "is of format 99"):
            wflow.open(self.folder / "data")
        with self.assertRaisesRegex(wflow.Error, "is no campaign"):
            wflow.Campaign(self.folder)

    # ---- torch

    def loader(self, dataset, **options):
        return torch.utils.data.DataLoader(dataset, timeout=120 if options.get("num_workers") else 0, **options)

    def test_map_dataset(self):
        dataset = wflow.torch.MapDataset(self.data.train, inputs="u", targets="theta")
        for workers, context in ((0, None), (2, "fork"), (2, "spawn")):
            batches = list(self.loader(dataset, batch_size=8, num_workers=workers, multiprocessing_context=context))
            self.assertEqual(len(batches), 5)
            x = torch.cat([b[0] for b in batches])
            self.assertEqual((x.shape, x.dtype), ((40, 2, 32, 32), torch.float32))
            expected = self.data.fields["u"].normalise(self.field(self.data.train.ids[7]))
            np.testing.assert_array_equal(x[7].numpy(), expected)
        x, y = wflow.torch.MapDataset(self.data.train, normalise=False)[3]
        self.assertEqual((sorted(x), sorted(y)), (["small", "u"], ["energy", "theta"]))
        self.assertEqual(float(y["energy"]), self.data.train.ids[3] / 8)

    def numbers(self, dataset, workers=0):
        """The ids of the samples of each batch: energy is id / 8."""
        return [[round(8 * float(e)) for e in y] for _, y in self.loader(dataset, batch_size=None, num_workers=workers)]

    def iterable(self, **options):
        return wflow.torch.IterableDataset(self.data.train, inputs="small", targets="energy", normalise=False, **{"batch": 6, "seed": 3, **options})

    def test_order_depends_neither_on_ranks_nor_on_workers(self):
        batches = self.numbers(self.iterable())
        self.assertEqual([len(b) for b in batches], [6] * 6)
        self.assertEqual(len({i for b in batches for i in b}), 36)
        self.assertNotEqual(sorted(sum(batches, [])), sum(batches, []))
        for workers in (1, 2, 3):
            self.assertEqual(self.numbers(self.iterable(), workers), batches)
        parts = [self.numbers(self.iterable(rank=r, world=3), workers=2) for r in range(3)]
        self.assertEqual([sum((p[k] for p in parts), []) for k in range(6)], batches)
        self.assertNotEqual(self.numbers(self.iterable(seed=4)), batches)
        self.assertEqual([len(b) for b in self.numbers(self.iterable(drop_last=False))], [6] * 6 + [4])
        with self.assertRaisesRegex(wflow.Error, "must be divisible"):
            self.iterable(world=4)

    def test_resume(self):
        whole = self.iterable()
        expected = []
        for _ in range(2):
            expected += self.numbers(whole)
            whole.advance(len(whole))
        dataset = self.iterable()
        got = []
        for _, y in self.loader(dataset, batch_size=None, num_workers=2):
            got.append([round(8 * float(e)) for e in y])
            dataset.advance()
            if len(got) == 4:
                break
        state = json.loads(json.dumps(dataset.state_dict()))
        again = self.iterable()
        again.load_state_dict(state)
        for _ in range(2):
            batches = self.numbers(again, 2)
            got += batches
            again.advance(len(batches))
        self.assertEqual(got, expected)
        with self.assertRaisesRegex(wflow.Error, "the state is of batch 6"):
            self.iterable(batch=8).load_state_dict(state)

    def test_the_next_epoch_begins_by_itself(self):
        epochs = []
        for epoch in range(4):
            one = self.iterable()
            one.load_state_dict({**one.state_dict(), "epoch": epoch})
            epochs.append(self.numbers(one))
        self.assertNotEqual(epochs[0], epochs[1])
        for workers in (0, 1, 3):
            dataset = self.iterable()
            loader = self.loader(dataset, batch_size=None, num_workers=workers)
            got = [[[round(8 * float(e)) for e in y] for _, y in loader] for _ in range(3)]
            self.assertEqual(got, epochs[:3], workers)
            self.assertEqual(dataset.state_dict()["epoch"], 3)
            for k, _ in enumerate(loader):  # ended early: the next iteration begins again
                if k == 0:
                    break
            self.assertEqual(self.numbers(dataset), epochs[3], workers)
        dataset = self.iterable()
        loader = self.loader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
        self.assertEqual([[[round(8 * float(e)) for e in y] for _, y in loader] for _ in range(3)], epochs[:3])

    def test_a_batch_of_more_than_there_is_is_refused(self):
        with self.assertRaisesRegex(wflow.Error, r"batch \(41\) is more than the 40 samples of 'train'"):
            self.iterable(batch=41)
        self.assertEqual([len(b) for b in self.numbers(self.iterable(batch=41, drop_last=False))], [40])

    def test_values_far_from_zero_keep_what_varies(self):
        """Julian days: float32 has steps of 0.25 at this size."""
        folder = self.folder / "far"
        folder.mkdir()
        days = 2460000.5 + np.random.default_rng(5).random(400)
        rows = "".join(f"{i},{float(days[i])!r},{i}\n" for i in range(400))
        (folder / "t.csv").write_text("id,day,y\n" + rows)
        (folder / "c.yaml").write_text(json.dumps({"samples": "t.csv", "output": "data", "split": {"train": 400, "validation": 0, "test": 0},
                                                   "inputs": {"day": {"parameters": ["day"]}}, "targets": {"y": {"parameters": ["y"]}}}))
        subprocess.run([PROGRAM, str(folder / "c.yaml")], check=True, capture_output=True)
        train = wflow.open(folder / "data").train
        field = train.fields["day"]
        expected = ((days - days.mean()) / days.std())[train.ids]
        of_map = np.array([float(wflow.torch.MapDataset(train)[i][0]) for i in range(400)])
        np.testing.assert_allclose(of_map, expected, atol=2e-6)
        np.testing.assert_allclose(field.undo(of_map), days[train.ids].reshape(field.undo(of_map).shape), atol=1e-6)
        classes = [wflow.torch.IterableDataset] + ([] if WITHOUT_LOADER else [wflow.torch.FastDataset])
        for dataset in classes:
            [(x, y)] = dataset(train, batch=400, shuffle=False)
            self.assertEqual(len(np.unique(x.numpy())), 400, dataset)
            np.testing.assert_allclose(x.numpy().reshape(-1), expected, atol=2e-6)

    def test_a_mask_is_no_value_to_normalise(self):
        for i in range(COUNT):
            np.save(self.folder / f"{i}.npy", np.full((3, 2 + i % 3), 5.0 + i))
        (self.folder / "t.csv").write_text("file,k\n" + "".join(f"{i}.npy,{i}\n" for i in range(COUNT)))
        config = {"samples": "t.csv", "output": "padded", "inputs": ["k"], "targets": {"f": {"layout": "HW", "pad": [3, 4]}}}
        (self.folder / "c.yaml").write_text(json.dumps(config))
        subprocess.run([PROGRAM, str(self.folder / "c.yaml")], check=True, capture_output=True)
        data = wflow.open(self.folder / "padded")
        self.assertEqual([f.name for f in data.fields.values() if f.is_mask], ["f_mask"])
        split = data.train
        for i, number in enumerate(split.ids):
            expected = np.zeros((3, 4))
            expected[:, :2 + number % 3] = 1
            _, targets = wflow.torch.MapDataset(split)[i]
            np.testing.assert_array_equal(targets["f_mask"], expected)
            np.testing.assert_array_equal(data.fields["f_mask"].undo(targets["f_mask"].numpy()), expected)
            # A loss over the cells that are not padding: padding is 0 in the data's own unit.
            f = data.fields["f"].undo(targets["f"].numpy())
            self.assertAlmostEqual((f * expected).sum() / expected.sum(), 5.0 + number, places=4)
        if not WITHOUT_LOADER:
            dataset = wflow.torch.FastDataset(split, batch=len(split), seed=1)
            _, targets = next(iter(dataset))
            self.assertEqual(sorted(targets["f_mask"].sum(dim=(1, 2)).tolist()), sorted(3.0 * (2 + n % 3) for n in split.ids))

    def ragged(self):
        """Series of 3 types whose lengths are 4 to 9; sample i holds i."""
        folder = self.folder / "ragged_source"
        folder.mkdir()
        rows = ["id,file,type"]
        for i in range(40):
            np.save(folder / f"{i}.npy", np.full((4 + i % 6, 2), i, "f4"))
            rows.append(f"{i},{i}.npy,{i % 3}")
        (folder / "t.csv").write_text("\n".join(rows) + "\n")
        config = {"samples": "t.csv", "output": str(self.folder / "ragged"), "split": {"train": 1.0},
                  "inputs": {"u": {"layout": "TC", "ragged": "T"}}, "targets": {"type": "parameter"}}
        (folder / "c.yaml").write_text(json.dumps({"convert": config}))
        subprocess.run([PROGRAM, str(folder / "c.yaml")], check=True, capture_output=True)
        return wflow.open(self.folder / "ragged").train

    def test_batches_of_samples_that_are_alike(self):
        split = self.ragged()
        number = {int(n): i for i, n in enumerate(split.ids)}
        np.testing.assert_array_equal(split.lengths("u"), 4 + split.ids % 6)
        place = {int(i): k for k, i in enumerate(split.order_by(["type", "length"]))}
        for dataset in [wflow.torch.IterableDataset] + ([] if WITHOUT_LOADER else [wflow.torch.FastDataset]):
            whole, ranks = [], []
            make = lambda **keys: dataset(split, 8, normalise=False, seed=3, batch_by=["type", "length"], run=4, trim=True, **keys)
            for inputs, types in make():
                self.assertEqual(inputs["u"].shape[1:], (2, int(inputs["u_mask"].sum(1).max())))  # trimmed to the longest
                ids = inputs["u"][:, 0, 0].int().tolist()
                for values, mask, kind, i in zip(inputs["u"], inputs["u_mask"], types, ids):
                    np.testing.assert_array_equal(mask, np.arange(len(mask)) < 4 + i % 6)
                    np.testing.assert_array_equal(values, mask.numpy() * np.full_like(values, i))
                    self.assertEqual(kind, i % 3)
                for first in (0, 4):
                    places = [place[number[i]] for i in ids[first:first + 4]]
                    self.assertEqual(places, [(places[0] + k) % 40 for k in range(4)])
                whole += ids
            self.assertEqual(sorted(whole), list(range(40)))
            iterators = [iter(make(rank=rank, world=2)) for rank in range(2)]
            for batches in zip(*iterators):
                ranks += [i for inputs, _ in batches for i in inputs["u"][:, 0, 0].int().tolist()]
            self.assertEqual(ranks, whole)
        with self.assertRaisesRegex(wflow.Error, "no field, label or length is named 'typ'"):
            wflow.torch.IterableDataset(split, 8, batch_by="typ")

    # ---- libwflow_loader

    @unittest.skipIf(WITHOUT_LOADER, "a library with a sanitizer does not load into python")
    def test_fast_batches_are_those_of_the_other_dataset(self):
        for names in ({}, {"inputs": "u", "targets": "theta"}, {"inputs": ["small", "u"], "targets": "energy"}):
            for options in ({}, {"normalise": False}, {"rank": 1, "world": 3, "drop_last": False}, {"shuffle": False}):
                options = {"batch": 9, "seed": 3, **names, **options}
                slow = list(wflow.torch.IterableDataset(self.data.train, **options))
                fast = list(wflow.torch.FastDataset(self.data.train, threads=3, ahead=2, **options))
                self.assertEqual(len(fast), len(slow))
                for ours, expected in zip(fast, slow):
                    for role, of_slow in zip(ours, expected):
                        role, of_slow = (r if isinstance(r, dict) else {"": r} for r in (role, of_slow))
                        self.assertEqual(list(role), list(of_slow))
                        for name in role:
                            self.assertEqual(role[name].dtype, torch.float32)
                            self.assertEqual(role[name].shape, of_slow[name].shape)
                            np.testing.assert_allclose(role[name].numpy(), of_slow[name].numpy(), rtol=2e-6, atol=2e-6)
                            if options.get("normalise") is False:
                                np.testing.assert_array_equal(role[name].numpy(), of_slow[name].numpy())

    @unittest.skipIf(WITHOUT_LOADER, "a library with a sanitizer does not load into python")
    def test_fast_dataset_in_loaders_and_resumed(self):
        fast = wflow.torch.FastDataset(self.data.train, inputs="small", targets="energy", normalise=False, batch=6, seed=3)
        expected = self.numbers(self.iterable())
        self.assertEqual(self.numbers(pickle.loads(pickle.dumps(fast)), 2), expected)
        self.assertEqual(self.numbers(fast), expected)
        fast.load_state_dict({**fast.state_dict(), "epoch": 0})
        for k, _ in enumerate(fast):  # ended half way, while batches are being read
            if k == 2:
                break
        fast.load_state_dict({**fast.state_dict(), "position": 4})
        self.assertEqual(self.numbers(fast), expected[4:])

    @unittest.skipIf(WITHOUT_LOADER, "a library with a sanitizer does not load into python")
    def test_fast_dataset_keeps_samples(self):
        """Later epochs have the same order and values, whether the cache keeps decoded samples, compressed ones, or as many as fit."""
        for cache in (1 << 30, 20_000, -1):
            plain, kept = (wflow.torch.FastDataset(self.data.train, batch=6, inputs="u", targets="energy", seed=3, cache=size) for size in (0, cache))
            for epoch in range(3):
                for dataset in (plain, kept):
                    dataset.load_state_dict({**dataset.state_dict(), "epoch": epoch, "position": 0})
                for (x, y), (same_x, same_y) in zip(plain, kept):
                    np.testing.assert_array_equal(x.numpy(), same_x.numpy())
                    np.testing.assert_array_equal(y.numpy(), same_y.numpy())

    def test_draws_are_those_of_the_trainer(self):
        # trainer/data/data_loader_test.cc has the same numbers.
        self.assertEqual(draw(7, 0, 50, 1000)[0], 417)
        self.assertEqual(draw(7, 2, 50, 1000)[49], 590)
        self.assertEqual(len(draw(2**63 - 1, 0, 3, 5)), 3)

    def subset_batches(self, kind, rank, epochs):
        """All batches of a rank's subset, in epochs without and with workers, while nothing can be read."""
        dataset = kind(self.data.train, 4, inputs="u", targets="theta", seed=5, rank=rank, world=2, subset=6)
        with unittest.mock.patch.object(wflow.Split, "read", None), unittest.mock.patch.object(wflow.torch, "Loader", None):
            return dataset, [list(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2 * epoch)) for epoch in range(epochs)]

    def test_subsets(self):
        """Each rank has its own draws, each once an epoch, and reads nothing after the start."""
        normalised = wflow.torch.MapDataset(self.data.train, "u", "theta")
        for rank in range(2):
            dataset, epochs = self.subset_batches(wflow.torch.IterableDataset, rank, 2)
            for epoch, batches in enumerate(epochs):
                dataset.epoch = epoch
                order = dataset.order().reshape(3, 2, 2)[:, rank]  # batches, ranks, samples
                self.assertEqual(sorted(order.ravel()), sorted(draw(5, rank, 6, 40)))
                self.assertEqual(len(batches), 3)
                for ours, (inputs, targets) in zip(order, batches):
                    for k, i in enumerate(ours):
                        self.assertTrue(torch.equal(inputs[k], normalised[int(i)][0]))
                        self.assertTrue(torch.equal(targets[k], normalised[int(i)][1]))

    @unittest.skipIf(WITHOUT_LOADER, "no libwflow_loader")
    def test_fast_subsets(self):
        _, plain = self.subset_batches(wflow.torch.IterableDataset, 1, 2)
        _, fast = self.subset_batches(wflow.torch.FastDataset, 1, 2)
        for ours, theirs in zip(sum(fast, []), sum(plain, [])):
            for a, b in zip(ours, theirs):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)

    def test_wrong_subsets(self):
        for wrong in ({"subset": -1}, {"subset": 4, "batch_by": "energy"}, {"subset": 1}):
            with self.assertRaises(wflow.Error):
                wflow.torch.IterableDataset(self.data.train, 4, world=2, **wrong)
        with self.assertRaises(wflow.Error):
            wflow.torch.FastDataset(self.data.train, 4, subset=4, cache=1)

    def test_staged_copies(self):
        with tempfile.TemporaryDirectory() as folder:
            staged = wflow.open(self.data.directory, stage=folder)
            self.assertTrue(staged.directory.is_relative_to(folder))
            np.testing.assert_array_equal(staged.train.all("theta"), self.data.train.all("theta"))
            manifest = staged.directory / "manifest.json"
            before = manifest.stat().st_mtime_ns
            self.assertEqual(wflow.open(self.data.directory, stage=folder).directory, staged.directory)
            self.assertEqual(manifest.stat().st_mtime_ns, before, "copied once")
            manifest.unlink()  # a copy that was cut short
            shard = staged.directory / self.data.manifest["splits"]["train"]["shards"][0]["file"]
            shard.write_bytes(b"")
            np.testing.assert_array_equal(wflow.open(self.data.directory, stage=folder).train.all("theta"), self.data.train.all("theta"))
        with self.assertRaises(wflow.Error):
            wflow.open(self.data.directory, stage="/nonexistent")

    def test_a_constant_channel_is_shifted(self):
        """The second channel is 5 in all training samples."""
        base = self.data.fields["u"]
        values = np.array([[2, 6, 10], [5, 7, 4.5]])
        for kind, expected in (({"kind": "standardise"}, [[0, 1, 2], [0, 2, -0.5]]), ({"kind": "min_max", "low": -1, "high": 1}, [[-0.6, 0.2, 1], [-1, 1, -1.5]])):
            field = dataclasses.replace(base, layout="CT", shape=(2, 3), mean=np.array([2.0, 5]), std=np.array([4.0, 0]), min=np.array([0.0, 5]),
                                        max=np.array([10.0, 5]), normalisation=kind)
            np.testing.assert_allclose(field.normalise(values), expected, rtol=1e-6)
            factor, offset, centre = field.scales().T
            np.testing.assert_allclose((values - centre[:, None]) * factor[:, None] + offset[:, None], expected, rtol=1e-6)
            np.testing.assert_allclose(field.undo(field.normalise(values)), values, rtol=1e-5)

    def test_memory_of_batches_is_used_again_once_nobody_has_it(self):
        memory = wflow._loader._Memory()
        shape = (4, memory._LEAST // 4)
        first = memory.array(shape)
        tensor = torch.from_numpy(first)[1]  # a view of a part also keeps the memory
        place = first.ctypes.data
        del first
        second = memory.array(shape)
        self.assertNotEqual(second.ctypes.data, place)
        del tensor
        self.assertEqual(memory.array(shape).ctypes.data, place)
        self.assertEqual(memory.array((3, 5)).shape, (3, 5))
        kept = [memory.array(shape) for _ in range(40)]
        self.assertEqual(len({a.ctypes.data for a in kept}), 40)
        self.assertLessEqual(len(memory._pieces), memory._MOST)

    @unittest.skipIf(WITHOUT_LOADER, "a library with a sanitizer does not load into python")
    def test_the_loader_names_what_is_damaged(self):
        path = self.folder / "data" / self.data.manifest["splits"]["train"]["shards"][0]["file"]
        with h5py.File(path, "r") as file:
            place = int(file["wflow/index/u"][3, 0]) + 20
        content = bytearray(path.read_bytes())
        content[place] ^= 4
        path.write_bytes(content)
        with self.assertRaisesRegex(wflow.DamagedData, "sample .* is damaged"):
            list(wflow.torch.FastDataset(self.data.train, batch=4, inputs="u"))
        self.assertEqual(len(list(wflow.torch.FastDataset(self.data.train, batch=4, inputs="small"))), 10)
        shutil.rmtree(self.folder / "data" / "train")
        with self.assertRaises(wflow.DamagedData):
            list(wflow.torch.FastDataset(self.data.train, batch=4))

    def test_no_library_is_an_error_with_a_remedy(self):
        script = "import wflow.torch, sys; wflow.torch.FastDataset(wflow.open(sys.argv[1]).train, 4).__iter__().__next__()"
        done = subprocess.run([sys.executable, "-c", script, str(self.folder / "data")], capture_output=True, text=True,
                              env={**os.environ, "WFLOW_LOADER": "/nowhere.so", "PYTHONPATH": str(Path(wflow.__file__).parents[1])})
        self.assertIn("libwflow_loader.so was not found", done.stderr)

    def test_model(self):
        class Twice(torch.nn.Module):
            targets: list[str]

            def __init__(self):
                super().__init__()
                self.targets = ["a"]

            def forward(self, x):
                return 2 * x.mean(dim=(1, 2, 3)).unsqueeze(1)

        Twice.__annotations__ = {"targets": __import__("typing").List[str]}
        torch.jit.script(Twice()).save(str(self.folder / "model.pt"))
        model = wflow.load_model(self.folder / "model.pt")
        x = self.data.test.batch("u", range(3))
        result = model(x)
        self.assertIsInstance(result, np.ndarray)
        np.testing.assert_allclose(result[:, 0], 2 * x.mean(axis=(1, 2, 3)), rtol=1e-6)
        self.assertIsInstance(model(torch.from_numpy(x)), torch.Tensor)
        self.assertEqual(model.targets, ["a"])
        good = (self.folder / "model.pt").read_bytes()
        with zipfile.ZipFile(self.folder / "model.pt") as archive:
            largest = max((member for member in archive.infolist() if member.compress_type == 0), key=lambda member: member.file_size)
        at = largest.header_offset + 30 + sum(struct.unpack("<HH", good[largest.header_offset + 26:largest.header_offset + 30]))
        (self.folder / "model.pt").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        with self.assertRaisesRegex(wflow.DamagedData, "is damaged"):
            wflow.load_model(self.folder / "model.pt")
        (self.folder / "model.pt").write_bytes(b"nothing")
        with self.assertRaisesRegex(wflow.Error, "is no model"):
            wflow.load_model(self.folder / "model.pt")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
