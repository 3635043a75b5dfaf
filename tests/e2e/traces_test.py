# SPDX-License-Identifier: Apache-2.0
"""Simulators that take their random draws from wflow: recorded traces, a network that proposes draws, and posteriors by three methods."""

import json
import math
import shutil
import subprocess

import h5py
import numpy

from wflow_test import BIN, DATA, SOURCE, TASKS_FAILED, USAGE, CampaignTest

MODELS = BIN.parent / "lib/libtrace_models.so"
KINDS = {"normal": 1, "uniform": 2, "categorical": 3, "poisson": 4, "exponential": 5, "gamma": 6, "beta": 7, "truncated_normal": 8}

STUDY = """
description: {{name: traces, description: recorded draws}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{count: {count}}}
study:
  - name: simulate
    plugin: {{library: {library}, symbol: {symbol}, bundle: {bundle}, seed: {seed}}}
"""
DATA_SET = """  - name: data
    convert:
      from: simulate
      inputs:
        trace: {file: trace.index.npy, layout: TC, ragged: T}
        y: {file: y.npy}
      targets: {trace_type: {file: trace_type.npy}}
      shard_samples: 1000
      split: {train: 0.9, validation: 0.05, test: 0.05}
"""
TRAIN = """  - name: train
    train:
      data: data
      inputs: [trace, y]
      model: {name: inference, latent: 32, dense: [32], components: 4}
      epochs: 12
      batch: 64
      batch_by: [trace_type]
      optimizer: {name: adam, learning_rate: 0.003}
      select: best
"""


