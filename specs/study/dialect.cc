// SPDX-License-Identifier: Apache-2.0
#include "specs/study/dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/text.h"

namespace wflow::specs {

namespace {

// Blocks, and keys of run:, that neither Merlin nor Maestro has.
constexpr std::array<std::string_view, 7> kOurBlocks = {"samples",  "workers", "parameters", "iterate",
                                                        "max_disk", "on",      "metrics"};
constexpr std::array<std::string_view, 14> kOurKeys = {
    "timeout", "memory",       "cores",         "bundle",        "output",  "outputs",      "continue_on",
    "when",    "retry_memory", "stall_timeout", "trust_markers", "sources", "max_failures", "report"};
// Keys that Merlin has and Maestro has not, with a wider meaning in wflow.
constexpr std::array<std::string_view, 2> kRetryKeys = {"max_retries", "retry_delay"};
// Keys of batch: and run: that Merlin and Maestro have and wflow does not use.
constexpr std::array<std::string_view, 4> kTheirBatchKeys = {"host", "args", "flux_uri", "num_workers"};
constexpr std::array<std::string_view, 6> kTheirStepKeys = {"exclusive",   "nested",      "tasks per rs",
                                                            "rs per node", "cpus per rs", "bind gpus"};

// The first of the keys that the mapping has; empty if it has none.
template <std::size_t N>
std::string_view first_of(const yaml::Node* map, const std::array<std::string_view, N>& keys) {
  if (map == nullptr || !map->is_map()) return {};
  const auto* const found =
      std::ranges::find_if(keys, [map](std::string_view key) { return map->find(key) != nullptr; });
  return found == keys.end() ? std::string_view() : *found;
}

bool has_text(const yaml::Node& map, std::string_view key) {
  const yaml::Node* node = map.is_map() ? map.find(key) : nullptr;
  return node != nullptr && node->is_scalar() && !node->text.empty();
}

// Only name, description and run.
const yaml::Node* run_of(const yaml::Node& step) {
  const yaml::Node* run = step.is_map() ? step.find("run") : nullptr;
  if (run == nullptr || step.entries.size() != 3) return nullptr;
  return has_text(step, "name") && has_text(step, "description") && has_text(*run, "cmd") ? run : nullptr;
}

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// Digits of this base with their underscores left out, as a decimal number; nothing if it is not a number or
// does not fit.
std::optional<std::string> whole_number(std::string_view digits, int base) {
  std::string plain(digits);
  std::erase(plain, '_');
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
  if (plain.empty() || error != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  return std::to_string(value);
}

// 1:30 is 90: numbers to the base of 60, of which all but the first are below it.
std::optional<std::string> base_60(std::string_view text) {
  double value = 0;
  const std::vector<std::string> parts = text::split(text, ':');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last_real = i + 1 == parts.size() && parts[i].find('.') != std::string::npos;
    const auto part = text::to_real(parts[i]);
    const std::string_view whole = std::string_view(parts[i]).substr(0, parts[i].find('.'));
    const bool digits = !whole.empty() && std::all_of(whole.begin(), whole.end(), is_digit) &&
                        (last_real || whole.size() == parts[i].size());
    if (!part || !digits || (i > 0 && (*part >= 60 || whole.size() > 2))) return std::nullopt;
    value = value * 60 + *part;
  }
  if (parts.size() < 2 || value >= 9e15) return std::nullopt;
  if (text.find('.') != std::string_view::npos) return python_text(value);
  return text.front() == '0' ? std::nullopt : std::optional(fmt::format("{:.0f}", value));
}

std::optional<std::string> integer_as_python_prints(std::string_view digits) {
  if (digits.starts_with("0x")) return whole_number(digits.substr(2), 16);
  if (digits.starts_with("0b")) return whole_number(digits.substr(2), 2);
  if (digits.size() > 1 && digits.front() == '0') return whole_number(digits.substr(1), 8);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return is_digit(c) || c == '_'; }))
    return std::nullopt;
  std::string plain(digits);
  std::erase(plain, '_');
  return plain;
}

