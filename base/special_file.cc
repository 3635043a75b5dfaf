// SPDX-License-Identifier: Apache-2.0
#include "base/special_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/file.h"

namespace wflow {

bool is_special_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) return !S_ISDIR(status.st_mode);
  const std::string text = path.lexically_normal().string();
  return text.starts_with("/dev/") || text.starts_with("/proc/");
}

void write_special_file(const std::filesystem::path& path, std::string_view bytes) {
  struct stat named {};
  struct stat output {};
  const bool is_output = ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
                         named.st_dev == output.st_dev && named.st_ino == output.st_ino;
  if (is_output) {
    std::fflush(stdout);  // what was printed before comes before
    return write_all(STDOUT_FILENO, bytes, path);
  }
  write_all(open_file(path, O_WRONLY).get(), bytes, path);
}

}  // namespace wflow
