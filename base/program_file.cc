// SPDX-License-Identifier: Apache-2.0
#include "base/program_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow {

namespace {

namespace fs = std::filesystem;

fs::path executable_of(const std::string& pid) {
  std::error_code error;
  return fs::read_symlink("/proc/" + pid + "/exe", error);
}

bool is_linker(const fs::path& program) {
  return program.filename().string().starts_with("ld-linux-");
}

// PREFIX/TO/NAME for PREFIX/FROM/NAME, if there is such a program.
fs::path counterpart(const fs::path& file, const char* from, const char* to) {
  if (file.parent_path().filename() != from) return file;
  fs::path other = file.parent_path().parent_path() / to / file.filename();
  return ::access(other.c_str(), X_OK) == 0 ? other : file;
}

}  // namespace

fs::path program_of(const std::string& pid) {
  const fs::path executable = executable_of(pid);
  if (!is_linker(executable)) return executable;
  // LINKER --library-path FOLDERS --argv0 NAME PROGRAM ...: the launcher's words.
  constexpr std::size_t kProgram = 5;
  std::ifstream file("/proc/" + pid + "/cmdline", std::ios::binary);
  const std::string words((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<std::string> argv = text::split(words, '\0');
  return argv.size() > kProgram ? fs::path(argv[kProgram]) : executable;
}

fs::path called_as(const fs::path& program) {
  return counterpart(program, "libexec", "bin");
}

fs::path program_behind(const fs::path& file) {
  return counterpart(file, "bin", "libexec");
}

bool has_own_glibc() {
  return is_linker(executable_of("self"));
}

std::filesystem::path installed_library(const std::string& name) {
  return std::filesystem::path(executable_directory()).parent_path() / "lib" / "wflow" / name;
}

void become_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  throw system_error(errno, "cannot start " + words[0]);
}

// CMake defines WFLOW_VERSION and the parts, 0 or 1, for this file only, so that a new version does not
// recompile everything.
const char* const kVersion = WFLOW_VERSION;
const bool kHasConverter = WFLOW_HDF5 != 0;
const bool kHasTrainer = WFLOW_TRAINER != 0;
const bool kHasTorch = WFLOW_TORCH != 0;
const bool kTrainsOnMpich = WFLOW_TRAINS_ON_MPICH != 0;

}  // namespace wflow
