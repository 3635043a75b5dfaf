// SPDX-License-Identifier: Apache-2.0
// The data of one run: the three splits behind a cache, the chosen targets, the normalisation.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/transform.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// Indices into info.labels of the configured targets; Error{spec} with a suggestion for an unknown one.
std::vector<std::size_t> choose_targets(const TrainConfig& config, const DatasetInfo& info);

class RunData {
 public:
  RunData(const TrainConfig& config, const Communicator& communicator);

  const DatasetInfo& info() const { return dataset_.info; }
  const std::vector<std::string>& labels() const { return labels_; }  // the chosen ones
  CachedSplit& train() { return train_; }
  CachedSplit& validation() { return validation_; }
  CachedSplit& test() { return test_; }

  // From up to 256 training samples, the same whatever the number of ranks.
  void compute_normalisation(Communicator& communicator);
  void set_normalisation(Normalisation normalisation) { normalisation_ = std::move(normalisation); }
  const Normalisation& normalisation() const { return normalisation_; }

  // The chosen, normalised targets of training sample i (of another sample under shuffle_labels).
  void copy_targets(std::size_t i, float* to) const;
  // The chosen targets of all samples of a split, physical.
  std::vector<double> truths(const SampleSource& source) const;

 private:
  const TrainConfig& config_;
  Dataset dataset_;
  std::vector<std::size_t> chosen_;
  std::vector<std::string> labels_;
  CacheBudget budget_;
  CachedSplit train_;
  CachedSplit validation_;
  CachedSplit test_;
  Normalisation normalisation_;
};

}  // namespace wflow::trainer
