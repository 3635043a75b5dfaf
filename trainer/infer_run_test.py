#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks that learn the density of parameters (`loss: mixture`), and `wflow infer`, against closed forms. With Debian's python3 (numpy, h5py)."""

import csv
import json
import math
import pathlib
import subprocess
import tempfile

import h5py
import numpy

import train_run_test as whole

DESIGN = numpy.array([[1, 0.5, 0], [0, 1, 0], [-1, 1, 0]])
NOISE = 0.5
SQUARE_NOISE = 0.1
TEST = 200


def densities(values, numbers):
    """The weights, means and precision factors that docs/train.md documents, from the values of one sample."""
    below = numbers * (numbers - 1) // 2
    components = (len(values) - numbers) // (1 + 2 * numbers + below)
    m, a, d, diagonals, others = numpy.split(values, numpy.cumsum([numbers, components, components * numbers, components * numbers]))
    weights = numpy.exp(a - a.max())
    weights /= weights.sum()
    d = d.reshape(components, numbers)
    factors = numpy.zeros((components, numbers, numbers))
    for k in range(components):
        factors[k][numpy.tril_indices(numbers, -1)] = others.reshape(components, below)[k]
        factors[k][numpy.diag_indices(numbers)] = numpy.exp(diagonals.reshape(components, numbers)[k])
    return weights, m + d - weights @ d, factors


def log_density(values, y):
    weights, means, factors = densities(values, len(y))
    logarithms = [math.log(w) + math.log(numpy.prod(numpy.diag(f))) - 0.5 * ((f.T @ (y - mu)) ** 2).sum() - 0.5 * len(y) * math.log(2 * math.pi)
                  for w, mu, f in zip(weights, means, factors)]
    return numpy.logaddexp.reduce(logarithms)


