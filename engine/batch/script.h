// SPDX-License-Identifier: Apache-2.0
// What the submission scripts of all schedulers have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

// DIRECTORY/TOKEN.sh and .out: where the script is written, and what it prints.
std::string script_file(const JobRequest& request);
std::string output_file(const JobRequest& request);

// Its lines of options: "#SBATCH --nodes=2".
class Directives {
 public:
  explicit Directives(std::string_view mark) : mark_(mark) {}
  void add(std::string_view option) { text_ += std::string(mark_) + " " + std::string(option) + "\n"; }
  // Nothing where the value is empty.
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

// #!, who wrote it, the directives.
std::string script_head(std::string_view scheduler, const Directives& directives);
// The directory, when the job ends as far as the script knows (WFLOW_ENDS_AT, for the workers), the user's
// lines.
std::string script_setup(const JobRequest& request);
// launch_args with a blank before them; empty where there are none.
std::string launch_arguments(const JobRequest& request);
// `launcher` and the command, with the user's own words for it.
std::string launch_line(const JobRequest& request, std::string_view launcher);

// Of schedulers whose launcher starts programs with a bare environment: the script calls itself on every node
// with the argument "agent", and there prepares the environment again. `spread` is a line that starts "$@" on
// each node.
std::string self_calling_body(const JobRequest& request, std::string_view spread);

std::string command_line(const std::vector<std::string>& words);  // quoted for a shell

std::string clock_time(double seconds);  // "26:03:00", rounded up to whole minutes
long minutes(double seconds);            // rounded up, at least 1

// Writes the script. Throws Error{system}.
void write_script(const JobRequest& request, const std::string& text);

}  // namespace wflow::engine::batch
