// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/import/import.h"

namespace wflow::cli {
namespace {

constexpr std::string_view kDirective = "#SBATCH";
constexpr std::int64_t kMostArrayTasks = 10'000'000;

constexpr std::array<std::pair<char, std::string_view>, 12> kShortOptions = {{{'a', "array"},
                                                                              {'A', "account"},
                                                                              {'c', "cpus-per-task"},
                                                                              {'C', "constraint"},
                                                                              {'e', "error"},
                                                                              {'J', "job-name"},
                                                                              {'n', "ntasks"},
                                                                              {'N', "nodes"},
                                                                              {'o', "output"},
                                                                              {'p', "partition"},
                                                                              {'q', "qos"},
                                                                              {'t', "time"}}};

struct ArrayScript {
  std::map<std::string, std::string, std::less<>> options;  // by their long names; flags are ""
  std::vector<std::string> others;                          // "-x" and such, verbatim
  std::vector<std::string> body;
  std::string shell;  // of the first line, if it is not bash

  std::optional<std::string> take(std::string_view name) {
    const auto found = options.find(name);
    if (found == options.end()) return std::nullopt;
    std::string value = found->second;
    options.erase(found);
    return value;
  }
};

Error wrong(const ImportSource& source, std::string_view option, std::string_view value,
            std::string_view expected) {
  return Error(ExitCode::usage,
               fmt::format("{}: #SBATCH --{}={}: expected {}", source.name, option, value, expected));
}

bool is_directive(std::string_view line) {
  return line.starts_with(kDirective) &&
         (line.size() == kDirective.size() ||
          std::isspace(static_cast<unsigned char>(line[kDirective.size()])) != 0);
}

void read_directive(const std::string& line, ArrayScript& script) {
  std::istringstream stream(line.substr(kDirective.size()));
  std::vector<std::string> words;
  for (std::string word; stream >> word && word.front() != '#';) words.push_back(word);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool has_next = i + 1 < words.size() && !words[i + 1].starts_with('-');
    if (word.starts_with("--")) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
      if (equals != std::string::npos) {
        script.options[name] = word.substr(equals + 1);
      } else {
        script.options[name] = has_next ? words[++i] : "";
      }
      continue;
    }
    const auto known = word.size() < 2 || word.front() != '-'
                           ? kShortOptions.end()
                           : std::find_if(kShortOptions.begin(), kShortOptions.end(),
                                          [&](const auto& option) { return option.first == word[1]; });
    if (known == kShortOptions.end()) {
      script.others.push_back(word);
    } else if (word.size() > 2) {
      script.options[std::string(known->second)] = word.substr(word[2] == '=' ? 3 : 2);
    } else {
      script.options[std::string(known->second)] = has_next ? words[++i] : "";
    }
  }
}

ArrayScript read_script(const ImportSource& source) {
  ArrayScript script;
  for (const std::string& line : import_lines(source.text)) {
    if (is_directive(line)) {
      read_directive(line, script);
    } else if (line.starts_with("#!") && script.body.empty()) {
      const std::string shell(text::trim(std::string_view(line).substr(2)));
      if (!shell.ends_with("bash") && shell != "/bin/bash -l") script.shell = shell;
    } else {
      script.body.push_back(line);
    }
  }
  while (!script.body.empty() && text::trim(script.body.back()).empty()) script.body.pop_back();
  while (!script.body.empty() && text::trim(script.body.front()).empty())
    script.body.erase(script.body.begin());
  return script;
}

// The lines that set the array's variables come before the body.
void check_shell(const ImportSource& source, const std::string& shell) {
  const std::size_t slash = shell.find_last_of("/ ");
  const std::string program = slash == std::string::npos ? shell : shell.substr(slash + 1);
  for (const char* known : {"", "sh", "dash", "ksh", "zsh", "-l"})
    if (program == known) return;
  throw Error(
      ExitCode::usage,
      fmt::format(
          "{} is for '{}', which is no shell of POSIX: call it from a script of bash and give that to "
          "wflow init --from",
          source.name, shell));
}

