#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of trainings: what they predict beside what was measured, times that are kept for later plans, and --plan."""

import json
import unittest

import numpy

import train_run_test as whole


class PlanRun(whole.TrainRun):
    KEYS = {"ranks": 2, "grid": "auto", "epochs": 2, "augment": None, "model": {"name": "cosmoflow", "width": 2}}
    KEPT = r"(?m)^the times of 4 of 4 grids are those of an earlier plan \(.*/cache/wflow/passes.json\); with WFLOW_PASS_TIMES=off"

    def prediction(self, name):
        return self.result(name)["prediction"]

    def test_predicted_beside_measured(self):
        self.train(self.config("plain", epochs=1))
        found = self.prediction("plain")
        memory = found["memory_bytes"]
        self.assertEqual(memory["measured"], max(self.result("plain")["performance"]["peak_memory_bytes"]))
        self.assertAlmostEqual(memory["error_percent"], 100 * (memory["predicted"] / memory["measured"] - 1), places=6)
        self.assertLess(abs(memory["error_percent"]), 40)
        # Without a plan there are no times.
        self.assertEqual((found["step_seconds"]["predicted"], found["step_seconds"]["error_percent"]), (None, None))
        self.assertGreater(found["step_seconds"]["measured"], 0)
        self.assertNotIn("plan", self.result("plain"))

        self.train(self.config("planned", memory="4GiB", **self.KEYS), 2)
        result = self.result("planned")
        step = result["prediction"]["step_seconds"]
        self.assertAlmostEqual(step["predicted"], result["plan"]["grids"][result["plan"]["chosen"]]["seconds"]["step"])
        self.assertAlmostEqual(step["error_percent"], 100 * (step["predicted"] / step["measured"] - 1), places=6)
        for grid in result["plan"]["grids"]:
            seconds = grid["seconds"]
            self.assertAlmostEqual(seconds["step"], seconds["compute"] + seconds["wire"] + seconds["update"])

    def test_evaluation_needs_no_more_than_a_step(self):
        """The input of a norm is kept for the backward pass: 128 MiB here. Evaluation uses the same memory, not that much again."""
        folder = self.root / "large"
        folder.mkdir()
        for i in range(3):
            numpy.save(folder / f"{i}.npy", numpy.random.default_rng(i).integers(0, 255, (1, 128, 128, 128), "u1"))
        (folder / "table.csv").write_text("id,file,t\n" + "".join(f"{i},{i}.npy,{i}\n" for i in range(3)))
        (folder / "convert.yaml").write_text("samples: table.csv\ntargets: [t]\nsplit: {train: 1, validation: 1, test: 1}\noutput: data\n")
        whole.subprocess.run([whole.PROGRAMS.convert, folder / "convert.yaml"], check=True, stdout=whole.subprocess.DEVNULL)
        self.train(self.config("large-out", data=str(folder / "data"), epochs=1, batch=1, transform=None, augment=None, cache=0,
                               model={"name": "cosmoflow", "width": 16, "norm": "group", "init": "he"}))
        self.assertGreater(self.prediction("large-out")["memory_bytes"]["error_percent"], -10)

    def test_a_wrong_prediction_is_announced(self):
        done = self.train(self.config("slow", memory="4GiB", **self.KEYS), 2, "--inject-slow-rank", "rank=1,seconds=0.3")
        self.assertRegex(done.stdout, r"(?m)^the plan was wrong about the time of a step: [\d.e-]+ s predicted, 0.3\d* s measured \(-\d+ %\)$")

    def test_what_holds_more_than_is_counted_has_no_prediction(self):
        self.train(self.config("staged", epochs=1, stage="memory"))
        memory = self.prediction("staged")["memory_bytes"]
        self.assertEqual((memory["predicted"], memory["error_percent"]), (None, None))
        self.assertGreater(memory["measured"], 0)

    def test_times_are_kept_for_later_plans(self):
        def train(name, env=None, **keys):
            return self.train(self.config(name, **{**self.KEYS, "epochs": 1, **keys}), 2,
                              env={"XDG_CACHE_HOME": str(self.root / "own/cache"), **(env or {})}).stdout

        file = self.root / "own/cache/wflow/passes.json"
        self.assertNotIn("earlier plan", train("first"))
        self.assertEqual(len(json.loads(file.read_text())["passes"]), 4)
        self.assertRegex(train("second"), self.KEPT)
        compute = [[grid["seconds"]["compute"] for grid in self.result(name)["plan"]["grids"]] for name in ("first", "second")]
        self.assertEqual(*compute)
        self.assertNotIn("earlier plan", train("threads", threads=2))
        self.assertEqual(len(json.loads(file.read_text())["passes"]), 8)
        self.assertNotIn("earlier plan", train("off", env={"WFLOW_PASS_TIMES": "off"}))
        self.assertRegex(train("again"), self.KEPT)
        file.write_text("{")
        self.assertEqual(train("broken").count("passes.json does not have times that this wflow can read"), 1)
        self.assertRegex(train("mended"), self.KEPT)
        # A restart has the plan of the training, and does not look.
        file.write_text("{")
        self.assertNotIn("passes.json", train("mended"))

    def test_plan_without_a_training(self):
        table = r"^memory a rank   grid +at once .*\n +whole samples +4 .*\n +1 x 1 x 2 "
        path = self.config("unused", memory="4GiB", **self.KEYS)
        self.assertRegex(self.train(path, 1, "--plan").stdout, table)
        done = self.train(self.config("unused", memory="20MiB", **self.KEYS), 1, "--plan", code=3)
        self.assertRegex(done.stdout, table)
        self.assertRegex(done.stderr, r"^wflow-train: the training needs more memory than 'memory' \(20.0 MiB\) allows: with .* start more ranks")
        self.assertFalse((self.root / "unused").exists())
        plan = self.train(self.config("unused", memory="20MiB", **self.KEYS), 1, "--dry-run").stdout
        self.assertRegex(plan, r"(?m)^refused         the training needs more memory than 'memory' \(20.0 MiB\)")


if __name__ == "__main__":
    whole.run_tests()
