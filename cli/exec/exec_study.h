// SPDX-License-Identifier: Apache-2.0
// The study that `wflow exec` runs: one step, and the table of its arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/folders.h"
#include "cli/exec/arguments.h"
#include "cli/exec/placeholders.h"
#include "specs/study/study.h"

namespace wflow::cli {

// The options of the command line.
struct ExecOptions {
  ExecWords words;
  std::string line;                     // the whole command line, for the record
  std::string name;                     // name of the campaign; empty: the program's
  std::filesystem::path directory;      // directory of campaigns; empty: ./wflow-exec
  std::string arguments_file;           // read instead of standard input
  std::string samples;                  // --samples
  std::string design;                   // --design
  std::uint64_t count = 0, seed = 0;    // for the design
  std::vector<std::string> parameters;  // NAME=LOW:HIGH, NAME=A,B,C
  int retries = 0;
  std::string timeout, memory;
  int cores = 1;
  std::vector<std::pair<std::string, std::string>> hooks;  // on: EVENT, COMMAND
};

inline constexpr const char* kExecStep = "exec";

// Holds the input of a campaign until that is created: a study and, for arguments, their table.
class ExecStudy {
 public:
  // Reads all of standard input if the arguments come from there. Throws Error.
  explicit ExecStudy(const ExecOptions& options);
  ExecStudy(const ExecStudy&) = delete;
  ExecStudy& operator=(const ExecStudy&) = delete;
  ~ExecStudy();

  // Empty if there is no argument, and so no command.
  std::optional<specs::StudyAndWarnings> read() const;

 private:
  // Returns the samples: block.
  std::string write_table(ExecOptions options, const std::vector<ArgumentColumn>& columns);

  std::optional<StagingFolder> folder_;
  bool empty_ = false;
};

}  // namespace wflow::cli
