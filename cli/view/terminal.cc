// SPDX-License-Identifier: Apache-2.0
#include "cli/view/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "base/text.h"
#include "cli/top/grid.h"

namespace wflow::cli {

namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool utf8_locale() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!is_set(variable)) continue;
    const std::string value = std::getenv(variable);
    return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

// Length of the escape sequence at the beginning of `text`, 0 if there is none.
std::size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_of("mKAJ");
  return end == std::string_view::npos ? text.size() : end + 1;
}

std::size_t character_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

Terminal terminal_of(int descriptor) {
  Terminal terminal;
  const char* kind = std::getenv("TERM");
  terminal.interactive = ::isatty(descriptor) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
  terminal.colour = terminal.interactive && !is_set("NO_COLOR");
  terminal.unicode = utf8_locale();
  // xterm and GNU screen cut lines instead of breaking them.
  terminal.reflows = !is_set("XTERM_VERSION") && !is_set("STY");
  winsize size{};
  if (terminal.interactive && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0) {
    if (size.ws_col > 0) terminal.width = size.ws_col;
    if (size.ws_row > 0) terminal.height = size.ws_row;
  }
  return terminal;
}

}  // namespace

Terminal standard_output() {
  return terminal_of(STDOUT_FILENO);
}

Terminal standard_error() {
  return terminal_of(STDERR_FILENO);
}

std::string styled(const Terminal& terminal, Style style, std::string_view text) {
  if (!terminal.colour || style == Style::plain) return std::string(text);
  constexpr std::array<const char*, 7> kCodes = {"", "1", "2", "31", "32", "33", "36"};
  return own_escape(kCodes[static_cast<std::size_t>(style)] + std::string("m")) + std::string(text) +
         own_escape("0m");
}

int columns_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const std::size_t escape = std::min(text.find('\x1b'), text.size());
    columns += top::width_of(text.substr(0, escape));
    text.remove_prefix(escape);
    // A lone escape character is no sequence, and takes a column.
    if (const std::size_t length = escape_length(text); length > 0) {
      text.remove_prefix(length);
    } else if (!text.empty()) {
      ++columns;
      text.remove_prefix(1);
    }
  }
  return columns;
}

namespace {

// The bytes at the beginning of the text that fit into so many columns.
std::size_t bytes_within(std::string_view text, int columns) {
  std::size_t bytes = 0;
  int used = 0;
  while (bytes < text.size()) {
    const std::string_view rest = text.substr(bytes);
    const std::size_t escape = escape_length(rest);
    const std::size_t length = std::min(
        escape > 0 ? escape : character_length(static_cast<unsigned char>(rest.front())), rest.size());
    if (escape == 0) used += top::width_of(rest.substr(0, length));
    if (used > columns) break;
    bytes += length;
  }
  return bytes;
}

bool has_escape(std::string_view text) {
  return text.find('\x1b') != std::string_view::npos;
}

// The bytes of a word that is too long for a line: up to its last sign between words, if it has one there.
std::size_t broken_within(std::string_view word, int columns) {
  const std::size_t bytes = std::max<std::size_t>(bytes_within(word, columns), 1);
  if (has_escape(word)) return bytes;
  const std::size_t sign = word.substr(0, bytes).find_last_of("/,;:=&");
  return sign == std::string_view::npos || sign == 0 ? bytes : sign + 1;
}

}  // namespace

std::string fitted(std::string_view text, int columns, bool pad) {
  const std::size_t bytes = bytes_within(text, columns);
  std::string result(text.substr(0, bytes));
  // The sequence that ends a colour must not be cut off.
  if (bytes < text.size() && has_escape(result)) result += own_escape("0m");
  const int used = pad ? columns_of(result) : columns;
  if (used < columns) result.append(static_cast<std::size_t>(columns - used), ' ');
  return result;
}

