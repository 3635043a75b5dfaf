// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/placeholders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace wflow::cli {

namespace {

constexpr std::string_view kLineColumn = "command";
constexpr std::string_view kNumberColumn = "command_number";
constexpr std::string_view kAnd = " && ";
constexpr std::string_view kOrExit = " || exit\n";
// Around the name of a column, in a text that no shell reads.
constexpr char kColumnBegin = '\x01';
constexpr char kColumnEnd = '\x02';

enum class Reader { shell, none };

struct NamedPart {
  std::string_view suffix;
  ArgumentPart part;
  std::string_view name;
};
constexpr std::array<NamedPart, 5> kParts = {{{"/.", ArgumentPart::stem, "_stem"},
                                              {"//", ArgumentPart::folder, "_folder"},
                                              {".", ArgumentPart::root, "_root"},
                                              {"/", ArgumentPart::name, "_name"},
                                              {"", ArgumentPart::whole, ""}}};

// Quotes a word for the shell. A study's token begins with "$(": a closing quote between both characters
// breaks it.
std::string literal_word(std::string_view text) {
  std::string word;
  for (std::size_t at = text.find("$("); at != std::string_view::npos; at = text.find("$(")) {
    word += text::shell_quote(text.substr(0, at + 1));
    text.remove_prefix(at + 1);
  }
  return word + (text.empty() ? "" : text::shell_quote(text));
}

// Breaks the tokens in a line for the shell with a blank: "$( date)" is no token.
std::string literal_line(std::string_view text) {
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    line += text[i];
    const bool substitution = text[i] == '(' && i > 0 && text[i - 1] == '$';
    if (substitution && i + 1 < text.size() && text[i + 1] != '(') line += ' ';
  }
  return line;
}

class Placeholders {
 public:
  Placeholders(const std::vector<std::string>& names, bool own_table, Reader reader = Reader::shell)
      : names_(names), own_table_(own_table), reader_(reader) {}

  bool any() const { return any_; }
  std::vector<ArgumentColumn> columns() && { return std::move(columns_); }

  template <class Literal>
  std::string replaced(std::string_view text, Literal literal) {
    std::string result;
    while (!text.empty()) {
      const std::size_t open = text.find('{');
      const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
      if (close == std::string_view::npos) break;
      const std::string_view inside = text.substr(open + 1, close - open - 1);
      if (open > 0 && text[open - 1] == '\\' && looks_like_one(inside)) {
        result +=
            literal(std::string(text.substr(0, open - 1)) + std::string(text.substr(open, close - open + 1)));
        text.remove_prefix(close + 1);
        continue;
      }
      const auto token = token_of(inside);
      const bool of_shell = open > 0 && text[open - 1] == '$';  // ${HOME}
      if (!token && !of_shell && looks_like_one(inside)) refuse(inside);
      // Another brace may begin inside.
      const std::size_t end = token ? open : open + 1;
      if (end > 0) result += literal(text.substr(0, end));
      if (token) result += *token;
      text.remove_prefix(token ? close + 1 : end);
    }
    return result + (text.empty() ? "" : literal(text));
  }

  std::string all() {
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < names_.size(); ++i) tokens.push_back(use(i, kParts.back()));
    return text::join(tokens, " ");
  }

 private:
  std::optional<std::string> token_of(std::string_view inside) {
    if (inside == "#") return number();
    if (inside == "%" && reader_ == Reader::shell) return slot();
    if (inside.empty()) return all();
    const auto at = std::find(names_.begin(), names_.end(), inside);
    if (at != names_.end()) return use(static_cast<std::size_t>(at - names_.begin()), kParts.back());
    for (const NamedPart& part : kParts) {
      if (!inside.ends_with(part.suffix) || (!own_table_ && part.part != ArgumentPart::whole)) continue;
      const std::string_view number = inside.substr(0, inside.size() - part.suffix.size());
      if (number.empty() && names_.size() == 1) return use(0, part);
      const auto index = text::to_integer(number);
      if (index && *index >= 1 && static_cast<std::size_t>(*index) <= names_.size())
        return use(static_cast<std::size_t>(*index) - 1, part);
    }
    return std::nullopt;
  }

  // True for a word, a number or a part of an argument: any other text in braces is not a placeholder.
  static bool looks_like_one(std::string_view inside) {
    if (inside.empty() || inside == "#" || inside == "%") return true;
    for (const NamedPart& part : kParts) {
      if (!inside.ends_with(part.suffix)) continue;
      const std::string_view number = inside.substr(0, inside.size() - part.suffix.size());
      if (std::all_of(number.begin(), number.end(), is_digit)) return true;
    }
    const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    return !is_digit(inside.front()) && std::all_of(inside.begin(), inside.end(), in_word);
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  [[noreturn]] void refuse(std::string_view inside) const {
    std::vector<std::string> known = {"{}", "{#}"};
    if (reader_ == Reader::shell) known.emplace_back("{%}");
    for (std::size_t i = 1; i <= names_.size(); ++i)
      known.push_back(own_table_ ? fmt::format("{{{}}}", i) : "{" + names_[i - 1] + "}");
    constexpr std::size_t kMost = 12;
    if (known.size() > kMost) known.resize(kMost);
    const std::string hint = text::suggestion(std::string(inside), names_);
    throw Error(ExitCode::usage,
                fmt::format("{{{0}}} stands for nothing{1}; for the text itself write \\{{{0}}}", inside,
                            hint.empty() ? ": there are " + text::join(known, " ") : hint));
  }

  // The user's table or a design has no column of numbers: the shell adds 1 to the sample's number.
  std::string number() {
    any_ = true;
    if (reader_ == Reader::none) return marked(kNumberPiece);
    if (!own_table_) return "$(($(MERLIN_SAMPLE_ID)+1))";
    add_column(0, ArgumentPart::number, std::string(kNumberColumn));
    return "$(" + std::string(kNumberColumn) + ")";
  }

  // The worker sets the variable.
  std::string slot() {
    any_ = true;
    return "\"$WFLOW_SLOT\"";
  }

  static std::string marked(const std::string& name) { return kColumnBegin + name + kColumnEnd; }

  void add_column(std::size_t argument, ArgumentPart part, const std::string& name) {
    const auto same = [&](const ArgumentColumn& column) { return column.name == name; };
    if (std::none_of(columns_.begin(), columns_.end(), same)) columns_.push_back({argument, part, name});
  }

  std::string use(std::size_t argument, const NamedPart& part) {
    any_ = true;
    const std::string name = names_[argument] + std::string(part.name);
    add_column(argument, part.part, name);
    return reader_ == Reader::shell ? "$(quote:" + name + ")" : marked(name);
  }

  const std::vector<std::string>& names_;
  bool own_table_;
  Reader reader_;
  bool any_ = false;
  std::vector<ArgumentColumn> columns_;
};

