// SPDX-License-Identifier: Apache-2.0
// What the output is connected to, and text shaped for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wflow::cli {

struct Terminal {
  bool interactive = false;  // a terminal that can move its cursor
  bool colour = false;       // interactive, and NO_COLOR is not set
  bool unicode = false;      // its locale is UTF-8
  bool reflows = true;       // breaks lines again when its width changes, as most do
  int width = 80;            // columns
  int height = 24;           // lines
};
Terminal standard_output();

enum class Style { plain, bold, dim, red, green, yellow, cyan };
std::string styled(const Terminal& terminal, Style style, std::string_view text);

// Columns that a UTF-8 text takes; escape sequences take none.
int columns_of(std::string_view text);
// The text cut to so many columns, escape sequences kept whole; padded with blanks where shorter if `pad`.
std::string fitted(std::string_view text, int columns, bool pad);
// The text as lines of at most so many columns, broken at blanks, in longer words where it must be; all but
// the first begin with `indent` blanks.
std::vector<std::string> wrapped(std::string_view text, int columns, int indent);

// "[######----]" or its block-character form.
std::string bar(const Terminal& terminal, double fraction, int columns);
// A small curve, one column a value, scaled from the least to the greatest; the last `columns` values.
std::string sparkline(const Terminal& terminal, const std::vector<double>& values, int columns);

}  // namespace wflow::cli
