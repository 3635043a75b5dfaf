// SPDX-License-Identifier: Apache-2.0
// Where everything random of a schedule comes from. Each concern has a stream of its own, so that one more
// draw in one of them does not change the others.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/random.h"

namespace wflow::simulation {

enum class Concern : std::uint64_t {
  setup,
  faults,
  network,
  disk,
  processes,
  tasks,
  clients,
  hosts,
  allocations,
  batch
};

class Draw {
 public:
  Draw(std::uint64_t seed, Concern concern)
      : key_(hash64(seed, 0xc0ffee + static_cast<std::uint64_t>(concern))) {}

  std::uint64_t bits() { return hash64(key_, counter_++); }
  double unit() { return unit_real(bits()); }
  bool chance(double probability) { return unit() < probability; }
  // 0..count-1
  std::uint64_t below(std::uint64_t count) { return count < 2 ? 0 : bits() % count; }
  double between(double low, double high) { return low + (high - low) * unit(); }
  // Times that differ by orders of magnitude: each decade is as likely as the others.
  double logarithmic(double low, double high) { return low * std::pow(high / low, unit()); }
  double exponential(double mean) { return -mean * std::log(1 - unit()); }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace wflow::simulation
