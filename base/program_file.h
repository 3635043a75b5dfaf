// SPDX-License-Identifier: Apache-2.0
// Which file a process runs. An archive (scripts/package archive) starts PREFIX/libexec/NAME from
// PREFIX/bin/NAME, and on a machine with an older glibc it does so by a dynamic linker of its own
// (scripts/packaging/launcher.c). The kernel names that linker, then, and the program is one of its
// arguments.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace wflow {

// The file of a process's program: "self", or a number. Empty if the process has ended or belongs to another
// user.
std::filesystem::path program_of(const std::string& pid);

// The file that a user calls for it: PREFIX/bin/NAME of an archive, else the program itself.
std::filesystem::path called_as(const std::filesystem::path& program);

// The program behind such a file: PREFIX/libexec/NAME of an archive, else the file itself.
std::filesystem::path program_behind(const std::filesystem::path& file);

// A library or plugin of this installation, PREFIX/lib/wflow/NAME. It may not be there.
std::filesystem::path installed_library(const std::string& name);

// True if this process runs with the glibc of its archive.
bool has_own_glibc();

// Runs words[0], a path or a name in PATH, with these words in place of this process, which keeps its number
// and its environment. Throws Error{system}.
[[noreturn]] void become_program(std::vector<std::string> words);

extern const char* const kVersion;  // "0.2.0"
extern const bool kHasConverter;    // wflow-convert was built (-DWFLOW_HDF5=ON)
extern const bool kHasTrainer;      // wflow-train was built (-DWFLOW_TRAINER=ON)
extern const bool kHasTorch;        // wflow-train was built with libtorch (-DWFLOW_TORCH=ON)
extern const bool kTrainsOnMpich;   // wflow-train was built with MPICH, not with Open MPI (-DWFLOW_MPI=mpich)

}  // namespace wflow