class Traces(CampaignTest):
    def record(self, symbol, count, steps="", bundle=1000, seed=1, library=MODELS, code=0):
        self.wflow("run", self.study(STUDY.format(symbol=symbol, count=count, bundle=bundle, seed=seed, library=library) + steps), "-j", "2", "--new",
                   code=code)
        return self.campaign()

    def campaign(self):
        """The newest one."""
        found = sorted(path.parent.parent for path in self.folder.glob("traces_*/.wflow/campaign.db"))
        return found[-1] if found else None

    def infer(self, *arguments, code=0):
        """wflow infer on the campaign's training, into the folder `found`; its summaries."""
        result = self.wflow("infer", self.campaign() / "train", "--simulator", MODELS, "-j", "2", "-o", self.folder / "found", *arguments, code=code)
        if code == 0:
            self.summary = json.loads((self.folder / "found/inference.json").read_text())
        return result

    def observe(self, *values):
        path = self.folder / "observed.h5"
        with h5py.File(path, "w") as file:
            file["y"] = numpy.array(values, float)
        return path

    @staticmethod
    def traces_of(folder):
        """The rows of each sample of a campaign's simulate step, in order of bundles and rows."""
        found = []
        for path in sorted(folder.glob("simulate/**/trace.index.npy")):
            for number, first, count in numpy.load(path).tolist():
                found.append(None if math.isnan(number) else
                             numpy.fromfile(path.parent / f"trace.{int(number)}.rows", dtype=float).reshape(-1, 8)[int(first):int(first + count)])
        return found

    def test_a_trace_is_a_function_of_seed_and_sample(self):
        first = self.traces_of(self.record("kinds", 60, bundle=25))
        other_bundles = self.traces_of(self.record("kinds", 60, bundle=7))
        other_seed = self.traces_of(self.record("kinds", 60, bundle=7, seed=2))
        self.assertEqual(len(first), 60)
        for one, same in zip(first, other_bundles):
            numpy.testing.assert_array_equal(one, same)
        self.assertFalse(any(len(one) == len(other) and (one == other).all() for one, other in zip(first, other_seed)))
        self.assertEqual({len(one) for one in first}, {10, 19, 28})

    def test_a_data_set_has_traces_and_addresses(self):
        campaign = self.record("kinds", 200, DATA_SET, bundle=50)
        traces = self.traces_of(campaign)
        table = json.loads((campaign / "data/addresses.json").read_text())
        self.assertEqual(len(table["addresses"]), 28)
        self.assertEqual(sum(one["traces"] for one in table["types"]), 200)
        self.assertEqual(sum(one["draws"] for one in table["addresses"]), sum(map(len, traces)))
        kinds = {one["address"]: one["kind"] for one in table["addresses"]}
        self.assertIn("pair[1]#2", kinds)
        self.assertEqual((kinds["normal#3"], kinds["truncated"], kinds["turns"]), ("normal", "truncated_normal", "categorical"))
        seen = 0
        for split in ("train", "validation", "test"):
            for shard in sorted((campaign / "data" / split).glob("*.h5")):
                with h5py.File(shard) as file:
                    ids, offsets = file["id"][:], file["wflow/offsets/trace"][:]
                    for row, number in enumerate(ids):
                        stored = file["trace"][offsets[row]:offsets[row + 1]]
                        numpy.testing.assert_array_equal(stored.reshape(-1, 8), traces[number].astype("float32"))
                        seen += 1
        self.assertEqual(seen, 200)
        self.wflow("shards", "sort", campaign / "data", self.folder / "sorted", "--by", "trace_type,length")
        self.assertEqual(json.loads((self.folder / "sorted/addresses.json").read_text()), table)

    def test_two_builds_have_the_same_addresses(self):
        tables = []
        for level in ("-O0", "-O2"):
            library = self.folder / f"models{level}.so"
            subprocess.run(["cc", level, "-shared", "-fPIC", f"-I{SOURCE}/plugin", f"-I{SOURCE}/traces", SOURCE / "plugin/testdata/trace_models.c",
                            "-o", library, "-lm"], check=True)
            campaign = self.record("kinds", 100, DATA_SET, library=library)
            table = json.loads((campaign / "data/addresses.json").read_text())
            tables.append([(one["address"], one["kind"]) for one in table["addresses"]])
        self.assertEqual(*tables)

    def test_mistakes_of_a_simulator_are_sentences(self):
        self.record("mistaken", 8, code=TASKS_FAILED)
        reasons = {failure["task"]: failure["detail"] for failure in self.status()["failures"]}
        for sample, sentence in enumerate(("'deviation' is normal: its standard deviation is -1", "value 0 of 'y' was not observed",
                                           "'z' is observed, and the plugin has no such array", "value 7 of 'y' is observed, which has 1",
                                           "'y' is normal: parameter 0 is ", "the tag 'tag' is nan", "the simulator's own reason")):
            self.assertIn(sentence, reasons[f"simulate/{sample}"])
        self.assertNotIn("simulate/7", reasons)

    def test_a_gaussian_by_three_methods(self):
        """mu ~ N(1, sqrt 5), two observations with deviation sqrt 2: the posterior of (8, 9) is N(7.25, 0.913)."""
        self.record("gaussian", 8000, DATA_SET + TRAIN)
        observed = self.observe(8, 9)
        effective = {}
        for method in ("ic", "is", "rmh"):
            text = self.infer("--symbol", "gaussian", "--observe", observed, "--traces", 20000, "--method", method).out
            [posterior] = self.summary["posteriors"]
            mu, square = posterior["parameters"]
            self.assertEqual((mu["name"], square["name"]), ("mu", "square"))
            self.assertAlmostEqual(mu["mean"], 7.25, delta=0.1)
            self.assertAlmostEqual(mu["deviation"], math.sqrt(1 / 1.2), delta=0.07)
            self.assertAlmostEqual(square["mean"], 7.25**2 + 1 / 1.2, delta=1.5)
            self.assertRegex(text, r"(?m)^mu +7\.")
            with h5py.File(self.folder / "found/posterior.h5") as file:
                weights = numpy.exp(file["log_weight"][0] - file["log_weight"][0].max())
                values = file["draws/mu"][0]
                replicas = file["replicas/y"][0]
            self.assertAlmostEqual((weights * values).sum() / weights.sum(), mu["mean"], delta=1e-9)
            self.check_replicas(posterior["predictive"], replicas, weights / weights.sum(), 4 if method == "is" else 1)
            if method == "rmh":
                self.assertLess(mu["r_hat"], 1.05)
            else:
                # (8, 9) has the mean (1, 1), and the covariance 7 on the diagonal and 5 beside it.
                self.assertAlmostEqual(posterior["log_evidence"], -0.5 * (7 * 49 - 2 * 5 * 7 * 8 + 7 * 64) / 24 - 0.5 * math.log(24) - math.log(2 * math.pi),
                                       delta=0.15)
                effective[method] = posterior["effective_samples"]
                self.assertAlmostEqual(effective[method], weights.sum() ** 2 / (weights**2).sum(), delta=1e-6 * effective[method])
        self.assertGreater(effective["ic"], 10 * effective["is"])
        with h5py.File(self.folder / "found/posterior.h5") as file:
            first = file["draws/mu"][:]
        shutil.rmtree(self.folder / "found")
        self.infer("--symbol", "gaussian", "--observe", observed, "--traces", 20000, "--method", "rmh")
        with h5py.File(self.folder / "found/posterior.h5") as file:
            numpy.testing.assert_array_equal(first, file["draws/mu"][:])
        text = self.infer("--symbol", "gaussian", "--observe", self.observe(20, -5), "--traces", 2000, "--method", "is").out
        self.assertIn("0.00 of the replicas are less likely than the observation; 0 of 2 observed values are within 90 % of theirs: "
                      "the simulator hardly makes such observations", text)

    def check_replicas(self, predictive, replicas, weights, doubt):
        """With mu ~ N(7.25, 0.913), replicas are N(7.25, 1.683); they are as likely as exp(-((mu - 8.5)^2 + 0.25) / 2) or less.
        `doubt`: draws from the prior have some hundred effective traces."""
        [array] = predictive["arrays"]
        self.assertEqual((array["name"], array["observed"], predictive["values"], predictive["within_90"]), ("y", [8, 9], 2, 2))
        self.assertEqual(replicas.shape, (len(weights), 2))
        deviation = math.sqrt(1 / 1.2 + 2)
        for i, observed in enumerate((8, 9)):
            self.assertAlmostEqual(array["below"][i], (weights * (replicas[:, i] < observed)).sum(), delta=1e-9)
            self.assertAlmostEqual(array["below"][i], 0.5 * math.erfc((7.25 - observed) / deviation / math.sqrt(2)), delta=0.05 * doubt)
            for key, z in (("low", -1.645), ("median", 0), ("high", 1.645)):
                self.assertAlmostEqual(array[key][i], 7.25 + z * deviation, delta=0.4 * doubt)
        self.assertAlmostEqual(predictive["p_value"], math.exp(-0.125 - 1.25**2 / 2 / (1 + 1 / 1.2)) / math.sqrt(1 + 1 / 1.2), delta=0.05 * doubt)

    def test_calibration_and_wrong_input(self):
        self.record("branching", 6000, DATA_SET + TRAIN)
        text = self.infer("--symbol", "branching", "--calibrate", "--observations", 40, "--traces", 500).out
        [branch] = self.summary["calibration"]["parameters"]
        self.assertEqual((branch["name"], sum(branch["ranks"])), ("branch", 40))
        self.assertIn("calibration over 40 samples", text)
        first = self.summary["posteriors"][0]
        self.assertEqual([one["name"] for one in first["parameters"]], ["branch", "sum"])
        shares = {one["name"]: one["presence"] for one in first["sometimes"]}
        self.assertAlmostEqual(shares.get("a", 0) + shares.get("b", 0), 1, delta=0.06)
        self.assertIn("has no function 'none'", self.infer("--symbol", "none", code=DATA).err)
        with h5py.File(self.folder / "other.h5", "w") as file:
            file["z"] = [1.0]
        self.assertRegex(self.infer("--symbol", "branching", "--observe", self.folder / "other.h5", code=DATA).err, r"other\.h5 has no .*y")
        self.assertIn("there is no such file", self.wflow("infer", self.campaign() / "train", "--simulator", "absent.so", code=USAGE).err)
        self.assertIn("without --simulator", self.wflow("infer", self.campaign() / "train", "--simulator", MODELS, "--propose", 5, code=USAGE).err)


    def test_a_killed_inference_goes_on(self):
        """The same command goes on with the campaign of one that was killed, and gives the posterior of one that was not."""
        self.record("branching", 2000, DATA_SET + TRAIN.replace("epochs: 12", "epochs: 2"))
        command = ("--symbol", "branching", "--observe", self.observe(1.5), "--traces", 60000)
        self.infer(*command)
        with h5py.File(self.folder / "found/posterior.h5") as file:
            whole = {name: file[f"draws/{name}"][:] for name in file["draws"]} | {"weight": file["log_weight"][:]}
        shutil.rmtree(self.folder / "found")
        running = self.start("infer", self.campaign() / "train", "--simulator", MODELS, "-j", "2", "-o", self.folder / "found", *command)
        self.wait(lambda: len(list(self.folder.glob("found/inference-*/traces_*/runs/*/MERLIN_FINISHED"))) >= 2, "two bundles", running)
        self.wait_until_gone(self.kill_everything())
        self.infer(*command)
        with h5py.File(self.folder / "found/posterior.h5") as file:
            for name, values in whole.items():
                numpy.testing.assert_array_equal(file["log_weight" if name == "weight" else f"draws/{name}"][:], values)


if __name__ == "__main__":
    import unittest
    unittest.main()
