// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/coordinator_impl.h"

#include <filesystem>

#include "base/blocks.h"
#include "specs/study/blocks.h"

namespace wflow::engine {

namespace fs = std::filesystem;

namespace {

// The directory layout of steps/: bundles have directories like samples.
fs::path directory_of(const specs::TaskTemplate& task, specs::Element element) {
  if (task.bundle == 0)
    return fs::path(task.workspace) / specs::sample_path(element, layout_of(task), task.level_max_dirs);
  const Blocks bundles(task.bundle, task.sample_starts);
  return fs::path(task.workspace) /
         specs::sample_path(bundles.block_of(element), bundles.count(layout_of(task)), task.level_max_dirs);
}

std::string name_of(std::string name, specs::Element element) {
  constexpr std::string_view kSample = "$(MERLIN_SAMPLE_ID)";
  for (std::size_t at = name.find(kSample); at != std::string::npos; at = name.find(kSample, at))
    name.replace(at, kSample.size(), std::to_string(element));
  return name;
}

}  // namespace

RawOutputs::RawOutputs(const specs::Plan& plan) : plan_(plan) {
  for (const specs::PlannedStep& step : plan_.steps()) {
    if (step.block_samples == 0 || !specs::deletes_inputs(plan_.study().steps[step.study_step])) continue;
    for (std::uint32_t i = 0; i < step.arrays; ++i) {
      for (const specs::Edge& edge : plan_.edges(step.first_array + i)) {
        if (edge.kind == specs::EdgeKind::block) conversions_.emplace(edge.parent, step.first_array + i);
      }
    }
  }
}

const RawOutputs::Place& RawOutputs::place_of(specs::ArrayId array) {
  const auto [at, is_new] = places_.try_emplace(array);
  if (!is_new) return at->second;
  at->second.source = plan_.task_template(array);
  const auto conversion = conversions_.find(array);
  if (conversion == conversions_.end()) return at->second;
  const specs::Block block = plan_.task_template(conversion->second).settings;
  if (const auto* config = std::get_if<converters::ConvertConfig>(&block))
    at->second.files = specs::convert_files(*config);
  return at->second;
}

std::optional<std::uint64_t> RawOutputs::bytes(specs::ArrayId array, specs::Element element) {
  const Place& place = place_of(array);
  const fs::path directory = directory_of(place.source, element);
  std::uint64_t sum = 0;
  for (const std::string& name : place.files) {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(directory / name_of(name, element), error);
    if (error) return std::nullopt;
    sum += bytes;
  }
  return place.files.empty() ? std::nullopt : std::optional(sum);
}

}  // namespace wflow::engine
