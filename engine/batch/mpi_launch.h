// SPDX-License-Identifier: Apache-2.0
// How an MPI program starts on the nodes of a task: by the innermost manager, with what its MPI library
// needs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wflow::engine::batch {

enum class MpiLibrary { unknown, open_mpi, mpich };

// The MPI library of a program, by the names of the libraries that it needs. `unknown` for scripts.
MpiLibrary mpi_library_of(const std::filesystem::path& program);

struct MpiLaunch {
  std::string manager;                 // "slurm", "flux", "lsf", "pbs", "sge"; empty: none
  std::vector<std::string> nodes;      // by their names; empty: this one
  std::vector<std::string> job_nodes;  // of the whole allocation, in the manager's order
  int procs = 1;
  MpiLibrary library = MpiLibrary::unknown;
  std::vector<std::string> mpi_types;  // that srun knows (srun --mpi=list)
  std::vector<std::string> options;    // the user's, of the manager's launcher
  bool root = false;
};

// The words before the program and its arguments. Throws Error{usage} if the user's options would start the
// program as many worlds of one process each.
std::vector<std::string> launch_words(const MpiLaunch& launch);

// Variables of the launcher's environment, in place of those that are there.
std::vector<std::pair<std::string, std::string>> launch_variables(const MpiLaunch& launch);

// The names in the answer of `srun --mpi=list`.
std::vector<std::string> parse_mpi_types(std::string_view answer);

}  // namespace wflow::engine::batch
