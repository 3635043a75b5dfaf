// SPDX-License-Identifier: Apache-2.0
// Preloaded into the programs of a chaos test: a disk that takes SLOW_SYNC_MS for every fsync and
// fdatasync of a campaign's database.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = '\0';
  if (strstr(path, "campaign.db") == NULL) return;
  const char* text = getenv("SLOW_SYNC_MS");
  const long ms = text ? strtol(text, NULL, 10) : 0;
  struct timespec left = {ms / 1000, (ms % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0) continue;
}

static int sync_by(const char* name, int file) {
  int (*real)(int);
  *(void**)&real = dlsym(RTLD_NEXT, name);
  wait_for_disk(file);
  return real(file);
}

int fsync(int file) {
  return sync_by("fsync", file);
}

int fdatasync(int file) {
  return sync_by("fdatasync", file);
}
