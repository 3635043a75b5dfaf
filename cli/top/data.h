// SPDX-License-Identifier: Apache-2.0
// The data that the dashboard shows at one moment, from a coordinator, from the record of a campaign at rest,
// or from a replay. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/wire/answers.h"

namespace wflow::cli::top {

namespace wire = engine::wire;

enum class Link : std::uint8_t {
  live,     // a coordinator answers
  none,     // no coordinator answers; the picture is the last one, or that of the record
  at_rest,  // the campaign has ended
  replay,
};

// The request of a step for each of its tasks.
struct StepNeeds {
  int cores = 1;
  std::int64_t memory_bytes = 0;  // 0: no limit
};

// One campaign of several.
struct CampaignRow {
  std::string directory, name, state;
  std::uint64_t elements = 0, ended = 0, failed = 0;
  double started_s = 0;  // Unix time
  std::optional<double> left_s;
};

// A text to page through: a task's log, an explanation.
struct TextPane {
  std::string title;
  std::vector<std::string> lines;
};

struct ReplayClock {
  double begin_s = 0, end_s = 0, at_s = 0;  // Unix time
  double speed = 1;                         // seconds of the campaign per second
  bool paused = false;
};

struct TopData {
  engine::wire::StatusAnswer status;
  std::vector<wire::RunningView> running;
  std::uint64_t running_total = 0;
  std::vector<wire::CheckpointView> checkpoints;
  std::vector<wire::WorkerView> workers;   // also those that are gone
  std::map<std::string, StepNeeds> needs;  // by step
  // By step: ended tasks per second, one value for each `rate_span_s`, the newest last.
  std::map<std::string, std::vector<double>> rates;
  double rate_span_s = 1;
  std::map<std::string, double> worker_rates;  // by worker: elements that recently ended on it per second
  // By training (array, element): "learning_rate 0.01, seed 3", the values that differ from the others.
  std::map<std::pair<specs::ArrayId, specs::Element>, std::string> training_parameters;
  double now_s = 0;  // Unix time of the picture
  Link link = Link::live;
  std::string notice;  // the answer to the last command, or a problem
  std::optional<ReplayClock> replay;
  std::vector<CampaignRow> campaigns;  // for `wflow top --all`
  TextPane pane;
};

// Time of the workers as node-hours: of each worker from when it joined to its end (or now), and the part
// that no task has used, by cores. Empty before a worker has joined.
struct NodeHours {
  double used = 0, idle = 0;
  double core_h = 0;  // the same time as hours of cores
};
std::optional<NodeHours> node_hours(const TopData& data);

// The expected end of the campaign, Unix time; `at_least` if a step has no estimate yet.
struct ForecastEnd {
  double time_s = 0;
  bool at_least = false;
};
std::optional<ForecastEnd> forecast_end(const TopData& data);

// ---- ranking.cc: which of several trainings is best, by one metric that they report

struct RankedTraining {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string task;
  double last = 0;  // the metric's last value; NaN: not reported
  double best = 0;  // the best one so far; NaN: as above
  std::uint64_t best_epoch = 0;
  std::uint64_t epoch = 0;  // the last one of any metric
};

struct Ranking {
  std::string metric;  // the metric of the ranking; empty: no training has reported any
  bool higher_is_better = false;
  std::vector<RankedTraining> trainings;  // the best last value first; those without one at the end
};

// True for names of scores, accuracies and correlations; for all others less is better.
bool higher_is_better(std::string_view metric);

// Ranks by `metric`. If that is empty: by the first of validation_loss, val_loss, test_loss, train_loss, loss
// that a training has reported, else by the first metric.
Ranking ranking_of(const std::vector<engine::wire::MetricCurve>& curves, const std::string& metric = {});

}  // namespace wflow::cli::top
