/* SPDX-License-Identifier: Apache-2.0
 * LD_PRELOAD: makes a folder behave like one of a loaded shared file system, and counts the calls to it.
 *   SHARED_FOLDER            its files and what lies below
 *   SHARED_STATE             a file of at least one page, which all processes map: the counts, and when the file system is free
 *   SHARED_LATENCY_US        added to each call (0)
 *   SHARED_BYTES_PER_SECOND  that all processes read together (0: any number)
 * A file that is mapped counts as read when it is mapped. Descriptors made by dup() are not followed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { kOpen, kStat, kRead, kSeek, kClose, kBytes, kCounts, kDescriptors = 65536 };

struct State {
  _Atomic uint64_t counts[kCounts];
  _Atomic uint64_t free_at_ns;
};

static struct State* state = NULL;
static char* folder = NULL;
static size_t folder_length = 0;
static uint64_t latency_ns = 0;
static double ns_a_byte = 0;
static _Atomic char ours[kDescriptors];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Copies the environment once: getenv() is not safe beside threads that change it. */
__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("SHARED_FOLDER");
  const char* shared = getenv("SHARED_STATE");
  const char* latency = getenv("SHARED_LATENCY_US");
  const char* rate = getenv("SHARED_BYTES_PER_SECOND");
  if (path == NULL || shared == NULL) return;
  const int fd = REAL(open)(shared, O_RDWR);
  if (fd < 0) abort();
  void* mapped = REAL(mmap)(NULL, sizeof(struct State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) abort();
  REAL(close)(fd);
  if (latency != NULL) latency_ns = strtoull(latency, NULL, 10) * 1000;
  if (rate != NULL && atof(rate) > 0) ns_a_byte = 1e9 / atof(rate);
  folder_length = strlen(path);
  folder = strdup(path);
  state = mapped;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t at) {
  const struct timespec when = {(time_t)(at / 1000000000U), (long)(at % 1000000000U)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) continue;
}

static int below(const char* path) {
  return state != NULL && path != NULL && strncmp(path, folder, folder_length) == 0 &&
         (path[folder_length] == '/' || path[folder_length] == '\0');
}

static int is_ours(int fd) { return state != NULL && fd >= 0 && fd < kDescriptors && atomic_load(&ours[fd]); }

static void call(int kind) {
  const int error = errno;
  atomic_fetch_add(&state->counts[kind], 1);
  if (latency_ns > 0) sleep_until(now_ns() + latency_ns);
  errno = error;
}

/* The bytes queue behind those of all processes. */
static void transfer(ssize_t bytes) {
  const int error = errno;
  if (bytes <= 0) return;
  atomic_fetch_add(&state->counts[kBytes], (uint64_t)bytes);
  if (ns_a_byte > 0) {
    const uint64_t takes = (uint64_t)((double)bytes * ns_a_byte);
    const uint64_t now = now_ns();
    uint64_t free_at = atomic_load(&state->free_at_ns);
    uint64_t done;
    do done = (free_at > now ? free_at : now) + takes;
    while (!atomic_compare_exchange_weak(&state->free_at_ns, &free_at, done));
    sleep_until(done);
  }
  errno = error;
}

static int opened(int fd, const char* path) {
  if (!below(path)) return fd;
  call(kOpen);
  if (fd >= 0 && fd < kDescriptors) atomic_store(&ours[fd], 1);
  return fd;
}

static mode_t mode_of(int flags, va_list rest) { return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0; }

#define OPEN(name)                                           \
  int name(const char* path, int flags, ...) {               \
    va_list rest;                                            \
    va_start(rest, flags);                                   \
    const mode_t mode = mode_of(flags, rest);                \
    va_end(rest);                                            \
    return opened(REAL(name)(path, flags, mode), path);      \
  }
#define OPEN_AT(name)                                        \
  int name(int at, const char* path, int flags, ...) {       \
    va_list rest;                                            \
    va_start(rest, flags);                                   \
    const mode_t mode = mode_of(flags, rest);                \
    va_end(rest);                                            \
    return opened(REAL(name)(at, path, flags, mode), path);  \
  }
#define STAT(name, type)                                     \
  int name(const char* path, struct type* to) {              \
    if (below(path)) call(kStat);                            \
    return REAL(name)(path, to);                             \
  }
#define FSTAT(name, type)                                    \
  int name(int fd, struct type* to) {                        \
    if (is_ours(fd)) call(kStat);                            \
    return REAL(name)(fd, to);                               \
  }
#define STAT_AT(name, type)                                         \
  int name(int at, const char* path, struct type* to, int flags) {  \
    if (below(path)) call(kStat);                                   \
    return REAL(name)(at, path, to, flags);                         \
  }
#define READ(name, offset)                                         \
  ssize_t name(int fd, void* to, size_t size, offset at) {         \
    if (is_ours(fd)) call(kRead);                                  \
    const ssize_t got = REAL(name)(fd, to, size, at);              \
    if (is_ours(fd)) transfer(got);                                \
    return got;                                                    \
  }
#define SEEK(name, offset)                                   \
  offset name(int fd, offset at, int from) {                 \
    if (is_ours(fd)) call(kSeek);                            \
    return REAL(name)(fd, at, from);                         \
  }
#define MAP(name, offset)                                                             \
  void* name(void* at, size_t size, int protection, int flags, int fd, offset from) { \
    void* mapped = REAL(name)(at, size, protection, flags, fd, from);                 \
    if (is_ours(fd) && mapped != MAP_FAILED) {                                        \
      call(kRead);                                                                    \
      transfer((ssize_t)size);                                                        \
    }                                                                                 \
    return mapped;                                                                    \
  }

OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)
STAT_AT(fstatat, stat)
STAT_AT(fstatat64, stat64)
READ(pread, off_t)
READ(pread64, off64_t)
SEEK(lseek, off_t)
SEEK(lseek64, off64_t)
MAP(mmap, off_t)
MAP(mmap64, off64_t)

ssize_t read(int fd, void* to, size_t size) {
  if (is_ours(fd)) call(kRead);
  const ssize_t got = REAL(read)(fd, to, size);
  if (is_ours(fd)) transfer(got);
  return got;
}

ssize_t readv(int fd, const struct iovec* to, int parts) {
  if (is_ours(fd)) call(kRead);
  const ssize_t got = REAL(readv)(fd, to, parts);
  if (is_ours(fd)) transfer(got);
  return got;
}

int close(int fd) {
  if (is_ours(fd)) {
    atomic_store(&ours[fd], 0);
    call(kClose);
  }
  return REAL(close)(fd);
}
