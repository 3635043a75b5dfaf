// SPDX-License-Identifier: Apache-2.0
// iterate: the number of repetitions of a study, and the event that ends them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "specs/study/reading.h"

namespace wflow::specs {

namespace {

constexpr std::int64_t kMaxIterations = 1'000'000;

// Types of events with a reserved meaning.
bool is_event_of_ours(const std::string& type) {
  constexpr std::array<std::string_view, 6> kTypes = {"progress", "metric", "checkpoint",
                                                      "artifact", "note",   "submit"};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

}  // namespace

bool has_iterate(const yaml::Node& root) {
  const yaml::Node* node = root.find("iterate");
  return node != nullptr && !node->is_null();
}

void read_iterate(Reading& reading) {
  if (!has_iterate(reading.root)) return;
  yaml::MapReader block(*reading.root.find("iterate"), "the iterate: block", reading.diagnostics);
  Iterate iterate;
  block.required("max");
  iterate.max = static_cast<int>(block.integer("max", 1, 1, kMaxIterations));
  iterate.until = block.string("until", iterate.until);
  if (iterate.until.empty() || is_event_of_ours(iterate.until)) {
    reading.diagnostics.error(
        block.mark_of("until"),
        fmt::format("'until' names the event that ends the study, such as converged; '{}' can't be it",
                    iterate.until));
  }
  iterate.samples = block.string("samples");
  block.finish();
  Study& study = reading.study;
  if (!iterate.samples.empty()) {
    if (reading.root.find("samples") == nullptr && !study.merlin) {
      reading.diagnostics.error(block.mark_of("samples"),
                                "'samples' takes the place of the study's samples: block, which is missing");
    }
    if (study.options.iteration.number > 1)
      study.options.samples_file = locate(study, iterate.samples).string();
  }
  study.iterate = std::move(iterate);
}

}  // namespace wflow::specs
