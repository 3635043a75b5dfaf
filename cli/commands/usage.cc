// SPDX-License-Identifier: Apache-2.0
// wflow usage: the usage of each step's tasks, the study's requests, and what to ask for next time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/task_words.h"
#include "cli/campaign/usage.h"
#include "cli/commands/commands.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

using engine::QuantileSketch;

constexpr int kUsageVersion = 1;  // version of --json
constexpr double kUsageHigh = 0.95;
constexpr std::size_t kBins = 16;

struct UsageOptions {
  TaskWords words;
  bool json = false;
  bool csv = false;
};

std::string usage_bytes(double bytes) {
  return text::format_bytes(static_cast<std::uint64_t>(std::max(bytes, 0.0)));
}

// The reasons why executions did not succeed, in words.
std::string lost_word(const std::string& reason) {
  if (reason == "exited") return "by their exit code";
  std::string words = reason;
  std::ranges::replace(words, '_', ' ');
  return words;
}

// Seconds and bytes as plain numbers; empty for what the study does not ask for.
Table table_of(const UsageFacts& facts) {
  Table table({"step", "executions", "duration_median_s", "duration_p95_s", "duration_max_s",
               "timeout_asked_s", "cores_used", "cores_asked", "peak_bytes_median", "peak_bytes_p95",
               "peak_bytes_max", "memory_asked_bytes", "cpu_sum_s", "read_bytes_sum", "written_bytes_sum",
               "failed_executions", "failed_s"});
  const auto number = [](double value) { return Cell{text::from_real(value)}; };
  const auto bytes = [](double value) { return Cell{std::to_string(std::llround(value))}; };
  for (const StepFacts& step : facts.steps) {
    const engine::StepUsage& used = step.used;
    if (used.executions() == 0) continue;
    std::uint64_t lost = 0;
    double lost_s = 0;
    for (const engine::wire::LostTime& part : step.lost) {
      lost += part.executions;
      lost_s += part.seconds;
    }
    table.add({{step.name},
               {std::to_string(used.executions())},
               number(used.duration_s.quantile(0.5)),
               number(used.duration_s.quantile(kUsageHigh)),
               number(used.duration_s.most()),
               step.asked.timeout_s > 0 ? number(step.asked.timeout_s) : Cell{},
               number(cores_used(used)),
               {std::to_string(step.asked.all_cores())},
               bytes(used.peak_bytes.quantile(0.5)),
               bytes(used.peak_bytes.quantile(kUsageHigh)),
               bytes(used.peak_bytes.most()),
               step.asked.memory_bytes > 0 ? Cell{std::to_string(step.asked.memory_bytes)} : Cell{},
               number(used.cpu_s.sum()),
               bytes(used.read_bytes.sum()),
               bytes(used.written_bytes.sum()),
               {std::to_string(lost)},
               number(lost_s)});
  }
  return table;
}

// Keeps the steps that the words name. Usage is recorded by step: of a part of one, tasks has the figures.
void keep_named(const std::filesystem::path& campaign, const TaskWords& tasks, UsageFacts& facts) {
  if (tasks.empty()) return;
  const specs::Plan plan = read_plan(campaign);
  std::set<std::string> names;
  for (const Stretch& stretch : tasks_named(plan, tasks)) {
    const specs::PlannedStep& step = plan.steps()[plan.step_of(stretch.first)];
    if (!stretch.is_whole(step)) {
      throw Error(ExitCode::usage,
                  fmt::format("wflow usage sums up whole steps; of single tasks: wflow tasks {} --csv",
                              text::join(tasks, " ")));
    }
    names.insert(step.name);
  }
  std::erase_if(facts.steps, [&](const StepFacts& step) { return !names.contains(step.name); });
}

