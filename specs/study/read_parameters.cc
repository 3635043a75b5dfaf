// SPDX-License-Identifier: Apache-2.0
// global.parameters: lists of equal length, taken row by row. wflow also has parameters:, the same, or the
// cross product of the entries under product:.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/config_table.h"
#include "base/text.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

constexpr std::size_t kMaxCombinations = 200'000;

std::string with_value(std::string label, const std::string& value) {
  for (std::size_t at = label.find("%%"); at != std::string::npos; at = label.find("%%", at + value.size())) {
    label.replace(at, 2, value);
  }
  return label;
}

std::vector<std::string> texts(const yaml::Node& node) {
  std::vector<std::string> list;
  if (!node.is_sequence()) return {value_text(node)};
  for (const yaml::Node& item : node.items) list.push_back(value_text(item));
  return list;
}

std::vector<bool> quotes(const yaml::Node& node) {
  if (!node.is_sequence()) return {node.quoted};
  std::vector<bool> list;
  for (const yaml::Node& item : node.items) list.push_back(item.quoted);
  return list;
}

config::Json value_list() {
  return {{"type", "array"}, {"minItems", 1}};
}

// Two values with one label would share a directory.
void check_labels(Reading& reading, const Parameter& parameter, const yaml::Mark& mark) {
  std::map<std::string, std::string> seen;
  for (std::size_t i = 0; i < parameter.values.size(); ++i) {
    const auto [at, fresh] = seen.emplace(clean_path(parameter.labels[i]), parameter.values[i]);
    if (fresh || at->second == parameter.values[i]) continue;
    reading.diagnostics.unknown_key(
        mark, fmt::format("the values '{}' and '{}' of the parameter '{}' have the same label '{}'; "
                          "put %% (the value) into the label",
                          at->second, parameter.values[i], parameter.name, at->first));
    return;
  }
}

void read_values(yaml::MapReader& reader, std::string_view key, Parameter& parameter) {
  const yaml::Node* values = reader.find(key);
  if (values == nullptr) return;
  parameter.values = texts(*values);
  parameter.quoted = quotes(*values);
}

void read_parameter_labels(yaml::MapReader& reader, std::string_view key, Parameter& parameter) {
  const yaml::Node* label = reader.find(key);
  if (label == nullptr || !label->is_sequence()) {
    const std::string pattern = label == nullptr ? parameter.name + ".%%" : value_text(*label);
    for (const std::string& value : parameter.values) parameter.labels.push_back(with_value(pattern, value));
    return;
  }
  parameter.labels = texts(*label);
  if (parameter.labels.size() == parameter.values.size()) return;
  reader.diagnostics().error(label->mark, fmt::format("{} has {} values and {} labels", reader.where(),
                                                      parameter.values.size(), parameter.labels.size()));
  parameter.labels.resize(parameter.values.size());
}

const config::Table<Parameter>& parameter_table() {
  static const config::Table<Parameter> table(
      "a parameter",
      {config::custom<Parameter>("values", config::any_of({value_list(), config::text_schema()}),
                                 "the values, one for each combination", read_values)
           .required(),
       config::custom<Parameter>(
           "label", config::one_or_list_schema(config::text_schema()),
           "the name in directories: `%%` in it is the value. Or a list, a label for each value",
           read_parameter_labels)
           .usually("`NAME.%%`"),
       config::text("name", &Parameter::title, "the text that `$(NAME.name)` stands for")
           .usually("the parameter's name")});
  return table;
}

Parameter read_parameter(Reading& reading, const yaml::Node& key, const yaml::Node& node) {
  Parameter parameter;
  parameter.name = key.text;
  parameter.title = key.text;
  const std::string where = fmt::format("the parameter '{}'", key.text);
  if (node.is_sequence()) {  // wflow's short form: only the values
    parameter.values = texts(node);
    parameter.quoted = quotes(node);
    for (const std::string& value : parameter.values) parameter.labels.push_back(key.text + "." + value);
  } else {
    parameter_table().read(node, parameter, reading.diagnostics, where);
  }
  if (parameter.values.empty() && (!node.is_map() || node.find("values") != nullptr)) {
    reading.diagnostics.error(node.mark, where + " has no values");
  }
  const auto& reserved = reserved_names();
  if (std::find(reserved.begin(), reserved.end(), key.text) != reserved.end() || key.text == "OUTPUT_PATH") {
    reading.diagnostics.error(key.mark,
                              fmt::format("'{}' is a reserved word and can't be a parameter", key.text));
  } else if (reading.values.contains(key.text)) {
    reading.diagnostics.error(
        key.mark, fmt::format("'{}' is a variable already and can't be a parameter too", key.text));
  }
  if (reading.diagnostics.has_errors()) return parameter;
  check_labels(reading, parameter, key.mark);
  return parameter;
}

