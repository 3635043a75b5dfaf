// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace wflow::engine::batch {

std::string script_file(const JobRequest& request) {
  return request.directory + "/" + request.token + ".sh";
}
std::string name_with_token(const JobRequest& request) {
  return request.name.empty() ? request.token : request.token + "." + request.name;
}

std::string token_in(const std::string& name) {
  return name.substr(0, name.find('.'));
}

std::string output_file(const JobRequest& request) {
  return request.directory + "/" + request.token + ".out";
}

std::string script_head(std::string_view scheduler, const Directives& directives) {
  return fmt::format(
      "#!/bin/bash\n# Made by wflow for {}: an allocation with a worker on each of its nodes.\n{}\n",
      scheduler, directives.text());
}

std::string script_setup(const JobRequest& request) {
  std::string text = fmt::format("cd {} || exit 1\n", text::shell_quote(request.directory));
  if (request.walltime_s > 0) {
    constexpr int kMinute_s = 60;
    text +=
        fmt::format("export WFLOW_ENDS_AT=$(($(date +%s) + {}))\n", minutes(request.walltime_s) * kMinute_s);
  }
  for (const std::string& line : request.setup) text += line + "\n";
  return text;
}

std::string launch_arguments(const JobRequest& request) {
  return request.launch_args.empty() ? "" : " " + request.launch_args;
}

namespace {

// `lines` start the workers; `start` the coordinator beside them. It has ended by itself where the campaign
// has; else the signal makes it hand over. The shell lives on when the scheduler sends SIGTERM to all: with
// it they would be killed at once.
std::string beside_coordinator(const JobRequest& request, const std::string& start,
                               const std::string& lines) {
  if (request.coordinator.empty()) return lines;
  return "trap : TERM\n" + start + " &\ncoordinator=$!\n" + lines +
         "workers=$?\nkill -USR1 $coordinator 2>/dev/null\n"
         "while kill -0 $coordinator 2>/dev/null; do wait $coordinator; done\n[ $workers = 0 ]\n";
}

// Both in shells of their own: the coordinator needs the environment that the workers prepare for themselves,
// and `spread` may end in exec, or wait for all of its shell's children.
std::string spread_lines(const JobRequest& request, std::string_view spread) {
  if (request.coordinator.empty()) return fmt::format("  {}\n", spread);
  const std::string start =
      fmt::format("(\n{}exec {}\n)", script_setup(request), command_line(request.coordinator));
  return beside_coordinator(request, start, fmt::format("(\n  {}\n)\n", spread));
}

}  // namespace

std::string launch_line(const JobRequest& request, std::string_view launcher) {
  std::string line = request.launch_pre.empty() ? "" : request.launch_pre + " ";
  line += request.worker_launch.empty() ? std::string(launcher) : request.worker_launch;
  return beside_coordinator(request, command_line(request.coordinator),
                            line + launch_arguments(request) + " " + command_line(request.command) + "\n");
}

std::string self_calling_body(const JobRequest& request, std::string_view spread) {
  if (!request.worker_launch.empty()) return script_setup(request) + launch_line(request, "");
  const std::string before = request.launch_pre.empty() ? "exec" : request.launch_pre;
  return fmt::format("if [ \"$1\" != agent ]; then\n  set -- /bin/bash -l {} agent\n{}  exit\nfi\n",
                     text::shell_quote(script_file(request)), spread_lines(request, spread)) +
         script_setup(request) + before + " " + command_line(request.command) + "\n";
}

std::string command_line(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(text::shell_quote(word));
  return text::join(quoted, " ");
}

long minutes(double seconds) {
  return std::max(1L, static_cast<long>(std::ceil(seconds / 60)));
}

std::string clock_time(double seconds) {
  const long total = minutes(seconds);
  return fmt::format("{:02}:{:02}:00", total / 60, total % 60);
}

void write_script(const JobRequest& request, const std::string& text) {
  std::filesystem::create_directories(request.directory);
  write_file_durably(script_file(request), text);
}

}  // namespace wflow::engine::batch
