// SPDX-License-Identifier: Apache-2.0
#include "base/trainer_mpi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

#include "base/process.h"
#include "base/version.h"

namespace wflow {

namespace {

// The folder of the MPI library in this process; empty without one.
std::filesystem::path loaded_mpi() {
  Dl_info library{};
  const void* function = ::dlsym(RTLD_DEFAULT, "MPI_Init");
  if (function == nullptr || ::dladdr(function, &library) == 0 || library.dli_fname == nullptr) return {};
  return std::filesystem::path(library.dli_fname).parent_path();
}

}  // namespace

std::optional<std::filesystem::path> bundled_open_mpi(const std::filesystem::path& program_folder) {
  auto folder = program_folder.parent_path() / "lib" / "openmpi";
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "bin" / "mpirun", ignored)) return std::nullopt;
  return folder;
}

const char* mpirun_name() {
  return kTrainsOnMpich ? "mpirun.mpich" : "mpirun.openmpi";
}

std::optional<std::string> find_mpirun() {
  if (const auto bundled = bundled_open_mpi(executable_directory()))
    return (*bundled / "bin" / "mpirun").string();
  auto found = find_program(mpirun_name());
  return found ? found : find_program("mpirun");
}

std::vector<std::string> mpirun_words(const std::string& mpirun, std::int64_t ranks) {
  std::vector<std::string> words = {mpirun, "-n", std::to_string(ranks), "--bind-to", "none"};
  if (kTrainsOnMpich) return words;
  words.emplace_back("--oversubscribe");
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  return words;
}

void locate_bundled_open_mpi() {
  const auto bundled = bundled_open_mpi(executable_directory());
  std::error_code error;
  if (!bundled || !std::filesystem::equivalent(loaded_mpi(), bundled->parent_path(), error)) return;
  // The same variables as in lib/openmpi/bin/mpirun (scripts/packaging/mpirun).
  const std::string prefix = bundled->string();
  for (const char* name : {"OPAL_PREFIX", "PMIX_PREFIX"}) ::setenv(name, prefix.c_str(), 1);
  for (const char* name : {"OPAL_LIBDIR", "PMIX_LIBDIR"}) ::setenv(name, (prefix + "/lib").c_str(), 1);
  ::setenv("PMIX_DATADIR", (prefix + "/share").c_str(), 1);
  ::setenv("OPAL_SYSCONFDIR", (prefix + "/etc").c_str(), 1);
}

}  // namespace wflow
