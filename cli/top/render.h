// SPDX-License-Identifier: Apache-2.0
// The dashboard's picture: a pure function of what is known of the campaign, of what the user looks at, and
// of the terminal's size.
#pragma once

#include "cli/top/data.h"
#include "cli/top/grid.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

// Below this size there is one sentence instead of a picture.
inline constexpr int kLeastWidth = 60, kLeastHeight = 20;

Grid render(const TopData& data, const ViewState& state, int width, int height, Charset charset);

// Rows that a view has for its list: what PageUp and PageDown move by.
int page_rows(int height);

// ---- the views, each in the rows [row, row + rows)

void put_steps(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_workers(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_failures(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_trainings(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_campaigns(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_pane(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
void put_help(Grid& grid, int row, int rows, const TopData& data, const ViewState& state);
// What happened last, the newest first: failures and the campaign's history. `filter` as in the state.
void put_latest(Grid& grid, int row, int rows, const TopData& data);

}  // namespace wflow::cli::top
