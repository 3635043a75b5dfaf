// SPDX-License-Identifier: Apache-2.0
// The simulator of the chaos tests: its own record of what ran is the truth that the campaign is compared with.
//
//   task TRUTH LOCKS STEP ELEMENT SHORTEST_MS LONGEST_MS [FAILURES [OUTPUT]]
//
// Appends one line of 64 bytes to TRUTH for each of these, "kind step element attempt pid parent session nanoseconds":
//   B  the execution begins
//   O  another execution of the same element is alive: the kernel holds its lock on this element's byte of LOCKS
//   E  the execution ends with success
//   F  it fails: the first attempt of FAILURES elements in 1,000
// The duration is a function of the element: between the two, uniform in its logarithm. OUTPUT is a .npy file of
// 8 x 8 x 8 numbers that are a function of the element, written before the end. SIGUSR1 makes it take memory without end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kLine = 64 };

static uint64_t hash(uint64_t x) {
  x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static void record(int file, char kind, char** arguments) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char* attempt = getenv("WFLOW_ATTEMPT");
  char line[kLine + 1];
  const int length =
      snprintf(line, sizeof line, "%c %s %s %s %d %d %d %lld", kind, arguments[3], arguments[4], attempt ? attempt : "0",
               (int)getpid(), (int)getppid(), (int)getsid(0), now.tv_sec * 1000000000LL + now.tv_nsec);
  if (length < 0 || length >= kLine) _exit(9);
  memset(line + length, ' ', (size_t)(kLine - length));
  line[kLine - 1] = '\n';
  if (write(file, line, kLine) != kLine) _exit(9);
}

// Held until this process ends, however it ends. False where another execution of the element holds it.
static int lock(const char* path, char step, uint64_t element) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) _exit(9);
  struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(((uint64_t)step << 40) + element), .l_len = 1};
  return fcntl(file, F_OFD_SETLK, &range) == 0;
}

static volatile sig_atomic_t hungry;
static void become_hungry(int number) {
  (void)number;
  hungry = 1;
}

static void eat(void) {
  enum { kBite = 1 << 20 };
  for (;;) {
    char* bite = malloc(kBite);
    if (bite != NULL) memset(bite, 1, kBite);
  }
}

static void write_output(const char* path, uint64_t element) {
  enum { kHeader = 128, kNumbers = 512 };
  char bytes[kHeader + kNumbers * sizeof(float)];
  const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 8, 8), }";
  memset(bytes, ' ', kHeader);
  memcpy(bytes, "\x93NUMPY\x01\x00", 8);
  bytes[8] = kHeader - 10;
  bytes[9] = 0;
  memcpy(bytes + 10, text, sizeof text - 1);
  bytes[kHeader - 1] = '\n';
  for (uint64_t i = 0; i < kNumbers; ++i) {
    const float value = (float)element + (float)(hash(element * kNumbers + i) % 1000) / 1000;
    memcpy(bytes + kHeader + i * sizeof value, &value, sizeof value);
  }
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || write(file, bytes, sizeof bytes) != (ssize_t)sizeof bytes || close(file) != 0) _exit(8);
}

int main(int count, char** arguments) {
  if (count < 7) return 2;
  const uint64_t element = strtoull(arguments[4], NULL, 10);
  const double shortest = strtod(arguments[5], NULL), longest = strtod(arguments[6], NULL);
  const uint64_t failures = count > 7 ? strtoull(arguments[7], NULL, 10) : 0;
  signal(SIGUSR1, become_hungry);
  const int truth = open(arguments[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (truth < 0) return 9;
  record(truth, 'B', arguments);
  if (!lock(arguments[2], arguments[3][0], element)) record(truth, 'O', arguments);
  const double place = (double)(hash(element) % 1000) / 1000;
  const double ns = shortest * pow(longest / shortest, place) * 1e6;
  struct timespec left = {(time_t)(ns / 1e9), (long)fmod(ns, 1e9)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    if (hungry) eat();
  }
  const char* attempt = getenv("WFLOW_ATTEMPT");
  const int fails = hash(element + 1000003) % 1000 < failures && attempt && strcmp(attempt, "0") == 0;
  if (count > 8 && !fails) write_output(arguments[8], element);
  record(truth, fails ? 'F' : 'E', arguments);
  _exit(fails);
}
