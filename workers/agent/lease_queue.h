// SPDX-License-Identifier: Apache-2.0
// Elements that are leased and have not started, in the order in which they will.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/wire/messages.h"

namespace wflow::workers {

class LeaseQueue {
 public:
  void add(const engine::wire::Lease& lease);
  bool empty() const { return leases_.empty(); }
  std::uint64_t elements() const { return elements_; }
  // The lease whose first element is next: higher priority first, then the one that came first. Not when
  // empty().
  const engine::wire::Lease& front() const { return leases_.begin()->second; }
  void pop(std::uint64_t count = 1);  // so many of front()'s elements have started
  // Takes out all leases of these ids (all leases where there are none).
  std::vector<engine::wire::Lease> take(std::span<const engine::wire::LeaseId> ids);
  std::vector<engine::wire::Lease> list() const;

 private:
  std::map<std::pair<std::int64_t, std::uint64_t>, engine::wire::Lease> leases_;  // by (-priority, arrival)
  std::uint64_t arrivals_ = 0;
  std::uint64_t elements_ = 0;
};

}  // namespace wflow::workers
