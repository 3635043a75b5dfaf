#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""wflow-convert as a user meets it: its files read with h5py, and every wrong input.

Usage: convert_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

PROGRAM = ""
DATA_ERROR, SPEC_ERROR, SYSTEM_ERROR, USAGE_ERROR = 4, 3, 5, 2


def universe(i, shape=(2, 8, 8, 8)):
    return np.random.default_rng(i).poisson(1.0, size=shape).astype("f4")


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-convert-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_program(self, *arguments, **keywords):
        environment = {**os.environ, "WFLOW_EVENTS": str(self.folder / "events"), **keywords.pop("env", {})}
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=environment,
                              timeout=120, **keywords)

    def good(self, *arguments, **keywords):
        result = self.run_program(*arguments, **keywords)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def fails(self, code, part, *arguments, **keywords):
        result = self.run_program(*arguments, **keywords)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("wflow-convert: ") or ": error: " in line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn(part, lines[0])
        return result

    def write_samples(self, count=20, suffix="h5"):
        rows = ["file,omega_m,sigma_8"]
        for i in range(count):
            self.write_sample(i, suffix)
            rows.append(f"u{i}.{suffix},{0.1 + i / 300!r},{0.7 + i / 700!r}")
        (self.folder / "table.csv").write_text("\n".join(rows) + "\n")

    def write_sample(self, i, suffix="h5", values=None):
        values = universe(i) if values is None else values
        path = self.folder / f"u{i}.{suffix}"
        if suffix == "h5":
            with h5py.File(path, "w") as file:
                file["density"] = values
        elif suffix == "npy":
            np.save(path, values)
        else:
            values.tofile(path)
        return path

    def write_config(self, **keys):
        config = {"samples": "table.csv", "output": "data", "shard_samples": 8, **keys}
        if all(isinstance(part, float) for part in config.get("split", {}).values()):
            config["split"] = {"train": 0.8, "validation": 0.1, "test": 0.1, "order": "count", **config.get("split", {})}
        path = self.folder / "convert.yaml"
        path.write_text(json.dumps({"convert": config}))  # JSON is YAML
        return path

    def manifest(self):
        return json.loads((self.folder / "data/manifest.json").read_text())

    def check_values(self, missing=(), shape=(2, 8, 8, 8)):
        seen = []
        manifest = self.manifest()
        train = []
        for split, entry in manifest["splits"].items():
            for shard in entry["shards"]:
                with h5py.File(self.folder / "data" / shard["file"]) as file:
                    self.assertEqual(file.attrs["split"], split)
                    self.assertEqual(file["x"].chunks, (1, *shape))
                    self.assertEqual(list(file["y"].attrs["names"]), ["omega_m", "sigma_8"])
                    for row, i in enumerate(file["id"]):
                        np.testing.assert_array_equal(file["x"][row], universe(i).reshape(shape))
                        np.testing.assert_array_equal(file["y"][row], [0.1 + i / 300, 0.7 + i / 700])
                        seen.append(i)
                        if split == "train":
                            train.append(universe(i).reshape(shape))
        self.assertEqual(sorted(seen), [i for i in range(20) if i not in missing])
        self.assertEqual(manifest["missing"], sorted(missing))
        channels = np.moveaxis(np.array(train, "f8"), 1, 0).reshape(shape[0], -1)
        for statistics, values in zip(manifest["statistics"]["x"], channels):
            np.testing.assert_allclose([statistics[k] for k in ("mean", "std", "min", "max")],
                                       [values.mean(), values.std(), values.min(), values.max()], rtol=1e-12)

    def check_nothing_half_written(self):
        data = self.folder / "data"
        left = [p for p in data.rglob("*") if p.is_file()] if data.is_dir() else []
        self.assertEqual([str(p) for p in left], [])

    # Valid configurations.

    def test_hdf5_values(self):
        self.write_samples()
        output = self.good(self.write_config(channels=["z=1", "z=0"], units="counts"))
        self.assertIn("16 train, 2 validation, 2 test", output)
        self.check_values()
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            self.assertEqual(list(file["x"].attrs["channels"]), ["z=1", "z=0"])
            self.assertEqual(file["x"].attrs["units"], "counts")
            self.assertEqual((file["x"].compression, file["x"].shuffle), ("gzip", True))
        self.assertIn("omega_m", self.good("inspect", self.folder / "data"))
        self.good("verify", self.folder / "data")

    def test_npy_and_raw_values(self):
        for suffix, keys in (("npy", {}), ("raw", {"shape": [2, 8, 8, 8], "raw": {"dtype": "float32"}})):
            self.write_samples(suffix=suffix)
            self.good(self.write_config(**keys), "--force")
            self.check_values()

    def test_fortran_and_big_endian(self):
        self.write_samples(suffix="npy")
        for i in range(20):
            self.write_sample(i, "npy", np.asfortranarray(universe(i).astype(">f8" if i % 2 else "<f8")))
        self.good(self.write_config(dtype="float32"))
        self.check_values()

    def test_compressed_big_endian_hdf5(self):
        self.write_samples()
        for i in range(20):
            with h5py.File(self.folder / f"u{i}.h5", "w") as file:
                file.create_dataset("density", data=universe(i).astype(">f4"), chunks=(1, 8, 8, 4), compression="gzip")
                file["other"] = [1, 2]
        self.good(self.write_config(dataset="/density"))
        self.check_values()

    def test_block_by_block(self):
        self.write_samples()
        config = self.folder / "c.yaml"
        config.write_text("from: simulate\nfile: universe.h5\noutput: data\ncount: 20\nshard_samples: 8\nsplit: {train: 0.8, validation: 0.1, order: count}\n")
        for block in (2, 0, 1):
            rows = self.folder / f"rows{block}.csv"
            ids = [i for i in range(8 * block, min(20, 8 * block + 8)) if i != 9]  # 9 was not handed over
            rows.write_text("id,file,omega_m,sigma_8\n" + "".join(
                f"{i},u{i}.h5,{0.1 + i / 300!r},{0.7 + i / 700!r}\n" for i in ids))
            (self.folder / "u13.h5").unlink(missing_ok=True)
            self.good(config, "--block", block, "--samples", rows)
        self.good(config, "--finish")
        self.check_values(missing=[9, 13])
        events = [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]
        self.assertEqual(sorted(e["sample"] for e in events if e["type"] == "missing"), [9, 13])
        self.assertEqual(sum(e["type"] == "artifact" and e["kind"] == "manifest" for e in events), 1)
        self.assertEqual([e for e in events if e["type"] == "progress"][0]["unit"], "samples")
        self.fails(DATA_ERROR, "but block 1 is of samples 8 to 15", config, "--block", 1, "--samples", self.folder / "rows0.csv")
        self.fails(USAGE_ERROR, "there is no block 3", config, "--block", 3, "--samples", self.folder / "rows0.csv")
        self.fails(USAGE_ERROR, "is of a campaign", config)

    def test_no_times_in_the_files(self):
        self.write_samples()
        self.good(self.write_config())
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            for name in ("x", "y", "id", "missing", "wflow", "wflow/index/x", "wflow/index/y"):
                info = h5py.h5o.get_info(file[name].id)
                self.assertEqual(info.mtime if hasattr(info, "mtime") else 0, 0)

    # Errors.

    def test_configuration_errors(self):
        self.fails(SPEC_ERROR, "did you mean 'samples'?", self.write_config(sample="x"))
        self.fails(DATA_ERROR, "no such file", self.folder / "none.yaml")
        self.fails(DATA_ERROR, "no such file", self.write_config())  # no table
        self.fails(USAGE_ERROR, "a configuration file is needed")
        self.fails(USAGE_ERROR, "--help", self.write_config(), "--treads", "2")
        self.write_samples()
        self.fails(SPEC_ERROR, "there are 20 samples", self.write_config(split={"train": 5, "validation": 5, "test": 5}))
        self.fails(SPEC_ERROR, "has 20 rows", self.write_config(count=21))
        (self.folder / "table.csv").write_text("file,a\nu0.h5,1\nu1.h5\n")
        self.fails(DATA_ERROR, "table.csv:3: this row has 1 fields, the header has 2", self.write_config())
        self.check_nothing_half_written()

    def test_unusable_samples(self):
        self.write_samples()
        (self.folder / "u0.h5").unlink()
        self.write_sample(1, values=universe(1, (2, 8, 8, 9)))
        self.write_sample(2, values=universe(2).astype("i4"))
        os.truncate(self.folder / "u3.h5", 3000)
        spoiled = universe(4)
        spoiled[1, 2, 3, 4] = np.nan
        self.write_sample(4, values=spoiled)
        (self.folder / "u5.h5").write_bytes(b"not HDF5 at all")
        with h5py.File(self.folder / "u6.h5", "w") as file:
            file["velocity"] = universe(6)
        self.write_sample(7, values=np.array([b"text"]))
        (self.folder / "u8.h5").unlink()
        (self.folder / "u8.h5").mkdir()
        result = self.run_program(self.write_config(dataset="/density", shape=[2, 8, 8, 8], dtype="keep", shard_samples=20))
        # Sample 2 came before the first float32 sample: it does not decide the block's type, most samples do.
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check_values(missing=range(9))
        self.assertIn("sample 2 is left out: " + str(self.folder / "u2.h5") + " holds (2, 8, 8, 8) int32, most samples of the block",
                      result.stderr)
        self.write_sample(2, values=universe(2, (9,)))
        self.good(self.write_config(dataset="/density", shape=[2, 8, 8, 8], shard_samples=20))
        self.check_values(missing=range(9))
        reasons = {m["sample"]: m["reason"] for m in json.loads((self.folder / "data/blocks/00000.json").read_text())["missing"]}
        for sample, part in {0: "no such file", 1: "has shape (2, 8, 8, 9), expected (2, 8, 8, 8)", 2: "has shape (9)",
                             3: "not a readable HDF5 file: truncated", 4: "holds NaN", 5: "not a readable HDF5 file",
                             6: "has no dataset /density; it has /velocity", 7: "is not of numbers", 8: "not a regular file"}.items():
            self.assertIn(part, reasons[sample])

    def test_truncated_npy(self):
        self.write_samples(suffix="npy")
        os.truncate(self.folder / "u3.npy", 1000)
        self.fails(DATA_ERROR, "u3.npy is cut short", self.write_config(on_missing="fail"))

    def test_nothing_usable(self):
        self.write_samples()
        for i in range(20):
            (self.folder / f"u{i}.h5").unlink()
        self.fails(DATA_ERROR, "20 of 20 samples are not usable", self.write_config())
        self.fails(DATA_ERROR, "no sample is usable; the first: no such file", self.write_config(max_missing=1))

    def test_blocks_that_disagree(self):
        self.write_samples()
        for i in range(8, 20):
            self.write_sample(i, values=universe(i, (2, 4, 4, 4)))
        # Most samples decide, not those that come first.
        self.good(self.write_config())
        manifest = json.loads((self.folder / "data/manifest.json").read_text())
        self.assertEqual(manifest["missing"], list(range(8)))
        self.assertEqual(sum(split["samples"] for split in manifest["splits"].values()), 12)
        self.assertEqual({field["name"]: field["shape"] for field in manifest["fields"]}["x"], [2, 4, 4, 4])

    def test_most_samples_decide_the_form_of_a_block(self):
        self.write_samples()
        for i in (0, 1, 9):
            self.write_sample(i, values=universe(i, (2, 4, 4, 4)))
        for threads in ("1", "3"):
            self.good(self.write_config(), "--force", "--threads", threads)
            self.check_values(missing=[0, 1, 9])
        events = self.folder / "other-events"
        self.good(self.write_config(), "--force", env={**os.environ, "WFLOW_EVENTS": str(events)})
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        self.assertEqual([e["sample"] for e in lines if e["type"] == "missing"], [0, 1, 9])
        [converted] = [e for e in lines if e["type"] == "converted"]
        self.assertEqual(converted["samples"], 17)
        self.assertEqual([(m["samples"], m["first"]) for m in converted["missing"]], [(1, 0), (1, 1), (1, 9)])
        self.assertTrue(converted["missing"][0]["reason"].startswith("u0.h5 holds (2, 4, 4, 4)"))

    def test_a_wrong_first_sample_is_the_one_that_is_named(self):
        self.write_samples()
        self.write_sample(0, values=universe(0, (2, 4, 4, 4)))
        for threads in ("1", "3"):
            self.fails(DATA_ERROR, "sample 0 is not usable", self.write_config(on_missing="fail"), "--threads", threads)
        # One that can't be read ends it at once, whatever the form; a right one in the middle does not.
        (self.folder / "u2.h5").write_bytes(b"not HDF5 at all")
        self.fails(DATA_ERROR, "sample 2 is not usable", self.write_config(on_missing="fail"), "--threads", "1")
        self.check_nothing_half_written()

    def test_damaged_shard(self):
        self.write_samples()
        self.good(self.write_config())
        path = self.folder / "data/train/shard-00001.h5"
        with h5py.File(path) as file:
            offset, length = (int(v) for v in file["wflow/index/x"][2, :2])
        content = bytearray(path.read_bytes())
        content[offset + length // 3] ^= 4
        path.write_bytes(content)
        result = self.fails(DATA_ERROR, "is damaged", "verify", self.folder / "data")
        self.assertIn("is damaged", result.stdout)
        path.unlink()
        self.fails(DATA_ERROR, "block 1 is not whole", self.write_config(), "--finish")
        self.good(self.write_config())  # converts block 1 again
        self.check_values()

    def test_file_size_limit(self):
        self.write_samples()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        self.fails(SYSTEM_ERROR, "cannot write", self.write_config(), preexec_fn=limit)
        self.check_nothing_half_written()

    def mount_small(self, path, options):
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            self.skipTest("needs the right to mount")
        self.addCleanup(subprocess.run, ["umount", str(path)], check=True)

    def test_full_disk(self):
        self.write_samples()
        data = self.folder / "data"
        self.mount_small(data, "size=40k")
        self.fails(SYSTEM_ERROR, "No space left on device; free some space", self.write_config())
        left = [p.name for p in data.rglob("*") if p.is_file()]  # whole blocks may be there, nothing else
        self.assertEqual([name for name in left if name.startswith(".") or name == "manifest.json"], [])
        subprocess.run(["mount", "-o", "remount,size=10m", str(data)], check=True)
        self.good(self.write_config())
        self.check_values()

    def test_read_only_directory(self):
        self.write_samples()
        self.mount_small(self.folder / "data", "size=40k,ro")
        self.fails(SYSTEM_ERROR, "Read-only file system", self.write_config())

    def test_file_in_place_of_the_output(self):
        self.write_samples()
        (self.folder / "data").write_text("in the way")
        self.fails(SYSTEM_ERROR, "cannot create directory", self.write_config())
        self.assertEqual((self.folder / "data").read_text(), "in the way")

    def test_killed_and_started_again(self):
        self.write_samples()
        config = self.write_config()
        reference = self.good(config)
        expected = {p.name: p.read_bytes() for p in (self.folder / "data/train").iterdir()}
        shutil.rmtree(self.folder / "data")
        process = subprocess.Popen([PROGRAM, str(config), "--threads", "1"], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        self.assertEqual(self.good(config), reference)
        found = {p.name: p.read_bytes() for p in (self.folder / "data/train").iterdir()}
        self.assertEqual(found, expected)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
