// SPDX-License-Identifier: Apache-2.0
// What is the same in every report, built into the program by page_files.cmake.
#pragma once

#include <string_view>

namespace wflow::cli::report {

std::string_view page_style();            // page/report.css
std::string_view page_script();           // page/axes.js, page/plots.js, page/report.js
std::string_view page_library();          // D3
std::string_view page_library_licence();  // page/d3-licence.txt

}  // namespace wflow::cli::report
