#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ragged fields: samples of different lengths, stored without padding, and `wflow shards sort`.

Usage: convert_ragged_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import wflow  # noqa: E402

PROGRAM = ""
COUNT = 60
CHANNELS = ["flow", "pressure", "heat"]


def length(i):
    return 41 + i * 379 % 700


def trace(i):
    """(length, channels): compressible, and other values in each sample."""
    steps = np.arange(length(i), dtype="f4")[:, None]
    return np.round(np.sin(steps / 9 + i) * 50) + np.array([0, 100, 200], "f4")


def digests(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file()}


class Ragged(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-ragged-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write_table(range(COUNT))

    def write_table(self, ids, name="t.csv", kind=lambda i: i * 7 % 5):
        rows = ["id,directory,type,a"]
        for i in ids:
            folder = self.folder / f"s{i}"
            folder.mkdir(exist_ok=True)
            np.save(folder / "trace.npy", trace(i))
            np.save(folder / "series.npy", trace(i)[:, 0].astype("i2"))
            rows.append(f"{i},s{i},{kind(i)},{i / 8!r}")
        (self.folder / name).write_text("\n".join(rows) + "\n")

    def run_program(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "WFLOW_EVENTS": str(self.folder / "events")})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr + done.stdout

    def config(self, output="data", **keys):
        fields = {"trace": {"file": "trace.npy", "layout": "TC", "ragged": "T", "channels": CHANNELS},
                  "series": {"file": "series.npy", "ragged": "T", "pad_value": -7}}
        config = {"samples": "t.csv", "output": output, "shard_samples": 25, "inputs": fields,
                  "targets": {"type": "parameter", "a": "parameter"}, **keys}
        path = self.folder / f"{output}.yaml"
        path.write_text(json.dumps({"convert": config}))
        return path

    def convert(self, output="data", code=0, **keys):
        return self.run_program(self.config(output, **keys), code=code)

    def open(self, output="data"):
        return wflow.open(self.folder / output)

    def each_sample(self, data):
        for name in ("train", "validation", "test"):
            split = data[name]
            for i, number in enumerate(split.ids):
                yield split, i, int(number)

    def check(self, output="data", ids=range(COUNT)):
        """All samples through the package, at their length and padded, and by `verify`."""
        data = self.open(output)
        most = max(length(i) for i in ids)
        self.assertEqual(data.fields["trace"].shape, (3, most))
        self.assertEqual(data.fields["trace"].lengths, (min(length(i) for i in ids), most))
        found = []
        for split, i, number in self.each_sample(data):
            n = length(number)
            np.testing.assert_array_equal(split.ragged("trace", i), trace(number).T)
            np.testing.assert_array_equal(split.ragged("series", i), trace(number)[:, 0])
            sample = split[i]
            np.testing.assert_array_equal(sample["trace"], np.pad(trace(number).T, ((0, 0), (0, most - n))))
            np.testing.assert_array_equal(sample["series"], np.pad(trace(number)[:, 0], (0, most - n), constant_values=-7))
            np.testing.assert_array_equal(sample["trace_mask"], np.arange(most) < n)
            np.testing.assert_array_equal(sample["series_mask"], np.arange(most) < n)
            found.append(number)
        self.assertEqual(sorted(found), sorted(ids))
        self.run_program("verify", self.folder / output)
        return data

    def test_the_file_holds_each_sample_at_its_length(self):
        self.convert()
        for path in sorted((self.folder / "data").glob("*/shard-*.h5")):
            with h5py.File(path) as f:
                o = f["wflow/offsets/trace"][...]
                self.assertEqual(f["trace"].shape, (o[-1], 3))
                self.assertEqual(len(o), len(f["id"]) + 1)
                self.assertEqual(f["trace"].compression, "gzip")
                self.assertTrue(f["trace"].shuffle)
                self.assertEqual(f["trace"].attrs["layout"], "TC")
                self.assertEqual(list(f["trace"].attrs["channels"]), CHANNELS)
                self.assertEqual(f.attrs["wflow_format"], 3)
                self.assertNotIn("trace_mask", f)
                for i, number in enumerate(f["id"]):
                    np.testing.assert_array_equal(f["trace"][o[i]:o[i + 1]], trace(number))
            subprocess.run(["h5dump", "-H", str(path)], check=True, capture_output=True)
        described = self.run_program("inspect", self.folder / "data")
        self.assertIn("axes C, T; T of a sample is 41 to", described)
        self.assertIn("made from the lengths of the samples", described)
        listed = self.run_program("shards", "info", self.folder / "data/train/shard-00000.h5")
        self.assertIn("ragged, 5461 steps a chunk, shuffle, deflate, indexed", listed)
        data = self.check()
        self.assertEqual(data.manifest["wflow_format"], 3)
        self.assertEqual(data.inputs, ["trace", "trace_mask", "series", "series_mask"])

    def test_statistics_are_of_the_values_that_there_are(self):
        self.convert()
        data = self.open()
        values = np.concatenate([trace(number).astype("f8") for split, i, number in self.each_sample(data) if split.name == "train"])
        np.testing.assert_allclose(data.fields["trace"].mean, values.mean(0), rtol=1e-6)
        np.testing.assert_allclose(data.fields["trace"].std, values.std(0), rtol=1e-6)
        np.testing.assert_allclose(data.fields["series"].mean, values[:, 0].mean(), rtol=1e-6, atol=1e-6)
        masks = data.train.all("trace_mask")
        np.testing.assert_allclose(data.fields["trace_mask"].mean, masks.mean(), rtol=1e-9)
        np.testing.assert_allclose(data.fields["trace_mask"].std, masks.std(), rtol=1e-9)

    def test_readers_return_what_pad_stores(self):
        self.convert()
        most = max(map(length, range(COUNT)))
        fields = {"trace": {"file": "trace.npy", "layout": "TC", "pad": [3, most], "channels": CHANNELS},
                  "series": {"file": "series.npy", "pad": [most], "pad_value": -7}}
        self.convert("padded", inputs=fields)
        ragged, padded = self.open(), self.open("padded")
        self.assertEqual(list(ragged.fields), list(padded.fields))
        for name in ragged.fields:
            np.testing.assert_array_equal(ragged.train.all(name), padded.train.all(name))
        difference = self.run_program("shards", "diff", self.folder / "data", self.folder / "padded")
        self.assertIn(f"the same {COUNT} samples of 6 fields", difference)
        size = lambda folder: sum(p.stat().st_size for p in (self.folder / folder).glob("*/shard-*.h5"))
        self.assertLess(size("data"), size("padded"))

    def test_no_compression_and_blocks_in_any_order(self):
        self.convert(compression="none")
        self.check()
        config = self.config("later", compression="none")
        for block in (2, 0, 1):
            self.run_program(config, "--block", block)
        self.run_program(config, "--finish")
        self.check("later")
        shards = lambda folder: {k: v for k, v in digests(self.folder / folder).items() if k.endswith(".h5")}
        self.assertEqual(shards("data"), shards("later"))

    def test_growth_may_bring_longer_samples(self):
        self.write_table(range(25))
        self.convert()
        before = digests(self.folder / "data")
        self.check(ids=range(25))
        self.write_table(range(COUNT))
        self.convert()
        self.check()
        after = digests(self.folder / "data")
        self.assertEqual({k: after[k] for k in before if k.endswith("00000.h5")},
                         {k: before[k] for k in before if k.endswith("00000.h5")})

    def test_killed_at_many_places(self):
        """SIGKILL during the conversion, again and again: what is there in the end is what an undisturbed run writes."""
        self.convert()
        expected = digests(self.folder / "data")
        config = self.config("killed", name="data")
        kills = 0
        for tries in range(200):
            child = subprocess.Popen([PROGRAM, str(config), "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     env={**os.environ, "WFLOW_EVENTS": str(self.folder / "events")})
            try:
                child.wait(timeout=0.004 * (tries + 1))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                kills += 1
            child.stdout.close()
            if child.returncode == 0:
                break
        self.assertEqual(child.returncode, 0)
        self.assertGreater(kills, 0)
        found = digests(self.folder / "killed")
        self.assertEqual({k: v for k, v in found.items() if k.endswith(".h5")}, {k: v for k, v in expected.items() if k.endswith(".h5")})
        self.check("killed")

    def test_inputs_are_deleted_only_after_they_were_read_back(self):
        self.convert(delete_inputs=True)
        self.assertFalse(list(self.folder.glob("s*/*.npy")))
        self.check()

    def test_damage_is_found(self):
        self.convert()
        path = self.folder / "data/train/shard-00000.h5"
        good = path.read_bytes()
        with h5py.File(path) as f:
            first = f["id"][0]
            place = f["trace"].id.get_chunk_info_by_coord((0, 0))
            table = f["wflow/offsets/trace"].id.get_offset()
        damaged = bytearray(good)
        damaged[place.byte_offset + place.size // 2] ^= 1
        path.write_bytes(damaged)
        self.assertIn(f"sample {first} of {path} is damaged", self.run_program("verify", self.folder / "data", code=4))
        with self.assertRaises(wflow.DamagedData):
            self.open().train.ragged("trace", 0)
        damaged = bytearray(good)
        damaged[table + 8] ^= 1
        path.write_bytes(damaged)
        self.assertIn("the offsets of trace", self.run_program("verify", self.folder / "data", code=4))
        with self.assertRaises(wflow.DamagedData):
            self.open().train[0]

    def test_a_file_of_another_tool(self):
        """h5repack moves chunks (read by asking HDF5) or packs them by other filters (refused)."""
        self.convert()
        path = self.folder / "data/train/shard-00000.h5"
        moved = self.folder / "moved.h5"
        subprocess.run(["h5repack", str(path), str(moved)], check=True)
        shutil.copy(moved, path)
        for split, i, number in self.each_sample(self.open()):
            np.testing.assert_array_equal(split.ragged("trace", i), trace(number).T)
        self.run_program("shards", "head", self.folder / "data")
        subprocess.run(["h5repack", "-f", "trace:FLET", str(moved), str(path)], check=True)
        self.assertIn("chunks or filters of another tool", self.run_program("shards", "head", self.folder / "data", code=4))

    def test_merge_and_reshard(self):
        self.write_table(range(25))
        self.convert("first")
        self.write_table(range(25, COUNT))
        self.convert("second")
        self.run_program("shards", "merge", self.folder / "first", self.folder / "second", self.folder / "data")
        merged = self.check()
        self.run_program("shards", "reshard", self.folder / "data", self.folder / "other", "--shard-samples", 7)
        other = self.check("other")
        for name in merged.fields:
            np.testing.assert_allclose(other.fields[name].mean, merged.fields[name].mean)
            np.testing.assert_allclose(other.fields[name].std, merged.fields[name].std)

    def test_sort(self):
        self.convert()
        text = self.run_program("shards", "sort", self.folder / "data", self.folder / "sorted", "--by", "type,length(trace)", "--shard-samples", 11)
        self.assertIn("train", text)
        data = self.check("sorted")
        self.assertEqual(data.manifest["sorted_by"], ["type", "length(trace)"])
        before = {number: split.name for split, _, number in self.each_sample(self.open())}
        order = {}
        for split, i, number in self.each_sample(data):
            self.assertEqual(split.name, before[number])
            order.setdefault(split.name, []).append((number * 7 % 5, length(number), number))
        for samples in order.values():
            self.assertEqual(samples, sorted(samples))
        np.testing.assert_array_equal(data.train.order_by(["type", "length(trace)"]), np.arange(len(data.train)))
        plain = self.open().train
        np.testing.assert_array_equal(plain.ids[plain.order_by(["type", "length(series)"])], data.train.ids)
        error = self.run_program("shards", "sort", self.folder / "data", self.folder / "no", "--by", "typ", code=2)
        self.assertIn("--by typ: no field or label of one number has this name", error)
        self.assertIn("length(trace)", error)
        self.assertFalse((self.folder / "no").exists())
        error = self.run_program("shards", "sort", self.folder / "data", self.folder / "no", "--by", "length", code=2)
        self.assertIn("--by length: several fields are ragged", error)

    def test_sort_is_for_every_data_set(self):
        self.convert(inputs={"a": "parameter"}, targets={"type": "parameter"})
        self.run_program("shards", "sort", self.folder / "data", self.folder / "sorted", "--by", "type")
        data = self.open("sorted")
        kinds = data.train.all("type")
        self.assertTrue((np.diff(kinds) >= 0).all())
        self.assertIn("no field is ragged", self.run_program("shards", "sort", self.folder / "data", self.folder / "no", "--by", "length", code=2))

    def test_export_is_padded(self):
        self.convert()
        self.run_program("shards", "export", self.folder / "data", self.folder / "out", "--to", "npy")
        files = {path.name: path for path in (self.folder / "out").rglob("*.npy")}
        self.assertIn("trace_mask", " ".join(map(str, files)) + " ".join(str(p) for p in files.values()))

    def test_the_usual_case_of_format_2_stays(self):
        self.convert(inputs={"a": "parameter"}, targets={"type": "parameter"})
        self.assertEqual(self.open().manifest["wflow_format"], 2)
        with h5py.File(self.folder / "data/train/shard-00000.h5") as f:
            self.assertEqual(f.attrs["wflow_format"], 2)

    def test_wrong_configurations(self):
        field = {"file": "trace.npy", "layout": "TC", "ragged": "T"}
        for change, part in (({"pad": [3, 9]}, "'pad' does not go with 'ragged'"),
                             ({"ragged": "C"}, "'ragged' names the axis whose length differs: T, D, H or W, not 'C'"),
                             ({"ragged": "W"}, "'layout' TC has no axis W that could be ragged"),
                             ({"narrow": True}, "'narrow' does not go with 'ragged'"),
                             ({"transform": {"subcubes": 8}}, "'subcubes' does not go with 'ragged'")):
            error = self.convert(code=3, inputs={"trace": {**field, **change}})
            self.assertIn(part, error)
        error = self.convert(code=3, inputs={"trace": field, "trace_mask": {"file": "trace.npy"}})
        self.assertIn("the mask of 'trace' is named 'trace_mask', as another field is", error)
        error = self.convert(code=4, inputs={"trace": {"file": "trace.npy", "ragged": "T"}})
        self.assertIn("has the axes H, W, none of which is the ragged T", error)

    def test_transforms_and_filters_see_the_values_that_there_are(self):
        field = {"file": "trace.npy", "layout": "TC", "ragged": "T", "transform": [{"scale": [2, 1]}], "dtype": "float64"}
        self.convert(inputs={"trace": field}, drop_if="min(trace) == 0")
        data = self.open()
        split, i, number = next(self.each_sample(data))
        np.testing.assert_array_equal(split.ragged("trace", i), trace(number).T * 2 + 1)
        self.assertEqual(sum(len(data[name]) for name in ("train", "validation", "test")), COUNT)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
