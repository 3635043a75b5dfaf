// SPDX-License-Identifier: Apache-2.0
// The packed output files that this worker has open, and what tasks printed into them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "steps/packed_output.h"
#include "workers/execute/slots.h"

namespace wflow::workers {

class Packs {
 public:
  explicit Packs(std::string worker) : worker_(std::move(worker)) {}

  // Adds what the slot's task printed to its step's pack. Throws Error{system}.
  void add(Slots& slots, std::size_t slot, const Ending& ending, double unix_s);

 private:
  std::string worker_;
  std::map<specs::ArrayId, steps::PackWriter> open_;
};

}  // namespace wflow::workers
