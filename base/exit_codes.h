// SPDX-License-Identifier: Apache-2.0
// The exit codes of error.h in words, for help texts and manual pages. docs/exit-codes.md says the same; a
// test compares them.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"

namespace wflow {

struct ExitCodeText {
  ExitCode code;
  std::string_view name;
  std::string_view meaning;
  std::string_view advice;  // may be empty
};

std::span<const ExitCodeText> exit_codes();

}  // namespace wflow
