// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/allocation.h"

namespace wflow::engine::batch {

namespace {

constexpr std::string_view kStates[] = {"intended", "queued", "running", "ended"};
constexpr std::string_view kEnds[] = {"", "exit", "walltime", "node", "memory", "preempted", "cancelled"};

}  // namespace

std::string_view name_of(AllocationState state) {
  return kStates[static_cast<std::size_t>(state)];
}

std::string_view name_of(JobEnd end) {
  return kEnds[static_cast<std::size_t>(end)];
}

}  // namespace wflow::engine::batch
