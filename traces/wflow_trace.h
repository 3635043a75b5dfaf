/* SPDX-License-Identifier: Apache-2.0 */
/* A simulator that takes its random draws from wflow (docs/traces.md). wflow records them, and later steers
 * them to find the draws that made an observation:
 *
 *     #include "wflow_plugin.h"
 *     #include "wflow_trace.h"
 *     static const struct wflow_array arrays[] = {{"signal", WFLOW_FLOAT64, 1, {2}}};
 *     static int trace(void* state, uint64_t sample, const double* parameters, struct wflow_trace* t,
 *                      char* error, size_t error_bytes) {
 *       double mu = wflow_normal(t, "mu", 0, 1);
 *       for (uint64_t i = 0; i < 2; ++i) wflow_observe_normal(t, "signal", i, mu, 0.5);
 *       return 0;
 *     }
 *     static const struct wflow_plugin plugin = {WFLOW_PLUGIN_ABI, 1, arrays, NULL, NULL, NULL, trace};
 *     const struct wflow_plugin* wflow_plugin(void) { return &plugin; }
 *
 * An address names a place in the program. It must not depend on values that are drawn, on memory addresses
 * or on the build. A second draw at an address in the same run gets the name "address#2", and so on.
 *
 * After a mistake, such as a negative deviation, every function returns NaN, and the sample fails with a
 * sentence when trace() returns. */
#ifndef WFLOW_TRACE_H
#define WFLOW_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of distributions, and their parameters. */
#define WFLOW_NORMAL 1u           /* mean, standard deviation */
#define WFLOW_UNIFORM 2u          /* low, high */
#define WFLOW_CATEGORICAL 3u      /* weights of 0, 1, ...; they need no sum of 1 */
#define WFLOW_POISSON 4u          /* rate */
#define WFLOW_EXPONENTIAL 5u      /* rate */
#define WFLOW_GAMMA 6u            /* shape, rate */
#define WFLOW_BETA 7u             /* a, b */
#define WFLOW_TRUNCATED_NORMAL 8u /* mean and standard deviation before the truncation, low, high */

struct wflow_distribution {
  uint32_t kind;
  uint32_t count;           /* of the parameters */
  const double* parameters; /* read during the call */
};

/* A draw in a loop that repeats until it accepts: only the last one of the run at this address counts, and it
 * is drawn from its distribution, never steered. wflow_sample_until() can be steered. */
#define WFLOW_REPLACE 1u

/* The functions of a run. They belong to wflow, and are valid until trace() returns. */
struct wflow_trace {
  void* run;
  double (*sample)(void* run, const char* address, const struct wflow_distribution* distribution,
                   uint32_t flags);
  int (*sample_until)(void* run, const char* address, const struct wflow_distribution* distributions,
                      uint32_t count, double* values, int (*accept)(void* user, const double* values),
                      void* user);
  double (*observe)(void* run, const char* array, uint64_t index,
                    const struct wflow_distribution* distribution);
  void (*tag)(void* run, const char* name, double value);
};

/* A draw. `flags`: 0 or WFLOW_REPLACE. */
static inline double wflow_sample(struct wflow_trace* trace, const char* address,
                                  const struct wflow_distribution* distribution, uint32_t flags) {
  return trace->sample(trace->run, address, distribution, flags);
}

/* Draws of several values, at the addresses "address[0]", "address[1]", ... (of at most 200 characters). */
static inline void wflow_sample_values(struct wflow_trace* trace, const char* address,
                                       const struct wflow_distribution* distributions, uint32_t count,
                                       double* values) {
  for (uint32_t i = 0; i < count; ++i) {
    char name[220];
    snprintf(name, sizeof name, "%.200s[%u]", address, (unsigned)i);
    values[i] = wflow_sample(trace, name, &distributions[i], 0);
  }
}

/* `count` draws, each from its distribution, all of them again until accept(user, values) is not 0. accept()
 * must depend on nothing but the values and what was drawn before, since wflow calls it more often to find
 * the probability of acceptance. Returns 0; another value after a mistake, with NaN in `values`. */
