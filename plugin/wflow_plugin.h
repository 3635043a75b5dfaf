/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between wflow and a simulator in a shared library (docs/plugins.md). C, and nothing else
 * needed:
 *
 *     #include "wflow_plugin.h"
 *     static const struct wflow_array arrays[] = {{"scalars", WFLOW_FLOAT64, 1, {3}}};
 *     static int run(void* state, uint64_t sample, const double* parameters, void* const* results,
 *                    char* error, size_t error_bytes) { double* scalars = results[0]; ... return 0; }
 *     static const struct wflow_plugin plugin = {WFLOW_PLUGIN_ABI, 1, arrays, NULL, run, NULL};
 *     const struct wflow_plugin* wflow_plugin(void) { return &plugin; }
 *
 *     cc -O2 -shared -fPIC -I<this folder> simulator.c -o libsimulator.so
 *
 * The library is loaded by a process of its own for every bundle of samples, which calls everything here from
 * one thread, one sample after another. It may crash or call exit(): the worker lives on, and the other
 * samples of the bundle run again without it. */
#ifndef WFLOW_PLUGIN_H
#define WFLOW_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised by one with every change. Plugins compiled with version 1, which has no trace(), still load. */
#define WFLOW_PLUGIN_ABI 2u

#define WFLOW_FLOAT32 1u
#define WFLOW_FLOAT64 2u

#define WFLOW_MOST_AXES 4u

/* An array that every sample makes. Row i of <name>.npy in the bundle's directory is that of the bundle's
 * sample i. */
struct wflow_array {
  const char* name;                /* letters, digits, '_', '-', '.'; not beginning with '.' */
  uint32_t type;                   /* WFLOW_FLOAT32 or WFLOW_FLOAT64, in the machine's byte order */
  uint32_t axes;                   /* 0: one value */
  uint64_t shape[WFLOW_MOST_AXES]; /* slowest axis first, each at least 1 */
};

/* The input of a process before its first sample. All of it belongs to wflow and lives until end() has
 * returned. */
struct wflow_context {
  uint32_t parameters;                /* how many doubles run() gets */
  const char* const* parameter_names; /* in their order */
  uint64_t first;                     /* the process's samples: first .. first + count - 1 */
  uint64_t count;
};

struct wflow_trace; /* wflow_trace.h */

struct wflow_plugin {
  uint32_t abi; /* WFLOW_PLUGIN_ABI */
  uint32_t array_count;
  const struct wflow_array* arrays; /* array_count of them; at least one, if there is no trace() */

  /* Once a process; may be NULL. *state is handed to the other two. Not 0: the process ends, and none of its
   * samples has run. `error` takes a sentence with its '\0', at most error_bytes of them; it is "" before. */
  int (*begin)(const struct wflow_context* context, void** state, char* error, size_t error_bytes);

  /* One sample; NULL if there is a trace(). results[k] is the memory for arrays[k], all NaN before; it
   * belongs to wflow, and counts only when run() has returned 0. Any other value: the sample has failed, with
   * `error` as the reason. The value is taken as an exit code is: 101 fails softly, 104 asks for another try
   * (docs/exit-codes.md). */
  int (*run)(void* state, uint64_t sample, const double* parameters, void* const* results, char* error,
             size_t error_bytes);

  /* Once, after the last sample; may be NULL. */
  void (*end)(void* state);

  /* In place of run(), for a simulator that takes its random draws from wflow (wflow_trace.h,
   * docs/traces.md). It observes the arrays, with wflow_observe(), and gets them with no values. */
  int (*trace)(void* state, uint64_t sample, const double* parameters, struct wflow_trace* trace, char* error,
               size_t error_bytes);
};

/* The function that the library exports; `symbol:` in the spec names another. What it points to lives as long
 * as the library is loaded. NULL: there is none, and the library may export a second function, of that name
 * with _error behind it, that returns the reason as a sentence. */
const struct wflow_plugin* wflow_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
