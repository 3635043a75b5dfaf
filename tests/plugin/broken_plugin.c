/* SPDX-License-Identifier: Apache-2.0 */
/* A simulator whose parameter says what goes wrong: 1 crashes, 2 fails with a reason, 3 makes NaN, 4 exits, 5 hangs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "wflow_plugin.h"

static const struct wflow_array kArrays[] = {{"value", WFLOW_FLOAT64, 0, {0}}, {"pair", WFLOW_FLOAT32, 1, {2}}};

static int run(void* state, uint64_t sample, const double* parameters, void* const* results, char* error,
               size_t error_bytes) {
  (void)state;
  volatile int* nowhere = NULL;
  double* value = results[0];
  float* pair = results[1];
  *value = 10.0 * (double)sample;
  pair[0] = (float)sample;
  pair[1] = (float)parameters[0];
  switch ((int)parameters[0]) {
    case 1:
      *nowhere = 1;
      break;
    case 2:
      snprintf(error, error_bytes, "no root in sample %llu", (unsigned long long)sample);
      return 1;
    case 3:
      *value = NAN;
      break;
    case 4:
      exit(9);
    case 5:
      for (;;) pause();
    default:
      break;
  }
  return 0;
}

static const struct wflow_plugin kPlugin = {WFLOW_PLUGIN_ABI, 2, kArrays, NULL, run, NULL, NULL};
static const struct wflow_plugin kOld = {WFLOW_PLUGIN_ABI + 1, 2, kArrays, NULL, run, NULL, NULL};

const struct wflow_plugin* wflow_plugin(void) {
  return &kPlugin;
}

const struct wflow_plugin* of_another_version(void);
const struct wflow_plugin* of_another_version(void) {
  return &kOld;
}
