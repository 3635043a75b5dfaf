// SPDX-License-Identifier: Apache-2.0
// Expected failures: a sentence for the user, an exit code for programs.
#pragma once

#include <stdexcept>
#include <string>

namespace cola {

enum class ExitCode {
  ok = 0,
  failed = 1,  // the simulation itself failed, or a bug
  usage = 2,   // an option is unknown, missing or out of its range
  input = 3,   // an input file cannot be read or is wrong
  output = 4,  // the result cannot be written
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace cola
