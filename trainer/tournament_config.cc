// SPDX-License-Identifier: Apache-2.0
#include "trainer/tournament_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <string_view>

#include "base/config_table.h"
#include "base/random.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMostTrainers = 4096;
constexpr std::int64_t kMostRounds = std::int64_t{1} << 40;
constexpr std::uint64_t kPairKey = 23;  // of hash64(seed, key), behind those of data/trainer_part.cc
const std::array<std::string, 2> kTournamentForms = {"job", "tasks"};
const std::array<std::string, 2> kTournamentData = {"disjoint", "shared"};
// Keys that may change in the middle of a training.
const std::array<std::string, 2> kPerturbed = {kPerturbedRate, kPerturbedDecay};

// `every: 2 epochs`, `every: 200` or `200 steps`.
void read_every(yaml::MapReader& reader, std::string_view key, TournamentConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  const std::vector<std::string> words =
      node->is_scalar() ? text::split(std::string(text::trim(node->text)), ' ') : std::vector<std::string>{};
  const std::int64_t count = words.empty() ? 0 : text::to_integer(words.front()).value_or(0);
  const std::string unit = words.size() < 2 ? "steps" : words.back();
  const bool epochs = unit == "epoch" || unit == "epochs";
  if (words.size() > 2 || count < 1 || count > kMostRounds ||
      !(epochs || unit == "step" || unit == "steps")) {
    reader.diagnostics().error(
        node->mark,
        fmt::format("'every' is the time between two rounds, such as '1 epoch' or 200 (steps), at "
                    "least 1; found {}",
                    node->describe()));
    return;
  }
  config.every_epochs = epochs ? count : 0;
  config.every_steps = epochs ? 0 : count;
}

void read_rounds(yaml::MapReader& reader, std::string_view key, TournamentConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr || (node->is_scalar() && node->text == "auto")) return;
  config.rounds = reader.integer(key, 0, 1, kMostRounds);
}

void read_exchange(yaml::MapReader& reader, std::string_view key, TournamentConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  if (node->is_scalar() && (node->text == "weights" || node->text == "all")) {
    config.exchange = node->text == "all" ? ModelExchange::all : ModelExchange::weights;
    return;
  }
  if (!node->is_sequence() || node->items.empty()) {
    reader.diagnostics().error(
        node->mark, fmt::format("'exchange' must be weights, all or a list of the network's parts, such as "
                                "[generator]; found {}",
                                node->describe()));
    return;
  }
  config.exchange = ModelExchange::parts;
  config.parts = reader.strings(key);
}

yaml::Node exchange_node(const TournamentConfig& config) {
  if (config.exchange == ModelExchange::parts) return config::emit_texts(config.parts);
  return yaml::scalar(config.exchange == ModelExchange::all ? "all" : "weights");
}

void read_perturb(yaml::MapReader& reader, std::string_view key, TournamentConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (!node->is_map()) {
    diagnostics.error(node->mark, fmt::format("'perturb' is a mapping of keys to factors, such as "
                                              "{{optimizer.learning_rate: [0.8, 1.25]}}; found {}",
                                              node->describe()));
    return;
  }
  yaml::MapReader block(*node, "the perturb: block", diagnostics);
  for (const auto& [name, value] : node->entries) {
    if (std::ranges::find(kPerturbed, name.text) == kPerturbed.end()) {
      diagnostics.error(name.mark, fmt::format("'perturb' can't change '{}' in the middle of a training; it "
                                               "can change {}",
                                               name.text, text::join(kPerturbed, ", ")));
      continue;
    }
    const std::vector<double> factors = block.reals(name.text);
    const auto fits = [](double factor) { return factor >= 1e-3 && factor <= 1e3; };
    if (factors.empty() || !std::ranges::all_of(factors, fits))
      diagnostics.error(
          value.mark,
          fmt::format("'{}' must be factors from 0.001 to 1000, of which one is drawn", name.text));
    config.perturb.push_back({name.text, factors});
  }
}

yaml::Node perturb_node(const TournamentConfig& config) {
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const PerturbConfig& one : config.perturb)
    entries.emplace_back(one.key, config::emit_reals(one.factors));
  return yaml::map(std::move(entries));
}

