#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train whose ranks share each sample (`grid`). With Debian's python3 (h5py)."""

import json

import h5py
import numpy

import train_run_test as whole

FIELD = {"inputs": ["x"], "targets": ["x"]}
# An epoch is one step on all training samples.
STEPS = {"epochs": 10, "batch": 30, "optimizer": {"name": "sgd", "learning_rate": 0.05}, "schedule": "none"}

# At the rate of STEPS, ten steps of some networks make roundings grow beyond 1e-5.
SLOW = {"optimizer": {"name": "sgd", "learning_rate": 0.002}}


class Split(whole.TrainRun):
    def shared(self, name, ranks, space, **keys):
        return self.config(name, ranks=ranks, grid={"space": space}, **keys)

    def losses(self, name):
        rows = [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]
        return [row["train_loss"] for row in rows], [row["validation_loss"] for row in rows]

    def predicted_fields(self, name):
        with h5py.File(self.root / name / "predictions.h5") as file:
            found = []
            file.visititems(lambda _, item: found.append(item[()]) if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" else None)
            return found

    def compare(self, name, grids, **keys):
        """The losses of ten steps, the tests and the predictions are those of one rank."""
        keys = {**STEPS, **keys}
        self.train(self.config(name, **keys))
        for ranks, space in grids:
            other = f"{name}-{ranks}-{'x'.join(map(str, space)) if isinstance(space, list) else space}"
            done = self.train(self.shared(other, ranks, space, **keys), ranks)
            self.assertRegex(done.stdout, r"^\d ranks share each sample, in \d x \d x \d parts \(depth x height x width\); \d groups?\n")
            for one, split in zip(self.losses(name), self.losses(other)):
                numpy.testing.assert_allclose(split, one, rtol=1e-5)
            self.assertAlmostEqual(self.result(other)["test"]["loss"], self.result(name)["test"]["loss"], delta=1e-5)
            for one, split in zip(self.predicted_fields(name), self.predicted_fields(other), strict=True):
                numpy.testing.assert_allclose(split, one, rtol=1e-4, atol=1e-5)
            self.assertEqual(self.result(other)["ranks"], ranks)
            self.assertEqual(numpy.prod(self.result(other)["grid"]), ranks if isinstance(space, list) else space)
        self.assertIsNone(self.result(name)["grid"])

    def test_numbers_from_shared_fields(self):
        # With the data's initial weights and augmentation.
        self.compare("cosmoflow", [(2, [1, 2, 1]), (4, [2, 2, 1])], **SLOW)

    def test_recomputed_blocks_change_no_bit(self):
        keys = {**STEPS, "ranks": 2, "grid": [2, 1, 1], "model": {"name": "cosmoflow", "width": 16, "norm": "batch"}, **SLOW}
        for recompute in ("none", "blocks"):
            self.train(self.config(f"recompute-{recompute}", recompute=recompute, **keys), 2)
        self.assertEqual(self.weights("recompute-none")[0], self.weights("recompute-blocks")[0])

    def test_dropout_has_the_mask_of_one_rank(self):
        self.compare("dropout", [(2, [1, 1, 2])], model={"name": "mlperf", "width": 4, "dropout": 0.3})

    def test_fields_from_shared_fields(self):
        keys = {**FIELD, **SLOW, "model": {"name": "unet", "width": 3, "depth": 1, "norm": "batch"}}
        self.compare("unet", [(2, 2), (4, [1, 2, 2])], **keys)

    def test_periodic_borders(self):
        """The border comes from the other end. Weights of a network with zeros around the field are a beginning."""
        model = {"name": "mlperf", "width": 4, "dropout": 0, "padding": "periodic"}
        self.compare("periodic", [(4, [1, 2, 2])], model=model)
        self.train(self.config("zeros", **{**STEPS, "epochs": 1}, model={**model, "padding": "same"}))
        self.train(self.config("begun", **{**STEPS, "epochs": 1}, model=model, init_from=str(self.root / "zeros")))
        self.assertIn("(epoch 1, ", self.result("begun")["begun_from"])

    def test_groups_with_few_samples(self):
        # A group is what a rank is without a grid, also for batch norms. The last batch has one sample, and so nothing for the first group.
        keys = {"epochs": 3, "batch": 29, "accumulate": 2, "optimizer": {"name": "sgd", "learning_rate": 0.02, "lag": 1},
                "model": {"name": "cnn", "width": 2, "norm": "batch"}}
        self.train(self.config("few", **keys), 2)
        self.train(self.shared("few-4", 4, 2, **keys), 4)
        for one, split in zip(self.losses("few"), self.losses("few-4")):
            numpy.testing.assert_allclose(split, one, rtol=1e-5)

    def volumes(self, name, shape):
        """A data set of samples in one piece, with a field as input, another one as target, and a number."""
        folder = self.root / name
        folder.mkdir()
        rows = ["id,file,mean"]
        for i in range(16):
            values = numpy.random.default_rng(i).normal(i / 8, 1, (2, *shape)).astype("f4")
            numpy.savez(folder / f"{i}.npz", x=values, f=values[:1] ** 2)
            rows.append(f"{i},{i}.npz,{values.mean()}")
        (folder / "table.csv").write_text("\n".join(rows) + "\n")
        fields = {k: {"dataset": k, "layout": "CDHW"} for k in "xf"}
        config = {"samples": "table.csv", "output": "whole", "split": {"train": 10, "validation": 3, "test": 3},
                  "inputs": {"x": fields["x"]}, "targets": {"f": fields["f"], "mean": "parameter"}}
        (folder / "convert.yaml").write_text(json.dumps(config))
        self.convert(folder / "convert.yaml")
        return folder

    def convert(self, *arguments):
        whole.subprocess.run([whole.PROGRAMS.convert, *map(str, arguments)], check=True, stdout=whole.subprocess.DEVNULL)

    def bricks(self, folder, cells):
        self.convert("shards", "reshard", folder / "whole", folder / cells, "--bricks", cells)
        return folder / cells

    def test_bricks_change_no_bit(self):
        folder = self.volumes("cubes", (16, 16, 16))
        keys = {"batch": 3, "epochs": 2, "model": {"name": "cnn", "width": 2, "norm": "batch"}, "augment": ["flip", "shift", "permute"],
                "inputs": ["x"], "targets": ["mean"], "optimizer": {"name": "sgd", "learning_rate": 0.01}}
        cut = self.bricks(folder, "4x5x16")
        for ranks, space, more in ((2, [1, 2, 1], {}), (4, [2, 1, 2], {"cache": 0}), (2, [2, 1, 1], {"transform": None, "cache": "100KiB"}),
                                   (2, [2, 1, 1], {"augment": ["shift", {"noise": 0.2}]}),
                                   (2, [1, 1, 2], {"targets": ["f"], "model": {"name": "unet", "width": 2, "depth": 1}})):
            with self.subTest(space=space, **more):
                for name, data in (("one-piece", folder / "whole"), ("in-bricks", cut)):
                    whole.shutil.rmtree(self.root / name, ignore_errors=True)
                    self.train(self.shared(name, ranks, space, **{**keys, "transform": None, **more, "data": str(data)}), ranks)
                self.assertEqual(self.weights("in-bricks")[0], self.weights("one-piece")[0])
                self.assertEqual(self.result("in-bricks")["test"], self.result("one-piece")["test"])

    def decoded(self, name):
        return self.result(name)["reading"]["decoded_bytes_this_segment"]

    def test_a_rank_decodes_its_bricks(self):
        folder = self.volumes("boxes", (32, 16, 16))
        keys = {"batch": 5, "epochs": 1, "model": {"name": "cnn", "width": 2}, "augment": ["flip"], "cache": 0, "transform": None,
                "inputs": ["x"], "targets": ["mean"]}
        self.train(self.config("alone", data=str(folder / "whole"), **keys))
        (everything,) = self.decoded("alone")
        # Without shifts, parts are whole bricks. A shift begins a part anywhere: at most a brick more along each axis. One rank decodes
        # what several need.
        for cells, space, augment, most in (("8x8x8", [2, 1, 1], ["flip"], 1), ("8x8x8", [2, 2, 1], ["flip"], 1),
                                            ("2x16x16", [2, 1, 1], ["flip", "shift"], 1.15), ("16x2x16", [1, 2, 1], ["flip", "shift"], 1.3),
                                            ("32x5x16", [1, 2, 1], [], 15 / 8),  # the cut divides a brick
                                            ("16x16x16", [4, 1, 1], [], 2), ("16x16x16", [2, 1, 1], ["shift"], 2)):
            with self.subTest(cells=cells, space=space):
                parts = int(numpy.prod(space))
                name = f"part-{cells}-{'x'.join(map(str, space))}"
                data = folder / cells if (folder / cells).exists() else self.bricks(folder, cells)
                self.train(self.shared(name, parts, space, **{**keys, "augment": augment, "data": str(data)}), parts)
                factors = numpy.array(self.decoded(name)) * parts / everything
                self.assertEqual(len(factors), parts)
                self.assertLessEqual(factors.max(), most + 0.001)  # every rank reads the number
                self.assertLess(factors.mean(), 1.3 if cells == "32x5x16" else 1.05)  # 4 bricks of 5 cells along 16
        # The same for samples in one piece, and for fields that every rank needs whole.
        for name, more in (("pieces", {}), ("fields", {"targets": ["f"], "model": {"name": "unet", "width": 2, "depth": 1}})):
            alone = name + "-alone"
            self.train(self.config(alone, **{**keys, **more, "data": str(folder / "whole")}))
            self.train(self.shared(name, 2, [2, 1, 1], **{**keys, **more, "data": str(folder / "whole")}), 2)
            self.assertLess(sum(self.decoded(name)), 1.05 * self.decoded(alone)[0])
            self.assertEqual(self.weights(name)[1]["arrays"], self.weights(alone)[1]["arrays"])
        # Without memory for it, each rank decodes for itself.
        self.train(self.shared("little", 2, [2, 1, 1], memory="4GiB", **{**keys, "data": str(folder / "whole")}), 2)
        self.assertEqual(self.decoded("little"), [everything] * 2)

    def test_sigkill_and_another_grid(self):
        keys = {"epochs": 8, "checkpoint": {"every_steps": 3, "keep_last": 2}, "model": {"name": "cnn", "width": 2, "norm": "batch"}}
        self.train(self.shared("unbroken", 2, 2, **keys), 2)
        path = self.shared("broken", 2, 2, **keys)
        self.kill_after_step(path, 7, 2)
        self.assertIn("continued from epoch", self.train(path, 2).stdout)
        self.assertEqual(self.weights("broken")[0], self.weights("unbroken")[0])
        self.assertEqual(self.result("broken")["test"], self.result("unbroken")["test"])
        # Checkpoints do not depend on the grid: to the other axis, and to one rank.
        self.train(self.shared("moved", 2, [1, 1, 2], **keys, max_seconds=0.001), 2, code=6)
        done = self.train(self.shared("moved", 2, [1, 2, 1], **keys, max_seconds=0.001), 2, code=6)
        self.assertIn("continued from epoch 0, step 1", done.stdout)
        self.assertIn("continued from epoch", self.train(self.config("moved", **keys)).stdout)
        numpy.testing.assert_allclose(self.losses("moved")[0], self.losses("unbroken")[0], rtol=1e-3)

    def test_dry_run_shows_the_grid_of_the_configuration(self):
        path = self.shared("dry", 4, [2, 1, 1], batch=8)
        plan = self.train(path, 1, "--dry-run").stdout
        self.assertIn("grid            2 x 1 x 1: 2 ranks share a sample", plan)
        self.assertRegex(plan, r"memory a rank   grid +at once +activations .*\n +2 x 1 x 1 +4 ")
        self.assertIn("grid            1 x 2 x 1", self.train(path, 1, "--dry-run", "--grid", "1x2x1").stdout)

    def test_planned_grid(self):
        keys = {"ranks": 2, "grid": "auto", "epochs": 2, "model": {"name": "cosmoflow", "width": 2}}
        path = self.config("planned", **keys, max_seconds=0.001)
        self.assertRegex(self.train(path, 2, code=6).stdout, r"(?m)^memory a rank   grid [^\n]* a step\n +whole samples .* s(  chosen)?\n")
        kept = (self.root / "planned/plan.json").read_bytes()
        # A restart has the grid of the first start.
        done = self.train(self.config("planned", **keys), 2)
        self.assertIn("continued from epoch 0, step 1", done.stdout)
        self.assertEqual((self.root / "planned/plan.json").read_bytes(), kept)
        result = self.result("planned")
        chosen = result["plan"]["grids"][result["plan"]["chosen"]]
        self.assertEqual(result["grid"] or [1, 1, 1], chosen["grid"])
        self.assertEqual([grid["grid"] for grid in result["plan"]["grids"]][0], [1, 1, 1])
        self.assertEqual({sum(grid["grid"]) for grid in result["plan"]["grids"][1:]}, {4})
        self.assertGreater(result["prediction"]["step_seconds"]["measured"], 0)
        # Too little memory for any grid: refused before the start, once.
        done = self.train(self.config("refused", **keys, memory="50MiB"), 2, code=3)
        self.assertRegex(done.stderr, r"the training needs more memory than 'memory' \(50.0 MiB\) allows: with .*, \d+.\d MiB a rank: .* start more ranks")
        self.assertEqual(done.stderr.count("needs more memory"), 1)
        self.assertFalse((self.root / "refused").exists())
        # Enough for whole samples.
        keys["grid"] = "fit"
        self.assertNotIn("share each sample", self.train(self.config("fits", **keys, memory="4GiB"), 2).stdout)
        self.assertIsNone(self.result("fits")["grid"])

    def test_what_does_not_go_together(self):
        def refusal(**keys):
            return self.train(self.config("refused", **keys), code=3).stderr

        grid = {"ranks": 2, "grid": 2}
        self.assertIn("2 ranks share each sample, so that 'ranks' (3) must be a multiple of 2", refusal(**{**grid, "ranks": 3}))
        self.assertIn("'space' has 2 numbers: write the parts along depth, height and width", refusal(**{**grid, "grid": [2, 1]}))
        for key, value in {"noise_scale": 2, "precision": "bf16", "backend": "onednn", "recompute": "tiles"}.items():
            self.assertIn(f"'grid' and '{key}' do not go together", refusal(**grid, **{key: value}))
        done = self.train(self.config("refused", ranks=2, grid=2, batch=30), 3, code=3)
        self.assertEqual(done.stderr.count("2 ranks share each sample, and there are 3 ranks: start a multiple of 2"), 1)
        self.assertIn("no layer of the network can be cut into 16 x 1 x 1 parts",
                      self.train(self.config("refused", ranks=16, grid=[16, 1, 1], batch=30), 1, "--dry-run", code=3).stderr)
        self.assertIn("'grid' and 'model' do not go together: gan and wae make several updates a step", refusal(**grid, model="gan"))


if __name__ == "__main__":
    whole.run_tests()
