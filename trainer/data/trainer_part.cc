// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/trainer_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {
namespace {

// Keys of hash64(seed, key). Those of the other uses of a training's seed are smaller.
constexpr std::uint64_t kTrainerKey = 21;
constexpr std::uint64_t kHeldOutKey = 22;
constexpr std::uint64_t kFoldKey = 23;

class SampleSubset final : public SampleSource {
 public:
  SampleSubset(const SampleSource& source, std::vector<std::size_t> samples)
      : source_(source), samples_(std::move(samples)) {}
  std::size_t size() const override { return samples_.size(); }
  std::int64_t id(std::size_t i) const override { return source_.id(samples_[i]); }
  std::span<const double> targets(std::size_t i) const override { return source_.targets(samples_[i]); }
  void read_scaled(std::size_t field, std::span<const std::size_t> indices,
                   std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                   converters::MemoryBudget* keep) const override {
    source_.read_scaled(field, in_source(indices), to, scales, keep);
  }
  void read_boxes(std::size_t field, const TensorShape& shape, std::span<const std::size_t> indices,
                  std::span<const PeriodicBox> boxes, std::span<const std::span<float>> to,
                  std::span<const ChannelScale> scales, converters::MemoryBudget* keep) const override {
    source_.read_boxes(field, shape, in_source(indices), boxes, to, scales, keep);
  }
  bool has_parts(std::size_t field) const override { return source_.has_parts(field); }
  std::size_t length(std::size_t field, std::size_t i) const override {
    return source_.length(field, samples_[i]);
  }
  std::int64_t compressed_bytes(std::size_t field) const override {
    const double share = static_cast<double>(size()) / static_cast<double>(source_.size());
    return static_cast<std::int64_t>(share * static_cast<double>(source_.compressed_bytes(field)));
  }

 private:
  std::vector<std::size_t> in_source(std::span<const std::size_t> indices) const {
    std::vector<std::size_t> found;
    for (const std::size_t index : indices) found.push_back(samples_[index]);
    return found;
  }

  const SampleSource& source_;
  const std::vector<std::size_t> samples_;
};

}  // namespace

SamplePlace place_of(std::int64_t id, const TrainerPart& part) {
  if (part.trainers == 1) return SamplePlace::training;
  const auto identity = static_cast<std::uint64_t>(id);
  if (part.disjoint) {
    const double drawn = unit_real(hash64(hash64(part.seed, kTrainerKey), identity));
    if (static_cast<int>(drawn * part.trainers) != part.trainer) return SamplePlace::other_trainer;
  }
  const double drawn = unit_real(hash64(hash64(part.seed, kHeldOutKey), identity));
  return drawn < part.fraction ? SamplePlace::held_out : SamplePlace::training;
}

DividedSamples divided(const SampleSource& samples, const TrainerPart& part) {
  DividedSamples divided;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const SamplePlace place = place_of(samples.id(i), part);
    if (place == SamplePlace::training) divided.training.push_back(i);
    if (place == SamplePlace::held_out) divided.held_out.push_back(i);
  }
  if (divided.training.empty() || divided.held_out.empty())
    throw CommonError(
        ExitCode::data,
        fmt::format(
            "{} training samples are too few for {} trainers: trainer {} has {} to train on and {} to "
            "judge models by; choose fewer trainers, a larger 'fraction', or 'data: shared'",
            samples.size(), part.trainers, part.trainer + 1, divided.training.size(),
            divided.held_out.size()));
  return divided;
}

std::unique_ptr<SampleSource> leave_fold_out(Dataset& dataset, const TrainConfig& config) {
  if (config.folds == 1) return nullptr;
  std::vector<std::size_t> training, left_out;
  const auto folds = static_cast<std::uint64_t>(config.folds);
  for (std::size_t i = 0; i < dataset.train->size(); ++i) {
    const auto identity = static_cast<std::uint64_t>(dataset.train->id(i));
    const std::uint64_t fold = 1 + hash64(hash64(config.seed, kFoldKey), identity) % folds;
    (fold == static_cast<std::uint64_t>(config.fold) ? left_out : training).push_back(i);
  }
  if (training.empty() || left_out.empty())
    throw CommonError(ExitCode::data,
                      fmt::format("{} training samples are too few for {} folds: fold {} has {}",
                                  dataset.train->size(), folds, config.fold, left_out.size()));
  std::unique_ptr<SampleSource> all = std::move(dataset.train);
  dataset.train = std::make_unique<SampleSubset>(*all, std::move(training));
  dataset.test = std::make_unique<SampleSubset>(*all, std::move(left_out));
  return all;
}

SamplesBeside take_part(std::unique_ptr<SampleSource>& training, const TrainerPart* part) {
  SamplesBeside beside;
  if (part == nullptr || part->trainers == 1) return beside;
  DividedSamples samples = divided(*training, *part);
  beside.all = std::move(training);
  training = std::make_unique<SampleSubset>(*beside.all, std::move(samples.training));
  beside.held_out = std::make_unique<SampleSubset>(*beside.all, std::move(samples.held_out));
  return beside;
}

}  // namespace wflow::trainer
