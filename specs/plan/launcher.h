// SPDX-License-Identifier: Apache-2.0
// $(LAUNCHER) and $(VLAUNCHER): what stands before a parallel program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

// The step's own batch type, else the study's.
std::string batch_type(const Study& study, const Step& step);

// What stands before ".sh", ".out" and ".err" in the names of a step's files: with Merlin ".slurm" for Slurm,
// Flux and LSF, with Maestro the scheduler's own name; else nothing.
std::string script_suffix(const Study& study, const Step& step);

// What a task takes of its worker. Merlin's GPUs are words on the launcher's command line, and may be those
// of nodes beyond the worker's: such a task waits for none.
Resources slot_resources(const Study& study, Resources resources);

std::string launcher(const Study& study, const Step& step, const Resources& resources);

// Puts the launcher in for every $(LAUNCHER) of `script`, and in for $(LAUNCHER)[2n, 4p], Maestro's, one of
// so many nodes and processes.
std::string put_launchers(std::string_view script, const Study& study, const Step& step,
                          const Resources& resources);

// What is wrong with the brackets behind the $(LAUNCHER)s of `script`.
struct LauncherProblem {
  std::string brackets;  // with what is in them
  std::string message;
};
std::vector<LauncherProblem> check_launchers(std::string_view script, const Step& step);

// The same with ${MERLIN_NODES}, ${MERLIN_PROCS}, ${MERLIN_CORES}, ${MERLIN_GPUS} for the numbers, so that
// the script can choose them while it runs.
std::string variable_launcher(const Study& study, const Step& step);

// Lines that set those of the four that `script` does not set itself; empty where it has no $(VLAUNCHER).
std::string launcher_defaults(const Resources& resources, const std::string& script);

}  // namespace wflow::specs
