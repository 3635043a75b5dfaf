#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`wflow-convert shards export | import | merge | reshard | mosaic`, read back by parsers of their own: the published formats, h5py, numpy, json and zlib.

Usage: shards_exchange_test.py PATH_OF_WFLOW_CONVERT [PATH_OF_WFLOW_TRAIN] [unittest options]
"""
import fcntl
import gzip
import io
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zlib
from pathlib import Path

import h5py
import numpy as np

PROGRAM = ""
TRAIN = ""
SPLITS = {"train": 40, "validation": 10, "test": 10}


# ---- TFRecord and tf.train.Example, as published

def crc32c(data):
    """CRC-32C bit by bit through a table of bytes: slow, and unlike the program's."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def table():
    result = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        result.append(byte)
    return result


TABLE = table()
assert crc32c(b"123456789") == 0xE3069283


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8])
        body = data[at + 12:at + 12 + length]
        assert len(body) == length and struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body)
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields_of(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        assert tag & 7 == 2, "lists are packed"
        length, at = varint(data, at)
        yield tag >> 3, data[at:at + length]
        at += length
    assert at == len(data)


def parse_example(body):
    features = {}
    ((number, mapping),) = fields_of(body)
    assert number == 1
    for number, entry in fields_of(mapping):
        assert number == 1
        pair = dict(fields_of(entry))
        ((kind, values),) = fields_of(pair[2])
        ((one, packed),) = fields_of(values)
        assert one == 1
        if kind == 1:
            value = packed
        elif kind == 2:
            value = np.frombuffer(packed, "<f4")
        else:
            value, at = [], 0
            while at < len(packed):
                integer, at = varint(packed, at)
                value.append(integer - (1 << 64) if integer >> 63 else integer)
        features[pair[1].decode()] = (kind, value)
    return features


def put_varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(number, content):
    return bytes([number << 3 | 2]) + put_varint(len(content)) + content


def example(features):
    """name -> (1: bytes, 2: float32 array)"""
    entries = b""
    for name, (kind, content) in features.items():
        entries += message(1, message(1, name.encode()) + message(2, message(kind, message(1, content))))
    return message(1, entries)


def record(body):
    length = struct.pack("<Q", len(body))
    return length + struct.pack("<I", masked(length)) + body + struct.pack("<I", masked(body))


# ---- Zarr version 2, from its specification: json, zlib, numpy

def read_zarr(folder):
    meta = json.loads((folder / ".zarray").read_text())
    assert (meta["zarr_format"], meta["order"], meta["filters"], meta["compressor"]["id"]) == (2, "C", None, "zlib")
    shape, chunks = meta["shape"], meta["chunks"]
    grid = [-(-s // c) for s, c in zip(shape, chunks)]
    full = np.full([g * c for g, c in zip(grid, chunks)], meta["fill_value"], meta["dtype"])
    for index in np.ndindex(*grid):
        path = folder / ".".join(map(str, index))
        chunk = np.frombuffer(zlib.decompress(path.read_bytes()), meta["dtype"]).reshape(chunks)
        full[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunks))] = chunk
    return full[tuple(slice(s) for s in shape)]


class ExchangeTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-exchange-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def shards(self, *arguments, code=0, **keywords):
        done = subprocess.run([PROGRAM, "shards", *map(str, arguments)], capture_output=True, text=True, cwd=self.folder, **keywords)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stdout + done.stderr

    def refused(self, *arguments, code=2):
        text = self.shards(*arguments, code=code)
        self.assertEqual(len(text.strip().splitlines()), 1, text)
        return text

    @staticmethod
    def sample(i):
        rng = np.random.default_rng(i)
        return {"u": rng.poisson(4 if i % 2 else 400, (2, 32, 40)).astype("f4"), "v": rng.normal(size=(5, 7)), "n": rng.integers(-9, 9, 6).astype("i2"),
                "big": rng.integers(0, 60000, 3000).astype("u2"), "a": i / 3, "b": 100.0 - i}

    def make(self, name, ids, more=None, **config):
        files = self.folder / f"{name}-files"
        rows = ["id,directory,a,b"]
        for i in ids:
            folder = files / f"s{i}"
            folder.mkdir(parents=True)
            for field in ("u", "v", "n", "big"):
                np.save(folder / f"{field}.npy", self.sample(i)[field])
            rows.append(f"{i},{name}-files/s{i},{i / 3!r},{100 - i}")
        rows += more or []
        (self.folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
        config = {"samples": f"{name}.csv", "output": name, "shard_samples": 25, "split": SPLITS,
                  "inputs": {"u": {"file": "u.npy", "layout": "CHW", "narrow": True, "units": "counts", "channels": ["p", "q"], "transform": ["standardise"]},
                             "v": {"file": "v.npy"}, "n": {"file": "n.npy", "layout": "T"}, "big": {"file": "big.npy", "layout": "T"}},
                  "targets": {"theta": {"parameters": ["a", "b"]}, "a": "parameter"}, **config}
        (self.folder / f"{name}.yaml").write_text(json.dumps(config))
        subprocess.run([PROGRAM, str(self.folder / f"{name}.yaml")], check=True, capture_output=True)
        return self.read(name)

    def manifest(self, name):
        return json.loads((self.folder / name / "manifest.json").read_text())

    def read(self, name):
        """split -> id -> fields, through h5py."""
        manifest, found = self.manifest(name), {}
        for split, entry in manifest["splits"].items():
            found[split] = {}
            for shard in entry["shards"]:
                with h5py.File(self.folder / name / shard["file"]) as file:
                    values = {f["name"]: file[f["name"]][...].astype(f["dtype"]) for f in manifest["fields"]}
                    for row, i in enumerate(file["id"]):
                        self.assertNotIn(int(i), found[split])
                        found[split][int(i)] = {k: v[row] for k, v in values.items()}
        return found

    def assert_same(self, first, second, shift=0):
        self.assertEqual({s: sorted(i + shift for i in rows) for s, rows in first.items()}, {s: sorted(rows) for s, rows in second.items()})
        for split, rows in first.items():
            for i, fields in rows.items():
                for name, value in fields.items():
                    np.testing.assert_array_equal(value, second[split][i + shift][name], name)

    def no_leftovers(self):
        self.assertEqual([p for p in self.folder.iterdir() if p.name.endswith(".partial")], [])


class Exports(ExchangeTest):
    def setUp(self):
        super().setUp()
        self.data = self.make("data", range(60))

    def check_metadata(self, path, inside=lambda json: json):
        metadata, manifest = inside(json.loads(path.read_text())), self.manifest("data")
        self.assertEqual(metadata["statistics"], manifest["statistics"])
        for field, original in zip(metadata["fields"], manifest["fields"]):
            self.assertEqual({k: field[k] for k in original}, original)
        self.assertEqual(metadata["fields"][0]["normalisation"], {"kind": "standardise"})
        self.assertEqual({k: v["samples"] for k, v in metadata["splits"].items()}, SPLITS)
        return metadata

    def test_npy(self):
        self.shards("export", "data", "out", "--to", "npy")
        self.check_metadata(self.folder / "out/metadata.json")
        for split, rows in self.data.items():
            ids = np.load(self.folder / "out" / split / "id.npy")
            self.assertEqual(ids.tolist(), list(rows))
            for field in self.manifest("data")["fields"]:
                values = np.load(self.folder / "out" / split / f"{field['name']}.npy", mmap_mode="r")
                self.assertIsInstance(values, np.memmap)
                self.assertEqual((values.dtype, list(values.shape)), (np.dtype(field["dtype"]), [len(rows), *field["shape"]]))
                for k, i in enumerate(ids):
                    np.testing.assert_array_equal(values[k], rows[i][field["name"]])
        self.no_leftovers()

    def test_tfrecord(self):
        text = self.shards("export", "data", "out", "--to", "tfrecord")
        self.assertIn("theta: float64, rounded to the float32 of a float_list; --exact writes bytes", text)
        self.check_tfrecord("out", exact=False)
        self.assertNotIn("rounded", self.shards("export", "data", "exact", "--to", "tfrecord", "--exact"))
        self.check_tfrecord("exact", exact=True)

    def check_tfrecord(self, out, exact):
        fields = {f["name"]: f for f in self.check_metadata(self.folder / out / "metadata.json")["fields"]}
        for split, rows in self.data.items():
            found = []
            files = sorted((self.folder / out / split).iterdir())
            self.assertEqual(len(files), len(self.manifest("data")["splits"][split]["shards"]))
            for file in files:
                for body in records(file.read_bytes()):
                    features = parse_example(body)
                    ((i,),) = [features["id"][1]]
                    found.append(i)
                    for name, value in rows[i].items():
                        value = np.asarray(value)
                        kind, stored = features[name]
                        self.assertEqual({1: "bytes_list", 2: "float_list", 3: "int64_list"}[kind], fields[name]["feature"])
                        if value.ndim:
                            self.assertEqual(features[f"{name}/shape"], (3, list(value.shape)))
                        if kind == 1:
                            stored = np.frombuffer(stored, value.dtype)
                        elif value.dtype == np.float64:
                            value = value.astype("f4")
                        np.testing.assert_array_equal(np.asarray(stored).reshape(value.shape), value, name)
            self.assertEqual(found, list(rows))
        kinds = {name: field["feature"] for name, field in fields.items()}
        double = "bytes_list" if exact else "float_list"
        self.assertEqual(kinds, {"u": "float_list", "v": double, "n": "int64_list", "big": "bytes_list", "theta": double, "a": double})

    def test_webdataset(self):
        self.shards("export", "data", "out", "--to", "webdataset")
        self.check_metadata(self.folder / "out/metadata.json")
        for split, rows in self.data.items():
            found = []
            for k, path in enumerate(sorted((self.folder / "out").glob(f"{split}-*.tar"))):
                self.assertEqual(path.name, f"{split}-{k:06}.tar")
                with tarfile.open(path, "r:") as tar:
                    members = [(m.name.split(".", 1), tar.extractfile(m).read()) for m in tar]
                subprocess.run(["tar", "-tf", str(path)], check=True, capture_output=True)
                for (key, suffix), content in members:
                    if not found or found[-1] != int(key):
                        found.append(int(key))  # the members of a sample lie side by side
                    sample = rows[int(key)]
                    if suffix == "json":
                        labels = json.loads(content)
                        self.assertEqual((labels["id"], labels["a"]), (int(key), sample["a"]))
                        self.assertEqual(labels["theta"], {"a": sample["theta"][0], "b": sample["theta"][1]})
                        self.assertEqual(labels["n"], sample["n"].tolist())
                        self.assertNotIn("u", labels)
                    else:
                        value = np.load(io.BytesIO(content))
                        self.assertEqual(value.dtype, sample[suffix[:-4]].dtype)
                        np.testing.assert_array_equal(value, sample[suffix[:-4]])
                self.assertEqual(len(members), 7 * len({key for (key, _), _ in members}))
            self.assertEqual(found, list(rows))

    def test_zarr(self):
        self.shards("export", "data", "out", "--to", "zarr")
        out = self.folder / "out"
        self.check_metadata(out / ".zattrs", lambda json: json["wflow"])
        consolidated = json.loads((out / ".zmetadata").read_text())["metadata"]
        on_disk = {str(p.relative_to(out)): json.loads(p.read_text()) for p in out.rglob(".z*") if p.name != ".zmetadata"}
        self.assertEqual(consolidated, on_disk)
        for split, rows in self.data.items():
            self.assertEqual(read_zarr(out / split / "id").tolist(), list(rows))
            for field in self.manifest("data")["fields"]:
                array = read_zarr(out / split / field["name"])
                attributes = on_disk[f"{split}/{field['name']}/.zattrs"]
                self.assertEqual(len(attributes["_ARRAY_DIMENSIONS"]), array.ndim)
                self.assertEqual((attributes["role"], attributes.get("units")), (field["role"], field.get("units")))
                self.assertEqual(array.dtype, np.dtype(field["dtype"]))
                np.testing.assert_array_equal(array, np.stack([r[field["name"]] for r in rows.values()]))
        self.assertEqual(on_disk["train/u/.zarray"]["chunks"], [1, 2, 32, 40])
        try:
            import zarr
        except ImportError:
            return  # not in Debian 12
        np.testing.assert_array_equal(zarr.open(str(out), mode="r")["train/u"][...], np.stack([r["u"] for r in self.data["train"].values()]))

    def test_sub_cubes_keep_their_numbers(self):
        rows = ["id,file,a"]
        for i in range(6):
            np.save(self.folder / f"c{i}.npy", np.arange(64, dtype="f4").reshape(4, 4, 4) + 100 * i)
            rows.append(f"{i},c{i}.npy,{i}")
        (self.folder / "c.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "c.yaml").write_text(json.dumps({"samples": "c.csv", "output": "c", "split": {"train": 1.0, "validation": 0.0, "test": 0.0},
                                                        "inputs": {"x": {"transform": [{"subcubes": 2}]}}, "targets": {"a": "parameter"}}))
        subprocess.run([PROGRAM, str(self.folder / "c.yaml")], check=True, capture_output=True)
        self.shards("export", "c", "out", "--to", "webdataset")
        with tarfile.open(self.folder / "out/train-000000.tar") as tar:
            names = [n for n in tar.getnames() if n.endswith(".x.npy")]
            self.assertEqual((len(names), len(set(names))), (48, 48))
            value = np.load(io.BytesIO(tar.extractfile("000000003-00005.x.npy").read()))
        np.testing.assert_array_equal(value, (np.arange(64).reshape(4, 4, 4) + 300)[2:4, 0:2, 2:4])
        self.shards("reshard", "c", "again", "--shard-samples", 2)
        with h5py.File(self.folder / "again/train/shard-00001.h5") as file:
            self.assertEqual(file["id"][...].tolist(), [2] * 8 + [3] * 8)
            self.assertEqual(file["wflow/piece"][...].tolist(), [*range(8), *range(8)])
        self.assertEqual(self.manifest("again")["statistics"]["x"][0]["mean"], 31.5 + 250)

    def test_what_is_refused(self):
        (self.folder / "out").mkdir()
        (self.folder / "out/mine").write_text("mine")
        for form in ("npy", "tfrecord", "webdataset", "zarr"):
            self.assertIn("out is there already; remove it, or name another folder", self.refused("export", "data", "out", "--to", form))
        self.assertEqual([p.name for p in (self.folder / "out").iterdir()], ["mine"])
        self.assertIn("has no manifest.json", self.refused("export", "data-files", "other", "--to", "npy", code=4))
        self.assertIn("--to", self.refused("export", "data", "other", "--to", "parquet"))
        # The files of a killed export are no obstacle.
        (self.folder / ".other.partial/train").mkdir(parents=True)
        (self.folder / ".other.partial/train/u.npy").write_text("half")
        self.shards("export", "data", "other", "--to", "npy")
        # A damaged sample: the sample's sentence, and no folder.
        shard = self.folder / "data/train/shard-00000.h5"
        with h5py.File(shard) as file:
            offset, i = int(file["wflow/index/u"][3][0]) + 40, int(file["id"][3])
        data = bytearray(shard.read_bytes())
        data[offset] ^= 1
        shard.write_bytes(data)
        self.assertIn(f"sample {i} of ", self.refused("export", "data", "broken", "--to", "zarr", code=4))
        self.assertFalse((self.folder / "broken").exists())
        self.no_leftovers()

    def test_two_at_once(self):
        """The second is refused while the first has the lock on the unfinished folder."""
        folder = self.folder / ".out.partial"
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self.assertIn("another process writes", self.refused("export", "data", "out", "--to", "npy"))
        self.assertTrue(folder.exists())
        os.close(descriptor)
        self.shards("export", "data", "out", "--to", "npy")

    def test_a_full_disk_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        text = self.shards("export", "data", "out", "--to", "npy", code=5, preexec_fn=limit)
        self.assertIn("cannot write", text)
        self.assertFalse((self.folder / "out").exists())
        self.no_leftovers()


