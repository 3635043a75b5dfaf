# SPDX-License-Identifier: Apache-2.0
"""Simulators in shared libraries: results of every sample, converted; and what a crash of one sample costs."""

import json
import unittest

import h5py
import numpy

from wflow_test import BIN, OK, SOURCE, SPEC, TASKS_FAILED, CampaignTest

LIBRARIES = BIN.parent / "lib"


def broken_study(values, bundle, extra="", step=""):
    """One sample a value of `values`, which says what goes wrong in it (tests/plugin/broken_plugin.c)."""
    return f"""
description: {{name: broken, description: a plugin that fails}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: list, columns: [what], values: [{", ".join(f"[{v}]" for v in values)}]}}
study:
  - name: sim
    plugin: {{library: {LIBRARIES}/libbroken_plugin.so, bundle: {bundle}{extra}}}
{step}"""


class Plugins(CampaignTest):
    def setUp(self):
        super().setUp()
        # A crash of the plugin is to end its process by the signal, also where AddressSanitizer would catch it.
        options = self.environment.get("ASAN_OPTIONS", "")
        self.environment["ASAN_OPTIONS"] = f"{options}:handle_segv=0".strip(":")

    def rows(self, name, bundle=None):
        folder = self.campaign() / "sim"
        return numpy.load((folder if bundle is None else folder / f"{bundle:02}") / f"{name}.npy")

    def failures(self):
        return sorted((f["task"], f["reason"]) for f in self.status()["failures"])

    def test_every_sample_has_its_row(self):
        self.wflow("run", self.study(broken_study([0] * 25, 10)), "-j", "2")
        self.assertEqual(self.counts("sim")["done"], 25)
        for bundle, size in enumerate((10, 10, 5)):
            value, pair = self.rows("value", bundle), self.rows("pair", bundle)
            first = 10 * bundle
            self.assertEqual((value.shape, value.dtype, pair.shape, pair.dtype), ((size,), "float64", (size, 2), "float32"))
            numpy.testing.assert_array_equal(value, 10.0 * numpy.arange(first, first + size))
            numpy.testing.assert_array_equal(pair[:, 0], numpy.arange(first, first + size))

    def test_a_crash_costs_one_sample(self):
        # Two crashing samples in the first bundle, one in the second; the worker and all other samples live.
        what = [0] * 200
        for sample in (17, 18, 150):
            what[sample] = 1
        self.wflow("run", self.study(broken_study(what, 100)), "-j", "2", code=TASKS_FAILED)
        counts = self.counts("sim")
        self.assertEqual((counts["done"], counts["failed"]), (197, 3))
        self.assertEqual(self.failures(), [(f"sim/{n}", "signal 11 (Segmentation fault)") for n in (150, 17, 18)])
        for bundle in range(2):
            value = self.rows("value", bundle)
            for row in range(100):
                sample = 100 * bundle + row
                self.assertTrue(numpy.isnan(value[row]) if what[sample] else value[row] == 10.0 * sample, sample)

    def test_failures_of_single_samples(self):
        what = [0] * 30
        what[3], what[12], what[25] = 2, 3, 2
        self.wflow("run", self.study(broken_study(what, 10)), "-j", "2", code=TASKS_FAILED)
        status = {f["task"]: f for f in self.status()["failures"]}
        self.assertEqual(sorted(status), ["sim/12", "sim/25", "sim/3"])
        self.assertIn("no root in sample 3", status["sim/3"]["detail"])
        self.assertIn("value holds NaN", status["sim/12"]["detail"])
        self.assertTrue(numpy.isnan(self.rows("pair", 1)[2]).all())

    def test_exit_and_time_limit(self):
        what = [0] * 8 + [4] + [0] * 7 + [5] + [0] * 3
        self.wflow("run", self.study(broken_study(what, 5, step="    timeout: 1\n")), "-j", "2", code=TASKS_FAILED)
        reasons = {f["task"]: f["reason"] for f in self.status()["failures"]}
        self.assertEqual(reasons.pop("sim/8"), "signal 6 (Aborted)")
        # Samples that were not reported fail with their process: samples 15 to 19 in the bundle of 16.
        self.assertEqual(sorted(reasons), [f"sim/{n}" for n in range(15, 20)])
        self.assertEqual(set(reasons.values()), {"killed at its time limit"})

    def test_conversion_and_example(self):
        text = (SOURCE / "examples" / "jag_like" / "jag_like.yaml").read_text()
        text = text.replace("bundle: 4096", "bundle: 300").replace("shard_samples: 16384", "shard_samples: 250")
        self.wflow("run", self.study(text), "-j", "2", "--vars", "N_SAMPLES=1000")
        data = self.campaign() / "data"
        manifest = json.loads((data / "manifest.json").read_text())
        self.assertEqual(manifest["missing"], [])
        rows = numpy.concatenate([numpy.load(self.campaign() / "implode" / f"{b:02}" / "xrays.npy") for b in range(4)])
        scalars = numpy.concatenate([numpy.load(self.campaign() / "implode" / f"{b:02}" / "scalars.npy") for b in range(4)])
        self.assertEqual(rows.shape, (1000, 64))
        seen = []
        for split in manifest["splits"].values():
            for shard in split["shards"]:
                with h5py.File(data / shard["file"]) as file:
                    ids = file["id"][...]
                    seen += ids.tolist()
                    numpy.testing.assert_array_equal(file["x"][...].reshape(len(ids), 64), rows[ids])
        self.assertEqual(sorted(seen), list(range(1000)))
        # Adiabatic: the peak temperature times the smallest radius squared is adiabat * (1 - mix), whatever the velocity.
        constant = scalars[:, 1] * scalars[:, 4] ** 2
        self.assertTrue((constant > 0.02 * 0.7 - 1e-9).all() and (constant < 0.08 + 1e-9).all())

    def test_failed_samples_are_missing_in_the_data(self):
        what = [0] * 20
        what[4] = what[11] = 1
        convert = """  - name: data
    convert: {from: sim, file: pair.npy, targets: [what], shard_samples: 8, split: {train: 1.0, validation: 0.0}}
"""
        self.wflow("run", self.study(broken_study(what, 6, step=convert)), "-j", "2", code=TASKS_FAILED)
        manifest = json.loads((self.campaign() / "data" / "manifest.json").read_text())
        self.assertEqual(sorted(manifest["missing"]), [4, 11])

    def test_what_cannot_be_loaded(self):
        study = broken_study([0], 10).replace("libbroken_plugin", "libabsent")
        self.assertIn("there is no library", self.wflow("validate", self.study(study), code=SPEC).err)
        self.wflow("run", self.study(broken_study([0], 10, ", symbol: of_another_version")), code=TASKS_FAILED)
        self.assertIn("compile it again", self.status()["failures"][0]["detail"])
        study = broken_study([0], 10, ", parameters: [other]")
        self.assertIn("is no column of the samples", self.wflow("validate", self.study(study), code=SPEC).err)


if __name__ == "__main__":
    unittest.main()
