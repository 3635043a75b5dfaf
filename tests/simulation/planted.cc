// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/planted.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace wflow::simulation {

namespace {

// A message with it comes from no worker of the campaign (users.cc).
constexpr std::uint64_t kOddSequence = ~std::uint64_t{0};

}  // namespace

const PlantedBug* find_planted(std::string_view name) {
  const auto at = std::ranges::find(kPlantedBugs, name, &PlantedBug::name);
  return at == kPlantedBugs.end() ? nullptr : &*at;
}

const PlantedBug* find_planted(Planted bug) {
  return bug == Planted::none ? nullptr : &kPlantedBugs.at(static_cast<std::size_t>(bug) - 1);
}

std::string planted_table() {
  std::string table = "| planted bug | what goes wrong | invariant that finds it |\n|---|---|---|\n";
  for (const PlantedBug& bug : kPlantedBugs)
    table += fmt::format("| `{}` | {} | {} |\n", bug.name, bug.text, bug.invariant);
  return table;
}

void spoil(Planted bug, engine::MachineOptions& options, std::vector<engine::ArraySpec>& arrays,
           std::vector<engine::KnownWorker>& known) {
  if (bug == Planted::lease_before_fence) {
    options.timing.lost_s = 3 * options.timing.heartbeat_s;
    options.timing.margin_s = 0;
    for (engine::KnownWorker& worker : known) worker.lost_s = 0;
  }
  if (bug == Planted::fill_the_disk) {
    for (engine::ArraySpec& array : arrays) array.max_disk_bytes = 0;
  }
}

void spoil_received(Planted bug, engine::wire::Message& message) {
  if (auto* hello = std::get_if<engine::wire::Hello>(&message)) {
    if (bug == Planted::double_cores) hello->cores *= 2;
    if (bug == Planted::forget_leases_at_hand_over) hello->held.clear();
  }
  const auto* results = std::get_if<engine::wire::Results>(&message);
  if (bug == Planted::throw_at_odd_message && results != nullptr && results->sequence == kOddSequence)
    throw std::out_of_range("a sequence number that is none");
}

void spoil_sent(Planted bug, engine::wire::Message& message, const std::vector<engine::ArraySpec>& arrays,
                const engine::Timing& timing) {
  if (auto* welcome = std::get_if<engine::wire::Welcome>(&message)) {
    // The worker's own fence is the right one.
    if (bug == Planted::lease_before_fence) welcome->lost_s = std::max(welcome->lost_s, timing.lost_s);
  }
  auto* const leases = std::get_if<engine::wire::Leases>(&message);
  if (leases == nullptr) return;
  for (engine::wire::Lease& lease : leases->leases) {
    if (bug == Planted::count_attempts_twice) ++lease.attempt;
    if (bug == Planted::leave_nothing_out && arrays[lease.array].leaves_out_failed) lease.left_out.clear();
    if (bug == Planted::forget_memory) lease.memory_bytes = 0;
  }
}

void spoil(Planted bug, engine::store::Batch& batch) {
  if (bug == Planted::lease_before_row) batch.workers_joined.clear();
  if (bug == Planted::cancel_the_skipped) {
    for (engine::RecordEnd& end : batch.ends) {
      if (end.state == engine::ElementState::skipped) end.state = engine::ElementState::cancelled;
    }
  }
}

void spoil(Planted bug, engine::wire::Results& results) {
  if (bug != Planted::failure_is_success) return;
  std::erase_if(results.outcomes, [&](const engine::wire::Outcome& outcome) {
    const bool failed = outcome.reason == engine::EndReason::exited && outcome.exit_code == 1;
    if (failed)
      results.done.push_back({outcome.lease, outcome.array, outcome.element, 1, outcome.attempt, 0, 0, 0});
    return failed;
  });
}

}  // namespace wflow::simulation
