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
#include "cli/view/table.h"
#include "cli/view/terminal.h"
#include "specs/plan/task_name.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

namespace {

constexpr std::uint64_t kDefaultLimit = 100;

struct TasksOptions {
  std::string campaign;
  SelectionOptions selection;
  std::optional<std::uint64_t> limit;
  bool json = false;
  bool csv = false;
  bool count = false;
  bool parameters = false;
};

// What the executions of listed tasks used, fetched for some thousand neighbours at a time: rows come in the
// order of their elements.
class UsageOfRows {
 public:
  UsageOfRows(engine::Client& client, bool for_people)
      : client_(client), together_(for_people ? kFew : kMany) {}

  // Of the last execution that has ended; null where there is no record of one.
  const engine::wire::UsedView* find(const TaskRow& row) {
    if (row.array != array_ || row.element < first_ || row.element >= end_) load(row.array, row.element);
    const auto at = last_.find(row.element);
    return at == last_.end() ? nullptr : &at->second;
  }

 private:
  static constexpr specs::Element kFew = 200, kMany = 4000;

  void load(specs::ArrayId array, specs::Element first) {
    const engine::wire::UsageAnswer answer = client_.usage({array, first, first + together_ - 1, 0});
    array_ = array;
    first_ = first;
    end_ = answer.next.value_or(first + together_);
    last_.clear();
    for (const engine::wire::UsedView& used : answer.used) {
      const specs::Element from = std::max(used.usage.first, first_);
      const specs::Element to = std::min(used.usage.first + used.usage.count, end_);
      for (specs::Element element = from; element < to; ++element) {
        const auto [at, is_new] = last_.try_emplace(element, used);
        if (!is_new && used.usage.attempt >= at->second.usage.attempt) at->second = used;
      }
    }
  }

