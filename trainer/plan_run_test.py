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
            self.assertAlmostEqual(seconds["step"], sum(seconds[part] for part in ("compute", "wire", "update", "samples")))

    def test_evaluation_needs_no_more_than_a_step(self):
        """The input of a norm is kept for the backward pass: 128 MiB here. Evaluation uses the same memory, not that much again."""
        folder = self.root / "large"
        folder.mkdir()
        for i in range(3):
            numpy.save(folder / f"{i}.npy", numpy.random.default_rng(i).integers(0, 255, (1, 128, 128, 128), "u1"))
        (folder / "table.csv").write_text("id,file,t\n" + "".join(f"{i},{i}.npy,{i}\n" for i in range(3)))
        (folder / "convert.yaml").write_text("samples: table.csv\ntargets: [t]\nsplit: {train: 1, validation: 1, test: 1}\noutput: data\n")
        whole.subprocess.run([whole.PROGRAMS.convert, folder / "convert.yaml"], check=True, stdout=whole.subprocess.DEVNULL)
        # A batch norm is evaluated after forward passes that measure it, and that no backward pass follows.
        for norm, init in (("group", "he"), ("batch", "he"), ("none", "data")):
            with self.subTest(norm=norm, init=init):
                name = f"large-{norm}"
                self.train(self.config(name, data=str(folder / "data"), epochs=1, batch=1, transform=None, augment=None, cache=0,
                                       model={"name": "cosmoflow", "width": 16, "norm": norm, "init": init}))
                self.assertGreater(self.prediction(name)["memory_bytes"]["error_percent"], -10)

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

    def test_plans_for_programs_with_the_seconds_of_the_last_plan(self):
        path = self.config("kept", memory="4GiB", **{**self.KEYS, "epochs": 1})

        def plan():
            return json.loads(self.train(path, 1, "--plan", "--json").stdout)

        before = plan()
        self.assertEqual((before["ranks"], before["refusal"], before["chosen"]), (2, None, None))
        self.assertEqual([grid["grid"] for grid in before["grids"]][:2], [[1, 1, 1], [1, 1, 2]])
        self.assertEqual([grid["seconds"]["step"] for grid in before["grids"]], [0, 0, 0, 0])
        self.assertTrue(all(grid["fits"] and grid["memory_bytes"]["all"] > 0 for grid in before["grids"]))
        self.train(path, 2)
        kept = json.loads((self.root / "kept/plan.json").read_text())["plan"]
        after = plan()
        self.assertEqual([grid["seconds"] for grid in after["grids"]], [grid["seconds"] for grid in kept["grids"]])
        self.assertEqual(after["chosen"], kept["chosen"])
        text = self.train(path, 1, "--plan").stdout
        self.assertRegex(text, r"(?m)^memory a rank .* all +a step\n(.*\n)* .*[0-9] s  chosen\n")
        self.assertRegex(text, r"(?m)^the seconds are those of the last plan \(.*/kept/plan.json\)$")
        # Not those of another training.
        other = self.config("kept", memory="3GiB", **{**self.KEYS, "epochs": 1})
        self.assertIsNone(json.loads(self.train(other, 1, "--plan", "--json").stdout)["chosen"])
        refused = json.loads(self.train(self.config("kept", memory="20MiB", **self.KEYS), 1, "--plan", "--json", code=3).stdout)
        self.assertRegex(refused["refusal"], "^the training needs more memory than 'memory'")

    def memory(self, name, *arguments, **keys):
        """The only row of the memory table: the grid, the samples at once, and the bytes of activations, weights, samples."""
        text = self.train(self.config(name, **keys), 1, "--dry-run", *arguments).stdout
        ((grid, samples, cells),) = whole.re.findall(r"(?m)^ {16}(whole samples|\d+ x \d+ x \d+) +(\d+) (.* MiB)$", text)
        return grid, int(samples), [float(number) * {"K": 2 ** 10, "M": 2 ** 20}[unit] for number, unit in whole.re.findall(r"([\d.]+) (.)iB", cells)]

    def test_dry_run_counts_the_memory_of_the_grid_and_of_parts(self):
        keys = {"model": {"name": "unet", "width": 16, "depth": 1, "norm": "group"}, "inputs": ["x"], "targets": ["x"], "augment": None, "batch": 4}
        whole_samples = self.memory("alone", **keys)
        self.assertEqual(whole_samples[:2], ("whole samples", 4))
        parts = self.memory("alone", "--grid", "2x1x1", **keys)
        self.assertEqual(parts[:2], ("2 x 1 x 1", 4))
        self.assertLess(parts[2][0], 0.75 * whole_samples[2][0])
        # One sample at a time, in parts with their halos.
        one = self.memory("one", deterministic="grid", **keys)
        self.assertEqual(one[:2], ("whole samples", 1))
        self.assertLess(one[2][0], 0.6 * whole_samples[2][0])
        self.assertEqual(self.memory("one", "--grid", "2x1x1", deterministic="grid", **keys)[:2], ("2 x 1 x 1", 1))

    def test_frozen_weights_need_no_gradient(self):
        layers = [{"flatten": None, "part": "below"}, {"dense": 2048, "part": "below"}, "relu", {"dense": 2, "part": "top"}]
        keys = {"model": {"layers": layers}, "augment": None, "optimizer": "adamw"}
        learning = self.memory("learning", **keys)[2][1]
        frozen = self.memory("frozen", parts={"below": {"freeze": True}}, **keys)[2][1]
        # Weights and their copy for a checkpoint; else weights, gradients, two moments, and copies of all but the gradients.
        self.assertAlmostEqual(frozen / learning, 2 / 7, delta=0.01)


if __name__ == "__main__":
    whole.run_tests()
