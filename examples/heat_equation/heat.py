# SPDX-License-Identifier: Apache-2.0
"""du/dt = k (d2u/dx2 + d2u/dy2) + source, u = 0 at the edges: explicit steps to t = 0.02 for each row of the file of samples.

Usage: heat.py SAMPLES.csv; writes u_ID.npy (32 x 32, float32) for each, and s_ID.npy (2 x 32 x 32): the source and k.
"""
import csv
import sys

import numpy

N = 32
TIME = 0.02


def source_of(x, y, width):
    grid = numpy.linspace(0, 1, N)
    return 100 * numpy.exp(-((grid[None, :] - x) ** 2 + (grid[:, None] - y) ** 2) / (2 * width**2))


def solve(k, source):
    steps = int(numpy.ceil(TIME * 4 * k * (N - 1) ** 2)) + 1  # explicit Euler is stable below a quarter
    dt = TIME / steps
    u = numpy.zeros((N, N))
    for _ in range(steps):
        inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += dt * (k * inner * (N - 1) ** 2 + source[1:-1, 1:-1])
    return u.astype(numpy.float32)


with open(sys.argv[1], newline="") as file:
    for row in csv.DictReader(file):
        k, x, y, width = (float(row[name]) for name in ("conductivity", "spot_x", "spot_y", "width"))
        source = source_of(x, y, width)
        numpy.save(f"u_{row['MERLIN_SAMPLE_ID']}.npy", solve(k, source))
        numpy.save(f"s_{row['MERLIN_SAMPLE_ID']}.npy", numpy.stack([source, numpy.full_like(source, k)]).astype(numpy.float32))
