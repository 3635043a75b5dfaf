// SPDX-License-Identifier: Apache-2.0
// The data of one run: the three splits behind a cache, the chosen targets, the normalisation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/roles.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/staging.h"
#include "trainer/data/transform.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// Inputs of the network and truths for the loss, from one batch.
struct Feed {
  std::vector<std::span<const float>> inputs;  // in order of the network's inputs
  std::vector<float> truths;  // [samples, targets, cells], normalised; class numbers as they are
  std::vector<std::vector<float>> numbers;  // storage for inputs that are labels
};

class RunData {
 public:
  RunData(const TrainConfig& config, Communicator& communicator);

  // nullptr if the shards are not staged.
  const Staging* staging() const { return staging_.get(); }
  const DatasetInfo& info() const { return dataset_.info; }
  const DataRoles& roles() const { return roles_; }
  const TargetShape& targets() const { return targets_; }
  const std::vector<std::string>& labels() const { return targets_.labels; }  // names of the targets
  CachedSplit& train() { return train_; }
  CachedSplit& validation() { return validation_; }
  CachedSplit& test() { return test_; }

  // Fields with a recorded normalisation that is not linear (quantile): mean and deviation replace it.
  std::vector<std::string> normalised_otherwise() const;

  // Uses up to 256 training samples; the result does not depend on the number of ranks.
  void compute_normalisation(Communicator& communicator);
  void set_normalisation(Normalisation normalisation) { normalisation_ = std::move(normalisation); }
  const Normalisation& normalisation() const { return normalisation_; }
  // One list for each part that is read.
  std::vector<std::vector<ChannelScale>> scales() const;
  // The grid that augmentations act on: the grid of all fields of more than one cell. The constructor throws
  // Error{spec} if there are several and `augment` is set.
  const TensorShape& grid() const { return grid_; }
  // Stored shape of the field targets; empty if the targets are numbers.
  std::vector<std::int64_t> target_grid() const;
  // True for a single field target whose stored values have no axis of channels.
  bool target_is_without_channels() const;
  bool target_is_transformed() const;

  // `training`: with shuffle_labels, the targets are those of another sample.
  void fill(Feed& feed, const Batch& batch, CachedSplit& split, bool training) const;
  // The chosen labels of all samples of a split, physical.
  std::vector<double> truths(const SampleSource& source) const;

 private:
  void normalise_labels();
  // Cells of each class in the training split, without padding. A collective call.
  std::vector<std::uint64_t> training_class_counts(Communicator& communicator) const;
  void count_sample(std::size_t sample, std::span<std::uint64_t> counts) const;
  FieldScale scale_of(std::size_t part, Communicator& communicator);
  FieldScale measured(std::size_t part, Communicator& communicator);
  const DataField& field_of(std::size_t part) const { return dataset_.info.fields[roles_.parts[part].field]; }
  void copy_labels(const SampleSource& source, std::size_t i, bool training, float* to) const;
  void copy_fields(const Batch& batch, std::span<float> to) const;
  // Sets targets to NaN where a mask marks padding.
  void hide_padding(const Batch& batch, std::span<float> to) const;
  bool is_input(std::size_t part) const;

  TrainConfig config_;
  std::unique_ptr<Staging> staging_;
  Dataset dataset_;
  DataRoles roles_;
  TargetShape targets_;
  TensorShape grid_;
  CacheBudget budget_;
  CachedSplit train_;
  CachedSplit validation_;
  CachedSplit test_;
  Normalisation normalisation_;
};

}  // namespace wflow::trainer
