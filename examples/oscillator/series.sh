#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# x'' + c x' + k x = 0 from x = 1 at rest: prints x and v ten times a second, so the length of the series depends on the seconds.
exec awk -v k="$1" -v c="$2" -v seconds="$3" 'BEGIN {
  dt = 0.001; x = 1; v = 0; a = -k * x
  print "x,v"
  for (i = 1; i <= seconds * 1000; i++) {
    x += v * dt + a * dt * dt / 2
    half = v + a * dt / 2
    a = -k * x - c * half
    v = half + a * dt / 2
    if (i % 100 == 0) printf "%.6f,%.6f\n", x, v
  }
}'
