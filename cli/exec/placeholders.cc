// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/placeholders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"

namespace wflow::cli {

namespace {

constexpr std::string_view kLineColumn = "command";
constexpr std::string_view kAnd = " && ";
constexpr std::string_view kOrExit = " || exit\n";

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

// A study's token begins with "$(": in a quoted word the quotes are closed in between.
std::string literal_word(std::string_view text) {
  std::string word;
  for (std::size_t at = text.find("$("); at != std::string_view::npos; at = text.find("$(")) {
    word += text::shell_quote(text.substr(0, at + 1));
    text.remove_prefix(at + 1);
  }
  return word + (text.empty() ? "" : text::shell_quote(text));
}

// In a line for the shell a blank does: "$( date)" is no token.
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
  Placeholders(const std::vector<std::string>& names, bool parts) : names_(names), parts_(parts) {}

  bool any() const { return any_; }
  std::vector<ArgumentColumn> columns() && { return std::move(columns_); }

  template <class Literal>
  std::string replaced(std::string_view text, Literal literal) {
    std::string result;
    while (!text.empty()) {
      const std::size_t open = text.find('{');
      const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
      if (close == std::string_view::npos) break;
      const auto token = token_of(text.substr(open + 1, close - open - 1));
      // Another brace may begin within.
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
    if (inside == "#") {
      any_ = true;
      return "$(MERLIN_SAMPLE_ID)";
    }
    if (inside.empty()) return all();
    const auto at = std::find(names_.begin(), names_.end(), inside);
    if (at != names_.end()) return use(static_cast<std::size_t>(at - names_.begin()), kParts.back());
    for (const NamedPart& part : kParts) {
      if (!inside.ends_with(part.suffix) || (!parts_ && part.part != ArgumentPart::whole)) continue;
      const std::string_view number = inside.substr(0, inside.size() - part.suffix.size());
      if (number.empty() && names_.size() == 1) return use(0, part);
      const auto index = text::to_integer(number);
      if (index && *index >= 1 && static_cast<std::size_t>(*index) <= names_.size())
        return use(static_cast<std::size_t>(*index) - 1, part);
    }
    return std::nullopt;
  }

  std::string use(std::size_t argument, const NamedPart& part) {
    any_ = true;
    const std::string name = names_[argument] + std::string(part.name);
    const auto same = [&](const ArgumentColumn& column) { return column.name == name; };
    if (std::none_of(columns_.begin(), columns_.end(), same)) columns_.push_back({argument, part.part, name});
    return "$(quote:" + name + ")";
  }

  const std::vector<std::string>& names_;
  bool parts_;
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
                         bool parts, const std::string& folder) {
  Placeholders placeholders(names, parts);
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
  // "&&" would bind to the first command of a list alone.
  const bool list = words.size() == 1 && words.front().find_first_of("\n;&|") != std::string::npos;
  command.text = enter(folder, list ? kOrExit : kAnd) + text::join(replaced, " ");
  command.columns = std::move(placeholders).columns();
  return command;
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
