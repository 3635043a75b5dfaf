# SPDX-License-Identifier: Apache-2.0
"""examples/headlines: each study in a short form, the page that is made of their figures, and what they measure with."""

import importlib
import json
import os
import subprocess
import sys
import time

from wflow_test import BIN, SOURCE, CampaignTest

HEADLINES = SOURCE / "examples/headlines"
FEW = ["UNIVERSES=60", "TRAIN=40", "TEST=10"]
SHORT = {
    "calls": FEW,
    "staging": [*FEW, "RANKS=2", "EPOCHS=2", "ROUNDS=1", "LATENCY_US=200", "BYTES_PER_SECOND=100000000"],
    "half_precision": [*FEW, "EPOCHS=1", "WIDTH=4", "SEEDS=2"],
    "bit_flips": ["NETWORKS=cosmoflow", "ITERATIONS=30", "BITS=30 22", "SEEDS=2"],
    "cosmoflow": [*FEW, "SIDE=16", "MESH=16", "BOX=64", "WIDTH=2", "EPOCHS=2", "GOAL=5"],
}
READ = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.read(1000):
            pass
"""


class Headlines(CampaignTest):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, str(HEADLINES))
        self.addCleanup(sys.path.remove, str(HEADLINES))

    def run_study(self, name):
        self.wflow("run", HEADLINES / f"{name}.yaml", "-j", "2", "--vars", f"OUTPUT_PATH={self.folder}", *SHORT[name])
        (campaign,) = self.folder.glob(f"{name}_*")
        figures = json.loads((campaign / "figures/figures.json").read_text())
        self.assertEqual(figures["name"], name)
        self.assertIn("<svg", (campaign / f"figures/{name}.svg").read_text()[:200])
        printed = (campaign / "figures/figures.out").read_text()
        for row in figures["rows"]:
            self.assertIn(f"published {row['published']} / here {row['here']} / pass mark {row['mark']} / passed ", printed)
        return figures

    def test_calls(self):
        figures = self.run_study("calls")
        files, h5py, shards, staged = figures["table"]["rows"]
        self.assertEqual(files[1], "1000")  # a file is opened for each sample
        self.assertLess(int(shards[6]), int(files[6]) // 4)
        self.assertLessEqual(int(h5py[1]), 0)
        self.assertEqual(staged[1:8], ["0"] * 6 + ["0.0"])
        self.assertTrue(all(row["passed"] for row in figures["rows"]))

    def test_staging(self):
        self.assertEqual(len(self.run_study("staging")["table"]["rows"]), 4)

    def test_half_precision(self):
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            if "avx512_bf16" not in info.read():
                self.skipTest("the processor has no bfloat16")
        full, wire, bf16 = self.run_study("half_precision")["table"]["rows"]
        self.assertNotEqual(full[1], "-")
        self.assertEqual(len(full), len(wire))
        self.assertEqual(len(full), len(bf16))

    def test_bit_flips(self):
        figures = self.run_study("bit_flips")
        self.assertEqual(figures["trials"], 12)
        self.assertEqual(len(figures["rows"]), 6)

    def test_cosmoflow(self):
        figures = self.run_study("cosmoflow")
        self.assertIn("n_s", figures["rows"][2]["here"])
        self.assertEqual([row[5] for row in figures["table"]["rows"]], ["1", "1"])  # the goal is met at once

    def test_the_page_is_made_of_the_figures(self):
        done = subprocess.run([HEADLINES / "page.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_statistics(self):
        bit_flips, headlines = importlib.import_module("bit_flips"), importlib.import_module("headlines")
        for value, freedom in ((3.841, 1), (5.991, 2), (7.815, 3), (9.488, 4)):
            self.assertAlmostEqual(bit_flips.upper_tail(value, freedom), 0.05, 4)
        low, high = headlines.share_interval(0, 100)
        self.assertEqual(low, 0)
        self.assertAlmostEqual(high, 0.0370, 4)
        low, high = headlines.share_interval(50, 100)
        self.assertAlmostEqual(low, 0.4038, 4)
        self.assertAlmostEqual(high, 0.5962, 4)

    def test_a_shared_folder_is_counted_and_slow(self):
        headlines = importlib.import_module("headlines")
        shared, elsewhere = self.folder / "shared", self.folder / "shared-too"
        for folder in (shared, elsewhere):
            folder.mkdir()
            (folder / "data").write_bytes(bytes(50_000))
        library = headlines.compile_library("shared_folder.c", self.folder / "shared.so")
        slow = headlines.SharedFolder(library, shared, self.folder / "state", latency_us=1000, bytes_per_second=500_000)
        command = [sys.executable, "-c", READ, str(shared / "data"), str(elsewhere / "data")]
        environment = {**os.environ, **slow.environment, "LD_PRELOAD": str(library)}
        begin = time.monotonic()
        readers = [subprocess.Popen(command, env=environment) for _ in range(2)]
        self.assertEqual([reader.wait() for reader in readers], [0, 0])
        self.assertGreaterEqual(time.monotonic() - begin, 0.2)  # both together: 100,000 bytes
        counts = slow.counts()
        self.assertEqual((counts["open"], counts["close"], counts["read"], counts["bytes"]), (2, 2, 102, 100_000))


if __name__ == "__main__":
    import unittest

    unittest.main()
