// SPDX-License-Identifier: Apache-2.0
// The options of run, validate and plan that say how a study is read.
#pragma once

#include <CLI/CLI.hpp>

#include "specs/study/study.h"

namespace wflow::cli {

// --vars, --samplesfile, --pgen, --pargs, --strict
void add_read_options(CLI::App& command, specs::ReadOptions& options);

}  // namespace wflow::cli
