// SPDX-License-Identifier: Apache-2.0
// Preloaded by disk_test.py and recovery_test.py. While there is a file $DISK_FAULT with "<errno> <text>", every write, sync
// and truncation of a file whose path holds <text>, and every making of such a file, fails with this errno.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static void* next(const char* name) { return dlsym(RTLD_NEXT, name); }

// 0: none is asked for.
static int fault(char* text, size_t size) {
  const char* control = getenv("DISK_FAULT");
  if (control == NULL) return 0;
  int (*real_open)(const char*, int, ...) = next("open");
  const int saved = errno;
  const int file = real_open(control, O_RDONLY | O_CLOEXEC);
  char buffer[256];
  const ssize_t got = file < 0 ? -1 : read(file, buffer, sizeof buffer - 1);
  if (file >= 0) close(file);
  errno = saved;
  if (got <= 0) return 0;
  buffer[got] = '\0';
  char* end = NULL;
  const long number = strtol(buffer, &end, 10);
  while (*end == ' ') ++end;
  end[strcspn(end, "\n")] = '\0';
  snprintf(text, size, "%s", end);
  return (int)number;
}

static int path_fault(const char* path) {
  char text[256];
  const int number = fault(text, sizeof text);
  return number != 0 && strstr(path, text) != NULL ? number : 0;
}

static int fd_fault(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const int saved = errno;
  const ssize_t got = readlink(link, path, sizeof path - 1);
  errno = saved;
  if (got <= 0) return 0;
  path[got] = '\0';
  return path_fault(path);
}

#define FAIL_FD(fd)                    \
  do {                                 \
    const int number = fd_fault(fd);   \
    if (number != 0) {                 \
      errno = number;                  \
      return -1;                       \
    }                                  \
  } while (0)

ssize_t write(int fd, const void* data, size_t size) {
  FAIL_FD(fd);
  return ((ssize_t(*)(int, const void*, size_t))next("write"))(fd, data, size);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  FAIL_FD(fd);
  return ((ssize_t(*)(int, const struct iovec*, int))next("writev"))(fd, parts, count);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  FAIL_FD(fd);
  return ((ssize_t(*)(int, const void*, size_t, off_t))next("pwrite"))(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  FAIL_FD(fd);
  return ((ssize_t(*)(int, const void*, size_t, off64_t))next("pwrite64"))(fd, data, size, offset);
}
int fsync(int fd) {
  FAIL_FD(fd);
  return ((int (*)(int))next("fsync"))(fd);
}
int fdatasync(int fd) {
  FAIL_FD(fd);
  return ((int (*)(int))next("fdatasync"))(fd);
}

static int open_as(const char* name, const char* path, int flags, int mode) {
  const int writes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  const int number = writes ? path_fault(path) : 0;
  if (number != 0) {
    errno = number;
    return -1;
  }
  return ((int (*)(const char*, int, ...))next(name))(path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return open_as("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return open_as("open64", path, flags, mode);
}
