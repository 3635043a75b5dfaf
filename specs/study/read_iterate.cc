// SPDX-License-Identifier: Apache-2.0
// iterate: the number of repetitions of a study, and the event that ends them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/config_table.h"
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

const config::Table<Iterate>& iterate_table() {
  static const config::Table<Iterate> table(
      "the iterate: block",
      {config::integer("max", &Iterate::max, 1, kMaxIterations, "the most iterations").required(),
       config::text("until", &Iterate::until, "the type of the event that ends the study")
           .then([](yaml::MapReader& reader, Iterate& iterate) {
             if (!iterate.until.empty() && !is_event_of_ours(iterate.until)) return;
             reader.diagnostics().error(
                 reader.mark_of("until"),
                 fmt::format(
                     "'until' names the event that ends the study, such as converged; '{}' can't be it",
                     iterate.until));
           }),
       config::text("samples", &Iterate::samples,
                    "a table that takes the place of `samples:` from the second iteration on")
           .usually("none")});
  return table;
}

}  // namespace

BlockTables iterate_tables() {
  return {{{"iterate", iterate_table().schema()}}, {{"iterate", iterate_table().rows()}}};
}

bool has_iterate(const yaml::Node& root) {
  const yaml::Node* node = root.find("iterate");
  return node != nullptr && !node->is_null();
}

void read_iterate(Reading& reading) {
  if (!has_iterate(reading.root)) return;
  const yaml::Node& block = *reading.root.find("iterate");
  Iterate iterate;
  iterate_table().read(block, iterate, reading.diagnostics);
  Study& study = reading.study;
  if (!iterate.samples.empty()) {
    if (reading.root.find("samples") == nullptr && !study.merlin) {
      reading.diagnostics.error(block.find("samples")->mark,
                                "'samples' takes the place of the study's samples: block, which is missing");
    }
    if (study.options.iteration.number > 1)
      study.options.samples_file = locate(study, iterate.samples).string();
  }
  study.iterate = std::move(iterate);
}

}  // namespace wflow::specs
