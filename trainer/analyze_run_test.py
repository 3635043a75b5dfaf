#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`wflow analyze` of trained networks against closed forms and a textbook implementation. With Debian's python3 (numpy)."""

import csv
import json
import pathlib
import subprocess
import tempfile

import numpy

import train_run_test as whole

PI = numpy.pi
SAMPLES = 2000


def ishigami(x):
    return numpy.sin(x[:, 0]) + 7 * numpy.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * numpy.sin(x[:, 0])


def textbook(function, inputs, count, rng):
    """First-order and total indices by the definitions: conditional variances of plain random points."""
    first, total = [], []
    variance = function(rng.uniform(-PI, PI, (200000, inputs))).var()
    for i in range(inputs):
        x = rng.uniform(-PI, PI, (count, 1, inputs)).repeat(count, axis=1)
        inner = rng.uniform(-PI, PI, (count, count, inputs))
        alone, rest = inner.copy(), x.copy()
        alone[:, :, i] = x[:, :, i]
        rest[:, :, i] = inner[:, :, i]
        values = function(alone.reshape(-1, inputs)).reshape(count, count)
        # The mean over the inner points has a variance of its own.
        first.append((values.mean(axis=1).var() - values.var(axis=1).mean() / count) / variance)
        total.append(function(rest.reshape(-1, inputs)).reshape(count, count).var(axis=1, ddof=1).mean() / variance)
    return numpy.array(first), numpy.array(total)


