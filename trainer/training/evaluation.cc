// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/evaluation.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/random.h"

namespace wflow::trainer {
namespace {

// Training samples that the norms' statistics are measured on before an evaluation. The error of their means
// is then a small part of the deviation between batches.
constexpr std::size_t kNormSamples = 2048;

// Samples of one pass on a rank.
std::size_t pass_samples(const TrainingOrder& order) {
  return std::max<std::size_t>(1, order.batch / order.ranks);
}

// Batches of up to `most` of the rows [first, end); `sample` maps a row to a sample of the split.
DataLoader::Plan in_passes(std::size_t first, std::size_t end, std::size_t most,
                           std::function<std::size_t(std::size_t row)> sample) {
  return [first, end, most,
          sample = std::move(sample)](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
    const std::size_t begin = first + static_cast<std::size_t>(n) * most;
    if (begin >= end) return std::nullopt;
    std::vector<BatchItem> items;
    for (std::size_t i = begin; i < std::min(end, begin + most); ++i) items.push_back({sample(i), {}});
    return items;
  };
}

}  // namespace

Evaluation Evaluator::validate() {
  const Clock::time_point begin = Clock::now();
  use_evaluation_weights();
  Evaluation evaluation = evaluation_of(predict(session_.data.validation()));
  // Checkpoints hold the evaluations of all epochs; a matrix for each would be too much.
  for (TargetErrors& errors : evaluation.targets)
    if (errors.classification) errors.classification->confusion.clear();
  use_training_weights();
  seconds_ += seconds_since(begin);
  return evaluation;
}

void Evaluator::use_evaluation_weights() {
  average_.swap(state_.values());
  network_.values_changed();
  measure_norms();
}

void Evaluator::use_training_weights() {
  if (!average_.active()) return;
  average_.swap(state_.values());
  network_.values_changed();
}

void Evaluator::measure_norms() {
  if (state_.buffers().size == 0 || session_.graph.is_module()) return;
  RunData& data = session_.data;
  const TrainingOrder& order = session_.plan.order;
  const std::size_t count = std::min(kNormSamples, data.train().size());
  const Permutation permutation(data.train().size(), hash64(session_.config.seed, 6));
  const auto [first, end] = even_part(count, order.rank, order.ranks);
  const std::size_t most = pass_samples(order);
  DataLoader loader(data.train(), data.scales(), most, static_cast<int>(session_.config.loader_threads),
                    in_passes(first, end, most, [&permutation](std::size_t row) {
                      return static_cast<std::size_t>(permutation(row));
                    }));
  NormStatistics sums(state_.buffers());
  while (const Batch* batch = loader.next()) {
    const auto samples = static_cast<std::int64_t>(batch->items.size());
    data.fill(buffers_.feed, *batch, data.train(), true);
    buffers_.outputs.resize(batch->items.size() * objective_.all_output_count());
    network_.forward(buffers_.feed.inputs, samples, {}, buffers_.outputs);
    sums.add(state_.batch_statistics(), samples);
  }
  for (const std::string& part : session_.communicator.all_gather(sums.take())) sums.add(part);
  sums.write(state_.buffer_values());
  network_.values_changed();
}

Evaluator::Predictions Evaluator::predict(CachedSplit& split) {
  return predict(split, [](std::size_t, std::size_t) {});
}

Evaluator::Predictions Evaluator::predict_into(PredictionFile* file, CachedSplit& split) {
  return predict(split, [&](std::size_t first, std::size_t samples) { write_rows(file, first, samples); });
}

Evaluator::Predictions Evaluator::predict(CachedSplit& split, const PassDone& done) {
  RunData& data = session_.data;
  const TrainingOrder& order = session_.plan.order;
  const auto [first, end] = even_part(split.size(), order.rank, order.ranks);
  const std::size_t most = pass_samples(order);
  DataLoader loader(split, data.scales(), most, static_cast<int>(session_.config.loader_threads),
                    in_passes(first, end, most, [](std::size_t row) { return row; }));
  Predictions own;
  own.counts.assign(objective_.count_size(), 0);
  const ExportedUnits units = session_.units();
  const Objective::Physical physical =
      units.undoes_transform()
          ? [&units](double value, std::size_t target) { return units.physical(value, target); }
          : Objective::Physical();
  // Every rank makes as many passes as the last rank, which has the most samples: `done` may be collective.
  const auto [last_begin, last_end] = even_part(split.size(), order.ranks - 1, order.ranks);
  const std::size_t passes = (last_end - last_begin + most - 1) / most;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    const Batch* batch = loader.next();
    const std::size_t samples = batch == nullptr ? 0 : batch->items.size();
    if (samples > 0) {
      data.fill(buffers_.feed, *batch, split, false);
      buffers_.outputs.resize(samples * objective_.all_output_count());
      network_.predict(buffers_.feed.inputs, static_cast<std::int64_t>(samples), buffers_.outputs);
      objective_.record(buffers_.outputs, buffers_.feed.truths, samples, own.records, physical, own.counts);
    }
    done(first + pass * most, samples);
    if (data.roles().field_target()) continue;
    const auto outputs = static_cast<std::ptrdiff_t>(samples * objective_.output_count());
    own.outputs.insert(own.outputs.end(), buffers_.outputs.begin(), buffers_.outputs.begin() + outputs);
  }
  return {gather_values(session_.communicator, own.records), sum_values(session_.communicator, own.counts),
          gather_values(session_.communicator, own.outputs)};
}

// Sends this rank's predictions of the rows from `first` on to rank 0, which writes those of all ranks.
void Evaluator::write_rows(PredictionFile* file, std::size_t first, std::size_t samples) {
  const std::size_t truths = samples * objective_.truth_count();
  const std::size_t outputs = samples * objective_.output_count();
  const std::uint64_t place = first;
  std::string bytes(sizeof place + (truths + outputs) * sizeof(float), '\0');
  std::memcpy(bytes.data(), &place, sizeof place);
  if (samples > 0) {
    std::memcpy(bytes.data() + sizeof place, buffers_.feed.truths.data(), truths * sizeof(float));
    std::memcpy(bytes.data() + sizeof place + truths * sizeof(float), buffers_.outputs.data(),
                outputs * sizeof(float));
  }
  for (const std::string& part : session_.communicator.all_gather(bytes)) {
    if (file == nullptr) continue;
    std::uint64_t row = 0;
    std::memcpy(&row, part.data(), sizeof row);
    const std::size_t count = (part.size() - sizeof row) / sizeof(float);
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), part.data() + sizeof row, count * sizeof(float));
    const std::size_t split = count / (objective_.truth_count() + objective_.output_count());
    const std::span<const float> all = values;
    file->write(static_cast<std::size_t>(row), all.first(split * objective_.truth_count()),
                all.subspan(split * objective_.truth_count()));
  }
}

Evaluation Evaluator::evaluation_of(const Predictions& predictions) const {
  const std::vector<double>& deviations = session_.data.normalisation().y_std;
  if (session_.units().undoes_transform())
    return evaluate(objective_, std::vector<double>(deviations.size(), 1), predictions.records,
                    predictions.counts);
  return evaluate(objective_, deviations, predictions.records, predictions.counts);
}

}  // namespace wflow::trainer
