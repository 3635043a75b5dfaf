// SPDX-License-Identifier: Apache-2.0
// Preloaded by robust_test.py: while there is a file $CLOCK_JUMP, the date is 400 days later. Other clocks go on as they do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  const char* jump = getenv("CLOCK_JUMP");
  if (clock == CLOCK_REALTIME && jump != NULL && access(jump, F_OK) == 0) now->tv_sec += 400L * 86400;
  return result;
}
