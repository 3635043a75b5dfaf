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

#include "cli/top/step_tasks.h"
#include "cli/top/words.h"
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

// Cores that tasks held on average over the last seconds. The number of running tasks at one moment says
// little where tasks take milliseconds.
struct CoresUsed {
  std::optional<double> all;                // empty: not measured yet
  std::map<std::string, double> by_worker;  // without workers on which nothing has ended lately
};

// One campaign of several.
struct CampaignRow {
  std::string directory, name, state;
  std::uint64_t elements = 0, done = 0, failed = 0, skipped = 0;
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
  std::map<std::string, double> worker_rates;     // by worker: elements that recently ended on it per second
  CoresUsed cores_used;                           // over the last seconds
  std::optional<StepTasks> tasks;                 // of the step that is open
  std::vector<wire::FailureView> older_failures;  // that the status does not list
  // By training (array, element): "learning_rate 0.01, seed 3", the values that differ from the others.
  std::map<std::pair<specs::ArrayId, specs::Element>, std::string> training_parameters;
  double now_s = 0;  // Unix time of the picture
  Link link = Link::live;
  std::string notice;  // the answer to the last command, or a problem
  std::optional<ReplayClock> replay;
  std::vector<CampaignRow> campaigns;  // for `wflow top --all`
  TextPane pane;
};

// The names of all workers that the data know: those that are gone keep theirs.
WorkerNames worker_names(const TopData& data);

// Core-seconds of tasks that have ended and of running ones.
double busy_core_s(const TopData& data);

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

// The errors or scores of a training beside its losses, over all targets: "validation_mae_ratio/omega_m" and
// others of that name.
struct Quality {
  std::string name;  // "validation_mae_ratio"
  std::vector<std::pair<std::string, double>>
      targets;                                  // the last value of each; one without a name: no target
  std::vector<engine::wire::MetricPoint> mean;  // over the targets that reported the step
  double last() const { return mean.back().value; }
};
// R2 first, then ratios, then others; of each, test before validation. Empty: the training reports none.
std::vector<Quality> qualities_of(const std::vector<const engine::wire::MetricCurve*>& curves);
std::string text_of(const Quality& quality);  // "validation_mae_ratio 0.085 (omega_m 0.058, sigma_8 0.112)"
std::string targets_text(const Quality& quality);  // "omega_m 0.058, sigma_8 0.112"; empty without targets

struct RankedTraining {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string task;
  double last = 0;  // the metric's last value; NaN: not reported
  double best = 0;  // the best one so far; NaN: as above
  std::uint64_t best_epoch = 0;
  std::uint64_t epoch = 0;  // the last one of any metric
  double quality = 0;       // the last value of the first quality; NaN: it reports none
};

struct Ranking {
  std::string metric;  // the metric of the ranking; empty: no training has reported any
  bool higher_is_better = false;
  std::string quality;  // name of the first quality of the first training that has one; empty: none
  std::vector<RankedTraining> trainings;  // the best last value first; those without one at the end
};

// True for names of scores, accuracies and correlations; for all others less is better.
bool higher_is_better(std::string_view metric);

// Ranks by `metric`. If that is empty: by the first of validation_loss, val_loss, test_loss, train_loss, loss
// that a training has reported, else by the first metric.
Ranking ranking_of(const std::vector<engine::wire::MetricCurve>& curves, const std::string& metric = {});

}  // namespace wflow::cli::top