std::vector<Parameter> read_zipped(Reading& reading, const yaml::Node& node, const std::string& where,
                                   const std::set<std::string, std::less<>>& leave_out = {}) {
  std::vector<Parameter> parameters;
  yaml::MapReader block(node, where, reading.diagnostics);
  std::size_t first = 0;
  for (const auto& [key, value] : block.node().entries) {
    if (leave_out.contains(key.text)) continue;
    parameters.push_back(read_parameter(reading, key, value));
    const std::size_t length = parameters.back().values.size();
    if (parameters.size() == 1) first = length;
    if (length != first && length != 0) {
      const std::string all =
          leave_out.contains("product")
              ? fmt::format("; for all combinations write product: {{{}: [...], {}: [...]}}",
                            parameters.front().name, key.text)
              : "";
      reading.diagnostics.error(
          key.mark,
          fmt::format("the parameter '{}' has {} value{}, '{}' has {}; all must have the same number{}",
                      key.text, length, length == 1 ? "" : "s", parameters.front().name, first, all));
    }
  }
  return parameters;
}

// Every row of `left` with every row of `right`; the right one changes faster.
std::vector<Parameter> product(const std::vector<Parameter>& left, const std::vector<Parameter>& right) {
  if (left.empty() || right.empty()) return left.empty() ? right : left;
  const std::size_t inner = right.front().values.size();
  const std::size_t rows = left.front().values.size() * inner;
  std::vector<Parameter> result;
  const auto add = [&](const Parameter& from, bool slow) {
    Parameter parameter;
    parameter.name = from.name;
    parameter.title = from.title;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t at = slow ? row / inner : row % inner;
      parameter.values.push_back(from.values[at]);
      parameter.quoted.push_back(from.quoted[at]);
      parameter.labels.push_back(from.labels[at]);
    }
    result.push_back(std::move(parameter));
  };
  for (const Parameter& parameter : left) add(parameter, true);
  for (const Parameter& parameter : right) add(parameter, false);
  return result;
}

void read_ours(Reading& reading, const yaml::Node& node) {
  std::vector<Parameter> rows = read_zipped(reading, node, "the parameters: block", {"product"});
  const yaml::Node* factors = node.find("product");
  if (factors != nullptr) {
    yaml::MapReader block(*factors, "the product: block", reading.diagnostics);
    for (const auto& [key, value] : block.node().entries) {
      Parameter factor = read_parameter(reading, key, value);
      const std::size_t length = std::max<std::size_t>(factor.values.size(), 1);
      const std::size_t before = rows.empty() ? 1 : rows.front().values.size();
      if (before > kMaxCombinations / length) {
        reading.diagnostics.error(key.mark, fmt::format("the product has more than {} combinations",
                                                        text::format_count(kMaxCombinations)));
        break;
      }
      if (!reading.diagnostics.has_errors()) {
        rows = product(rows, {factor});
      } else {
        rows.push_back(std::move(factor));  // so that the steps know its name
      }
    }
  }
  auto& all = reading.study.parameters;
  all.insert(all.end(), rows.begin(), rows.end());
}

}  // namespace

BlockTables parameter_tables() {
  return {{{"parameter", config::any_of({value_list(), parameter_table().schema()})}},
          {{"parameters", parameter_table().rows()}}};
}

void read_parameters(Reading& reading) {
  const yaml::Node* merlins = reading.root.find("global.parameters");
  const yaml::Node* ours = reading.root.find("parameters");
  if (merlins != nullptr && ours != nullptr) {
    reading.diagnostics.error(ours->mark,
                              "parameters: and global.parameters: stand in one file; one of them must go");
  }
  if (merlins != nullptr && !merlins->is_null()) {
    reading.study.parameters = read_zipped(reading, *merlins, "the global.parameters: block");
  }
  if (ours != nullptr && !ours->is_null()) read_ours(reading, *ours);
  // Lists of unequal length are reported above; the following checks assume equal lengths.
  std::size_t rows = 1;
  for (const Parameter& parameter : reading.study.parameters) rows = std::max(rows, parameter.values.size());
  for (Parameter& parameter : reading.study.parameters) {
    parameter.values.resize(rows);
    parameter.quoted.resize(rows);
    parameter.labels.resize(rows);
  }
  std::set<std::string> names;
  for (const Parameter& parameter : reading.study.parameters) {
    if (!names.insert(parameter.name).second) {
      reading.diagnostics.error(ours->mark,
                                fmt::format("the parameter '{}' stands here twice", parameter.name));
    }
  }
}

}  // namespace wflow::specs
