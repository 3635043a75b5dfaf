#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baselines on data sets that wflow-convert makes.

Usage: baseline_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import baseline

PROGRAM = Path(__file__).resolve().parent / "baseline.py"
CONVERT = ""
SIDE = 8


class Baselines(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-baseline-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = np.random.default_rng(1)

    def data(self, train=200, validation=40, test=40, counts=False, shuffled=False, make=None):
        """Samples whose variances carry two parameters, one a channel."""
        count = train + validation + test
        parameters = self.random.random((count, 2))
        sigma = 0.2 + parameters[:, :, None, None, None]
        cubes = np.exp(sigma * self.random.standard_normal((count, 2, SIDE, SIDE, SIDE)) - sigma**2 / 2)
        cubes = np.round(1000 * cubes).astype("u2") if counts else cubes.astype("f4")
        cubes = make(cubes) if make else cubes
        if shuffled:
            parameters = self.random.random((count, 2))
        rows = ["directory,amplitude,tilt"]
        for i in range(count):
            (self.folder / f"s{i}").mkdir()
            np.save(self.folder / f"s{i}" / "u.npy", cubes[i])
            rows.append(f"s{i},{float(parameters[i, 0])!r},{10 * float(parameters[i, 1])!r}")
        (self.folder / "table.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "convert.yaml").write_text(json.dumps({
            "samples": "table.csv", "output": "data", "shard_samples": 64, "inputs": {"u": {"file": "u.npy", "layout": "CDHW"}},
            "targets": {"theta": {"parameters": ["amplitude", "tilt"]}},
            "split": {"train": train, "validation": validation, "test": test, "seed": 3}}))
        subprocess.run([CONVERT, str(self.folder / "convert.yaml")], check=True, capture_output=True)
        return self.folder / "data"

    def run_program(self, *words, code=0):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        if code == baseline.INPUT or code == baseline.OUTPUT:
            self.assertRegex(done.stderr, r"\Acosmoflow-baseline: .*\n\Z")
        return done.stdout if code == 0 else done.stderr

    def find_parameters(self, **how):
        report = baseline.measure(self.data(**how))
        self.assertEqual(report["labels"], ["amplitude", "tilt"])
        self.assertEqual(report["samples"], {"train": 200, "validation": 40, "test": 40})
        self.assertAlmostEqual(report["mean_guess_mae"][0], 0.25, delta=0.05)
        self.assertAlmostEqual(report["mean_guess_mae"][1], 2.5, delta=0.5)
        for row in report["baselines"]:
            self.assertLess(max(row["ratio"]), 0.5, row["name"])
        self.assertLess(max(report["baselines"][2]["ratio"]), 0.2)

    def test_parameters_that_the_statistics_carry(self):
        self.find_parameters()

    def test_counts_instead_of_densities(self):
        self.find_parameters(counts=True)

    def test_nothing_is_found_in_shuffled_labels(self):
        for row in baseline.measure(self.data(test=60, shuffled=True))["baselines"]:
            self.assertGreater(min(row["ratio"]), 0.9, row["name"])

    def test_table_and_json_beside_a_network(self):
        data = self.data(train=30, validation=8, test=8)
        (self.folder / "predictions.csv").write_text("id,amplitude,amplitude_predicted,tilt,tilt_predicted\n" + "1,0.5,0.25,1,1\n" * 8)
        out = self.run_program("--data", data, "--network", self.folder / "predictions.csv", "--json", self.folder / "figures.json")
        self.assertRegex(out, r"(?m)^network +\d\.\d{3} +0\.000 ")
        self.assertIn("ridge, log P(k) + one-point, degree 2", out)
        figures = json.loads((self.folder / "figures.json").read_text())
        self.assertEqual(figures["baselines"][0]["mae"], [0.25, 0])
        self.run_program("--data", data, "--json", "/dev/full", code=baseline.OUTPUT)
        self.assertTrue(Path("/dev/full").is_char_device())
        link = self.folder / "link"
        link.symlink_to(self.folder / "linked.json")
        self.run_program("--data", data, "--json", link)
        self.assertTrue(link.is_symlink() and json.loads((self.folder / "linked.json").read_text()))

    def test_what_is_missing_is_said(self):
        self.assertIn("no manifest.json", self.run_program("--data", self.folder, code=baseline.INPUT))
        data = self.data(train=6, validation=1, test=2)
        for text, said in (("id\n1\n2\n", "no columns for amplitude"), ("id\n1\n", "has 1 samples, the test split 2"),
                           ("amplitude,amplitude_predicted\n1,x\n1,2\n", "a cell of amplitude is no number")):
            (self.folder / "predictions.csv").write_text(text)
            self.assertIn(said, self.run_program("--data", data, "--network", self.folder / "predictions.csv", code=baseline.INPUT))

    def test_densities_that_are_transformed(self):
        data = self.data(train=6, validation=1, test=2, make=lambda cubes: cubes - 0.5)
        self.assertIn("untransformed", self.run_program("--data", data, code=baseline.INPUT))


class Ridge(unittest.TestCase):
    def law(self, x, quadratic):
        return (3 + 2 * x[:, 0] - x[:, 1] + (x[:, 0] * x[:, 2] if quadratic else 0))[:, None]

    def test_a_linear_and_a_quadratic_law_in_either_space(self):
        random = np.random.default_rng(2)
        for rows in (12, 300):  # fewer and more samples than features of degree 2
            x, validation, test = (random.standard_normal((n, 4)) for n in (rows, 50, 50))
            for quadratic in (False, True):
                prediction, _ = baseline.ridge(x, self.law(x, quadratic), validation, self.law(validation, quadratic), test, 1 + quadratic)
                if quadratic and rows < 15:
                    continue  # it can't be found; the sample space was used
                np.testing.assert_allclose(prediction, self.law(test, quadratic), atol=1e-3)


class Statistics(unittest.TestCase):
    def test_a_plane_wave_has_its_power_in_one_shell(self):
        wave = 1 + np.cos(2 * np.pi * 3 * np.arange(16) / 16)
        sample = np.broadcast_to(wave, (1, 16, 16, 16))
        power = baseline.SummaryStatistics(sample.shape, np.ones(1)).log_power(sample)
        self.assertEqual(list(np.flatnonzero(power > -20)), [2])

    def test_parseval(self):
        """All shells together, weighted by their modes, hold the variance of what is inside them."""
        sample = np.random.default_rng(4).random((1, 6, 8, 10))
        statistics = baseline.SummaryStatistics(sample.shape, np.ones(1))
        modes = np.fft.fftn(sample[0]) / sample[0].size
        numbers = [np.fft.fftfreq(n, 1 / n) * 6 / n for n in (6, 8, 10)]
        k = np.sqrt(sum(axis**2 for axis in np.meshgrid(*numbers, indexing="ij")))
        inside = (k >= 0.5) & (k < 2.5)
        power = np.exp(statistics.log_power(sample)) * statistics.weights
        self.assertAlmostEqual(power.sum(), (abs(modes[inside]) ** 2).sum(), places=12)


if __name__ == "__main__":
    CONVERT = sys.argv.pop(1)
    unittest.main()