// "  memory   median ...   95 % ...   most ...   asked 8 GiB" and, below, the distribution.
template <class Format>
void print_spread(const char* what, const QuantileSketch& sketch, const std::string& asked, Format format,
                  const Terminal& terminal) {
  fmt::print("  {:<8} median {:>11}   95 % {:>11}   most {:>11}{}\n", what, format(sketch.quantile(0.5)),
             format(sketch.quantile(kUsageHigh)), format(sketch.most()),
             asked.empty() ? "" : "   asked " + asked);
  const auto bins = histogram(sketch, kBins);
  if (bins.empty() || sketch.count() < 2) return;
  fmt::print("           {:>11} |{}| {}\n", format(bins.front().from),
             styled(terminal, Style::cyan, bars_of(bins, terminal)), format(bins.back().to));
}

void print_step(const StepFacts& step, const Terminal& terminal) {
  const engine::StepUsage& used = step.used;
  fmt::print("{}  {} executions, {} of CPU\n", styled(terminal, Style::bold, step.name),
             text::format_count(used.executions()), text::format_duration(used.cpu_s.sum()));
  const auto time = [](double seconds) { return text::format_duration(seconds); };
  print_spread("time", used.duration_s,
               step.asked.timeout_s > 0 ? time(step.asked.timeout_s) + " at most" : "", time, terminal);
  const auto size = [](double bytes) { return usage_bytes(bytes); };
  print_spread("memory", used.peak_bytes,
               step.asked.memory_bytes > 0 ? size(static_cast<double>(step.asked.memory_bytes)) : "", size,
               terminal);
  if (used.read_bytes.sum() > 0) print_spread("read", used.read_bytes, "", size, terminal);
  if (used.written_bytes.sum() > 0) print_spread("written", used.written_bytes, "", size, terminal);
  fmt::print("  {:<8} {:.2f} used of {} asked\n", "cores", cores_used(used), step.asked.all_cores());
  for (const engine::wire::LostTime& lost : step.lost) {
    fmt::print("  {:<8} {} executions ended {}, after {} in all\n", "failed",
               text::format_count(lost.executions), lost_word(lost.reason),
               text::format_duration(lost.seconds));
  }
}

std::string hours_text(double hours) {
  return hours < 0.1 ? fmt::format("{:.3g}", hours) : fmt::format("{:.1f}", hours);
}

void print_hours(const HourFacts& hours) {
  const auto share = [&](double part) { return hours.node_h > 0 ? 100 * part / hours.node_h : 0; };
  fmt::print("\nnode-hours  {} of {} worker{} ({} core-hours)\n", hours_text(hours.node_h), hours.workers,
             hours.workers == 1 ? "" : "s", hours_text(hours.core_h));
  fmt::print("  used by tasks      {:>8} {:>4.0f} %\n", hours_text(hours.used_node_h),
             share(hours.used_node_h));
  fmt::print("  of that by failed  {:>8} {:>4.0f} %\n", hours_text(hours.lost_node_h),
             share(hours.lost_node_h));
  fmt::print("  idle               {:>8} {:>4.0f} %\n", hours_text(hours.idle_node_h),
             share(hours.idle_node_h));
}

void print_for_people(const UsageFacts& facts) {
  const Terminal terminal = standard_output();
  bool any = false;
  for (const StepFacts& step : facts.steps) {
    if (step.used.executions() == 0) continue;
    any = true;
    print_step(step, terminal);
  }
  if (!any) fmt::print("no execution of a millisecond or more has ended yet\n");
  if (facts.hours) print_hours(*facts.hours);
  std::vector<std::string> lines;
  for (const StepFacts& step : facts.steps) {
    for (const Advice& advice : step.advice) lines.push_back(step.name + ": " + sentence_of(advice));
  }
  for (const Advice& advice : facts.advice) lines.push_back("batch: " + sentence_of(advice));
  if (!lines.empty()) fmt::print("\nfor the next run\n");
  for (const std::string& line : lines) {
    for (const std::string& part : wrapped("  " + line, terminal.width, 4)) fmt::print("{}\n", part);
  }
}

