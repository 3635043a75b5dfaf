// SPDX-License-Identifier: Apache-2.0
// The data of one run: the three splits behind a cache, the chosen targets, the normalisation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "converters/shards/shared_chunks.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/roles.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/staging.h"
#include "trainer/data/trainer_part.h"
#include "trainer/data/transform.h"
#include "trainer/model/layout.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// Ranks of one machine that share samples decode each chunk of them once, in memory that they share.

struct ChunkSharing {
  std::unique_ptr<converters::SharedChunks> chunks;  // null: each rank decodes for itself
  std::size_t rank = 0;                              // of the group's ranks on this machine
  std::size_t ranks = 1;
  std::int64_t bytes() const {
    return chunks ? static_cast<std::int64_t>(chunks->slots() * chunks->slot_bytes()) : 0;
  }
};

// A collective call of the ranks that share samples, with the same numbers.
ChunkSharing share_chunks(Communicator& group, std::size_t slots, std::size_t slot_bytes);

// Inputs of the network and truths for the loss, from one batch.
struct Feed {
  std::vector<std::span<const float>> inputs;  // in order of the network's inputs
  // For each head [samples, targets, cells], normalised; class numbers as they are.
  std::vector<std::vector<float>> truths;
  std::vector<std::vector<float>>
      numbers;  // storage for inputs that are labels or boxes, then for random ones
};

// Bytes of decoded samples that a rank keeps if the configuration does not say.
std::int64_t usual_cache_bytes(const Communicator& communicator);

class RunData {
 public:
  // `part`: of a trainer of a tournament, which has its part of the training samples alone.
  RunData(const TrainConfig& config, Communicator& communicator, const TrainerPart* part = nullptr);

  // nullptr if the shards are not staged.
  const Staging* staging() const { return staging_.get(); }
  // nullptr without `stage: {subset: N}`.
  const HeldSubset* subset() const { return subset_.get(); }
  const DatasetInfo& info() const { return dataset_.info; }
  const DataRoles& roles() const { return roles_; }
  const std::vector<TargetShape>& targets() const { return targets_; }  // one for each head
  std::vector<std::string> labels() const;                              // names of all targets
  std::size_t first_target(std::size_t head) const;  // a head's first among the targets of all heads
  CachedSplit& train() { return train_; }
  CachedSplit& validation() { return validation_; }
  CachedSplit& test() { return test_; }
  // The samples on which a trainer of a tournament judges models; of several trainers.
  CachedSplit& held_out() { return held_out_.value(); }

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
  // Stored shape of a head's fields; empty if its targets are numbers.
  std::vector<std::int64_t> target_grid(std::size_t head) const;
  // True for a head's single field whose stored values have no axis of channels.
  bool target_is_without_channels(std::size_t head) const;
  bool target_is_transformed(std::size_t head) const;

  // The key of the random inputs of a step: sample n of the batch has number first + n in it. Without one
  // they depend on the sample.
  struct StepOfBatch {
    std::uint64_t step = 0;
    std::size_t first = 0;
  };
  // `training`: with shuffle_labels, the targets are those of another sample.
  void fill(Feed& feed, const Batch& batch, CachedSplit& split, bool training,
            const std::optional<StepOfBatch>& step = {}) const;
  // Takes the shapes of outputs that are compared with constants from the network.
  void complete_targets(const ModelGraph& graph) { complete_constants(targets_, graph); }

  // This rank needs these cells of each input of the network: any box of a field. Of fields that are inputs
  // only, the splits and batches have their cells alone; of targets, everything. Ranks of one machine decode
  // chunks for all of them that share the samples, `group`. Before the first batch.
  void share(std::vector<Box> inputs, Communicator& communicator, Communicator& group);
  // For each part, the cells of a batch for fill(); empty without share().
  const std::vector<Box>& boxes() const { return boxes_; }
  // Memory of decoded chunks that ranks share.
  std::int64_t shared_bytes() const { return sharing_.bytes(); }
  // Bytes of samples that this rank keeps after so many epochs in which `groups` ranks, or groups of ranks
  // that share samples, draw them.
  std::int64_t kept_bytes(std::size_t groups, std::int64_t epochs) const;
  // The work of all reads so far, on this rank.
  converters::ReadCounts read_counts() const;
  // A head's labels of all samples of a split, physical.
  std::vector<double> truths(const SampleSource& source, std::size_t head) const;

 private:
  // The samples of all trainers: what follows from them is the same for all.
  const SampleSource& all_training_samples() const { return beside_.all ? *beside_.all : *dataset_.train; }
  void normalise_inputs();
  Box box_of_part(std::size_t part) const;
  std::vector<Box> cached_boxes(const SampleSource& source, bool moves) const;
  void divide_cache(std::int64_t bytes);
  std::vector<std::size_t> fields_of_common_chunks(Communicator& group) const;
  bool needs_common_chunks(std::size_t part, const SampleSource::ChunkForm& form) const;
  void share_decoded(Communicator& group, std::int64_t groups, std::int64_t most_bytes);
  std::span<const float> input_cells(Feed& feed, const Batch& batch, std::size_t input) const;
  void draw_inputs(Feed& feed, const Batch& batch, const std::optional<StepOfBatch>& step) const;
  void add_target_scale(std::size_t head);
  // Cells of each class of a head in the training split, without padding. A collective call.
  std::vector<std::uint64_t> training_class_counts(std::size_t head, Communicator& communicator) const;
  void count_sample(std::size_t head, std::size_t sample, std::span<std::uint64_t> counts) const;
  FieldScale scale_of(std::size_t part, Communicator& communicator);
  FieldScale measured(std::size_t part, Communicator& communicator);
  const DataField& field_of(std::size_t part) const { return dataset_.info.fields[roles_.parts[part].field]; }
  void copy_labels(const SampleSource& source, std::size_t i, bool training, std::size_t head,
                   float* to) const;
  void copy_fields(const Batch& batch, std::size_t head, std::span<float> to) const;
  // Sets targets to NaN where a mask marks padding.
  void hide_padding(const Batch& batch, const DataRoles::Head& head, std::span<float> to) const;
  bool is_input(std::size_t part) const;
  bool is_mask(std::size_t part) const;

  TrainConfig config_;
  std::unique_ptr<Staging> staging_;
  ChunkSharing sharing_;  // outlives the readers
  Dataset dataset_;
  std::unique_ptr<SampleSource> all_folds_;  // leave_fold_out()
  SamplesBeside beside_;
  DataRoles roles_;
  std::vector<HeadConfig> heads_;
  std::vector<TargetShape> targets_;
  TensorShape grid_;
  CacheBudget budget_;
  std::unique_ptr<HeldSubset> subset_;  // outlives train_, which has pointers to its samples
  CachedSplit train_;
  CachedSplit validation_;
  CachedSplit test_;
  std::optional<CachedSplit> held_out_;
  Normalisation normalisation_;
  std::vector<Box> input_boxes_;  // of share(): for each input
  std::vector<Box> boxes_;        // of each part
  std::int64_t cache_bytes_ = 0;  // the limit of the samples that are kept
};

}  // namespace wflow::trainer
