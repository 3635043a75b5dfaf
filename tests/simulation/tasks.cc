// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/tasks.h"

#include <array>

namespace wflow::simulation {

TaskScript TaskScripts::of(ArrayId array, Element element, std::uint32_t attempt) const {
  const std::uint64_t key = hash64(hash64(hash64(seed_, array), element), attempt);
  Draw draw(key, Concern::tasks);
  TaskScript script;
  script.duration_s = options_.typical_s * draw.logarithmic(1 / options_.spread, options_.spread);
  script.ignores_sigterm = draw.chance(0.1);
  script.handles_sigterm = !script.ignores_sigterm && draw.chance(0.1);
  script.has_children = draw.chance(options_.children);
  if (options_.poison > 0)
    script.kills_worker =
        Draw(hash64(hash64(seed_, array), ~element), Concern::tasks).chance(options_.poison);
  if (draw.chance(options_.events)) script.events = static_cast<int>(1 + draw.below(3));
  if (draw.chance(options_.stops)) {
    script.code = draw.chance(0.5) ? 102 : 105;
    return script;
  }
  // Repeated failures come to an end: later executions succeed more often than not.
  if (!draw.chance(options_.failures)) return script;
  constexpr std::array<int, 9> kCodes = {1, 2, 42, 100, 100, 101, 104, 104, 255};
  switch (draw.below(6)) {
    case 0:
      script.signalled = true;
      script.code = draw.chance(0.5) ? 11 : 9;
      script.out_of_memory = script.code == 9 && draw.chance(0.7);
      break;
    case 1:
      script.bad_output = true;
      break;
    case 2:
      script.kills_bundle = true;
      script.signalled = true;
      script.code = 11;
      break;
    default:
      script.code = kCodes[draw.below(kCodes.size())];
  }
  return script;
}

}  // namespace wflow::simulation