class Infer(whole.TrainRun):
    """a and b are normal and observed through a linear map with noise; c is uniform, and only its square is observed."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = pathlib.Path(cls.directory.name)
        rng = numpy.random.default_rng(1)
        count = 12000 + 2 * TEST
        cls.parameters = numpy.column_stack([rng.normal(size=(count, 2)), rng.uniform(-1, 1, count)])
        cls.observed = numpy.column_stack([cls.parameters @ DESIGN.T + NOISE * rng.normal(size=(count, 3)),
                                           cls.parameters[:, 2] ** 2 + SQUARE_NOISE * rng.normal(size=count)])
        rows = ["id,a,b,c,y0,y1,y2,y3"]
        for i, (p, y) in enumerate(zip(cls.parameters, cls.observed)):
            rows.append(",".join([str(i), *(f"{v:.9g}" for v in (*p, *y))]))
        (cls.root / "table.csv").write_text("\n".join(rows) + "\n")
        (cls.root / "convert.yaml").write_text(
            f"samples: {cls.root}/table.csv\ninputs: [y0, y1, y2, y3]\ntargets: [a, b, c]\n"
            f"split: {{train: 12000, validation: {TEST}, test: {TEST}, seed: 3}}\noutput: {cls.root}/shards\n")
        subprocess.run([whole.PROGRAMS.convert, cls.root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)
        cls().learn("learnt", epochs=30)

    def learn(self, name, ranks=1, **keys):
        return self.train(self.config(name, **{"transform": None, "augment": None, "batch": 50, "model": {"name": "mlp", "dense": [64, 64]},
                                               "loss": {"name": "mixture", "components": 4}, "epochs": 3, "select": "best",
                                               "optimizer": {"name": "adam", "learning_rate": 0.003}, **keys}), ranks)

    def infer(self, *arguments, code=0):
        done = subprocess.run([whole.PROGRAMS.train, "infer", *map(str, arguments)], capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def draws(self, folder):
        with h5py.File(self.root / folder / "posterior.h5") as file:
            return {name: file[name][:] for name in file}

    def summary(self, folder):
        return json.loads((self.root / folder / "inference.json").read_text())

    def test_posteriors_are_those_of_the_closed_form(self):
        done = self.infer(self.root / "learnt", "--calibrate", "--draws", 2000, "-o", self.root / "closed")
        found = self.draws("closed")
        self.assertEqual(found["draws"].shape, (TEST, 2000, 3))
        numpy.testing.assert_allclose(found["truth"], self.parameters[found["id"]], rtol=1e-6)
        covariance = numpy.linalg.inv(DESIGN[:, :2].T @ DESIGN[:, :2] / NOISE**2 + numpy.eye(2))
        mean = self.observed[found["id"], :3] @ DESIGN[:, :2] / NOISE**2 @ covariance
        deviation = numpy.sqrt(numpy.diag(covariance))
        linear = found["draws"][:, :, :2]
        self.assertLess(numpy.sqrt((((linear.mean(1) - mean) / deviation) ** 2).mean()), 0.25)
        numpy.testing.assert_allclose(linear.std(1).mean(0), deviation, rtol=0.06)
        correlation = numpy.mean([numpy.corrcoef(one.T)[0, 1] for one in linear])
        self.assertAlmostEqual(correlation, covariance[0, 1] / deviation.prod(), delta=0.07)
        # Both signs of c explain its square.
        square = self.observed[found["id"], 3]
        inside = (square > 0.4) & (square < 0.8)
        c = found["draws"][inside, :, 2]
        self.assertLess(abs((c > 0).mean() - 0.5), 0.1)
        self.assertLess(numpy.abs(numpy.median(numpy.abs(c), axis=1) - numpy.sqrt(square[inside])).mean(), 0.08)
        self.assertLess((numpy.abs(c) < 0.2).mean(), 0.06)
        calibration = self.summary("closed")["calibration"]
        self.assertEqual(calibration["samples"], TEST)
        for row in (*calibration["parameters"], calibration["joint"]):
            self.assertEqual(sum(row["ranks"]), TEST)
            self.assertGreater(row["p_value"], 1e-3)
            self.assertAlmostEqual(row["within_68"], 0.68, delta=4 * row["within_68_error"])
            self.assertAlmostEqual(row["within_95"], 0.95, delta=4 * row["within_95_error"])
        self.assertRegex(done.stdout, r"(?m)^c +0\.\d{3} \+- 0\.033 ")
        self.assertIn(f"{TEST - 1} more observations in posterior.h5", done.stdout)

    def test_the_density_is_that_of_the_documentation(self):
        """The loss, predictions and draws follow from the values of model.pt and model.onnx."""
        torch = __import__("torch")
        import onnx_run
        model = torch.jit.load(str(self.root / "learnt/model.pt"))
        self.infer(self.root / "learnt", "--draws", 500, "--unbounded", "-o", self.root / "documented")
        found = self.draws("documented")
        inputs = self.observed[found["id"]].astype("f4")
        values = model(torch.from_numpy(inputs)).numpy()
        numpy.testing.assert_allclose(onnx_run.Model(str(self.root / "learnt/model.onnx"))(torch.from_numpy(inputs.reshape(-1, 4, 1, 1, 1))), values, rtol=1e-4, atol=1e-4)
        with h5py.File(self.root / "learnt/predictions.h5") as file:
            rows = numpy.searchsorted(numpy.sort(file["id"][:]), found["id"])
            order = numpy.argsort(file["id"][:])[rows]
            prediction, deviation = file["prediction"][:][order], file["deviation"][:][order]
        numpy.testing.assert_allclose(values[:, :3], prediction, rtol=1e-4, atol=1e-4)
        for row in range(5):
            weights, means, factors = densities(values[row].astype("f8"), 3)
            variances = numpy.array([numpy.diag(numpy.linalg.inv(f @ f.T)) for f in factors])
            expected = weights @ (variances + means**2) - (weights @ means) ** 2
            numpy.testing.assert_allclose(deviation[row] ** 2, expected, rtol=1e-3)
            for draw in range(5):
                self.assertAlmostEqual(found["log_density"][row, draw], log_density(values[row].astype("f8"), found["draws"][row, draw]), places=3)
        # The loss is of normalised targets.
        scale = numpy.log(self.weights("learnt")[1]["normalisation"]["y_std"]).sum()
        loss = -numpy.mean([log_density(v.astype("f8"), t) for v, t in zip(values, found["truth"])]) - scale
        self.assertAlmostEqual(self.result("learnt")["test"]["loss"], loss, places=3)
        for index, name in enumerate("abc"):
            self.assertIn("within_68", self.result("learnt")["test"]["targets"][name]["calibration"])

    def test_observations_from_files(self):
        """A table, an HDF5 file and the data set give the same draws; another seed gives others."""
        self.infer(self.root / "learnt", "--draws", 300, "-o", self.root / "shards_seen")
        expected = self.draws("shards_seen")
        ids = expected["id"]
        with h5py.File(self.root / "seen.h5", "w") as file:
            file["x"] = self.observed[ids].astype("f4")
            file["id"] = ids
        with open(self.root / "seen.csv", "w", newline="") as file:
            csv.writer(file).writerows([["id", "y0", "y1", "y2", "y3"], *([i, *map("{:.9g}".format, self.observed[i].astype("f4"))] for i in ids)])
        for name in ("seen.h5", "seen.csv"):
            self.infer(self.root / "learnt", "--observe", self.root / name, "--draws", 300, "-o", self.root / name.replace(".", "_"))
            found = self.draws(name.replace(".", "_"))
            self.assertEqual(list(found["id"]), list(ids))
            numpy.testing.assert_allclose(found["draws"], expected["draws"], rtol=1e-4, atol=1e-4)
            self.assertNotIn("truth", found)
        with h5py.File(self.root / "one.h5", "w") as file:
            file["x"] = self.observed[0]
        first = self.infer(self.root / "learnt", "--observe", self.root / "one.h5", "-o", self.root / "one").stdout
        self.assertEqual(first, self.infer(self.root / "learnt", "--observe", self.root / "one.h5", "-o", self.root / "one").stdout)
        before = self.draws("one")["draws"]
        self.assertNotEqual(first, self.infer(self.root / "learnt", "--observe", self.root / "one.h5", "-o", self.root / "one", "--seed", 2).stdout)
        self.assertFalse(numpy.array_equal(before, self.draws("one")["draws"]))
        low, high = self.parameters.min(0), self.parameters.max(0)
        self.assertTrue((before >= low - 1e-6).all() and (before <= high + 1e-6).all())

    def test_an_ensemble_has_the_mean_of_the_densities(self):
        torch = __import__("torch")
        self.learn("members", members=3, epochs=2)
        self.infer(self.root / "members", "--draws", 400, "--unbounded", "-o", self.root / "of_members")
        found = self.draws("of_members")
        inputs = torch.from_numpy(self.observed[found["id"]].astype("f4"))
        each = [torch.jit.load(str(self.root / f"members/member-{k}/model.pt"))(inputs).numpy().astype("f8") for k in (1, 2, 3)]
        whole = torch.jit.load(str(self.root / "members/model.pt"))(inputs).numpy().astype("f8")
        numpy.testing.assert_allclose(whole[:, :3], numpy.mean([one[:, :3] for one in each], axis=0), rtol=1e-5, atol=1e-5)
        for row in range(4):
            for draw in range(4):
                y = found["draws"][row, draw]
                expected = numpy.logaddexp.reduce([log_density(one[row], y) for one in each]) - math.log(3)
                self.assertAlmostEqual(found["log_density"][row, draw], expected, places=3)
        with h5py.File(self.root / "members/predictions.h5") as file:
            order = numpy.argsort(file["id"][:])
            deviation = file["deviation"][:][order]
        numpy.testing.assert_allclose(found["draws"].std(1)[numpy.argsort(found["id"])].mean(0), deviation.mean(0), rtol=0.03)

    def test_samples_for_further_simulations(self):
        with h5py.File(self.root / "single.h5", "w") as file:
            file["x"] = self.observed[1]
        done = self.infer(self.root / "learnt", "--observe", self.root / "single.h5", "--samples", 50, "--propose", 400, "-o", self.root / "next")
        draws = self.draws("next")["draws"][0]
        numpy.testing.assert_array_equal(numpy.loadtxt(self.root / "next/samples.csv", delimiter=","), draws[:50])
        proposals = numpy.loadtxt(self.root / "next/proposals.csv", delimiter=",")
        self.assertEqual(proposals.shape, (400, 3))
        self.assertIn("proposals.csv: 400 samples, from", done.stdout)
        low, high = draws.min(0), draws.max(0)
        margin = 0.2 * (high - low)
        self.assertTrue((proposals >= low - margin).all() and (proposals <= high + margin).all())
        # Uniform in a region: wider than the draws.
        self.assertTrue((proposals.std(0) > draws.std(0))[:2].all())  # c has two narrow modes
        for arguments, reason in ((["--propose", 10], "--samples and --propose are for one observation, and there are 200"),
                                  (["--observe", self.root / "single.h5", "--samples", 500, "--draws", 100], "raise --draws")):
            self.assertIn(reason, self.infer(self.root / "learnt", *arguments, "-o", self.root / "wrong_next", code=2).stderr)

    def test_restarts_and_ranks(self):
        for ranks in (1, 2):
            self.learn(f"whole{ranks}", ranks)
            self.learn(f"cut{ranks}", ranks)
            (self.root / f"cut{ranks}/checkpoints/step-{720:012}.wfck").unlink()
            self.assertIn("continued from epoch", self.learn(f"cut{ranks}", ranks).stdout)
            self.assertEqual(self.weights(f"cut{ranks}")[0], self.weights(f"whole{ranks}")[0])
        one, two = (self.arrays(f"whole{ranks}")["parameter"] for ranks in (1, 2))
        self.assertLess(numpy.abs(one - two).max(), 1e-3 * numpy.abs(one).max())

    def test_wrong_input(self):
        self.learn("plain", loss="gaussian", epochs=1)
        with h5py.File(self.root / "other.h5", "w") as file:
            file["y"] = self.observed[0]
        with h5py.File(self.root / "long.h5", "w") as file:
            file["x"] = self.observed[0, :3]
        with h5py.File(self.root / "far.h5", "w") as file:
            file["x"] = [1e4, -1e4, 1e4, 50]
        (self.root / "text.h5").write_text("no file")
        for arguments, code, reason in (([self.root / "plain"], 4, "has learnt no density: train it with 'loss: mixture'"),
                                        ([self.root / "absent"], 4, "there is no folder"),
                                        ([self.root / "learnt", "--observe", self.root / "other.h5"], 4, "has no dataset 'x'"),
                                        ([self.root / "learnt", "--observe", self.root / "long.h5"], 4, "'x' in"),
                                        ([self.root / "learnt", "--observe", self.root / "text.h5"], 4, "text.h5"),
                                        ([self.root / "learnt", "--observe", self.root / "far.h5"], 4, "the observation is not like the training samples"),
                                        ([self.root / "learnt", "--observe", self.root / "table.csv", "--calibrate"], 2, "--calibrate compares with known"),
                                        ([self.root / "learnt", "--draws", 3], 2, "--draws")):
            done = self.infer(*arguments, "-o", self.root / "wrong", code=code)
            self.assertIn(reason, done.stderr)
            self.assertLessEqual(len(done.stderr.strip().splitlines()), 2, done.stderr)
            self.assertFalse((self.root / "wrong/posterior.h5").exists())


if __name__ == "__main__":
    whole.run_tests()
