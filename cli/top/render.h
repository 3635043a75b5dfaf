// SPDX-License-Identifier: Apache-2.0
// The dashboard's picture: a pure function of the campaign's data, the state of the view, and
// the terminal's size.
#pragma once

#include <optional>
#include <utility>

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

// The terminal, through ncurses: writes the cells of a grid that differ from the last one; gives keys.

class Screen {
 public:
  // Uses the terminal until the end of this object. Error{usage} for a terminal that can't move its cursor.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Charset charset() const { return charset_; }
  std::pair<int, int> size();  // columns, rows, as the terminal has them now
  // True after a resize: show the picture once more.
  bool show(const Grid& grid);
  // The next key that was pressed, if any. Resizing is no key: size() has changed.
  std::optional<Key> key();
  // True if the process got SIGINT, SIGTERM or SIGHUP.
  static bool asked_to_end();

 private:
  Charset charset_ = Charset::ascii;
  bool colour_ = false;
  Grid shown_;
  bool repaints_ = false;  // the next picture is written whole
};

}  // namespace wflow::cli::top
