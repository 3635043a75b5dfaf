// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

namespace wflow::text {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int cost = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

namespace {

// A longer text is not a mistyped word, but a text in the place of a name.
constexpr std::size_t kLongestWord = 200;

}  // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > kLongestWord) return std::nullopt;
  const std::string wanted = lower(word);
  // A third of the word's length in edits: enough for typing errors, too little for other words.
  int best = std::max<int>(1, static_cast<int>(word.size()) / 3) + 1;
  std::optional<std::string> found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 2 * kLongestWord) continue;
    const int distance = edit_distance(wanted, lower(candidate));
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const auto found = nearest(word, candidates);
  return found ? "; did you mean '" + *found + "'?" : std::string();
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool starts_with_any(std::string_view text, std::span<const std::string> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& p) { return text.starts_with(p); });
}

namespace {
template <typename Number>
std::optional<Number> convert(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}
}  // namespace

std::optional<std::int64_t> to_integer(std::string_view text) {
  return convert<std::int64_t>(text);
}
std::optional<double> to_real(std::string_view text) {
  return convert<double>(text);
}

std::string from_real(double value) {
  return fmt::format("{}", value);
}

std::string format_count(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 48 * 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string shell_quote(std::string_view word) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || (c && std::strchr("_-./=:,+@%", c)); };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string tail(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  text.remove_prefix(text.size() - limit);
  const std::size_t line = text.find('\n');
  if (line != std::string_view::npos && line + 1 < text.size()) text.remove_prefix(line + 1);
  return std::string(text);
}

}  // namespace wflow::text

namespace wflow {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the well-formed UTF-8 character at the beginning (RFC 3629), 0 if there is none.
std::size_t character_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : static_cast<unsigned char>(0);
  };
  const unsigned lead = at(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xf0 && at(1) < 0x90);
  const bool surrogate = lead == 0xed && at(1) > 0x9f;
  const bool too_great = lead == 0xf4 && at(1) > 0x8f;
  return overlong || surrogate || too_great ? 0 : length;
}

// "\x1b[31m", "\x1b[K": 0 if the text does not begin with one.
std::size_t escape_length(std::string_view bytes) {
  if (!bytes.starts_with("\x1b[")) return 0;
  const std::size_t end = bytes.find_first_not_of("0123456789;?", 2);
  return end == std::string_view::npos ? bytes.size() : end + 1;
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    const std::size_t escape = escape_length(bytes);
    const std::size_t length = escape > 0 ? escape : character_length(bytes);
    if (length == 0) {
      text += kReplacement;
    } else if (escape == 0) {
      const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
      control ? text.push_back('?') : void(text.append(bytes.substr(0, length)));
    }
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text;
}

namespace {

// C1 controls, and characters that change the direction of text: U+0080 to U+009F, U+200E, U+200F, U+202A to
// U+202E, U+2066 to U+2069.
std::string_view name_of_hidden(std::string_view character) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kHidden = {
      {{"\xe2\x80\x8e", "<U+200E>"},
       {"\xe2\x80\x8f", "<U+200F>"},
       {"\xe2\x80\xaa", "<U+202A>"},
       {"\xe2\x80\xab", "<U+202B>"},
       {"\xe2\x80\xac", "<U+202C>"},
       {"\xe2\x80\xad", "<U+202D>"},
       {"\xe2\x80\xae", "<U+202E>"},
       {"\xe2\x81\xa6", "<U+2066>"},
       {"\xe2\x81\xa7", "<U+2067>"},
       {"\xe2\x81\xa8", "<U+2068>"},
       {"\xe2\x81\xa9", "<U+2069>"}}};
  const auto found = std::find_if(kHidden.begin(), kHidden.end(),
                                  [&](const auto& hidden) { return hidden.first == character; });
  return found == kHidden.end() ? std::string_view() : found->second;
}

void append_hex(std::string& text, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  text.append({kDigits[byte >> 4U], kDigits[byte & 0xfU]});
}

}  // namespace

std::string visible(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    const std::size_t length = character_length(bytes);
    const std::string_view character = bytes.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) {
      text += '<';
      append_hex(text, first);
      text += '>';
    } else if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f) {
      text.append({'^', static_cast<char>(first ^ 0x40U)});
    } else if (first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0) {
      text += "<U+00";
      append_hex(text, static_cast<unsigned char>(character[1]));
      text += '>';
    } else if (const std::string_view name = name_of_hidden(character); !name.empty()) {
      text += name;
    } else {
      text += character;
    }
    bytes.remove_prefix(character.size());
  }
  return text;
}

std::size_t cut_character(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(bytes.size(), 3); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0U) == 0x80) continue;
    const std::size_t length = byte < 0xc2 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

namespace {

constexpr std::string_view kEscape = "\x1b[";

// The state of `stdout`. stdio calls back with a pointer to it, also when the process exits.
struct Output {
  std::FILE* was = nullptr;
  VisibleText text{""};
};

Output& output() {
  static Output the_output;
  return the_output;
}

bool write_to_terminal(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (put < 0 && errno == EAGAIN) {
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (put < 0 && errno != EINTR) {
      return false;
    }
    if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

ssize_t write_visible(void* cookie, const char* bytes, std::size_t count) {
  return write_to_terminal(static_cast<Output*>(cookie)->text.take({bytes, count}))
             ? static_cast<ssize_t>(count)
             : 0;
}

}  // namespace

void open_output() {
  Output& all = output();
  if (::isatty(STDOUT_FILENO) == 0 || all.was != nullptr) return;
  std::FILE* stream = ::fopencookie(&all, "w", {nullptr, write_visible, nullptr, nullptr});
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  all.text = VisibleText(fmt::format("{:08};", std::random_device{}() % 100'000'000));
  all.was = std::exchange(stdout, stream);
  std::atexit(open_raw_output);  // before `all` is destroyed; stdio writes its buffers later
}

void open_raw_output() {
  Output& all = output();
  if (all.was == nullptr) return;
  std::fflush(stdout);
  stdout = std::exchange(all.was, nullptr);
  all.text = VisibleText("");
}

std::string own_escape(std::string_view code) {
  return std::string(kEscape) + output().text.mark() + std::string(code);
}

std::string VisibleText::take(std::string_view bytes) {
  std::string text = std::exchange(kept_, {});
  text += bytes;
  const std::string own = std::string(kEscape) + mark_;
  std::string shown;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t at = std::min(rest.find('\x1b'), rest.size());
    std::string_view plain = rest.substr(0, at);
    if (at == rest.size()) {
      const std::size_t cut = cut_character(plain);
      kept_ = plain.substr(plain.size() - cut);
      plain.remove_suffix(cut);
    }
    shown += visible(plain);
    rest.remove_prefix(at);
    if (rest.empty()) break;
    const bool is_own = rest.starts_with(own);
    const std::size_t end = is_own ? rest.find_first_not_of("0123456789;", own.size()) : 0;
    if (end == std::string_view::npos || (!is_own && own.starts_with(rest))) {
      kept_ = rest;  // the end of the sequence comes with the next bytes
      break;
    }
    if (is_own) {
      shown.append(kEscape).append(rest.substr(own.size(), end + 1 - own.size()));
      rest.remove_prefix(end + 1);
    } else {
      shown += visible(rest.substr(0, 1));
      rest.remove_prefix(1);
    }
  }
  return shown;
}

}  // namespace wflow
