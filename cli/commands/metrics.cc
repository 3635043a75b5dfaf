// SPDX-License-Identifier: Apache-2.0
// wflow metrics: a campaign's numbers for Prometheus.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/observe/observer.h"
#include "engine/query/client.h"

namespace wflow::cli {

void add_metrics(CLI::App& app, Command& chosen) {
  struct Options {
    std::string campaign, output;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("metrics", "print a campaign's numbers for Prometheus");
  command->footer(
      "A study with `metrics: {prometheus: FILE.prom}` has the file written every 15 seconds while it runs.\n"
      "Examples:\n  wflow metrics\n  wflow metrics CAMPAIGN -o /var/lib/node_exporter/wflow.prom");
  command->add_option("campaign", options->campaign, kCampaign);
  command->add_option("-o,--output", options->output, "write this file, in one piece, in place of printing");
  command->callback([options, &chosen] {
    chosen = [options] {
      const std::string text = prometheus_text(engine::Client(find_campaign(options->campaign)).status());
      options->output.empty() ? void(fmt::print("{}", text)) : write_metrics(options->output, text);
      return 0;
    };
  });
}

}  // namespace wflow::cli
