/* SPDX-License-Identifier: Apache-2.0 */
/* A toy implosion, of microseconds, in the spirit of LLNL's JAG: a thin shell flies inward and compresses the gas inside it
 * adiabatically until the gas stops it; meanwhile the gas glows and burns. All in units of the shell's start: radius 1,
 * mass 1, and the time that light takes for nothing in particular.
 *
 *   radius r(t):       r'' = b / r^3          (gas of gamma = 5/3 behind a shell: force ~ r^2 * r^-5)
 *   temperature        T ~ (1 - mix) / r^2
 *   x rays per time    r^-3 * sqrt(T) * exp(-opacity / T)
 *   burn per time      (1 - mix)^2 * r^-3 * T^4
 *
 * Low modes of the drive (p2) leave part of the kinetic energy in swirls, which compress nothing. */
#include <math.h>
#include <stdio.h>

#include "wflow_plugin.h"

enum { kSteps = 512, kTimes = 64, kParameters = 5 };

static const struct wflow_array kArrays[] = {
    /* yield, peak temperature, bang time, burn width, smallest radius */
    {"scalars", WFLOW_FLOAT64, 1, {5}},
    /* x rays over time: 64 moments from 0 to 2 */
    {"xrays", WFLOW_FLOAT32, 1, {kTimes}},
};

static int begin(const struct wflow_context* context, void** state, char* error, size_t error_bytes) {
  (void)state;
  if (context->parameters == kParameters) return 0;
  snprintf(error, error_bytes, "it takes 5 parameters (velocity, adiabat, mix, opacity, p2), not %u", context->parameters);
  return 1;
}

static int run(void* state, uint64_t sample, const double* p, void* const* results, char* error, size_t error_bytes) {
  (void)state;
  (void)sample;
  const double velocity = p[0], adiabat = p[1], mix = p[2], opacity = p[3], p2 = p[4];
  if (velocity <= 0 || adiabat <= 0) {
    snprintf(error, error_bytes, "velocity and adiabat must be positive, found %g and %g", velocity, adiabat);
    return 1;
  }
  double* scalars = results[0];
  float* xrays = results[1];
  const double inward = velocity * sqrt(1 - 0.5 * p2 * p2);
  const double step = 2.0 / kSteps;
  double r = 1, v = -inward;
  double yield = 0, first = 0, second = 0, hottest = 0, smallest = 1;
  for (int i = 0; i < kSteps; ++i) {
    const double temperature = adiabat * (1 - mix) / (r * r);
    const double density = 1 / (r * r * r);
    const double burn = (1 - mix) * (1 - mix) * density * temperature * temperature * temperature * temperature;
    const double time = step * i;
    yield += burn * step;
    first += burn * time * step;
    second += burn * time * time * step;
    if (temperature > hottest) hottest = temperature;
    if (r < smallest) smallest = r;
    if (i % (kSteps / kTimes) == 0)
      xrays[i / (kSteps / kTimes)] = (float)(density * sqrt(temperature) * exp(-opacity / temperature));
    /* Leapfrog: the gas gives back what it took. */
    v += 0.5 * step * adiabat / (r * r * r);
    r += step * v;
    v += 0.5 * step * adiabat / (r * r * r);
  }
  const double bang = first / yield;
  const double spread = second / yield - bang * bang;
  scalars[0] = yield;
  scalars[1] = hottest;
  scalars[2] = bang;
  scalars[3] = sqrt(spread > 0 ? spread : 0);
  scalars[4] = smallest;
  return 0;
}

static const struct wflow_plugin kPlugin = {WFLOW_PLUGIN_ABI, 2, kArrays, begin, run, NULL, NULL};

const struct wflow_plugin* wflow_plugin(void) {
  return &kPlugin;
}
