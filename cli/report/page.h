// SPDX-License-Identifier: Apache-2.0
// The page of a report as it is written: sections of text, tables and figures. All text is escaped here, and
// with --share cleaned, so that no caller can forget it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/plot/figure.h"

namespace wflow::cli::report {

struct PageTable {
  std::vector<std::string> headings;
  std::vector<bool> numbers;  // per column: aligned to the right
  std::vector<std::vector<std::string>> rows;
};

class Page {
 public:
  // Every text passes through this first.
  using Cleaner = std::function<std::string(std::string_view)>;
  explicit Page(Cleaner clean) : clean_(std::move(clean)) {}

  void section(const std::string& id, const std::string& title);
  void heading(const std::string& title);
  void paragraph(const std::string& text);
  void note(const std::string& text);  // something that needs attention
  void table(const PageTable& table);
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  // A text that opens on a click; a printout shows all of it.
  void details(const std::string& summary, const std::string& text);
  void figure(plot::Figure figure);
  // Adds markup that this program has made.
  void markup(const std::string& html) { body_ += html; }
  std::string text(std::string_view text) const;  // cleaned and escaped

  const std::vector<plot::Figure>& figures() const { return figures_; }
  // The whole file. `subtitle` appears below the title.
  std::string html(const std::string& title, const std::string& subtitle);

 private:
  void end_grid();
  void end_section();
  std::string own_id(const std::string& id);

  Cleaner clean_;
  std::string body_;
  bool in_section_ = false;
  bool in_grid_ = false;
  std::vector<std::pair<std::string, std::string>> sections_;  // id, title
  std::vector<plot::Figure> figures_;
  std::set<std::string> ids_;  // ids of figures
};

// Escapes a text for HTML text and for attributes in double quotes.
std::string escaped(std::string_view text);
// JSON that is safe in a script element: it contains no "<".
std::string json_for_script(const nlohmann::json& json);

// ---- the parts that are the same in every report, built into the program by page_files.cmake

std::string_view page_style();            // page/report.css
std::string_view page_script();           // page/axes.js, page/plots.js, page/report.js
std::string_view page_library();          // D3
std::string_view page_library_licence();  // page/d3-licence.txt

}  // namespace wflow::cli::report
