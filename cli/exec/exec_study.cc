// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/exec_study.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/text.h"
#include "cli/exec/arguments.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

// Quotes a text for YAML: a JSON string is also a YAML string.
std::string yaml_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::usage,
                fmt::format("'{}' is no UTF-8 text; give it by --samples or standard input", text));
  }
}

// Breaks the tokens of a text that is only shown.
std::string without_tokens(std::string text) {
  for (std::size_t at = text.find("$("); at != std::string::npos; at = text.find("$(", at))
    text.insert(at + 1, " ");
  return text;
}

std::string name_of(const ExecOptions& options) {
  if (!options.name.empty()) return options.name;
  if (options.words.command.empty()) return "commands";
  const std::string& first = options.words.command.front();
  std::string name = fs::path(first.substr(0, first.find_first_of(" \t\n"))).filename().string();
  std::erase_if(
      name, [](char c) { return std::string_view("{}$()'\"`;&|<>*?").find(c) != std::string_view::npos; });
  return name.empty() ? "exec" : name;
}

fs::path directory_of(const ExecOptions& options) {
  return absolute_path(options.directory.empty() ? fs::path("wflow-exec") : options.directory);
}

// "x=0:1", "x=1e-3:10:log", "n=1:64:integer"; of a grid "x=1,2,5".
std::pair<std::string, std::string> read_parameter(const std::string& text) {
  const auto fail = [&]() -> Error {
    return Error(
        ExitCode::usage,
        fmt::format("--parameter {}: write NAME=LOW:HIGH, NAME=LOW:HIGH:log, NAME=LOW:HIGH:integer or, for "
                    "--design grid, NAME=A,B,C",
                    text));
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) throw fail();
  const std::string name = text.substr(0, equals);
  const std::string range = text.substr(equals + 1);
  const std::vector<std::string> parts = text::split(range, ':');
  if (parts.size() == 1) {
    std::vector<std::string> values;
    for (const std::string& value : text::split(range, ',')) values.push_back(yaml_text(value));
    return {name, "[" + text::join(values, ", ") + "]"};
  }
  if (parts.size() > 3 || !text::to_real(parts[0]) || !text::to_real(parts[1])) throw fail();
  std::string keys = fmt::format("{{low: {}, high: {}", parts[0], parts[1]);
  if (parts.size() == 3) {
    if (parts[2] != "log" && parts[2] != "integer") throw fail();
    keys += ", " + parts[2] + ": true";
  }
  return {name, keys + "}"};
}

std::string design_block(const ExecOptions& options, std::vector<std::string>& names) {
  if (options.parameters.empty()) throw Error(ExitCode::usage, "--design needs --parameter NAME=LOW:HIGH");
  const bool grid = options.design == "grid";
  if (!grid && options.count == 0)
    throw Error(ExitCode::usage, "--design needs --count, the number of commands");
  std::string block = fmt::format("samples:\n  design: {}\n", options.design);
  if (!grid) block += fmt::format("  count: {}\n  seed: {}\n", options.count, options.seed);
  block += "  parameters:\n";
  for (const std::string& text : options.parameters) {
    const auto [name, range] = read_parameter(text);
    names.push_back(name);
    block += fmt::format("    {}: {}\n", yaml_text(name), range);
  }
  return block;
}

std::string file_block(const ExecOptions& options, std::vector<std::string>& names) {
  specs::SampleDesign table;
  table.kind = specs::DesignKind::file;
  table.file = absolute_path(options.samples).lexically_normal();
  const std::string suffix = text::lower(table.file.extension().string());
  table.header = suffix != ".npy";
  names = specs::open_samples(table)->columns();
  return fmt::format("samples:\n  file: {}\n", yaml_text(table.file.string()));
}

std::string step_block(const ExecOptions& options, const std::string& command) {
  std::string run =
      fmt::format("study:\n  - name: {}\n    run:\n      cmd: {}\n", kExecStep, yaml_text(command));
  run += fmt::format("      output: packed\n      max_failures: {}\n      max_retries: {}\n",
                     max_failures_of(options.halt), options.retries);
  if (options.cores > 1) run += fmt::format("      cores: {}\n", options.cores);
  if (!options.timeout.empty()) run += fmt::format("      timeout: {}\n", yaml_text(options.timeout));
  if (!options.memory.empty()) run += fmt::format("      memory: {}\n", yaml_text(options.memory));
  return run;
}