static inline int wflow_sample_until(struct wflow_trace* trace, const char* address,
                                     const struct wflow_distribution* distributions, uint32_t count,
                                     double* values, int (*accept)(void* user, const double* values),
                                     void* user) {
  return trace->sample_until(trace->run, address, distributions, count, values, accept, user);
}

/* The distribution of value `index` of an array of the plugin, given what was drawn. Every value of every
 * array is observed once. Returns the value: drawn here when traces are recorded, the observed one
 * afterwards. Nothing in the simulator needs it. */
static inline double wflow_observe(struct wflow_trace* trace, const char* array, uint64_t index,
                                   const struct wflow_distribution* distribution) {
  return trace->observe(trace->run, array, index, distribution);
}

/* A number that follows from the draws, under a name: results of `wflow infer` have its distribution, too. */
static inline void wflow_tag(struct wflow_trace* trace, const char* name, double value) {
  trace->tag(trace->run, name, value);
}

static inline double wflow_normal(struct wflow_trace* trace, const char* address, double mean,
                                  double deviation) {
  const double p[2] = {mean, deviation};
  const struct wflow_distribution d = {WFLOW_NORMAL, 2, p};
  return wflow_sample(trace, address, &d, 0);
}

static inline double wflow_uniform(struct wflow_trace* trace, const char* address, double low, double high) {
  const double p[2] = {low, high};
  const struct wflow_distribution d = {WFLOW_UNIFORM, 2, p};
  return wflow_sample(trace, address, &d, 0);
}

/* A number from 0 to count - 1; -1 after a mistake. */
static inline int wflow_categorical(struct wflow_trace* trace, const char* address, const double* weights,
                                    uint32_t count) {
  const struct wflow_distribution d = {WFLOW_CATEGORICAL, count, weights};
  const double value = wflow_sample(trace, address, &d, 0);
  return value >= 0 ? (int)value : -1;
}

static inline double wflow_poisson(struct wflow_trace* trace, const char* address, double rate) {
  const struct wflow_distribution d = {WFLOW_POISSON, 1, &rate};
  return wflow_sample(trace, address, &d, 0);
}

static inline double wflow_exponential(struct wflow_trace* trace, const char* address, double rate) {
  const struct wflow_distribution d = {WFLOW_EXPONENTIAL, 1, &rate};
  return wflow_sample(trace, address, &d, 0);
}

static inline double wflow_gamma(struct wflow_trace* trace, const char* address, double shape, double rate) {
  const double p[2] = {shape, rate};
  const struct wflow_distribution d = {WFLOW_GAMMA, 2, p};
  return wflow_sample(trace, address, &d, 0);
}

static inline double wflow_beta(struct wflow_trace* trace, const char* address, double a, double b) {
  const double p[2] = {a, b};
  const struct wflow_distribution d = {WFLOW_BETA, 2, p};
  return wflow_sample(trace, address, &d, 0);
}

static inline double wflow_truncated_normal(struct wflow_trace* trace, const char* address, double mean,
                                            double deviation, double low, double high) {
  const double p[4] = {mean, deviation, low, high};
  const struct wflow_distribution d = {WFLOW_TRUNCATED_NORMAL, 4, p};
  return wflow_sample(trace, address, &d, 0);
}

static inline double wflow_observe_normal(struct wflow_trace* trace, const char* array, uint64_t index,
                                          double mean, double deviation) {
  const double p[2] = {mean, deviation};
  const struct wflow_distribution d = {WFLOW_NORMAL, 2, p};
  return wflow_observe(trace, array, index, &d);
}

static inline double wflow_observe_poisson(struct wflow_trace* trace, const char* array, uint64_t index,
                                           double rate) {
  const struct wflow_distribution d = {WFLOW_POISSON, 1, &rate};
  return wflow_observe(trace, array, index, &d);
}

#ifdef __cplusplus
}
#endif

#endif
