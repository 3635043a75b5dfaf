// SPDX-License-Identifier: Apache-2.0
// search: of a train: step. Each rung is a step of its own, which waits for all trainings of the one before;
// the last one has the step's name, so that others can wait for it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "trainer/search_config.h"

namespace wflow::specs {

std::vector<std::int64_t> search_rungs(const yaml::Node& search, yaml::Diagnostics& diagnostics) {
  return trainer::read_search(search, diagnostics).rungs;
}

std::string rung_suffix(int rung) {
  return ".rung_" + std::to_string(rung);
}

std::optional<SearchRung> search_rung(const Step& step) {
  const yaml::Node* search = step.kind == StepKind::train ? step.settings.find("search") : nullptr;
  const yaml::Node* rung = search == nullptr ? nullptr : search->find("rung");
  const auto number = rung == nullptr ? std::nullopt : text::to_integer(rung->text);
  if (!number) return std::nullopt;
  const std::string suffix = rung_suffix(static_cast<int>(*number));
  const bool last = !step.name.ends_with(suffix);
  return SearchRung{last ? step.name : step.name.substr(0, step.name.size() - suffix.size()),
                    static_cast<int>(*number)};
}

namespace {

const trainer::SearchConfig& search_of(const Step& rung) {
  return std::get<trainer::TrainConfig>(rung.block).search;
}

}  // namespace

std::size_t rung_count(const Step& rung) {
  return search_of(rung).rungs.size();
}

std::size_t trainings_in_rung(const Step& any_rung, std::size_t trainings, std::size_t rung) {
  return trainer::trainings_in_rung(search_of(any_rung), trainings, rung);
}

std::string search_stopped_metric() {
  return trainer::kSearchStoppedMetric;
}

namespace {

std::string rung_name(const std::string& step, std::size_t rung) {
  return step + rung_suffix(static_cast<int>(rung));
}

// The epochs of each rung; empty: no search, or a wrong one.
std::vector<std::int64_t> read_rungs(Reading& reading, const Step& step) {
  const yaml::Node* search = step.kind == StepKind::train ? step.settings.find("search") : nullptr;
  if (search == nullptr) return {};
  refuse_campaign_keys(reading, *search, "search", trainer::kCampaignSearchKeys);
  return search_rungs(*search, reading.diagnostics);
}

Division rungs_of(const Step& step, std::size_t rungs) {
  Division division;
  for (std::size_t rung = 1; rung <= rungs; ++rung) {
    division.names.push_back(rung_name(step.name, rung));
    Step& next = division.steps.emplace_back(step);
    set_key(*next.settings.find("search"), "rung", yaml::scalar(std::to_string(rung)));
    if (rung < rungs) next.name = rung_name(step.name, rung);
    if (rung == 1) continue;
    next.depends.push_back({rung_name(step.name, rung - 1), true});
    // A failed training is not among the best: the others continue.
    if (!next.continue_on) next.continue_on = ContinueOn::soft_fail;
  }
  return division;
}

}  // namespace

void expand_searches(Reading& reading) {
  divide_steps(reading, "a rung of the search of", [&](const Step& step) {
    const std::size_t rungs = read_rungs(reading, step).size();
    return rungs < 2 ? Division() : rungs_of(step, rungs);
  });
}

void check_search(Reading& reading, const Expansion& expansion, std::size_t index) {
  const Step& step = reading.study.steps[index];
  if (!search_rung(step) || expansion.count(index) > 1) return;
  reading.diagnostics.warning(
      step.settings.find("search")->mark,
      fmt::format("'search' chooses among several trainings, and the step '{}' makes one, which goes through "
                  "all rungs; let its train: block name parameters of the study",
                  step.name));
}

}  // namespace wflow::specs
