// SPDX-License-Identifier: Apache-2.0
#include "converters/input/csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace wflow::converters {

CsvReader::CsvReader(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);  // spreadsheets write a byte order mark
  if (!next_line(header_))
    throw Error(ExitCode::data, fmt::format("{} is empty; a header line was expected", name_));
  std::vector<std::string> sorted = header_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail(fmt::format("two columns are named '{}'", *twice));
}

std::optional<std::size_t> CsvReader::column(std::string_view name) const {
  const auto at = std::find(header_.begin(), header_.end(), name);
  if (at == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - header_.begin());
}

bool CsvReader::next(std::vector<std::string>& fields) {
  if (!next_line(fields)) return false;
  if (fields.size() != header_.size()) {
    fail(fmt::format("this row has {} fields, the header has {}", fields.size(), header_.size()));
  }
  return true;
}

void CsvReader::fail(const std::string& what) const {
  throw Error(ExitCode::data, fmt::format("{}:{}: {}", name_, line_, what));
}

bool CsvReader::next_line(std::vector<std::string>& fields) {
  while (!text_.empty()) {
    const std::size_t end = text_.find('\n');
    const std::string_view line = text::trim(text_.substr(0, end));
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    ++line_;
    if (line.empty()) continue;
    fields = split(line);
    return true;
  }
  return false;
}

std::vector<std::string> CsvReader::split(std::string_view line) const {
  std::vector<std::string> fields(1);
  bool quoted = false;
  bool was_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"' && (quoted || text::trim(fields.back()).empty())) {
      if (!quoted) fields.back().clear();
      quoted = !quoted;
      was_quoted = true;
    } else if (c == ',' && !quoted) {
      if (!was_quoted) fields.back() = text::trim(fields.back());
      was_quoted = false;
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) fail("a quote does not end");
  if (!was_quoted) fields.back() = text::trim(fields.back());
  return fields;
}

}  // namespace wflow::converters
