// SPDX-License-Identifier: Apache-2.0
// The follow-up that a task's event requests: a campaign to run after its own. No I/O.
#pragma once

#include <fmt/format.h>

#include <optional>

#include "engine/store/batch.h"
#include "engine/wire/task_event.h"

namespace wflow::engine {

// The kinds of store::Followup.
inline constexpr const char* kSubmitted = "submitted";
inline constexpr const char* kRestarted = "restart";
inline constexpr const char* kIteration = "iteration";

// The follow-up that the event requests; empty for other events.
inline std::optional<store::Followup> followup_of(const wire::TaskEvent& event) {
  const auto* asked = std::get_if<wire::Submission>(&event.body);
  if (asked == nullptr || asked->id.empty()) return std::nullopt;
  const bool restart = asked->kind == kRestarted && !asked->directory.empty();
  const bool study = asked->kind == kSubmitted && !asked->spec.empty();
  if (!restart && !study) return std::nullopt;
  store::Followup followup;
  followup.kind = asked->kind;
  followup.spec = asked->spec;
  followup.options = asked->options.empty() ? "{}" : asked->options;
  followup.directory = asked->directory;
  // Equal sources are one event that was received twice.
  followup.source = fmt::format("{}/{}/{}/{}", event.array, event.element, event.attempt, asked->id);
  followup.created_s = event.time_s;
  return followup;
}

}  // namespace wflow::engine
