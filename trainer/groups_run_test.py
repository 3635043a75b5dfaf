#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train with `groups`: outer steps, restarts, groups that are lost. With Debian's python3 (numpy)."""

import glob
import json

import h5py
import numpy

import tournament_run_test
import train_run_test as whole

SAMPLES = tournament_run_test.SAMPLES


class Groups(tournament_run_test.NumberRun):
    def rows(self, name):
        return [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]

    def assert_same_bits(self, one, two):
        first, second = self.weights(one), self.weights(two)
        self.assertEqual(first[0], second[0])
        self.assertEqual(first[1]["history"], [{**row, **{key: was[key] for key in was if key.endswith(("seconds", "second")) or key in (
            "data_wait", "exposed_communication", "ranks")}} for row, was in zip(second[1]["history"], first[1]["history"], strict=True)])

    def test_one_group_is_a_plain_training(self):
        keys = {"ranks": 2, "batch": 7, "ema": 0.9}
        self.train(self.config("plain", **keys), 2)
        self.train(self.config("one", groups={"count": 1, "steps": 3}, **keys), 2)
        self.assert_same_bits("plain", "one")
        self.assertEqual((self.root / "plain/predictions.csv").read_bytes(), (self.root / "one/predictions.csv").read_bytes())

    def test_single_steps_are_those_of_all_ranks(self):
        # The mean of weights after one step each is that of a step by the mean gradient.
        keys = {"ranks": 4, "epochs": 2, "optimizer": {"name": "sgd", "momentum": 0.9, "learning_rate": 0.05}}
        self.train(self.config("together", **keys), 4)
        done = self.train(self.config("apart", groups={"count": 2, "steps": 1}, **keys), 4)
        self.assertIn("2 groups of 2 ranks each; outer step after 1 steps of an epoch and at its end, rate 1, momentum 0", done.stdout)
        for kind, values in self.arrays("together").items():
            numpy.testing.assert_allclose(self.arrays("apart")[kind], values, rtol=1e-4, atol=2e-6)
        for row, expected in zip(self.rows("apart"), self.rows("together"), strict=True):
            self.assertAlmostEqual(row["train_loss"], expected["train_loss"], delta=1e-5)
        groups = self.result("apart")["groups"]
        self.assertEqual([groups[key] for key in ("groups", "ranks_each", "outer_steps", "left_out")], [2, 2, 50, 0])

    def test_outer_steps_are_those_of_numpy(self):
        # One local step by the gradient of half of the samples: the groups' mean is a step by that of all of them.
        keys = {"ranks": 2, "batch": SAMPLES, "schedule": "none", "model": {"layers": [{"dense": 1, "name": "out"}]}}
        sgd = {"name": "sgd", "momentum": 0.5}
        self.train(self.config("begun", **{**keys, "epochs": 1}, optimizer={**sgd, "learning_rate": 0}), 2)
        _, header = self.weights("begun")
        scale = {key: numpy.array(value, dtype=float) for key, value in header["normalisation"].items() if key != "fields"}
        shards = [h5py.File(shard) for shard in sorted(glob.glob(str(self.root / "shards/train/*.h5")))]
        x, y = (numpy.concatenate([shard[field][:] for shard in shards]).reshape(SAMPLES, -1).astype(float) for field in ("x", "y"))
        x = numpy.concatenate([(x - scale["x_mean"]) / scale["x_std"], numpy.ones((SAMPLES, 1))], axis=1)
        y = ((y - scale["y_mean"]) / scale["y_std"])[:, 0]
        weights = self.arrays("begun")["parameter"].astype(float)
        anchor, inner, outer = weights.copy(), numpy.zeros(3), numpy.zeros(3)
        for _ in range(6):
            gradient = 2 * x.T @ (x @ anchor - y) / SAMPLES
            inner = 0.5 * inner + gradient
            moved = 0.05 * inner
            outer = 0.9 * outer + moved
            anchor = anchor - 0.7 * (moved + 0.9 * outer)
        self.train(self.config("stepped", **keys, epochs=6, groups={"count": 2, "steps": 4, "outer": {"rate": 0.7, "momentum": 0.9}},
                               optimizer={**sgd, "learning_rate": 0.05}), 2)
        found = self.arrays("stepped")
        numpy.testing.assert_allclose(found["parameter"], anchor, rtol=1e-4)
        numpy.testing.assert_allclose(found["outer_momentum"], outer, rtol=1e-4, atol=1e-6)

    def test_sigkill_at_any_time_gives_the_same_bits(self):
        # The last batch of an epoch has one sample: three of the ranks have none.
        keys = {"ranks": 4, "batch": 199, "epochs": 6, "ema": 0.9, "checkpoint": {"every_steps": 1}, "early_stop": 6,
                "groups": {"count": 2, "steps": 1, "outer": {"rate": 0.7, "momentum": 0.9}}}
        longer = {**keys, "batch": 9, "groups": {**keys["groups"], "steps": 4}, "checkpoint": {"every_steps": 3}}
        for name, settings in (("ragged", keys), ("longer", longer)):
            self.train(self.config(name, **settings), 4)
            path = self.config(f"{name}-broken", **settings)
            for share in (0.2, 0.5, 0.8):
                self.kill_after_step(path, share * self.weights(name)[1]["step"], 4)
            self.train(path, 4)
            self.assert_same_bits(name, f"{name}-broken")
        # Checkpoints within an epoch are those of outer steps.
        within = [int(file.name[5:17]) for file in (self.root / "longer/checkpoints").glob("step-*.wfck")]
        self.assertTrue(all(step % 23 % 4 == 0 for step in within), within)

    def test_a_time_limit_ends_all_groups_at_an_outer_step(self):
        keys = {"ranks": 2, "groups": {"count": 2, "steps": 5}}
        done = self.train(self.config("limit", **keys, max_seconds=1e-3), 2, code=6)
        self.assertIn("stopped at epoch 0, step 5; ", done.stdout)
        self.train(self.config("limit", **keys), 2)
        self.train(self.config("at-once", **keys), 2)
        self.assert_same_bits("at-once", "limit")

    def test_a_group_that_diverges_is_left_out(self):
        keys = {"ranks": 2, "guard": False, "groups": {"count": 2, "steps": 4, "outer": {"momentum": 0.5}}}
        flip = "weights,step=16,bit=30,seed=10,rank=1"
        done = self.train(self.config("diverged", **keys), 2, "--inject-bit-flips", flip)
        self.assertRegex(done.stderr, r"warning: group 2 is left out of outer step 5 and goes on with the others' weights: the loss is not finite")
        self.assertEqual(self.result("diverged")["groups"]["left_out"], 1)
        self.assertEqual([row["epoch"] for row in self.rows("diverged")], [1, 2, 3, 4])
        self.assertTrue(numpy.isfinite(self.arrays("diverged")["parameter"]).all())
        wild = {**keys, "optimizer": {"name": "sgd", "learning_rate": 1000}, "epochs": 40}
        done = self.train(self.config("wild", **wild), 2, code=4)
        self.assertRegex(done.stderr, r"wflow-train: the (loss|gradient) is not finite at")

    def test_the_guard_of_a_group_takes_all_back(self):
        keys = {"ranks": 4, "groups": {"count": 2, "steps": 4, "outer": {"rate": 0.7, "momentum": 0.9}}}
        self.train(self.config("sound", **keys), 4)
        for name, step in (("in-the-middle", 29), ("before-the-outer-step", 31)):
            done = self.train(self.config(name, **keys), 4, "--inject-bit-flips", f"gradients,step={step},bit=30,rank=3,seed=3")
            self.assertIn("injected gradients", done.stderr)
            self.assertEqual(self.result(name)["rollbacks"], 1)
            self.assertEqual(self.weights(name)[0], self.weights("sound")[0])

    def test_a_group_on_each_node(self):
        # Without shared memory, each rank is a node.
        done = self.train(self.config("nodes", ranks=2, groups={"steps": 4}, epochs=1), 2, env={"OMPI_MCA_osc": "^sm"})
        self.assertIn("2 groups of 1 rank each", done.stdout)
        done = self.train(self.config("node", ranks=2, groups={"count": "nodes", "steps": 4}, epochs=1), 2)
        self.assertIn("1 group of 2 ranks each", done.stdout)

    def test_errors_are_one_sentence(self):
        done = self.train(self.config("refused", ranks=4, groups={"count": 2, "steps": 4}), 3, code=3)
        self.assertIn("wflow-train: 3 ranks can't be 2 groups of as many ranks each: start a multiple of 2, or say another 'count' in "
                      "'groups'\n", done.stderr)
        self.assertEqual(done.stderr.count("wflow-train: "), 1)
        done = self.train(self.config("dry", ranks=4, groups={"count": 2, "steps": 4}), 1, "--dry-run")
        self.assertIn("groups          2 of 2 ranks, 28 outer steps\n", done.stdout)
        # Frozen weights are left as they are, with groups of any number.
        parts = {"encoder": {"freeze": True}}
        self.train(self.config("thirds", ranks=3, groups={"count": 3, "steps": 2}, parts=parts), 3)
        self.train(self.config("frozen", parts=parts, epochs=1), 1)
        data = {name: self.weights(name) for name in ("thirds", "frozen")}
        for name in ("code.weight", "code.bias"):
            values = []
            for bits, header in data.values():
                array = next(a for a in header["arrays"] if a["name"] == name and a["kind"] == "parameter")
                values.append(bits[array["offset"]:array["offset"] + 4 * int(numpy.prod(array["shape"]))])
            self.assertEqual(*values)


