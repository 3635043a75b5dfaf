// SPDX-License-Identifier: Apache-2.0
// What the manifest says of a field's training samples: the statistics of all blocks, merged in order of
// block.
#pragma once

#include <cstddef>
#include <vector>

#include "converters/convert/block_record.h"
#include "converters/convert/sketch.h"
#include "converters/convert/statistics.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// Of one field.
struct MergedStatistics {
  std::vector<Moments> moments;  // one a channel
  std::vector<Sketch> sketches;  // of the same; none of fields of many channels

  void add(const BlockRecord& record, std::size_t field);
  // One a channel, `channels` of them.
  std::vector<ChannelStatistics> summaries(const Normalisation& normalisation, std::size_t channels) const;
};

}  // namespace wflow::converters