  engine::Client& client_;
  specs::Element together_;
  specs::ArrayId array_ = 0;
  specs::Element first_ = 0, end_ = 0;
  std::map<specs::Element, engine::wire::UsedView> last_;
};

// With what is known from the record of its last execution. Of a bundle's process the memory alone says
// something of one sample.
TaskRow with_usage(TaskRow row, UsageOfRows& usage, std::optional<engine::TaskUsage>& used) {
  const bool may_have =
      row.state == engine::ElementState::done || row.state == engine::ElementState::failed ||
      row.state == engine::ElementState::hard_failed || row.state == engine::ElementState::delayed;
  const engine::wire::UsedView* found = may_have ? usage.find(row) : nullptr;
  used.reset();
  if (found == nullptr) return row;
  used = found->usage;
  if (row.worker.empty()) row.worker = found->worker;
  if (!row.started_s) row.started_s = used->started_s;
  if (!row.duration_s && used->count == 1) row.duration_s = used->duration_s;
  return row;
}

Style style_of(engine::ElementState state) {
  using engine::ElementState;
  if (state == ElementState::failed || state == ElementState::hard_failed) return Style::red;
  if (state == ElementState::done) return Style::green;
  return state == ElementState::leased ? Style::cyan : Style::yellow;
}

using Used = std::optional<engine::TaskUsage>;

nlohmann::json to_json(const specs::Plan& plan, const TaskRow& row, const Used& used) {
  nlohmann::json json = {{"task", specs::task_name(plan, row.array, row.element)},
                         {"step", plan.steps()[plan.step_of(row.array)].name},
                         {"array", plan.array_name(row.array)},
                         {"sample", row.element},
                         {"state", std::string(name_of(row.state))},
                         {"attempts", row.attempts},
                         {"exit_code", nullptr},
                         {"reason", nullptr},
                         {"worker", nullptr},
                         {"started", nullptr},
                         {"duration", nullptr}};
  if (row.exit_code) json["exit_code"] = *row.exit_code;
  if (!row.reason.empty()) json["reason"] = row.reason;
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

std::vector<Cell> cells_of(const specs::Plan& plan, const TaskRow& row, const Used& used, bool for_people) {
  const auto number = [](const std::optional<double>& value, const auto& format) {
    return value ? format(*value) : std::string();
  };
  std::vector<Cell> cells;
  cells.push_back({specs::task_name(plan, row.array, row.element)});
  if (!for_people) {
    cells.push_back({plan.steps()[plan.step_of(row.array)].name});
    cells.push_back({std::to_string(row.element)});
  }
  cells.push_back({std::string(name_of(row.state)), style_of(row.state)});
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
  if (!for_people) {
    cells.push_back({alone ? text::from_real(used->cpu_s) : std::string()});
    cells.push_back({used ? std::to_string(used->peak_bytes) : std::string()});
    cells.push_back({alone ? std::to_string(used->read_bytes) : std::string()});
    cells.push_back({alone ? std::to_string(used->written_bytes) : std::string()});
  }
  return cells;
}

// Prints rows as they come: a million of them take no more memory than one.
class Listing {
 public:
  Listing(const specs::Plan& plan, engine::Client& client, const TasksOptions& options)
      : plan_(plan),
        options_(options),
        usage_(client, !options.csv && !options.json),
        samples_(options.parameters && plan.study().samples
                     ? specs::open_samples(plan.study().samples->design)
                     : nullptr),
        table_(options.csv ? std::vector<std::string>{"task", "step", "sample", "state", "attempts",
                                                      "exit_code", "duration", "started", "worker", "cpu",
                                                      "peak_bytes", "read_bytes", "written_bytes"}
                           : std::vector<std::string>{"task", "state", "attempts", "exit code", "duration",
                                                      "cpu", "memory", "worker"}) {
    if (options.csv && !options.count) table_.print_csv();
  }

  void add(const TaskRow& selected) {
    ++found_;
    if (options_.count) return;
    Used used;
    const TaskRow row = with_usage(selected, usage_, used);
    if (options_.json) {
      fmt::print("{}{}", found_ == 1 ? "[\n  " : ",\n  ",
                 indented(with_parameters(to_json(plan_, row, used), row).dump(2)));
    } else if (options_.csv) {
      Table::print_csv_row(cells_of(plan_, row, used, false));
    } else {
      keep(row, used);
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
  static constexpr std::size_t kTogether = 10'000;  // rows with the same widths

  void keep(const TaskRow& row, const Used& used) {
    table_.add(cells_of(plan_, row, used, true));
    if (++kept_ < kTogether) return;
    table_.print(standard_output());
    table_.clear();
    kept_ = 0;
  }

  // As an element of a list that nlohmann::json would write.
  static std::string indented(const std::string& text) {
    std::string deeper;
    for (const char c : text) deeper += c == '\n' ? std::string("\n  ") : std::string(1, c);
    return deeper;
  }

  // The cells of the task's sample; an empty object where it has none.
  nlohmann::json with_parameters(nlohmann::json json, const TaskRow& row) const {
    if (!options_.parameters) return json;
    nlohmann::json& cells = json["parameters"] = nlohmann::json::object();
    const specs::PlannedStep& step = plan_.steps()[plan_.step_of(row.array)];
    const bool has_sample = samples_ != nullptr && step.sample_dependent && step.block_samples == 0;
    if (!has_sample || row.element >= samples_->count()) return json;
    for (std::size_t k = 0; k < samples_->columns().size(); ++k) {
      const std::string cell = samples_->text(row.element, k);
      const auto number = text::to_real(cell);
      cells[samples_->columns()[k]] = number ? nlohmann::json(*number) : nlohmann::json(cell);
    }
    return json;
  }

  const specs::Plan& plan_;
  const TasksOptions& options_;
  UsageOfRows usage_;
  std::unique_ptr<const specs::SampleTable> samples_;
  Table table_;
  std::uint64_t found_ = 0;
  std::size_t kept_ = 0;
};

int tasks(const TasksOptions& options) {
  const specs::Plan plan = read_plan(find_campaign(options.campaign));
  engine::Client client(plan);
  // What a program reads is complete; what a person reads has an end.
  const std::uint64_t limit =
      options.limit.value_or(options.json || options.csv || options.count ? 0 : kDefaultLimit);
  Listing listing(plan, client, options);
  bool more = false;
  select_tasks(plan, client, options.selection, [&](const TaskRow& row) {
    more = limit > 0 && listing.found() == limit;
    if (more) return false;
    listing.add(row);
    return true;
  });
  listing.finish(more);
  return 0;
}

}  // namespace

void add_tasks(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<TasksOptions>();
  CLI::App* command = app.add_subcommand("tasks", "list single tasks: which failed, how, where");
  command->footer(
      "Options and --where hold together. Fields of --where: step, array, state, sample, exit_code, "
      "attempts, worker, duration,\n"
      "reason, and the columns of the samples; = != < <= > >= in, and, or, not, parentheses. A comparison "
      "with what is not\n"
      "known (the worker of a task that is done) holds for no task.\n"
      "Examples:\n  wflow tasks --state failed\n  wflow tasks --where \"omega_m > 0.3 and state = failed\" "
      "--csv\n"
      "  wflow tasks cosmoflow --step simulate --exit-code 137 --count\n  wflow tasks --state running "
      "--duration '>10min'");
  command->add_option("campaign", options->campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  add_selection(*command, options->selection);
  command->add_option("--limit", options->limit,
                      "show so many at most; 0: all (default: 100, all for programs)");
  command->add_flag("--count", options->count, "only how many");
  auto* json = command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--parameters", options->parameters, "with the parameters of each task's sample")
      ->needs(json);
  command->add_flag("--csv", options->csv, "as comma-separated values")->excludes(json);
  command->callback([options, &chosen] { chosen = [options] { return tasks(*options); }; });
}

}  // namespace wflow::cli
