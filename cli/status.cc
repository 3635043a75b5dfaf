// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/campaigns.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "engine/coordinator.h"

namespace wflow::cli {

namespace {

struct StatusOptions {
  std::string campaign;
  bool json = false;
  bool brief = false;
};

int status(const StatusOptions& options) {
  const engine::CampaignStatus status = engine::campaign_status(find_campaign(options.campaign));
  if (options.json) {
    fmt::print("{}\n", engine::to_json(status).dump(2));
    return 0;
  }
  const Terminal terminal = standard_output();
  for (const std::string& line : overview(status, terminal)) fmt::print("{}\n", line);
  if (!options.brief) {
    for (const std::string& line : details(status, terminal, true)) fmt::print("{}\n", line);
  }
  fmt::print("\n{}\n", status.directory);
  if (status.coordinator.empty() && status.state == "interrupted")
    fmt::print("continue with: wflow resume {}\n", status.directory);
  return 0;
}

}  // namespace

void add_status(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "what is done, what failed, what is left");
  command->footer(
      "Works while the campaign runs and after it has ended or was killed.\n"
      "Examples:\n  wflow status\n  wflow status campaigns/cosmoflow_20261121-160001 --json");
  command->add_option("campaign", options->campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  command->add_flag("--json", options->json, "everything, as JSON");
  command->add_flag("--brief", options->brief, "one line a step");
  command->callback([options, &chosen] { chosen = [options] { return status(*options); }; });
}

}  // namespace wflow::cli
