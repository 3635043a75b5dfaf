// SPDX-License-Identifier: Apache-2.0
// Preloaded by hosts_test.py: a file system without working locks. Every lock is granted, and excludes no
// process.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

static int control(int fd, int command, long argument) {
  if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) return 0;
  if (command == F_GETLK || command == F_OFD_GETLK) {
    ((struct flock*)argument)->l_type = F_UNLCK;
    return 0;
  }
  return (int)syscall(SYS_fcntl, fd, command, argument);
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return control(fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return control(fd, command, argument);
}
int flock(int fd, int operation) {
  (void)fd;
  (void)operation;
  return 0;
}
