/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_loop LIBRARY COUNT FOLDER: what can't be done without: calls a plugin's function COUNT times in one process, with points of
 * the box of examples/jag_like, and writes every array to one file. The peer of bench/plugin_rate. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "wflow_plugin.h"

int main(int argc, char** argv) {
  static const double low[5] = {0.8, 0.02, 0, 0, 0}, high[5] = {1.2, 0.08, 0.3, 2, 0.5};
  static const double step[5] = {0.754877666, 0.569840291, 0.819172513, 0.671043607, 0.549700478};
  if (argc != 4) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) return 3;
  const struct wflow_plugin* (*describe)(void) = (const struct wflow_plugin* (*)(void))dlsym(library, "wflow_plugin");
  const struct wflow_plugin* plugin = describe();
  const uint64_t count = strtoull(argv[2], NULL, 10);
  FILE* files[8];
  void* results[8];
  size_t bytes[8];
  for (uint32_t k = 0; k < plugin->array_count; ++k) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.raw", argv[3], plugin->arrays[k].name);
    files[k] = fopen(path, "wb");
    if (files[k] == NULL) return 5;
    setvbuf(files[k], NULL, _IOFBF, 1 << 20);
    bytes[k] = plugin->arrays[k].type == WFLOW_FLOAT32 ? 4 : 8;
    for (uint32_t axis = 0; axis < plugin->arrays[k].axes; ++axis) bytes[k] *= plugin->arrays[k].shape[axis];
    results[k] = malloc(bytes[k]);
  }
  char error[1024] = "";
  for (uint64_t sample = 0; sample < count; ++sample) {
    double parameters[5];
    for (int i = 0; i < 5; ++i)
      parameters[i] = low[i] + fmod(step[i] * (double)(sample + 1), 1.0) * (high[i] - low[i]);
    if (plugin->run(NULL, sample, parameters, results, error, sizeof error) != 0) return 4;
    for (uint32_t k = 0; k < plugin->array_count; ++k) fwrite(results[k], bytes[k], 1, files[k]);
  }
  for (uint32_t k = 0; k < plugin->array_count; ++k) fclose(files[k]);
  return 0;
}
