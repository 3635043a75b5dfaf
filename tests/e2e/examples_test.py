# SPDX-License-Identifier: Apache-2.0
"""The examples of other simulations: each from its own simulator through the conversion to a training that has learned something."""

import csv
import json
import os
import re
import sys
from unittest import mock

import h5py
import numpy

from wflow_test import BIN, DATA, SMALL, SOURCE, CampaignTest

sys.path.insert(0, str(SOURCE / "python"))
import wflow

SAMPLES = 48 if SMALL else 160
EPOCHS = 2 if SMALL else 40


class Examples(CampaignTest):
    def run_example(self, name):
        self.wflow("run", SOURCE / "examples" / name / f"{name}.yaml", "-j", "2", "--vars", f"OUTPUT_PATH={self.folder}",
                   f"N_SAMPLES={SAMPLES}", f"EPOCHS={EPOCHS}")
        directory = self.campaign()
        status = self.status()
        self.assertEqual((status["state"], status["failures"]), ("finished", []))
        self.directory = directory / "data"
        self.manifest = json.loads((self.directory / "manifest.json").read_text())
        self.assertEqual(self.manifest["missing"], [])
        self.assertEqual(sum(split["samples"] for split in self.manifest["splits"].values()), SAMPLES)
        self.wflow("verify", self.directory, program="wflow-convert")
        self.check_training(directory, status)
        return {field["name"]: field for field in self.manifest["fields"]}

    def check_training(self, directory, status):
        epochs = [m["epoch"] for m in status["metrics"] if m["name"] == "validation_loss"]
        self.assertEqual(sorted(epochs), sorted(2 * list(range(1, EPOCHS + 1))))  # of both trainings
        self.check_own_trainer(directory / "train")
        out = (directory / "pytorch" / "pytorch.out").read_text()
        loss = float(re.search(r"test loss (\S+)", out)[1])
        if not SMALL:
            self.assertLess(loss, 0.7)  # 1: always the mean
        self.assertTrue((directory / "pytorch" / "network.pt").exists())

    def check_own_trainer(self, directory):
        """wflow-train has learned, and its exported model says of raw samples what predictions.h5 says."""
        (result_file,) = directory.rglob("result.json")
        result = json.loads(result_file.read_text())
        self.trained = result["model"]["name"]
        if not SMALL:
            self.assertLess(result["test"]["mean_mae_ratio"], 0.7, result["test"])  # 1: always the mean
        model = wflow.load_model(result_file.parent / "model.pt")
        data = wflow.open(self.directory)
        with h5py.File(result_file.parent / "predictions.h5") as file:
            predicted = file["prediction"][...]
            numpy.testing.assert_array_equal(file["id"][...], data.test.ids)
            truth = file["truth"][...]
        given = model(data.test.all(data.inputs[0]).astype(numpy.float32))
        numpy.testing.assert_allclose(given, predicted, rtol=1e-3, atol=1e-4 * numpy.abs(truth).max())
        whole = numpy.concatenate([data.test.all(name).reshape(len(truth), -1) for name in data.targets], axis=1)
        numpy.testing.assert_allclose(truth.reshape(len(truth), -1), whole, rtol=1e-5, atol=1e-5 * numpy.abs(truth).max())

    def samples(self):
        """Every sample's fields, by its number."""
        found = {}
        for split in self.manifest["splits"].values():
            for shard in split["shards"]:
                with h5py.File(self.directory / shard["file"]) as file:
                    values = {field["name"]: file[field["name"]][...] for field in self.manifest["fields"]}
                    found.update({int(i): {k: v[row] for k, v in values.items()} for row, i in enumerate(file["id"])})
        return found

    def test_heat_equation(self):
        fields = self.run_example("heat_equation")
        self.assertEqual([(f["role"], f["layout"]) for f in fields.values()], [("input", "C"), ("target", "HW")])
        self.assertEqual(self.trained, "decoder")
        for number, sample in self.samples().items():
            (path,) = self.directory.parent.rglob(f"u_{number}.npy")
            numpy.testing.assert_array_equal(sample["u"], numpy.load(path))

    def test_oscillator(self):
        fields = self.run_example("oscillator")
        self.assertEqual([f["role"] for f in fields.values()], ["input"] + 3 * ["target"])
        self.assertEqual(self.trained, "mlp")
        for sample in self.samples().values():
            mass, stiffness, damping = sample["x"]
            rate = damping / (2 * mass)
            # The period of a damped oscillator, from the differential equation.
            self.assertAlmostEqual(float(sample["period"]), 2 * numpy.pi / numpy.sqrt(stiffness / mass - rate**2), delta=2e-3)

        self.check_campaign_in_python()
        self.check_predictions_of_a_table()

    def run_alone(self, path, model):
        """A study with one training, of several inputs or fields."""
        self.wflow("run", SOURCE / "examples" / path, "-j", "2", "--vars", f"OUTPUT_PATH={self.folder}", f"N_SAMPLES={SAMPLES}",
                   f"EPOCHS={EPOCHS}")
        status = self.status()
        self.assertEqual((status["state"], status["failures"]), ("finished", []))
        (result_file,) = self.campaign().rglob("result.json")
        result = json.loads(result_file.read_text())
        self.assertEqual(result["model"]["name"], model)
        if not SMALL:
            self.assertLess(result["test"]["mean_mae_ratio"], 0.7, result["test"])  # 1: always the mean
        self.directory = self.campaign() / "data"
        self.manifest = json.loads((self.directory / "manifest.json").read_text())

    def test_oscillator_series(self):
        self.run_alone("oscillator/series.yaml", "lstm")
        lengths = {int(sample["signal_mask"].sum()) for sample in self.samples().values()}
        self.assertGreater(len(lengths), SAMPLES // 4)
        self.assertTrue(all(30 <= length <= 100 for length in lengths), lengths)

    def test_heat_operator(self):
        self.run_alone("heat_equation/operator.yaml", "fno")
        self.assertEqual({sample["s"].shape for sample in self.samples().values()}, {(2, 32, 32)})

    def check_predictions_of_a_table(self):
        """Its columns are the numbers of the model's one input, in any order."""
        training = self.directory.parent / "train"
        with open(training / "predictions.csv", encoding="utf-8") as file:
            tested = list(csv.DictReader(file))
        samples = self.samples()
        table = self.folder / "points.csv"
        with open(table, "w", encoding="utf-8") as file:
            file.write("id,damping,note,mass,stiffness\n")
            for row in tested:
                mass, stiffness, damping = samples[int(row["id"])]["x"]
                file.write(f"{row['id']},{damping:.17g},a note,{mass:.17g},{stiffness:.17g}\n")
        predicted = list(csv.DictReader(self.wflow("predict", training, table).out.splitlines()))
        self.assertEqual([row["id"] for row in predicted], [row["id"] for row in tested])
        for got, row in zip(predicted, tested):
            self.assertEqual(got["note"], "a note")
            self.assertAlmostEqual(float(got["period_predicted"]), float(row["period_predicted"]), delta=1e-4)
        table.write_text("mass,stiffness\n1,20\n")
        self.assertIn("has no column 'damping'", self.wflow("predict", training, table, code=DATA).err)

    def check_campaign_in_python(self):
        with mock.patch.dict(os.environ, {"WFLOW": str(BIN / "wflow"), "XDG_STATE_HOME": self.environment["XDG_STATE_HOME"]}):
            campaign = wflow.Campaign(self.directory.parent)
            self.assertTrue(campaign.finished)
            tasks = campaign.samples("simulate")
            self.assertEqual((len(tasks), set(tasks["state"])), (SAMPLES, {"done"}))
            data = campaign.data("data")
            for split in (data.train, data.validation, data.test):
                rows = tasks.set_index("id").loc[split.ids]
                for k, name in enumerate(("mass", "stiffness", "damping")):
                    numpy.testing.assert_array_equal(rows[name], split.all("x")[:, k])
            losses = campaign.metrics("validation_loss")
            for step in ("train", "pytorch"):
                self.assertEqual(list(losses[losses["step"] == step]["epoch"]), list(range(1, EPOCHS + 1)))
            self.assertEqual(len(campaign.failures()), 0)
            self.assertIn("test loss", campaign.log("pytorch/0"))
            with self.assertRaisesRegex(wflow.Error, "ended with code 2"):
                campaign.log("nothing/0")

    def test_rounds_of_inference(self):
        """Each round draws its samples where the posterior before has its density; the last posterior has both moons."""
        count, rounds = (60, 2) if SMALL else (600, 3)
        self.wflow("run", SOURCE / "examples/inference/rounds.yaml", "-j", "2", "--vars", f"OUTPUT_PATH={self.folder}",
                   f"N_SAMPLES={count}", f"ROUNDS={rounds}", f"EPOCHS={EPOCHS}")
        first = self.campaign()
        folders = [first, *(first / f"iterations/{i:03}" for i in range(2, rounds + 1))]
        proposals = [numpy.loadtxt(folder / "posterior/proposals.csv", delimiter=",") for folder in folders]
        for before, folder in zip(proposals, folders[1:]):
            manifest = json.loads((folder / "data/manifest.json").read_text())
            used = []
            for split in manifest["splits"].values():
                for shard in split["shards"]:
                    with h5py.File(folder / "data" / shard["file"]) as file:
                        used.extend(file["y"][...])
            numpy.testing.assert_allclose(sorted(map(tuple, used)), sorted(map(tuple, before)), rtol=1e-6, atol=1e-7)
        self.assertTrue(all((numpy.abs(one) <= 1).all() and one.shape == (count, 2) for one in proposals))
        if SMALL:
            return
        with h5py.File(folders[-1] / "posterior/posterior.h5") as file:
            a, b = file["draws"][0].T
        # In closed form: deviations 0.228, the mean of |a + b| 0.444, and a + b has both signs.
        self.assertLess(numpy.prod(numpy.ptp(proposals[-1], axis=0)), 2)
        self.assertAlmostEqual(a.std(), 0.228, delta=0.05)
        self.assertAlmostEqual(numpy.abs(a + b).mean(), 0.444, delta=0.05)
        self.assertAlmostEqual((a + b > 0).mean(), 0.5, delta=0.25)

    def test_waves(self):
        fields = self.run_example("waves")
        self.assertEqual(self.trained, "cnn")
        self.assertEqual((fields["height"]["layout"], fields["height"]["shape"], fields["height"]["units"]), ("HW", [32, 32], "m"))
        self.assertIn("scale_factor 0.001", fields["height"]["stored"])
        x = numpy.arange(32) / 32
        for sample in self.samples().values():
            number, direction, amplitude = sample["y"]
            expected = amplitude * (numpy.sin(2 * numpy.pi * number * (x[None, :] * numpy.cos(direction) + x[:, None] * numpy.sin(direction))) +
                                    0.5 * numpy.cos(2 * numpy.pi * number * x[:, None]))
            numpy.testing.assert_allclose(sample["height"], expected, atol=1.1e-3)  # stored in steps of 0.001


if __name__ == "__main__":
    import unittest

    unittest.main()
