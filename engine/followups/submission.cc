// SPDX-License-Identifier: Apache-2.0
#include "engine/followups/submission.h"

#include <fmt/format.h>

namespace wflow::engine {

std::optional<store::Followup> followup_of(const wire::TaskEvent& event) {
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
  // Equal ones are one that was received twice.
  followup.source = fmt::format("{}/{}/{}/{}", event.array, event.element, event.attempt, asked->id);
  followup.created_s = event.time_s;
  return followup;
}

}  // namespace wflow::engine
