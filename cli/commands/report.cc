// SPDX-License-Identifier: Apache-2.0
// wflow report: a campaign as one HTML file, and its plots as PNG or SVG files.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/plot/figure.h"
#include "cli/report/report.h"

namespace wflow::cli {

namespace {

struct ReportCommand {
  std::string campaign, output, png, svg;
  bool share = false;
};

void write_plots(const report::Report& made, const std::string& folder, const char* ending) {
  if (folder.empty()) return;
  const std::filesystem::path directory = absolute_path(folder);
  make_directories(directory);
  std::vector<plot::PlotFile> files;
  for (const plot::Figure& figure : made.page.figures())
    files.push_back({.figure = figure, .path = directory / (figure.id + ending)});
  plot::write_files(files);
  fmt::print("{} plots in {}\n", files.size(), directory.string());
}

int report_of(const ReportCommand& command) {
  const std::filesystem::path campaign = find_campaign(command.campaign);
  const std::filesystem::path file =
      command.output.empty() ? campaign / "report.html" : absolute_path(command.output);
  report::Report made = report::make_report(report::gather(campaign), {.share = command.share});
  const std::string html = made.page.html(made.title, made.subtitle);
  make_directories(file.parent_path());
  write_file_durably(file, html);
  // A pipe gets the page and nothing after it.
  if (!is_special_file(file)) fmt::print("{} ({})\n", file.string(), text::format_bytes(html.size()));
  write_plots(made, command.png, ".png");
  write_plots(made, command.svg, ".svg");
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ReportCommand>();
  CLI::App* command =
      app.add_subcommand("report", "a campaign as one HTML file with plots, to keep or to share");
  command->footer(
      "The file needs no network and no other file. It works while the campaign runs, too.\n"
      "Examples:\n  wflow report\n  wflow report campaigns/cosmoflow_20261121-160001 --share -o "
      "cosmoflow.html\n"
      "  wflow report --png plots");
  command->add_option("campaign", options->campaign, kCampaign);
  command->add_option("-o,--output", options->output,
                      "the file to write (default: report.html in the campaign's directory)");
  command->add_flag("--share", options->share,
                    "leave out paths, names of machines and users, environment and study text");
  command->add_option("--png", options->png, "write each plot into this directory, as a PNG file");
  command->add_option("--svg", options->svg, "write each plot into this directory, as an SVG file");
  command->callback([options, &chosen] { chosen = [options] { return report_of(*options); }; });
}

}  // namespace wflow::cli