std::optional<std::string> real_as_python_prints(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  const std::string_view all = digits;
  const std::size_t point = all.find('.');
  const std::size_t exponent = std::min(all.find_first_of("eE"), all.size());
  const auto only_digits = [](std::string_view part) {
    return std::all_of(part.begin(), part.end(), is_digit);
  };
  if (point >= exponent || exponent < 2 || !only_digits(all.substr(0, point)) ||
      !only_digits(all.substr(point + 1, exponent - point - 1)))
    return std::nullopt;
  const std::string_view power = all.substr(std::min(exponent + 1, all.size()));
  const bool whole = exponent == all.size() || (power.size() > 1 && (power[0] == '-' || power[0] == '+') &&
                                                only_digits(power.substr(1)));
  if (!whole) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return python_text(value);
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
  const bool minus = text.starts_with('-');
  const std::string_view digits = text.substr(minus || text.starts_with('+') ? 1 : 0);
  if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) return std::nullopt;
  std::optional<std::string> printed;
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF") {
    printed = "inf";
  } else if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    printed = "nan";
  } else if (digits.find(':') != std::string_view::npos) {
    printed = base_60(digits);
  } else {
    const bool real = digits.find('.') != std::string_view::npos;
    printed = real ? real_as_python_prints(digits) : integer_as_python_prints(digits);
  }
  if (!printed) return std::nullopt;
  return minus && *printed != "0" ? "-" + *printed : *printed;
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

std::string_view name_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::merlin:
      return "merlin";
    case Dialect::maestro:
      return "maestro";
    case Dialect::ours:
      break;
  }
  return "wflow";
}

std::optional<Dialect> dialect_named(std::string_view name) {
  for (const Dialect dialect : {Dialect::ours, Dialect::merlin, Dialect::maestro}) {
    if (name == name_of(dialect)) return dialect;
  }
  return std::nullopt;
}

namespace {

std::string step_title(const yaml::Node& step, std::size_t index) {
  const bool named = has_text(step, "name");
  return named ? fmt::format("the step '{}'", step.find("name")->text)
               : fmt::format("the step number {}", index + 1);
}

// The word of a line "# wflow: WORD" that begins in the first column, where the text of a script cannot
// begin.
std::string_view word_of_comment(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text::trim(text.substr(0, end));
    const bool comment = text.starts_with('#');
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!comment) continue;
    line = text::trim(line.substr(1));
    if (!line.starts_with("wflow:")) continue;
    line = text::trim(line.substr(6));
    // A longer line is an ordinary comment.
    if (!line.empty() && line.find_first_of(" \t") == std::string_view::npos) return line;
  }
  return {};
}

DialectChoice is_ours(std::string reason, bool certain = true) {
  return {Dialect::ours, std::move(reason), certain, {}};
}

// A key that only wflow's files have; nothing if the file could be Merlin's or Maestro's.
std::optional<DialectChoice> ours_for_certain(const yaml::Node& root) {
  for (const std::string_view block : kOurBlocks) {
    if (root.find(block) != nullptr) return is_ours(fmt::format("it has a {}: block at top level", block));
  }
  const yaml::Node* study = root.find("study");
  if (study == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < study->items.size(); ++i) {
    const yaml::Node& step = study->items[i];
    if (!step.is_map()) continue;
    const std::string title = step_title(step, i);
    for (const char* kind : {"convert", "train", "plugin", "propose"}) {
      if (step.find(kind) != nullptr) return is_ours(fmt::format("{} has {}:", title, kind));
    }
    const yaml::Node* run = step.find("run");
    for (const std::string_view key : kOurKeys) {
      const bool beside = step.find(key) != nullptr;
      if (beside || (run != nullptr && run->is_map() && run->find(key) != nullptr))
        return is_ours(fmt::format("{} has the key '{}'", title, key));
    }
  }
  return std::nullopt;
}

// Merlin and Maestro ask for descriptions of the study and of each step, and for a cmd. What keeps a file
// from being theirs; nothing if it could be.
std::optional<std::string> not_theirs(const yaml::Node& root) {
  const yaml::Node* description = root.find("description");
  const yaml::Node* study = root.find("study");
  if (description == nullptr || !has_text(*description, "name") || !has_text(*description, "description"))
    return "its description: is not as Merlin and Maestro ask for it (a name and a description)";
  if (study == nullptr || study->items.empty()) return "it has no steps";
  for (std::size_t i = 0; i < study->items.size(); ++i) {
    if (run_of(study->items[i]) != nullptr) continue;
    return fmt::format(
        "{} is not as Merlin and Maestro have steps (name, description, and run with a cmd, and no more)",
        step_title(study->items[i], i));
  }
  return std::nullopt;
}