std::string hooks_block(const ExecOptions& options) {
  if (options.hooks.empty()) return {};
  std::string block = "on:\n";
  for (const auto& [event, command] : options.hooks)
    block += fmt::format("  {}: {}\n", event, yaml_text(command));
  return block;
}

void check_sources(const ExecOptions& options) {
  const int given = (options.words.lists.empty() ? 0 : 1) + (options.samples.empty() ? 0 : 1) +
                    (options.design.empty() ? 0 : 1) + (options.arguments_file.empty() ? 0 : 1);
  if (given > 1)
    throw Error(ExitCode::usage,
                "arguments come from one place: ::: and ::::, --arg-file, --samples or --design");
  if (options.design.empty() && (options.count > 0 || !options.parameters.empty()))
    throw Error(ExitCode::usage, "--count and --parameter go with --design");
  if (options.words.command.empty() &&
      (!options.words.lists.empty() || !options.samples.empty() || !options.design.empty()))
    throw Error(ExitCode::usage, "which command? wflow exec -- COMMAND {} ::: ARGUMENT...");
}

std::vector<std::string> numbered(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i <= count; ++i) names.push_back(fmt::format("arg{}", i));
  return names;
}

void add_missing(const std::vector<ArgumentColumn>& more, std::vector<ArgumentColumn>& columns) {
  for (const ArgumentColumn& column : more) {
    const auto same = [&](const ArgumentColumn& one) { return one.name == column.name; };
    if (std::ranges::none_of(columns, same)) columns.push_back(column);
  }
}

}  // namespace

ExecStudy::ExecStudy(const ExecOptions& options) {
  check_sources(options);
  const fs::path directory = directory_of(options);
  make_own_directories(directory);
  folder_.emplace(directory, ".new");
  std::vector<std::string> names;
  const bool table = options.samples.empty() && options.design.empty();
  const bool lines = options.words.command.empty();
  std::string samples;
  if (!options.samples.empty()) samples = file_block(options, names);
  if (!options.design.empty()) samples = design_block(options, names);
  if (table) names = numbered(std::max<std::size_t>(options.words.lists.size(), 1));
  const std::string here = current_directory().string();
  const ExecCommand command =
      lines ? exec_lines(here) : exec_command(options.words.command, names, table, here);
  if (lines) names = {command.columns.front().name};
  if (!options.tag.empty()) tag_ = exec_text(options.tag, names, table);
  for (std::size_t i = 0; i < names.size(); ++i)
    values_.emplace_back(table ? std::to_string(i + 1) : names[i], names[i]);
  if (table) {
    std::vector<ArgumentColumn> columns = command.columns;
    add_missing(tag_.columns, columns);
    for (std::size_t i = 0; options.with_values && i < names.size(); ++i)
      add_missing({{i, ArgumentPart::whole, names[i]}}, columns);
    samples = write_table(options, std::move(columns));
  }
  const std::string text =
      fmt::format("description: {{name: {}, description: {}}}\n", yaml_text(name_of(options)),
                  yaml_text(without_tokens(options.line))) +
      fmt::format("env: {{variables: {{OUTPUT_PATH: {}}}}}\n", yaml_text(directory.string())) + samples +
      step_block(options, command.text) + hooks_block(options);
  write_file_durably(folder_->path() / "exec.yaml", text);
}

ExecStudy::~ExecStudy() {
  const fs::path directory = folder_->path().parent_path();
  folder_.reset();
  std::error_code none;
  fs::remove(directory, none);  // fails if anything else is in it
}

void ExecStudy::open_lines(const ExecOptions& options) {
  if (!options.arguments_file.empty() && options.arguments_file != "-") {
    file_ = open_file(options.arguments_file, O_RDONLY | O_CLOEXEC);
    lines_.emplace(file_.get(), options.arguments_file);
    return;
  }
  if (::isatty(STDIN_FILENO) == 1)
    fmt::print(stderr, "wflow exec: reading {} from the terminal, one a line; Ctrl-D ends them\n",
               options.words.command.empty() ? "commands" : "arguments");
  lines_.emplace(STDIN_FILENO, "standard input");
}

