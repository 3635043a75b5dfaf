# SPDX-License-Identifier: Apache-2.0
"""A segmentation from the simulator to the report: examples/climate with few samples. Metrics of classes in result.json, in status and
on the page, pictures of test samples, and samples that follow from their parameters alone."""

import json

import h5py
import numpy

from wflow_test import SOURCE, CampaignTest

SAMPLES = 48


class Climate(CampaignTest):
    def run_climate(self, folder, *options):
        folder.mkdir(exist_ok=True)
        self.wflow("run", SOURCE / "examples/climate/climate.yaml", "-j", "2", *options, "--vars", f"OUTPUT_PATH={folder}",
                   f"N_SAMPLES={SAMPLES}", "WIDTH=2", "EPOCHS=2")
        (campaign,) = folder.glob("climate_*")
        return campaign

    def events(self, campaign):
        """The classes of every cell, a bundle of 16 samples after the other."""
        return numpy.concatenate([numpy.load(path) for path in sorted(campaign.glob("weather/**/events.npy"))])

    def check_weather(self, campaign):
        events = self.events(campaign)
        self.assertEqual(events.shape, (SAMPLES, 96, 144))
        shares = [(events == k).mean() for k in range(3)]
        self.assertTrue(0.97 < shares[0] < 0.99 and 0.0005 < shares[1] < 0.002 and 0.01 < shares[2] < 0.025, shares)
        weather = numpy.concatenate([numpy.load(path) for path in sorted(campaign.glob("weather/**/weather.npy"))])
        # The middle of a cyclone is a warm, moist low with strong winds around it.
        inside = events == 1
        background = events == 0
        mean = {name: (weather[:, c][inside].mean() - weather[:, c][background].mean()) / weather[:, c][background].std()
                for c, name in enumerate(("TMQ", "U850", "V850", "UBOT", "VBOT", "QREFHT", "PS", "PSL", "T200"))}
        self.assertLess(mean["PSL"], -1)
        self.assertGreater(mean["T200"], 0.5)
        self.assertGreater(mean["TMQ"], 1)
        speed = numpy.hypot(weather[:, 1], weather[:, 2])
        self.assertGreater(speed[inside].mean(), 2 * speed[background].mean())
        river = events == 2
        self.assertGreater(weather[:, 0][river].mean(), weather[:, 0][background].mean() + weather[:, 0][background].std())

    def check_result(self, campaign):
        result = json.loads((campaign / "train/result.json").read_text())
        events = result["test"]["targets"]["events"]
        with h5py.File(campaign / "train/predictions.h5") as file:
            truth, mask = file["truth"][:], file["mask"][:]
        self.assertEqual(mask.shape, (SAMPLES // 8, 96, 144))
        self.assertEqual(sum(map(sum, events["confusion"])), truth.size)
        for k, one in enumerate(events["classes"]):
            union = ((truth == k) | (mask == k)).sum()
            self.assertAlmostEqual(one["iou"], ((truth == k) & (mask == k)).sum() / union)
        self.assertEqual(len(result["classes"]["weights"]), 3)
        return events

    def test_climate(self):
        campaign = self.run_climate(self.folder)
        self.check_weather(campaign)
        events = self.check_result(campaign)
        self.assertIn(f"mean IoU {events['mean_iou']:.4g}", self.wflow("status", campaign).out)
        curves = {curve["name"] for curve in self.status()["metrics"]}
        self.assertTrue({"validation_mean_iou/events", "validation_iou_1/events", "test_mean_iou/events"} <= curves, curves)
        page = self.folder / "report.html"
        self.wflow("report", campaign, "-o", page)
        html = page.read_text(encoding="utf-8")
        self.assertIn("predicted as 2", html)
        self.assertIn(f"<td>{events['confusion'][2][0]}</td>", html.replace(' class="number"', ""))
        for role in ("input", "truth", "prediction"):
            self.assertRegex(html, rf"sample \d+, {role} ")

    def test_a_sample_is_a_function_of_its_parameters(self):
        one, other = (self.events(self.run_climate(self.folder / name, "--until", "weather")) for name in ("one", "other"))
        numpy.testing.assert_array_equal(one, other)
        self.assertGreater(len({sample.tobytes() for sample in one}), SAMPLES // 2)  # some samples have no event


if __name__ == "__main__":
    import unittest

    unittest.main()
