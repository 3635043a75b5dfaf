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
#include "engine/query/client.h"
#include "specs/plan/fingerprint.h"
#include "specs/plan/task_name.h"
#include "specs/plan/versions.h"

namespace wflow::cli {

namespace {

namespace wire = engine::wire;
using engine::ElementState;
using Json = nlohmann::json;

struct ExplainOptions {
  TaskArguments task;
  bool json = false;
};

std::uint64_t sum_of(const wire::ParentView& parent, bool ended) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < engine::kElementStates; ++i) {
    if (has_ended(static_cast<ElementState>(i)) == ended) sum += parent.counts[i];
  }
  return sum;
}

std::string sentence(const wire::ExplainAnswer& answer, bool live) {
  const std::string nobody = live ? "" : "; no coordinator runs: wflow resume continues the campaign";
  const std::uint64_t executions = answer.executions_total;
  const std::string plural = executions == 1 ? "" : "s";
  switch (answer.state) {
    case ElementState::blocked:
      return "waits for what is listed below" + nobody;
    case ElementState::ready:
      if (live && !answer.paused && !answer.waits_for.empty())
        return "can run; waits for " + answer.waits_for;
      return (answer.paused && live ? "could run, but the campaign is paused"
                                    : "can run, and waits for a free worker") +
             nobody;
    case ElementState::delayed:
      return fmt::format("failed {} time{} and will run again", executions, plural) + nobody;
    case ElementState::leased:
      if (!answer.running_since_s) return "is in the queue of worker " + answer.worker;
      return fmt::format("has run on worker {} for {}", answer.worker,
                         text::format_duration(unix_now_s() - *answer.running_since_s));
    case ElementState::done:
      if (!answer.missing.empty())
        return "ended with exit code 0, but its output could not be used; wflow redo --missing runs it again";
      return executions == 0 ? "succeeded at the first execution"
                             : fmt::format("succeeded after {} execution{} that did not", executions, plural);
    case ElementState::failed:
      return "failed for good; dependents run unless they can't work without it; wflow retry runs it again";
    case ElementState::hard_failed:
      return "failed with exit code 102: what depends on it is skipped; wflow retry runs it again";
    case ElementState::skipped:
      return "was skipped, because what it needs ended badly (below); wflow retry runs both";
    case ElementState::cancelled:
      break;
  }
  return "was cancelled; wflow retry runs it after all";
}

void print_parent(const wire::ParentView& parent) {
  const std::uint64_t done = parent.counts[static_cast<std::size_t>(ElementState::done)];
  std::vector<std::string> parts = {
      fmt::format("{} of {} done", text::format_count(done), text::format_count(parent.needed))};
  for (std::size_t i = 0; i < engine::kElementStates; ++i) {
    const auto state = static_cast<ElementState>(i);
    if (state != ElementState::done && parent.counts[i] > 0)
      parts.push_back(fmt::format("{} {}", text::format_count(parent.counts[i]), name_of(state)));
  }
  fmt::print("  needs {}: {}\n", parent.array, text::join(parts, ", "));
  const auto print_names = [&](const char* what, const std::vector<std::string>& names, std::uint64_t all) {
    if (names.empty() || parent.needed == 1) return;
    fmt::print("      {}: {}{}\n", what, text::join(names, ", "), all > names.size() ? ", ..." : "");
  };
  print_names("not ended", parent.open, sum_of(parent, false));
  print_names("ended badly", parent.ended_badly, sum_of(parent, true) - done);
}

std::string used_text(const engine::TaskUsage& used) {
  return fmt::format(
      "{} of CPU, {} of memory{}{}", text::format_duration(used.cpu_s), text::format_bytes(used.peak_bytes),
      used.read_bytes > 0 ? fmt::format(", read {}", text::format_bytes(used.read_bytes)) : "",
      used.written_bytes > 0 ? fmt::format(", wrote {}", text::format_bytes(used.written_bytes)) : "");
}

// One that did not fail: the failed ones stand among the executions.
void print_success(const wire::UsedView& row) {
  const engine::TaskUsage& used = row.usage;
  const std::string with = used.count == 1 ? "" : fmt::format(" with {} other samples", used.count - 1);
  fmt::print("  {}  execution {}: ran for {}{} on worker {}: {}\n", clock_time(used.started_s),
             used.attempt + 1, text::format_duration(used.duration_s), with, row.worker, used_text(used));
}

