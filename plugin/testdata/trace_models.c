/* SPDX-License-Identifier: Apache-2.0 */
/* Simulators with known posteriors; `symbol` of a plugin: block names one. */
#include <math.h>
#include <stdio.h>

#include "wflow_plugin.h"
#include "wflow_trace.h"

#define PLUGIN(name, arrays)                                                                                      \
  const struct wflow_plugin* name(void) {                                                                         \
    static const struct wflow_plugin plugin = {                                                                   \
        WFLOW_PLUGIN_ABI, sizeof arrays / sizeof *arrays, arrays, NULL, NULL, NULL, name##_trace};                \
    return &plugin;                                                                                               \
  }
#define TRACE(name)                                                                                               \
  static int name##_trace(void* state, uint64_t sample, const double* parameters, struct wflow_trace* t,          \
                          char* error, size_t error_bytes)
#define UNUSED (void)state, (void)sample, (void)parameters, (void)error, (void)error_bytes

static const struct wflow_array two[] = {{"y", WFLOW_FLOAT64, 1, {2}}};
static const struct wflow_array ten[] = {{"y", WFLOW_FLOAT64, 1, {10}}};
static const struct wflow_array one[] = {{"y", WFLOW_FLOAT64, 1, {1}}};

/* mu ~ N(1, sqrt 5), two observations with deviation sqrt 2: posterior N(7.25, 0.913) for y = (8, 9). */
TRACE(gaussian) {
  UNUSED;
  const double mu = wflow_normal(t, "mu", 1, sqrt(5));
  for (uint64_t i = 0; i < 2; ++i) wflow_observe_normal(t, "y", i, mu, sqrt(2));
  wflow_tag(t, "square", mu * mu);
  return 0;
}
PLUGIN(gaussian, two)

/* Ten numbers N(0, 1), observed as x_i + x_(i+1) / 2 with deviation 0.5. */
TRACE(linear) {
  UNUSED;
  double x[11] = {0};
  for (int i = 0; i < 10; ++i) x[i] = wflow_normal(t, "x", 0, 1);
  for (uint64_t i = 0; i < 10; ++i) wflow_observe_normal(t, "y", i, x[i] + 0.5 * x[i + 1], 0.5);
  return 0;
}
PLUGIN(linear, ten)

/* One branch has a draw, the other two: y is their sum. */
TRACE(branching) {
  UNUSED;
  const double weights[2] = {0.4, 0.6};
  double sum;
  if (wflow_categorical(t, "branch", weights, 2) == 0) {
    sum = wflow_normal(t, "a", 0, 1);
  } else {
    sum = wflow_normal(t, "b", 1, 1);
    sum += wflow_uniform(t, "c", 0, 4);
  }
  wflow_observe_normal(t, "y", 0, sum, 0.5);
  wflow_tag(t, "sum", sum);
  return 0;
}
PLUGIN(branching, one)

static int is_above(void* user, const double* values) { return values[0] > *(const double*)user; }

/* x ~ N(0, 1) above a bound that is drawn, too. */
static int rejection(struct wflow_trace* t, int replaces) {
  double x;
  double bound = wflow_uniform(t, "bound", -1, 1.5);
  const double p[2] = {0, 1};
  const struct wflow_distribution d = {WFLOW_NORMAL, 2, p};
  if (replaces) {
    do {
      x = wflow_sample(t, "x", &d, WFLOW_REPLACE);
    } while (!(x > bound) && !isnan(x));
  } else {
    wflow_sample_until(t, "x", &d, 1, &x, is_above, &bound);
  }
  wflow_observe_normal(t, "y", 0, x, 0.3);
  return 0;
}
TRACE(rejecting) {
  UNUSED;
  return rejection(t, 0);
}
PLUGIN(rejecting, one)
TRACE(replacing) {
  UNUSED;
  return rejection(t, 1);
}
PLUGIN(replacing, one)

/* rate ~ Gamma(3, 1), two counts: posterior Gamma(3 + y0 + y1, 3). */
TRACE(counting) {
  UNUSED;
  const double rate = wflow_gamma(t, "rate", 3, 1);
  for (uint64_t i = 0; i < 2; ++i) wflow_observe_poisson(t, "y", i, rate);
  return 0;
}
PLUGIN(counting, two)

/* Every kind of distribution, several times. */
TRACE(kinds) {
  UNUSED;
  const double weights[3] = {1, 2, 1};
  double sum = 0;
  const int turns = 1 + wflow_categorical(t, "turns", weights, 3);
  for (int i = 0; i < turns; ++i) {
    sum += wflow_normal(t, "normal", 0, 1) + wflow_uniform(t, "uniform", -1, 2) + wflow_poisson(t, "poisson", 3);
    sum += wflow_exponential(t, "exponential", 2) + wflow_gamma(t, "gamma", 2, 1) + wflow_beta(t, "beta", 2, 3);
    sum += wflow_truncated_normal(t, "truncated", 0, 1, 0.5, 2);
    const double p[2][2] = {{0, 1}, {5, 6}};
    const struct wflow_distribution pair[2] = {{WFLOW_NORMAL, 2, p[0]}, {WFLOW_UNIFORM, 2, p[1]}};
    double values[2];
    wflow_sample_values(t, "pair", pair, 2, values);
    sum += values[0] + values[1];
  }
  wflow_observe_normal(t, "y", 0, sum, 1);
  return 0;
}
PLUGIN(kinds, one)

/* Mistakes, one for each number of the sample. */
TRACE(mistaken) {
  UNUSED;
  const double x = wflow_normal(t, "x", 0, 1);
  if (sample % 8 == 0) wflow_normal(t, "deviation", 0, -1);
  if (sample % 8 == 1) return 0; /* nothing is observed */
  if (sample % 8 == 2) wflow_observe_normal(t, "z", 0, x, 1);
  if (sample % 8 == 3) wflow_observe_normal(t, "y", 7, x, 1);
  if (sample % 8 == 4) wflow_observe_normal(t, "y", 0, x / 0.0, 1);
  if (sample % 8 == 5) wflow_tag(t, "tag", NAN);
  if (sample % 8 == 6) {
    snprintf(error, error_bytes, "the simulator's own reason");
    return 3;
  }
  wflow_observe_normal(t, "y", 0, x, 1);
  return 0;
}
PLUGIN(mistaken, one)
