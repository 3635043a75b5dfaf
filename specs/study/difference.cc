// SPDX-License-Identifier: Apache-2.0
#include "specs/study/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace wflow::specs {

namespace {

constexpr std::size_t kLongestLine = 100;

// "[0.1, 2]" where that is a line.
std::optional<std::string> in_a_line(const yaml::Node& list) {
  if (!list.is_sequence()) return std::nullopt;
  std::vector<std::string> items;
  for (const yaml::Node& item : list.items) {
    if (!item.is_scalar()) return std::nullopt;
    items.push_back(item.text);
  }
  const std::string text = "[" + text::join(items, ", ") + "]";
  if (text.size() > kLongestLine || text.find('\n') != std::string::npos) return std::nullopt;
  return text;
}

std::string written(const yaml::Node& node) {
  if (node.is_scalar()) return node.text;
  if (node.is_null()) return {};
  if (const auto line = in_a_line(node)) return *line;
  std::string text = yaml::emit(node);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

bool all_named(const yaml::Node& list) {
  return list.is_sequence() && std::all_of(list.items.begin(), list.items.end(), [](const yaml::Node& item) {
           const yaml::Node* name = item.is_map() ? item.find("name") : nullptr;
           return name != nullptr && name->is_scalar();
         });
}

const yaml::Node* named(const yaml::Node& list, const std::string& name) {
  for (const yaml::Node& item : list.items) {
    if (item.find("name")->text == name) return &item;
  }
  return nullptr;
}

class KeyComparing {
 public:
  void compare(const std::string& key, const yaml::Node* from, const yaml::Node* to) {
    if (from == nullptr && to == nullptr) return;
    if (from != nullptr && to != nullptr) {
      if (from->is_map() && to->is_map()) return compare_maps(key, *from, *to);
      if (all_named(*from) && all_named(*to)) return compare_lists(key, *from, *to);
      if (from->kind == to->kind && written(*from) == written(*to)) return;
    }
    const auto text = [](const yaml::Node* node) {
      return node == nullptr ? std::nullopt : std::optional<std::string>(written(*node));
    };
    changes.push_back({key, text(from), text(to)});
  }

  std::vector<KeyChange> changes;

 private:
  static std::string below(const std::string& key, const std::string& name) {
    return key.empty() ? name : key + "." + name;
  }
  void compare_maps(const std::string& key, const yaml::Node& from, const yaml::Node& to) {
    for (const auto& [name, value] : from.entries) compare(below(key, name.text), &value, to.find(name.text));
    for (const auto& [name, value] : to.entries) {
      if (from.find(name.text) == nullptr) compare(below(key, name.text), nullptr, &value);
    }
  }
  void compare_lists(const std::string& key, const yaml::Node& from, const yaml::Node& to) {
    for (const yaml::Node& item : from.items) {
      const std::string name = item.find("name")->text;
      compare(below(key, name), &item, named(to, name));
    }
    for (const yaml::Node& item : to.items) {
      const std::string name = item.find("name")->text;
      if (named(from, name) == nullptr) compare(below(key, name), nullptr, &item);
    }
  }
};

void add_lines(std::vector<std::string>& lines, const char* sign, const std::vector<std::string>& text,
               const std::vector<std::string>& other) {
  const std::multiset<std::string> there(other.begin(), other.end());
  for (const std::string& line : text) {
    if (!there.contains(line)) lines.push_back(fmt::format("  {} {}", sign, line));
  }
}

}  // namespace

std::vector<KeyChange> differences(const Study& from, const Study& to) {
  KeyComparing comparing;
  comparing.compare("", &from.original, &to.original);
  const std::string was = text::join(from.options.variables, " ");
  const std::string is = text::join(to.options.variables, " ");
  if (was != is) comparing.changes.push_back({"--vars", was, is});
  if (from.options.samples_file != to.options.samples_file)
    comparing.changes.push_back({"--samplesfile", from.options.samples_file, to.options.samples_file});
  return std::move(comparing.changes);
}

std::vector<std::string> lines_of(const KeyChange& change) {
  const std::string before = change.before.value_or("");
  const std::string after = change.after.value_or("");
  const bool short_texts = before.find('\n') == std::string::npos && after.find('\n') == std::string::npos;
  if (short_texts) {
    if (!change.before) return {fmt::format("{}: {} (new)", change.key, after)};
    if (!change.after) return {fmt::format("{}: {} (removed)", change.key, before)};
    return {fmt::format("{}: {} -> {}", change.key, before, after)};
  }
  std::vector<std::string> lines = {fmt::format("{}:{}", change.key,
                                                !change.before  ? " (new)"
                                                : !change.after ? " (removed)"
                                                                : "")};
  const auto was = text::split(before, '\n');
  const auto is = text::split(after, '\n');
  if (change.before) add_lines(lines, "-", was, is);
  if (change.after) add_lines(lines, "+", is, was);
  return lines;
}

}  // namespace wflow::specs
