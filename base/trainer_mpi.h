// SPDX-License-Identifier: Apache-2.0
// Finds and starts the MPI of the trainer. wflow-train is built with Open MPI, which may lie in a portable
// archive, or with MPICH. With -DWFLOW_MPI="openmpi;mpich" there is wflow-train-mpich beside it, and an
// archive has both; that of the launcher runs, with the site's library.
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

// True if this launcher is MPICH's or of its family (Intel MPI). One that is just called mpirun is asked for
// its version.
bool is_launcher_of_mpich(const std::string& mpirun);

// The site's MPI library, libmpi.so.40 or, `mpich`, libmpi.so.12: in LD_LIBRARY_PATH, beside the launcher
// that started this process, beside the mpirun in PATH, or in a folder of the system.
std::optional<std::string> site_mpi(bool mpich);

// To be called first in main(). Becomes wflow-train-mpich where MPICH's launcher started wflow-train, and in
// an archive loads the site's library where the site's launcher started it. Returns if there is nothing to
// change. `built_with_mpich`: this program. Throws Error{system} if the site's library is needed and was not
// found.
void follow_launcher(bool built_with_mpich, char** argv);

// The words that start so many ranks of a program, which follows them. They switch binding off: two runs on
// one node would be bound to the same cores. More ranks than cores are allowed: such a training runs slowly.
std::vector<std::string> mpirun_words(const std::string& mpirun, std::int64_t ranks);

// Sets the variables that name the archive's folder, because Open MPI looks for its plugins where it was
// installed. Changes nothing if the process has loaded another libmpi, such as a preloaded one of the site.
// Call it while no other thread runs, after reading the variables of a launcher: the names resemble theirs.
void locate_bundled_open_mpi();

}  // namespace wflow

namespace wflow::trainer {

// True if this program was linked with MPICH or a library of its interface, false for Open MPI.
bool built_with_mpich();

}  // namespace wflow::trainer
