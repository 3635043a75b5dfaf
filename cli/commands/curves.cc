// SPDX-License-Identifier: Apache-2.0
// wflow curves: the metrics of several trainings in one plot.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/trainings.h"
#include "cli/commands/commands.h"
#include "cli/observe/observer.h"
#include "cli/plot/figure.h"
#include "cli/view/curves_plot.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

struct CurvesCommand {
  std::vector<std::string> sources;
  CurvesOptions plot;
  std::string png, svg;
  std::size_t most = 10;
  bool json = false;
};

std::string plot_title(const CurveSet& set) {
  return set.y_name.empty() ? std::string("training") : set.y_name;
}

// The curves as they are drawn; null where a value is not finite.
void print_json(const CurveSet& set) {
  nlohmann::json list = nlohmann::json::array();
  for (const CurveLine& line : set.lines) {
    nlohmann::json values = nlohmann::json::array();
    for (const double value : line.y)
      values.push_back(std::isfinite(value) ? nlohmann::json(value) : nlohmann::json());
    list.push_back({{"training", line.label},
                    {"parameters", line.differs},
                    {"metric", line.metric},
                    {set.x_name, line.x},
                    {"value", std::move(values)}});
  }
  fmt::print("{}\n", list.dump(2));
}

int curves(const CurvesCommand& command) {
  std::vector<CurveRun> runs = curve_runs(command.sources);
  const std::size_t all = runs.size();
  if (command.most > 0 && runs.size() > command.most) runs.resize(command.most);
  const CurveSet set = curve_set(runs, command.plot);
  std::vector<plot::PlotFile> files;
  for (const std::string& path : {command.png, command.svg}) {
    if (!path.empty()) files.push_back({figure_of(set, command.plot, plot_title(set)), path});
  }
  if (!files.empty()) plot::write_files(files);
  if (command.json) {
    print_json(set);
    return 0;
  }
  for (const std::string& line : plotted_lines(set, command.plot, standard_output()))
    fmt::print("{}\n", line);
  if (all > runs.size()) fmt::print("the first {} of {} trainings; --limit 0 draws all\n", runs.size(), all);
  if (!set.other_metrics.empty() && command.plot.metrics.empty())
    fmt::print("other metrics (--metric): {}\n", text::join(set.other_metrics, ", "));
  for (const plot::PlotFile& file : files) fmt::print("written: {}\n", file.path.string());
  return 0;
}

}  // namespace

void add_curves(CLI::App& app, Command& chosen) {
  const auto given = std::make_shared<CurvesCommand>();
  CLI::App* command =
      app.add_subcommand("curves", "losses and other metrics of trainings, several in one plot");
  command->footer(
      "A source is a campaign (its directory, or the beginning of its name), live or at rest, a training's "
      "output "
      "directory, or a file of metrics: wflow-train's metrics.jsonl, or lines of events. Of a campaign the "
      "best "
      "training is drawn first. Values that span more than a factor of 30 have a logarithmic axis.\n"
      "Examples:\n  wflow curves\n  wflow curves cosmoflow_20261121 --metric train_loss --png losses.png\n"
      "  wflow curves first/train second/train --smooth 0.8 --log");
  command->add_option("sources", given->sources,
                      "campaigns, directories or files (default: the newest campaign here)");
  command->add_option(
      "--metric", given->plot.metrics,
      "its name; may be given several times (default: what the trainings are ranked by; of one "
      "training, its losses)");
  command->add_flag("--log", given->plot.logarithmic, "logarithmic axis");
  command->add_flag("--step", given->plot.by_step, "by training step, not by epoch");
  command
      ->add_option("--smooth", given->plot.smooth,
                   "moving average: weight of what was before, from 0 to 0.999")
      ->check(CLI::Range(0.0, 0.999));
  command->add_option("--limit", given->most, "at most so many trainings, the best ones; 0: all")
      ->capture_default_str();
  command->add_flag("--json", given->json, "the values as JSON");
  command->add_option("--png", given->png, "write the plot to this file, too")->type_name("FILE");
  command->add_option("--svg", given->svg, "write the plot to this file, too")->type_name("FILE");
  command->callback([given, &chosen] { chosen = [given] { return curves(*given); }; });
}

// wflow metrics: a campaign's numbers for Prometheus.

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
