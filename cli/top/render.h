// SPDX-License-Identifier: Apache-2.0
// The dashboard's picture: a pure function of the campaign's data, the state of the view, and
// the terminal's size.
#pragma once

#include "cli/top/data.h"
#include "cli/top/grid.h"
#include "cli/top/state.h"
#include "cli/top/words.h"

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
void put_tasks(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_campaigns(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_pane(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_help(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
// The latest events, the newest first: failures and the campaign's history.
void put_latest(Grid& grid, int row, int rows, const TopData& data);

}  // namespace wflow::cli::top
