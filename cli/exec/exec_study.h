// SPDX-License-Identifier: Apache-2.0
// The study that `wflow exec` runs: one step, and the table of its arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/folders.h"
#include "cli/campaign/selection.h"
#include "cli/exec/arguments.h"
#include "cli/exec/placeholders.h"
#include "engine/monitor/status.h"
#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::cli {

// The rule of `wflow exec --halt`, as GNU parallel has it: when to stop before all commands have run.

struct HaltRule {
  enum class When { never, soon, now };  // soon: running commands end; now: they are killed
  enum class What { fail, success, done };
  When when = When::never;
  What what = What::fail;
  std::uint64_t count = 1;
  double percent = 0;  // above 0: of all commands, instead of `count`
};

// "never", "soon,fail=3", "now,success=1", "soon,fail=10%", and 0, 1, 2 for never, soon,fail=1, now,fail=1.
// Error{usage} for anything else.
HaltRule read_halt(std::string_view text);

// The `max_failures` of a step: the scheduler starts nothing after that failure.
std::string max_failures_of(const HaltRule& rule);

bool is_met(const HaltRule& rule, const engine::CampaignStatus& status);

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
  HaltRule halt;
  std::string tag;           // a text with placeholders before each line of output; empty: none
  bool with_values = false;  // the table must have the arguments as they were given
  bool all_at_once = false;  // reads the whole input before the first command starts
};

inline constexpr const char* kExecStep = "exec";

// Holds the input of a campaign: a study and, for arguments, their table, which grows while lines come.
class ExecStudy {
 public:
  // Waits for the first lines, if the arguments come from standard input or a file. Throws Error.
  explicit ExecStudy(const ExecOptions& options);
  ExecStudy(const ExecStudy&) = delete;
  ExecStudy& operator=(const ExecStudy&) = delete;
  ~ExecStudy();

  // Empty if there is no argument, and so no command.
  std::optional<specs::StudyAndWarnings> read() const;

  // True if no further arguments come.
  bool ended() const { return !lines_ || lines_->ended(); }
  // Waits for further lines and adds them to the table; false if the input, or the wait, has ended without
  // one. The more often it is called, the longer it collects lines: each call costs a version of the study.
  bool read_more(const WaitUntil& until);
  // The table of all arguments so far.
  const std::filesystem::path& table() const { return table_->file(); }

  const ExecText& tag() const { return tag_; }
  // The names of the values of a command, and the columns of the table that have them.
  const std::vector<std::pair<std::string, std::string>>& values() const { return values_; }

 private:
  // Returns the samples: block.
  std::string write_table(ExecOptions options, std::vector<ArgumentColumn> columns);
  void open_lines(const ExecOptions& options);

  std::optional<StagingFolder> folder_;
  std::optional<ArgumentTable> table_;
  FileDescriptor file_;  // of arguments; closed: standard input
  std::optional<LineStream> lines_;
  double wait_s_ = 0;
  bool empty_ = false;
  ExecText tag_;
  std::vector<std::pair<std::string, std::string>> values_;
};

// Records in the formats of GNU parallel's --joblog and --results: a line for each command, and its output in
// files.

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