std::string enter(const std::string& folder, std::string_view and_then) {
  return "cd " + literal_word(folder) + std::string(and_then);
}

}  // namespace

std::string part_of(std::string_view argument, ArgumentPart part) {
  const std::size_t slash = argument.rfind('/');
  const std::size_t name = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = argument.rfind('.');
  const bool extension = dot != std::string_view::npos && dot > name;
  switch (part) {
    case ArgumentPart::whole:
    case ArgumentPart::number:
      break;
    case ArgumentPart::root:
      return std::string(extension ? argument.substr(0, dot) : argument);
    case ArgumentPart::name:
      return std::string(argument.substr(name));
    case ArgumentPart::folder:
      if (slash == std::string_view::npos) return ".";
      return slash == 0 ? "/" : std::string(argument.substr(0, slash));
    case ArgumentPart::stem:
      return std::string(extension ? argument.substr(name, dot - name) : argument.substr(name));
  }
  return std::string(argument);
}

ExecCommand exec_command(const std::vector<std::string>& words, const std::vector<std::string>& names,
                         bool own_table, const std::string& folder) {
  Placeholders placeholders(names, own_table);
  std::vector<std::string> replaced;
  for (const std::string& word : words) {
    if (words.size() == 1) {
      replaced.push_back(placeholders.replaced(word, literal_line));
    } else {
      replaced.push_back(word.empty() ? "''" : placeholders.replaced(word, literal_word));
    }
  }
  if (!placeholders.any()) replaced.push_back(placeholders.all());
  ExecCommand command;
  // "&&" would bind only to the first command of a list.
  const bool list = words.size() == 1 && words.front().find_first_of("\n;&|") != std::string::npos;
  command.text = enter(folder, list ? kOrExit : kAnd) + text::join(replaced, " ");
  command.columns = std::move(placeholders).columns();
  return command;
}

ExecText exec_text(const std::string& text, const std::vector<std::string>& names, bool own_table) {
  Placeholders placeholders(names, own_table, Reader::none);
  const std::string marked = placeholders.replaced(text, [](std::string_view literal) {
    std::string plain(literal);
    std::erase_if(plain, [](char c) { return c == kColumnBegin || c == kColumnEnd; });
    return plain;
  });
  ExecText result;
  for (std::string_view rest = marked; !rest.empty();) {
    const bool column = rest.front() == kColumnBegin;
    const std::size_t end = std::min(rest.find(column ? kColumnEnd : kColumnBegin), rest.size());
    const std::size_t begin = column ? 1 : 0;
    result.pieces.push_back({std::string(rest.substr(begin, end - begin)), column});
    rest.remove_prefix(std::min(end + begin, rest.size()));
  }
  result.columns = std::move(placeholders).columns();
  return result;
}

std::string without_folder(std::string_view text, const std::string& folder) {
  for (const std::string_view behind : {kAnd, kOrExit}) {
    const std::string before = enter(folder, behind);
    if (text.starts_with(before)) return std::string(text.substr(before.size()));
  }
  return std::string(text);
}

ExecCommand exec_lines(const std::string& folder) {
  ExecCommand command;
  command.text = enter(folder, kOrExit) + "$(" + std::string(kLineColumn) + ")";
  command.columns = {{0, ArgumentPart::whole, std::string(kLineColumn)}};
  return command;
}

std::vector<std::string> shell_operators(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 11> kOperators = {"|",  "||", "&&", ";",    "&",  ">",
                                                           ">>", "<",  "2>", "2>&1", "2>>"};
  std::vector<std::string> found;
  for (const std::string& word : words) {
    if (words.size() > 1 && std::find(kOperators.begin(), kOperators.end(), word) != kOperators.end())
      found.push_back(word);
  }
  return found;
}

}  // namespace wflow::cli