config::Json perturb_schema() {
  config::Json factors = {{"description", "factors of which one is drawn"}};
  factors.update(config::one_or_list_schema(config::number_schema(1e-3, 1e3)));
  config::Json properties = config::Json::object();
  for (const std::string& key : kPerturbed) properties[key] = factors;
  return {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

}  // namespace

std::optional<std::int64_t> known_rounds(const TournamentConfig& config, std::int64_t epochs) {
  if (config.trainers < 2) return 0;
  if (config.rounds > 0) return config.rounds;
  if (config.every_epochs == 0) return std::nullopt;
  return (epochs - 1) / config.every_epochs;
}

std::vector<std::optional<int>> partners_in(std::uint64_t seed, std::int64_t round, int trainers) {
  const std::uint64_t key = hash64(hash64(seed, kPairKey), static_cast<std::uint64_t>(round));
  std::vector<int> order(static_cast<std::size_t>(trainers));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t last = order.size(); last > 1; --last)
    std::swap(order[last - 1], order[hash64(key, last) % last]);
  std::vector<std::optional<int>> partners(order.size());
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
    partners[static_cast<std::size_t>(order[i])] = order[i + 1];
    partners[static_cast<std::size_t>(order[i + 1])] = order[i];
  }
  return partners;
}

yaml::Node every_node(const TournamentConfig& config) {
  if (config.every_epochs == 0) return config::emit_integer(config.every_steps);
  return yaml::scalar(fmt::format("{} epoch{}", config.every_epochs, config.every_epochs == 1 ? "" : "s"));
}

const config::Table<TournamentConfig>& tournament_table() {
  static const config::Table<TournamentConfig> table(
      "the tournament: block",
      {config::integer("trainers", &TournamentConfig::trainers, 1, kMostTrainers,
                       "number of trainers; `ranks` is a multiple of it, and each has as many ranks")
           .required(),
       config::custom<TournamentConfig>(
           "every",
           config::any_of({config::integer_schema(1, kMostRounds),
                           {{"type", "string"}, {"pattern", "^[1-9][0-9]* (epochs?|steps?)$"}}}),
           "training between two rounds: `1 epoch`, `2 epochs`, or a number of steps", read_every,
           every_node),
       config::custom<TournamentConfig>(
           "rounds",
           config::any_of({config::choice_schema(std::array<std::string, 1>{"auto"}),
                           config::integer_schema(1, kMostRounds)}),
           "number of rounds; `auto`: as many as fit before the end; training follows the last one",
           read_rounds,
           [](const TournamentConfig& config) {
             return config.rounds == 0 ? yaml::scalar("auto") : config::emit_integer(config.rounds);
           }),
       config::texts(
           "metrics", &TournamentConfig::metrics,
           "[metrics](train.md#metrics) by which models are judged: the partner's must be better in "
           "every one of them; the first one also ranks the trainers at the end")
           .usually("`metric` of the training"),
       config::real("fraction", &TournamentConfig::fraction, 0.001, 0.5,
                    "part of a trainer's samples that it judges models on and does not train on"),
       config::choice("data", &TournamentConfig::data, kTournamentData,
                      "`disjoint`: each trainer has a part of the training samples of its own; `shared`: all "
                      "have all of them"),
       config::custom<TournamentConfig>(
           "exchange",
           config::any_of({config::choice_schema(std::array<std::string, 2>{"weights", "all"}),
                           {{"type", "array"}, {"items", config::text_schema()}, {"minItems", 1}}}),
           "what a model takes along: `weights`; `all`: the optimizer's state and the learning rate, too; or "
           "a "
           "list of [parts](train.md#parts), such as `[generator]`: the others stay with their trainer",
           read_exchange, exchange_node),
       config::custom<TournamentConfig>(
           "perturb", perturb_schema(),
           "numbers that change where a trainer takes over a model, with factors of which one is drawn: "
           "`{optimizer.learning_rate: [0.8, 1.25]}`",
           read_perturb, perturb_node)
           .usually("none")
           .unless_default(),
       config::choice("as", &TournamentConfig::as, kTournamentForms,
                      "`job`: all trainers in one job; `tasks`: each round of a trainer is a [task of the "
                      "campaign](#trainers-as-tasks)")
           .only_if_set(),
       config::custom<TournamentConfig>(
           "part", config::integer_schema(0, kMostRounds), "set by the campaign: the part of the tournament",
           [](yaml::MapReader& reader, std::string_view key, TournamentConfig& config) {
             if (reader.has(key)) config.part = reader.integer(key, 0, 0, kMostRounds);
           },
           [](const TournamentConfig& config) -> std::optional<yaml::Node> {
             return config.part ? std::optional(config::emit_integer(*config.part)) : std::nullopt;
           })
           .unlisted(),
       config::integer("trainer", &TournamentConfig::trainer, 1, kMostTrainers,
                       "set by the campaign: the trainer of the part")
           .only_if_set()
           .unlisted(),
       config::texts("before", &TournamentConfig::before, "set by the campaign: folders of the parts before")
           .only_if_set()
           .unlisted()});
  return table;
}

}  // namespace wflow::trainer
