// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace wflow::cli::report {

namespace {

constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

void clean_strings(nlohmann::json& json, const Page::Cleaner& clean) {
  if (json.is_string()) json = clean(printable(json.get_ref<const std::string&>()));
  if (json.is_structured())
    for (auto& part : json) clean_strings(part, clean);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string json_for_script(const nlohmann::json& json) {
  std::string script;
  for (const char c : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<') {
      script += "\\u003c";
    } else {
      script += c;
    }
  }
  return script;
}

std::string Page::text(std::string_view text) const {
  return escaped(clean_(printable(text)));
}

void Page::end_grid() {
  if (in_grid_) body_ += "</div>\n";
  in_grid_ = false;
}

void Page::end_section() {
  end_grid();
  if (in_section_) body_ += "</section>\n";
  in_section_ = false;
}

void Page::section(const std::string& id, const std::string& title) {
  end_section();
  in_section_ = true;
  sections_.emplace_back(id, title);
  body_ +=
      fmt::format("<section id=\"{0}\">\n<h2><a href=\"#{0}\">{1}</a></h2>\n", escaped(id), escaped(title));
}

void Page::heading(const std::string& title) {
  end_grid();
  body_ += fmt::format("<h3>{}</h3>\n", text(title));
}

void Page::paragraph(const std::string& written) {
  end_grid();
  body_ += fmt::format("<p>{}</p>\n", text(written));
}

void Page::note(const std::string& written) {
  end_grid();
  body_ += fmt::format("<p class=\"note\">{}</p>\n", text(written));
}

void Page::table(const PageTable& table) {
  end_grid();
  const auto column = [&](std::size_t k) {
    return k < table.numbers.size() && table.numbers[k] ? " class=\"number\"" : "";
  };
  body_ += "<div class=\"table\"><table>\n<thead><tr>";
  for (std::size_t k = 0; k < table.headings.size(); ++k)
    body_ += fmt::format("<th{}>{}</th>", column(k), text(table.headings[k]));
  body_ += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    body_ += "<tr>";
    for (std::size_t k = 0; k < row.size(); ++k)
      body_ += fmt::format("<td{}>{}</td>", column(k), text(row[k]));
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  end_grid();
  body_ += "<dl>\n";
  for (const auto& [name, value] : facts)
    body_ += fmt::format("<dt>{}</dt><dd>{}</dd>\n", text(name), text(value));
  body_ += "</dl>\n";
}

void Page::details(const std::string& summary, const std::string& written) {
  end_grid();
  body_ +=
      fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", text(summary), text(written));
}

// Makes an id unique: names that differ only in characters other than a to z have the same id.
std::string Page::own_id(const std::string& id) {
  const std::string base = id.empty() ? "figure" : id;
  std::string own = base;
  for (int number = 2; !ids_.insert(own).second; ++number) own = fmt::format("{}-{}", base, number);
  return own;
}

void Page::figure(plot::Figure figure) {
  figure.id = own_id(figure.id);
  if (!in_grid_) body_ += "<div class=\"figures\">\n";
  in_grid_ = true;
  const bool wide = figure.kind == plot::Kind::timeline || figure.kind == plot::Kind::images;
  body_ += fmt::format(
      "<figure id=\"figure-{}\" class=\"{}\"><h3>{}</h3><div class=\"plot\" data-figure=\"{}\"></div>"
      "<figcaption>{}</figcaption></figure>\n",
      escaped(figure.id), wide ? "wide" : "", text(figure.title), figures_.size(), text(figure.caption));
  figures_.push_back(std::move(figure));
}

std::string Page::html(const std::string& title, const std::string& subtitle) {
  end_section();
  std::string links;
  for (const auto& [id, name] : sections_)
    links += fmt::format("<a href=\"#{}\">{}</a>\n", escaped(id), escaped(name));
  nlohmann::json figures = nlohmann::json::array();
  for (const plot::Figure& figure : figures_) figures.push_back(plot::to_json(figure));
  clean_strings(figures, clean_);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body>\n<header>\n<h1>{}</h1>\n<p>{}</p>\n<nav>\n{}</nav>\n</"
      "header>\n<main>\n"
      "{}</main>\n<noscript><p class=\"note\">The plots of this page need JavaScript.</p></noscript>\n"
      "<script type=\"application/json\" id=\"figures\">{}</script>\n"
      "<!-- {}\n-->\n<script>\n{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
      kPolicy, text(title), page_style(), text(title), text(subtitle), links, body_, json_for_script(figures),
      page_library_licence(), page_library(), page_script());
}

}  // namespace wflow::cli::report
