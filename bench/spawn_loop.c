// SPDX-License-Identifier: Apache-2.0
// spawn_loop N IN_FLIGHT PROGRAM [ARGUMENT...]: the physical limit. Starts a program N times and does nothing else.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char** environ;

int main(int count, char** words) {
  if (count < 4) return 2;
  const long n = atol(words[1]);
  const long in_flight = atol(words[2]);
  long started = 0;
  long ended = 0;
  while (ended < n) {
    if (started < n && started - ended < in_flight) {
      pid_t pid;
      if (posix_spawn(&pid, words[3], NULL, NULL, words + 3, environ) != 0) return 1;
      ++started;
      continue;
    }
    int status;
    if (wait(&status) < 0 || status != 0) return 1;
    ++ended;
  }
  return 0;
}