void print_execution(const wire::ExecutionView& row, const std::string& used) {
  fmt::print("  {}  execution {}: {} after {} on worker {}{}{}\n", clock_time(row.started_s), row.attempt + 1,
             row.reason, text::format_duration(row.duration_s), row.worker,
             row.worker_ended_s > 0
                 ? fmt::format(" (gone since {}: {})", clock_time(row.worker_ended_s), row.worker_reason)
                 : "",
             used.empty() ? "" : ": " + used);
  const std::string detail(text::trim(row.detail));
  if (detail.empty()) return;
  for (const std::string& line : text::split(text::tail(detail, 2000), '\n')) fmt::print("      {}\n", line);
}

// With a number of what is left out.
void print_rest(std::uint64_t total, std::size_t shown, const char* what) {
  if (total > shown) fmt::print("  and {} {} more\n", text::format_count(total - shown), what);
}

Json json_of(const wire::ParentView& parent) {
  Json counts = Json::object();
  for (std::size_t i = 0; i < engine::kElementStates; ++i) {
    if (parent.counts[i] > 0) counts[std::string(name_of(static_cast<ElementState>(i)))] = parent.counts[i];
  }
  return {{"array", parent.array},
          {"needed", parent.needed},
          {"counts", counts},
          {"open", parent.open},
          {"ended_badly", parent.ended_badly}};
}

Json json_of(const wire::ExecutionView& row) {
  Json json = {{"attempt", row.attempt},   {"reason", row.reason},       {"worker", row.worker},
               {"started", row.started_s}, {"duration", row.duration_s}, {"final", row.final},
               {"detail", row.detail}};
  if (row.host.empty()) return json;
  json["host"] = row.host;
  if (row.worker_ended_s > 0) json["worker_ended"] = row.worker_ended_s;
  json["worker_reason"] = row.worker_reason;
  return json;
}

Json json_of(const wire::UsedView& row) {
  const engine::TaskUsage& used = row.usage;
  return {
      {"attempt", used.attempt},       {"first", used.first},           {"count", used.count},
      {"started", used.started_s},     {"duration", used.duration_s},   {"cpu", used.cpu_s},
      {"peak_bytes", used.peak_bytes}, {"read_bytes", used.read_bytes}, {"written_bytes", used.written_bytes},
      {"worker", row.worker}};
}

Json json_of(const wire::ExplainAnswer& answer) {
  Json json = {{"task", answer.task},        {"step", answer.step},     {"state", name_of(answer.state)},
               {"waits_for", Json::array()}, {"paused", answer.paused}, {"executions", Json::array()}};
  for (const auto& parent : answer.parents) json["waits_for"].push_back(json_of(parent));
  for (const auto& row : answer.executions) json["executions"].push_back(json_of(row));
  json["used"] = Json::array();
  for (const auto& row : answer.used) json["used"].push_back(json_of(row));
  if (!answer.missing.empty()) json["state"] = "missing";
  json["missing"] = answer.missing;
  if (!answer.waits_for.empty()) json["waits_for_allocation"] = answer.waits_for;
  if (!answer.worker.empty()) json["worker"] = answer.worker;
  if (answer.running_since_s) json["running_since"] = *answer.running_since_s;
  return json;
}

int explain(const ExplainOptions& options) {
  const specs::Plan plan = read_plan(find_campaign(options.task.campaign()));
  const specs::TaskId task = specs::find_task(plan, options.task.task());
  engine::Client client(plan);
  const wire::ExplainAnswer answer = client.explain({task.array, task.element});
  if (options.json) {
    Json json = json_of(answer);
    json["version"] = specs::current_version(plan.campaign());
    json["fingerprint"] = specs::fingerprint_of(plan, task.array);
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  fmt::print("{}  {}: {}\n", styled(standard_output(), Style::bold, answer.task),
             answer.missing.empty() ? name_of(answer.state) : "missing", sentence(answer, client.live()));
  for (const auto& parent : answer.parents) print_parent(parent);
  print_rest(answer.parents_total, answer.parents.size(), "arrays");
  const auto used_by = [&](const wire::ExecutionView& row) {
    for (const wire::UsedView& used : answer.used) {
      if (used.usage.attempt == row.attempt && used.worker == row.worker) return used_text(used.usage);
    }
    return std::string();
  };
  for (const std::string& reason : answer.missing) fmt::print("  missing from {}\n", reason);
  for (const auto& row : answer.executions) print_execution(row, used_by(row));
  print_rest(answer.executions_total, answer.executions.size(), "earlier executions");
  if (answer.state != ElementState::done) return 0;
  // The last one has succeeded.
  if (!answer.used.empty()) print_success(answer.used.back());
  fmt::print("  as version {} of the study makes it, fingerprint {}\n",
             specs::current_version(plan.campaign()), specs::fingerprint_of(plan, task.array));
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
