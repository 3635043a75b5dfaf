// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/evaluation.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/random.h"
#include "base/resources.h"

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

// Passes of the last rank, which has the most of `count` samples.
std::size_t most_passes(std::size_t count, const TrainingOrder& order, std::size_t most) {
  const auto [begin, end] = even_part(count, order.ranks - 1, order.ranks);
  return (end - begin + most - 1) / most;
}

// True if the sums of a head are of physical values: where a factor does not convert them, and for formulas.
bool records_physical(const OutputUnits& units, const Objective& objective) {
  return units.undoes_transform() || !objective.metrics().empty();
}

}  // namespace

Evaluation Evaluator::validate() {
  const Clock::time_point begin = Clock::now();
  made_.clear();
  const std::span<const Heads::Head> heads = heads_.all();
  const ModelGraph& graph = session_.graph;
  for (std::size_t h = 0; h < heads.size() && session_.leader(); ++h) {
    if (heads[h].objective.shape().truth != Truth::none) continue;
    const std::size_t value = graph.outputs[graph.output_of_head(h, heads.size())].value;
    made_.push_back({h, heads[h].name, graph.shape_of(value), {}});
  }
  const auto keep = [this](std::size_t, std::size_t samples) { keep_made(samples); };
  Evaluation evaluation = errors_on(session_.data.validation(), keep);
  // Checkpoints hold the evaluations of all epochs; a matrix for each would be too much.
  for (TargetErrors& errors : evaluation.targets)
    if (errors.classification) errors.classification->confusion.clear();
  seconds_ += seconds_since(begin);
  return evaluation;
}

Evaluation Evaluator::errors_on(CachedSplit& split) {
  return errors_on(split, [](std::size_t, std::size_t) {});
}

Evaluation Evaluator::errors_on(CachedSplit& split, const PassDone& done) {
  use_evaluation_weights();
  Evaluation evaluation = evaluation_of(predict(split, done));
  use_training_weights();
  return evaluation;
}

void Evaluator::keep_made(std::size_t samples) {
  for (Made& made : made_) {
    const std::size_t count = heads_.all()[made.number].objective.output_count();
    const auto cells = static_cast<std::size_t>(made.shape.voxels());
    const std::span<const float> all =
        std::span<const float>(buffers_.outputs).subspan(heads_.output_begin(made.number, samples));
    for (std::size_t n = 0; n < samples && made.values.size() < kMosaicSamples * cells; ++n) {
      const std::span<const float> first_channel = all.subspan(n * count, cells);
      made.values.insert(made.values.end(), first_channel.begin(), first_channel.end());
    }
  }
}

void Evaluator::use_evaluation_weights() {
  return_free_memory();
  swap_weights();
  measure_norms();
}

void Evaluator::use_training_weights() {
  return_free_memory();
  if (state_.average.active()) swap_weights();
}

// Arrays of the training's passes have other lengths than those of an evaluation. Without a limit, the heap
// keeps both.
void Evaluator::return_free_memory() const {
  if (session_.config.memory > 0) trim_heap();
}

// Exchanges the weights and their average.
void Evaluator::swap_weights() {
  if (state_.average.active()) {
    state_.average.swap(state_.flat.values());
    state_.weights_changed();
  }
  network_.values_changed();
}

void Evaluator::measure_norms() {
  if (state_.flat.buffers().size == 0 || session_.graph.is_module()) return;
  RunData& data = session_.data;
  const TrainingOrder& order = session_.plan.order;
  const std::vector<std::size_t> samples_of_rank = order.some(kNormSamples, hash64(session_.config.seed, 6));
  const std::size_t most = pass_samples(order);
  DataLoader loader(data.train(), data.scales(), most, static_cast<int>(session_.config.loader_threads),
                    in_passes(0, samples_of_rank.size(), most,
                              [&samples_of_rank](std::size_t row) { return samples_of_rank[row]; }),
                    data.boxes());
  NormStatistics sums(state_.flat.buffers());
  const std::size_t own_passes = (samples_of_rank.size() + most - 1) / most;
  const std::size_t passes = std::ranges::max(gather_values(session_.communicator, std::vector{own_passes}));
  for (std::size_t pass = 0; pass < passes; ++pass) {
    const Batch* batch = loader.next();
    if (batch == nullptr) {
      network_.sit_out(Network::Pass::forward);
      continue;
    }
    const auto samples = static_cast<std::int64_t>(batch->items.size());
    data.fill(buffers_.feed, *batch, data.train(), true);
    buffers_.outputs.resize(batch->items.size() * heads_.all_output_count());
    network_.forward(buffers_.feed.inputs, samples, {}, buffers_.outputs);
    if (session_.counts_samples()) sums.add(state_.flat.batch_statistics(), samples);
  }
  for (const std::string& part : session_.communicator.all_gather(sums.take())) sums.add(part);
  sums.write(state_.flat.buffer_values());
  network_.values_changed();
}

