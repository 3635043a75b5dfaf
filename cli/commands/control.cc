// SPDX-License-Identifier: Apache-2.0
// wflow retry, cancel, pause, unpause, drain, stop: what is asked of a running campaign.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"

namespace wflow::cli {

namespace {

constexpr const char* kCampaign = "its directory, or the beginning of its name (default: the newest here)";

struct ControlOptions {
  RunOptions run;
  SelectionOptions selection;
  bool kill = false;
  bool json = false;
};

bool chooses_single_tasks(const SelectionOptions& selection) {
  return !selection.where.empty() || !selection.worker.empty() || !selection.duration.empty();
}

// Step, range and exit code are the coordinator's business, so that a hundred million tasks are one answer;
// what needs a look at every task is chosen here, from those in these states.
engine::RetryRequest request_of(const specs::Plan& plan, const SelectionOptions& selection,
                                const std::vector<std::string>& states) {
  engine::RetryRequest request{selection.step, std::nullopt, selection.exit_code, std::nullopt};
  if (!selection.range.empty()) request.elements = parse_range(selection.range);
  if (!chooses_single_tasks(selection)) return request;
  SelectionOptions chosen = selection;
  chosen.states = states;
  engine::Client client(plan);
  auto& parts = request.parts.emplace();
  select_tasks(plan, client, chosen, [&](const TaskRow& row) {
    if (!parts.empty() && parts.back().first == row.array && parts.back().second.last + 1 == row.element) {
      parts.back().second.last = row.element;
    } else {
      parts.push_back({row.array, {row.element, row.element}});
    }
    return true;
  });
  return request;
}

std::string tasks_text(std::uint64_t count) {
  return fmt::format("{} task{}", text::format_count(count), count == 1 ? "" : "s");
}

int retry(ControlOptions& options) {
  const specs::Plan plan = read_plan(find_campaign(options.run.campaign));
  const engine::RetryRequest request =
      request_of(plan, options.selection, {"failed", "hard_failed", "cancelled"});
  // Temporary clients: one that has read the record at rest would hold it against our own coordinator.
  const auto answer = engine::Client(plan).command("retry", engine::to_json(request));
  const std::uint64_t count =
      (answer ? *answer : engine::Client(plan).ask("retryable", engine::to_json(request))).at("count");
  if (options.json) fmt::print("{}\n", nlohmann::json{{"count", count}, {"live", answer.has_value()}}.dump());
  if (count == 0) {
    if (!options.json) fmt::print("nothing to run again: no such failure\n");
    return 0;
  }
  if (!options.json && !options.run.quiet)
    fmt::print("{} will run again, with what follows\n", tasks_text(count));
  if (answer) return 0;
  options.run.retry = request;
  if (options.json) options.run.quiet = true;
  return coordinate(plan, options.run, true);
}

nlohmann::json command(const specs::Plan& plan, const std::string& verb, const nlohmann::json& arguments) {
  const auto answer = engine::Client(plan).command(verb, arguments);
  if (answer) return *answer;
  throw Error(ExitCode::usage,
              fmt::format("nothing to {}: no coordinator runs {} (wflow status tells how it ended)", verb,
                          plan.campaign().string()));
}

int cancel(const ControlOptions& options) {
  const specs::Plan plan = read_plan(working_campaign(find_campaign(options.run.campaign)));
  std::vector<std::string> states = {"blocked", "ready", "delayed"};
  if (options.kill) states.emplace_back("running");
  nlohmann::json arguments = engine::to_json(request_of(plan, options.selection, states));
  arguments["kill"] = options.kill;
  const nlohmann::json answer = command(plan, "cancel", arguments);
  if (options.json) {
    fmt::print("{}\n", answer.dump());
  } else {
    fmt::print("{} cancelled; wflow retry runs them after all\n", tasks_text(answer.at("count")));
  }
  return 0;
}

int simple(const ControlOptions& options, const std::string& verb, const char* said) {
  const specs::Plan plan = read_plan(working_campaign(find_campaign(options.run.campaign)));
  command(plan, verb, nlohmann::json::object());
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"directory", plan.campaign().string()}, {"asked", verb}}.dump());
  } else {
    fmt::print("{}\n", said);
  }
  return 0;
}

void add_simple(CLI::App& app, Command& chosen, const std::string& verb, const char* description,
                const char* footer, const char* said) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* sub = app.add_subcommand(verb, description);
  sub->footer(footer);
  sub->add_option("campaign", options->run.campaign, kCampaign);
  sub->add_flag("--json", options->json, "as JSON");
  sub->callback([options, verb, said, &chosen] {
    chosen = [options, verb, said] { return simple(*options, verb, said); };
  });
}

}  // namespace

void add_retry(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* sub =
      app.add_subcommand("retry", "run failed tasks again, and what was skipped or ran without them");
  sub->footer(
      "While the campaign runs its coordinator does it; afterwards the campaign is continued, as by wflow "
      "resume.\n"
      "Examples:\n  wflow retry\n  wflow retry cosmoflow --step simulate --range 100:199\n  wflow retry "
      "--exit-code 137 -j 4\n  wflow retry --where \"omega_m > 0.3\"");
  sub->add_option("campaign", options->run.campaign, kCampaign);
  add_chosen(*sub, options->selection);
  sub->add_option("--exit-code", options->selection.exit_code,
                  "whose last execution ended with this exit code");
  sub->add_flag("--json", options->json, "how many, as JSON");
  add_common(*sub, options->run);
  sub->callback([options, &chosen] { chosen = [options] { return retry(*options); }; });
}

void add_cancel(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* sub = app.add_subcommand("cancel", "give up tasks that have not started");
  sub->footer(
      "What runs may finish (--kill: is ended); what waits for a cancelled task is skipped or cancelled with "
      "it.\n"
      "Examples:\n  wflow cancel\n  wflow cancel cosmoflow --step simulate --range 500:\n  wflow cancel "
      "--kill\n  "
      "wflow cancel --kill --where \"state = running and duration > 600\"");
  sub->add_option("campaign", options->run.campaign, kCampaign);
  add_chosen(*sub, options->selection);
  sub->add_flag("--kill", options->kill, "end running tasks too");
  sub->add_flag("--json", options->json, "how many, as JSON");
  sub->callback([options, &chosen] { chosen = [options] { return cancel(*options); }; });
}

void add_control(CLI::App& app, Command& chosen) {
  add_simple(app, chosen, "pause", "start no new tasks until unpause",
             "Workers stay; what runs goes on.\nExamples:\n  wflow pause",
             "paused; go on with: wflow unpause");
  add_simple(app, chosen, "unpause", "go on after pause", "Examples:\n  wflow unpause",
             "the campaign goes on");
  add_simple(app, chosen, "drain", "let running tasks finish, then end; as Ctrl-C once",
             "Training writes a checkpoint first.\nExamples:\n  wflow drain      # later: wflow resume",
             "draining; continue later with: wflow resume");
  add_simple(app, chosen, "stop", "end now; as Ctrl-C twice",
             "What runs is ended and will run again.\nExamples:\n  wflow stop       # later: wflow resume",
             "stopping; continue later with: wflow resume");
}

}  // namespace wflow::cli
