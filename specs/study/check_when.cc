// SPDX-License-Identifier: Apache-2.0
// Checks when: of the steps: its syntax, its names, a value for every combination, and that combinations
// remain.
#include <fmt/format.h>

#include <set>

#include "specs/plan/expansion.h"
#include "specs/study/reading.h"

namespace wflow::specs {

namespace {

const yaml::Node* when_of(const yaml::Node& step) {
  const yaml::Node* run = step.find("run");
  const yaml::Node* inside = run == nullptr ? nullptr : run->find("when");
  return inside != nullptr ? inside : step.find("when");
}

// The place of a character of the scalar, if the file has its text unchanged: neither folded nor with
// escapes.
yaml::Mark place_in(const Reading& reading, const yaml::Node& node, std::size_t offset) {
  const std::string_view text = reading.study.text;
  yaml::Mark mark = node.mark;
  std::size_t at = 0;
  for (int line = 1; line < mark.line && at != std::string_view::npos; ++line) {
    at = text.find('\n', at);
    if (at != std::string_view::npos) ++at;
  }
  if (mark.line == 0 || at == std::string_view::npos) return mark;
  at += static_cast<std::size_t>(mark.column) - 1;
  for (const std::size_t quote : {std::size_t{0}, std::size_t{1}}) {
    if (at + quote > text.size() || text.substr(at + quote, node.text.size()) != node.text) continue;
    mark.column += static_cast<int>(quote + offset);
    break;
  }
  return mark;
}

}  // namespace

void check_conditions(Reading& reading, const Expansion& expansion) {
  const Study& study = reading.study;
  const WhenConditions conditions(study);
  const std::vector<std::string> names = conditions.names();
  const auto report = [&](const Step& step, const ConditionError& error) {
    const auto at = reading.step_nodes.find(step.name);
    const yaml::Node* node = at == reading.step_nodes.end() ? nullptr : when_of(*at->second);
    yaml::Mark mark = step.mark;
    if (node != nullptr) {
      yaml::Node written = *node;
      written.text = step.when;
      mark = place_in(reading, written, error.offset);
    }
    reading.diagnostics.error(mark, fmt::format("when: of the step '{}': {}", step.name, error.what()));
  };
  bool any_left = false;
  std::set<std::size_t> told;
  for (std::size_t i = 0; i < study.steps.size(); ++i) {
    const Step& step = study.steps[i];
    any_left = any_left || expansion.count(i) > 0;
    if (step.when.empty()) continue;
    try {
      const auto is_name = [&](std::string_view name) { return conditions.is_name(name); };
      for (const ConditionError& error : Condition(step.when).check(is_name, names)) {
        report(step, error);
        told.insert(i);
      }
    } catch (const ConditionError& error) {
      report(step, error);
    }
  }
  for (const auto& [step, error] : expansion.problems()) {
    if (!told.contains(step)) report(study.steps[step], error);
  }
  if (reading.diagnostics.has_errors() || study.steps.empty()) return;
  if (!any_left) {
    reading.diagnostics.error(study.steps.front().mark, "no step is left: when: is true for none of them");
    return;
  }
  for (std::size_t i = 0; i < study.steps.size(); ++i) {
    if (expansion.count(i) > 0) continue;
    const Step& step = study.steps[i];
    reading.diagnostics.warning(
        step.mark,
        step.when.empty()
            ? fmt::format("the step '{}' is left out, because the step it reads is", step.name)
            : fmt::format("the step '{}' is left out: its when: is true for no combination", step.name));
  }
}

}  // namespace wflow::specs
