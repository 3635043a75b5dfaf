// SPDX-License-Identifier: Apache-2.0
// wflow propose: chooses the next samples from those so far (docs/propose.md).
#include "propose/propose.h"

#include <memory>
#include <string>

#include "base/file.h"
#include "base/yaml.h"
#include "cli/commands/commands.h"

namespace wflow::cli {

namespace {

struct ProposeOptions {
  std::string config;
  std::string samples;
};

int propose_samples(const ProposeOptions& options) {
  yaml::Diagnostics diagnostics(options.config);
  const yaml::Node block = yaml::parse(read_file(options.config), diagnostics);
  diagnostics.throw_if_errors();
  const propose::ProposeConfig config = propose::read_propose_config(block, diagnostics);
  diagnostics.throw_if_errors();
  propose::run(config, options.samples);
  return 0;
}

}  // namespace

void add_propose(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ProposeOptions>();
  CLI::App* command = app.add_subcommand("propose", "which samples to simulate next, from those so far");
  command->footer(
      "Reads the keys of a propose: block (docs/propose.md), with known: a CSV of the samples so far. "
      "Writes\n"
      "new.csv, values.csv and proposal.json. A study has it as a step.\n"
      "Examples:\n  wflow propose propose.yaml");
  command->add_option("config", options->config, "a YAML file with the keys of a propose: block")->required();
  command
      ->add_option(
          "--samples", options->samples,
          "set by a campaign: a CSV of its samples, with the files of their values in the last column")
      ->option_text("CSV");
  command->callback([options, &chosen] { chosen = [options] { return propose_samples(*options); }; });
}

}  // namespace wflow::cli
