// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/view/failure_groups.h"
#include "cli/view/terminal.h"
#include "specs/plan/plan.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

namespace {

constexpr std::uint64_t kTasksListed = 100;
constexpr std::size_t kGroups = 1000;

struct TasksOptions {
  SelectionOptions selection;
  std::optional<std::uint64_t> limit;
  bool json = false;
  bool csv = false;
  bool count = false;
  bool parameters = false;
  bool group = false;
};

Style style_of(engine::ElementState state) {
  using engine::ElementState;
  if (state == ElementState::failed || state == ElementState::hard_failed) return Style::red;
  if (state == ElementState::done) return Style::green;
  return state == ElementState::leased ? Style::cyan : Style::yellow;
}

nlohmann::json to_json(const specs::Plan& plan, const TaskRow& row) {
  const auto& used = row.used;
  nlohmann::json json = {{"task", specs::task_name(plan, row.array, row.element)},
                         {"step", plan.steps()[plan.step_of(row.array)].name},
                         {"array", plan.array_name(row.array)},
                         {"sample", row.element},
                         {"state", row.state_name()},
                         {"attempts", row.attempts},
                         {"exit_code", nullptr},
                         {"reason", nullptr},
                         {"worker", nullptr},
                         {"started", nullptr},
                         {"duration", nullptr}};
  if (row.exit_code) json["exit_code"] = *row.exit_code;
  if (!row.reason.empty()) json["reason"] = row.reason;
  if (!row.detail.empty()) json["message"] = row.detail;
  if (!row.worker.empty()) json["worker"] = row.worker;
  if (row.started_s) json["started"] = *row.started_s;
  if (row.duration_s) json["duration"] = *row.duration_s;
  const bool alone = used && used->count == 1;
  json["cpu"] = alone ? nlohmann::json(used->cpu_s) : nlohmann::json();
  json["peak_bytes"] = used ? nlohmann::json(used->peak_bytes) : nlohmann::json();
  json["read_bytes"] = alone ? nlohmann::json(used->read_bytes) : nlohmann::json();
  json["written_bytes"] = alone ? nlohmann::json(used->written_bytes) : nlohmann::json();
  return json;
}

std::vector<Cell> cells_of(const specs::Plan& plan, const TaskRow& row, bool for_people) {
  const auto& used = row.used;
  const auto number = [](const std::optional<double>& value, const auto& format) {
    return value ? format(*value) : std::string();
  };
  std::vector<Cell> cells;
  cells.push_back({specs::task_name(plan, row.array, row.element)});
  if (!for_people) {
    cells.push_back({plan.steps()[plan.step_of(row.array)].name});
    cells.push_back({std::to_string(row.element)});
  }
  cells.push_back({row.state_name(), row.missing ? Style::yellow : style_of(row.state)});
  cells.push_back({std::to_string(row.attempts)});
  cells.push_back({row.exit_code ? std::to_string(*row.exit_code) : row.reason});
  cells.push_back({number(
      row.duration_s, [&](double v) { return for_people ? text::format_duration(v) : text::from_real(v); })});
  const bool alone = used && used->count == 1;
  if (for_people) {
    cells.push_back({alone ? text::format_duration(used->cpu_s) : std::string()});
    cells.push_back({used ? text::format_bytes(used->peak_bytes) : std::string()});
  } else {
    cells.push_back({number(row.started_s, [](double v) { return text::from_real(v); })});
  }
  cells.push_back({row.worker});
  if (for_people) cells.push_back({row.detail});
  if (!for_people) {
    cells.push_back({alone ? text::from_real(used->cpu_s) : std::string()});
    cells.push_back({used ? std::to_string(used->peak_bytes) : std::string()});
    cells.push_back({alone ? std::to_string(used->read_bytes) : std::string()});
    cells.push_back({alone ? std::to_string(used->written_bytes) : std::string()});
    cells.push_back({row.detail});
  }
  return cells;
}

// Prints rows as they come: a million of them take no more memory than one.
class Listing {
 public:
  Listing(const specs::Plan& plan, const TasksOptions& options)
      : plan_(plan),
        options_(options),
        samples_(options.parameters && plan.study().samples
                     ? specs::open_samples(plan.study().samples->design)
                     : nullptr),
        table_(headings()) {
    if (options.csv && !options.count) table_.print_csv();
  }

