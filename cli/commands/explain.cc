// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/task_arguments.h"
#include "cli/commands/commands.h"
#include "cli/view/report.h"
#include "engine/query/queries.h"
#include "specs/plan/task_name.h"

namespace wflow::cli {

namespace {

using Json = nlohmann::json;

struct ExplainOptions {
  TaskArguments task;
  bool json = false;
};

std::string names_of(const Json& list) {
  std::vector<std::string> names;
  for (const auto& name : list) names.push_back(name);
  return text::join(names, ", ");
}

std::uint64_t sum_of(const Json& counts, bool ended) {
  std::uint64_t sum = 0;
  for (const auto& [state, count] : counts.items()) {
    const bool open = state == "blocked" || state == "ready" || state == "running" || state == "delayed";
    if (open != ended) sum += count.get<std::uint64_t>();
  }
  return sum;
}

std::string sentence(const Json& answer, bool live) {
  const std::string state = answer.at("state");
  const std::string nobody = live ? "" : "; no coordinator runs: wflow resume continues the campaign";
  const auto executions = answer.at("executions").size();
  if (state == "blocked") return "waits for what is listed below" + nobody;
  if (state == "ready")
    return (answer.at("paused").get<bool>() && live ? "could run, but the campaign is paused"
                                                    : "can run, and waits for a free worker") +
           nobody;
  if (state == "delayed")
    return fmt::format("failed {} time{} and will run again", executions, executions == 1 ? "" : "s") +
           nobody;
  if (state == "running") {
    if (!answer.contains("running_since")) return "is in the queue of worker " + answer.value("worker", "");
    const double now_s = unix_now_s();
    return fmt::format("has run on worker {} for {}", answer.value("worker", ""),
                       text::format_duration(now_s - answer.at("running_since").get<double>()));
  }
  if (state == "done")
    return executions == 0 ? "succeeded at the first execution"
                           : fmt::format("succeeded after {} execution{} that did not", executions,
                                         executions == 1 ? "" : "s");
  if (state == "failed")
    return "failed for good; dependents run unless they can't work without it; wflow retry runs it again";
  if (state == "hard_failed")
    return "failed with exit code 102: what depends on it is skipped; wflow retry runs it again";
  if (state == "skipped")
    return "was skipped, because what it needs ended badly (below); wflow retry runs both";
  return "was cancelled; wflow retry runs it after all";
}

void print_parent(const Json& parent) {
  const Json& counts = parent.at("counts");
  const std::uint64_t done = counts.value("done", std::uint64_t{0});
  const std::uint64_t needed = parent.at("needed");
  std::vector<std::string> parts = {
      fmt::format("{} of {} done", text::format_count(done), text::format_count(needed))};
  for (const auto& [state, count] : counts.items()) {
    if (state != "done")
      parts.push_back(fmt::format("{} {}", text::format_count(count.get<std::uint64_t>()), state));
  }
  fmt::print("  needs {}: {}\n", parent.at("array").get<std::string>(), text::join(parts, ", "));
  const auto print_names = [&](const char* what, const Json& names, std::uint64_t all) {
    if (names.empty() || needed == 1) return;
    fmt::print("      {}: {}{}\n", what, names_of(names), all > names.size() ? ", ..." : "");
  };
  print_names("not ended", parent.at("open"), sum_of(counts, false));
  print_names("ended badly", parent.at("ended_badly"), sum_of(counts, true) - done);
}

void print_execution(const Json& row) {
  const std::string host = row.value("host", "");
  fmt::print("  {}  execution {}: {} after {} on worker {}{}\n", clock_time(row.at("started")),
             row.at("attempt").get<int>() + 1, row.at("reason").get<std::string>(),
             text::format_duration(row.at("duration")), row.at("worker").get<std::string>(),
             row.contains("worker_ended")
                 ? fmt::format(" (gone since {}: {})", clock_time(row.at("worker_ended")),
                               row.value("worker_reason", ""))
                 : "");
  const std::string detail(text::trim(row.at("detail").get<std::string>()));
  if (detail.empty()) return;
  for (const std::string& line : text::split(text::tail(detail, 2000), '\n')) fmt::print("      {}\n", line);
}

int explain(const ExplainOptions& options) {
  const specs::Plan plan = read_plan(find_campaign(options.task.campaign()));
  const specs::TaskId task = specs::find_task(plan, options.task.task());
  engine::Client client(plan);
  const Json answer = client.ask("explain", {{"array", task.array}, {"element", task.element}});
  if (options.json) {
    fmt::print("{}\n", answer.dump(2));
    return 0;
  }
  fmt::print("{}  {}: {}\n", styled(standard_output(), Style::bold, answer.at("task").get<std::string>()),
             answer.at("state").get<std::string>(), sentence(answer, client.live()));
  for (const Json& parent : answer.at("waits_for")) print_parent(parent);
  for (const Json& row : answer.at("executions")) print_execution(row);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "why a task waits, failed or moved, and when");
  command->footer(
      "Every execution that did not succeed, with worker, exit code and the end of its output; also long "
      "after.\n"
      "Examples:\n  wflow explain simulate/12\n  wflow explain campaigns/cosmoflow_20261121-160001 train "
      "--json");
  add_task_arguments(*command, options->task);
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return explain(*options); }; });
}

}  // namespace wflow::cli
