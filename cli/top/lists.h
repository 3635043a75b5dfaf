// SPDX-License-Identifier: Apache-2.0
// What each view lists, filtered and sorted as its state says; renderer and keys both go by these. Pointers
// are into the data that they were made of.
#pragma once

#include <string>
#include <vector>

#include "cli/top/data.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

// The orders of a view's list, by number.
const std::vector<std::string>& sort_names(View view);

std::vector<const wire::StepStatus*> listed_steps(const TopData& data, const ViewState& state);
std::vector<const wire::FailureView*> listed_failures(const TopData& data, const ViewState& state);
std::vector<const CampaignRow*> listed_campaigns(const TopData& data, const ViewState& state);

// One row of allocations → workers → tasks.
struct TreeRow {
  const wire::AllocationView* allocation = nullptr;
  const wire::WorkerStatus* worker = nullptr;
  const wire::RunningView* task = nullptr;
  int depth = 0;
};
std::vector<TreeRow> tree_rows(const TopData& data, const ViewState& state);

// The curves of one task, losses first.
struct Training {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string task;
  std::vector<const wire::MetricCurve*> curves;
  const wire::MetricCurve* curve(std::string_view name) const;  // null: it has none
};
std::vector<Training> trainings(const TopData& data, const ViewState& state);

// Lines of the pane in which the search's text occurs.
bool line_matches(const std::string& line, const std::string& text);

// How many entries the view's list has.
std::size_t list_size(const TopData& data, const ViewState& state, View view);

}  // namespace wflow::cli::top
