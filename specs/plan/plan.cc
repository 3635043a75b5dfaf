// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/plan/launcher.h"
#include "specs/study/blocks.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

Plan::Plan(Study study, std::filesystem::path campaign, LocatedFiles located)
    : study_(std::make_unique<const Study>(std::move(study))),
      campaign_(std::move(campaign)),
      expansion_(std::make_unique<const Expansion>(*study_)),
      located_(std::move(located)) {
  if (!campaign_.has_filename()) campaign_ = campaign_.parent_path();
  if (study_->samples) {
    auto starts = specs::block_starts(study_->samples->design);
    if (!starts.empty())
      block_starts_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(starts));
  }
  make_steps();
  make_links();
  find_depths();
}

Plan::Plan(const Plan& other) : Plan(*other.study_, other.campaign_, other.located_) {}
Plan::Plan(Plan&& other) noexcept = default;
Plan& Plan::operator=(Plan other) noexcept {
  std::swap(study_, other.study_);
  std::swap(campaign_, other.campaign_);
  std::swap(expansion_, other.expansion_);
  std::swap(block_starts_, other.block_starts_);
  std::swap(steps_, other.steps_);
  std::swap(links_, other.links_);
  std::swap(located_, other.located_);
  std::swap(last_of_, other.last_of_);
  return *this;
}
Plan::~Plan() = default;

void Plan::make_steps() {
  const std::uint64_t samples = study_->samples ? study_->samples->design.count : 1;
  std::uint64_t next = 0;
  const auto add = [&](PlannedStep step) {
    step.first_array = static_cast<ArrayId>(next);
    next += step.arrays;
    if (next > UINT32_MAX)
      throw Error(ExitCode::spec, "the study has more than 2^32 combinations of steps and parameters");
    steps_.push_back(std::move(step));
  };
  for (std::size_t i = 0; i < study_->steps.size(); ++i) {
    const Step& step = study_->steps[i];
    PlannedStep planned;
    planned.name = step.name;
    planned.study_step = i;
    planned.arrays = expansion_->count(i);
    if (planned.arrays == 0) {  // removed by its when:
      last_of_.emplace_back();
      continue;
    }
    planned.sample_dependent = expansion_->sample_dependent(i);
    planned.elements = planned.sample_dependent ? samples : 1;
    planned.kind = step.kind;
    planned.resources = slot_resources(*study_, expansion_->resources(i, expansion_->row(i, 0)));
    planned.max_retries = step.max_retries;
    planned.retry_failures = step.retry_failures;
    planned.priority = step.priority;
    planned.bundle = step.bundle;
    planned.continue_on = step.continue_on;
    planned.retry_delay_s = step.retry_delay_s;
    planned.retry_memory = step.retry_memory;
    planned.max_failures = step.max_failures;
    planned.timeout_s = step.timeout_s;
    planned.stall_timeout_s = step.stall_timeout_s;
    planned.trust_markers = step.trust_markers;
    if (step.kind == StepKind::convert) {
      planned.block_samples = convert_block_samples(step);
      planned.elements = blocks_of(planned.block_samples, block_starts_).count(samples);
      add(planned);
      planned.name += kManifestSuffix;
      planned.block_samples = 0;
      planned.elements = 1;
    }
    add(std::move(planned));
    last_of_.push_back(steps_.size() - 1);
  }
}

EdgeKind Plan::kind_of(const PlannedStep& child, const PlannedStep& parent, bool funnel) const {
  if (!child.sample_dependent || !parent.sample_dependent) return EdgeKind::all;
  if (funnel && parent.arrays > 1) return EdgeKind::all;
  // A step that reads all samples of its parents must not start when only one of them is done.
  const Step& step = study_->steps[child.study_step];
  for (const std::string* written : {&step.command, &step.restart}) {
    const std::string text = expansion_->with_labels(*written);
    if (mentions(text, "MERLIN_GLOB_PATH") || mentions(text, "MERLIN_PATHS_ALL")) return EdgeKind::all;
  }
  return EdgeKind::element;
}

void Plan::make_links() {
  links_.resize(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    PlannedStep& child = steps_[i];
    const Step& step = study_->steps[child.study_step];
    if (child.kind == StepKind::convert && child.block_samples == 0) {
      links_[i].push_back({i - 1, false, EdgeKind::all, 0, false});
    } else {
      for (const Dependency& dependency : step.depends) {
        const auto parent = last_of_[*expansion_->step_index(dependency.step)];
        if (!parent) continue;
        links_[i].push_back(link_of(child, step, dependency, *parent));
      }
    }
    for (const Link& link : links_[i])
      child.edges.push_back({steps_[link.parent].first_array, link.kind, link.block, starts_of(link)});
  }
}

