# SPDX-License-Identifier: Apache-2.0
"""The example implosion: a plugin of several sources through the conversion of two arrays to a training of each."""

import json
import unittest

import h5py
import numpy

from wflow_test import SOURCE, TASKS_FAILED, CampaignTest

STUDY = SOURCE / "examples" / "implosion" / "implosion.yaml"
SAMPLES = 40


class Implosion(CampaignTest):
    def text(self):
        text = STUDY.read_text()
        return text.replace("bundle: 250", "bundle: 15").replace("shard_samples: 2500", "shard_samples: 20")

    def run_study(self, text):
        self.wflow("run", self.study(text), "-j", "2", "--vars", f"N_SAMPLES={SAMPLES}", "SCALAR_EPOCHS=30", "IMAGE_EPOCHS=1", "CYCLE_EPOCHS=1")
        return self.campaign()

    def test_from_capsules_to_surrogates(self):
        campaign = self.run_study(self.text())
        manifest = json.loads((campaign / "data" / "manifest.json").read_text())
        self.assertEqual(manifest["missing"], [])
        fields = {field["name"]: field for field in manifest["fields"]}
        self.assertEqual([(name, f["role"], f["shape"]) for name, f in fields.items()],
                         [("capsule", "input", [5]), ("scalars", "target", [15]), ("images", "target", [4, 64, 64])])
        simulated = {name: numpy.concatenate([numpy.load(path) for path in sorted((campaign / "implode").glob(f"*/{name}.npy"))])
                     for name in ("scalars", "images")}
        self.check_physics(manifest, **simulated)
        for split in manifest["splits"].values():
            for shard in split["shards"]:
                with h5py.File(campaign / "data" / shard["file"]) as file:
                    numbers = file["id"][...]
                    numpy.testing.assert_array_equal(file["scalars"][...], simulated["scalars"][numbers])
                    numpy.testing.assert_allclose(file["images"][...], numpy.arcsinh(simulated["images"][numbers]), rtol=1e-6)
        results = {name: json.loads(next((campaign / name).rglob("result.json")).read_text()) for name in ("scalars", "images")}
        self.assertEqual([r["model"]["name"] for r in results.values()], ["mlp", "decoder"])
        self.assertEqual([len(r["test"]["targets"]) for r in results.values()], [15, 4])
        self.assertIn("log10_yield", results["scalars"]["test"]["targets"])
        self.assertLess(results["scalars"]["test"]["mean_mae_ratio"], 0.9)  # 1: always the mean
        together = json.loads(next((campaign / "together").rglob("result.json")).read_text())
        self.assertEqual(list(together["test"]["heads"]), ["images", "scalars"])
        self.assertEqual(len(together["test"]["targets"]), 15 + 4)
        cycle = json.loads(next((campaign / "cycle").rglob("result.json")).read_text())
        coded = [f"{name}{kind}" for name in ("scalars", "images") for kind in ("", "_coded", "_cycle")]
        self.assertEqual(set(cycle["test"]["heads"]), {*coded, "latent_error", "parameters_inverse", "parameters_cycle"})

    def check_physics(self, manifest, scalars, images):
        """Every sample satisfies this, whatever its parameters."""
        (names,) = (field["channels"] for field in manifest["fields"] if field["name"] == "scalars")
        value = dict(zip(names, scalars.T))
        self.assertTrue((numpy.abs(value["log10_yield"] - 16) < 2).all())
        # No more energy than the alpha particles of all neutrons have: 3.54 MeV each.
        self.assertTrue((1e3 * value["alpha_energy_kj"] < 10 ** value["log10_yield"] * 3.54e6 * 1.602e-19).all())
        numpy.testing.assert_array_equal(images, images[:, :, ::-1, :])
        numpy.testing.assert_array_equal(images, images[:, :, :, ::-1])
        # Softer bands are brighter, and a hot spot that is long along the axis (rows) is so in its image.
        self.assertTrue((numpy.diff(images.max(axis=(2, 3)), axis=1) < 0).all())
        place = numpy.arange(64) - 31.5
        weight = images[:, 0] / images[:, 0].sum(axis=(1, 2), keepdims=True)
        along, across = ((weight.sum(axis=axis) * place**2).sum(axis=1) for axis in (2, 1))
        strong = numpy.abs(value["radius_p2"]) > 0.05
        self.assertGreater(strong.sum(), 10)
        self.assertTrue(((along > across) == (value["radius_p2"] > 0))[strong].all())

    def test_a_parameter_that_the_plugin_does_not_know(self):
        self.wflow("run", self.study(self.text().replace("    p4: [", "    p6: [")), "-j", "2", "--vars", f"N_SAMPLES={SAMPLES}", code=TASKS_FAILED)
        details = {failure["detail"] for failure in self.status()["failures"]}
        self.assertTrue(any("the parameters must be laser_energy, thickness, adiabat, p2 and p4" in detail for detail in details), details)


if __name__ == "__main__":
    unittest.main()
