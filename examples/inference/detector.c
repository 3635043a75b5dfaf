/* SPDX-License-Identifier: Apache-2.0 */
/* A particle of unknown energy decays in a cascade and leaves light in a detector of 16 cells: a simulator with a
 * varying number of random draws, all of which wflow makes (docs/traces.md). */
#include <math.h>
#include <stdio.h>

#include "wflow_plugin.h"
#include "wflow_trace.h"

#define CELLS 16
#define MOST_DECAYS 6

static const struct wflow_array arrays[] = {{"cells", WFLOW_FLOAT64, 1, {CELLS}}};

/* Light at `position`, between -1 and 1, with a width of a cell. */
static void deposit(double cells[CELLS], double position, double energy) {
  const double width = 2.0 / CELLS;
  for (int i = 0; i < CELLS; ++i) {
    const double low = (-1 + i * width - position) / (width * sqrt(2.0));
    const double high = (-1 + (i + 1) * width - position) / (width * sqrt(2.0));
    cells[i] += 0.5 * energy * (erf(high) - erf(low));
  }
}

/* The angular distribution of the light is 1 + c^2. */
static int is_in_distribution(void* user, const double* values) {
  (void)user;
  return values[1] < 1 + values[0] * values[0];
}

static double direction(struct wflow_trace* t, const char* address) {
  const double ranges[2][2] = {{-1, 1}, {0, 2}};
  const struct wflow_distribution d[2] = {{WFLOW_UNIFORM, 2, ranges[0]}, {WFLOW_UNIFORM, 2, ranges[1]}};
  double values[2];
  wflow_sample_until(t, address, d, 2, values, is_in_distribution, NULL);
  return values[0];
}

static int trace(void* state, uint64_t sample, const double* parameters, struct wflow_trace* t, char* error,
                 size_t error_bytes) {
  (void)state, (void)sample, (void)parameters, (void)error, (void)error_bytes;
  double cells[CELLS] = {0};
  const double energy = wflow_uniform(t, "energy", 5, 30);
  double left = energy;
  int decays = 0;
  for (; decays < MOST_DECAYS; ++decays) {
    const double ends[2] = {0.7, 0.3};
    if (decays > 0 && wflow_categorical(t, "ends", ends, 2) == 1) break;
    char address[32];
    snprintf(address, sizeof address, "decay %d", decays);
    const double light = left * wflow_beta(t, address, 2, 2);
    snprintf(address, sizeof address, "direction %d", decays);
    deposit(cells, direction(t, address), light);
    left -= light;
  }
  const double noise = wflow_poisson(t, "noise", 1);
  for (int i = 0; i < noise; ++i) {
    const double position = wflow_uniform(t, "noise position", -1, 1);
    deposit(cells, position, wflow_exponential(t, "noise energy", 2));
  }
  for (uint64_t i = 0; i < CELLS; ++i) wflow_observe_normal(t, "cells", i, cells[i], 0.3);
  wflow_tag(t, "decays", decays);
  wflow_tag(t, "light", energy - left);
  return 0;
}

static const struct wflow_plugin plugin = {WFLOW_PLUGIN_ABI, 1, arrays, NULL, NULL, NULL, trace};

const struct wflow_plugin* wflow_plugin(void) { return &plugin; }
