// SPDX-License-Identifier: Apache-2.0
// Finds and starts the MPI that the trainer was built with: Open MPI, which may lie in a portable archive, or
// MPICH.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace wflow {

// The folder PREFIX/lib/openmpi of the portable archive (scripts/package archive) whose programs lie in
// `program_folder` (PREFIX/bin). Nothing if they lie elsewhere.
std::optional<std::filesystem::path> bundled_open_mpi(const std::filesystem::path& program_folder);

// "mpirun.openmpi" or "mpirun.mpich": Debian's names, where both may be installed.
const char* mpirun_name();

// The mpirun for wflow-train: that of the archive, else mpirun_name(), else mpirun.
std::optional<std::string> find_mpirun();

// The words that start so many ranks of a program, which follows them. They switch binding off: two runs on
// one node would be bound to the same cores. More ranks than cores are allowed: such a training runs slowly.
std::vector<std::string> mpirun_words(const std::string& mpirun, std::int64_t ranks);

// Sets the variables that name the archive's folder, because Open MPI looks for its plugins where it was
// installed. Changes nothing if the process has loaded another libmpi, such as a preloaded one of the site.
// Call it while no other thread runs, after reading the variables of a launcher: the names resemble theirs.
void locate_bundled_open_mpi();

}  // namespace wflow