std::string ExecStudy::write_table(ExecOptions options, std::vector<ArgumentColumn> columns) {
  table_.emplace(folder_->path(), std::move(columns));
  // The lines of a single file become rows one by one, so that their number has no limit.
  if (options.words.lists.size() == 1 && !options.words.lists.front().file.empty()) {
    options.arguments_file = options.words.lists.front().file;
    options.words.lists.clear();
  }
  if (!options.words.lists.empty()) {
    read_list_files(options.words.lists);
    add_lists(options.words.lists, *table_);
  } else {
    open_lines(options);
    options.all_at_once ? lines_->add_all(*table_) : lines_->add_to(*table_, 0, {});
  }
  table_->flush();
  empty_ = table_->rows() == 0;
  std::vector<std::string> labels;
  for (const std::string& name : table_->column_names()) labels.push_back(yaml_text(name));
  return fmt::format("samples:\n  file: {}\n  column_labels: [{}]\n", yaml_text(table_->file().string()),
                     text::join(labels, ", "));
}

bool ExecStudy::read_more(const WaitUntil& until) {
  constexpr double kLonger_s = 0.02;
  constexpr double kLongest_s = 10;
  const std::uint64_t before = table_->rows();
  lines_->add_to(*table_, wait_s_, until);
  table_->flush();
  wait_s_ = std::min(wait_s_ + kLonger_s, kLongest_s);
  return table_->rows() > before;
}

std::optional<specs::StudyAndWarnings> ExecStudy::read() const {
  if (empty_) return std::nullopt;
  specs::ReadOptions options;
  options.dialect = specs::Dialect::ours;
  return specs::read_study(folder_->path() / "exec.yaml", options);
}

namespace {

std::optional<HaltRule> rule_of(std::string_view text) {
  using When = HaltRule::When;
  if (text == "never" || text == "0") return HaltRule{};
  if (text == "1") return HaltRule{.when = When::soon};
  if (text == "2") return HaltRule{.when = When::now};
  const std::vector<std::string> parts = text::split(std::string(text), ',');
  if (parts.size() != 2 || (parts[0] != "soon" && parts[0] != "now")) return std::nullopt;
  HaltRule rule{.when = parts[0] == "soon" ? When::soon : When::now};
  const std::size_t equals = parts[1].find('=');
  if (equals == std::string::npos) return std::nullopt;
  const std::string what = parts[1].substr(0, equals);
  if (what != "fail" && what != "success" && what != "done") return std::nullopt;
  rule.what = what == "fail"      ? HaltRule::What::fail
              : what == "success" ? HaltRule::What::success
                                  : HaltRule::What::done;
  std::string number = parts[1].substr(equals + 1);
  const bool percent = number.ends_with('%');
  if (percent) number.pop_back();
  const auto value = text::to_integer(number);
  if (!value || *value < 1 || (percent && *value > 100)) return std::nullopt;
  percent ? void(rule.percent = static_cast<double>(*value))
          : void(rule.count = static_cast<std::uint64_t>(*value));
  return rule;
}

}  // namespace

HaltRule read_halt(std::string_view text) {
  if (const auto rule = rule_of(text)) return *rule;
  throw Error(ExitCode::usage,
              fmt::format("--halt {}: write never, or soon or now, a comma and fail=N, success=N, done=N or "
                          "fail=N%, as in --halt soon,fail=1",
                          text));
}

std::string max_failures_of(const HaltRule& rule) {
  if (rule.when == HaltRule::When::never || rule.what != HaltRule::What::fail) return "none";
  return rule.percent > 0 ? fmt::format("{} %", rule.percent) : std::to_string(rule.count);
}

bool is_met(const HaltRule& rule, const engine::CampaignStatus& status) {
  if (rule.when == HaltRule::When::never) return false;
  const std::uint64_t failed = status.failed();
  const std::uint64_t done = status.ended() - failed - status.cancelled();
  const std::uint64_t have = rule.what == HaltRule::What::fail      ? failed
                             : rule.what == HaltRule::What::success ? done
                                                                    : done + failed;
  if (rule.percent == 0) return have >= rule.count;
  constexpr double kWhole = 100;
  return have > 0 &&
         kWhole * static_cast<double>(have) >= rule.percent * static_cast<double>(status.elements());
}

}  // namespace wflow::cli
