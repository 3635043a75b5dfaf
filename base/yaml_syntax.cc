// SPDX-License-Identifier: Apache-2.0
#include "base/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"

namespace wflow::yaml {

namespace {

constexpr std::size_t kShownText = 60;  // bytes of a line of the file in a message

std::size_t indent_of(std::string_view line) {
  const std::size_t at = line.find_first_not_of(" \t");
  return at == std::string_view::npos ? line.size() : at;
}

bool says_nothing(std::string_view line) {
  const std::string_view content = text::trim(line);
  return content.empty() || content.front() == '#';
}

bool blank_at(std::string_view line, std::size_t at) {
  return at >= line.size() || line[at] == ' ' || line[at] == '\t';
}

// The begin of the entry behind "- - ".
std::size_t entry_of(std::string_view line) {
  std::size_t at = indent_of(line);
  while (at < line.size() && line[at] == '-' && blank_at(line, at + 1))
    at = std::min(line.size(), at + 1 + indent_of(line.substr(at + 1)));
  return at;
}

// The place of the ':' behind a plain key: 0 if there is none.
std::size_t colon_of(std::string_view line, std::size_t from) {
  for (std::size_t at = from; at < line.size(); ++at) {
    if (line[at] == ':' && blank_at(line, at + 1)) return at;
    if (line[at] == '"' || line[at] == '\'' || line[at] == '[' || line[at] == '{') return 0;
  }
  return 0;
}

bool is_entry(std::string_view line) {
  const std::size_t at = indent_of(line);
  const bool item = at < line.size() && line[at] == '-' && blank_at(line, at + 1);
  return item || colon_of(line, at) > at;
}

std::string quoted_line(std::string_view line) {
  std::string_view content = text::trim(line);
  if (content.size() <= kShownText) return fmt::format("'{}'", content);
  std::size_t end = kShownText;
  while (end > 0 && (static_cast<unsigned char>(content[end]) & 0xc0U) == 0x80U) --end;  // whole characters
  return fmt::format("'{}...'", content.substr(0, end));
}

Mark mark_at(std::size_t line, std::size_t column) {
  return {static_cast<int>(line) + 1, static_cast<int>(column) + 1};
}

bool is_after(const Mark& one, const Mark& other) {
  return std::pair(one.line, one.column) > std::pair(other.line, other.column);
}

// Follows brackets, quotes and blocks of text (| >) up to the first wrong one.
class BracketScanner {
 public:
  // `guess`: takes a line that looks like the author's next entry as a sign of an open bracket; valid files
  // have such lines in texts.
  BracketScanner(const std::vector<std::string>& lines, bool guess) : lines_(lines), guess_(guess) {}

  std::optional<SyntaxError> find() {
    for (number_ = 0; number_ < lines_.size() && !error_; ++number_) scan_line();
    if (!error_ && !open_.empty()) report_unclosed();
    return error_;
  }

 private:
  struct Open {
    char bracket;  // [ { " '
    Mark mark;
    std::size_t indent;  // indentation of its line
  };

  static bool is_quote(char c) { return c == '"' || c == '\''; }
  bool quoting() const { return !open_.empty() && is_quote(open_.back().bracket); }

  void scan_line() {
    const std::string_view line = lines_[number_];
    if (block_ && (says_nothing(line) || indent_of(line) > *block_)) return;
    block_.reset();
    if (says_nothing(line) && !quoting()) return;
    const std::size_t indent = indent_of(line);
    // The author has begun the next entry.
    if (guess_ && !open_.empty() && indent <= open_.back().indent && is_entry(line)) return report_unclosed();
    const std::size_t tab = line.substr(0, indent).find('\t');
    if (open_.empty() && tab != std::string_view::npos) {
      return report(mark_at(number_, tab),
                    "a tab stands in the indentation; YAML takes spaces only (a tab has no fixed width)");
    }
    start_ = true;
    closed_ = 0;
    for (at_ = 0; at_ < line.size() && !error_; ++at_) {
      if (quoting()) {
        scan_quoted(line);
      } else if (!scan_plain(line)) {
        return;
      }
    }
  }

  void scan_quoted(std::string_view line) {
    const char quote = open_.back().bracket;
    if (quote == '"' && line[at_] == '\\') {
      ++at_;
    } else if (line[at_] == quote) {
      if (quote == '\'' && at_ + 1 < line.size() && line[at_ + 1] == '\'') {
        ++at_;
      } else {
        close(line);
      }
    }
  }

