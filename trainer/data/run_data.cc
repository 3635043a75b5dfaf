// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/data/free_memory.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kStatisticsSamples = 256;

std::int64_t cache_bytes(const TrainConfig& config, const Communicator& communicator) {
  if (config.cache_bytes >= 0) return config.cache_bytes;
  return free_memory() / 4 / communicator.ranks_on_node();
}

double safe_deviation(double deviation) {
  return deviation > 0 && std::isfinite(deviation) ? deviation : 1.0;
}

}  // namespace

RunData::RunData(const TrainConfig& config, const Communicator& communicator)
    : config_(config),
      dataset_(open_dataset(config.data)),
      roles_(roles_of(config, dataset_.info)),
      targets_(target_shape(config, dataset_.info, roles_)),
      budget_(cache_bytes(config, communicator)),
      train_(*dataset_.train, dataset_.info.shape, config.transform, budget_),
      validation_(*dataset_.validation, dataset_.info.shape, config.transform, budget_),
      test_(*dataset_.test, dataset_.info.shape, config.transform, budget_) {}

void RunData::normalise_labels() {
  Normalisation& n = normalisation_;
  for (const DataRoles::Input& input : roles_.inputs) {
    if (!input.label) continue;
    const LabelRange& range = dataset_.info.label_range[*input.label];
    n.numbers_mean.push_back(config_.normalise ? range.mean : 0.0);
    n.numbers_std.push_back(config_.normalise ? safe_deviation(range.deviation) : 1.0);
  }
  for (const std::size_t label : roles_.label_targets) {
    const LabelRange& range = dataset_.info.label_range[label];
    if (is_classification(config_.loss.name)) {
      n.y_mean.push_back(0);
      n.y_std.push_back(1);
      continue;
    }
    // tanh's range is symmetric about 0: the targets fill it.
    n.y_mean.push_back(config_.model.tanh_output ? 0.5 * (range.least + range.most) : range.mean);
    n.y_std.push_back(
        safe_deviation(config_.model.tanh_output ? 0.5 * (range.most - range.least) : range.deviation));
  }
}

void RunData::compute_normalisation(Communicator& communicator) {
  const auto channels = static_cast<std::size_t>(dataset_.info.shape.channels);
  Normalisation& n = normalisation_;
  n = {std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0), {}, {}, {}, {}};
  normalise_labels();
  if (config_.normalise && roles_.reads_field()) measure_field(communicator);
  // A field that is learned is compared as the network would see it.
  if (roles_.field_target) {
    n.y_mean = n.x_mean;
    n.y_std = n.x_std;
  }
}

void RunData::measure_field(Communicator& communicator) {
  const auto channels = static_cast<std::size_t>(dataset_.info.shape.channels);
  const auto voxels = static_cast<std::size_t>(dataset_.info.shape.voxels());
  Normalisation& n = normalisation_;
  // Sums a sample, gathered in order of the samples: the ranks' number does not change the additions.
  const std::size_t count = std::min(kStatisticsSamples, train_.size());
  const Permutation order(train_.size(), hash64(config_.seed, 4));
  const auto [first, end] = even_part(count, static_cast<std::size_t>(communicator.rank()),
                                      static_cast<std::size_t>(communicator.size()));
  std::vector<double> sums;
  std::vector<float> scratch;
  for (std::size_t i = first; i < end; ++i) {
    const std::span<const float> x = train_.get(static_cast<std::size_t>(order(i)), scratch);
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0;
      double squares = 0;
      for (const float v : x.subspan(c * voxels, voxels)) {
        sum += v;
        squares += static_cast<double>(v) * v;
      }
      sums.push_back(sum);
      sums.push_back(squares);
    }
  }
  std::string bytes(sums.size() * sizeof(double), '\0');
  if (!sums.empty()) std::memcpy(bytes.data(), sums.data(), bytes.size());
  std::vector<double> totals(2 * channels, 0.0);
  for (const std::string& part : communicator.all_gather(bytes)) {
    std::vector<double> values(part.size() / sizeof(double));
    if (!part.empty()) std::memcpy(values.data(), part.data(), part.size());
    for (std::size_t i = 0; i < values.size(); ++i) totals[i % (2 * channels)] += values[i];
  }
  const double cells = static_cast<double>(count) * static_cast<double>(voxels);
  for (std::size_t c = 0; c < channels; ++c) {
    n.x_mean[c] = totals[2 * c] / cells;
    n.x_std[c] =
        safe_deviation(std::sqrt(std::max(0.0, totals[2 * c + 1] / cells - n.x_mean[c] * n.x_mean[c])));
  }
}

void RunData::copy_labels(const SampleSource& source, std::size_t i, bool training, float* to) const {
  const std::size_t of =
      training && config_.shuffle_labels
          ? static_cast<std::size_t>(Permutation(source.size(), hash64(config_.seed, 5))(i))
          : i;
  const std::span<const double> all = source.targets(of);
  for (std::size_t t = 0; t < roles_.label_targets.size(); ++t) {
    const double value = all[roles_.label_targets[t]];
    to[t] = static_cast<float>((value - normalisation_.y_mean[t]) / normalisation_.y_std[t]);
  }
}

void RunData::copy_field(std::span<const float> x, std::span<float> to) const {
  if (!is_classification(config_.loss.name)) {
    std::copy(x.begin(), x.end(), to.begin());
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<float>(x[i] * normalisation_.x_std[0] + normalisation_.x_mean[0]);
}

void RunData::fill(Feed& feed, const Batch& batch, CachedSplit& split, bool training) const {
  const std::size_t samples = batch.items.size();
  feed.inputs.clear();
  feed.numbers.resize(roles_.inputs.size());
  std::size_t number = 0;
  for (std::size_t i = 0; i < roles_.inputs.size(); ++i) {
    if (!roles_.inputs[i].label) {
      feed.inputs.push_back(batch.values(split.shape()));
      continue;
    }
    feed.numbers[i].resize(samples);
    for (std::size_t n = 0; n < samples; ++n) {
      const double value = split.source().targets(batch.items[n].index)[*roles_.inputs[i].label];
      feed.numbers[i][n] = static_cast<float>((value - normalisation_.numbers_mean[number]) /
                                              normalisation_.numbers_std[number]);
    }
    feed.inputs.push_back(feed.numbers[i]);
    ++number;
  }
  feed.truths.resize(samples * targets_.labels.size() * static_cast<std::size_t>(targets_.cells));
  if (roles_.field_target) {
    copy_field(batch.values(split.shape()), feed.truths);
    return;
  }
  for (std::size_t n = 0; n < samples; ++n) {
    copy_labels(split.source(), batch.items[n].index, training, &feed.truths[n * targets_.labels.size()]);
  }
}

std::vector<double> RunData::truths(const SampleSource& source) const {
  std::vector<double> list;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::span<const double> all = source.targets(i);
    for (const std::size_t label : roles_.label_targets) list.push_back(all[label]);
  }
  return list;
}

}  // namespace wflow::trainer
