// SPDX-License-Identifier: Apache-2.0
// How much there is to do: what the size of allocations follows from.
#include <algorithm>
#include <cmath>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

std::uint64_t Scheduler::leased_to(const WorkerId& worker) const {
  const auto at = leases_.workers().find(worker);
  return at == leases_.workers().end() ? 0 : at->second.elements;
}

double Scheduler::spare_s(const WorkerId& worker) const {
  const auto at = leases_.workers().find(worker);
  return at == leases_.workers().end() ? 0 : at->second.spare_s;
}

std::vector<Backlog> Scheduler::backlog(const std::map<ArrayId, double>& running_s) const {
  std::vector<Backlog> pools;
  for (ArrayId id = 0; id < arrays_.size(); ++id) {
    const TaskArray& array = arrays_[id];
    if (array.spec.pool >= pools.size()) pools.resize(array.spec.pool + 1);
    Backlog& pool = pools[array.spec.pool];
    const auto count = [&](ElementState state) { return array.states.total(state); };
    const std::uint64_t runnable = count(ElementState::ready) + count(ElementState::leased) +
                                   count(ElementState::delayed) - disk_.held_back(id);
    const std::uint64_t open = runnable + disk_.held_back(id) + count(ElementState::blocked);
    if (open == 0) continue;
    const ReadyQueue& queue = ready_.queue_of_array(id);
    if (queue.held) continue;
    const double cores = std::max(1.0, static_cast<double>(queue.resources.cores) * queue.resources.procs);
    const auto bundle = static_cast<double>(std::max<std::uint64_t>(array.spec.bundle, 1));
    pool.open += open;
    pool.waiting += ready_.waiting_in(id);
    pool.cores += std::ceil(static_cast<double>(runnable) / bundle) * cores;
    if (queue.timed > 0) {
      const auto runs = running_s.find(id);
      const double sum_s = queue.duration_sum_s + (runs == running_s.end() ? 0 : runs->second);
      pool.core_s += static_cast<double>(open) * cores * sum_s / static_cast<double>(queue.timed);
    }
    if (runnable == 0) continue;
    pool.measured = pool.measured && queue.timed > 0;
    pool.longest_s = std::max(pool.longest_s, longest_s(queue).value_or(0));
  }
  return pools;
}

std::vector<ScheduledWait> Scheduler::waits() const {
  std::vector<ScheduledWait> waits;
  for (const QueueKey& key : ready_.order()) {
    const ReadyQueue& queue = ready_.queue(std::get<QueueId>(key));
    const ArrayId array = *queue.waiting.begin();
    waits.push_back({array, queue.resources.gpus, queue.cut_s, arrays_[array].spec.longest_allocation_s});
  }
  return waits;
}

}  // namespace wflow::engine
