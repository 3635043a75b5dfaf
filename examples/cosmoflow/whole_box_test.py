#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison of sub-cubes and whole boxes, on data sets that wflow-convert makes and predictions with known errors.

Usage: whole_box_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import wflow

PROGRAM = Path(__file__).resolve().parent / "whole_box.py"
CONVERT = ""
SIDE, UNIVERSES = 8, 40


class WholeBox(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-whole-box-"))
        self.addCleanup(shutil.rmtree, self.folder)
        random = np.random.default_rng(1)
        rows = ["directory,amplitude"]
        for i in range(UNIVERSES):
            amplitude = random.random()
            (self.folder / f"s{i}").mkdir()
            np.save(self.folder / f"s{i}" / "u.npy", np.exp((0.2 + amplitude) * random.standard_normal((1, SIDE, SIDE, SIDE))).astype("f4"))
            rows.append(f"s{i},{float(amplitude)!r}")
        (self.folder / "table.csv").write_text("\n".join(rows) + "\n")
        self.data = {cells: self.convert(cells) for cells in (4, 8)}

    def convert(self, cells):
        """The universes as cubes of so many cells a side."""
        config = self.folder / f"convert{cells}.yaml"
        config.write_text(json.dumps({
            "samples": "table.csv", "output": f"data{cells}", "targets": ["amplitude"],
            "inputs": {"u": {"file": "u.npy", "layout": "CDHW", "transform": [{"subcubes": cells}]}},
            "split": {"train": 24, "validation": 6, "test": 10, "seed": 3}}))
        subprocess.run([CONVERT, str(config)], check=True, capture_output=True)
        return self.folder / f"data{cells}"

    def training(self, cells, seed, errors, guess=0.5, group="trainings"):
        """Predictions that are wrong by `errors` for the cubes of each universe, one after another."""
        test = wflow.open(self.data[cells]).test
        truth = np.column_stack([test.all(name).reshape(len(test), -1) for name in wflow.open(self.data[cells]).targets])
        ids = np.array([test.ids[i] for i in range(len(test))], dtype="i8")
        wrong = np.zeros(len(test))
        for universe in np.unique(ids):
            wrong[ids == universe] = np.resize(errors, (ids == universe).sum())
        folder = self.folder / group / f"SIDE.{cells}.SEED.{seed}"
        folder.mkdir(parents=True)
        with h5py.File(folder / "predictions.h5", "w") as file:
            file["id"], file["truth"], file["prediction"] = ids, truth, truth + wrong[:, None]
        (folder / "result.json").write_text(json.dumps({
            "data": {"directory": str(self.data[cells])}, "seeds": {"seed": seed}, "test": {"targets": {"amplitude": {"mean_guess_mae": guess}}}}))
        return folder

    def run_program(self, *words, code=0):
        done = subprocess.run([PROGRAM, "--trainings", self.folder / "trainings", *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        if code == 3:
            self.assertRegex(done.stderr, r"\Acosmoflow-whole-box: .*\n\Z")
        return done.stdout if code == 0 else done.stderr

    def test_errors_of_cubes_and_of_their_means(self):
        self.training(4, 1, [0.3, -0.1])  # alone 0.2, the mean of a universe's 8 cubes 0.1
        self.training(4, 2, [0.2, 0.2])
        self.training(8, 1, [0.05])
        self.training(8, 2, [-0.03])
        text = self.run_program("--json", self.folder / "out.json", "--svg", self.folder / "out.svg")
        report = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(report["test_universes"], 10)
        found = {(row["cells"], row["kind"]): row["errors"] for row in report["trainings"]}
        expected = {(4, "each cube"): [0.4, 0.4], (4, "mean of a universe's cubes"): [0.2, 0.4], (8, "each cube"): [0.1, 0.06]}
        self.assertEqual(found.keys(), expected.keys())
        for key, errors in expected.items():
            np.testing.assert_allclose(found[key], errors, rtol=1e-5, err_msg=str(key))
        np.testing.assert_allclose([row["whole_over_it"] for row in report["quotients"]], [0.2, 0.08 / 0.3], rtol=1e-5)
        np.testing.assert_allclose(report["quotients"][1]["each_seed"], [0.5, 0.15], rtol=1e-5)
        self.assertEqual(len(report["ridge_on_the_largest"]), 3)
        self.assertRegex(text, r"(?m)^4\^3 cells, 1/8, each cube +0\.4000   seeds 1, 2: 0\.4000, 0\.4000$")
        self.assertRegex(text, r"(?m)^8\^3 cells, whole +0\.0800 ")
        self.assertTrue(xml.etree.ElementTree.parse(self.folder / "out.svg").getroot().tag.endswith("svg"))

    def test_another_setting_is_compared_seed_by_seed(self):
        for seed, error, other in ((1, 0.05, 0.04), (2, 0.03, 0.03)):
            self.training(8, seed, [error])
            self.training(8, seed, [other], group="periodic")
        text = self.run_program("--variant", f"periodic={self.folder}/periodic", "--json", self.folder / "out.json", "--svg", self.folder / "out.svg")
        (variant,) = json.loads((self.folder / "out.json").read_text())["variants"]
        np.testing.assert_allclose(variant["each_seed"], [0.8, 1], rtol=1e-5)
        self.assertAlmostEqual(variant["over_whole"], 0.07 / 0.08, places=5)
        self.assertRegex(text, r"(?m)^8\^3 cells, periodic +0\.0700   seeds 1, 2: 0\.0800, 0\.0600$")
        self.assertIn("network: whole, periodic", (self.folder / "out.svg").read_text())
        self.training(8, 3, [0.1])
        self.assertIn("are not of 8^3 cells with the seeds [1, 2, 3]", self.run_program("--variant", f"periodic={self.folder}/periodic", code=3))
        self.assertIn("expected NAME=DIRECTORY", self.run_program("--variant", "periodic=", code=2))

    def test_what_cannot_be_compared(self):
        (self.folder / "trainings").mkdir()
        self.assertIn("has no folder with result.json", self.run_program(code=3))
        folder = self.training(8, 1, [0.1])
        (folder / "predictions.h5").write_bytes(b"no data")
        self.assertIn(f"cannot use the training in {folder}", self.run_program(code=3))
        shutil.rmtree(folder)
        self.training(8, 1, [0.1])
        folder = self.training(4, 1, [0.1])
        with h5py.File(folder / "predictions.h5", "a") as file:
            file["id"][:8] = 1000
        self.assertIn("have different test universes", self.run_program(code=3))


if __name__ == "__main__":
    CONVERT = sys.argv.pop(1)
    unittest.main()
