// SPDX-License-Identifier: Apache-2.0
#include "base/config_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace wflow::config {
namespace {

// Ranges that only keep a number from overflowing say nothing to a user.
constexpr std::int64_t kLargestShown = 1'000'000;
constexpr double kLargestRealShown = 1e6;

Json token() {
  return {{"$ref", "#/$defs/token"}};
}

Json or_token(Json schema) {
  return {{"anyOf", {std::move(schema), token()}}};
}

template <typename Values, typename Emit>
yaml::Node list(const Values& values, const Emit& emit) {
  std::vector<yaml::Node> nodes;
  for (const auto& value : values) nodes.push_back(emit(value));
  return yaml::sequence(std::move(nodes));
}

}  // namespace

Json text_schema() {
  return {{"type", {"string", "number", "boolean"}}};
}

Json boolean_schema() {
  return any_of({{{"type", "boolean"}}, {{"enum", {"yes", "no", "on", "off"}}}, token()});
}

Json integer_schema(std::int64_t least, std::int64_t most) {
  Json number = {{"type", "integer"}, {"minimum", least}};
  if (most <= kLargestShown) number["maximum"] = most;
  return or_token(std::move(number));
}

Json number_schema(double least, double most) {
  Json number = {{"type", "number"}};
  if (least >= -kLargestRealShown) number["minimum"] = least;
  if (most <= kLargestRealShown) number["maximum"] = most;
  return or_token(std::move(number));
}

Json choice_schema(std::span<const std::string> choices) {
  return or_token({{"enum", std::vector<std::string>(choices.begin(), choices.end())}});
}

Json seconds_schema() {
  Json schema = any_of({{{"type", "number"}, {"minimum", 0}}, {{"type", "string"}}});
  schema["examples"] = {"90 s", "10 min", "1.5 h", "01:30:00"};
  return schema;
}

Json bytes_schema() {
  Json schema = any_of({{{"type", "integer"}, {"minimum", 0}}, {{"type", "string"}}});
  schema["examples"] = Json::array({"512 MiB"});
  return schema;
}

Json one_or_list_schema(const Json& item) {
  return any_of({item, {{"type", "array"}, {"items", item}}});
}

Json any_of(std::vector<Json> forms) {
  Json all = Json::array();
  for (Json& form : forms) {
    if (form.size() == 1 && form.contains("anyOf")) {
      for (Json& inner : form["anyOf"]) all.push_back(std::move(inner));
    } else {
      all.push_back(std::move(form));
    }
  }
  return {{"anyOf", std::move(all)}};
}

Json or_null(Json block) {
  block["type"] = {"object", "null"};
  return block;
}

yaml::Node emit_integer(std::int64_t value) {
  return yaml::scalar(std::to_string(value));
}
yaml::Node emit_real(double value) {
  return yaml::scalar(wflow::text::from_real(value));
}
yaml::Node emit_boolean(bool value) {
  return yaml::scalar(value ? "true" : "false");
}
yaml::Node emit_texts(const std::vector<std::string>& values) {
  return list(values, yaml::quoted);
}
yaml::Node emit_reals(const std::vector<double>& values) {
  return list(values, emit_real);
}

bool are_equal(const yaml::Node& one, const yaml::Node& other) {
  return one.kind == other.kind && one.text == other.text && one.quoted == other.quoted &&
         std::ranges::equal(one.items, other.items, are_equal) &&
         std::ranges::equal(one.entries, other.entries, [](const auto& a, const auto& b) {
           return are_equal(a.first, b.first) && are_equal(a.second, b.second);
         });
}

std::string markdown(std::span<const Row> rows) {
  std::string table = "| key | default | meaning |\n|---|---|---|\n";
  for (const Row& row : rows) table += fmt::format("| `{}` | {} | {} |\n", row.key, row.usual, row.meaning);
  return table;
}

std::string plain_text(std::string_view markdown) {
  std::string plain;
  for (std::size_t at = 0; at < markdown.size(); ++at) {
    const std::size_t close = markdown[at] == '[' ? markdown.find("](", at) : std::string_view::npos;
    const std::size_t end = close == std::string_view::npos ? close : markdown.find(')', close);
    if (end != std::string_view::npos) {
      plain += plain_text(markdown.substr(at + 1, close - at - 1));
      at = end;
    } else if (markdown[at] != '`' && markdown[at] != '\\') {
      plain += markdown[at];
    }
  }
  return plain;
}

yaml::Node block_of(const yaml::Node* node, std::string_view word) {
  if (node == nullptr) return yaml::map({});
  if (word.empty() || !node->is_scalar()) return *node;
  yaml::Node block = yaml::map({{std::string(word), *node}});
  block.mark = node->mark;
  return block;
}

}  // namespace wflow::config
