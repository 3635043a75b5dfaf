// SPDX-License-Identifier: Apache-2.0
// wflow report: a campaign as one HTML file, and its plots as PNG or SVG files.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/plot/figure.h"
#include "cli/report/http.h"
#include "cli/report/report.h"

namespace wflow::cli {

namespace {

struct ReportCommand {
  std::string campaign, output, png, svg;
  std::string address;  // of --serve, or empty
  bool share = false;
  bool serves = false;
  bool opens = false;
};

// In the browser of the user's choice, or the desktop's.
void open_page(const std::filesystem::path& file) {
  const char* chosen = std::getenv("BROWSER");
  const std::vector<std::string> programs = {chosen == nullptr ? "" : chosen, "xdg-open", "open"};
  for (const std::string& name : programs) {
    const auto program = name.empty() ? std::nullopt : find_program(name);
    if (!program) continue;
    // By a shell: the browser may live longer than this program, and says much on its standard error.
    SpawnRequest request;
    request.argv = {"/bin/sh", "-c", "\"$0\" \"$1\" < /dev/null > /dev/null 2>&1 &", *program, file.string()};
    run_command(request);
    return;
  }
  throw Error(ExitCode::system,
              fmt::format("no browser is here (BROWSER, xdg-open): copy {} to a machine with one, or see "
                          "wflow report --serve",
                          file.string()));
}

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

// `--serve CAMPAIGN`: the word is no address, so it is the campaign.
void sort_words(ReportCommand& command) {
  if (command.address.empty() || report::is_address(command.address)) return;
  if (!command.campaign.empty())
    throw Error(ExitCode::usage,
                fmt::format("--serve takes an address such as 127.0.0.1:8000, or nothing; found '{}'",
                            command.address));
  command.campaign = std::exchange(command.address, {});
}

int report_of(ReportCommand command) {
  sort_words(command);
  if (command.serves) {
    report::serve(find_campaign(command.campaign), command.address, {.share = command.share});
    return 0;
  }
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
  if (command.opens) open_page(file);
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
      "  wflow report --png plots\n"
      "  wflow report --serve                   a page that keeps itself up to date; prints how to open it");
  command->add_option("campaign", options->campaign, kCampaign);
  command->add_option("-o,--output", options->output,
                      "the file to write (default: report.html in the campaign's directory)");
  command->add_flag("--share", options->share,
                    "leave out paths, names of machines and users, environment and study text");
  command->add_option("--png", options->png, "write each plot into this directory, as a PNG file");
  command->add_option("--svg", options->svg, "write each plot into this directory, as an SVG file");
  CLI::Option* serve =
      command
          ->add_option(
              "--serve", options->address,
              "serve the report as a page that keeps itself up to date, until Ctrl-C: at a Unix "
              "socket that only you can use, or at an address of this machine, 127.0.0.1:PORT, with a "
              "secret in its URL")
          ->type_name("[ADDRESS]")
          ->expected(0, 1);
  command->add_flag("--open", options->opens, "open the file in a browser: $BROWSER, else the desktop's");
  for (const char* other : {"--output", "--png", "--svg", "--open"})
    serve->excludes(command->get_option(other));
  command->callback([options, serve, &chosen] {
    options->serves = serve->count() > 0;
    chosen = [options] { return report_of(*options); };
  });
}

}  // namespace wflow::cli
