/* SPDX-License-Identifier: Apache-2.0 */
/* A traced simulator that draws its own random numbers, as it would without wflow: the bare rate for bench/traces. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "wflow_plugin.h"
#include "wflow_trace.h"

static uint64_t state;

static double uniform(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (double)((state >> 11) + 1) * 0x1p-53;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform()); }

/* Marsaglia and Tsang 2000, for shapes of at least 1. */
static double gamma_draw(double shape) {
  const double d = shape - 1.0 / 3;
  for (;;) {
    const double x = normal();
    const double v = pow(1 + x / sqrt(9 * d), 3);
    if (v > 0 && log(uniform()) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
  }
}

static double draw(const struct wflow_distribution* d) {
  const double* p = d->parameters;
  double sum = 0;
  switch (d->kind) {
    case WFLOW_NORMAL:
      return p[0] + p[1] * normal();
    case WFLOW_UNIFORM:
      return p[0] + (p[1] - p[0]) * uniform();
    case WFLOW_EXPONENTIAL:
      return -log(uniform()) / p[0];
    case WFLOW_BETA: {
      const double a = gamma_draw(p[0]);
      return a / (a + gamma_draw(p[1]));
    }
    case WFLOW_CATEGORICAL: {
      for (uint32_t i = 0; i < d->count; ++i) sum += p[i];
      double left = uniform() * sum;
      uint32_t k = 0;
      while (k + 1 < d->count && (left -= p[k]) > 0) ++k;
      return k;
    }
    case WFLOW_POISSON: {
      const double limit = exp(-p[0]);
      double product = uniform();
      int k = 0;
      for (; product > limit; ++k) product *= uniform();
      return k;
    }
    default:
      fprintf(stderr, "no draws of kind %u\n", d->kind);
      exit(1);
  }
}

static double sample(void* run, const char* address, const struct wflow_distribution* d, uint32_t flags) {
  (void)run, (void)address, (void)flags;
  return draw(d);
}

static int sample_until(void* run, const char* address, const struct wflow_distribution* d, uint32_t count,
                        double* values, int (*accept)(void*, const double*), void* user) {
  (void)run, (void)address;
  do {
    for (uint32_t i = 0; i < count; ++i) values[i] = draw(&d[i]);
  } while (!accept(user, values));
  return 0;
}

static double observe(void* run, const char* array, uint64_t index, const struct wflow_distribution* d) {
  (void)array;
  return ((double*)run)[index] = draw(d);
}

static void tag(void* run, const char* name, double value) { (void)run, (void)name, (void)value; }

int main(int argc, char** argv) {
  const uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  const struct wflow_plugin* plugin = wflow_plugin();
  uint64_t values = 1;
  for (uint32_t i = 0; i < plugin->arrays[0].axes; ++i) values *= plugin->arrays[0].shape[i];
  double* observed = malloc(values * sizeof *observed);
  struct wflow_trace trace = {observed, sample, sample_until, observe, tag};
  double sum = 0;
  for (uint64_t i = 0; i < runs; ++i) {
    state = 0x9e3779b97f4a7c15u * (i + 1);
    char error[256] = "";
    if (plugin->trace(NULL, i, NULL, &trace, error, sizeof error) != 0) return 1;
    sum += observed[0];
  }
  printf("%g\n", sum);
  free(observed);
  return 0;
}
