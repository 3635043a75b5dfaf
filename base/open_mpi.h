// SPDX-License-Identifier: Apache-2.0
// Finds the Open MPI that the trainer uses: the one in a portable archive, or the installed one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace wflow {

// The folder PREFIX/lib/openmpi of the portable archive (scripts/package archive) whose programs lie in
// `program_folder` (PREFIX/bin). Nothing if they lie elsewhere.
std::optional<std::filesystem::path> bundled_open_mpi(const std::filesystem::path& program_folder);

// The mpirun for wflow-train: that of the archive, else mpirun.openmpi, else mpirun. Debian installs MPICH's
// mpirun beside Open MPI's.
std::optional<std::string> find_mpirun();

// Sets the variables that name the archive's folder, because Open MPI looks for its plugins where it was
// installed. Changes nothing if the process has loaded another libmpi, such as a preloaded one of the site.
// Call it while no other thread runs, after reading the variables of a launcher: the names resemble theirs.
void locate_bundled_open_mpi();

}  // namespace wflow
