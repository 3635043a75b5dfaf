// SPDX-License-Identifier: Apache-2.0
// The common parts of the submission scripts of all schedulers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

// DIRECTORY/TOKEN.sh and .out: the script and its output.
std::string script_file(const JobRequest& request);
std::string output_file(const JobRequest& request);

// The job's name where the scheduler finds jobs by name: "wa1b2c3001001.survey-sim-3", the token and the name
// for users.
std::string name_with_token(const JobRequest& request);
std::string token_in(const std::string& name);

// The script's lines of options: "#SBATCH --nodes=2".
class Directives {
 public:
  explicit Directives(std::string_view mark) : mark_(mark) {}
  void add(std::string_view option) { text_ += std::string(mark_) + " " + std::string(option) + "\n"; }
  // Adds nothing if the value is empty.
  void add(std::string_view option, std::string_view value) {
    if (!value.empty()) add(std::string(option) + std::string(value));
  }
  void add(const std::vector<std::string>& verbatim) {
    for (const std::string& option : verbatim) add(option);
  }
  const std::string& text() const { return text_; }

 private:
  std::string_view mark_;
  std::string text_;
};

// #!, the line that names wflow as the author, the directives.
std::string script_head(std::string_view scheduler, const Directives& directives);
// Enters the directory, exports the job's end if the script can tell it (WFLOW_ENDS_AT, for the workers),
// then the user's lines.
std::string script_setup(const JobRequest& request);
// launch_args with a blank before them; empty if there are none.
std::string launch_arguments(const JobRequest& request);
// `launcher` and the command, with the user's launcher options.
std::string launch_line(const JobRequest& request, std::string_view launcher);

// For schedulers whose launcher starts programs with a bare environment: the script calls itself on every
// node with the argument "agent" and prepares the environment there again. `spread` is a line that starts
// "$@" on each node.
std::string self_calling_body(const JobRequest& request, std::string_view spread);

std::string command_line(const std::vector<std::string>& words);  // quoted for a shell

std::string clock_time(double seconds);  // "26:03:00", rounded up to whole minutes
long minutes(double seconds);            // rounded up, at least 1

// Writes the script. Throws Error{system}.
void write_script(const JobRequest& request, const std::string& text);

}  // namespace wflow::engine::batch
