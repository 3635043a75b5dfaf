#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train with `deterministic: grid`: the same bits on any number of ranks. With Debian's python3 (h5py)."""

import json

import numpy

import train_run_test as whole

STEPS = {"epochs": 2, "batch": 8, "augment": ["flip", "shift"], "deterministic": "grid", "model": {"name": "cnn", "width": 4, "norm": "group"}}
# Ranks and the parts of a sample on them; None: whole samples on each rank.
RUNS = [(2, None), (4, None), (2, [2, 1, 1]), (4, [2, 1, 1]), (4, [4, 1, 1]), (4, [2, 2, 1]), (4, [1, 2, 2])]


class Deterministic(whole.TrainRun):
    def hash_of(self, name):
        """All arrays of the last checkpoint, and what was found on validation and test samples."""
        rows = [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]
        return self.weights(name)[0], [(row["train_loss"], row["validation_loss"]) for row in rows], self.result(name)["test"]

    def compare(self, name, runs=(), **keys):
        keys = {**STEPS, **keys}
        self.train(self.config(name, **keys))
        one = self.hash_of(name)
        self.assertTrue(numpy.isfinite(one[1]).all())
        for ranks, grid in runs:
            with self.subTest(ranks=ranks, grid=grid):
                other = f"{name}-{ranks}-{grid and 'x'.join(map(str, grid))}"
                done = self.train(self.config(other, ranks=ranks, grid=grid, **keys), ranks)
                self.assertEqual("ranks share each sample" in done.stdout, grid is not None)
                for found, expected, what in zip(self.hash_of(other), one, ("weights", "losses", "test")):
                    self.assertTrue(found == expected, f"{what} on {ranks} ranks, grid {grid}")

    def fields(self, name, shape):
        """A data set of fields with two channels; a field with one and a number are the targets."""
        folder = self.root / name
        folder.mkdir()
        rows = ["id,file,mean"]
        for i in range(22):
            values = numpy.random.default_rng(i).normal(i / 8, 1, (2, *shape)).astype("f4")
            numpy.savez(folder / f"{i}.npz", x=values, f=numpy.roll(values[:1], 1, -1) ** 2)
            rows.append(f"{i},{i}.npz,{values.mean()}")
        (folder / "table.csv").write_text("\n".join(rows) + "\n")
        layout = "CDHW"[:1] + "DHW"[3 - len(shape):]
        fields = {k: {"dataset": k, "layout": layout} for k in "xf"}
        config = {"samples": "table.csv", "output": "data", "split": {"train": 14, "validation": 4, "test": 4},
                  "inputs": {"x": fields["x"]}, "targets": {"f": fields["f"], "mean": "parameter"}}
        (folder / "convert.yaml").write_text(json.dumps(config))
        whole.subprocess.run([whole.PROGRAMS.convert, folder / "convert.yaml"], check=True, stdout=whole.subprocess.DEVNULL)
        return str(folder / "data")

    def test_numbers_from_fields(self):
        self.compare("norm", RUNS)
        # To rounding, the losses are those of one rank without this setting.
        self.train(self.config("rounded", **{**STEPS, "deterministic": True}))
        for one, other in zip(self.hash_of("norm")[1], self.hash_of("rounded")[1], strict=True):
            numpy.testing.assert_allclose(one, other, rtol=1e-4)

    def test_initial_weights_of_the_data_and_levels(self):
        self.compare("cosmoflow", [(2, None), (4, [2, 2, 1])], model={"name": "cosmoflow", "width": 3})

    def test_dropout_and_another_optimizer(self):
        self.compare("mlperf", [(4, None), (4, [1, 2, 2])], model={"name": "mlperf", "width": 16, "dropout": 0.3},
                     optimizer={"name": "sgd", "learning_rate": 0.01, "clip_norm": 1})

    def test_fields_from_fields(self):
        keys = {"inputs": ["x"], "targets": ["x"], "model": {"name": "unet", "width": 16, "depth": 1, "norm": "group"}, "augment": None}
        self.compare("unet", [(2, None), (4, [4, 1, 1]), (4, [2, 1, 2])], **keys)

    def test_every_kind_of_layer_of_fields(self):
        layers = [{"convolution": 3, "kernel": 3, "stride": 2, "name": "a"}, "tanh", {"transposed_convolution": 2}, "softplus", {"group_norm": 2},
                  {"average_pool": 2}, {"convolution": 4, "kernel": 3, "padding": "periodic"}, "gelu", {"max_pool": 2},
                  {"upsample": 2}, {"convolution": 2, "kernel": 2}, "sigmoid", "global_mean", {"dense": 8}, "silu", {"dense": 2}]
        self.compare("layers", [(4, None), (4, [4, 1, 1]), (4, [1, 2, 2])], model={"layers": layers}, optimizer={"name": "lamb", "learning_rate": 0.01}, ema=0.9)

    def test_images_and_series(self):
        for name, shape, grid in (("series", (32,), [1, 1, 4]), ("images", (12, 20), [1, 2, 2])):
            data = self.fields(name, shape)
            keys = {"data": data, "transform": None, "augment": ["flip"], "batch": 5}
            self.compare(f"{name}-mean", [(2, None), (4, grid)], **keys, inputs=["x"], targets=["mean"])
            self.compare(f"{name}-field", [(4, grid)], **keys, inputs=["x"], targets=["f"], model={"name": "unet", "width": 3, "depth": 1, "norm": "none"})

    def test_numbers_from_numbers(self):
        # No field: each sample is one part. The last batch has fewer samples than there are ranks.
        self.compare("numbers", [(2, None), (4, None)], data=self.fields("table", (4,)), inputs=["mean"], targets=["mean"], batch=11,
                     transform=None, augment=None, model={"name": "mlp", "dense": [16, 16]})

    def test_threads_and_nodes_change_no_bit(self):
        self.compare("threads")
        expected = self.hash_of("threads")
        self.train(self.config("two-threads", **STEPS, threads=2))
        self.assertEqual(self.hash_of("two-threads"), expected)
        # Sums over two nodes of two ranks.
        self.train(self.config("nodes", ranks=4, **STEPS), 4, env={"WFLOW_RANKS_PER_GROUP": "2"})
        self.assertEqual(self.hash_of("nodes"), expected)

    def test_a_restart_on_other_ranks_changes_no_bit(self):
        keys = {**STEPS, "epochs": 5, "checkpoint": {"every_steps": 2, "keep_last": 2}}
        self.train(self.config("unbroken", **keys))
        path = self.config("broken", ranks=2, grid=[2, 1, 1], **keys)
        self.kill_after_step(path, 6, 2)
        done = self.train(self.config("broken", ranks=4, grid=[1, 2, 1], **keys), 4)
        self.assertIn("continued from epoch", done.stdout)
        self.assertEqual(self.weights("broken")[0], self.weights("unbroken")[0])

    def test_parts_of_the_user(self):
        self.compare("own", [(4, [1, 4, 1])], deterministic={"parts": [1, 4, 1]})
        plan = self.train(self.config("own", **{**STEPS, "deterministic": {"parts": [1, 4, 1]}}), 1, "--dry-run").stdout
        self.assertIn("parts           1 x 4 x 1 (depth x height x width) of each sample, on any number of ranks\n", plan)

    def test_what_does_not_go_together(self):
        def refusal(ranks=1, **keys):
            return self.train(self.config("refused", **{**STEPS, **keys}, ranks=ranks), ranks, code=3).stderr

        for key, value in {"noise_scale": 2, "precision": "bf16", "backend": "onednn", "shard": "optimizer", "accumulate": 2, "memory": "4GiB",
                           "gradients": {"wire": "half"}, "model": "gan", "stage": {"subset": 4}, "recompute": "tiles",
                           "optimizer": {"name": "adamw", "lag": 1}}.items():
            self.assertIn(f"'deterministic: grid' and '{key}' do not go together", refusal(**{key: value}))
        self.assertIn("computes each sample in 4 x 2 x 2 parts, which 'grid' (1 x 4 x 1) must divide along each axis", refusal(4, grid=[1, 4, 1]))
        self.assertIn("the network has batch norms", refusal(model={"name": "cnn", "norm": "batch"}))
        self.assertIn("'parts' has 2 numbers", refusal(deterministic={"parts": [2, 2]}))
        self.assertIn("at most 64 parts", refusal(deterministic={"parts": [8, 8, 8]}))
        self.assertIn("no layer of the network can be cut into 16 x 1 x 1 parts", refusal(deterministic={"parts": [16, 1, 1]}))


if __name__ == "__main__":
    whole.run_tests()
