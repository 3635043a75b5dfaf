// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/registry.h"
#include "cli/commands/commands.h"
#include "cli/view/listing.h"
#include "cli/view/report.h"
#include "cli/view/table.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

struct StatusOptions {
  std::string campaign;
  bool all = false;
  bool json = false;
  bool csv = false;
  bool brief = false;
};

// A row a step; the states in their own order.
void print_csv(const engine::CampaignStatus& status) {
  std::vector<std::string> headings = {"step", "kind", "arrays", "elements"};
  for (std::size_t i = 0; i < engine::kElementStates; ++i)
    headings.emplace_back(name_of(static_cast<engine::ElementState>(i)));
  headings.emplace_back("mean_s");
  Table table(headings);
  for (const engine::StepStatus& step : status.steps) {
    std::vector<Cell> cells = {
        {step.name}, {step.kind}, {std::to_string(step.arrays)}, {std::to_string(step.elements)}};
    for (const std::uint64_t count : step.counts) cells.push_back({std::to_string(count)});
    cells.push_back({text::from_real(step.mean_s)});
    table.add(std::move(cells));
  }
  table.print_csv();
}

int status(const StatusOptions& options) {
  if (options.all) {
    const Format format = options.json ? Format::json : options.csv ? Format::csv : Format::people;
    print_campaigns(remembered_campaigns(), format, false);
    return 0;
  }
  const engine::CampaignStatus status = engine::campaign_status(find_campaign(options.campaign));
  if (options.json) {
    fmt::print("{}\n", engine::to_json(status).dump(2));
    return 0;
  }
  if (options.csv) {
    print_csv(status);
    return 0;
  }
  const Terminal terminal = standard_output();
  for (const std::string& line : overview(status, terminal)) fmt::print("{}\n", line);
  if (!options.brief) {
    for (const std::string& line : details(status, terminal, true)) fmt::print("{}\n", line);
  }
  fmt::print("\n{}\n", status.directory);
  const auto& after = status.followups;
  const bool left = std::any_of(after.begin(), after.end(), [](const auto& f) { return f.left(); });
  if (status.coordinator.empty() && !status.allocations.allocations.empty()) {
    fmt::print("the coordinator of the next allocation goes on\n");
  } else if (status.coordinator.empty() && (status.state == engine::CampaignState::interrupted || left) &&
             !engine::running_campaign(status.directory)) {
    fmt::print("continue with: wflow resume {}\n", status.directory);
  }
  return 0;
}

}  // namespace

void add_status(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "what is done, what failed, what is left");
  command->footer(
      "Works while the campaign runs and after it has ended or was killed. Tasks that are assigned run on a "
      "worker "
      "or wait in its queue.\n"
      "Examples:\n  wflow status\n  wflow status campaigns/cosmoflow_20261121-160001 --json\n  wflow status "
      "--all");
  auto* campaign =
      command->add_option("campaign", options->campaign,
                          "its directory, or the beginning of its name (default: the newest here)");
  command->add_flag("--all", options->all, "one line for each of your campaigns, wherever they are")
      ->excludes(campaign);
  auto* json = command->add_flag("--json", options->json, "everything, as JSON");
  command->add_flag("--csv", options->csv, "a row a step (--all: a campaign), as comma-separated values")
      ->excludes(json);
  command->add_flag("--brief", options->brief, "one line a step");
  command->callback([options, &chosen] { chosen = [options] { return status(*options); }; });
}

}  // namespace wflow::cli
