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
    const std::size_t escape = escape_length(text);
    const std::size_t length =
        escape > 0 ? escape : character_length(static_cast<unsigned char>(text.front()));
    if (escape == 0) ++columns;
    text.remove_prefix(std::min(length, text.size()));
  }
  return columns;
}

std::string fitted(std::string_view text, int columns, bool pad) {
  std::string result;
  int used = 0;
  bool escapes = false;
  while (!text.empty()) {
    const std::size_t escape = escape_length(text);
    if (escape == 0 && used == columns) {
      // Only escape sequences may follow: the one that ends a colour must not be cut off.
      if (escapes) result += own_escape("0m");
      return result;
    }
    const std::size_t length = std::min(
        escape > 0 ? escape : character_length(static_cast<unsigned char>(text.front())), text.size());
    result += text.substr(0, length);
    text.remove_prefix(length);
    escapes = escapes || escape > 0;
    if (escape == 0) ++used;
  }
  if (pad && used < columns) result.append(static_cast<std::size_t>(columns - used), ' ');
  return result;
}

std::vector<std::string> wrapped(std::string_view text, int columns, int indent) {
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
    while (used + columns_of(word) > columns) {
      const std::string part = fitted(word, columns - used, false);
      line += part;
      word.remove_prefix(part.size());
      end_line();
    }
    line += word;
    used += columns_of(word);
  }
  if (used > indent || lines.empty()) lines.push_back(line);
  return lines;
}

std::string bar(const Terminal& terminal, double fraction, int columns) {
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  std::string result;
  if (!terminal.unicode) {
    const int full = static_cast<int>(fraction * columns);
    return std::string(static_cast<std::size_t>(full), '#') +
           std::string(static_cast<std::size_t>(columns - full), '.');
  }
  constexpr std::array<const char*, 8> kEighths = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(fraction * columns * 8);
  for (int column = 0; column < columns; ++column) {
    const int here = std::clamp(eighths - column * 8, 0, 8);
    result += here == 8 ? "█" : here == 0 ? "░" : kEighths[static_cast<std::size_t>(here)];
  }
  return result;
}

std::string sparkline(const Terminal& terminal, const std::vector<double>& values, int columns) {
  if (values.empty() || columns <= 0) return {};
  const auto shown = std::min(values.size(), static_cast<std::size_t>(columns));
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(shown);
  const auto [least, most] = std::minmax_element(begin, values.end());
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 8> kAscii = {"_", ".", ".", "-", "-", "=", "=", "#"};
  std::string result;
  for (auto at = begin; at != values.end(); ++at) {
    const double height = *most > *least ? (*at - *least) / (*most - *least) : 0.0;
    const auto level = std::isfinite(height) ? static_cast<std::size_t>(std::lround(height * 7)) : 0;
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
