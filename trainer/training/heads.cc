// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/heads.h"

#include "base/error.h"

namespace wflow::trainer {

Heads::Heads(std::vector<Head> heads) : heads_(std::move(heads)) {
  WFLOW_CHECK(!heads_.empty());
  std::size_t targets = 0;
  for (Head& head : heads_) {
    head.first_target = targets;
    targets += head.objective.shape().labels.size();
  }
}

std::vector<std::string> Heads::labels() const {
  std::vector<std::string> labels;
  for (const Head& head : heads_) {
    const std::vector<std::string>& own = head.objective.shape().labels;
    labels.insert(labels.end(), own.begin(), own.end());
  }
  return labels;
}

std::size_t Heads::all_output_count() const {
  std::size_t count = 0;
  for (const Head& head : heads_) count += head.objective.all_output_count();
  return count;
}

std::size_t Heads::output_begin(std::size_t head, std::size_t samples) const {
  std::size_t begin = 0;
  for (std::size_t h = 0; h < head; ++h) begin += samples * heads_[h].objective.all_output_count();
  return begin;
}

double Heads::loss_and_gradient(std::span<const float> outputs, Truths truths, std::size_t samples,
                                double scale, std::span<float> gradient) const {
  WFLOW_CHECK(truths.size() == heads_.size() && outputs.size() == samples * all_output_count());
  const auto common_terms = static_cast<double>(terms());
  double sum = 0;
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    const Objective& objective = heads_[h].objective;
    const std::size_t begin = output_begin(h, samples);
    const std::size_t count = samples * objective.all_output_count();
    const double share = heads_[h].weight * (common_terms / static_cast<double>(objective.terms()));
    sum += share * objective.loss_and_gradient(outputs.subspan(begin, count), truths[h], samples,
                                               share * scale, gradient.subspan(begin, count));
  }
  return sum;
}

std::size_t Heads::record_size() const {
  std::size_t size = 0;
  for (const Head& head : heads_) size += head.objective.record_size();
  return size;
}

std::size_t Heads::count_size() const {
  std::size_t size = 0;
  for (const Head& head : heads_) size += head.objective.count_size();
  return size;
}

void Heads::record(std::span<const float> outputs, Truths truths, std::size_t samples,
                   std::vector<double>& records, std::span<const Objective::Physical> physical,
                   std::span<std::uint64_t> counts) const {
  WFLOW_CHECK(physical.size() == heads_.size());
  for (std::size_t n = 0; n < samples; ++n) {
    std::span<std::uint64_t> left = counts;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const Objective& objective = heads_[h].objective;
      const std::size_t count = objective.output_count();
      const std::size_t truth_count = objective.truth_count();
      objective.record(outputs.subspan(output_begin(h, samples) + n * count, count),
                       truths[h].subspan(n * truth_count, truth_count), 1, records, physical[h],
                       left.empty() ? left : left.first(objective.count_size()));
      if (!left.empty()) left = left.subspan(objective.count_size());
    }
  }
}

Evaluation evaluate(const Heads& heads, std::span<const double> deviations, std::span<const double> records,
                    std::span<const std::uint64_t> counts) {
  const std::size_t size = heads.record_size();
  const std::size_t samples = records.size() / size;
  Evaluation all;
  std::size_t begin = 0;
  for (const Heads::Head& head : heads.all()) {
    const std::size_t own = head.objective.record_size();
    std::vector<double> part;
    part.reserve(samples * own);
    for (std::size_t n = 0; n < samples; ++n) {
      const std::span<const double> record = records.subspan(n * size + begin, own);
      part.insert(part.end(), record.begin(), record.end());
    }
    begin += own;
    const std::size_t counted = counts.empty() ? 0 : head.objective.count_size();
    Evaluation evaluation =
        evaluate(head.objective, deviations.subspan(head.first_target, head.objective.shape().labels.size()),
                 part, counts.first(counted));
    counts = counts.subspan(counted);
    if (heads.all().size() == 1) {
      // A single head may have a weight too.
      evaluation.loss *= head.weight;
      return evaluation;
    }
    if (head.objective.shape().truth == Truth::none) continue;
    all.loss += head.weight * evaluation.loss;
    all.heads.push_back({head.name, evaluation.loss, evaluation.targets.size(), evaluation.classes});
    all.targets.insert(all.targets.end(), evaluation.targets.begin(), evaluation.targets.end());
  }
  return all;
}

}  // namespace wflow::trainer
