#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits a Gaussian process to all values known so far, and chooses the points to compute next: where it expects most to find a
lower value. Writes them to a file, and exits with 10 when there is nothing to be expected any more.

usage: choose.py CAMPAIGN NEW.CSV"""

import sys
from math import erf
from pathlib import Path

import numpy as np

LOW, HIGH = np.array([-5.0, 0.0]), np.array([10.0, 15.0])
NEW_POINTS = 4
ENOUGH = 0.01  # expected improvement, in units of the value
CONVERGED = 10


class GaussianProcess:
    """Zero mean, squared-exponential kernel; the length is the likeliest of some."""

    def __init__(self, x, y):
        self.x, self.mean, self.scale = x, y.mean(), y.std()
        self.y = (y - self.mean) / self.scale
        self.length = max(np.geomspace(0.05, 2, 30), key=self.likelihood)
        self.likelihood(self.length)

    def kernel(self, a, b, length):
        return np.exp(-0.5 * ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1) / length**2)

    def likelihood(self, length):
        self.root = np.linalg.cholesky(self.kernel(self.x, self.x, length) + 1e-8 * np.eye(len(self.x)))
        self.weights = np.linalg.solve(self.root.T, np.linalg.solve(self.root, self.y))
        return -0.5 * self.y @ self.weights - np.log(np.diag(self.root)).sum()

    def predict(self, x):
        k = self.kernel(x, self.x, self.length)
        variance = 1 - (np.linalg.solve(self.root, k.T) ** 2).sum(0)
        return self.mean + self.scale * (k @ self.weights), self.scale * np.sqrt(np.maximum(variance, 1e-12))


def expected_improvement(model, x, best):
    mean, deviation = model.predict(x)
    z = (best - mean) / deviation
    normal = 0.5 * (1 + np.vectorize(erf)(z / np.sqrt(2)))
    return deviation * (z * normal + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))


def main(campaign, target):
    # The campaign's own values, and those of its iterations, which lie in it.
    known = np.array([[float(word) for word in path.read_text().split()] for path in sorted(Path(campaign).rglob("simulate.out"))])
    x, y = (known[:, :2] - LOW) / (HIGH - LOW), known[:, 2]
    random = np.random.default_rng(len(known))
    chosen, first = [], None
    for _ in range(NEW_POINTS):
        best = x[y.argmin()]
        candidates = np.vstack([random.random((2000, 2)), np.clip(best + 0.02 * random.standard_normal((500, 2)), 0, 1)])
        model = GaussianProcess(x, y)
        gain = expected_improvement(model, candidates, y.min())
        first = gain.max() if first is None else first
        point = candidates[gain.argmax()]
        # Takes the model for exact at this point, so that the next point goes elsewhere.
        x, y = np.vstack([x, point]), np.append(y, model.predict(point[None, :])[0])
        chosen.append(LOW + point * (HIGH - LOW))
    np.savetxt(target, chosen, delimiter=",", fmt="%.12g")
    least = known[known[:, 2].argmin()]
    print(f"{len(known)} values, the least is {least[2]:.6f} at ({least[0]:.4f}, {least[1]:.4f}); expected improvement {first:.2g}")
    return CONVERGED if first < ENOUGH else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