// "0-9", "1-100:2", "1,3,7-9", each with or without "%N".
std::vector<std::int64_t> array_tasks(const ImportSource& source, const std::string& array) {
  const auto fail = [&] {
    return wrong(source, "array", array, "numbers and ranges, such as 1-100, 0-90:10 or 1,3,7-9");
  };
  std::vector<std::int64_t> tasks;
  for (const std::string& part : text::split(array.substr(0, array.find('%')), ',')) {
    const std::size_t colon = part.find(':');
    const std::string range = part.substr(0, colon);
    const std::size_t dash = range.find('-');
    const auto first = text::to_integer(range.substr(0, dash));
    const auto last = dash == std::string::npos ? first : text::to_integer(range.substr(dash + 1));
    const auto step = colon == std::string::npos ? std::optional<std::int64_t>(1)
                                                 : text::to_integer(part.substr(colon + 1));
    if (!first || !last || !step || *first < 0 || *last < *first || *step < 1) throw fail();
    if ((*last - *first) / *step >= kMostArrayTasks) throw fail();
    for (std::int64_t task = *first; task <= *last; task += *step) tasks.push_back(task);
  }
  return tasks;
}

// Slurm's minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm and d-hh:mm:ss as hh:mm:ss.
std::string time_of(const ImportSource& source, const std::string& time) {
  const std::size_t dash = time.find('-');
  const bool has_days = dash != std::string::npos;
  std::vector<std::int64_t> numbers;
  for (const std::string& part : text::split(has_days ? time.substr(dash + 1) : time, ':')) {
    const auto number = text::to_integer(part);
    if (!number || *number < 0 || numbers.size() == 3)
      throw wrong(source, "time", time, "Slurm's minutes, mm:ss, hh:mm:ss or d-hh:mm:ss");
    numbers.push_back(*number);
  }
  const auto days = has_days ? text::to_integer(time.substr(0, dash)) : std::optional<std::int64_t>(0);
  if (!days || *days < 0) throw wrong(source, "time", time, "Slurm's minutes, mm:ss, hh:mm:ss or d-hh:mm:ss");
  // One number is minutes, or with days hours; two are minutes and seconds, or with days hours and minutes.
  if (has_days || numbers.size() == 3) {
    numbers.resize(3);
  } else {
    numbers.insert(numbers.begin(), 0);
    numbers.resize(3);
  }
  const std::int64_t seconds = ((*days * 24 + numbers[0]) * 60 + numbers[1]) * 60 + numbers[2];
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

// "8G" -> "8 GiB"; Slurm's unit is MiB where there is none.
std::string memory_of(const ImportSource& source, std::string_view option, const std::string& memory,
                      std::int64_t times) {
  const bool has_unit = !memory.empty() && std::isalpha(static_cast<unsigned char>(memory.back())) != 0;
  const char unit =
      has_unit ? static_cast<char>(std::toupper(static_cast<unsigned char>(memory.back()))) : 'M';
  const auto number = text::to_integer(memory.substr(0, memory.size() - (has_unit ? 1 : 0)));
  if (!number || *number < 1 || std::string_view("KMGT").find(unit) == std::string_view::npos)
    throw wrong(source, option, memory, "a number with K, M, G or T");
  return fmt::format("{} {}iB", *number * times, unit);
}

std::int64_t count_of(const ImportSource& source, std::string_view option, const std::string& value) {
  const auto number = text::to_integer(value);
  if (!number || *number < 1) throw wrong(source, option, value, "a whole number from 1 on");
  return *number;
}

void add_line(std::string& lines, int indent, std::string_view key, std::string_view value) {
  lines += fmt::format("{:{}}{}: {}\n", "", indent, key, value);
}

// The keys of batch: that the script's options become.
std::string batch_of(const std::optional<std::string>& time, ArrayScript& script) {
  std::string lines = "batch:\n  type: slurm\n";
  for (const auto& [option, key] :
       {std::pair("account", "account"), std::pair("partition", "partition"), std::pair("qos", "qos"),
        std::pair("constraint", "constraint"), std::pair("reservation", "reservation")})
    if (const auto value = script.take(option)) add_line(lines, 2, key, import_scalar(*value));
  if (time) add_line(lines, 2, "walltime", import_scalar(*time));
  std::vector<std::string> args;
  for (const auto& [name, value] : script.options)
    args.push_back(import_scalar(value.empty() ? "--" + name : fmt::format("--{}={}", name, value)));
  for (const std::string& other : script.others) args.push_back(import_scalar(other));
  if (!args.empty()) add_line(lines, 2, "args", "[" + text::join(args, ", ") + "]");
  return lines;
}

// The resources of one task of the array.
std::string resources_of(const ImportSource& source, const std::optional<std::string>& time,
                         ArrayScript& script) {
  std::string lines;
  std::int64_t cores = 1;
  if (const auto nodes = script.take("nodes"))
    add_line(lines, 6, "nodes", fmt::to_string(count_of(source, "nodes", *nodes)));
  if (const auto ranks = script.take("ntasks"))
    add_line(lines, 6, "procs", fmt::to_string(count_of(source, "ntasks", *ranks)));
  if (const auto value = script.take("cpus-per-task")) {
    cores = count_of(source, "cpus-per-task", *value);
    add_line(lines, 6, "cores", fmt::to_string(cores));
  }
  if (const auto memory = script.take("mem")) {
    add_line(lines, 6, "memory", memory_of(source, "mem", *memory, 1));
  } else if (const auto each = script.take("mem-per-cpu")) {
    add_line(lines, 6, "memory", memory_of(source, "mem-per-cpu", *each, cores));
  }
  if (const auto gpus = script.take("gpus-per-task"))
    add_line(lines, 6, "gpus", fmt::to_string(count_of(source, "gpus-per-task", *gpus)));
  if (time) add_line(lines, 6, "timeout", import_scalar(*time));
  if (!script.shell.empty()) add_line(lines, 6, "shell", import_scalar(script.shell));
  return lines;
}

}  // namespace

