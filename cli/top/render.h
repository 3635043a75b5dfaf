// SPDX-License-Identifier: Apache-2.0
// The dashboard's picture: a pure function of the campaign's data, the state of the view, and
// the terminal's size.
#pragma once

#include <cstdint>
#include <string>

#include "cli/top/data.h"
#include "cli/top/grid.h"
#include "cli/top/state.h"
#include "engine/wire/answers.h"

namespace wflow::cli::top {

// Below this size there is one sentence instead of a picture.
inline constexpr int kLeastWidth = 60, kLeastHeight = 20;

Grid render(const TopData& data, const ViewState& state, int width, int height, Charset charset);

// The number of rows for a view's list: PageUp and PageDown move by this.
int page_rows(int height);

// ---- the views, each in the rows [row, row + rows)

void put_steps(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_workers(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_failures(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_trainings(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_campaigns(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_pane(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_help(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
// The latest events, the newest first: failures and the campaign's history.
void put_latest(Grid& grid, int row, int rows, const TopData& data);

// ---- words.cc: numbers, times and events as short texts

std::string brief_duration(double seconds);             // "850ms", "12.3s", "4m05s", "2h03m", "3d04h"
std::string brief_count(std::uint64_t value);           // "9,999", "12.3k", "1.20M", "3.40G"
std::string brief_rate(double per_s);                   // "12.3/s", "4.0/min", "2.1/h"; empty for 0
std::string time_of_day(double unix_s);                 // "16:00:01"
std::string day_and_time(double unix_s, double now_s);  // "16:00", on another day "22 Nov 16:00"
// "simulate/12 failed after 3.2s on node1: exit code 3: no root in cell 7"
std::string failure_sentence(const engine::wire::FailureView& failure);
std::string last_line_of(const std::string& text);  // that is not blank

}  // namespace wflow::cli::top
