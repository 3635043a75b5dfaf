// SPDX-License-Identifier: Apache-2.0
// The study that `wflow exec` runs: one step, and the table of its arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/folders.h"
#include "cli/exec/placeholders.h"
#include "cli/exec/words.h"
#include "specs/study/study.h"

namespace wflow::cli {

// What the command line asked for.
struct ExecOptions {
  ExecWords words;
  std::string line;                     // the whole of it, for the record
  std::string name;                     // of the campaign; empty: the program's
  std::filesystem::path directory;      // where campaigns go; empty: ./wflow-exec
  std::string arguments_file;           // in place of standard input
  std::string samples;                  // --samples
  std::string design;                   // --design
  std::uint64_t count = 0, seed = 0;    // of the design
  std::vector<std::string> parameters;  // NAME=LOW:HIGH, NAME=A,B,C
  int retries = 0;
  std::string timeout, memory;
  int cores = 1;
  std::vector<std::pair<std::string, std::string>> hooks;  // on: EVENT, COMMAND
};

inline constexpr const char* kExecStep = "exec";

// Holds what a campaign is made of until it is made: a study and, where there are arguments, their table.
class ExecStudy {
 public:
  // Reads all of the input where the arguments come from there. Throws Error.
  explicit ExecStudy(const ExecOptions& options);
  ExecStudy(const ExecStudy&) = delete;
  ExecStudy& operator=(const ExecStudy&) = delete;
  ~ExecStudy();

  // Nothing: there is no argument, and so no command.
  std::optional<specs::StudyAndWarnings> read() const;

 private:
  // The samples: block.
  std::string write_table(ExecOptions options, const std::vector<ArgumentColumn>& columns);

  std::optional<StagingFolder> folder_;
  bool empty_ = false;
};

}  // namespace wflow::cli