  // False if the rest of the line has no content.
  bool scan_plain(std::string_view line) {
    const char c = line[at_];
    if (c == ' ' || c == '\t') return true;
    if (c == '#' && (at_ == 0 || blank_at(line, at_ - 1))) return false;
    const bool flow = !open_.empty();
    if ((c == '[' || c == '{') && flow && !start_) {
      report_inside(c);
    } else if (start_ && (is_quote(c) || c == '[' || c == '{')) {
      open_.push_back({c, mark_at(number_, at_), indent_of(line)});
      start_ = c == '[' || c == '{';
    } else if ((c == ']' || c == '}') && (flow || start_)) {
      close_bracket(c, line);
    } else if (c == ',' && flow) {
      start_ = true;
      closed_ = 0;
    } else if (c == ':' && (blank_at(line, at_ + 1) || (flow && closed_ != 0))) {
      start_ = true;
      closed_ = 0;
      if (!flow && opens_block(line.substr(at_ + 1))) block_ = entry_of(line);
    } else if (!((c == '-' || c == '?') && start_ && blank_at(line, at_ + 1))) {
      start_ = false;
    }
    return !block_;
  }

  static bool opens_block(std::string_view rest) {
    const std::string_view value = text::trim(rest);
    return !value.empty() && (value.front() == '|' || value.front() == '>');
  }

  void close_bracket(char c, std::string_view line) {
    if (open_.empty()) return report(mark_at(number_, at_), fmt::format("this '{}' closes nothing", c));
    const char expected = open_.back().bracket == '[' ? ']' : '}';
    if (c == expected) return close(line);
    report(mark_at(number_, at_), fmt::format("this '{}' does not close {}; '{}' is expected first", c,
                                              described(open_.back()), expected));
  }

  // The innermost bracket or quote ends here; outside of all brackets only a ':' may follow.
  void close(std::string_view line) {
    const Open last = open_.back();
    open_.pop_back();
    start_ = false;
    closed_ = line[at_];
    if (!open_.empty()) return;
    const std::size_t next = line.find_first_not_of(" \t\r", at_ + 1);
    if (next == std::string_view::npos || line[next] == ':' || (line[next] == '#' && next > at_ + 1)) return;
    const char* advice = last.bracket == '\''  ? "write '' for a ' inside of it"
                         : last.bracket == '"' ? "write \\\" for a \" inside of it, or put all of it in '...'"
                                               : "put all of it in quotes if it is text";
    report(mark_at(number_, next),
           fmt::format("more text stands behind the end of {}; {}", described(last), advice));
  }

  void report_inside(char c) {
    report(mark_at(number_, at_),
           closed_ != 0
               ? fmt::format("a ',' is missing before this '{}'", c)
               : fmt::format("a value within [...] or {{...}} can hold no '{}'; put the value in quotes", c));
  }

  void report_unclosed() {
    const Open& open = open_.back();
    report(open.mark, fmt::format("{} is not closed", described(open)));
  }

  static std::string described(const Open& open) {
    const char* what = open.bracket == '[' ? "list" : open.bracket == '{' ? "mapping" : "text";
    return fmt::format("the {} that begins in line {} with {}", what, open.mark.line, open.bracket);
  }

  void report(const Mark& mark, std::string message) { error_ = SyntaxError{mark, std::move(message)}; }

  const std::vector<std::string>& lines_;
  bool guess_;
  std::size_t number_ = 0;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  std::optional<std::size_t> block_;  // inside a block of text below a key of this indentation
  bool start_ = true;                 // a value or key may begin here
  char closed_ = 0;                   // the last bracket or quote that was closed in this value
  std::optional<SyntaxError> error_;
};

// Lines around the place where the parser stopped.
class Surroundings {
 public:
  Surroundings(const std::vector<std::string>& lines, const Mark& noticed)
      : lines_(lines), noticed_(noticed), here_(std::max(noticed.line, 1) - 1) {
    here_ = std::min(here_, lines.size() - 1);
    before_ = content_before(here_);
  }

  SyntaxError explain(std::string_view words) const {
    if (words == "illegal map value") return explain_colon();
    if (words == "end of map not found" || words == "end of sequence not found") return explain_indentation();
    if (words.starts_with("illegal tab"))
      return {noticed_, "a tab stands in the indentation; YAML takes spaces only (a tab has no fixed width)"};
    if (words == "unknown token") {
      const std::size_t column = static_cast<std::size_t>(std::max(noticed_.column, 1)) - 1;
      const std::string_view line = lines_[here_];
      const std::string character(column < line.size() ? line.substr(column, 1) : "");
      return {noticed_, fmt::format("'{}' can't begin a value; put the value in quotes", character)};
    }
    if (words == "the referenced anchor is not defined") {
      return {noticed_,
              "a value that begins with '*' repeats the one with that '&' name, and there is none; put it in "
              "quotes if it is text"};
    }
    constexpr std::string_view kEscape = "unknown escape character: ";
    if (words.starts_with(kEscape)) {
      return {noticed_,
              fmt::format("'\\{0}' means nothing in \"...\"; write '\\\\{0}', or put the text in '...'",
                          words.substr(kEscape.size()))};
    }
    return {noticed_, fmt::format("this is not valid YAML: {}{}", words, line_before())};
  }

