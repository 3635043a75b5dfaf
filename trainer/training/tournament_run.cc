// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"
#include "trainer/training/contest.h"
#include "trainer/training/report.h"
#include "trainer/training/tournament.h"
#include "trainer/training/trainer.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndFile = "trainer.json";  // what the last task of a trainer leaves for the ranking

std::string trainer_folder(int trainer) {
  return fmt::format("trainer-{}", trainer + 1);
}

TrainConfig config_of_trainer(const TrainConfig& config, int trainer, const Communicator& world) {
  TrainConfig own = config;
  own.output = (fs::path(config.output) / trainer_folder(trainer)).string();
  own.seed = config.seed + static_cast<std::uint64_t>(trainer);
  // The trainers on a node share its memory.
  if (own.cache_bytes < 0 && own.memory == 0) own.cache_bytes = usual_cache_bytes(world);
  return own;
}

// Injected errors name ranks of the world.
std::vector<BitFlip> flips_of_trainer(const std::vector<BitFlip>& flips, int trainer, int ranks) {
  std::vector<BitFlip> own;
  for (BitFlip flip : flips) {
    if (flip.rank / ranks != trainer) continue;
    flip.rank %= ranks;
    own.push_back(flip);
  }
  return own;
}

// The trainers' last messages, and their order.
struct Ranking {
  std::vector<nlohmann::json> ends;
  std::vector<std::string> folders;  // of the trainers, as in result.json
  std::vector<MetricName> metrics;
  std::vector<std::size_t> order;  // the best first

  std::vector<double> values(std::size_t trainer) const {
    std::vector<double> values;
    for (const nlohmann::json& value : ends[trainer].value("values", nlohmann::json::array()))
      values.push_back(number_or_nan(value));
    values.resize(metrics.size(), std::numeric_limits<double>::quiet_NaN());
    return values;
  }
  bool has_model(std::size_t trainer) const { return ends[trainer].contains("result"); }
  std::size_t best() const { return order.front(); }
};

Ranking ranked(std::vector<nlohmann::json> ends, std::vector<std::string> folders,
               std::vector<MetricName> metrics) {
  Ranking ranking = {std::move(ends), std::move(folders), std::move(metrics), {}};
  for (std::size_t trainer = 0; trainer < ranking.ends.size(); ++trainer) ranking.order.push_back(trainer);
  const bool larger = ranking.metrics.front().larger_is_better();
  std::ranges::stable_sort(ranking.order, [&](std::size_t a, std::size_t b) {
    if (ranking.has_model(a) != ranking.has_model(b)) return ranking.has_model(a);
    return is_better(ranking.values(a).front(), ranking.values(b).front(), larger);
  });
  if (!ranking.has_model(ranking.best()))
    throw CommonError(ExitCode::data, "no trainer ends with a model: all have diverged or are lost");
  return ranking;
}

nlohmann::json ranking_json(const Ranking& ranking, const TrainConfig& config) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::size_t trainer : ranking.order) {
    nlohmann::json entry = {{"trainer", trainer + 1},
                            {"folder", ranking.folders[trainer]},
                            {"seed", config.seed + trainer},
                            {"has_model", ranking.has_model(trainer)}};
    const std::vector<double> values = ranking.values(trainer);
    for (std::size_t i = 0; i < values.size(); ++i)
      entry["validation"][ranking.metrics[i].text()] = values[i];
    if (ranking.has_model(trainer)) {
      const nlohmann::json& result = ranking.ends[trainer].at("result");
      entry["training_samples"] = result.at("data").at("train");
      for (const char* key : {"rate_factor", "weight_decay_factor", "seconds_in_rounds_this_segment",
                              "seconds_waited_this_segment"})
        entry[key] = result.at("tournament").at(key);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

nlohmann::json tournament_result(const Ranking& ranking, const TrainConfig& config, std::int64_t rounds) {
  nlohmann::json bouts = nlohmann::json::array();
  for (const nlohmann::json& end : ranking.ends)
    for (const nlohmann::json& bout : end.at("rounds")) bouts.push_back(bout);
  const auto by_round = [](const nlohmann::json& bout) { return bout.at("round").get<std::int64_t>(); };
  std::stable_sort(bouts.begin(), bouts.end(), [&](const nlohmann::json& a, const nlohmann::json& b) {
    return by_round(a) < by_round(b);
  });
  nlohmann::json metrics = nlohmann::json::array();
  for (const MetricName& metric : ranking.metrics) metrics.push_back(metric.text());
  return {{"trainers", config.tournament.trainers},
          {"rounds", rounds},
          {"metrics", metrics},
          {"best", ranking.best() + 1},
          {"ranking", ranking_json(ranking, config)},
          {"bouts", bouts}};
}

bool is_result(const std::string& name) {
  constexpr const char* kFiles[] = {"predictions.h5", "predictions.csv", "metrics.csv", "metrics.jsonl",
                                    "pictures.json"};
  if (std::ranges::find(kFiles, name) != std::end(kFiles)) return true;
  return name.starts_with("model") && (name.ends_with(".pt") || name.ends_with(".onnx"));
}

std::vector<fs::path> results_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_result(entry.path().filename().string())) found.push_back(entry.path());
  return found;
}