nlohmann::json json_of(const QuantileSketch& sketch) {
  nlohmann::json bins = nlohmann::json::array();
  for (const HistogramBin& bin : histogram(sketch, kBins))
    bins.push_back({{"from", bin.from}, {"to", bin.to}, {"count", bin.count}});
  return {{"median", sketch.quantile(0.5)},
          {"p95", sketch.quantile(kUsageHigh)},
          {"max", sketch.most()},
          {"sum", sketch.sum()},
          {"histogram", std::move(bins)}};
}

nlohmann::json json_of(const std::vector<Advice>& list) {
  nlohmann::json all = nlohmann::json::array();
  for (const Advice& advice : list)
    all.push_back({{"about", advice.about},
                   {"sentence", sentence_of(advice)},
                   {"line", advice.line.empty() ? nlohmann::json() : nlohmann::json(advice.line)}});
  return all;
}

nlohmann::json json_of(const StepFacts& step) {
  nlohmann::json lost = nlohmann::json::array();
  for (const engine::wire::LostTime& part : step.lost)
    lost.push_back({{"reason", part.reason}, {"executions", part.executions}, {"seconds", part.seconds}});
  return {
      {"step", step.name},
      {"kind", step.kind},
      {"executions", step.used.executions()},
      {"duration_s", json_of(step.used.duration_s)},
      {"cpu_s", json_of(step.used.cpu_s)},
      {"peak_bytes", json_of(step.used.peak_bytes)},
      {"read_bytes", json_of(step.used.read_bytes)},
      {"written_bytes", json_of(step.used.written_bytes)},
      {"cores_used", cores_used(step.used)},
      {"cores_asked", step.asked.all_cores()},
      {"memory_asked_bytes", step.asked.memory_bytes},
      {"timeout_asked_s", step.asked.timeout_s > 0 ? nlohmann::json(step.asked.timeout_s) : nlohmann::json()},
      {"failed", std::move(lost)},
      {"advice", json_of(step.advice)}};
}

void print_json(const UsageFacts& facts) {
  nlohmann::json steps = nlohmann::json::array();
  for (const StepFacts& step : facts.steps) steps.push_back(json_of(step));
  nlohmann::json all = {{"version", kUsageVersion},        {"name", facts.name},
                        {"directory", facts.directory},    {"state", name_of(facts.state)},
                        {"time_s", facts.time_s},          {"steps", std::move(steps)},
                        {"advice", json_of(facts.advice)}, {"node_hours", nullptr}};
  if (facts.hours) {
    all["node_hours"] = {{"workers", facts.hours->workers},  {"core_hours", facts.hours->core_h},
                         {"all", facts.hours->node_h},       {"used", facts.hours->used_node_h},
                         {"idle", facts.hours->idle_node_h}, {"lost", facts.hours->lost_node_h}};
  }
  fmt::print("{}\n", all.dump(2));
}

int usage(const UsageOptions& options) {
  const Meant meant = meant_by(options.words);
  UsageFacts facts = usage_facts(meant.campaign);
  keep_named(meant.campaign, meant.tasks, facts);
  if (options.json) {
    print_json(facts);
  } else if (options.csv) {
    table_of(facts).print_csv();
  } else {
    print_for_people(facts);
  }
  return 0;
}

}  // namespace

void add_usage(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<UsageOptions>();
  CLI::App* command =
      app.add_subcommand("usage", "what tasks used of what was asked for, and what to ask for next time");
  command->footer(
      "Of every execution of a millisecond or more, and of those that failed; live and afterwards. Bars show "
      "how "
      "many executions took so much, on a logarithmic axis. Node-hours are of workers, from when each joined "
      "to its "
      "end, or to now; used is what tasks held of them by the cores that their step asks for, and failed the "
      "part of "
      "it that executions without success held.\n"
      "`wflow explain TASK` has the same of one task.\n"
      "Examples:\n  wflow usage\n  wflow usage simulate\n  wflow usage campaigns/cosmoflow_20261121-160001 "
      "--csv");
  add_task_words(*command, options->words);
  auto* json = command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--csv", options->csv, "a row a step, as comma-separated values: seconds and bytes")
      ->excludes(json);
  command->callback([options, &chosen] { chosen = [options] { return usage(*options); }; });
}

}  // namespace wflow::cli
