// SPDX-License-Identifier: Apache-2.0
// What people ask a running coordinator, as typed values; codec.h turns them into bytes. Questions that only
// read are answered in the same way from the record of a campaign at rest (engine/query/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::engine::wire {

// Elements first..last of an array, both included.
struct Part {
  specs::ArrayId array = 0;
  specs::Element first = 0;
  specs::Element last = 0;
};

// Which tasks are meant.
struct Selection {
  std::string step;  // of the study or plan; empty: all
  bool ranged = false;
  specs::Element first = 0, last = 0;  // with `ranged`: only these elements
  bool by_exit_code = false;
  std::int32_t exit_code = 0;  // with `by_exit_code`: of the last execution
  // With `chosen`: these instead, where the asking side has chosen; what is above does not count.
  bool chosen = false;
  std::vector<Part> parts;
};

// ---- commands: answered by done_answer() or refusal()

struct DrainRequest {};
struct StopRequest {};
struct PauseRequest {
  bool pause = true;
};
struct RetryRequest {
  Selection tasks;
};
struct CancelRequest {
  Selection tasks;
  bool kill = false;
};

}  // namespace wflow::engine::wire
