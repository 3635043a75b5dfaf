// SPDX-License-Identifier: Apache-2.0
// Which part of a data set each sample of a campaign belongs to, from the study alone: as the conversion
// places it (converters/split.h), before there is a shard.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "converters/config.h"
#include "converters/split.h"
#include "specs/plan/plan.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

class SampleSplit {
 public:
  // Of the data set that the planned step `convert` makes: the one with block_samples. `samples` outlives
  // this.
  SampleSplit(const specs::Plan& plan, const specs::PlannedStep& convert, const specs::SampleTable& samples);

  // "train", "validation", "test"; nothing for a sample that no part takes. Where the split is stratified,
  // the samples of a block depend on each other: any order of calls is right, ascending ones are fast.
  std::optional<std::string_view> of(specs::Element sample);

 private:
  std::uint64_t identity(specs::Element sample) const;
  std::uint64_t stratum(specs::Element sample) const;
  std::optional<std::size_t> place_stratified(specs::Element sample);

  const specs::SampleTable& samples_;
  converters::SplitRequest request_;
  converters::SplitMap map_;
  std::optional<std::size_t> group_column_, stratum_column_;
  std::uint64_t block_samples_;
  // Of a stratified split: the block that is being placed, up to but without next_.
  specs::Element next_ = 0;
  std::map<std::uint64_t, converters::SplitMap::Stratum> strata_;
};

}  // namespace wflow::cli
