// SPDX-License-Identifier: Apache-2.0
// $(LAUNCHER) and $(VLAUNCHER): the command that starts a parallel program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

// The keys of a launcher have their parameters replaced (Expansion::launcher_keys).

// The step's own batch type, else the study's.
std::string batch_type(const Study& study, const LauncherKeys& keys);

// The part before ".sh", ".out" and ".err" in the names of a step's files: with Merlin ".slurm" for Slurm,
// Flux and LSF, with Maestro the scheduler's own name; else empty.
std::string script_suffix(const Study& study, const LauncherKeys& keys);

// The resources that a task takes from its worker. Merlin's GPUs are only arguments of the launcher, and may
// belong to other nodes than the worker's: such a task waits for none.
Resources slot_resources(const Study& study, Resources resources);

std::string launcher(const Study& study, const LauncherKeys& keys, const Resources& resources);

// Replaces every $(LAUNCHER) of `script` by the launcher, and Maestro's $(LAUNCHER)[2n, 4p] by a launcher of
// that many nodes and processes.
std::string put_launchers(std::string_view script, const Study& study, const LauncherKeys& keys,
                          const Resources& resources);

// An error in the brackets behind a $(LAUNCHER) of `script`.
struct LauncherProblem {
  std::string brackets;  // with their content
  std::string message;
};
std::vector<LauncherProblem> check_launchers(std::string_view script, const Step& step);

// The same with ${MERLIN_NODES}, ${MERLIN_PROCS}, ${MERLIN_CORES}, ${MERLIN_GPUS} for the numbers, so that
// the script can choose them while it runs.
std::string variable_launcher(const Study& study, const LauncherKeys& keys, const Resources& resources);

// Lines that set those of the four variables that `script` does not set itself; empty if it has no
// $(VLAUNCHER).
std::string launcher_defaults(const Resources& resources, const std::string& script);

}  // namespace wflow::specs
