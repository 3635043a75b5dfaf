// SPDX-License-Identifier: Apache-2.0
// Elements that are leased and have not started, in the order in which they will start.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "engine/wire/messages.h"

namespace wflow::workers {

class LeaseQueue {
 public:
  void add(const engine::wire::Lease& lease);
  bool empty() const { return leases_.empty(); }
  std::uint64_t elements() const { return elements_; }
  // The lease whose first element is next: higher priority first, then the earlier arrival. Only if not
  // empty().
  const engine::wire::Lease& front() const { return leases_.begin()->second; }
  void pop(std::uint64_t count = 1);  // removes `count` elements of front(), which have started
  // Takes out the queued elements of these parts: the elements [first, first + count) of lease `id`.
  std::vector<engine::wire::Lease> take(std::span<const engine::wire::Lease> parts);
  std::vector<engine::wire::Lease> take_all();
  std::vector<engine::wire::Lease> list() const;

 private:
  using Key = std::tuple<std::int64_t, std::uint64_t, specs::Element>;  // -priority, arrival, first
  using Leases = std::map<Key, engine::wire::Lease>;

  // Cuts the elements of `part` out of the lease at `at`; returns the position after it.
  Leases::iterator cut(Leases::iterator at, const engine::wire::Lease& part,
                       std::vector<engine::wire::Lease>& taken);

  Leases leases_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t elements_ = 0;
};

// True if both name the same element of the same lease.
bool overlap(const engine::wire::Lease& a, const engine::wire::Lease& b);

}  // namespace wflow::workers