// The results of the best trainer become those of the tournament. Called by its rank 0, which wrote them.
void write_best(const TrainConfig& config, const Contest::End& end, nlohmann::json tournament, int ranks) {
  const fs::path output = config.output;
  for (const fs::path& old : results_in(output)) fs::remove(old);
  for (const fs::path& file : results_in(end.config.output)) {
    DurableFile copy(output / file.filename());
    fs::copy_file(file, copy.temporary(), fs::copy_options::overwrite_existing);
    copy.publish();
  }
  TrainConfig written = end.config;
  written.output = config.output;
  written.seed = config.seed;
  written.cache_bytes = config.cache_bytes;
  written.tournament = config.tournament;
  write_file_durably(output / "train.yaml", yaml::emit(to_yaml(written)));
  nlohmann::json result = end.result;
  result["tournament"] = std::move(tournament);
  result["ranks"] = ranks;
  write_result(output, std::move(result));
}

std::string ranking_lines(const Ranking& ranking) {
  std::string lines;
  for (std::size_t place = 0; place < ranking.order.size(); ++place) {
    const std::size_t trainer = ranking.order[place];
    std::string values;
    const std::vector<double> all = ranking.values(trainer);
    for (std::size_t i = 0; i < all.size(); ++i)
      values += fmt::format("{}{} {:.5g}", i == 0 ? "" : ", ", ranking.metrics[i].text(), all[i]);
    lines += fmt::format("{:>3}. trainer {:<4} {}\n", place + 1, trainer + 1,
                         ranking.has_model(trainer) ? "validation " + values : "has no model");
  }
  return lines;
}

// On rank 0 of the world.
void report_best(const Ranking& ranking, const TrainConfig& config) {
  const fs::path output = config.output;
  const nlohmann::json& best = ranking.ends[ranking.best()];
  std::string out = "\n" + ranking_lines(ranking);
  if (const auto table = best.at("table").get<std::string>(); !table.empty()) out += "\n" + table;
  out += fmt::format(
      "results of trainer {} in {}: model.pt, model.onnx, predictions.h5, predictions.csv, metrics.csv, "
      "result.json\n",
      ranking.best() + 1, config.output);
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
  EventWriter events = EventWriter::from_environment();
  const nlohmann::json& result = best.at("result");
  const auto epoch = result.at("epochs").get<std::uint64_t>();
  const auto step = result.at("steps").get<std::uint64_t>();
  for (const auto& [target, errors] : result.at("test").at("targets").items())
    if (const nlohmann::json ratio = errors.value("mae_ratio", nlohmann::json()); ratio.is_number())
      events.metric("test_mae_ratio/" + target, ratio.get<double>(), epoch, step);
  events.note(fmt::format("tournament: the best of {} models is that of trainer {}", ranking.order.size(),
                          ranking.best() + 1));
  events.artifact("model", (output / "model.pt").string());
  events.artifact(
      "predictions",
      (output / (fs::exists(output / "predictions.csv") ? "predictions.csv" : "predictions.h5")).string());
}

// A trainer's last message.
nlohmann::json end_of(const Contest& contest) {
  nlohmann::json own = {{"rounds", nlohmann::json::array()}};
  for (const Bout& bout : contest.bouts) own["rounds"].push_back(to_json(bout));
  if (contest.end) {
    own["values"] = contest.end->values;
    own["result"] = contest.end->result;
    own["table"] = contest.end->table;
  }
  return own;
}

