#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data set that grows as a campaign's does: blocks are added, and no byte of the earlier shards changes.

Usage: convert_grow_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

PROGRAM = ""
BLOCK = 64
SHAPE = (2, 6, 6, 6)


def field(i):
    return np.random.default_rng(i).normal(size=SHAPE).astype("f4")


class GrowTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-grow-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.folder / "data"

    def simulate(self, first, end):
        for i in range(first, end):
            with h5py.File(self.folder / f"u{i}.h5", "w") as file:
                file["density"] = field(i)

    # The configuration that steps/convert.cc writes for a campaign of `count` samples that had `grown` before.
    def write_config(self, count, grown=(), **keys):
        config = {"from": "simulate", "file": "u.h5", "dataset": "density", "targets": ["a"], "output": str(self.data),
                  "shard_samples": BLOCK, "count": count, **keys}
        if grown:
            config["grown"] = config["block_starts"] = list(grown)
        self.config = self.folder / "config.yaml"
        self.config.write_text(json.dumps(config))

    @staticmethod
    def blocks(count, grown=()):
        """The rows of each block, one by one."""
        found = []
        for i in range(count):
            if not found or i in grown or len(found[-1]) == BLOCK:
                found.append([])
            found[-1].append(i)
        return found

    def command(self, block, rows):
        table = self.folder / f"rows-{block}.csv"
        table.write_text("id,file,a\n" + "".join(f"{i},u{i}.h5,{i / 7!r}\n" for i in rows))
        return [PROGRAM, self.config, "--block", str(block), "--samples", table]

    def run_program(self, *arguments):
        return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=120)

    def good(self, *arguments):
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def convert(self, count, grown=(), blocks=None):
        for number, rows in enumerate(self.blocks(count, grown)):
            if blocks is None or number in blocks:
                self.good(*self.command(number, rows))

    def finish(self):
        self.good(PROGRAM, self.config, "--finish")
        return json.loads((self.data / "manifest.json").read_text())

    def shards(self):
        return {str(p.relative_to(self.data)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
                for p in sorted(self.data.glob("*/shard-*.h5"))}

    def split_of(self, manifest):
        found = {}
        for split, entry in manifest["splits"].items():
            for shard in entry["shards"]:
                with h5py.File(self.data / shard["file"]) as file:
                    for row, sample in enumerate(file["id"][:]):
                        found[int(sample)] = split
                        np.testing.assert_array_equal(file["x"][row], field(int(sample)))
        return found

    def grow(self, **split):
        self.simulate(0, 300)
        self.write_config(200, **split)
        self.convert(200)
        before = self.finish()
        shards = self.shards()
        splits = self.split_of(before)
        self.assertEqual(len(splits), 200)
        self.write_config(300, (200,), **split)
        self.assertEqual([len(b) for b in self.blocks(300, (200,))], [64, 64, 64, 8, 64, 36])
        return before, shards, splits

    def check_grown(self, shards, splits, manifest, count):
        now = self.shards()
        for name, state in shards.items():
            self.assertEqual(now[name], state, name)  # bytes and time
        self.assertGreater(len(now), len(shards))
        grown = self.split_of(manifest)
        self.assertEqual(sorted(grown), list(range(count)))
        for sample, split in splits.items():
            self.assertEqual(grown[sample], split)
        return grown

    def test_blocks_are_added(self):
        _, shards, splits = self.grow()
        # Even when old blocks are asked for again, they stay.
        self.convert(300, (200,))
        manifest = self.finish()
        self.check_grown(shards, splits, manifest, 300)
        self.good(PROGRAM, "verify", self.data)

    def test_the_old_manifest_stays_until_the_new_one(self):
        _, shards, splits = self.grow()
        old = (self.data / "manifest.json").read_bytes()
        self.convert(300, (200,), blocks={4, 5})
        self.assertEqual((self.data / "manifest.json").read_bytes(), old)
        self.good(PROGRAM, "verify", self.data)
        self.check_grown(shards, splits, self.finish(), 300)

    def test_counts_move_no_sample(self):
        _, shards, splits = self.grow(split={"train": 160, "validation": 20, "test": 20})
        self.convert(300, (200,), blocks={4, 5})
        grown = self.check_grown(shards, splits, self.finish(), 300)
        self.assertEqual([list(grown.values()).count(s) for s in ("train", "validation", "test")], [240, 30, 30])

    def test_grown_twice(self):
        _, shards, splits = self.grow()
        self.convert(300, (200,), blocks={4, 5})
        splits = self.check_grown(shards, splits, self.finish(), 300)
        shards = self.shards()
        self.simulate(300, 310)
        self.write_config(310, (200, 300))
        self.convert(310, (200, 300), blocks={6})
        self.check_grown(shards, splits, self.finish(), 310)

    def test_a_missing_block_is_named(self):
        self.grow()
        self.convert(300, (200,), blocks={4})
        result = self.run_program(PROGRAM, self.config, "--finish")
        self.assertEqual(result.returncode, 4)
        self.assertIn("block 5 of 6 has not been converted", result.stderr)

    def test_rows_of_another_block_are_refused(self):
        self.grow()
        result = self.run_program(*self.command(3, range(192, 256)))
        self.assertEqual(result.returncode, 4)
        self.assertIn("has sample 200, but block 3 is of samples 192 to 199", result.stderr)

    def test_killed_while_a_new_block_is_written(self):
        """SIGKILL at many places of the conversion of a new block: the old shards stay, and it goes on."""
        _, shards, splits = self.grow()
        moments = [lambda: True, lambda: list(self.data.glob("*/.shard-00004*")),
                   lambda: list(self.data.glob("*/shard-00004.h5")), lambda: list(self.data.glob("blocks/*00004.json*"))]
        for moment in moments * 3:
            child = subprocess.Popen([str(a) for a in self.command(4, range(200, 264))], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            while child.poll() is None and not moment():
                pass
            child.send_signal(signal.SIGKILL)
            child.wait()
            now = self.shards()
            for name, state in shards.items():
                self.assertEqual(now[name], state, name)
        self.convert(300, (200,), blocks={4, 5})
        self.check_grown(shards, splits, self.finish(), 300)
        self.assertEqual(list(self.data.glob("*/.*tmp*")), [])
        self.good(PROGRAM, "verify", self.data)

    def test_statistics_are_those_of_all_training_samples(self):
        self.grow()
        self.convert(300, (200,), blocks={4, 5})
        manifest = self.finish()
        train = [field(i) for i, split in self.split_of(manifest).items() if split == "train"]
        mean = np.mean([f[0].astype("f8").mean() for f in train])
        self.assertAlmostEqual(manifest["statistics"]["x"][0]["mean"], mean, places=9)

    def test_wrong_counts(self):
        self.write_config(300, (200, 150))
        result = self.run_program(PROGRAM, self.config, "--finish")
        self.assertEqual(result.returncode, 3)
        self.assertIn("'grown' must rise", result.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
