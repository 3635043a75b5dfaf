#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train with `recompute: tiles`. With Debian's python3 (h5py)."""

import json
import subprocess

import numpy

import train_run_test as whole

KEYS = {"batch": 8, "epochs": 6, "transform": None, "augment": ["flip", "shift"], "model": {"name": "cnn", "width": 16, "norm": "none"},
        "optimizer": {"name": "sgd", "learning_rate": 0.001}}


def make_images(root):
    """Noise of an amplitude that is to be learned, in images that are large enough for tiles."""
    rng = numpy.random.default_rng(2)
    rows = ["id,file,amplitude"]
    for i in range(40):
        amplitude = rng.uniform(0.5, 1.5)
        numpy.save(root / f"image{i}.npy", (amplitude * rng.normal(size=(131, 48))).astype("f4"))
        rows.append(f"{i},{root}/image{i}.npy,{amplitude}")
    (root / "images.csv").write_text("\n".join(rows) + "\n")
    (root / "images.convert.yaml").write_text(
        f"samples: {root}/images.csv\ntargets: [amplitude]\nsplit: {{train: 24, validation: 8, test: 8, seed: 3}}\n"
        f"output: {root}/images\nname: images\n")
    subprocess.run([whole.PROGRAMS.convert, root / "images.convert.yaml"], check=True, stdout=subprocess.DEVNULL)


class Tiles(whole.TrainRun):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        make_images(cls.root)

    def images(self, name, recompute="tiles", **keys):
        return self.config(name, **{**KEYS, "data": str(self.root / "images"), "recompute": recompute, **keys})

    def losses(self, name):
        rows = [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]
        return [[row["train_loss"], row["validation_loss"]] for row in rows]

    def test_the_losses_are_those_of_whole_fields(self):
        for ranks in (1, 2):
            self.train(self.images("whole", "none", ranks=ranks), ranks)
            self.train(self.images("tiles", ranks=ranks), ranks)
            numpy.testing.assert_allclose(self.losses("tiles"), self.losses("whole"), rtol=1e-4)
            self.assertNotEqual(self.weights("tiles")[0], self.weights("whole")[0])  # gradients are added in another order
        plan = self.train(self.images("plan"), 1, "--dry-run").stdout
        self.assertRegex(plan, r"\ntiles           conv1 \.\. pool2 in 4 tiles of \d+ cells of height, 1\.\d\d of the arithmetic\n")

    def test_kill_and_resume_have_the_same_bits(self):
        keys = {"checkpoint": {"every_steps": 1, "keep": 100}}
        self.train(self.images("unbroken", **keys))
        path = self.images("broken", **keys)
        self.kill_after_step(path, 5)
        self.assertIn("continued from epoch", self.train(path).stdout)
        self.assertEqual(self.weights("broken")[0], self.weights("unbroken")[0])
        # Whole fields in the first half, tiles in the second.
        self.kill_after_step(self.images("changed", "none", **keys), 5)
        self.assertIn("continued from epoch", self.train(self.images("changed", **keys)).stdout)
        numpy.testing.assert_allclose(self.losses("changed"), self.losses("unbroken"), rtol=1e-4)

    def test_a_refusal_names_it(self):
        bytes_of = {}
        for recompute in ("none", "tiles"):
            plan = json.loads(self.train(self.images("plan", recompute, batch=24), 1, "--plan", "--json").stdout)
            bytes_of[recompute] = plan["grids"][0]["memory_bytes"]["all"]
        self.assertLess(bytes_of["tiles"] + 2 ** 23, bytes_of["none"])
        limit = bytes_of["none"] - 2 ** 20  # a training's program needs some megabytes more than that of --plan
        done = self.train(self.images("refused", "none", batch=24, memory=f"{limit // 1024}KiB"), code=3)
        self.assertRegex(done.stderr, r"the training needs more memory than 'memory' .*; 'recompute: tiles' needs [0-9.]+ MiB\n")
        self.train(self.images("fits", batch=24, memory=f"{limit // 1024}KiB", epochs=1))

    def test_networks_without_a_chain(self):
        done = self.train(self.config("none", recompute="tiles", model={"name": "resnet", "width": 4, "norm": "group"}), 1, "--dry-run")
        self.assertIn("\ntiles           none: they would save less than a tenth of a step's memory\n", done.stdout)


if __name__ == "__main__":
    whole.run_tests()