// A collective call: ranks the models and writes the results of the best one. False if a trainer stops.
bool finish(const TrainConfig& config, Contest& contest, bool leader) {
  std::vector<nlohmann::json> ends = contest.meet("end", end_of(contest));
  if (contest.stops()) return false;
  std::vector<std::string> folders;
  for (int trainer = 0; trainer < contest.trainers(); ++trainer) folders.push_back(trainer_folder(trainer));
  const Ranking ranking = ranked(std::move(ends), std::move(folders), tournament_metrics(config));
  const bool is_best = static_cast<std::size_t>(contest.trainer()) == ranking.best();
  if (is_best && leader)
    write_best(config, *contest.end, tournament_result(ranking, config, contest.rounds()),
               contest.world().size());
  contest.world().barrier();
  if (contest.world().rank() == 0) report_best(ranking, config);
  return true;
}

Outcome compete(const TrainConfig& config, Communicator& trainer, Contest& contest,
                const RunOptions& options) {
  RunOptions own = options;
  own.contest = &contest;
  own.bit_flips = flips_of_trainer(options.bit_flips, contest.trainer(), trainer.size());
  if (train(config_of_trainer(config, contest.trainer(), contest.world()), trainer, own) ==
      Outcome::interrupted) {
    contest.stop();
    return Outcome::interrupted;
  }
  return finish(config, contest, trainer.rank() == 0) ? Outcome::finished : Outcome::interrupted;
}

// The task behind all others. A trainer whose tasks have failed is left out, with a warning.
void rank_tasks(TrainConfig config) {
  std::vector<nlohmann::json> ends;
  std::vector<std::string> folders;
  const std::vector<std::string> before = std::exchange(config.tournament.before, {});
  const std::int64_t rounds = config.tournament.part.value() - 2;
  config.tournament.part.reset();
  for (const fs::path folder : before) {
    folders.push_back(folder.lexically_relative(config.output).string());
    ends.push_back({{"rounds", nlohmann::json::array()}});
    if (fs::exists(folder / kEndFile)) {
      ends.back() = nlohmann::json::parse(read_file(folder / kEndFile));
    } else {
      const std::string sentence =
          fmt::format("trainer {} is lost: there is no {}", ends.size(), (folder / kEndFile).string());
      std::fprintf(stderr, "wflow-train: warning: %s\n", sentence.c_str());
      EventWriter::from_environment().note(sentence);
    }
  }
  const Ranking ranking = ranked(std::move(ends), std::move(folders), tournament_metrics(config));
  const fs::path best = before.at(ranking.best());
  Contest::End end = {config_of_training(best), ranking.ends[ranking.best()].at("result"), {}, {}};
  end.config.output = best.string();
  make_directories(config.output);
  const auto ranks = static_cast<int>(config.tournament.trainers) * end.result.at("ranks").get<int>();
  write_best(config, end, tournament_result(ranking, config, rounds), ranks);
  report_best(ranking, config);
}

}  // namespace

Outcome train_tournament_task(const TrainConfig& config, Communicator& world, const RunOptions& options) {
  const std::int64_t rounds = known_rounds(config.tournament, config.epochs).value();
  if (config.tournament.part.value() == rounds + 2) {
    if (world.rank() == 0) rank_tasks(config);
    return Outcome::finished;
  }
  Contest contest(config);
  RunOptions own = options;
  own.contest = &contest;
  TrainConfig trainer = config;
  trainer.seed = config.seed + static_cast<std::uint64_t>(contest.trainer());
  const Outcome outcome = train(trainer, world, own);
  if (outcome == Outcome::finished && contest.is_last_part() && world.rank() == 0)
    write_file_durably(fs::path(config.output) / kEndFile, end_of(contest).dump() + "\n");
  return outcome;
}

Outcome train_tournament(const TrainConfig& config, Communicator& world, const RunOptions& options) {
  const auto trainers = static_cast<int>(config.tournament.trainers);
  if (world.size() % trainers != 0)
    throw CommonError(ExitCode::spec,
                      fmt::format("{} ranks can't be {} trainers of as many ranks each: start a "
                                  "multiple of {}",
                                  world.size(), trainers, trainers));
  const int ranks = world.size() / trainers;
  const std::unique_ptr<Communicator> trainer = world.split(world.rank() / ranks);
  Contest contest(world, *trainer, config);
  try {
    return compete(config, *trainer, contest, options);
  } catch (const ContestOver&) {
    throw;
  } catch (const CommonError& error) {
    contest.fail(error);
  }
}

}  // namespace wflow::trainer
