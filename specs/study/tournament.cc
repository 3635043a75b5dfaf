// SPDX-License-Identifier: Apache-2.0
// tournament: {as: tasks} of a train: step. Each part of a trainer is a step of its own: it waits for the
// part before and for that of the partner in its round. The step that ranks the trainers has the step's name,
// so that others can wait for it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"

namespace wflow::specs {

using trainer::TournamentConfig;
using trainer::TournamentForm;
using trainer::TrainConfig;

std::string tournament_trainer(const std::string& step, std::int64_t trainer) {
  return fmt::format("{}.trainer_{}", step, trainer);
}

std::string tournament_step(const std::string& step, std::int64_t trainer, std::int64_t part) {
  return part == 0 ? step + ".begin" : fmt::format("{}.part_{}", tournament_trainer(step, trainer), part);
}

std::optional<TournamentStep> tournament_part(const Step& step) {
  const yaml::Node* block = step.kind == StepKind::train ? step.settings.find("tournament") : nullptr;
  const auto number = [&](const char* key) {
    const yaml::Node* node = block == nullptr || !block->is_map() ? nullptr : block->find(key);
    return node == nullptr ? std::nullopt : text::to_integer(node->text);
  };
  const auto part = number("part");
  if (!part) return std::nullopt;
  const std::int64_t trainer = number("trainer").value_or(1);
  const std::string suffix = tournament_step("", trainer, *part);
  const bool ranks = !step.name.ends_with(suffix);
  return TournamentStep{ranks ? step.name : step.name.substr(0, step.name.size() - suffix.size()), trainer,
                        *part, ranks};
}

std::vector<std::string> tournament_steps_before(const std::string& step, const TrainConfig& config) {
  const TournamentConfig& rules = config.tournament;
  const std::int64_t part = rules.part.value();
  const std::int64_t last = trainer::known_rounds(rules, config.epochs).value() + 1;
  if (part == 0) return {};
  if (part == 1) return {tournament_step(step, 1, 0)};
  std::vector<std::string> steps;
  if (part > last) {
    for (std::int64_t number = 1; number <= rules.trainers; ++number)
      steps.push_back(tournament_step(step, number, last));
    return steps;
  }
  steps.push_back(tournament_step(step, rules.trainer, part - 1));
  const auto partners = trainer::partners_in(config.seed, part - 1, static_cast<int>(rules.trainers));
  if (const auto partner = partners[static_cast<std::size_t>(rules.trainer - 1)])
    steps.push_back(tournament_step(step, *partner + 1, part - 1));
  return steps;
}

namespace {

// The campaign makes the steps before it knows the values of parameters.
bool check_literal(Reading& reading, const Step& step) {
  for (const char* key : {"tournament", "epochs", "seed", "ranks", "nodes", "min_nodes"}) {
    const yaml::Node* node = step.settings.find(key);
    if (node == nullptr || !has_token(*node)) continue;
    reading.diagnostics.error(
        node->mark,
        fmt::format("'{}' can't depend on parameters in a tournament with 'as: tasks', whose steps are "
                    "made before: write the value",
                    key));
    return false;
  }
  return true;
}

// The configuration of a tournament whose parts become steps.
std::optional<TrainConfig> tournament_in_tasks(Reading& reading, const Step& step) {
  const yaml::Node* block = step.kind == StepKind::train ? step.settings.find("tournament") : nullptr;
  if (block == nullptr || !block->is_map()) return std::nullopt;
  refuse_campaign_keys(reading, *block, "tournament", trainer::kCampaignTournamentKeys);
  const yaml::Node* form = block->find("as");
  if (form == nullptr || form->text != "tasks" || !check_literal(reading, step)) return std::nullopt;
  yaml::Diagnostics later("");  // the step that ranks the trainers is checked like any other
  TrainConfig config = trainer::read_train_config(step.settings, later);
  if (config.tournament.trainers < 2 || !trainer::known_rounds(config.tournament, config.epochs))
    return std::nullopt;
  if (config.ranks % config.tournament.trainers == 0) return config;
  reading.diagnostics.error(
      block->mark,
      fmt::format("'ranks' ({}) must be a multiple of 'trainers' ({}), which have as many ranks each",
                  config.ranks, config.tournament.trainers));
  return std::nullopt;
}

// A task has the resources of one trainer; the one that ranks them needs one rank.
void divide_resources(Resources& resources, int parts) {
  const auto share = [&](int whole) { return std::max(1, (whole + parts - 1) / parts); };
  resources.procs = share(resources.procs);
  resources.nodes = share(resources.nodes);
  if (resources.min_nodes > 0) resources.min_nodes = share(resources.min_nodes);
}

Step part_of(const Step& step, TrainConfig config, std::int64_t trainer, std::int64_t part, bool ranks) {
  Step next = step;
  config.tournament.part = part;
  config.tournament.trainer = trainer;
  yaml::Node& block = *next.settings.find("tournament");
  set_key(block, "part", yaml::scalar(std::to_string(part)));
  set_key(block, "trainer", yaml::scalar(std::to_string(trainer)));
  for (const std::string& before : tournament_steps_before(step.name, config))
    next.depends.push_back({before, false});
  divide_resources(next.resources,
                   ranks ? next.resources.procs : static_cast<int>(config.tournament.trainers));
  if (!ranks) next.name = tournament_step(step.name, trainer, part);
  // The others go on without a trainer that is lost.
  if (part > 1 && !next.continue_on) next.continue_on = ContinueOn::any;
  return next;
}

Division parts_of(const Step& step, const TrainConfig& config) {
  const std::int64_t last = trainer::known_rounds(config.tournament, config.epochs).value() + 1;
  Division division;
  const auto add = [&](std::int64_t trainer, std::int64_t part) {
    division.steps.push_back(part_of(step, config, trainer, part, false));
    division.names.push_back(division.steps.back().name);
  };
  add(1, 0);
  for (std::int64_t part = 1; part <= last; ++part)
    for (std::int64_t trainer = 1; trainer <= config.tournament.trainers; ++trainer) add(trainer, part);
  division.steps.push_back(part_of(step, config, 1, last + 1, true));
  return division;
}

}  // namespace

void expand_tournaments(Reading& reading) {
  divide_steps(reading, "a part of the tournament of", [&](const Step& step) {
    const auto config = tournament_in_tasks(reading, step);
    return config ? parts_of(step, *config) : Division();
  });
}

}  // namespace wflow::specs
