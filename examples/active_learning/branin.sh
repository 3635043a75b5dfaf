#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The "simulation": Branin's function of x in [-5, 10] and y in [0, 15]. Prints its value, of which the least is 0.397887.
exec awk -v x="$1" -v y="$2" 'BEGIN {
  pi = atan2(0, -1)
  value = (y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6) ^ 2 + 10 * (1 - 1 / (8 * pi)) * cos(x) + 10
  printf "%.17g\n", value
}'
