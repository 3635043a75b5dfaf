// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/packs.h"

namespace wflow::workers {

namespace {
constexpr std::size_t kOpenPacks = 16;  // of two files each
}

void Packs::add(Slots& slots, std::size_t slot, const Ending& ending, double unix_s) {
  const SlotRecord& record = slots.records[slot];
  if (open_.size() >= kOpenPacks && !open_.contains(record.array)) open_.clear();
  const auto pack = open_.try_emplace(record.array, record.pack.data(), worker_).first;
  pack_output(record, slots.files[slot], ending, unix_s, pack->second);
}

}  // namespace wflow::workers
