// SPDX-License-Identifier: Apache-2.0
// The terminal, through ncurses: writes the cells of a grid that differ from the last one; gives keys.
#pragma once

#include <optional>
#include <utility>

#include "cli/top/grid.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

class Screen {
 public:
  // Uses the terminal until the end of this object. Error{usage} for a terminal that can't move its cursor.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  Charset charset() const { return charset_; }
  std::pair<int, int> size() const;  // columns, rows
  void show(const Grid& grid);
  // The next key that was pressed, if any. Resizing is no key: size() has changed.
  std::optional<Key> key();
  // True if the process got SIGINT, SIGTERM or SIGHUP.
  static bool asked_to_end();

 private:
  Charset charset_ = Charset::ascii;
  bool colour_ = false;
  Grid shown_;
};

}  // namespace wflow::cli::top