std::string shortened(const Terminal& terminal, std::string_view text, int columns) {
  if (columns_of(text) <= columns) return std::string(text);
  constexpr std::size_t kNear = 16;
  std::string result(text.substr(0, bytes_within(text, columns - 1)));
  const std::size_t blank = result.find_last_of(' ');
  const bool near = blank != std::string::npos && blank > 0 && result.size() - blank <= kNear;
  if (near && !has_escape(std::string_view(result).substr(blank))) result.resize(blank);
  result.erase(result.find_last_not_of(' ') + 1);
  return result + (has_escape(result) ? own_escape("0m") : "") + (terminal.unicode ? "…" : "~");
}

std::string shortened_name(const Terminal& terminal, std::string_view name, int columns) {
  return top::cut_left(name, columns, terminal.unicode ? top::Charset::utf8 : top::Charset::ascii);
}

std::vector<std::string> wrapped(std::string_view text, int columns, int indent, LongWords words) {
  std::vector<std::string> lines;
  std::string line;
  int used = 0;
  const auto end_line = [&] {
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::exchange(line, std::string(static_cast<std::size_t>(indent), ' ')));
    used = indent;
  };
  columns = std::max(columns, indent + 1);
  while (!text.empty()) {
    const std::size_t blanks = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find(' ', blanks), text.size());
    std::string_view word = text.substr(blanks, end - blanks);
    text.remove_prefix(end);
    if (used > indent && used + static_cast<int>(blanks) + columns_of(word) > columns) {
      end_line();
    } else {
      line.append(blanks, ' ');
      used += static_cast<int>(blanks);
    }
    while (words == LongWords::broken && used + columns_of(word) > columns) {
      const std::size_t bytes = broken_within(word, columns - used);
      line += word.substr(0, bytes);
      word.remove_prefix(bytes);
      end_line();
    }
    line += word;
    used += columns_of(word);
  }
  if (used > indent || lines.empty()) lines.push_back(line);
  return lines;
}

std::vector<std::string> flowed(const Terminal& terminal, std::string line,
                                const std::vector<std::string>& parts, std::string_view first,
                                std::string_view between, int indent) {
  std::vector<std::string> lines;
  std::string_view separator = first;
  for (const std::string& part : parts) {
    const int width = columns_of(line) + static_cast<int>(separator.size()) + columns_of(part);
    if (terminal.interactive && width > terminal.width && columns_of(line) > indent) {
      lines.push_back(std::exchange(line, std::string(static_cast<std::size_t>(indent), ' ')));
      line += part;
    } else {
      line += std::string(separator) + part;
    }
    separator = between;
  }
  lines.push_back(std::move(line));
  return lines;
}

std::string sparkline(const Terminal& terminal, const std::vector<double>& values, int columns) {
  if (values.empty() || columns <= 0) return {};
  const auto shown = std::min(values.size(), static_cast<std::size_t>(columns));
  std::vector<double> heights(values.end() - static_cast<std::ptrdiff_t>(shown), values.end());
  const bool logarithmic = std::ranges::all_of(heights, [](double v) { return !std::isfinite(v) || v > 0; });
  double least = HUGE_VAL;
  double most = -HUGE_VAL;
  for (double& value : heights) {
    if (!std::isfinite(value)) continue;
    if (logarithmic) value = std::log(value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 8> kAscii = {"_", ".", ".", "-", "-", "=", "=", "#"};
  std::string result;
  for (const double value : heights) {
    const double height = most > least && std::isfinite(value) ? (value - least) / (most - least) : 0.0;
    const auto level = static_cast<std::size_t>(std::lround(height * 7));
    result += (terminal.unicode ? kBlocks : kAscii)[std::min<std::size_t>(level, 7)];
  }
  return result;
}

bool asks_people(bool silent) {
  return !silent && ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
}

std::string ask(const std::string& question) {
  fmt::print("{}", question);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return text::lower(text::trim(answer));
}

bool says_yes(const std::string& question, bool yes_is_usual) {
  const std::string answer = ask(fmt::format("{} [{}] ", question, yes_is_usual ? "Y/n" : "y/N"));
  if (answer.empty()) return yes_is_usual && !std::cin.eof();
  return answer == "y" || answer == "yes";
}

}  // namespace wflow::cli
