// SPDX-License-Identifier: Apache-2.0
#include "specs/study/dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace wflow::specs {

namespace {

// Blocks and keys of run: that neither Merlin nor Maestro has.
constexpr std::array<std::string_view, 4> kOurBlocks = {"samples", "workers", "parameters", "iterate"};
constexpr std::array<std::string_view, 8> kOurKeys = {"timeout", "memory",  "cores",       "bundle",
                                                      "output",  "outputs", "continue_on", "when"};
// What Merlin has and Maestro has not, and what means more with us.
constexpr std::array<std::string_view, 2> kRetryKeys = {"max_retries", "retry_delay"};

template <std::size_t N>
bool has_any(const yaml::Node& map, const std::array<std::string_view, N>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&map](std::string_view key) { return map.find(key) != nullptr; });
}

bool has_text(const yaml::Node& map, std::string_view key) {
  const yaml::Node* node = map.is_map() ? map.find(key) : nullptr;
  return node != nullptr && node->is_scalar() && !node->text.empty();
}

// name, description, run and no more.
const yaml::Node* run_of(const yaml::Node& step) {
  const yaml::Node* run = step.is_map() ? step.find("run") : nullptr;
  if (run == nullptr || step.entries.size() != 3) return nullptr;
  return has_text(step, "name") && has_text(step, "description") && has_text(*run, "cmd") ? run : nullptr;
}

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// The forms of YAML 1.1, as PyYAML reads them.
std::optional<std::string> as_python_prints(std::string_view text) {
  const std::string lower = text::lower(text);
  for (const char* word : {"true", "yes", "on"}) {
    if (lower == word) return "True";
  }
  for (const char* word : {"false", "no", "off"}) {
    if (lower == word) return "False";
  }
  std::string digits(text);
  std::erase(digits, '_');
  const std::size_t sign = !digits.empty() && (digits[0] == '-' || digits[0] == '+') ? 1 : 0;
  const std::size_t point = digits.find('.');
  const std::size_t exponent = std::min(digits.find_first_of("eE"), digits.size());
  const auto only_digits = [](std::string_view part) {
    return std::all_of(part.begin(), part.end(), is_digit);
  };
  const std::string_view all = digits;
  if (all.size() == sign || !(is_digit(text[sign]) || text[sign] == '.')) return std::nullopt;
  if (point == std::string::npos) {
    if (!only_digits(all.substr(sign)) || (all[sign] == '0' && all.size() > sign + 1)) return std::nullopt;
    return digits[0] == '+' ? digits.substr(1) : digits;
  }
  const bool mantissa = point < exponent && exponent > sign + 1 &&
                        only_digits(all.substr(sign, point - sign)) &&
                        only_digits(all.substr(point + 1, exponent - point - 1));
  const std::string_view power = all.substr(std::min(exponent + 1, all.size()));
  const bool whole = exponent == all.size() || (power.size() > 1 && (power[0] == '-' || power[0] == '+') &&
                                                only_digits(power.substr(1)));
  if (!mantissa || !whole) return std::nullopt;
  const std::string unsigned_text = digits.substr(digits[0] == '+' ? 1 : 0);
  double value = 0;
  const auto [end, error] =
      std::from_chars(unsigned_text.data(), unsigned_text.data() + unsigned_text.size(), value);
  if (error != std::errc() || end != unsigned_text.data() + unsigned_text.size()) return std::nullopt;
  return python_text(value);
}

void print_as_python(yaml::Node& node) {
  for (yaml::Node& item : node.items) print_as_python(item);
  for (auto& [key, value] : node.entries) print_as_python(value);
  if (!node.is_scalar() || node.quoted) return;
  if (auto printed = as_python_prints(node.text)) node.text = std::move(*printed);
}

template <typename Real>
std::string real_text(Real value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string digits = fmt::format("{}", value);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

}  // namespace

std::string python_text(float value) {
  return real_text(value);
}
std::string python_text(double value) {
  return real_text(value);
}

Dialect dialect_of(const yaml::Node& root, std::string_view text) {
  if (root.find("merlin") != nullptr) return Dialect::merlin;
  const yaml::Node* description = root.find("description");
  const yaml::Node* study = root.find("study");
  if (has_any(root, kOurBlocks) || description == nullptr || study == nullptr || study->items.empty())
    return Dialect::ours;
  if (!has_text(*description, "name") || !has_text(*description, "description")) return Dialect::ours;
  bool retries = false;
  bool merlin = text.find("$(MERLIN_") != std::string_view::npos;
  for (const yaml::Node& step : study->items) {
    const yaml::Node* run = run_of(step);
    if (run == nullptr || has_any(*run, kOurKeys)) return Dialect::ours;
    retries = retries || has_any(*run, kRetryKeys);
    merlin = merlin || run->find("task_queue") != nullptr;
  }
  if (merlin) return Dialect::merlin;
  // A shell a step is Merlin's and ours, not Maestro's.
  const auto has_shell = [](const yaml::Node& step) { return step.find("run")->find("shell") != nullptr; };
  if (!retries && std::any_of(study->items.begin(), study->items.end(), has_shell)) return Dialect::merlin;
  return retries ? Dialect::ours : Dialect::maestro;
}

void print_values_as_python(yaml::Node& root) {
  yaml::Node* env = root.find("env");
  yaml::Node* variables = env == nullptr ? nullptr : env->find("variables");
  if (variables != nullptr) print_as_python(*variables);
  yaml::Node* parameters = root.find("global.parameters");
  if (parameters == nullptr) return;
  for (auto& [name, parameter] : parameters->entries) {
    if (yaml::Node* values = parameter.find("values")) print_as_python(*values);
  }
}

}  // namespace wflow::specs
