// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/campaign/campaigns.h"
#include "cli/export/ro_crate.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

// Writes the output of `wflow WORDS... CAMPAIGN --csv` to a file that appears whole.
void write_table(const std::filesystem::path& file, std::vector<std::string> words,
                 const std::string& campaign) {
  DurableFile durable(file);
  const FileDescriptor fd = open_file(durable.temporary(), O_WRONLY | O_CREAT | O_TRUNC);
  SpawnRequest request;
  request.argv = {sibling_program("wflow")};
  request.argv.insert(request.argv.end(), words.begin(), words.end());
  request.argv.insert(request.argv.end(), {campaign, "--csv"});
  request.stdout_fd = fd.get();
  const pid_t pid = spawn(request);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (exit_status(status) != 0)
    throw Error(ExitCode::system, fmt::format("{} was not written: wflow {} ended with exit code {}",
                                              file.string(), words.front(), exit_status(status)));
  if (::fsync(fd.get()) != 0) throw system_error(errno, "cannot write " + file.string());
  durable.publish();
  fmt::print("{}\n", file.string());
}

void write_tables(const std::filesystem::path& folder, const std::string& campaign) {
  make_directories(folder);
  write_table(folder / "tasks.csv", {"tasks", "--parameters", "--limit", "0"}, campaign);
  write_table(folder / "samples.csv", {"samples", "--limit", "0"}, campaign);
  write_table(folder / "steps.csv", {"usage"}, campaign);
}

}  // namespace

void add_export(CLI::App& app, Command& chosen) {
  struct Options {
    std::string campaign, crate, tables;
    std::string license = "CC0-1.0";
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("export", "a campaign's provenance as an RO-Crate, its tables as CSV");
  command->footer(
      "The crate has the study in each of its versions, its samples and the status; outputs stay where they\n"
      "are and are named by path, size and SHA-256. Tables: tasks with the values of their samples, "
      "samples,\n"
      "steps with what they used.\n"
      "Examples:\n  wflow export --ro-crate heat-crate\n  wflow export CAMPAIGN --ro-crate crate --license "
      "CC-BY-4.0\n  wflow export --csv tables");
  command->add_option("campaign", options->campaign, kCampaign);
  command->add_option("--ro-crate", options->crate, "make this folder, with ro-crate-metadata.json");
  command->add_option("--csv", options->tables,
                      "write tasks.csv, samples.csv and steps.csv into this folder");
  command->add_option("--license", options->license,
                      "of the crate: an SPDX name or an URI (default: CC0-1.0)");
  command->callback([options, &chosen] {
    chosen = [options] {
      if (options->crate.empty() && options->tables.empty())
        throw Error(ExitCode::usage, "say what to export: --ro-crate FOLDER, --csv FOLDER");
      const specs::Plan plan = read_plan(find_campaign(options->campaign));
      if (!options->tables.empty()) write_tables(absolute_path(options->tables), plan.campaign());
      if (options->crate.empty()) return 0;
      const auto crate = absolute_path(options->crate);
      write_ro_crate(plan, engine::Client(plan).status(), options->license, crate);
      fmt::print("{}\n", (crate / "ro-crate-metadata.json").string());
      return 0;
    };
  });
}

}  // namespace wflow::cli
