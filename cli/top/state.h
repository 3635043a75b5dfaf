// SPDX-License-Identifier: Apache-2.0
// The current view, the selection in it, and the effects of keys on both. A key that asks for
// something outside of the dashboard gives a Wish. Pure: no terminal, no campaign.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/top/data.h"
#include "engine/wire/requests.h"

namespace wflow::cli::top {

enum class View : std::uint8_t { steps, workers, failures, training, campaigns, tasks, pane, help };
inline constexpr std::size_t kViews = 8;

// A key: a character, or one of these.
using Key = char32_t;
inline constexpr Key kKeyUp = 0x110000, kKeyDown = 0x110001, kKeyLeft = 0x110002, kKeyRight = 0x110003,
                     kKeyPageUp = 0x110004, kKeyPageDown = 0x110005, kKeyHome = 0x110006, kKeyEnd = 0x110007,
                     kKeyEnter = 0x110008, kKeyEscape = 0x110009, kKeyBackspace = 0x11000a,
                     kKeyTab = 0x11000b;

struct Wish {
  enum class Kind : std::uint8_t {
    quit,
    pause,
    unpause,
    retry,
    cancel,
    explain,
    log,
    tasks,
    open,
    close,
    replay
  };
  Kind kind = Kind::quit;
  wire::Selection tasks;  // retry, cancel
  bool kill = false;      // cancel: also running tasks
  std::string title;      // explain, log: the task's name; tasks: the step; open: the campaign's directory
  wire::TaskPlace task;   // explain, log
  // replay: the time to skip, and a factor for the speed. If both change nothing: pause.
  double seek = 0;  // share of the whole time
  double faster = 1;
};

enum class Prompt : std::uint8_t { none, filter, search, confirm };

struct ViewState {
  View view = View::steps;
  View before = View::steps;  // the view to which pane and help return
  std::array<std::size_t, kViews> selected{};
  std::array<int, kViews> sort{};  // indices into sort_names()
  std::string filter;              // names must contain this
  std::string search;              // search text in the pane
  Prompt prompt = Prompt::none;
  std::string typed;          // while prompt is filter or search
  std::optional<Wish> asked;  // while prompt is confirm
  std::string question;       // the same
  bool many = false;          // a list of campaigns exists: `q` in a campaign returns to it

  std::size_t& selected_here() { return selected[static_cast<std::size_t>(view)]; }
  std::size_t selected_here() const { return selected[static_cast<std::size_t>(view)]; }
  int sort_of(View which) const { return sort[static_cast<std::size_t>(which)]; }
};

// `page`: the number of rows by which PageUp and PageDown move.
std::optional<Wish> on_key(ViewState& state, Key key, const TopData& data, int page);
// Moves selections after the end of their list to its end.
void keep_in_bounds(ViewState& state, const TopData& data);

// ---- lists.cc: the entries of each view, filtered and sorted as its state says; renderer and keys both use
// these. Pointers are into the data that they were made of.

// The orders of a view's list, by number.
const std::vector<std::string>& sort_names(View view);

std::vector<const wire::StepStatus*> listed_steps(const TopData& data, const ViewState& state);
std::vector<const wire::FailureView*> listed_failures(const TopData& data, const ViewState& state);
// The tasks of the step that is open: running ones (the longest first), failed ones (the newest first), the
// slowest.
std::vector<TaskRow> listed_tasks(const TopData& data, const ViewState& state);
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
  const wire::MetricCurve* curve(std::string_view name) const;  // null: no such curve
};
std::vector<Training> trainings(const TopData& data, const ViewState& state);

// True if the search's text occurs in the line of the pane.
bool line_matches(const std::string& line, const std::string& text);

// The number of entries in the view's list.
std::size_t list_size(const TopData& data, const ViewState& state, View view);

}  // namespace wflow::cli::top