Evaluator::Records Evaluator::predict(CachedSplit& split) {
  return predict(split, [](std::size_t, std::size_t) {});
}

Evaluator::Records Evaluator::predict_into(PredictionFile* file, CachedSplit& split) {
  return predict(split, [&](std::size_t first, std::size_t samples) { write_rows(file, first, samples); });
}

Evaluator::Records Evaluator::predict(CachedSplit& split, const PassDone& done) {
  RunData& data = session_.data;
  const TrainingOrder& order = session_.plan.order;
  const auto [first, end] = even_part(split.size(), order.rank, order.ranks);
  const std::size_t most = pass_samples(order);
  DataLoader loader(split, data.scales(), most, static_cast<int>(session_.config.loader_threads),
                    in_passes(first, end, most, [](std::size_t row) { return row; }), data.boxes());
  Records own;
  own.counts.assign(heads_.count_size(), 0);
  const std::vector<OutputUnits> units = session_.units().outputs;
  std::vector<Objective::Physical> physical(units.size());
  for (std::size_t h = 0; h < units.size(); ++h) {
    if (!records_physical(units[h], heads_.all()[h].objective)) continue;
    physical[h] = [&units, h](double value, std::size_t target) { return units[h].physical(value, target); };
  }
  // Every rank makes as many passes: `done` may be collective.
  for (std::size_t pass = 0; pass < most_passes(split.size(), order, most); ++pass) {
    const Batch* batch = loader.next();
    const std::size_t samples = batch == nullptr ? 0 : batch->items.size();
    if (samples > 0) {
      data.fill(buffers_.feed, *batch, split, false);
      buffers_.outputs.resize(samples * heads_.all_output_count());
      network_.predict(buffers_.feed.inputs, static_cast<std::int64_t>(samples), buffers_.outputs);
      const std::vector<std::span<const float>> truths(buffers_.feed.truths.begin(),
                                                       buffers_.feed.truths.end());
      heads_.record(buffers_.outputs, truths, samples, own.sums, physical, own.counts);
    } else {
      network_.sit_out(Network::Pass::predict);
    }
    done(first + pass * most, samples);
  }
  if (!session_.counts_samples()) {
    own.sums.clear();
    std::ranges::fill(own.counts, 0);
  }
  return {gather_values(session_.communicator, own.sums), sum_values(session_.communicator, own.counts)};
}

// Sends this rank's predictions of the rows from `first` on to rank 0, which writes those of all ranks: for
// each head its truths, then its outputs.
void Evaluator::write_rows(PredictionFile* file, std::size_t first, std::size_t samples) {
  if (!session_.counts_samples()) samples = 0;
  const std::uint64_t place = first;
  std::string bytes(reinterpret_cast<const char*>(&place), sizeof place);
  const auto append = [&bytes](std::span<const float> values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  };
  std::size_t values_of_row = 0;
  for (std::size_t h = 0; h < heads_.all().size(); ++h) {
    const Objective& objective = heads_.all()[h].objective;
    values_of_row += objective.truth_count() + objective.output_count();
    if (samples == 0) continue;
    append(buffers_.feed.truths[h]);
    append(std::span<const float>(buffers_.outputs)
               .subspan(heads_.output_begin(h, samples), samples * objective.output_count()));
  }
  for (const std::string& part : session_.communicator.all_gather(bytes)) {
    if (file == nullptr) continue;
    std::uint64_t row = 0;
    std::memcpy(&row, part.data(), sizeof row);
    std::vector<float> values((part.size() - sizeof row) / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), part.data() + sizeof row, part.size() - sizeof row);
    const std::size_t rows = values.size() / values_of_row;
    std::span<const float> left = values;
    for (std::size_t h = 0; h < heads_.all().size(); ++h) {
      const Objective& objective = heads_.all()[h].objective;
      const std::span<const float> truths = left.first(rows * objective.truth_count());
      left = left.subspan(truths.size());
      const std::span<const float> outputs = left.first(rows * objective.output_count());
      left = left.subspan(outputs.size());
      file->write(h, static_cast<std::size_t>(row), truths, outputs);
    }
  }
}

Evaluation Evaluator::evaluation_of(const Records& records) const {
  std::vector<double> deviations;
  const std::vector<OutputUnits> units = session_.units().outputs;
  for (std::size_t h = 0; h < units.size(); ++h) {
    const bool physical = records_physical(units[h], heads_.all()[h].objective);
    for (std::size_t t = 0; t < units[h].targets.size(); ++t)
      deviations.push_back(physical ? 1 : units[h].deviation[t]);
  }
  return evaluate(heads_, deviations, records.sums, records.counts);
}

}  // namespace wflow::trainer
