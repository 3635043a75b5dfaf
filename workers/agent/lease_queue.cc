// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/lease_queue.h"

#include <algorithm>
#include <iterator>

namespace wflow::workers {

using engine::wire::Lease;

void LeaseQueue::add(const Lease& lease) {
  if (lease.count == 0) return;
  elements_ += lease.count;
  leases_.emplace(Key{-std::int64_t{lease.priority}, arrivals_++, lease.first}, lease);
}

void LeaseQueue::pop(std::uint64_t count) {
  Lease& lease = leases_.begin()->second;
  elements_ -= count;
  lease.first += count;
  lease.count -= count;
  if (lease.count == 0) leases_.erase(leases_.begin());
}

std::vector<Lease> LeaseQueue::take(std::span<const Lease> parts) {
  std::vector<Lease> taken;
  for (const Lease& part : parts) {
    for (auto at = leases_.begin(); at != leases_.end();) at = cut(at, part, taken);
  }
  return taken;
}

LeaseQueue::Leases::iterator LeaseQueue::cut(Leases::iterator at, const Lease& part,
                                             std::vector<Lease>& taken) {
  Lease& lease = at->second;
  if (!overlap(lease, part)) return std::next(at);
  const specs::Element end = lease.first + lease.count;
  const specs::Element from = std::max(lease.first, part.first);
  const specs::Element to = std::min(end, part.first + part.count);
  taken.push_back(lease);
  taken.back().first = from;
  taken.back().count = to - from;
  elements_ -= to - from;
  if (to < end) {
    const auto [priority, arrival, first] = at->first;
    Lease rest = lease;
    rest.first = to;
    rest.count = end - to;
    leases_.emplace(Key{priority, arrival, to}, rest);
  }
  lease.count = from - lease.first;
  return lease.count == 0 ? leases_.erase(at) : std::next(at);
}

std::vector<Lease> LeaseQueue::take_all() {
  std::vector<Lease> all = list();
  leases_.clear();
  elements_ = 0;
  return all;
}

std::vector<Lease> LeaseQueue::list() const {
  std::vector<Lease> all;
  all.reserve(leases_.size());
  for (const auto& [order, lease] : leases_) all.push_back(lease);
  return all;
}

bool overlap(const Lease& a, const Lease& b) {
  return a.id == b.id && a.first < b.first + b.count && b.first < a.first + a.count;
}

}  // namespace wflow::workers