 private:
  std::optional<std::size_t> content_before(std::size_t line) const {
    while (line > 0) {
      if (!says_nothing(lines_[--line])) return line;
    }
    return std::nullopt;
  }

  std::string line_before() const {
    return before_ ? fmt::format(" (the line before: {})", quoted_line(lines_[*before_])) : "";
  }

  // Checks for a ':' at a place that allows no key.
  SyntaxError explain_colon() const {
    const std::string_view line = lines_[here_];
    const std::size_t begin = entry_of(line);
    const std::size_t first = colon_of(line, begin);
    if (first > 0 && static_cast<int>(first) + 1 < noticed_.column)
      return {noticed_, "a value can hold no ': '; put the value in quotes"};
    if (!before_) return {noticed_, "this ':' has no key"};
    const std::string_view before = lines_[*before_];
    const std::size_t entry = entry_of(before);
    const std::string shown = quoted_line(before);
    const Mark there = mark_at(*before_, entry);
    if (before[entry] == '-' && entry + 1 < before.size() && before[entry + 1] != '-')
      return {there, fmt::format("a space is missing behind the '-' of {}", shown)};
    if (colon_of(before, entry) == 0) return explain_no_key(before, there);
    return {mark_at(here_, indent_of(line)),
            fmt::format("this line is indented more than {} in line {}, which has a value already; indent "
                        "both alike",
                        shown, *before_ + 1)};
  }

  SyntaxError explain_no_key(std::string_view before, const Mark& there) const {
    const std::string shown = quoted_line(before);
    if (const auto above = content_before(*before_); above) {
      const std::string_view owner = text::trim(lines_[*above]);
      if (owner.ends_with(": |") || owner.ends_with(": >")) {
        return {there, fmt::format("the text below {} in line {} must be indented more than it",
                                   quoted_line(owner), *above + 1)};
      }
    }
    if (before.find(':') != std::string_view::npos)
      return {there, fmt::format("a space is missing behind the ':' of {}", shown)};
    return {there,
            fmt::format("{} is no 'key: value'; a ':' is missing, or the line belongs to another", shown)};
  }

  // Checks for a line that belongs to no line above it.
  SyntaxError explain_indentation() const {
    const std::string_view line = lines_[here_];
    const std::size_t indent = indent_of(line);
    const Mark mark = mark_at(here_, indent);
    const bool item = entry_of(line) > indent;
    for (auto above = before_; above; above = content_before(*above)) {
      const std::string_view other = lines_[*above];
      if (indent_of(other) > indent) continue;
      if (indent_of(other) < indent) break;
      const bool other_item = entry_of(other) > indent;
      if (item && !other_item)
        return {mark, fmt::format("an entry of a list ('- ') can't stand beside {} in line {}",
                                  quoted_line(other), *above + 1)};
      if (!item && other_item) {
        return {mark, fmt::format("this line is no entry of the list that {} in line {} belongs to; begin it "
                                  "with '- ', or indent it as that entry's keys",
                                  quoted_line(other), *above + 1)};
      }
      break;
    }
    return {mark, fmt::format("no line above, to which this one could belong, is indented by {} space{}{}",
                              indent, indent == 1 ? "" : "s", line_before())};
  }

  const std::vector<std::string>& lines_;
  Mark noticed_;
  std::size_t here_;
  std::optional<std::size_t> before_;  // the last line with content before it
};

}  // namespace

SyntaxError explain_syntax(std::string_view text, const Mark& noticed, std::string_view words) {
  const std::vector<std::string> lines = text::split(text, '\n');
  // An error behind the place where the parser stopped is not the reason why it stopped.
  const auto bracket = BracketScanner(lines, true).find();
  if (bracket && !is_after(bracket->mark, noticed)) return *bracket;
  return Surroundings(lines, noticed).explain(words);
}

std::optional<SyntaxError> find_open_quote(std::string_view text, const Mark& quote) {
  const std::vector<std::string> lines = text::split(text, '\n');
  const auto found = BracketScanner(lines, false).find();
  const bool same = found && found->mark.line == quote.line && found->mark.column == quote.column;
  return same ? found : std::nullopt;
}

}  // namespace wflow::yaml
