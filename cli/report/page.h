// SPDX-License-Identifier: Apache-2.0
// The page of a report as it is written: sections of text, tables and figures. All text is escaped here, and
// with --share cleaned, so that no caller can forget it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
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

struct PageSection {
  std::string id, title;
  std::string body;                   // HTML
  std::vector<plot::Figure> figures;  // whose places are in `body`
};

class Page {
 public:
  // Every text passes through this first.
  using Cleaner = std::function<std::string(std::string_view)>;
  explicit Page(Cleaner clean) : clean_(std::move(clean)) {}

  // Begins a section: all below goes into the last one.
  void section(const std::string& id, const std::string& title);
  void heading(const std::string& title);
  void paragraph(const std::string& text);
  void note(const std::string& text);  // something that needs attention
  void table(const PageTable& table);
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  // A text that opens on a click; a printout shows all of it.
  void details(const std::string& summary, const std::string& text);
  void figure(plot::Figure figure);
  // A picture as an image, in which a browser runs no script. `type`: image/png, ...
  void picture(const std::string& caption, std::string_view type, std::string_view bytes);
  // Adds markup that this program has made.
  void markup(const std::string& html);
  std::string text(std::string_view text) const;  // cleaned and escaped

  std::vector<plot::Figure> figures() const;  // in the order of the page; ids are unique
  // The whole file. `subtitle` appears below the title.
  std::string html(const std::string& title, const std::string& subtitle);
  // The sections as a live page gets them: {id, title, digest, html, figures} each.
  nlohmann::json sections_json();

 private:
  void add(const std::string& html);  // ends a grid of figures
  void end_grid();
  std::string own_id(const std::string& id);
  nlohmann::json figures_json(const PageSection& section) const;

  Cleaner clean_;
  std::vector<PageSection> sections_;
  bool in_grid_ = false;
  std::set<std::string> ids_;  // ids of figures
};

// The page of a campaign that fills itself from `sections` at the same address.
std::string live_page(const std::string& title);
// The Content-Security-Policy of that page, for the header of an answer.
std::string live_policy();

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
