/* SPDX-License-Identifier: Apache-2.0 */
/* The implosion of examples/jag_like in 32 steps, with two numbers of a sample kept: the simulator of bench/hundred_million. One sample in
 * a million fails. */
#include <math.h>
#include <stdio.h>

#include "wflow_plugin.h"

enum { kSteps = 32 };

static const struct wflow_array kArrays[] = {{"values", WFLOW_FLOAT32, 1, {2}}};

static int run(void* state, uint64_t sample, const double* p, void* const* results, char* error, size_t error_bytes) {
  (void)state;
  if (sample % 1000000 == 271828) {
    snprintf(error, error_bytes, "the shell of sample %llu is broken", (unsigned long long)sample);
    return 1;
  }
  const double velocity = p[0], adiabat = p[1], mix = p[2];
  const double step = 2.0 / kSteps;
  double r = 1, v = -velocity, yield = 0, hottest = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double temperature = adiabat * (1 - mix) / (r * r);
    const double square = temperature * temperature;
    yield += (1 - mix) * (1 - mix) * square * square / (r * r * r) * step;
    if (temperature > hottest) hottest = temperature;
    v += step * adiabat / (r * r * r);
    r += step * v;
  }
  float* values = results[0];
  values[0] = (float)yield;
  values[1] = (float)hottest;
  return 0;
}

static const struct wflow_plugin kPlugin = {WFLOW_PLUGIN_ABI, 1, kArrays, NULL, run, NULL, NULL};

const struct wflow_plugin* wflow_plugin(void) { return &kPlugin; }
