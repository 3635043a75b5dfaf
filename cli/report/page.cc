// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"

namespace wflow::cli::report {

namespace {

constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

// The page around sections; the arguments are HTML.
struct Frame {
  std::string policy = {}, title = {}, subtitle = {}, links = {}, body = {}, figures = {};
  bool live = false;
};

std::string html_of(const Frame& frame) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body{}>\n<header>\n<h1>{}</h1>\n<p>{}</p>\n<nav>\n{}</nav>\n</"
      "header>\n<main>\n"
      "{}</main>\n<noscript><p class=\"note\">The plots of this page need JavaScript.</p></noscript>\n"
      "<script type=\"application/json\" id=\"figures\">{}</script>\n"
      "<!-- {}\n-->\n<script>\n{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
      frame.policy, frame.title, page_style(), frame.live ? " data-live" : "", frame.title, frame.subtitle,
      frame.links, frame.body, frame.figures, page_library_licence(), page_library(), page_script());
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

std::string section_html(const PageSection& section) {
  return fmt::format("<section id=\"{0}\">\n<h2><a href=\"#{0}\">{1}</a></h2>\n{2}</section>\n",
                     escaped(section.id), escaped(section.title), section.body);
}

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
  if (in_grid_) sections_.back().body += "</div>\n";
  in_grid_ = false;
}

void Page::add(const std::string& html) {
  end_grid();
  sections_.back().body += html;
}

void Page::section(const std::string& id, const std::string& title) {
  end_grid();
  sections_.push_back({.id = id, .title = title, .body = {}, .figures = {}});
}

void Page::heading(const std::string& title) {
  add(fmt::format("<h3>{}</h3>\n", text(title)));
}

void Page::paragraph(const std::string& written) {
  add(fmt::format("<p>{}</p>\n", text(written)));
}

void Page::note(const std::string& written) {
  add(fmt::format("<p class=\"note\">{}</p>\n", text(written)));
}

void Page::markup(const std::string& html) {
  add(html);
}

void Page::table(const PageTable& table) {
  const auto column = [&](std::size_t k) {
    return k < table.numbers.size() && table.numbers[k] ? " class=\"number\"" : "";
  };
  std::string html = "<div class=\"table\"><table>\n<thead><tr>";
  for (std::size_t k = 0; k < table.headings.size(); ++k)
    html += fmt::format("<th{}>{}</th>", column(k), text(table.headings[k]));
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (std::size_t k = 0; k < row.size(); ++k)
      html += fmt::format("<td{}>{}</td>", column(k), text(row[k]));
    html += "</tr>\n";
  }
  add(html + "</tbody></table></div>\n");
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string html = "<dl>\n";
  for (const auto& [name, value] : facts)
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", text(name), text(value));
  add(html + "</dl>\n");
}

void Page::details(const std::string& summary, const std::string& written) {
  add(fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", text(summary), text(written)));
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
  PageSection& section = sections_.back();
  if (!in_grid_) section.body += "<div class=\"figures\">\n";
  in_grid_ = true;
  const bool wide = figure.kind == plot::Kind::timeline || figure.kind == plot::Kind::images;
  section.body += fmt::format(
      "<figure id=\"figure-{0}\" class=\"{1}\"><h3>{2}</h3><div class=\"plot\" data-figure=\"{0}\"></div>"
      "<figcaption>{3}</figcaption></figure>\n",
      escaped(figure.id), wide ? "wide" : "", text(figure.title), text(figure.caption));
  section.figures.push_back(std::move(figure));
}

void Page::picture(const std::string& caption, std::string_view type, std::string_view bytes) {
  if (!in_grid_) sections_.back().body += "<div class=\"figures\">\n";
  in_grid_ = true;
  sections_.back().body += fmt::format(
      "<figure class=\"study\"><img alt=\"{0}\" src=\"data:{1};base64,{2}\">"
      "<figcaption>{0}</figcaption></figure>\n",
      text(caption), escaped(type), base64(bytes));
}

std::vector<plot::Figure> Page::figures() const {
  std::vector<plot::Figure> all;
  for (const PageSection& section : sections_)
    all.insert(all.end(), section.figures.begin(), section.figures.end());
  return all;
}

nlohmann::json Page::figures_json(const PageSection& section) const {
  nlohmann::json figures = nlohmann::json::object();
  for (const plot::Figure& figure : section.figures) {
    nlohmann::json json = plot::to_page_json(figure);
    clean_strings(json, clean_);
    figures[figure.id] = std::move(json);
  }
  return figures;
}

std::string Page::html(const std::string& title, const std::string& subtitle) {
  end_grid();
  Frame frame{.policy = std::string(kPolicy), .title = text(title), .subtitle = text(subtitle)};
  nlohmann::json figures = nlohmann::json::object();
  for (const PageSection& section : sections_) {
    frame.links += fmt::format("<a href=\"#{}\">{}</a>\n", escaped(section.id), escaped(section.title));
    frame.body += section_html(section);
    figures.update(figures_json(section));
  }
  frame.figures = json_for_script(figures);
  return html_of(frame);
}

nlohmann::json Page::sections_json() {
  end_grid();
  nlohmann::json list = nlohmann::json::array();
  for (const PageSection& section : sections_) {
    nlohmann::json json = {{"html", section_html(section)}, {"figures", figures_json(section)}};
    json["digest"] = hash_bytes(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    json["id"] = section.id;
    json["title"] = section.title;
    list.push_back(std::move(json));
  }
  return list;
}

std::string live_policy() {
  return std::string(kPolicy) + "; connect-src 'self'";
}

std::string live_page(const std::string& title) {
  return html_of({.policy = live_policy(),
                  .title = escaped(title),
                  .subtitle = "wflow reads the campaign.",
                  .links = {},
                  .body = {},
                  .figures = "{}",
                  .live = true});
}

}  // namespace wflow::cli::report
