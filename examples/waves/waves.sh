#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two crossing waves on a grid of 32 x 32 points, as CDL (the text form of NetCDF) for ncgen.
exec awk -v k="$1" -v direction="$2" -v amplitude="$3" 'BEGIN {
  n = 32; pi = atan2(0, -1)
  print "netcdf waves {\ndimensions: time = 1; y = " n "; x = " n ";"
  print "variables: short height(time, y, x); height:scale_factor = 0.001; height:add_offset = 0.5; height:_FillValue = -32768s;"
  print "data: height ="
  for (j = 0; j < n; j++) for (i = 0; i < n; i++) {
    x = i / n; y = j / n
    h = amplitude * (sin(2 * pi * k * (x * cos(direction) + y * sin(direction))) + 0.5 * cos(2 * pi * k * y))
    printf "%d%s", (h - 0.5) / 0.001, j == n - 1 && i == n - 1 ? ";\n}\n" : ","
  }
}'