class Rewrites(ExchangeTest):
    def verify(self, name):
        self.assertIn("are as they were written", self.shards("verify", name))
        for shard in (self.folder / name).rglob("*.h5"):
            subprocess.run(["h5dump", "-H", str(shard)], check=True, capture_output=True)
            copy = self.folder / "copy.h5"
            subprocess.run(["h5repack", str(shard), str(copy)], check=True)
            subprocess.run(["h5diff", str(shard), str(copy)], check=True, capture_output=True)

    def assert_same_statistics(self, first, second, quantiles=True):
        self.assertEqual(first.keys(), second.keys())
        for field, channels in first.items():
            for one, other in zip(channels, second[field]):
                np.testing.assert_allclose([one[k] for k in ("mean", "std", "min", "max")], [other[k] for k in ("mean", "std", "min", "max")], rtol=1e-12)
                if quantiles:
                    self.assertEqual(one.get("quantiles"), other.get("quantiles"))

    def test_reshard(self):
        data = self.make("data", range(60))
        before = self.manifest("data")
        for arguments, blocks in ((("--shard-samples", 7), 9), (("--size", "100KiB"), None), ((), 1)):
            with self.subTest(arguments=arguments):
                self.shards("reshard", "data", "out", *arguments)
                self.assert_same(data, self.read("out"))
                after = self.manifest("out")
                self.assert_same_statistics(before["statistics"], after["statistics"])
                self.assertEqual((after["split"], after["missing"]), (before["split"], []))
                strip = lambda fields: [{k: v for k, v in f.items() if k != "compression"} for f in fields]
                self.assertEqual(strip(after["fields"]), strip(before["fields"]))
                self.verify("out")
                self.assertIn("the same 60 samples of 6 fields", self.shards("diff", "data", "out"))
                if blocks:
                    self.assertEqual(len(list((self.folder / "out/blocks").iterdir())), blocks)
                self.assertIn("median", self.shards("stats", "out"))
                shutil.rmtree(self.folder / "out")
        self.assertEqual({k: v for k, v in self.manifest("data").items()}, before)
        self.assertIn("excludes", self.refused("reshard", "data", "out", "--size", "1MiB", "--shard-samples", 3))
        self.assertIn("--size is a size such as 512MiB", self.refused("reshard", "data", "out", "--size", "big"))
        self.assertIn("is there already", self.refused("reshard", "data", "data"))

    def test_reshard_to_bricks_and_back(self):
        data = self.make("data", range(60))
        bricks = lambda name: {f["name"]: f["chunk"] for f in self.manifest(name)["fields"] if "chunk" in f}
        self.shards("reshard", "data", "bricks", "--bricks", "3x5")
        self.shards("reshard", "bricks", "kept", "--shard-samples", 9)
        self.shards("reshard", "bricks", "whole", "--bricks", "none")
        for name in ("bricks", "kept", "whole"):
            self.assert_same(data, self.read(name))
            self.verify(name)
            self.assertIn("the same 60 samples of 6 fields", self.shards("diff", "data", name))
            self.assert_same_statistics(self.manifest("data")["statistics"], self.manifest(name)["statistics"])
        self.assertEqual(bricks("data"), {})
        self.assertTrue(bricks("bricks"))
        self.assertEqual((bricks("kept"), set(map(tuple, bricks("whole").values()))), (bricks("bricks"), {()}))
        with h5py.File(self.folder / "bricks/train/shard-00000.h5") as one, h5py.File(self.folder / "data/train/shard-00000.h5") as other:
            self.assertEqual((one["u"].chunks, other["u"].chunks), ((1, 2, 3, 5), (1, 2, 32, 40)))
            self.assertEqual([file["big"].chunks for file in (one, other)], [(1, 3000)] * 2)  # of one axis
            np.testing.assert_array_equal(one["u"][7, 1, 2:10, 3], other["u"][7, 1, 2:10, 3])
        self.assertIn("--bricks is the cells of a brick along the last axes", self.refused("reshard", "data", "out", "--bricks", "3x0"))
        self.assertIn("no field of data has 4 axes besides channels", self.refused("reshard", "data", "out", "--bricks", "3x3x3x3"))

    def test_merge_is_what_one_conversion_makes(self):
        """By hash, samples have their split whatever data set they come with."""
        split = {"train": 0.7, "validation": 0.2, "test": 0.1, "seed": 3}
        whole = self.make("whole", range(40), split=split)
        self.make("even", range(0, 40, 2), split=split)
        self.make("odd", range(1, 40, 2), split=split, more=["77,odd-files/nothing,1,2"])
        self.shards("merge", "even", "odd", "out", "--shard-samples", 16)
        self.assert_same(whole, self.read("out"))
        self.assert_same_statistics(self.manifest("whole")["statistics"], self.manifest("out")["statistics"])
        self.assertEqual((self.manifest("out")["missing"], self.manifest("out")["split"]), ([77], self.manifest("whole")["split"]))
        self.verify("out")
        self.assertIn("nothing/u.npy", self.refused("sample", "out", 77, code=4))
        with h5py.File(self.folder / "out/train/shard-00000.h5") as file:
            self.assertEqual(sorted(file["id"][...]), list(file["id"][...]))
            self.assertEqual(file["u"].dtype, np.uint16)  # of uint8 and uint16 the one that holds both

    def test_same_ids(self):
        first = self.make("a", range(60))
        second = self.make("b", range(60))
        self.assertIn("a and b both have a sample 0; --renumber gives those of b new ids", self.refused("merge", "a", "b", "out"))
        self.assertIn("the ids of b are 60 higher", self.shards("merge", "a", "b", "out", "--renumber"))
        merged = self.read("out")
        self.assertEqual({s: len(rows) for s, rows in merged.items()}, {s: 2 * n for s, n in SPLITS.items()})
        self.assert_same(first, {s: {i: f for i, f in rows.items() if i < 60} for s, rows in merged.items()})
        self.assert_same(second, {s: {i: f for i, f in rows.items() if i >= 60} for s, rows in merged.items()}, 60)
        self.assert_same_statistics(self.manifest("a")["statistics"], self.manifest("out")["statistics"], quantiles=False)  # twice the counts
        self.verify("out")
        self.no_leftovers()

    def test_other_fields_are_refused(self):
        self.make("a", range(60))
        names = {"inputs": {"u": {"file": "u.npy", "layout": "CHW"}}}
        self.make("b", range(100, 160), **names)
        self.assertIn("a and b do not have the same fields: u, v, n, big, theta, a; and u, theta, a", self.refused("merge", "a", "b", "out"))
        names["inputs"]["u"]["transform"] = [{"crop": [16, 16]}]
        self.make("c", range(200, 260), **names)
        self.assertIn("the shape of u is (2, 32, 40) and (2, 16, 16)", self.refused("merge", "b", "c", "out"))
        names["inputs"]["u"] = {"file": "u.npy", "layout": "CHW", "units": "kelvin"}
        self.make("d", range(300, 360), **names)
        self.assertIn("the unit of u is none and kelvin", self.refused("merge", "b", "d", "out"))
        self.assertIn("merge needs two data sets or more", self.refused("merge", "a", "out"))


