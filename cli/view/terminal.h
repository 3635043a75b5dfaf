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
  int width = 80;            // columns
};
Terminal standard_output();

enum class Style { plain, bold, dim, red, green, yellow, cyan };
std::string styled(const Terminal& terminal, Style style, std::string_view text);

// Columns that a UTF-8 text takes; escape sequences take none.
int columns_of(std::string_view text);
// The text cut to so many columns, escape sequences kept whole; padded with blanks where shorter if `pad`.
std::string fitted(std::string_view text, int columns, bool pad);

// "[######----]" or its block-character form.
std::string bar(const Terminal& terminal, double fraction, int columns);
// A small curve, one column a value, scaled from the least to the greatest; the last `columns` values.
std::string sparkline(const Terminal& terminal, const std::vector<double>& values, int columns);

}  // namespace wflow::cli
