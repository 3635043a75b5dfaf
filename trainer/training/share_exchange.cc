// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/share_exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
void gather_shares(Communicator& communicator, const StateShards& shards, std::span<float> values) {
  if (!shards.active()) return;
  communicator.wait(
      communicator.start_gather(values, shards.owners(0, static_cast<std::int64_t>(values.size()))));
}

void collect_part(Communicator& communicator, const StateShards& shards, std::size_t array, std::size_t first,
                  std::size_t count, std::span<const float> own, std::span<float> values) {
  const std::int64_t begin = shards.begin_of(array) + static_cast<std::int64_t>(first);
  const Range range = {begin, begin + static_cast<std::int64_t>(count)};
  const Range mine = intersection(range, shards.own(array));
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  if (shards.rank() != 0) {
    if (mine.count() > 0)
      outgoing.push_back({0, std::as_bytes(values_in(own, mine, shards.own(array).begin))});
  } else {
    if (mine.count() > 0)
      std::ranges::copy(values_in(own, mine, shards.own(array).begin),
                        values_in(values, mine, begin).begin());
    for (int rank = 1; rank < shards.ranks(); ++rank) {
      const Range theirs = intersection(range, shards.of(array, rank));
      if (theirs.count() > 0)
        incoming.push_back({rank, std::as_writable_bytes(values_in(values, theirs, begin))});
    }
  }
  communicator.exchange(std::move(outgoing), std::move(incoming));
}

SharedState::SharedState(Communicator& communicator, const StateShards& shards, FlatState& state,
                         Shard divided)
    : communicator_(communicator),
      shards_(shards),
      state_(state),
      divided_(divided),
      arrays_(state.parameters().entries.size()) {
  state_.set_on_use(this);
}

SharedState::~SharedState() {
  state_.set_on_use(nullptr);
  try {
    for (const Array& array : arrays_)
      if (array.where == Where::coming) communicator_.wait(array.ticket);
  } catch (const Error&) {
    // An exception in flight has the reason; this one would only follow from it.
  }
}

// Calls `call` with the places of the others' parts of an array.
template <class Call>
void SharedState::for_others(std::size_t array, std::span<float> flat, const Call& call) const {
  for (int rank = 0; rank < shards_.ranks(); ++rank) {
    const Range part = shards_.of(array, rank);
    if (rank != shards_.rank() && !part.empty()) call(values_in(flat, part));
  }
}

Range SharedState::range_of(std::size_t array) const {
  return {shards_.begin_of(array), shards_.begin_of(array) + shards_.count_of(array)};
}

void SharedState::lend(std::size_t array, std::span<float> flat) {
  for_others(array, flat, [this](std::span<float> part) { pool_.lend(part); });
}

void SharedState::take_back(std::size_t array, std::span<float> flat, const Range& within) {
  for (int rank = 0; rank < shards_.ranks(); ++rank) {
    const Range part = intersection(shards_.of(array, rank), within);
    if (rank != shards_.rank() && !part.empty()) pool_.take_back(values_in(flat, part));
  }
}

// Arrays that follow each other are collected together.
void SharedState::start(std::span<const std::size_t> arrays) {
  if (!shares_weights()) return;
  for (std::size_t i = 0; i < arrays.size();) {
    const std::size_t first = arrays[i];
    std::size_t end = first;
    for (; i < arrays.size() && arrays[i] == end && arrays_[end].where == Where::elsewhere; ++i, ++end)
      lend(end, state_.values());
    if (end == first) {
      ++i;
      continue;
    }
    const Range range = {shards_.begin_of(first), shards_.begin_of(end - 1) + shards_.count_of(end - 1)};
    const Communicator::Ticket ticket =
        communicator_.start_gather(values_in(state_.values(), range), shards_.owners(range.begin, range.end));
    for (std::size_t array = first; array < end; ++array) {
      arrays_[array].where = Where::coming;
      arrays_[array].ticket = ticket;
    }
  }
}

void SharedState::wait(std::span<const std::size_t> arrays) {
  if (!shares_weights()) return;
  for (const std::size_t array : arrays) {
    Array& what = arrays_[array];
    WFLOW_CHECK(what.where != Where::elsewhere);
    if (what.where == Where::coming) communicator_.wait(what.ticket);
    what.where = Where::here;
  }
}

void SharedState::release(std::span<const std::size_t> arrays) {
  if (!shares_weights()) return;
  wait(arrays);
  for (const std::size_t array : arrays) {
    arrays_[array].where = Where::elsewhere;
    take_back(array, state_.values(), range_of(array));
  }
}

void SharedState::expect_gradients(std::span<const std::size_t> arrays) {
  if (divided_ < Shard::gradients) return;
  for (const std::size_t array : arrays) {
    // A frozen array's stay 0.
    if (arrays_[array].has_gradients || state_.parameters().entries[array].spec.frozen) continue;
    arrays_[array].has_gradients = true;
    lend(array, state_.gradients());
  }
}

// The gradients follow the scalars and statistics, which belong to all.
OwnedParts SharedState::owners(std::int64_t begin, std::int64_t end) const {
  const std::int64_t first = state_.gradients_begin();
  const std::int64_t from = std::max(begin, first);
  if (from >= end) return {};
  OwnedParts parts = shards_.owners(from - first, end - first);
  for (OwnedPart& part : parts) {
    part.begin += static_cast<std::size_t>(from - begin);
    part.end += static_cast<std::size_t>(from - begin);
  }
  return parts;
}

void SharedState::summed(std::int64_t begin, std::int64_t end) {
  if (divided_ < Shard::gradients) return;
  const Range range = {begin - state_.gradients_begin(), end - state_.gradients_begin()};
  for (std::size_t array = 0; array < arrays_.size(); ++array) {
    // The pool has lent none to a frozen array: what it took back would be more with every step.
    if (!intersection(range_of(array), range).empty() && !state_.parameters().entries[array].spec.frozen)
      take_back(array, state_.gradients(), range);
  }
}

void SharedState::all_summed() {
  for (Array& array : arrays_) array.has_gradients = false;
}

void SharedState::clear_gradients() {
  for (std::size_t array = 0; array < arrays_.size(); ++array) {
    std::ranges::fill(values_in(state_.gradients(), shards_.own(array)), 0.0F);
    for_others(array, state_.gradients(), clear_place);
  }
}

void SharedState::keep_own_weights() {
  for (std::size_t array = 0; array < arrays_.size(); ++array)
    for_others(array, state_.values(), give_back_pages);
}

void SharedState::collect_on_first() {
  for (std::size_t array = 0; array < arrays_.size(); ++array) {
    const std::span<float> whole = values_in(state_.values(), range_of(array));
    // No step follows that would use the pool.
    if (shards_.rank() == 0) lend(array, state_.values());
    collect_part(communicator_, shards_, array, 0, whole.size(),
                 values_in(state_.values(), shards_.own(array)), whole);
  }
}

}  // namespace wflow::trainer
