// SPDX-License-Identifier: Apache-2.0
// The propose: block: how a step chooses the next samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/yaml.h"

namespace wflow::propose {

enum class Rule : std::uint8_t { expected_improvement, upper_confidence_bound, variance, maximin };
enum class Goal : std::uint8_t { minimize, maximize };
enum class Kernel : std::uint8_t { matern, squared_exponential };

// The words of a study.
const std::string& name_of(Rule rule);
const std::string& name_of(Goal goal);
const std::string& name_of(Kernel kernel);

// An input and its range.
struct Bound {
  std::string name;
  double low = 0, high = 1;
  bool log = false;      // the model sees its logarithm
  bool integer = false;  // whole numbers only
  bool operator==(const Bound&) const = default;
};

struct ProposeConfig {
  std::string from;   // the step whose samples have the values
  std::string file;   // of a sample, with its value
  std::string value;  // the number of it: a position in a text, a key in JSON; empty: the only one
  std::string regex;  // a group of it is the value
  Rule rule = Rule::expected_improvement;
  Goal goal = Goal::minimize;
  std::uint32_t count = 4;
  std::vector<std::string> models;  // folders of trainings or their files; empty: a Gaussian process
  std::string target;               // of the models
  Kernel kernel = Kernel::matern;
  bool noise = false;
  double kappa = 2;
  std::optional<double> until;
  bool relative = false;
  std::vector<Bound> bounds;
  std::uint32_t candidates = 2000;
  std::uint64_t seed = 1;
  // Without a campaign: the table of known values, and the folder for the results.
  std::string known;
  std::string output;
  // Set by the campaign: the folder of this step in the iteration before, and the event that ends the
  // iterations.
  std::string previous;
  std::string event;
  bool operator==(const ProposeConfig&) const = default;
};

// Adds every error of the block to `diagnostics`, with its place.
ProposeConfig read_propose_config(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// A block that reads back as an equal value.
yaml::Node to_yaml(const ProposeConfig& config);

}  // namespace wflow::propose
