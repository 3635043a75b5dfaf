// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/tournament.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

// A key of hash64(seed, key), behind that of the pairs.
constexpr std::uint64_t kFactorKey = 24;
constexpr std::uint64_t kDecayFactorKey = 25;

Bout bout_of(const nlohmann::json& json) {
  Bout bout;
  bout.round = json.at("round").get<std::int64_t>();
  bout.epoch = json.at("epoch").get<std::int64_t>();
  bout.step = json.at("step").get<std::int64_t>();
  bout.trainer = json.at("trainer").get<std::int64_t>();
  if (json.at("partner").is_number()) bout.partner = json.at("partner").get<std::int64_t>();
  for (const nlohmann::json& score : json.at("scores"))
    bout.scores.push_back({score.at("metric").get<std::string>(), number_or_nan(score.at("own")),
                           number_or_nan(score.at("partner"))});
  bout.diverged = json.at("diverged").get<bool>();
  bout.took = json.at("took").get<bool>();
  bout.factors = PerturbFactors::from_json(json);
  return bout;
}

}  // namespace

bool takes_partner(std::span<const double> own, std::span<const double> partners,
                   std::span<const MetricName> metrics) {
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(partners, finite)) return false;
  if (!std::ranges::all_of(own, finite)) return true;
  for (std::size_t i = 0; i < metrics.size(); ++i)
    if (!is_better(partners[i], own[i], metrics[i].larger_is_better())) return false;
  return true;
}

void PerturbFactors::draw(std::span<const PerturbConfig> perturb, std::uint64_t seed, std::int64_t round,
                          int trainer) {
  for (const PerturbConfig& one : perturb) {
    const bool of_rate = one.key == kPerturbedRate;
    const std::uint64_t key =
        hash64(hash64(seed, of_rate ? kFactorKey : kDecayFactorKey), static_cast<std::uint64_t>(round));
    (of_rate ? rate : weight_decay) *=
        one.factors[hash64(key, static_cast<std::uint64_t>(trainer)) % one.factors.size()];
  }
}

void PerturbFactors::write(nlohmann::json& json) const {
  json["rate_factor"] = rate;
  json["weight_decay_factor"] = weight_decay;
}

PerturbFactors PerturbFactors::from_json(const nlohmann::json& json) {
  return {json.at("rate_factor").get<double>(), json.value("weight_decay_factor", 1.0)};
}

std::int64_t RoundPlan::most_rounds() const {
  if (config_.trainers < 2) return 0;
  if (config_.every_epochs > 0) return (plan_.end_epoch - 1) / config_.every_epochs;
  return (plan_.total_steps() - 1) / config_.every_steps;
}

std::int64_t RoundPlan::step(std::int64_t round) const {
  if (config_.every_epochs > 0) return plan_.first_step(round * config_.every_epochs);
  return round * config_.every_steps;
}

nlohmann::json to_json(const Bout& bout) {
  nlohmann::json scores = nlohmann::json::array();
  for (const Bout::Score& score : bout.scores)
    scores.push_back({{"metric", score.metric}, {"own", score.own}, {"partner", score.partners}});
  nlohmann::json json = {{"round", bout.round},
                         {"epoch", bout.epoch},
                         {"step", bout.step},
                         {"trainer", bout.trainer},
                         {"partner", bout.partner > 0 ? nlohmann::json(bout.partner) : nlohmann::json()},
                         {"scores", scores},
                         {"diverged", bout.diverged},
                         {"took", bout.took}};
  bout.factors.write(json);
  return json;
}

std::string describe(const Bout& bout) {
  std::string scores;
  for (const Bout::Score& score : bout.scores)
    scores += fmt::format("{}{} {:.5g} against {:.5g}", scores.empty() ? "" : ", ", score.metric,
                          bout.took ? score.partners : score.own, bout.took ? score.own : score.partners);
  if (!scores.empty()) scores = fmt::format(" ({})", scores);
  if (bout.took) return fmt::format("takes the model of trainer {}{}", bout.partner, scores);
  const char* keeps = bout.diverged ? "has diverged and finds no model" : "keeps its model";
  if (bout.partner == 0) return fmt::format("{}: no partner", keeps);
  return fmt::format("{}, met trainer {}{}", keeps, bout.partner, scores);
}

nlohmann::json TournamentRecord::to_json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Bout& bout : bouts) list.push_back(trainer::to_json(bout));
  nlohmann::json json = {{"rounds", rounds}, {"diverged", diverged}, {"bouts", list}};
  factors.write(json);
  return json;
}

TournamentRecord TournamentRecord::from_json(const nlohmann::json& json) {
  TournamentRecord record;
  record.rounds = json.at("rounds").get<std::int64_t>();
  record.diverged = json.at("diverged").get<bool>();
  record.factors = PerturbFactors::from_json(json);
  for (const nlohmann::json& bout : json.at("bouts")) record.bouts.push_back(bout_of(bout));
  return record;
}

}  // namespace wflow::trainer
