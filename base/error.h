// SPDX-License-Identifier: Apache-2.0
// The one error type of wflow: a code for programs and one sentence for users.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace wflow {

// Exit codes of every wflow program. docs/exit-codes.md is the same table for users; both change together.
enum class ExitCode : int {
  ok = 0,
  tasks_failed = 1,  // the campaign ended, and some of its tasks have failed for good
  usage = 2,         // the command line is wrong
  spec = 3,          // the YAML file is wrong
  data = 4,          // an input file (samples, simulation output, shard, checkpoint) is wrong
  system = 5,        // the machine refused: disk full, permission, missing program, socket
  interrupted = 6,   // stopped before the end by the user or a time limit; can be resumed
  busy = 7,          // another coordinator runs this campaign
  version = 8,       // a file or a peer is of a newer format than this program knows
  internal = 70,     // a defect in wflow
};

// Thrown for expected failures. what() is one sentence that says what happened, where, and what to do; it is
// printed unchanged.
class Error : public std::runtime_error {
 public:
  explicit Error(ExitCode code, const std::string& sentence, int error_number = 0)
      : std::runtime_error(sentence), code_(code), error_number_(error_number) {}
  ExitCode code() const { return code_; }
  // The errno of the failed call; 0: none.
  int error_number() const { return error_number_; }

 private:
  ExitCode code_;
  int error_number_;
};

// An Error of code `system` that ends with the text of errno `error_number`.
Error system_error(int error_number, const std::string& what_and_where);

// True if the disk is the cause: full, over quota, read-only, broken. A later attempt may succeed.
bool is_disk_trouble(const Error& error);

// Runs a program's body: prints the message of an exception as one line on stderr ("wflow: ...") and turns it
// into the exit code. Every main() of wflow is this call.
int run_main(const char* program, int (*body)(int, char**), int argc, char** argv);

// Aborts with file and line. For invariants: a broken one must stop the program, in release builds too,
// because the campaign recovers from the store, but not from a wrong state.
[[noreturn]] void broken_invariant(const char* condition, const char* file, int line);
#define WFLOW_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::wflow::broken_invariant(#condition, __FILE__, __LINE__))

// An exit code in words, for help texts and manual pages. docs/exit-codes.md has the same table; a test
// compares them.
struct ExitCodeText {
  ExitCode code;
  std::string_view name;
  std::string_view meaning;
  std::string_view advice;  // may be empty
};

std::span<const ExitCodeText> exit_codes();

}  // namespace wflow
