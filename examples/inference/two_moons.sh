#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two numbers that depend on two parameters and on random numbers: "two moons" (Greenberg et al. 2019, arXiv:1905.07488,
# appendix A.5.3). Two crescents of parameters explain an observation.
#
# usage: two_moons.sh A B SEED
exec awk -v a="$1" -v b="$2" -v seed="$3" 'BEGIN {
  srand(seed)
  for (i = 0; i < 5; ++i) rand()   # the first numbers of neighbouring seeds are alike
  angle = 3.14159265358979 * (rand() - 0.5)
  radius = 0.1 + 0.01 * sqrt(-2 * log(1 - rand())) * cos(6.28318530717959 * rand())
  printf "x0 = %.9g\nx1 = %.9g\n", radius * cos(angle) + 0.25 - (a + b < 0 ? -a - b : a + b) / sqrt(2), radius * sin(angle) + (b - a) / sqrt(2)
}'
