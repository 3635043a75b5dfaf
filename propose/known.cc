// SPDX-License-Identifier: Apache-2.0
#include "propose/propose.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow::propose {

namespace {

namespace fs = std::filesystem;

// A task that has succeeded leaves it (docs/spec.md).
constexpr const char* kFinishedMarker = "MERLIN_FINISHED";

std::vector<double> numbers_in(std::string_view text) {
  std::vector<double> numbers;
  constexpr std::string_view kBetween = " \t\r\n,;";
  while (!text.empty()) {
    const std::size_t begin = text.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(kBetween), text.size());
    if (const auto number = text::to_real(text.substr(0, end))) numbers.push_back(*number);
    text.remove_prefix(end);
  }
  return numbers;
}

std::optional<double> number_in_text(std::string_view text, const fs::path& file, const std::string& position,
                                     std::string& problem) {
  const std::vector<double> numbers = numbers_in(text);
  if (position.empty()) {
    if (numbers.size() == 1) return numbers.front();
    if (numbers.size() > 1)
      throw Error(ExitCode::data,
                  fmt::format("{} has {} numbers; name the position of the value with 'value', "
                              "such as 'value: -1' for the last",
                              file.string(), numbers.size()));
    problem = file.string() + " has no number";
    return std::nullopt;
  }
  const auto place = text::to_integer(position);
  if (!place || *place == 0)
    throw Error(ExitCode::spec,
                fmt::format("'value' of a text file is the position of a number (1 is the first, "
                            "-1 the last), found '{}'",
                            position));
  const auto count = static_cast<std::int64_t>(numbers.size());
  const std::int64_t index = *place > 0 ? *place - 1 : count + *place;
  if (index >= 0 && index < count) return numbers[static_cast<std::size_t>(index)];
  problem = fmt::format("{} has {} numbers, and 'value' is {}", file.string(), count, position);
  return std::nullopt;
}

std::optional<double> number_in_json(std::string_view text, const fs::path& file, const std::string& key,
                                     std::string& problem) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    problem = file.string() + " is not JSON";
    return std::nullopt;
  }
  const nlohmann::json* at = &json;
  std::string_view rest = key;
  while (!rest.empty() && at != nullptr) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string name(rest.substr(0, dot));
    const auto found = at->is_object() ? at->find(name) : at->end();
    at = at->is_object() && found != at->end() ? &*found : nullptr;
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  if (at != nullptr && at->is_number()) return at->get<double>();
  problem = key.empty() ? fmt::format("{} is more than a number; name a key with 'value'", file.string())
                        : fmt::format("{} has no number '{}'", file.string(), key);
  return std::nullopt;
}

std::optional<double> number_by_regex(std::string_view text, const fs::path& file, const std::string& regex,
                                      std::string& problem) {
  const RE2 pattern(regex);
  re2::StringPiece rest(text.data(), text.size());
  std::string found;
  bool any = false;
  while (RE2::FindAndConsume(&rest, pattern, &found)) {
    any = true;
    if (rest.empty()) break;
  }
  const auto number = any ? text::to_real(found) : std::nullopt;
  if (!number)
    problem = any ? fmt::format("'{}' in {} is no number", found, file.string())
                  : fmt::format("{} has no match of '{}'", file.string(), regex);
  return number;
}

// The inputs of a table's rows.
class InputColumns {
 public:
  InputColumns(const csv::Reader& reader, const fs::path& file, const std::vector<Bound>& bounds)
      : bounds_(bounds) {
    for (const Bound& bound : bounds) {
      const auto column = reader.column(bound.name);
      if (!column)
        throw Error(ExitCode::data,
                    fmt::format("{} has no column '{}', which 'bounds' names{}", file.string(), bound.name,
                                text::suggestion(bound.name, reader.header())));
      columns_.push_back(*column);
    }
  }

  bool has(std::size_t column) const { return std::ranges::find(columns_, column) != columns_.end(); }

  std::vector<double> read(const csv::Reader& reader, const std::vector<std::string>& cells) const {
    std::vector<double> inputs;
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      const std::string& cell = cells[columns_[k]];
      const auto number = text::to_real(text::trim(cell));
      if (!number || !std::isfinite(*number))
        reader.fail(fmt::format("the input '{}' is '{}', no number", bounds_[k].name, cell));
      inputs.push_back(*number);
    }
    return inputs;
  }

 private:
  const std::vector<Bound>& bounds_;
  std::vector<std::size_t> columns_;
};

void refuse_not_finite(KnownSample& sample, const std::string& where, std::string& problem) {
  if (!sample.value || std::isfinite(*sample.value)) return;
  problem = fmt::format("the value in {} is {}", where, *sample.value);
  sample.value.reset();
}

}  // namespace

std::size_t Known::with_value() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(samples, [](const KnownSample& sample) { return sample.value.has_value(); }));
}

std::optional<double> value_of(std::string_view text, const fs::path& file, const ProposeConfig& config,
                               std::string& problem) {
  if (!config.regex.empty()) return number_by_regex(text, file, config.regex, problem);
  if (file.extension() == ".json") return number_in_json(text, file, config.value, problem);
  return number_in_text(text, file, config.value, problem);
}

void add_table(Known& known, const fs::path& file, const std::vector<Bound>& bounds) {
  csv::Reader reader(file);
  const InputColumns inputs(reader, file, bounds);
  const std::size_t last = reader.header().size() - 1;
  if (inputs.has(last))
    throw Error(ExitCode::data, fmt::format("the last column of {} holds the values, but '{}' is an input",
                                            file.string(), reader.header()[last]));
  std::vector<std::string> cells;
  while (reader.next(cells)) {
    KnownSample sample;
    sample.inputs = inputs.read(reader, cells);
    std::string problem = fmt::format("a row of {} has no value", file.string());
    const std::string_view cell = text::trim(cells[last]);
    sample.value = text::to_real(cell);
    if (!cell.empty() && !sample.value) reader.fail(fmt::format("the value is '{}', no number", cell));
    refuse_not_finite(sample, file.string(), problem);
    if (!sample.value && known.first_problem.empty()) known.first_problem = problem;
    known.samples.push_back(std::move(sample));
  }
}

void add_samples(Known& known, const fs::path& file, const ProposeConfig& config) {
  csv::Reader reader(file);
  const InputColumns inputs(reader, file, config.bounds);
  std::vector<std::string> cells;
  while (reader.next(cells)) {
    KnownSample sample;
    sample.inputs = inputs.read(reader, cells);
    const fs::path source = cells.back();
    std::string problem = fmt::format("there is no file {}", source.string());
    std::error_code ignored;
    if (!fs::exists(source.parent_path() / kFinishedMarker, ignored)) {
      problem = fmt::format("the simulation in {} did not succeed", source.parent_path().string());
    } else if (config.rule != Rule::maximin && fs::is_regular_file(source, ignored))
      sample.value = value_of(read_file(source), source, config, problem);
    refuse_not_finite(sample, source.string(), problem);
    if (!sample.value && known.first_problem.empty()) known.first_problem = problem;
    known.samples.push_back(std::move(sample));
  }
}

std::string table_of(const Known& known, const std::vector<Bound>& bounds) {
  std::string text;
  for (const Bound& bound : bounds) text += csv::cell(bound.name) + ",";
  text += "value\n";
  for (const KnownSample& sample : known.samples) {
    for (const double input : sample.inputs) text += fmt::format("{},", input);
    text += sample.value ? fmt::format("{}\n", *sample.value) : "\n";
  }
  return text;
}

}  // namespace wflow::propose
