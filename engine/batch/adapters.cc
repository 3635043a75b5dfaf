// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"

namespace wflow::engine::batch {

namespace {

std::string command_line(const std::vector<std::string>& words) {  // quoted for a shell
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(text::shell_quote(word));
  return text::join(quoted, " ");
}

// Rounded up, at least 1.
long minutes(double seconds) {
  return std::max(1L, static_cast<long>(std::ceil(seconds / 60)));
}

Values common_values(const JobRequest& request, std::string_view mark) {
  const auto number = [](long value) { return value > 0 ? std::to_string(value) : std::string(); };
  const long time = request.walltime_s > 0 ? minutes(request.walltime_s) : 0;
  return {{"token", request.token},
          {"name", request.name.empty() ? request.token : request.token + "." + request.name},
          {"nodes", std::to_string(request.nodes)},
          {"cores", std::to_string(std::max(1, request.cores))},
          {"minutes", number(time)},
          {"seconds", number(time * 60)},
          {"clock", time > 0 ? fmt::format("{:02}:{:02}:00", time / 60, time % 60) : ""},
          {"account", request.account},
          {"partition", request.partition},
          {"qos", request.qos},
          {"constraint", request.constraint},
          {"reservation", request.reservation},
          {"memory", request.memory},
          {"gpus", number(request.gpus)},
          {"exclusive", request.exclusive ? "1" : ""},
          {"shared", request.exclusive ? "" : "1"},
          {"directory", request.directory},
          {"output", request.directory + "/" + request.token + ".out"},
          {"args", text::join(request.args, fmt::format("\n{} ", mark))}};
}

// One line of a table with its values; empty if one of them is.
std::string filled(std::string_view line, const Values& values) {
  std::string result;
  for (std::size_t open = line.find('{'); open != std::string_view::npos; open = line.find('{')) {
    const std::size_t close = line.find('}', open);
    std::string_view name = line.substr(open + 1, close - open - 1);
    const bool condition = name.starts_with('?');
    if (condition) name.remove_prefix(1);
    const std::string& value = values.at(name);
    if (value.empty()) return {};
    result += line.substr(0, open);
    if (!condition) result += value;
    line.remove_prefix(close + 1);
  }
  return result += line;
}

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

std::string Adapter::script(const JobRequest& request) const {
  std::string text =
      fmt::format("#!/bin/bash\n# Made by wflow for {}: an allocation with a worker on each of its nodes.\n",
                  table_.title);
  Values all = values(request);
  all.merge(common_values(request, table_.mark));
  for (const std::string_view line : lines_of(table_.directives)) {
    if (const std::string option = filled(line, all); !option.empty())
      text += fmt::format("{} {}\n", table_.mark, option);
  }
  return text + "\n" + body(request);
}

Submission Adapter::submit(const JobRequest& request) {
  const std::string file = script_file(request);
  write_script(request, script(request));
  CommandCall command{table_.name, {table_.submit.begin(), table_.submit.end()}, request.directory, {}, {}};
  if (table_.script_on_stdin) {
    command.input = file;
  } else {
    command.argv.push_back(file);
  }
  const CommandAnswer answer = call(command);
  if (!answer.ok()) return refusal(answer);
  if (const auto id = id_in(answer.out)) return {*id, Submission::Refusal::none, {}};
  // The job may well be in the queue: the caller looks for its token before it tries again.
  std::string text = answer.program + " gave no job id";
  if (const std::string words = one_line(answer.out); !words.empty()) text += ": " + words;
  return {{}, Submission::Refusal::wait, text};
}

std::optional<std::string> Adapter::id_in(const std::string& out) const {
  const auto lines = lines_of(out);
  return lines.empty() ? std::nullopt : std::optional<std::string>(lines.back());
}

std::optional<std::string> Adapter::cancel(const std::vector<std::string>& ids) {
  if (ids.empty()) return std::nullopt;
  const CommandAnswer answer = ask(table_.cancel, ids);
  if (answer.ok() || mentions_any(answer.err + answer.out, table_.gone)) return std::nullopt;
  return answer.problem();
}

std::optional<std::string> Adapter::problem_of(const CommandAnswer& answer) const {
  if (answer.ok()) return std::nullopt;
  if (!answer.started)
    return fmt::format("{} is not on this machine (no '{}' in PATH)", table_.name, answer.program);
  return fmt::format("{} does not answer: {}", table_.name, answer.problem());
}

CommandAnswer Adapter::ask(const Words& words, const std::vector<std::string>& more) const {
  CommandCall command{table_.name, {words.begin(), words.end()}, {}, {}, {}};
  command.argv.insert(command.argv.end(), more.begin(), more.end());
  if (!table_.environment.empty()) command.environment = {table_.environment};
  return call(command);
}

void set_state(JobStatus& job, const SchedulerTable& table) {
  for (const auto& [state, end, words] : table.states) {
    if (std::ranges::find(words, job.raw) == words.end()) continue;
    job.state = state;
    job.end = end;
  }
}

JobEnd end_of(const SchedulerTable& table, std::string_view reason, JobEnd otherwise) {
  for (const auto& [end, phrases] : table.ends) {
    if (mentions_any(reason, phrases)) return end;
  }
  return otherwise;
}

std::string_view meaning_of(const SchedulerTable& table, std::string_view words) {
  for (const auto& [phrases, meaning] : table.never) {
    if (mentions_any(words, phrases)) return meaning;
  }
  return {};
}

std::string why_never(const SchedulerTable& table, std::string_view reason) {
  const std::string_view meaning = meaning_of(table, reason);
  return meaning.empty() ? "" : fmt::format("{}: {}", reason, meaning);
}

std::string json_word(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return {};
  if (at->is_number_integer()) return at->dump();
  const std::string text = at->is_string() ? at->get<std::string>() : "";
  return text == "-" ? "" : text;
}

std::optional<double> duration_of(const std::string& text) {
  double seconds = 0;
  if (text.empty()) return std::nullopt;
  for (const std::string& part : text::split(text, ':')) {
    const auto number = text::to_real(part);
    if (!number) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return seconds;
}

std::vector<std::string> hosts_in(const std::string& text, char separator) {
  std::vector<std::string> names;
  for (const std::string& part : text::split(text, separator)) {
    const std::vector<std::string> words = text::split(part.substr(0, part.find('/')), '*');
    for (const std::string& word : words) {
      const bool count = words.size() > 1 && text::to_integer(word);
      if (!word.empty() && !count && std::ranges::find(names, word) == names.end()) names.push_back(word);
    }
  }
  return names;
}

std::string script_file(const JobRequest& request) {
  return request.directory + "/" + request.token + ".sh";
}

std::string token_in(const std::string& name) {
  return name.substr(0, name.find('.'));
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

void write_script(const JobRequest& request, const std::string& text) {
  std::filesystem::create_directories(request.directory);
  write_file_durably(script_file(request), text);
}

}  // namespace wflow::engine::batch
