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
  bout.rate_factor = json.at("rate_factor").get<double>();
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

double drawn_factor(std::span<const double> factors, std::uint64_t seed, std::int64_t round, int trainer) {
  const std::uint64_t key = hash64(hash64(seed, kFactorKey), static_cast<std::uint64_t>(round));
  return factors[hash64(key, static_cast<std::uint64_t>(trainer)) % factors.size()];
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
  return {{"round", bout.round},
          {"epoch", bout.epoch},
          {"step", bout.step},
          {"trainer", bout.trainer},
          {"partner", bout.partner > 0 ? nlohmann::json(bout.partner) : nlohmann::json()},
          {"scores", scores},
          {"diverged", bout.diverged},
          {"took", bout.took},
          {"rate_factor", bout.rate_factor}};
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
  return {{"rounds", rounds}, {"diverged", diverged}, {"rate_factor", rate_factor}, {"bouts", list}};
}

TournamentRecord TournamentRecord::from_json(const nlohmann::json& json) {
  TournamentRecord record;
  record.rounds = json.at("rounds").get<std::int64_t>();
  record.diverged = json.at("diverged").get<bool>();
  record.rate_factor = json.at("rate_factor").get<double>();
  for (const nlohmann::json& bout : json.at("bouts")) record.bouts.push_back(bout_of(bout));
  return record;
}

}  // namespace wflow::trainer
