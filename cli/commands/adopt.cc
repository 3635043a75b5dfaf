// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "cli/campaign/adoption.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"

namespace wflow::cli {

namespace {

struct Options {
  std::string directory;
  AdoptOptions adopt;
  bool json = false;
};

void print_json(const Adopted& adopted) {
  const nlohmann::json json = {{"directory", adopted.campaign.string()},
                               {"name", adopted.name},
                               {"made_by", text::lower(name_of(adopted.maker))},
                               {"done", adopted.done},
                               {"failed", adopted.failed},
                               {"skipped", adopted.skipped},
                               {"left", adopted.left},
                               {"running", adopted.running}};
  fmt::print("{}\n", json.dump());
}

void print_next(const Adopted& adopted) {
  const std::string directory = text::shell_quote(adopted.campaign.string());
  if (adopted.left > 0) fmt::print("go on with what is left:  wflow resume {}\n", directory);
  if (adopted.failed > 0) fmt::print("run what failed again:    wflow retry {}\n", directory);
  fmt::print("see it:                   wflow status {}\n", directory);
}

int run(const Options& options) {
  const Adopted adopted = adopt(options.directory, options.adopt);
  remember_campaign(adopted.campaign);
  const std::string maker = name_of(adopted.maker);
  for (const auto& warning : adopted.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  if (adopted.unreadable > 0)
    fmt::print(stderr,
               "{} status file{} of Merlin's did not read; of those tasks only MERLIN_FINISHED counts\n",
               text::format_count(adopted.unreadable), adopted.unreadable == 1 ? "" : "s");
  if (adopted.running > 0)
    fmt::print(
        stderr,
        "{} task{} recorded as running and will run again: make sure that {} does not work on it any more\n",
        text::format_count(adopted.running), adopted.running == 1 ? " is" : "s are", maker);
  if (options.json) {
    print_json(adopted);
    return 0;
  }
  fmt::print("{}, made by {}: {} done, {} failed, {} skipped, {} left\n", adopted.campaign.string(), maker,
             text::format_count(adopted.done), text::format_count(adopted.failed),
             text::format_count(adopted.skipped), text::format_count(adopted.left));
  print_next(adopted);
  return 0;
}

}  // namespace

void add_adopt(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("adopt", "make a campaign of a workspace of Merlin or Maestro");
  command->footer(
      "What is done there counts as done, what failed as failed; only .wflow is added. Then resume, retry, "
      "status, "
      "tasks and logs work on it.\n"
      "With --study the study may have more steps than it was run with: a convert: or train: step for "
      "instance.\n"
      "Examples:\n  wflow adopt studies/hello_20250901-101500\n  wflow adopt studies/hello_20250901-101500 "
      "--study "
      "hello_and_train.yaml && wflow resume studies/hello_20250901-101500");
  command->add_option("directory", options->directory, "the workspace: what `merlin restart` takes")
      ->required();
  command->add_option("--study", options->adopt.study, "use this study, not the copy in the workspace");
  add_read_options(*command, options->adopt.read);
  command->add_flag("--json", options->json, "what was found, as JSON");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace wflow::cli