  void add(const TaskRow& row) {
    ++found_;
    if (options_.count) return;
    if (options_.json) {
      fmt::print("{}{}", found_ == 1 ? "[\n  " : ",\n  ",
                 indented(with_parameters(to_json(plan_, row), row).dump(2)));
    } else if (options_.csv) {
      Table::print_csv_row(with_parameters(cells_of(plan_, row, false), row));
    } else {
      keep(row);
    }
  }

  void finish(bool more) {
    if (options_.count) {
      fmt::print("{}\n", found_);
    } else if (options_.json) {
      fmt::print("{}", found_ == 0 ? "[]\n" : "\n]\n");
    } else if (found_ == 0 && !options_.csv) {
      fmt::print("no such task\n");
    } else if (!options_.csv) {
      if (kept_ > 0) table_.print(standard_output());
      if (more) fmt::print("the first {}; --limit 0 shows all, --count counts them\n", found_);
    }
  }

  std::uint64_t found() const { return found_; }

 private:
  static constexpr std::size_t kTogether = 10'000;  // rows that share column widths

  std::vector<std::string> headings() const {
    auto names =
        options_.csv
            ? std::vector<std::string>{"task",       "step",       "sample",        "state",  "attempts",
                                       "exit_code",  "duration",   "started",       "worker", "cpu",
                                       "peak_bytes", "read_bytes", "written_bytes", "message"}
            : std::vector<std::string>{"task", "state",  "attempts", "exit code", "duration",
                                       "cpu",  "memory", "worker",   "message"};
    if (samples_ != nullptr)
      names.insert(names.end(), samples_->columns().begin(), samples_->columns().end());
    return names;
  }

  void keep(const TaskRow& row) {
    table_.add(with_parameters(cells_of(plan_, row, true), row));
    if (++kept_ < kTogether) return;
    table_.print(standard_output());
    table_.clear();
    kept_ = 0;
  }

  // Indents the text as nlohmann::json would in a list.
  static std::string indented(const std::string& text) {
    std::string deeper;
    for (const char c : text) deeper += c == '\n' ? std::string("\n  ") : std::string(1, c);
    return deeper;
  }

  bool has_sample(const TaskRow& row) const {
    const specs::PlannedStep& step = plan_.steps()[plan_.step_of(row.array)];
    return samples_ != nullptr && step.sample_dependent && step.block_samples == 0 &&
           row.element < samples_->count();
  }

  // The values of the task's sample; an empty object, or empty cells, where it has none.
  nlohmann::json with_parameters(nlohmann::json json, const TaskRow& row) const {
    if (!options_.parameters) return json;
    nlohmann::json& values = json["parameters"] = nlohmann::json::object();
    if (!has_sample(row)) return json;
    for (std::size_t k = 0; k < samples_->columns().size(); ++k) {
      const std::string cell = samples_->text(row.element, k);
      const auto number = text::to_real(cell);
      values[samples_->columns()[k]] = number ? nlohmann::json(*number) : nlohmann::json(cell);
    }
    return json;
  }

  std::vector<Cell> with_parameters(std::vector<Cell> cells, const TaskRow& row) const {
    if (samples_ == nullptr) return cells;
    const bool known = has_sample(row);
    for (std::size_t k = 0; k < samples_->columns().size(); ++k)
      cells.push_back({known ? samples_->text(row.element, k) : std::string()});
    return cells;
  }

