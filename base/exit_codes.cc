// SPDX-License-Identifier: Apache-2.0
#include "base/exit_codes.h"

namespace wflow {

namespace {

constexpr ExitCodeText kExitCodes[] = {
    {ExitCode::ok, "ok", "done", ""},
    {ExitCode::tasks_failed, "tasks_failed", "the campaign has ended, and some tasks have failed for good",
     "`wflow status`, `wflow logs`"},
    {ExitCode::usage, "usage", "the command line is wrong", "`--help`"},
    {ExitCode::spec, "spec", "the YAML file is wrong", "correct the lines named"},
    {ExitCode::data, "data", "an input file is wrong: samples, simulation output, shard, checkpoint",
     "see the file named"},
    {ExitCode::system, "system", "the machine refused: disk full, permission, missing program, socket",
     "`wflow doctor`; then `wflow resume`"},
    {ExitCode::interrupted, "interrupted",
     "stopped before the end, by Ctrl-C, a signal or a time limit; or tasks were cancelled",
     "`wflow resume`; `wflow retry` runs cancelled tasks"},
    {ExitCode::busy, "busy", "another coordinator runs this campaign", "`wflow status`"},
    {ExitCode::version, "version", "a file or a peer is of another format", "use that version of wflow"},
    {ExitCode::internal, "internal", "a defect in wflow", "please report it"},
};

}  // namespace

std::span<const ExitCodeText> exit_codes() {
  return kExitCodes;
}

}  // namespace wflow