class Analyze(whole.TrainRun):
    """A network learns Ishigami's function from 2,000 samples."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = pathlib.Path(cls.directory.name)
        x = numpy.random.default_rng(1).uniform(-PI, PI, (SAMPLES + 200, 3))
        rows = ["id,a,b,c,y"] + [f"{i},{a},{b},{c},{y}" for i, ((a, b, c), y) in enumerate(zip(x, ishigami(x)))]
        (cls.root / "table.csv").write_text("\n".join(rows) + "\n")
        (cls.root / "convert.yaml").write_text(
            f"samples: {cls.root}/table.csv\ninputs: [a, b, c]\ntargets: [y]\nshard_samples: 1000\n"
            f"split: {{train: {SAMPLES}, validation: 100, test: 100, seed: 3}}\noutput: {cls.root}/shards\nname: ishigami\n")
        subprocess.run([whole.PROGRAMS.convert, cls.root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)
        cls().train_network("one")

    def train_network(self, name, **keys):
        layers = [{"dense": 64}, "tanh", {"dense": 64}, "tanh", {"dense": 1}]
        return self.train(self.config(name, **{"transform": None, "augment": None, "model": {"layers": layers}, "batch": 50,
                                               "epochs": 60, "optimizer": {"name": "adamw", "learning_rate": 0.01}, **keys}))

    def analyze(self, *arguments, code=0):
        done = subprocess.run([whole.PROGRAMS.train, "analyze", *map(str, arguments)], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def analysis(self, name):
        return json.loads((self.root / name / "analysis.json").read_text())

    def indices(self, found, key):
        return numpy.array([one[key]["value"] for one in found["inputs"]])

    def test_indices_are_those_of_the_function(self):
        done = self.analyze(self.root / "one")
        analysis = self.analysis("one")
        self.assertEqual([one["name"] for one in analysis["inputs"]], ["a", "b", "c"])
        for one in analysis["inputs"]:
            self.assertTrue(-PI < one["low"] < -3.1 and 3.1 < one["high"] < PI, one)
        self.assertEqual([one["name"] for one in analysis["outputs"]], ["y"])
        self.assertEqual((analysis["points"], analysis["evaluations"]), (4096, 4096 * 8))
        found = analysis["outputs"][0]["network"]
        self.assertGreater(found["errors"]["test_r2"], 0.98)
        parts = numpy.array([0.5 * (1 + 0.1 * PI ** 4 / 5) ** 2, 49 / 8, 0.01 * PI ** 8 * (1 / 18 - 1 / 50)])
        variance = parts.sum()
        # The network has errors of its own, so the bounds are wider than the intervals.
        numpy.testing.assert_allclose(self.indices(found, "first"), [parts[0] / variance, parts[1] / variance, 0], atol=0.03)
        numpy.testing.assert_allclose(self.indices(found, "total"),
                                      [(parts[0] + parts[2]) / variance, parts[1] / variance, parts[2] / variance], atol=0.03)
        together = {tuple(one["inputs"]): one["value"] for one in found["interactions"]}
        self.assertLess(abs(together["a", "c"] - parts[2] / variance), 0.04)
        self.assertLess(abs(together["a", "b"]), 0.03)
        self.assertLess(abs(found["variance"] / variance - 1), 0.06)
        # The effect of b alone is 7 sin^2 b and a constant.
        b = PI * ((numpy.arange(20) + 0.5) / 10 - 1)
        effect = numpy.array(found["inputs"][1]["main_effect"])
        numpy.testing.assert_allclose(effect, 7 * numpy.sin(b) ** 2, atol=0.6)
        self.assertRegex(done.stdout, r"a and c together: 0\.2\d\d \[0\.\d+, 0\.\d+\]")
        self.assertRegex(done.stdout, r"(?m)^  a +0\.\d{3} \[")
        first, total = textbook(ishigami, 3, 400, numpy.random.default_rng(5))
        numpy.testing.assert_allclose(self.indices(found, "first"), first, atol=0.06)
        numpy.testing.assert_allclose(self.indices(found, "total"), total, atol=0.06)
        with open(self.root / "one/analysis.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(sum(row["quantity"] == "first" for row in rows), 3)
        for row in rows:
            self.assertLessEqual(float(row["low"]), float(row["value"]))
        same = (self.root / "one/analysis.json").read_bytes()
        self.analyze(self.root / "one")
        self.assertEqual((self.root / "one/analysis.json").read_bytes(), same)

    def test_errors_by_cross_validation(self):
        self.train_network("folded", epochs=3)
        before = (self.root / "folded/model.pt").read_bytes()
        done = self.analyze(self.root / "folded", "--folds", 3, "--points", 64)
        self.assertEqual(done.stderr.count("fold "), 3)
        errors = self.analysis("folded")["outputs"][0]["network"]["errors"]
        self.assertRegex(done.stdout, rf"(?m)^  3_fold_r2: {errors['3_fold_r2']:.2f}")
        folders = [self.root / f"folded/folds-3/fold-{fold}" for fold in (1, 2, 3)]
        predicted, squares, variance = [], 0, 0
        for folder in folders:
            with open(folder / "predictions.csv", newline="") as file:
                rows = [row for row in csv.DictReader(file)]
            predicted += [int(row["id"]) for row in rows]
            true, found = (numpy.array([float(row[key]) for row in rows]) for key in self.columns(rows[0]))
            squares += ((true - found) ** 2).sum()
            variance += ((true - true.mean()) ** 2).sum()
            self.assertLess(json.loads((folder / "result.json").read_text())["data"]["train"], 0.8 * SAMPLES)
        self.assertEqual(len(predicted), SAMPLES)
        self.assertEqual(len(set(predicted)), SAMPLES)
        self.assertAlmostEqual(errors["3_fold_rmse"], (squares / SAMPLES) ** 0.5, delta=1e-4)
        self.assertAlmostEqual(errors["3_fold_r2"], 1 - squares / variance, delta=1e-4)
        models = [(folder / "model.pt").read_bytes() for folder in folders]
        self.assertEqual(len({*models, before}), 4)
        self.analyze(self.root / "folded", "--folds", 3, "--points", 64)
        self.assertEqual([(folder / "model.pt").read_bytes() for folder in folders], models)

    @staticmethod
    def columns(row):
        true = next(key for key in row if key.startswith("y") and "pred" not in key)
        return true, next(key for key in row if "pred" in key)

    def test_intervals_of_members_are_wider(self):
        self.train_network("members", members=2, epochs=20)
        self.analyze(self.root / "members")
        analysis = self.analysis("members")
        self.assertEqual(analysis["members"], 2)
        found = analysis["outputs"][0]["network"]
        each = []
        for member in ("member-1", "member-2"):
            self.analyze(self.root / "members" / member)
            each.append(self.analysis(f"members/{member}")["outputs"][0]["network"])
        self.analyze(self.root / "one")
        for i in range(3):
            for key in ("first", "total", "gradient"):
                spread = numpy.std([one["inputs"][i][key]["value"] for one in each], ddof=1)
                width = found["inputs"][i][key]["high"] - found["inputs"][i][key]["low"]
                self.assertGreaterEqual(width, 2 * 1.9599 * spread)

    def test_gradients_are_those_of_the_function(self):
        self.analyze(self.root / "one", "--points", 1024)
        x = numpy.random.default_rng(2).uniform(-PI, PI, (100000, 3))
        slopes = [numpy.cos(x[:, 0]) * (1 + 0.1 * x[:, 2] ** 4), 7 * numpy.sin(2 * x[:, 1]), 0.4 * x[:, 2] ** 3 * numpy.sin(x[:, 0])]
        expected = [numpy.abs(slope).mean() * 2 * PI for slope in slopes]
        found = self.analysis("one")["outputs"][0]["network"]
        numpy.testing.assert_allclose(self.indices(found, "gradient"), expected, rtol=0.1)

    def test_gaussian_process_of_few_samples(self):
        head = (self.root / "table.csv").read_text().splitlines(keepends=True)[:301]
        (self.root / "few.csv").write_text("".join(head))
        (self.root / "few.yaml").write_text(
            f"samples: {self.root}/few.csv\ninputs: [a, b, c]\ntargets: [y]\n"
            f"split: {{train: 200, validation: 50, test: 50, seed: 3}}\noutput: {self.root}/few-data\nname: few\n")
        subprocess.run([whole.PROGRAMS.convert, self.root / "few.yaml"], check=True, stdout=subprocess.DEVNULL)
        self.train_network("few", data=str(self.root / "few-data"), batch=10, epochs=10)
        done = self.analyze(self.root / "few", "--gaussian-process", "--points", 1024)
        found = self.analysis("few")["outputs"][0]["gaussian_process"]
        numpy.testing.assert_allclose(self.indices(found, "first"), [0.3139, 0.4424, 0], atol=0.04)
        numpy.testing.assert_allclose(self.indices(found, "total"), [0.5576, 0.4424, 0.2437], atol=0.04)
        self.assertGreater(found["errors"]["10_fold_r2"], 0.9)
        self.assertIn("these are the indices of the network", done.stdout)
        self.assertIn("y by the Gaussian process", done.stdout)
        self.assertIn("--data FOLDER", done.stdout + self.without_data().stderr)

    def without_data(self):
        (self.root / "few-data").rename(self.root / "moved")
        try:
            return self.analyze(self.root / "few", "--gaussian-process", code=4)
        finally:
            (self.root / "moved").rename(self.root / "few-data")

    def test_wrong_input(self):
        one = self.root / "one"
        self.assertIn("--points 1000: give a power of two from 16 to 1048576, such as 1024",
                      self.analyze(one, "--points", "1000", code=2).stderr)
        self.assertIn("there is no folder", self.analyze(self.root / "none", code=4).stderr)
        unfinished = self.root / "unfinished"
        unfinished.mkdir()
        self.assertIn("has not finished", self.analyze(unfinished, code=4).stderr)
        several = self.root / "several"
        several.mkdir()
        (several / "a").symlink_to(one)
        self.assertIn(f"holds several trainings: name one of {several}/a", self.analyze(several, code=4).stderr)


class FieldInput(whole.TrainRun):
    def test_a_field_is_refused(self):
        self.train(self.config("fields", epochs=1))
        done = subprocess.run([whole.PROGRAMS.train, "analyze", self.root / "fields"], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("is a field", done.stderr)
        self.assertFalse((self.root / "fields/analysis.json").exists())


if __name__ == "__main__":
    whole.run_tests()
