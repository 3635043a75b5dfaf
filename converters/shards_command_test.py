#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`wflow-convert shards`: what it says of a data set, and of a damaged one.

Usage: shards_command_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import csv
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

PROGRAM = ""


class Shards(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-shards-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.make("data")

    def field(self, i):
        same = 3 if i == 11 else i  # sample 11 has the input of sample 3
        return np.random.default_rng(same).poisson(4, (32, 64)).astype("f4")

    def make(self, name, change=None):
        folder = self.folder / f"{name}-files"
        folder.mkdir()
        rows = ["id,file,a,b"]
        for i in range(60):
            u = self.field(i)
            if i == change:
                u[3, 4] += 0.5
            np.save(folder / f"u{i}.npy", u)
            rows.append(f"{i},{name}-files/u{i}.npy,{1000 if i == 5 else i},7")
        (self.folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
        config = {"samples": f"{name}.csv", "output": name, "shard_samples": 25, "inputs": {"u": {}},
                  "targets": {"a": "parameter", "b": "parameter"}, "split": {"train": 40, "validation": 10, "test": 10}}
        (self.folder / f"{name}.yaml").write_text(json.dumps(config))
        subprocess.run([PROGRAM, str(self.folder / f"{name}.yaml")], check=True, capture_output=True)

    def shards(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, "shards", *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stdout + done.stderr

    def test_ls_and_info(self):
        lines = self.shards("ls", "data").splitlines()
        self.assertEqual(len(lines), 1 + len(list((self.folder / "data").rglob("shard-*.h5"))))
        info = self.shards("info", "data/train/shard-00000.h5")
        self.assertIn("u             (32, 64) float32; a chunk a sample, shuffle, deflate, indexed", info)
        self.assertIn("a             () float64; ", info)
        subprocess.run(["h5repack", "data/train/shard-00000.h5", "copy.h5"], cwd=self.folder, check=True)
        self.assertIn("shuffle, deflate, index stale", self.shards("info", "copy.h5"))
        self.assertIn("is not", self.shards("info", "data.csv", code=4))

    def test_table(self):
        rows = list(csv.DictReader(self.shards("table", "data").splitlines()))
        self.assertEqual([int(row["id"]) for row in rows], list(range(60)))
        self.assertEqual([float(row["a"]) for row in rows], [1000 if i == 5 else i for i in range(60)])
        self.assertEqual({row["b"] for row in rows}, {"7"})
        for split, count in (("train", 40), ("validation", 10), ("test", 10)):
            ids = []
            for shard in sorted((self.folder / "data" / split).glob("shard-*.h5")):
                with h5py.File(shard) as file:
                    ids += file["id"][...].tolist()
            self.assertEqual([int(row["id"]) for row in rows if row["split"] == split], sorted(ids))
            self.assertEqual(len(ids), count)

    def test_head_and_sample(self):
        head = self.shards("head", "data", "-n", 3)
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            for row in range(3):
                self.assertIn(f"sample {file['id'][row]}\n", head)
            u = file["u"][0]
            self.assertIn(f"(32, 64): min {u.min():.6g}, mean {u.astype('f8').mean():.6g}, max {u.max():.6g}", head)
            number = int(file["id"][2])
        text = self.shards("sample", "data", number)
        self.assertIn(f"sample {number}: row 2 of train/shard-00000.h5 (train), converted as block 0", text)
        u = self.field(number)
        self.assertIn(f"32 x 64, from {u.reshape(16, 2, 64).min():.6g}"[:12], text)
        self.assertEqual(sum(set(line) <= set(" ░▒▓█") and len(line) == 64 for line in text.splitlines()), 16)
        self.shards("sample", "data", number, "--png", "u.png")
        from PIL import Image
        grey = np.asarray(Image.open(self.folder / "u.png"))
        np.testing.assert_allclose(grey, np.rint(u / u.max() * 255) if u.min() == 0 else np.rint((u - u.min()) / (u.max() - u.min()) * 255), atol=1)
        self.assertIn("there is no sample 99", self.shards("sample", "data", 99, code=2))
        self.assertIn("there is no field 'v'", self.shards("sample", "data", number, "--field", "v", code=2))

    def test_stats_point_out_what_looks_wrong(self):
        text = self.shards("stats", "data")
        self.assertIn("note: b (all) is 7 in all training samples", text)
        self.assertRegex(text, r"note: samples (3 \(\w+\) and 11|11 \(\w+\) and 3) \(\w+\) have the same u")
        self.assertIn("a = 1000 is ", text)
        self.assertRegex(text, "[▁▂▃▄▅▆▇█]")

    def test_diff(self):
        self.assertEqual(self.shards("diff", "data", "data"), "the same 60 samples of 3 fields\n")
        self.make("other", change=17)
        text = self.shards("diff", "data", "other", code=4)
        self.assertEqual(text, "sample 17: u differs by up to 0.5\n")
        self.assertIn("the same 60", self.shards("diff", "data", "other", "--tolerance", 0.5))

    def test_verify_names_every_damage(self):
        shard = self.folder / "data/train/shard-00000.h5"
        self.assertIn("are as they were written", self.shards("verify", "data"))
        with h5py.File(shard) as file:
            offset, number = int(file["wflow/index/u"][4][0]) + 30, int(file["id"][4])
        good = shard.read_bytes()
        shard.write_bytes(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1:])
        self.assertIn(f"sample {number} of ", self.shards("verify", "data", code=4))
        for size in (0, 64, 1000, len(good) // 2, len(good) - 10):
            shard.write_bytes(good[:size])
            self.assertIn("train/shard-00000.h5", self.shards("verify", "data", code=4))
        for seed in range(40):  # anything may be damaged: an error, or the bytes did not matter
            at = np.random.default_rng(seed).integers(0, len(good), 3)
            bad = bytearray(good)
            for k in at:
                bad[k] ^= 1 + seed
            shard.write_bytes(bad)
            self.assertIn("is not the file that was written", self.shards("verify", "data", code=4))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