class Memory(ExchangeTest):
    """160 MiB of samples; the program is given a fraction of that."""
    COUNT, SHAPE, MOST = 40, (1024, 1024), 80 << 20

    def most_memory(self, *arguments):
        process = subprocess.Popen([PROGRAM, "shards", *map(str, arguments), "--threads", "1"], cwd=self.folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return usage.ru_maxrss * 1024

    @unittest.skipIf("detect_leaks" in os.environ.get("ASAN_OPTIONS", ""), "a sanitizer keeps what is freed")
    def test_bounded(self):
        rows = ["id,file,a"]
        for i in range(self.COUNT):
            np.save(self.folder / f"u{i}.npy", (np.arange(np.prod(self.SHAPE)) // 512 + i).astype("f4").reshape(self.SHAPE))
            rows.append(f"{i},u{i}.npy,{i}")
        (self.folder / "t.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "t.yaml").write_text(json.dumps({"samples": "t.csv", "output": "data", "shard_samples": 20, "inputs": {"u": {}}, "targets": {"a": "parameter"},
                                                        "split": {"train": 1.0, "validation": 0.0, "test": 0.0}}))
        subprocess.run([PROGRAM, str(self.folder / "t.yaml")], check=True, capture_output=True)
        for form in ("npy", "tfrecord", "webdataset", "zarr"):
            self.assertLess(self.most_memory("export", "data", f"out-{form}", "--to", form), self.MOST, form)
            shutil.rmtree(self.folder / f"out-{form}")
        self.assertLess(self.most_memory("reshard", "data", "out", "--shard-samples", 40), self.MOST)


class Mosaics(ExchangeTest):
    def test_mosaic(self):
        from PIL import Image

        rows = ["id,file,a,b"]
        for i in range(16):  # a grid of 4 x 4 parameters; a sample is of one grey
            np.save(self.folder / f"u{i}.npy", np.full((8, 8), i, "f4"))
            rows.append(f"{i},u{i}.npy,{i % 4},{10 * (i // 4)}")
        (self.folder / "t.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "t.yaml").write_text(json.dumps({"samples": "t.csv", "output": "data", "split": {"train": 16, "validation": 0, "test": 0},
                                                        "inputs": {"u": {}}, "targets": {"a": "parameter", "b": "parameter"}}))
        subprocess.run([PROGRAM, str(self.folder / "t.yaml")], check=True, capture_output=True)
        text = self.shards("mosaic", "data", "--png", "all.png")
        self.assertIn("16 of 16 train samples, 4 x 4 tiles of 8 x 8 pixels", text)
        self.assertIn("to the right: a from 0 to 3\nupwards: b from 0 to 30", text)
        grey = np.asarray(Image.open(self.folder / "all.png")).astype(int)
        self.assertEqual(grey.shape, (35, 35))
        for i in range(16):
            row, column = 9 * (3 - i // 4) + 4, 9 * (i % 4) + 4
            self.assertAlmostEqual(grey[row, column], i / 15 * 255, delta=1, msg=i)
        self.assertIn("to the right: b", self.shards("mosaic", "--png", "ba.png", "--parameters", "b,a", "data"))
        self.assertIn("in reading order: a", self.shards("mosaic", "data", "--png", "a.png", "--parameters", "a"))
        self.assertIn("4 of 16 train samples, 2 x 2 tiles", self.shards("mosaic", "data", "--png", "few.png", "--grid", 2))
        self.assertIn("there is no parameter 'c' (there are a, b)", self.refused("mosaic", "data", "--png", "c.png", "--parameters", "c"))
        self.assertIn("the split test has no samples", self.refused("mosaic", "data", "--png", "c.png", "--split", "test"))


class Imports(ExchangeTest):
    """Files of the layout of MLPerf HPC's CosmoFlow, small."""
    side = 16

    def volume(self, i):
        return np.random.default_rng(i).poisson(3, (self.side,) * 3 + (4,)).astype("i2")

    def targets(self, i):
        return np.random.default_rng(1000 + i).uniform(-1, 1, 4).astype("f4")

    def write_hdf5(self, folder, i, names=True):
        folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(folder / f"univ_ics_2019-03_a{i:08}.hdf5", "w") as file:
            file["full"] = self.volume(i)
            file["unitPar"] = self.targets(i)
            file["physPar"] = self.targets(i) * 0.1 + 1
            file["redshifts"] = np.array([0, 0.5, 1.5, 3.0])
            if names:
                file["namePar"] = np.array([b"Omega_m", b"sigma_8", b"N_spec", b"H_0"])

    def write_tfrecord(self, folder, i, compress=False, volume=None):
        folder.mkdir(parents=True, exist_ok=True)
        volume = self.volume(i) if volume is None else volume
        body = record(example({"x": (1, volume.tobytes()), "y": (2, self.targets(i).tobytes())}))
        path = folder / f"univ_ics_2019-03_a{i:08}_{i % 4:03}.tfrecord"
        path.write_bytes(gzip.compress(body) if compress else body)
        return path

    def check(self, name, ids, dtype="i2"):
        found = {}
        manifest = self.manifest(name)
        x, y = manifest["fields"]
        self.assertEqual((x["layout"], x["shape"], x["dtype"]), ("CDHW", [4] + [self.side] * 3, np.dtype(dtype).name))
        self.assertEqual((y["layout"], y["role"], y["dtype"]), ("C", "target", "float32"))
        for split, rows in self.read(name).items():
            found[split] = []
            for row in rows.values():
                (i,) = [i for i in ids if np.array_equal(self.targets(i), row["y"])]
                np.testing.assert_array_equal(row["x"], np.moveaxis(self.volume(i), -1, 0))
                found[split].append(i)
        self.assertIn("are as they were written", self.shards("verify", name))
        return found

    def train(self, name):
        if not TRAIN:
            self.skipTest("needs wflow-train")
        (self.folder / "train.yaml").write_text(json.dumps({"data": str(self.folder / name), "output": str(self.folder / "run"), "epochs": 1, "batch": 4,
                                                            "model": {"name": "cosmoflow"}}))
        done = subprocess.run([TRAIN, str(self.folder / "train.yaml")], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("epoch 1", done.stdout)

    def test_hdf5_with_its_splits(self):
        for i in range(24):
            self.write_hdf5(self.folder / "public" / ("train" if i < 16 else "validation") / f"part{i % 2}", i)
        text = self.shards("import", "public", "data", "--layout", "mlperf")
        self.assertIn("16 train, 8 validation, 0 test samples, 0 missing", text)
        found = self.check("data", range(24))
        self.assertEqual((sorted(found["train"]), sorted(found["validation"])), (list(range(16)), list(range(16, 24))))
        self.assertEqual(self.manifest("data")["fields"][1]["channels"], ["Omega_m", "sigma_8", "N_spec", "H_0"])
        self.assertEqual(self.manifest("data")["split"]["order"], "given")
        self.assertIn("data is there already", self.refused("import", "public", "data", "--layout", "mlperf"))
        self.shards("import", "--labels", "a,b,c,d", "public", "physical", "--layout", "mlperf", "--physical", "--shard-samples", 5)
        text = self.shards("sample", "physical", 5, "--lineage")
        self.assertIn("imported from record 0 of\n  " + str(sorted((self.folder / "public").rglob("*.hdf5"))[5]) + " (", text)
        with h5py.File(self.folder / "physical/train/shard-00000.h5") as file, h5py.File(self.folder / "public/train/part0/univ_ics_2019-03_a00000000.hdf5") as raw:
            np.testing.assert_array_equal(file["y"][0], raw["physPar"][...])
            self.assertEqual(list(file["y"].attrs["names"]), ["a", "b", "c", "d"])
        self.train("data")

    def test_sub_cubes(self):
        for i in range(4):
            self.write_hdf5(self.folder / "public", i)
        self.shards("import", "public", "data", "--layout", "mlperf", "--subcubes", 8, "--split", "1,0,0")
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            self.assertEqual(file["x"].shape, (32, 4, 8, 8, 8))
            np.testing.assert_array_equal(file["x"][8 + 3], np.moveaxis(self.volume(1)[0:8, 8:16, 8:16], -1, 0))

    def test_tfrecord_plain_and_gzip(self):
        for i in range(24):
            self.write_tfrecord(self.folder / "public" / ("train" if i < 16 else "val"), i, compress=i % 2)
        self.shards("import", self.folder / "public/", "data", "--layout", "mlperf")
        found = self.check("data", range(24))
        self.assertEqual((len(found["train"]), len(found["validation"])), (16, 8))
        self.assertEqual(self.manifest("data")["fields"][1]["channels"], ["omega_m", "sigma_8", "n_s", "h_0"])
        self.train("data")

    def test_tfrecord_of_floats_in_one_folder(self):
        """Files in no folder train: by hash, the cubes of a universe together; several records a file, too."""
        for i in range(12):
            self.write_tfrecord(self.folder / "public", i, volume=self.volume(i).astype("f4"))
        one = b"".join(record(example({"x": (1, self.volume(i).astype("f4").tobytes()), "y": (2, self.targets(i).tobytes())})) for i in range(12, 20))
        (self.folder / "public/many.tfrecord").write_bytes(one)
        self.shards("import", *sorted((self.folder / "public").iterdir()), "data", "--layout", "mlperf", "--split", "0.5,0.5,0", "--seed", 2)
        found = self.check("data", range(20), "f4")
        self.assertEqual(sorted(sum(found.values(), [])), list(range(20)))
        self.assertEqual(len({split for split, ids in found.items() for i in ids if i >= 12}), 1)

    def test_damage(self):
        for i in range(10):
            self.write_tfrecord(self.folder / "public", i)
        good = (self.folder / "public/univ_ics_2019-03_a00000003_003.tfrecord").read_bytes()
        length = struct.pack("<Q", 1 << 62)
        damage = {2: good[:len(good) // 2], 3: good[:100] + bytes([good[100] ^ 1]) + good[101:], 4: length + struct.pack("<I", masked(length)) + good[12:],
                  5: b"what", 6: gzip.compress(good)[:-100], 7: gzip.compress(good)[:200] + b"\0" * 50 + gzip.compress(good)[250:]}
        names = {}
        for i, data in damage.items():
            names[i] = self.folder / f"public/univ_ics_2019-03_a{i:08}_{i % 4:03}.tfrecord"
            names[i].write_bytes(data)
        done = subprocess.run([PROGRAM, "shards", "import", "public", "data", "--layout", "mlperf", "--split", "1,0,0"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 4, done.stderr)  # 6 of 10: more than half
        lines = done.stderr.splitlines()
        for i, why in ((2, "the record at byte 0 is cut short|claims"), (3, "byte 0 does not have its checksum"), (4, "byte 0 claims 4611686018427387904 bytes"),
                       (5, "byte 0 is cut short: its header has 4 of 12 bytes"), (6, "is not a whole gzip stream: it ends"), (7, "is not a whole gzip stream|checksum")):
            (line,) = [line for line in lines if line.startswith(f"sample {i} is left out: ")]
            self.assertIn(names[i].name, line)
            self.assertRegex(line, why)
        # With less damage the rest is imported, and what is missing stands in the manifest.
        for i in (2, 3, 4):
            names[i].write_bytes(good)
        shutil.rmtree(self.folder / "data")
        self.shards("import", "public", "data", "--layout", "mlperf", "--split", "1,0,0")
        self.assertEqual(self.manifest("data")["missing"], [5, 6, 7])

    def test_what_was_killed_goes_on(self):
        for i in range(12):
            self.write_tfrecord(self.folder / "public/train", i, compress=True)
        command = ["import", "public", "data", "--layout", "mlperf", "--shard-samples", 1]
        process = subprocess.Popen([PROGRAM, "shards", *map(str, command)], cwd=self.folder, stdout=subprocess.DEVNULL)
        while process.poll() is None and not (self.folder / "data/blocks/00003.json").exists():
            time.sleep(0.001)
        process.kill()
        process.wait()
        blocks = {p.name: p.stat().st_mtime_ns for p in (self.folder / "data/blocks").glob("0*.json")}
        self.assertGreaterEqual(len(blocks), 4)
        if not (self.folder / "data/manifest.json").exists():
            self.shards(*command)
        for name, changed in blocks.items():
            self.assertEqual((self.folder / "data/blocks" / name).stat().st_mtime_ns, changed)
        self.assertEqual(sorted(self.check("data", range(12))["train"]), list(range(12)))
        self.shards("import", "public", "whole", "--layout", "mlperf", "--shard-samples", 1)
        self.assertEqual(self.manifest("data"), self.manifest("whole"))

    def test_what_is_refused(self):
        self.write_hdf5(self.folder / "public/train", 1)
        self.write_tfrecord(self.folder / "public/train", 2)
        self.assertIn("are of two formats; import them apart", self.refused("import", "public", "data", "--layout", "mlperf"))
        self.write_hdf5(self.folder / "mixed/train", 1)
        self.write_hdf5(self.folder / "mixed", 2)
        self.assertIn("lies in no folder train, validation or test", self.refused("import", "mixed", "data", "--layout", "mlperf"))
        (self.folder / "empty").mkdir()
        self.assertIn("there is no .hdf5, .h5 or .tfrecord file in empty", self.refused("import", "empty", "data", "--layout", "mlperf", code=4))
        self.assertIn("nowhere is not there", self.refused("import", "nowhere", "data", "--layout", "mlperf", code=4))
        odd = self.folder / "odd"
        odd.mkdir()
        (odd / "a.tfrecord").write_bytes(record(example({"x": (1, b"12345"), "y": (2, b"\0" * 16)})))
        self.assertIn("x of " + str(odd / "a.tfrecord") + " has 5 bytes, which is no cube of 4 channels", self.refused("import", "odd", "data", "--layout", "mlperf", code=4))

    def test_tfrecord_as_a_format_of_convert(self):
        rows = ["id,file"]
        for i in range(10):
            path = self.write_tfrecord(self.folder / "files", i)
            rows.append(f"{i},{path.relative_to(self.folder)}")
        (self.folder / "t.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "t.yaml").write_text(json.dumps({
            "samples": "t.csv", "output": "data", "split": {"train": 8, "validation": 1, "test": 1},
            "inputs": {"x": {"format": "tfrecord", "dataset": "x", "raw": {"dtype": "int16"}, "shape": [self.side] * 3 + [4], "layout": "DHWC"}},
            "targets": {"y": {"dataset": "y", "layout": "C"}}}))
        subprocess.run([PROGRAM, str(self.folder / "t.yaml")], check=True, capture_output=True)
        self.assertEqual(sorted(sum(self.check("data", range(10)).values(), [])), list(range(10)))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if len(sys.argv) > 1 and os.path.basename(sys.argv[1]) == "wflow-train":
        TRAIN = os.path.abspath(sys.argv.pop(1))
    unittest.main()