// The choice for a file without keys that belong to wflow only: wflow's own, unless something of Merlin's or
// Maestro's is there.
DialectChoice guess(const yaml::Node& root, std::string_view text) {
  if (auto why = not_theirs(root)) return is_ours(std::move(*why));
  if (text.find("$(MERLIN_") != std::string_view::npos)
    return {Dialect::merlin, "it uses $(MERLIN_...)", true, {}};
  const yaml::Node* batch = root.find("batch");
  std::string maestro;
  std::string retries;
  if (const auto key = first_of(batch, kTheirBatchKeys); !key.empty())
    maestro = fmt::format("its batch: block has '{}'", key);
  const yaml::Node* type = batch != nullptr && batch->is_map() ? batch->find("type") : nullptr;
  if (type != nullptr && type->text == "local_pool") maestro = "its batch: block has the type local_pool";
  const auto& steps = root.find("study")->items;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const yaml::Node& run = *run_of(steps[i]);
    const std::string title = step_title(steps[i], i);
    if (run.find("task_queue") != nullptr)
      return {Dialect::merlin, fmt::format("{} has a task_queue", title), true, {}};
    if (const auto key = first_of(&run, kTheirStepKeys); maestro.empty() && !key.empty())
      maestro = fmt::format("{} has the key '{}'", title, key);
    if (const auto key = first_of(&run, kRetryKeys); retries.empty() && !key.empty())
      retries = fmt::format("{} has {}, which Maestro has not, and there is no merlin: block", title, key);
  }
  if (!retries.empty()) return is_ours(retries, false);
  if (!maestro.empty()) return {Dialect::maestro, maestro, true, {}};
  return is_ours("it has nothing that only Merlin or Maestro has", false);
}

// Calls visit(value as written, value as Python prints it) for the values that differ.
void for_each_other(const yaml::Node& written, const yaml::Node& printed,
                    const std::function<void(const yaml::Node&, const std::string&)>& visit) {
  for (std::size_t i = 0; i < written.items.size(); ++i)
    for_each_other(written.items[i], printed.items[i], visit);
  for (std::size_t i = 0; i < written.entries.size(); ++i)
    for_each_other(written.entries[i].second, printed.entries[i].second, visit);
  if (written.is_scalar() && written.text != printed.text) visit(written, printed.text);
}

}  // namespace

DialectChoice choose_dialect(const yaml::Node& root, std::string_view text, std::optional<Dialect> option,
                             std::optional<Dialect> command) {
  if (option) return {*option, "--dialect says so", true, {}};
  const std::string_view word = word_of_comment(text);
  if (const auto named = dialect_named(word))
    return {*named, fmt::format("the line '# wflow: {}' in it says so", word), true, {}};
  DialectChoice choice;
  const auto ours = ours_for_certain(root);
  if (root.find("merlin") != nullptr) {
    choice = {Dialect::merlin, "it has a merlin: block", true, {}};
  } else if (ours) {
    choice = *ours;
  } else if (command) {
    choice = {*command, fmt::format("it was given to the command {}", name_of(*command)), true, {}};
  } else {
    choice = guess(root, text);
  }
  choice.unknown_comment = word;
  return choice;
}

std::string describe(const DialectChoice& choice) {
  const char* whose = choice.dialect == Dialect::merlin    ? "Merlin's file"
                      : choice.dialect == Dialect::maestro ? "Maestro's file"
                                                           : "wflow's own file";
  std::string sentence = fmt::format("read as {}: {}", whose, choice.reason);
  if (choice.certain) return sentence;
  return sentence +
         " (--dialect merlin, maestro or wflow decides it, or a line '# wflow: merlin' in the file)";
}

void warn_of_other_values(const yaml::Node& root, yaml::Diagnostics& diagnostics) {
  yaml::Node printed = root;
  print_values_as_python(printed);
  for_each_other(root, printed, [&](const yaml::Node& value, const std::string& text) {
    diagnostics.warning(
        value.mark, fmt::format("Merlin and Maestro print {} as {}, and wflow as it is written; put it in "
                                "quotes, and all three do the same",
                                value.text, text));
  });
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
