# SPDX-License-Identifier: Apache-2.0
"""du/dt = k (d2u/dx2 + d2u/dy2) + source, u = 0 at the edges: explicit steps to t = 0.02 for each row of the file of samples.

Usage: heat.py SAMPLES.csv; writes u_ID.npy (32 x 32, float32) for each.
"""
import csv
import sys

import numpy

N = 32
TIME = 0.02


def solve(k, x, y, width):
    grid = numpy.linspace(0, 1, N)
    source = 100 * numpy.exp(-((grid[None, :] - x) ** 2 + (grid[:, None] - y) ** 2) / (2 * width**2))
    steps = int(numpy.ceil(TIME * 4 * k * (N - 1) ** 2)) + 1  # explicit Euler is stable below a quarter
    dt = TIME / steps
    u = numpy.zeros((N, N))
    for _ in range(steps):
        inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += dt * (k * inner * (N - 1) ** 2 + source[1:-1, 1:-1])
    return u.astype(numpy.float32)


with open(sys.argv[1], newline="") as file:
    for row in csv.DictReader(file):
        numbers = (float(row[name]) for name in ("conductivity", "spot_x", "spot_y", "width"))
        numpy.save(f"u_{row['MERLIN_SAMPLE_ID']}.npy", solve(*numbers))
