#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# m x'' + c x' + k x = 0 from x = 1 at rest, by the velocity Verlet method. Prints the energy once a second, then what was measured.
exec awk -v m="$1" -v k="$2" -v c="$3" 'BEGIN {
  dt = 0.001; x = 1; v = 0; a = -k * x / m
  for (i = 1; i <= 10000; i++) {
    x_old = x
    x += v * dt + a * dt * dt / 2
    half = v + a * dt / 2
    a = (-k * x - c * half) / m
    v = half + a * dt / 2
    if (x_old > 0 && x <= 0) { crossings++; if (crossings == 1) first = i; last = i }
    if (v > 0 && x > top) top = x
    if (i == 1000) top = 0
    if (i % 1000 == 0) printf "t = %d x = %.6f E = %.8f\n", i * dt, x, (m * v * v + k * x * x) / 2
  }
  printf "crossings: %d\nperiod = %.6f\namplitude ratio = %.6f\n", crossings, (last - first) * dt / (crossings - 1), top
}'
