// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/scale_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "trainer/data/roles.h"
#include "trainer/data/sample_source.h"
#include "trainer/training/report.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// Goyal et al. 2017 warm up for 5 of 90 epochs where a rate grows.
constexpr double kUsualWarmup = 5.0 / 90;
constexpr double kMostWarmup = 0.25;
// A rate that grows by less needs no warm-up that the small run did without.
constexpr double kSafeGrowth = 2;

double rate_of(const TrainConfig& config) {
  const auto reference = static_cast<double>(config.optimizer.reference_batch);
  const double scaled = reference > 0 ? static_cast<double>(config.batch) / reference : 1.0;
  return config.optimizer.learning_rate * scaled;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Keys that the prediction answers, or that do not change the gradient.
nlohmann::json gradient_keys(const TrainConfig& config) {
  nlohmann::json keys = fingerprint(config, {});
  for (const char* key : {"batch", "epochs", "schedule", "accumulate", "seed", "data_hash", "select",
                          "early_stop", "min_improvement", "init_from", "ema"})
    keys.erase(key);
  for (const char* key : {"learning_rate", "reference_batch"}) keys["optimizer"].erase(key);
  return keys;
}

// The batches of the table: that of the file, and powers of two around the noise scale.
std::vector<std::int64_t> batches_of(const TrainConfig& large, double noise_scale) {
  std::set<std::int64_t> batches = {large.batch};
  const double power = std::exp2(std::round(std::log2(std::clamp(noise_scale, 1.0, 1e6))));
  for (const double factor : {0.25, 1.0, 4.0})
    batches.insert(std::max<std::int64_t>(large.ranks, std::llround(power * factor)));
  return {batches.begin(), batches.end()};
}

std::string table_of(const SmallRun& run, double noise_scale, const TrainConfig& large) {
  std::string out = fmt::format("{:>10}  {:>14}  {:>14}  {:>12}  {:>12}\n", "batch", "learning_rate",
                                "warmup_epochs", "steps", "samples");
  for (const std::int64_t batch : batches_of(large, noise_scale)) {
    const ScaledRun row = scaled_run(run, noise_scale, batch, large.epochs);
    out += fmt::format("{:>10}  {:>14.3g}  {:>14.3g}  {:>10.2f} x  {:>10.2f} x{}\n", row.batch,
                       row.learning_rate, row.warmup_epochs, row.steps, row.samples,
                       batch == large.batch ? "  your file" : "");
  }
  return out;
}

std::string assumptions(const SmallRun& run, const TrainConfig& large) {
  const bool linear = rate_power(large.optimizer.name) == 1;
  std::string out = fmt::format(
      "assumed:\n"
      "- the rate of {} is the best one at batch {}\n"
      "- {}: the best rate rises with {} up to the noise scale, and no further\n"
      "- the warm-up has as many steps as in the small run, at most a quarter of the epochs{}\n"
      "- the noise scale is that of late epochs; early ones tolerate only smaller batches\n"
      "- steps and samples to the same loss, over the least number of each: 1 + noise scale / batch, and 1 + "
      "batch / "
      "noise scale\n",
      run.folder, run.config.batch, name_of(large.optimizer.name),
      linear ? "the batch" : "the square root of the batch",
      run.config.schedule.warmup_epochs > 0
          ? ""
          : fmt::format("; it had none, so one epoch in 18 where the rate more than doubles (Goyal 2017)"));
  const std::string differences = fingerprint_differences(gradient_keys(run.config), gradient_keys(large));
  if (!differences.empty())
    out += fmt::format("- the noise scale is the same although the runs differ: {}\n", differences);
  return out;
}

}  // namespace

double rate_power(OptimizerName name) {
  return name == OptimizerName::sgd || name == OptimizerName::larc ? 1 : 0.5;
}

ScaledRun scaled_run(const SmallRun& small, double noise_scale, std::int64_t batch, std::int64_t epochs) {
  const auto from = static_cast<double>(small.config.batch);
  const auto to = static_cast<double>(batch);
  const double growth =
      std::pow((1 + noise_scale / from) / (1 + noise_scale / to), rate_power(small.config.optimizer.name));
  const auto all = static_cast<double>(epochs);
  double warmup = small.config.schedule.warmup_epochs * to / from;
  if (warmup <= 0 && growth > kSafeGrowth) warmup = kUsualWarmup * all;
  return {batch, rate_of(small.config) * growth, std::min(warmup, kMostWarmup * all), 1 + noise_scale / to,
          1 + to / noise_scale};
}

SmallRun read_small_run(const fs::path& folder) {
  SmallRun run;
  run.folder = folder.string();
  run.config = config_of_training(folder);
  const nlohmann::json result = finished_result(folder);
  const nlohmann::json scale =
      result.value("noise_scale", nlohmann::json::object()).value("second_half", nlohmann::json());
  if (!scale.is_number())
    throw Error(
        ExitCode::data,
        fmt::format("{} has no gradient noise scale: train it with 'noise_scale: 5' (or 1, where its steps "
                    "are too few for an estimate)",
                    folder.string()));
  run.noise_scale = scale.get<double>();
  const nlohmann::json loss = result.value("validation", nlohmann::json::object())
                                  .value("loss", result.value("train_loss", nlohmann::json()));
  run.loss = number_or_nan(loss);
  return run;
}

std::string describe_scale(const TrainConfig& asked, std::span<const SmallRun> runs) {
  const TrainConfig large = completed(asked, read_dataset_info(asked.data));
  std::vector<double> scales;
  std::string out;
  for (const SmallRun& run : runs) {
    if (run.config.optimizer.name != large.optimizer.name)
      throw Error(ExitCode::spec,
                  fmt::format("{} was trained with {} and your file says {}: a rate of one is none of "
                              "the other",
                              run.folder, name_of(run.config.optimizer.name), name_of(large.optimizer.name)));
    scales.push_back(run.noise_scale);
    out += fmt::format("{}: batch {}, rate {:.3g}, loss {:.4g}, noise scale {:.0f} samples\n", run.folder,
                       run.config.batch, rate_of(run.config), run.loss, run.noise_scale);
  }
  const SmallRun& best = *std::ranges::min_element(
      runs, [](double a, double b) { return is_better(a, b); }, &SmallRun::loss);
  const double noise_scale = median(scales);
  const ScaledRun prediction = scaled_run(best, noise_scale, large.batch, large.epochs);
  out += "\n" + table_of(best, noise_scale, large);
  out +=
      fmt::format("\noptimizer: {{name: {}, learning_rate: {:.3g}}}\nschedule: {{warmup_epochs: {:.3g}}}\n\n",
                  name_of(large.optimizer.name), prediction.learning_rate, prediction.warmup_epochs);
  return out + assumptions(best, large);
}

void NoiseSums::add(const SmallGradient& small, double big_square, double batch) {
  const double difference = small.inverse - 1 / batch;
  if (difference <= 0 || !std::isfinite(small.square) || !std::isfinite(big_square)) return;
  // E|g|^2 = |G|^2 + trace / samples, for both batches.
  const double measured = (small.square - big_square) / difference;
  trace += measured;
  square += big_square - measured / batch;
  ++count;
}

std::optional<double> NoiseSums::scale() const {
  if (trace <= 0 || square <= 0) return std::nullopt;
  return trace / square;
}

nlohmann::json NoiseSums::to_json() const {
  return {trace, square, count};
}

NoiseSums NoiseSums::from_json(const nlohmann::json& json) {
  return {json.at(0).get<double>(), json.at(1).get<double>(), json.at(2).get<std::int64_t>()};
}

double square_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace wflow::trainer
