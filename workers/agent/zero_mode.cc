// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/zero_mode.h"

#include "base/random.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

wire::Results completed_lease(const wire::Lease& lease, double failures, double unix_s) {
  wire::Results results;
  if (failures <= 0) {
    results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, 0, 0, unix_s});
    return results;
  }
  const std::uint64_t key = mix64((std::uint64_t{lease.array} << 32) + lease.attempt);
  for (wire::Element element = lease.first; element < lease.first + lease.count; ++element) {
    if (unit_real(hash64(key, element)) < failures) {
      results.outcomes.push_back(
          {lease.id, lease.array, element, lease.attempt, wire::EndReason::exited, 1, unix_s, 0, {}});
    } else {
      results.done.push_back({lease.id, lease.array, element, 1, lease.attempt, 0, 0, unix_s});
    }
  }
  return results;
}

}  // namespace

CompleteLease complete_at_once(double failures) {
  return [failures](const wire::Lease& lease, double unix_s) {
    return completed_lease(lease, failures, unix_s);
  };
}

}  // namespace wflow::workers
