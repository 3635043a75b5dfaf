// SPDX-License-Identifier: Apache-2.0
// Which view is shown, what is selected in it, and what a key changes about that. A key that asks for
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

enum class View : std::uint8_t { steps, workers, failures, training, campaigns, pane, help };
inline constexpr std::size_t kViews = 7;

// A key: a character, or one of these.
using Key = char32_t;
inline constexpr Key kKeyUp = 0x110000, kKeyDown = 0x110001, kKeyLeft = 0x110002, kKeyRight = 0x110003,
                     kKeyPageUp = 0x110004, kKeyPageDown = 0x110005, kKeyHome = 0x110006, kKeyEnd = 0x110007,
                     kKeyEnter = 0x110008, kKeyEscape = 0x110009, kKeyBackspace = 0x11000a,
                     kKeyTab = 0x11000b;

struct Wish {
  enum class Kind : std::uint8_t { quit, pause, unpause, retry, cancel, explain, log, open, close, replay };
  Kind kind = Kind::quit;
  wire::Selection tasks;  // retry, cancel
  bool kill = false;      // cancel: also what runs
  std::string title;      // explain, log: the task's name; open: the campaign's directory
  wire::TaskPlace task;   // explain, log
  // replay: seconds of the campaign to go on by, a factor of the speed; pause where both change nothing.
  double seek = 0;  // share of the whole time
  double faster = 1;
};

enum class Prompt : std::uint8_t { none, filter, search, confirm };

struct ViewState {
  View view = View::steps;
  View before = View::steps;  // where pane and help go back to
  std::array<std::size_t, kViews> selected{};
  std::array<int, kViews> sort{};  // sort_names() has their names
  std::string filter;              // what names must contain
  std::string search;              // in the pane
  Prompt prompt = Prompt::none;
  std::string typed;          // while prompt is filter or search
  std::optional<Wish> asked;  // while prompt is confirm
  std::string question;       // the same
  bool many = false;          // of several campaigns: `q` in a campaign goes back to them

  std::size_t& selected_here() { return selected[static_cast<std::size_t>(view)]; }
  std::size_t selected_here() const { return selected[static_cast<std::size_t>(view)]; }
  int sort_of(View which) const { return sort[static_cast<std::size_t>(which)]; }
};

// `page`: rows that PageUp and PageDown move by.
std::optional<Wish> on_key(ViewState& state, Key key, const TopData& data, int page);
// Selections that are behind the end of their list move to its end.
void keep_in_bounds(ViewState& state, const TopData& data);

// ---- lists.cc: the entries of each view, filtered and sorted as its state says; renderer and keys both use these.
// Pointers are into the data that they were made of.

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
