// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "cli/commands/commands.h"

int main(int argc, char** argv) {
  return wflow::run_main("wflow", wflow::cli::run_command, argc, argv);
}
