// SPDX-License-Identifier: Apache-2.0
// The states of an element of a task array, and the moves between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "specs/plan/template.h"
#include "specs/study/study.h"

namespace wflow::engine {

//   blocked ──▶ ready ──▶ leased ──▶ done
//      │          ▲          ├─────▶ failed, hard_failed
//      │          │          ▼
//      │          └────── delayed (a retry that is not due yet, or waits for a worker)
//      └──▶ skipped (what it waits for ended badly); from any state that has not ended: cancelled
enum class ElementState : std::uint8_t {
  blocked,
  ready,
  leased,
  delayed,
  done,
  failed,       // soft failure: dependents of continue_on: soft_fail run, those of never do not
  hard_failed,  // exit code 102: dependents are skipped unless continue_on: any
  skipped,
  cancelled,
};
inline constexpr std::size_t kElementStates = 9;

constexpr std::string_view name_of(ElementState state) {
  constexpr std::string_view kNames[kElementStates] = {
      "blocked", "ready", "running", "delayed", "done", "failed", "hard_failed", "skipped", "cancelled"};
  return kNames[static_cast<std::size_t>(state)];
}

constexpr bool has_ended(ElementState state) {
  return state >= ElementState::done;
}

// True if a parent that ended in `state` lets a child with this policy run.
constexpr bool satisfies(ElementState state, specs::ContinueOn policy) {
  switch (state) {
    case ElementState::done:
      return true;
    case ElementState::failed:
      return policy != specs::ContinueOn::never;
    case ElementState::hard_failed:
      return policy == specs::ContinueOn::any || policy == specs::ContinueOn::ended;
    case ElementState::skipped:
      return policy == specs::ContinueOn::any || policy == specs::ContinueOn::ended ||
             policy == specs::ContinueOn::gathered;
    case ElementState::cancelled:
      return policy == specs::ContinueOn::ended;
    default:
      return false;
  }
}

}  // namespace wflow::engine
