// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/view/status.h"
#include "engine/query/client.h"
#include "specs/plan/plan.h"
#include "specs/plan/versions.h"

namespace wflow::cli {

namespace {

namespace wire = engine::wire;
using engine::ElementState;
using Json = nlohmann::json;

struct ExplainOptions {
  SelectionOptions selection;
  std::uint64_t limit = 20;
  bool json = false;
};

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

Json json_of(const specs::Plan& plan, engine::ArrayId array, const wire::ExplainAnswer& answer) {
  Json json = json_of(answer);
  json["version"] = specs::current_version(plan.campaign());
  json["fingerprint"] = specs::fingerprint_of(plan, array);
  return json;
}

int explain(ExplainOptions& options) {
  const specs::Plan plan = read_plan(open_selection(options.selection));
  engine::Client client(plan);
  const ChosenTasks chosen = chosen_tasks(plan, client, options.selection, options.limit);
  Json list = Json::array();
  for (const specs::TaskId& task : chosen.tasks) {
    const wire::ExplainAnswer answer = client.explain({task.array, task.element});
    if (options.json) {
      list.push_back(json_of(plan, task.array, answer));
      continue;
    }
    if (!list.empty()) fmt::print("\n");
    for (const std::string& line : explain_lines(plan, answer, client.live(), standard_output()))
      fmt::print("{}\n", line);
    list.push_back(nullptr);
  }
  if (options.json) fmt::print("{}\n", (chosen.is_one() ? list.front() : list).dump(2));
  if (!options.json) print_rest(chosen);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "why a task waits, failed or moved, and when");
  command->footer(
      "Every execution that did not succeed, with worker, exit code and the end of its output; also long "
      "after.\n"
      "Examples:\n  wflow explain simulate/12\n  wflow explain cosmoflow train --json\n  "
      "wflow explain --failed --limit 3");
  add_selection(*command, options->selection);
  command->add_option("--limit", options->limit, "of many, so many at most; 0: all (default: 20)");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return explain(*options); }; });
}

}  // namespace wflow::cli
