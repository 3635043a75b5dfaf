// SPDX-License-Identifier: Apache-2.0
#include "base/trainer_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/text.h"

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

namespace {

namespace fs = std::filesystem;

constexpr const char* kPreloaded = "WFLOW_PRELOADED_MPI";  // the library that follow_launcher() has put first
constexpr const char* kPreload = "LD_PRELOAD";

bool started_by_open_mpi() {
  return !environment_value("OMPI_COMM_WORLD_RANK").empty() || !environment_value("PMIX_RANK").empty();
}

// PMI is MPICH's; Open MPI and Slurm's plugin for it use PMIx. srun may set it for any program: one rank
// alone is no world.
bool started_by_mpich() {
  return text::to_integer(environment_value("PMI_SIZE")).value_or(0) > 1 && !started_by_open_mpi();
}

// The folders of libraries that belong to a program such as PREFIX/bin/mpirun.
void add_libraries_of(const fs::path& program, std::vector<fs::path>& folders) {
  if (program.empty()) return;
  const fs::path prefix = program.parent_path().parent_path();
  for (const char* name : {"lib", "lib64", "lib/release", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"})
    folders.push_back(prefix / name);
}

std::vector<fs::path> folders_of_libraries() {
  std::vector<fs::path> folders;
  for (const std::string& folder : text::split(environment_value("LD_LIBRARY_PATH"), ':'))
    if (!folder.empty()) folders.emplace_back(folder);
  add_libraries_of(program_of(std::to_string(::getppid())), folders);
  std::error_code ignored;
  if (const auto mpirun = find_program("mpirun")) add_libraries_of(fs::canonical(*mpirun, ignored), folders);
  for (const char* folder :
       {"/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib", "/usr/lib64/mpi/gcc/openmpi4/lib64",
        "/usr/lib64/mpi/gcc/mpich/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu", "/usr/lib"})
    folders.emplace_back(folder);
  return folders;
}

[[noreturn]] void start_other(const std::string& program, char** argv) {
  std::vector<std::string> words = {program};
  for (char** word = argv + 1; *word != nullptr; ++word) words.emplace_back(*word);
  become_program(std::move(words));
}

void preload(const std::string& library) {
  const std::string before = environment_value(kPreload);
  ::setenv(kPreload, (before.empty() ? library : library + ":" + before).c_str(), 1);
  ::setenv(kPreloaded, library.c_str(), 1);
}

void preload_mpich(const fs::path& bundled) {
  const auto library = site_mpi(true);
  if (!library)
    throw Error(
        ExitCode::system,
        fmt::format("MPICH's launcher started wflow-train, and its library libmpi.so.12 is neither in "
                    "LD_LIBRARY_PATH nor beside mpirun nor in the system's folders: load the module of that "
                    "MPI, or use {}/bin/mpirun",
                    bundled.string()));
  preload(*library);
}

// Simulators and other programs that this one starts have no use for the library. True if it had been
// preloaded.
bool forget_preload() {
  const std::size_t size = environment_value(kPreloaded).size();
  if (size == 0) return false;
  const std::string all = environment_value(kPreload);
  const std::string before = all.size() > size + 1 ? all.substr(size + 1) : "";
  before.empty() ? ::unsetenv(kPreload) : ::setenv(kPreload, before.c_str(), 1);
  ::unsetenv(kPreloaded);
  return true;
}

}  // namespace

std::optional<std::string> site_mpi(bool mpich) {
  // Debian gives MPICH's library a name of its own.
  const std::vector<const char*> names =
      mpich ? std::vector{"libmpi.so.12", "libmpich.so.12"} : std::vector{"libmpi.so.40"};
  for (const fs::path& folder : folders_of_libraries()) {
    for (const char* name : names) {
      if (const fs::path file = folder / name; ::access(file.c_str(), R_OK) == 0) return file.string();
    }
  }
  return std::nullopt;
}

void follow_launcher(bool built_with_mpich, char** argv) {
  if (forget_preload()) return;
  const std::string folder = executable_directory();
  const std::string other = folder + "/wflow-train-mpich";
  const auto bundled = bundled_open_mpi(folder);
  if (started_by_mpich() && (built_with_mpich || ::access(other.c_str(), X_OK) == 0)) {
    if (bundled) preload_mpich(*bundled);
    if (bundled || !built_with_mpich) start_other(other, argv);
    return;
  }
  // The archive's mpirun has named its folder.
  if (!bundled || !started_by_open_mpi() || *bundled == environment_value("OPAL_PREFIX")) return;
  // Without one, the archive's own library speaks to the site's launcher: Open MPI 4 to Open MPI 4.
  if (const auto library = site_mpi(false)) {
    preload(*library);
    start_other(folder + "/wflow-train", argv);
  }
}

bool is_launcher_of_mpich(const std::string& mpirun) {
  std::error_code ignored;
  const std::string name = fs::canonical(mpirun, ignored).filename().string();
  if (name.find("hydra") != std::string::npos || name.ends_with(".mpich")) return true;
  if (name != "mpirun" && name != "mpiexec") return false;  // orterun, prterun
  constexpr double kAnswer_s = 10;
  SpawnRequest request;
  request.argv = {mpirun, "--version"};
  const std::string version = run_command(request, kAnswer_s).out;
  return version.find("HYDRA") != std::string::npos || version.find("Intel(R) MPI") != std::string::npos;
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
  if (kTrainsOnMpich || is_launcher_of_mpich(mpirun)) return words;
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