Plan::Link Plan::link_of(const PlannedStep& child, const Step& step, const Dependency& dependency,
                         std::size_t parent) const {
  const bool reads = !dependency.funnel && dependency.step == source_step(step);
  const auto stage = follow_stage(step);
  if (reads && child.kind == StepKind::convert)
    return {parent, false, EdgeKind::block, child.block_samples, false};
  if (reads && stage && stage->stage > 0) {
    const std::size_t blocks = parent - 1;  // before the step that closes the data set
    return {blocks, false, EdgeKind::block, blocks_of_stage(*stage, steps_[blocks].elements), true};
  }
  return {parent, dependency.funnel, kind_of(child, steps_[parent], dependency.funnel), 0, false};
}

BlockStarts Plan::starts_of(const Link& link) const {
  return link.kind == EdgeKind::block && !link.first_blocks ? block_starts_ : nullptr;
}

// Steps may be in any order: each pass settles one level, and there are no cycles.
void Plan::find_depths() {
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      for (const Link& link : links_[i]) {
        const int depth = steps_[link.parent].depth + 1;
        if (depth <= steps_[i].depth) continue;
        WFLOW_CHECK(depth <= static_cast<int>(steps_.size()));
        steps_[i].depth = depth;
        changed = true;
      }
    }
  }
}

ArrayId Plan::array_count() const {
  return steps_.empty() ? 0 : steps_.back().first_array + steps_.back().arrays;
}

std::uint64_t Plan::element_count() const {
  std::uint64_t count = 0;
  for (const PlannedStep& step : steps_) count += step.arrays * step.elements;
  return count;
}

std::size_t Plan::step_of(ArrayId array) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), array,
                       [](ArrayId id, const PlannedStep& step) { return id < step.first_array; });
  WFLOW_CHECK(after != steps_.begin() && array < array_count());
  return static_cast<std::size_t>(after - steps_.begin()) - 1;
}

std::uint32_t Plan::row_of(const PlannedStep& step, ArrayId array) const {
  return expansion_->row(step.study_step, array - step.first_array);
}

std::string Plan::array_name(ArrayId array) const {
  const PlannedStep& step = steps_[step_of(array)];
  const std::string label = expansion_->label(step.study_step, row_of(step, array));
  return specs::array_name(step.name, label);
}

std::uint32_t Plan::parameter_row(ArrayId array) const {
  return row_of(steps_[step_of(array)], array);
}

std::vector<std::pair<std::string, std::string>> Plan::parameters(ArrayId array) const {
  const std::uint32_t row = parameter_row(array);
  std::vector<std::pair<std::string, std::string>> values;
  for (const Parameter& parameter : study_->parameters)
    values.emplace_back(parameter.name, parameter.values[row]);
  return values;
}

std::vector<Edge> Plan::edges(ArrayId array) const {
  const std::size_t index = step_of(array);
  const std::uint32_t row = row_of(steps_[index], array);
  std::vector<Edge> edges;
  for (const Link& link : links_[index]) {
    const PlannedStep& parent = steps_[link.parent];
    if (link.funnel) {
      for (std::uint32_t i = 0; i < parent.arrays; ++i)
        edges.push_back({parent.first_array + i, link.kind, link.block, starts_of(link)});
    } else if (const auto combination = expansion_->combination_at(parent.study_step, row)) {
      edges.push_back({parent.first_array + *combination, link.kind, link.block, starts_of(link)});
    }
  }
  return edges;
}

std::string array_name(std::string_view step, std::string_view label) {
  return label.empty() ? std::string(step) : fmt::format("{}/{}", step, label);
}

std::string numbered_task_name(std::string_view array_name, Element element) {
  return fmt::format("{}/{}", array_name, element);
}

std::string task_name(std::string_view array_name, std::uint64_t elements, Element element) {
  return elements > 1 ? numbered_task_name(array_name, element) : std::string(array_name);
}

std::string task_name(const Plan& plan, ArrayId array, Element element) {
  return task_name(plan.array_name(array), plan.steps()[plan.step_of(array)].elements, element);
}

TaskId find_task(const Plan& plan, std::string_view name) {
  std::vector<std::string> names;
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
    const std::string array_name = plan.array_name(array);
    const std::uint64_t elements = plan.steps()[plan.step_of(array)].elements;
    if (name == array_name && elements == 1) return {array, 0};
    if (name == array_name) {
      throw Error(ExitCode::usage, fmt::format("{} has {} tasks; name one, for example {}/0", name,
                                               text::format_count(elements), name));
    }
    if (name.starts_with(array_name + "/")) {
      const auto element = text::to_integer(name.substr(array_name.size() + 1));
      if (element && *element >= 0 && static_cast<std::uint64_t>(*element) < elements) {
        return {array, static_cast<Element>(*element)};
      }
      if (element) {
        throw Error(ExitCode::usage, fmt::format("{} has tasks 0 to {}", array_name, elements - 1));
      }
    }
    names.push_back(array_name);
  }
  throw Error(ExitCode::usage, fmt::format("no task '{}' in this campaign{}", name,
                                           text::suggestion(std::string(name), names)));
}

}  // namespace wflow::specs
