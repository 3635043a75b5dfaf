/* SPDX-License-Identifier: Apache-2.0
 * PREFIX/bin/NAME of the archive: becomes PREFIX/libexec/NAME. Where the machine's glibc has the version that the
 * archive needs, its dynamic linker runs the program, so that libraries of the site (MPI, name services, plugins) fit.
 * Elsewhere the linker and the glibc of PREFIX/lib/glibc do. Compiled statically, it runs on any Linux.
 *
 * GLIBC: "GLIBC_2.36", the version that all programs and libraries of the archive need at most.
 * base/program_file.cc knows the order of the linker's arguments. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAILED 5 /* ExitCode::system */

/* A libc.so.6 lists the names of all versions that it has. */
static int has_version(const char *library) {
  const int file = open(library, O_RDONLY | O_CLOEXEC);
  struct stat status;
  int found = 0;
  if (file < 0) return 0;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    void *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes != MAP_FAILED) {
      found = memmem(bytes, status.st_size, GLIBC, sizeof GLIBC) != NULL; /* with its final zero */
      munmap(bytes, status.st_size);
    }
  }
  close(file);
  return found;
}

/* The linker loads the first of these: Debian and its relatives, Red Hat and SUSE, Arch. */
static int machine_suffices(void) {
  static const char *const places[] = {"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"};
  if (access("/lib64/ld-linux-x86-64.so.2", X_OK) != 0) return 0;
  for (size_t k = 0; k < sizeof places / sizeof *places; ++k)
    if (access(places[k], R_OK) == 0) return has_version(places[k]);
  return 0;
}

/* Ends the path before its last part, and returns that part. */
static char *split_off(char *path) {
  char *slash = strrchr(path, '/');
  if (slash == NULL) return NULL;
  *slash = '\0';
  return slash + 1;
}

/* Returns why it could not. */
static int run_by_own_linker(const char *prefix, const char *program, int argc, char **argv) {
  /* Open MPI's programs lie in PREFIX/lib/openmpi/bin. */
  static const char *const places[] = {"lib/glibc", "../glibc"};
  const char *after = getenv("LD_LIBRARY_PATH"); /* --library-path takes its place */
  char **words = malloc((argc + 6) * sizeof *words);
  if (words == NULL) return ENOMEM;
  for (int k = 0; k < 2; ++k) {
    char *linker = NULL, *folders = NULL;
    if (asprintf(&linker, "%s/%s/ld-linux-x86-64.so.2", prefix, places[k]) < 0) return ENOMEM;
    if (access(linker, X_OK) != 0) continue;
    if (asprintf(&folders, "%s/%s%s%s", prefix, places[k], after && *after ? ":" : "", after ? after : "") < 0) return ENOMEM;
    char *const head[] = {linker, "--library-path", folders, "--argv0", argv[0], (char *)program};
    memcpy(words, head, sizeof head);
    memcpy(words + 6, argv + 1, argc * sizeof *words); /* with the final NULL */
    execv(linker, words);
    return errno;
  }
  return ENOENT;
}

int main(int argc, char **argv) {
  char prefix[PATH_MAX], program[PATH_MAX + 16];
  const ssize_t size = readlink("/proc/self/exe", prefix, sizeof prefix - 1);
  const char *name = NULL;
  int problem;
  if (size < 0 || argc < 1) {
    fprintf(stderr, "wflow: cannot read /proc/self/exe: is /proc mounted?\n");
    return FAILED;
  }
  prefix[size] = '\0';
  name = split_off(prefix);
  split_off(prefix);
  snprintf(program, sizeof program, "%s/libexec/%s", prefix, name);
  if (machine_suffices()) {
    execv(program, argv);
    problem = errno;
  } else {
    problem = run_by_own_linker(prefix, program, argc, argv);
  }
  fprintf(stderr, "%s: cannot start %s: %s; unpack the archive again\n", name, program, strerror(problem));
  return FAILED;
}