class GroupsOfFields(whole.TrainRun):
    def test_ranks_of_a_group_share_samples(self):
        keys = {"batch": 8, "epochs": 2, "checkpoint": {"every_steps": 2}, "groups": {"count": 2, "steps": 2, "outer": {"momentum": 0.5}}}
        self.train(self.config("whole", ranks=2, **keys), 2)
        shared = {**keys, "ranks": 4, "grid": {"space": 2}}
        self.train(self.config("shared", **shared), 4)
        for kind, values in self.arrays("whole").items():
            numpy.testing.assert_allclose(self.arrays("shared")[kind], values, rtol=1e-3, atol=1e-5)
        path = self.config("killed", **shared)
        self.kill_after_step(path, 4, 4)
        self.train(path, 4)
        self.assertEqual(self.weights("killed")[0], self.weights("shared")[0])

    def test_generators_and_discriminators(self):
        keys = {"ranks": 2, "batch": 8, "epochs": 3, "model": {"name": "gan", "width": 2, "latent": 4}, "transform": None, "augment": None,
                "inputs": ["x"], "targets": None, "checkpoint": {"every_steps": 2}, "groups": {"count": 2, "steps": 2}}
        done = self.train(self.config("gan", **keys), 2)
        self.assertIn("2 groups of 1 rank each", done.stdout)
        path = self.config("gan-killed", **keys)
        self.kill_after_step(path, 6, 2)
        self.train(path, 2)
        self.assertEqual(self.weights("gan-killed")[0], self.weights("gan")[0])


if __name__ == "__main__":
    whole.run_tests()
