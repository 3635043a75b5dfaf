// SPDX-License-Identifier: Apache-2.0
// Preloaded by recovery_test.py, correct_test.py and max_disk_test.py. Counts what a coordinator (`wflow run`, `wflow resume`,
// `wflow redo`), or the program that $FAULT_PROGRAM names, does that others can see afterwards:
// writes, syncs, renames, removals below $FAULT_FOLDER but for logs, and bytes sent through sockets. At number $FAULT_AT it is
// killed, before or after the call as $FAULT_WHEN says. The file $FAULT_COUNT holds the number so far.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long* counter;
static pid_t coordinator;
static long fault_at;
static int after;

static void* next(const char* name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
  char words[4096];
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : read(file, words, sizeof words - 1);
  if (file >= 0) close(file);
  if (got <= 0 || getenv("FAULT_COUNT") == NULL) return;
  words[got] = '\0';
  const char* second = words + strlen(words) + 1;
  const char* program = getenv("FAULT_PROGRAM");
  const char* slash = strrchr(words, '/');
  const int named = program != NULL && strcmp(slash == NULL ? words : slash + 1, program) == 0;
  if (program != NULL && !named) return;
  if (!named && (second >= words + got || (strcmp(second, "run") != 0 && strcmp(second, "resume") != 0 && strcmp(second, "redo") != 0))) return;
  const int count = open(getenv("FAULT_COUNT"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (count < 0 || ftruncate(count, sizeof *counter) != 0) return;
  void* memory = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, count, 0);
  close(count);
  if (memory == MAP_FAILED) return;
  const char* at = getenv("FAULT_AT");
  const char* when = getenv("FAULT_WHEN");
  fault_at = at == NULL ? 0 : atol(at);
  after = when != NULL && strcmp(when, "after") == 0;
  coordinator = getpid();
  counter = memory;
}

static int counts(const char* path) {
  const char* folder = getenv("FAULT_FOLDER");
  return folder != NULL && strncmp(path, folder, strlen(folder)) == 0 && strstr(path, "/logs/") == NULL;
}

static int counts_fd(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t got = readlink(link, path, sizeof path - 1);
  if (got <= 0) return 0;
  path[got] = '\0';
  return counts(path) || strncmp(path, "socket:", 7) == 0;
}

// Returns whether this call is the one; kills the process here if the call must not happen.
static int is_it(int does_count) {
  if (!does_count || counter == NULL || getpid() != coordinator) return 0;
  const int it = atomic_fetch_add(counter, 1) + 1 == fault_at;
  if (it && !after) kill(getpid(), SIGKILL);
  return it;
}

#define CALL(result, name, counts, types, ...)                     \
  const int saved = errno;                                         \
  const int it = is_it(counts);                                    \
  errno = saved;                                                   \
  const result value = ((result(*) types)next(name))(__VA_ARGS__); \
  if (it) kill(getpid(), SIGKILL);                                 \
  return value

ssize_t write(int fd, const void* data, size_t size) {
  CALL(ssize_t, "write", counts_fd(fd), (int, const void*, size_t), fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  CALL(ssize_t, "pwrite", counts_fd(fd), (int, const void*, size_t, off_t), fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  CALL(ssize_t, "pwrite64", counts_fd(fd), (int, const void*, size_t, off64_t), fd, data, size, offset);
}
int fsync(int fd) { CALL(int, "fsync", counts_fd(fd), (int), fd); }
int fdatasync(int fd) { CALL(int, "fdatasync", counts_fd(fd), (int), fd); }
int rename(const char* from, const char* to) { CALL(int, "rename", counts(to), (const char*, const char*), from, to); }
int unlink(const char* path) { CALL(int, "unlink", counts(path), (const char*), path); }
int remove(const char* path) { CALL(int, "remove", counts(path), (const char*), path); }
int mkdir(const char* path, mode_t mode) { CALL(int, "mkdir", counts(path), (const char*, mode_t), path, mode); }
ssize_t send(int fd, const void* data, size_t size, int flags) {
  CALL(ssize_t, "send", 1, (int, const void*, size_t, int), fd, data, size, flags);
}
