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
    text += fmt::format("export WFLOW_ENDS_AT=$(($(date +%s) + {}))\n", minutes(request.walltime_s) * kMinute_s);
  }
  for (const std::string& line : request.setup) text += line + "\n";
  return text;
}

std::string launch_arguments(const JobRequest& request) {
  return request.launch_args.empty() ? "" : " " + request.launch_args;
}

std::string launch_line(const JobRequest& request, std::string_view launcher) {
  std::string line = request.launch_pre.empty() ? "" : request.launch_pre + " ";
  line += request.worker_launch.empty() ? std::string(launcher) : request.worker_launch;
  return line + launch_arguments(request) + " " + command_line(request.command) + "\n";
}

std::string self_calling_body(const JobRequest& request, std::string_view spread) {
  if (!request.worker_launch.empty()) return script_setup(request) + launch_line(request, "");
  const std::string before = request.launch_pre.empty() ? "exec" : request.launch_pre;
  return fmt::format("if [ \"$1\" != agent ]; then\n  set -- /bin/bash -l {} agent\n  {}\n  exit\nfi\n",
                     text::shell_quote(script_file(request)), spread) +
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
