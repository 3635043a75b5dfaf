// SPDX-License-Identifier: Apache-2.0
#include "propose/config.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <array>

#include "propose/config_tables.h"

namespace wflow::propose {

namespace {

const std::array<std::string, 4> kRules = {"expected_improvement", "upper_confidence_bound", "variance",
                                           "maximin"};
const std::array<std::string, 2> kGoals = {"minimize", "maximize"};
const std::array<std::string, 2> kKernels = {"matern", "squared_exponential"};
constexpr std::int64_t kMostChosen = 10'000;
constexpr std::int64_t kMostCandidates = 1'000'000;
constexpr double kMostKappa = 1000;

const config::Table<Bound>& bound_table() {
  static const config::Table<Bound> table(
      "a range of bounds:",
      {config::real("low", &Bound::low, -1e300, 1e300, "the least value").required(),
       config::real("high", &Bound::high, -1e300, 1e300, "the largest value").required(),
       config::boolean("log", &Bound::log,
                       "the model sees the logarithm, so that 1 to 10 is as far as 10 to 100"),
       config::boolean("integer", &Bound::integer, "whole numbers only")});
  return table;
}

void check_bound(const Bound& bound, const yaml::Mark& mark, yaml::Diagnostics& diagnostics) {
  if (!(bound.low < bound.high)) {
    diagnostics.error(mark, fmt::format("the range of '{}' is empty: {} is not below {}", bound.name,
                                        bound.low, bound.high));
  } else if (bound.log && bound.low <= 0) {
    diagnostics.error(mark, fmt::format("the range of '{}' begins at {}; with 'log' it must be above 0",
                                        bound.name, bound.low));
  }
}

Bound read_bound(const std::string& name, const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  Bound bound;
  bound.name = name;
  if (node.is_map()) {
    bound_table().read(node, bound, diagnostics, "the range of '" + name + "'");
  } else if (node.is_sequence() && node.items.size() == 2) {
    bound.low = yaml::as_real(node.items[0], name, diagnostics).value_or(0);
    bound.high = yaml::as_real(node.items[1], name, diagnostics).value_or(1);
  } else {
    diagnostics.error(node.mark,
                      fmt::format("the range of '{}' is [low, high] or {{low, high, log, integer}}, "
                                  "found {}",
                                  name, node.describe()));
    return bound;
  }
  check_bound(bound, node.mark, diagnostics);
  return bound;
}

void read_bounds(yaml::MapReader& reader, std::string_view key, ProposeConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  if (!node->is_map()) {
    reader.diagnostics().error(node->mark,
                               "'bounds' is a mapping of inputs to their ranges, found " + node->describe());
    return;
  }
  config.bounds.clear();
  for (const auto& [name, range] : node->entries)
    config.bounds.push_back(read_bound(name.text, range, reader.diagnostics()));
}

std::optional<yaml::Node> bounds_node(const ProposeConfig& config) {
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const Bound& bound : config.bounds) entries.emplace_back(bound.name, bound_table().write(bound));
  return entries.empty() ? std::nullopt : std::optional(yaml::map(std::move(entries)));
}

void read_until(yaml::MapReader& reader, std::string_view key, ProposeConfig& config) {
  if (reader.has(key)) config.until = reader.real(key, 0, 0, 1e300);
}

void check(yaml::MapReader& reader, ProposeConfig& config) {
  const auto wrong = [&](std::string_view key, const std::string& message) {
    reader.diagnostics().error(reader.mark_of(key), message);
  };
  if (!config.regex.empty()) {
    const RE2 pattern(config.regex, RE2::Quiet);
    if (!pattern.ok()) {
      wrong("regex", "'regex' is no regular expression of RE2: " + pattern.error());
    } else if (pattern.NumberOfCapturingGroups() < 1) {
      wrong("regex", "'regex' needs a group, such as 'energy = (\\S+)', which is the value");
    }
    if (!config.value.empty())
      wrong("value", "'value' and 'regex' both select the value; one of them must go");
  }
  if (config.relative && !config.until) wrong("relative", "'relative' goes with 'until'");
  if (config.relative && config.rule == Rule::maximin)
    wrong("relative", "the rule maximin knows no values, so that its 'until' can't be relative to them");
  if (config.rule == Rule::maximin && !config.models.empty())
    wrong("models", "the rule maximin uses no model; leave out 'models'");
}

const config::Table<ProposeConfig>& propose_table() {
  using C = ProposeConfig;
  static const config::Table<C> table(
      "the propose: block",
      {config::text("from", &C::from, "the step whose samples have the values: it runs once a sample")
           .usually("(needed)"),
       config::text("file", &C::file,
                    "the file with the value, in the directory of each sample: a text, or JSON")
           .usually("`STEP.out`"),
       config::text(
           "value", &C::value,
           "the number of the file: its position among the words (1 is the first, -1 the last), or in "
           "a `.json` file its key (`energy.total`)")
           .usually("the only one"),
       config::text("regex", &C::regex,
                    "instead of `value`: an RE2 expression; the first group of its last match is the value")
           .unless_default(),
       config::choice(
           "rule", &C::rule, kRules,
           "`expected_improvement`, `upper_confidence_bound`, `variance` or `maximin` ([rules](#rules))"),
       config::choice("goal", &C::goal, kGoals,
                      "`minimize` or `maximize` the value; for the first two rules"),
       config::integer("count", &C::count, 1, kMostChosen, "samples to choose, one after the other"),
       config::texts("models", &C::models,
                     "trained surrogates instead of a Gaussian process: [folders of trainings](train.md) or "
                     "their files. Several are an ensemble")
           .unless_default(),
       config::text("target", &C::target, "the target of `models`").usually("the only one"),
       config::choice("kernel", &C::kernel, kKernels,
                      "of the Gaussian process: `matern` (5/2) or `squared_exponential`"),
       config::boolean("noise", &C::noise,
                       "the values scatter: the Gaussian process also finds the noise's variance"),
       config::real("kappa", &C::kappa, 0, kMostKappa, "deviations of `upper_confidence_bound`"),
       config::custom<C>(
           "until", config::number_schema(0, 1e300),
           "ends the [iterations](spec.md#iterate) when the best that the rule promises is below "
           "it ([when it ends](#when-it-ends))",
           read_until,
           [](const C& config) {
             return config.until ? std::optional(config::emit_real(*config.until)) : std::nullopt;
           })
           .usually("never"),
       config::boolean("relative", &C::relative, "`until` is a fraction of the range of the values so far"),
       config::custom<C>(
           "bounds",
           {{"type", "object"},
            {"additionalProperties", config::any_of({{{"type", "array"}, {"minItems", 2}, {"maxItems", 2}},
                                                     bound_table().schema()})}},
           "the inputs' ranges: `[low, high]` or `{low, high, log, integer}`", read_bounds, bounds_node)
           .usually("those of `samples:`"),
       config::integer("candidates", &C::candidates, 10, kMostCandidates,
                       "points of Sobol's sequence that are compared before the best are refined"),
       config::integer("seed", &C::seed, 0, INT64_MAX, "seed of the candidates and of the fit's starts"),
       config::text("known", &C::known,
                    "without a campaign (`wflow propose`): a CSV with the inputs and a last column with the "
                    "values, instead of `from` and `file`")
           .unless_default(),
       config::text("output", &C::output, "without a campaign: the folder for the results").unless_default(),
       config::text("previous", &C::previous, "set by the campaign").unless_default().unlisted(),
       config::text("event", &C::event, "set by the campaign").unless_default().unlisted()},
      check);
  return table;
}

}  // namespace

const std::string& name_of(Rule rule) {
  return kRules[static_cast<std::size_t>(rule)];
}

const std::string& name_of(Goal goal) {
  return kGoals[static_cast<std::size_t>(goal)];
}

const std::string& name_of(Kernel kernel) {
  return kKernels[static_cast<std::size_t>(kernel)];
}

ProposeConfig read_propose_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  ProposeConfig config;
  propose_table().read(block, config, diagnostics);
  return config;
}

yaml::Node to_yaml(const ProposeConfig& config) {
  return propose_table().write(config);
}

config::Json propose_schema() {
  return propose_table().schema();
}

std::vector<config::Section> propose_sections() {
  return {{"propose", propose_table().rows()}, {"propose.bounds", bound_table().rows()}};
}

}  // namespace wflow::propose
