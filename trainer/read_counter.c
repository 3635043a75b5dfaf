/* SPDX-License-Identifier: Apache-2.0
 * LD_PRELOAD: counts the bytes that a process reads from files below $READ_COUNTER_FOLDER, by any call that
 * gives bytes of a file, and appends a line "path bytes" to $READ_COUNTER_LOG for each such call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static char* folder = NULL;
static char* log_file = NULL;

/* Copies the names once: threads of MPI read while others change the environment, which getenv() does not
 * survive. Reads before this, of other libraries' constructors, are not counted. */
__attribute__((constructor)) static void begin(void) {
  const char* given = getenv("READ_COUNTER_LOG");
  if (given != NULL) log_file = strdup(given);
  given = getenv("READ_COUNTER_FOLDER");
  if (given != NULL) folder = strdup(given);
}

static void count(int fd, ssize_t bytes) {
  char link[64];
  char path[4096];
  char line[4200];
  if (folder == NULL || log_file == NULL || bytes <= 0) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  if (strncmp(path, folder, strlen(folder)) != 0) return;
  const int size = snprintf(line, sizeof line, "%s %zd\n", path, bytes);
  const int to = open(log_file, O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (to < 0 || write(to, line, (size_t)size) != size) abort();
  close(to);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t read(int fd, void* to, size_t size) {
  const ssize_t got = REAL(read)(fd, to, size);
  count(fd, got);
  return got;
}
ssize_t pread(int fd, void* to, size_t size, off_t at) {
  const ssize_t got = REAL(pread)(fd, to, size, at);
  count(fd, got);
  return got;
}
ssize_t pread64(int fd, void* to, size_t size, off64_t at) {
  const ssize_t got = REAL(pread64)(fd, to, size, at);
  count(fd, got);
  return got;
}
ssize_t readv(int fd, const struct iovec* to, int parts) {
  const ssize_t got = REAL(readv)(fd, to, parts);
  count(fd, got);
  return got;
}
ssize_t preadv(int fd, const struct iovec* to, int parts, off_t at) {
  const ssize_t got = REAL(preadv)(fd, to, parts, at);
  count(fd, got);
  return got;
}
void* mmap(void* where, size_t size, int protection, int flags, int fd, off_t at) {
  void* mapped = REAL(mmap)(where, size, protection, flags, fd, at);
  if (fd >= 0 && mapped != MAP_FAILED) count(fd, (ssize_t)size);
  return mapped;
}
