// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/run_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kStatisticsSamples = 256;

std::int64_t cache_bytes(const TrainConfig& config, const Communicator& communicator) {
  if (config.cache_bytes >= 0) return config.cache_bytes;
  const std::int64_t free_bytes = std::int64_t{::sysconf(_SC_AVPHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return free_bytes / 4 / communicator.ranks_on_node();
}

double safe_deviation(double deviation) {
  return deviation > 0 && std::isfinite(deviation) ? deviation : 1.0;
}

}  // namespace

std::vector<std::size_t> choose_targets(const TrainConfig& config, const DatasetInfo& info) {
  std::vector<std::size_t> chosen;
  for (const std::string& name : config.targets) {
    const auto at = std::find(info.labels.begin(), info.labels.end(), name);
    if (at == info.labels.end()) {
      throw Error(ExitCode::spec,
                  fmt::format("the data in {} has no label '{}' for 'targets'; it has {}{}", config.data,
                              name, text::join(info.labels, ", "), text::suggestion(name, info.labels)));
    }
    chosen.push_back(static_cast<std::size_t>(at - info.labels.begin()));
  }
  for (std::size_t i = 0; config.targets.empty() && i < info.labels.size(); ++i) chosen.push_back(i);
  return chosen;
}

RunData::RunData(const TrainConfig& config, const Communicator& communicator)
    : config_(config),
      dataset_(open_dataset(config.data)),
      chosen_(choose_targets(config, dataset_.info)),
      budget_(cache_bytes(config, communicator)),
      train_(*dataset_.train, dataset_.info.shape, config.transform, budget_),
      validation_(*dataset_.validation, dataset_.info.shape, config.transform, budget_),
      test_(*dataset_.test, dataset_.info.shape, config.transform, budget_) {
  for (const std::size_t label : chosen_) labels_.push_back(dataset_.info.labels[label]);
}

void RunData::compute_normalisation(Communicator& communicator) {
  const auto channels = static_cast<std::size_t>(dataset_.info.shape.channels);
  const auto voxels = static_cast<std::size_t>(dataset_.info.shape.voxels());
  Normalisation& n = normalisation_;
  n = {std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0), {}, {}};
  for (const std::size_t label : chosen_) {
    const LabelRange& range = dataset_.info.label_range[label];
    // tanh's range is symmetric about 0: the targets fill it.
    n.y_mean.push_back(config_.model.tanh_output ? 0.5 * (range.least + range.most) : range.mean);
    n.y_std.push_back(
        safe_deviation(config_.model.tanh_output ? 0.5 * (range.most - range.least) : range.deviation));
  }
  if (!config_.normalise) return;

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

void RunData::copy_targets(std::size_t i, float* to) const {
  const SampleSource& source = *dataset_.train;
  const std::size_t of =
      config_.shuffle_labels
          ? static_cast<std::size_t>(Permutation(source.size(), hash64(config_.seed, 5))(i))
          : i;
  const std::span<const double> all = source.targets(of);
  for (std::size_t t = 0; t < chosen_.size(); ++t) {
    to[t] = static_cast<float>((all[chosen_[t]] - normalisation_.y_mean[t]) / normalisation_.y_std[t]);
  }
}

std::vector<double> RunData::truths(const SampleSource& source) const {
  std::vector<double> list;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::span<const double> all = source.targets(i);
    for (const std::size_t label : chosen_) list.push_back(all[label]);
  }
  return list;
}

}  // namespace wflow::trainer