  const specs::Plan& plan_;
  const TasksOptions& options_;
  std::unique_ptr<const specs::SampleTable> samples_;
  Table table_;
  std::uint64_t found_ = 0;
  std::size_t kept_ = 0;
};

// "exit code 3", "timed out", "missing".
std::string end_of(const TaskRow& row) {
  if (row.missing) return row.state_name();
  if (row.exit_code && *row.exit_code != 0) return fmt::format("exit code {}", *row.exit_code);
  std::string words = row.reason;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

// Tasks of one step that ended in the same way, with the same last line but for its numbers.
struct TaskGroup {
  std::uint64_t tasks = 0;
  TaskRow first;
};

void print_groups(const specs::Plan& plan, const std::vector<TaskGroup>& groups,
                  const TasksOptions& options) {
  nlohmann::json list = nlohmann::json::array();
  Table table({"tasks", "step", "ended", "first", "message"});
  for (const TaskGroup& group : groups) {
    const std::string first = specs::task_name(plan, group.first.array, group.first.element);
    const std::string& step = plan.steps()[plan.step_of(group.first.array)].name;
    if (options.json) {
      list.push_back({{"tasks", group.tasks},
                      {"step", step},
                      {"state", group.first.state_name()},
                      {"ended", end_of(group.first)},
                      {"first", first},
                      {"message", group.first.detail}});
    } else {
      const std::string count = options.csv ? std::to_string(group.tasks) : text::format_count(group.tasks);
      table.add({{count}, {step}, {end_of(group.first)}, {first}, {group.first.detail}});
    }
  }
  if (options.json) {
    fmt::print("{}\n", list.dump(2));
  } else if (options.csv) {
    table.print_csv();
  } else if (groups.empty()) {
    fmt::print("no task has failed or is missing\n");
  } else {
    table.print_whole(standard_output());
    const std::string first =
        specs::task_name(plan, groups.front().first.array, groups.front().first.element);
    fmt::print("one task's output: wflow logs {} {}\n", plan.campaign().string(), first);
  }
}

int group_tasks(const specs::Plan& plan, engine::Client& client, const TasksOptions& options) {
  SelectionOptions selection = options.selection;
  if (selection.states.empty()) selection.states = {"failed", "hard_failed", "delayed", "missing"};
  std::map<std::string, TaskGroup> groups;
  select_tasks(plan, client, selection, [&](const TaskRow& row) {
    const std::string key =
        fmt::format("{}\n{}\n{}", plan.step_of(row.array), end_of(row), without_numbers(row.detail));
    // Beyond kGroups kinds, all others count as one.
    TaskGroup& group = groups.size() < kGroups || groups.contains(key) ? groups[key] : groups[""];
    if (++group.tasks == 1) group.first = row;
    return true;
  });
  std::vector<TaskGroup> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.tasks > b.tasks; });
  print_groups(plan, sorted, options);
  return 0;
}

int tasks(TasksOptions& options) {
  const specs::Plan plan = read_plan(open_selection(options.selection));
  engine::Client client(plan);
  if (options.group) return group_tasks(plan, client, options);
  // Output for programs is complete; the table is limited.
  const std::uint64_t limit =
      options.limit.value_or(options.json || options.csv || options.count ? 0 : kTasksListed);
  Listing listing(plan, options);
  SelectionOptions selection = options.selection;
  selection.with_usage = !options.count;
  selection.few = !options.json && !options.csv && !options.count;
  list_tasks(plan, client, selection, limit, listing);
  return 0;
}

}  // namespace

void add_tasks(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TasksOptions>();
  CLI::App* command = app.add_subcommand("tasks", "list single tasks: which failed, how, where");
  command->footer(
      "Options and --where hold together. Fields of --where: step, array, state, sample, exit_code, "
      "attempts, worker,\n"
      "reason, time (or duration), memory, cpu, read, written, and the columns of the samples; = != < <= > "
      ">= "
      "in, and, or, not,\nparentheses. Times are in seconds and memory, read and written in bytes, or with a "
      "unit: \"time > 10min\",\n\"memory > 1GiB\". A comparison "
      "with what is not\n"
      "known (the worker of a task that has not run) holds for no task.\n"
      "Examples:\n  wflow tasks --group\n  wflow tasks --failed\n  wflow tasks simulate/1-5,7\n  wflow tasks "
      "--where \"omega_m > 0.3 "
      "and state = failed\" "
      "--csv\n"
      "  wflow tasks cosmoflow simulate --exit-code 137 --count\n  wflow tasks --state running "
      "--duration '>10min'\n  wflow tasks simulate --parameters --csv > cost.csv");
  add_selection(*command, options->selection);
  command->add_option("--limit", options->limit,
                      "show so many at most; 0: all (default: 100, all for programs)");
  auto* count = command->add_flag("--count", options->count, "only how many");
  command
      ->add_flag(
          "--group", options->group,
          "a line for all that ended in the same way with the same message (default: those that failed, are "
          "tried again or missing)")
      ->excludes(count);
  auto* json = command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--parameters", options->parameters, "with the values of each task's sample");
  command->add_flag("--csv", options->csv, "as comma-separated values")->excludes(json);
  command->callback([options, &chosen] { chosen = [options] { return tasks(*options); }; });
}

}  // namespace wflow::cli
