// SPDX-License-Identifier: Apache-2.0
// Records in the formats of GNU parallel's --joblog and --results: a line for each command, and its output in
// files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/campaign/selection.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

struct RecordOptions {
  std::filesystem::path joblog;   // a file; empty: none
  std::filesystem::path results;  // a folder; empty: none
  // The name of each value of a command in `results`, and its column of the samples.
  std::vector<std::pair<std::string, std::string>> values;
  bool any() const { return !joblog.empty() || !results.empty(); }
};

class ExecRecords {
 public:
  // Begins the job log. Error{system} if a path can't be written.
  explicit ExecRecords(RecordOptions options);

  // Adds the commands from `first` on that have ended, while no process coordinates the campaign.
  void add(const specs::Plan& plan, specs::Element first);

 private:
  RecordOptions options_;
  FileDescriptor log_;
};

// "Seq Host Starttime JobRuntime Send Receive Exitval Signal Command", separated by tabs, with a line end.
std::string joblog_line(const TaskRow& row, std::uint64_t out_bytes, std::string_view command);

// An argument as the name of a folder: a slash becomes "\_", a backslash "\\", a tab "\t".
std::string folder_name(std::string_view argument);

}  // namespace wflow::cli