bool is_sbatch(std::string_view text) {
  for (const std::string& line : import_lines(text))
    if (is_directive(line)) return true;
  return false;
}

ImportedStudy import_sbatch_array(const ImportSource& source) {
  ArrayScript script = read_script(source);
  const auto array = script.take("array");
  if (!array)
    throw Error(
        ExitCode::usage,
        fmt::format("{} has no #SBATCH --array; wflow init --from takes scripts of arrays: a study with "
                    "one command needs no more than wflow init hello",
                    source.name));
  if (script.body.empty())
    throw Error(ExitCode::usage, fmt::format("{} has no command after its #SBATCH lines", source.name));
  check_shell(source, script.shell);
  const std::vector<std::int64_t> tasks = array_tasks(source, *array);
  const std::string name = import_name(script.take("job-name").value_or(source.name));
  for (const char* kept_by_wflow : {"output", "error", "open-mode"}) script.take(kept_by_wflow);
  const auto slurm_time = script.take("time");
  const auto time = slurm_time ? std::optional(time_of(source, *slurm_time)) : std::nullopt;
  const std::string resources = resources_of(source, time, script);

  ImportedStudy imported;
  imported.kind = "Slurm array";
  imported.table_name = name + ".lines";
  for (const std::int64_t task : tasks) imported.table += fmt::format("{}\n", task);
  const auto [least, most] = std::minmax_element(tasks.begin(), tasks.end());
  std::string body;
  for (const std::string& line : script.body) body += line.empty() ? "\n" : "        " + line + "\n";
  const std::size_t percent = array->find('%');
  const std::string limit =
      percent == std::string::npos
          ? ""
          : fmt::format(
                "# The array's limit of {} tasks at once is that of the allocations: see "
                "'workers' in docs/cluster.md.\n",
                array->substr(percent + 1));
  imported.study = fmt::format(
      R"yaml(# Made by: wflow init --from {0}
#
#   wflow plan study.yaml     then: wflow run study.yaml, or wflow run study.yaml --local on this machine
{1}description: {{name: {2}, description: {3}}}

env:
  variables:
    OUTPUT_PATH: ./campaigns
    FOLDER: {4}    # where the script runs

{5}
samples:
  file: {6}    # the {7} tasks of --array={8}
  column_labels: [array_task]

study:
  - name: task
    run:
{9}      cmd: |
        export SLURM_ARRAY_TASK_ID=$(array_task) SLURM_ARRAY_TASK_COUNT={10}
        export SLURM_ARRAY_TASK_MIN={11} SLURM_ARRAY_TASK_MAX={12}
        cd "$(FOLDER)"
{13})yaml",
      source.name, limit, import_scalar(name), import_scalar("the array of " + source.name),
      import_scalar(source.folder), batch_of(time, script), import_scalar(imported.table_name),
      text::format_count(tasks.size()), *array, resources, tasks.size(), *least, *most, body);
  return imported;
}

}  // namespace wflow::cli
