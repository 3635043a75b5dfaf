// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/trainer_mpi.h"
#include "base/yaml.h"
#include "cli/commands/commands.h"
#include "trainer/config.h"

namespace wflow::cli {

namespace {

// Ranks that a training file asks for; 1 if it does not read (wflow-train reports why).
std::int64_t ranks_of(const std::vector<std::string>& arguments) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr)
    return 1;  // under a launcher
  for (const std::string& argument : arguments) {
    if (argument.starts_with('-')) continue;
    try {
      yaml::Diagnostics diagnostics(argument);
      const yaml::Node root = yaml::parse(read_file(argument), diagnostics);
      const yaml::Node* block = root.find("train");
      return trainer::read_train_config(block != nullptr ? *block : root, diagnostics).ranks;
    } catch (const Error&) {
      return 1;
    }
  }
  return 1;
}

}  // namespace

std::optional<Delegate> delegate_of(std::string_view command) {
  if (command == "convert" || command == "shards") return Delegate{"wflow-convert", command == "shards"};
  if (command == "train" || command == "predict" || command == "analyze" || command == "infer")
    return Delegate{"wflow-train", command != "train"};
  return std::nullopt;
}

void run_delegate(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const std::optional<Delegate> delegate = delegate_of(name);
  if (!delegate) return;
  const std::vector<std::string> arguments(argv + (delegate->is_subcommand ? 1 : 2), argv + argc);
  std::vector<std::string> words;
  if (const std::int64_t ranks = name == "train" ? ranks_of(arguments) : 1; ranks > 1)
    words = mpirun_words(find_mpirun().value_or("mpirun"), ranks);
  words.push_back(sibling_program(delegate->program));
  words.insert(words.end(), arguments.begin(), arguments.end());
  become_program(words);
}

void add_delegates(CLI::App& app) {
  // Only for help and manual pages: their options are wflow-convert's and wflow-train's own.
  app.add_subcommand("convert", "simulation output to training shards, without a campaign (wflow-convert)")
      ->footer(
          "Takes the arguments of wflow-convert; wflow convert --help tells them, docs/convert.md the keys.\n"
          "Examples:\n  wflow convert convert.yaml");
  app.add_subcommand("shards", "look into training data, export, import and merge it (wflow-convert)")
      ->footer(
          "Takes the arguments of wflow-convert shards; wflow shards --help tells them.\n"
          "Examples:\n  wflow shards ls data\n  wflow shards stats data\n  wflow shards sample data 17");
  app.add_subcommand("train", "train a network on shards, without a campaign (wflow-train)")
      ->footer(
          "Takes the arguments of wflow-train; wflow train --help tells them, docs/train.md the keys.\n"
          "Examples:\n  wflow train train.yaml\n  wflow train train.yaml --dry-run");
  app.add_subcommand("predict", "what a trained model says of other samples (wflow-train)")
      ->footer(
          "Takes the arguments of wflow-train predict; wflow predict --help tells them, docs/predict.md "
          "more.\n"
          "Examples:\n  wflow predict training points.csv\n  wflow predict training shards --split test");
  app.add_subcommand("analyze", "which inputs of a trained network matter, and how sure (wflow-train)")
      ->footer(
          "Takes the arguments of wflow-train analyze; wflow analyze --help tells them, docs/analyze.md "
          "more.\n"
          "Examples:\n  wflow analyze campaign/train\n  wflow analyze training --points 16384");
  app.add_subcommand("infer", "which parameters made an observation, and how sure (wflow-train)")
      ->footer(
          "Takes the arguments of wflow-train infer; wflow infer --help tells them, docs/infer.md more.\n"
          "Examples:\n  wflow infer campaign/train --observe observed.h5\n  wflow infer training "
          "--calibrate");
}

}  // namespace wflow::cli
