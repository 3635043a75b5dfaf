// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/lease_queue.h"

#include <algorithm>

namespace wflow::workers {

using engine::wire::Lease;
using engine::wire::LeaseId;

void LeaseQueue::add(const Lease& lease) {
  if (lease.count == 0) return;
  elements_ += lease.count;
  leases_.emplace(std::pair{-std::int64_t{lease.priority}, arrivals_++}, lease);
}

void LeaseQueue::pop(std::uint64_t count) {
  Lease& lease = leases_.begin()->second;
  elements_ -= count;
  lease.first += count;
  lease.count -= count;
  if (lease.count == 0) leases_.erase(leases_.begin());
}

std::vector<Lease> LeaseQueue::take(std::span<const LeaseId> ids) {
  std::vector<Lease> taken;
  std::erase_if(leases_, [&](const auto& entry) {
    const Lease& lease = entry.second;
    if (!ids.empty() && std::find(ids.begin(), ids.end(), lease.id) == ids.end()) return false;
    elements_ -= lease.count;
    taken.push_back(lease);
    return true;
  });
  return taken;
}

std::vector<Lease> LeaseQueue::list() const {
  std::vector<Lease> all;
  all.reserve(leases_.size());
  for (const auto& [order, lease] : leases_) all.push_back(lease);
  return all;
}

}  // namespace wflow::workers
