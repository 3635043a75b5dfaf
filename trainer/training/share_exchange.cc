// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/share_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace wflow::trainer {
namespace {

// The values of `all`, which begins at position `from`, at these positions.
template <class Value>
std::span<Value> part(std::span<Value> all, std::int64_t from, const Range& range) {
  return all.subspan(static_cast<std::size_t>(range.begin - from), static_cast<std::size_t>(range.count()));
}

}  // namespace

void gather_shares(Communicator& communicator, const StateShards& shards, std::span<float> values) {
  if (!shards.active()) return;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int rank = 0; rank < shards.ranks(); ++rank) {
    if (rank == shards.rank()) continue;
    const Range own = shards.own();
    const Range theirs = shards.of(rank);
    if (own.count() > 0) outgoing.push_back({rank, std::as_bytes(part(values, 0, own))});
    if (theirs.count() > 0) incoming.push_back({rank, std::as_writable_bytes(part(values, 0, theirs))});
  }
  communicator.exchange(std::move(outgoing), std::move(incoming));
}

void collect_range(Communicator& communicator, const StateShards& shards, const Range& range,
                   std::span<const float> own, std::span<float> values) {
  const std::int64_t begin = shards.own().begin;
  const Range mine = intersection(range, shards.own());
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  if (shards.rank() != 0) {
    if (mine.count() > 0) outgoing.push_back({0, std::as_bytes(part(own, begin, mine))});
  } else {
    if (mine.count() > 0) std::ranges::copy(part(own, begin, mine), part(values, range.begin, mine).begin());
    for (int rank = 1; rank < shards.ranks(); ++rank) {
      const Range theirs = intersection(range, shards.of(rank));
      if (theirs.count() > 0)
        incoming.push_back({rank, std::as_writable_bytes(part(values, range.begin, theirs))});
    }
  }
  communicator.exchange(std::move(outgoing), std::move(incoming));
}

}  // namespace wflow::trainer
