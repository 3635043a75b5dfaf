// SPDX-License-Identifier: Apache-2.0
// The drawn samples of a rank (`stage: {subset: N}`), decoded and transformed, kept from the start of the
// training to its end: no training sample is read or sent afterwards (Kurth et al. 2018, "Exascale deep
// learning for climate analytics", section V-A). As there, each drawn sample is read once in the whole job,
// and sent to the ranks that have drawn it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/subset_draw.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

class HeldSubset {
 public:
  // A collective call: `split` has the samples of this rank when it returns, and must end first. CommonError
  // if a node has too little space.
  HeldSubset(const TrainConfig& config, CachedSplit& split, Communicator& communicator);
  HeldSubset(const HeldSubset&) = delete;
  HeldSubset& operator=(const HeldSubset&) = delete;
  ~HeldSubset();

  const SubsetDraw& draw() const { return draw_; }
  struct Report {
    std::size_t least = 0;    // distinct samples of the rank that has the fewest
    std::size_t most = 0;     // and of the one that has the most
    std::size_t all = 0;      // of all ranks together
    std::uint64_t bytes = 0;  // on all ranks
    double seconds = 0;
  };
  const Report& report() const { return report_; }

 private:
  void reserve(const TrainConfig& config, std::size_t values, Communicator& communicator);
  void fill(const CachedSplit& split, Communicator& communicator, int threads);

  const SubsetDraw draw_;
  std::vector<std::vector<std::size_t>> wanted_;  // by each rank, ascending; only while the samples are read
  FileDescriptor file_;
  std::span<float> values_;
  Report report_;
};

}  // namespace wflow::trainer
