// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/contest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr const char* kStops = "stops";
constexpr const char* kError = "error";

// The error of the first trainer that has one. Where all have the same, such as a wrong key, it is that of
// the training.
void throw_errors(const std::vector<nlohmann::json>& messages) {
  const auto failed = [](const nlohmann::json& message) { return message.contains(kError); };
  const auto first = std::ranges::find_if(messages, failed);
  if (first == messages.end()) return;
  const auto text = first->at(kError).get<std::string>();
  const auto code = static_cast<ExitCode>(first->at("code").get<int>());
  const auto same = [&](const nlohmann::json& message) { return message.value(kError, "") == text; };
  if (std::ranges::all_of(messages, same)) throw ContestOver(code, text);
  throw ContestOver(code, fmt::format("trainer {}: {}", first - messages.begin() + 1, text));
}

}  // namespace

Contest::Contest(Communicator& world, Communicator& trainer, const TrainConfig& config)
    : world_(&world),
      rules_(config.tournament),
      ranks_(trainer.size()),
      leader_(trainer.rank() == 0),
      part_{config.seed, world.rank() / ranks_, world.size() / ranks_, rules_.fraction,
            rules_.data == TournamentData::disjoint} {}

Contest::Contest(const TrainConfig& config)
    : world_(nullptr),
      rules_(config.tournament),
      ranks_(1),
      leader_(false),
      part_{config.seed, static_cast<int>(rules_.trainer - 1), static_cast<int>(rules_.trainers),
            rules_.fraction, rules_.data == TournamentData::disjoint},
      rounds_(known_rounds(rules_, config.epochs).value()) {}

std::vector<nlohmann::json> Contest::meet(const std::string& what, nlohmann::json own) {
  own["meeting"] = what;
  const std::string text = own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::vector<std::string> all = world_->all_gather(leader_ ? text : "");
  std::vector<nlohmann::json> messages;
  for (int trainer = 0; trainer < trainers(); ++trainer)
    messages.push_back(nlohmann::json::parse(all[static_cast<std::size_t>(trainer * ranks_)]));
  throw_errors(messages);
  for (const nlohmann::json& message : messages) {
    if (message.at("meeting") == kStops) {
      stops_ = true;
    } else if (what != kStops && message.at("meeting") != what) {
      throw Error(ExitCode::internal, fmt::format("a trainer is at '{}' and another at '{}'", what,
                                                  message.at("meeting").get<std::string>()));
    }
  }
  return messages;
}

std::optional<std::int64_t> Contest::start(std::span<const std::int64_t> offered, std::int64_t most) {
  if (in_task()) {
    if (rounds_ > most)
      throw CommonError(ExitCode::spec, fmt::format("'rounds: {}' are too many: {} fit into the training of "
                                                    "trainer {}, with training after the last one",
                                                    rounds_, most, trainer() + 1));
    return std::nullopt;
  }
  nlohmann::json own = {{"rounds", most}, {"offered", nlohmann::json::array()}};
  for (const std::int64_t round : offered) own["offered"].push_back(round);
  const std::vector<nlohmann::json> all = meet("start", own);
  const auto rounds_of = [](const nlohmann::json& message) {
    return message.at("rounds").get<std::int64_t>();
  };
  const auto least = std::ranges::min_element(all, {}, rounds_of);
  if (rules_.rounds > rounds_of(*least) && trainers() > 1)
    throw CommonError(
        ExitCode::spec,
        fmt::format("'rounds: {0}' are too many: {2} fit into the training of trainer {1}, with "
                    "training after the last one",
                    rules_.rounds, least - all.begin() + 1, rounds_of(*least)));
  rounds_ = rules_.rounds > 0 && trainers() > 1 ? rules_.rounds : rounds_of(*least);
  if (rounds_ == 0 && trainers() > 1)
    throw CommonError(ExitCode::spec,
                      fmt::format("no round takes place: trainer {} makes at most {} steps, the number of "
                                  "'every'; lower it, or train for more epochs",
                                  least - all.begin() + 1, rules_.every_steps));
  std::optional<std::int64_t> newest;
  for (const nlohmann::json& candidate : all.front().at("offered")) {
    const auto offers = [&](const nlohmann::json& message) {
      const nlohmann::json& rounds = message.at("offered");
      return std::ranges::find(rounds, candidate) != rounds.end();
    };
    if (std::ranges::all_of(all, offers))
      newest = std::max(newest.value_or(0), candidate.get<std::int64_t>());
  }
  return newest;
}

void Contest::stop() {
  if (stops_) return;  // the others know
  meet(kStops, nlohmann::json::object());
}

void Contest::fail(const CommonError& error) {
  meet(kError, {{kError, error.what()}, {"code", static_cast<int>(error.code())}});
  throw Error(ExitCode::internal, error.what());  // meet() throws
}

}  // namespace wflow::trainer
