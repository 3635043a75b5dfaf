// SPDX-License-Identifier: Apache-2.0
// Ranks of one machine that share samples decode each chunk of them once, in memory that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "converters/shards/shared_chunks.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

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

}  // namespace wflow::trainer
