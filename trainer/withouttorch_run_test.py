#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings of a wflow-train without libtorch (-DWFLOW_TORCH=OFF): what runs, what it writes, and what it refuses. With the path of a
wflow-train that has libtorch in WFLOW_TRAIN_REFERENCE, both must learn the same."""

import csv
import os
import subprocess
import sys

import numpy

import train_run_test

REFERENCE = os.environ.get("WFLOW_TRAIN_REFERENCE")
NETWORKS = {
    "cosmoflow": {},
    "onednn": {"backend": "onednn", "model": {"name": "cosmoflow", "width": 8}},
    "mlperf": {"model": {"name": "mlperf", "width": 4, "dense": [8, 8]}},
    "resnet": {"model": {"name": "resnet", "width": 8, "depth": 1}},
    "unet": {"model": {"name": "unet", "width": 8, "depth": 1}, "inputs": ["x"], "targets": ["x"], "augment": ["flip"]},
    "mlp": {"model": {"name": "mlp", "dense": [16, 16], "norm": "batch", "dropout": 0.2}, "augment": None},
    "norms": {"model": {"layers": [{"convolution": 8}, "instance_norm", "gelu", {"max_pool": 2}, {"convolution": 8}, "layer_norm",
                                   "silu", "global_mean", {"dense": 2}]}},
    "periodic": {"model": {"name": "cosmoflow", "width": 8, "padding": "periodic"}},
}


class WithoutTorch(train_run_test.TrainRun):
    def setUp(self):
        version = subprocess.run([train_run_test.PROGRAMS.train, "--version"], capture_output=True, text=True, check=True).stdout
        if "without libtorch" not in version:
            self.skipTest("this wflow-train has libtorch")

    def test_networks_learn(self):
        for name, keys in NETWORKS.items():
            with self.subTest(name):
                config = self.config(name, **keys)
                if name != "unet":
                    self.train(config)
                elif not self.trains_with_avx512(config):
                    continue
                result = self.result(name)
                self.assertEqual(result["versions"]["libtorch"], "none")
                self.assertIn("model.pt", result["checksums"])
                self.assertIn("model.onnx", result["checksums"])
                if REFERENCE:
                    self.compare_with_reference(name, keys)

    def trains_with_avx512(self, config):
        # Without it, oneDNN has no strided gradients of volumes, and the training is refused.
        done = subprocess.run([train_run_test.PROGRAMS.train, config], capture_output=True, text=True)
        if done.returncode == 0:
            return True
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("a transposed convolution for which oneDNN", done.stderr)
        self.assertNotIn("AVX512", done.stderr.replace("-", ""))
        return False

    def compare_with_reference(self, name, keys):
        path = self.config(f"{name}-reference", **keys)
        subprocess.run([REFERENCE, path], check=True, capture_output=True)
        ours, theirs = self.arrays(name), self.arrays(f"{name}-reference")
        self.assertEqual(ours.keys(), theirs.keys())
        largest = max(float(numpy.abs(ours[kind] - theirs[kind]).max()) for kind in ours)
        losses = [self.result(folder)["test"]["loss"] for folder in (name, f"{name}-reference")]
        print(f"{name}: weights differ by {largest:.2g}, test losses {losses[0]:.6g} and {losses[1]:.6g}", file=sys.stderr)
        self.assertLess(abs(losses[0] / losses[1] - 1), 0.02)

    def test_predictions_are_those_of_the_exported_models(self):
        import onnx_run
        import torch

        name = "predicted"
        self.train(self.config(name, epochs=2))
        with open(self.root / name / "predictions.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        fields = torch.from_numpy(numpy.stack([numpy.load(self.root / f"{row['id']}.npy") for row in rows]))
        for model in (onnx_run.Model(str(self.root / name / "model.onnx")), torch.jit.load(self.root / name / "model.pt")):
            found = model(fields).numpy()
            for number, target in enumerate(("amplitude", "slope")):
                written = [float(row[f"{target}_predicted"]) for row in rows]
                numpy.testing.assert_allclose(found[:, number], written, rtol=1e-3, atol=1e-4)

    def test_ranks_and_restarts(self):
        self.train(self.config("two", ranks=2), 2)
        again = self.config("again", ranks=2)
        self.kill_after_step(again, 5, 2)
        self.train(again, 2)
        self.assertEqual(self.weights("again")[0], self.weights("two")[0])

    def test_what_is_refused(self):
        layers = [{"convolution": 4}, "global_mean", {"dense": 2}]
        wrong = {
            "module": ({"model": str(self.root / "mine.pt")}, "TorchScript file mine.pt"),
            "loss": ({"loss": {"file": str(self.root / "mine.pt")}}, "TorchScript file mine.pt"),
            "torch": ({"backend": "torch"}, "'backend: torch'"),
            "members": ({"members": 2}, "'members'"),
            "layer": ({"model": {"layers": [{"spectral_convolution": 2, "modes": 2}, *layers]}}, "the kind spectral_convolution"),
            "grid": ({"grid": {"space": 2}, "ranks": 2}, "'grid', by which several ranks share a sample,")}
        (self.root / "mine.pt").write_bytes(b"x")
        for name, (keys, part) in wrong.items():
            with self.subTest(name):
                done = self.train(self.config(name, **keys), 2 if name == "grid" else 1, code=5)
                (sentence,) = [line for line in done.stderr.splitlines() if "libtorch" in line]
                self.assertRegex(sentence, r"^wflow-train: .* needs libtorch, and this wflow-train was built without libtorch")
                self.assertIn(part, sentence)
        for words in (["predict", "x", "y"], ["analyze", "x"], ["infer", "x"]):
            done = subprocess.run([train_run_test.PROGRAMS.train, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 5)
            self.assertIn(f"wflow {words[0]} needs libtorch", done.stderr)


if __name__ == "__main__":
    train_run_test.run_tests()
