// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/text.h"

namespace wflow::trainer {

namespace {

bool is_list_of_numbers(const DataField& field) {
  return field.shape.voxels() == 1 && !field.is_ragged;
}

std::vector<std::string> known_keys(const DatasetInfo& info) {
  std::vector<std::string> names = info.labels;
  for (const DataField& field : info.fields) {
    if (field.is_ragged) names.push_back(fmt::format("length({})", field.name));
    if (!field.is_input || !is_list_of_numbers(field)) continue;
    if (field.shape.channels == 1) names.push_back(field.name);
    names.insert(names.end(), field.channels.begin(), field.channels.end());
  }
  return names;
}

[[noreturn]] void refuse(const std::string& why, const std::string& key, const DatasetInfo& info) {
  const std::vector<std::string> known = known_keys(info);
  throw Error(ExitCode::spec, fmt::format("batch_by: {}: {}; there are {}{}", key, why,
                                          text::join(known, ", "), text::suggestion(key, known)));
}

// The ragged field that the key names; nothing if the key is not a length.
std::optional<std::size_t> ragged_field(const std::string& key, const DatasetInfo& info) {
  std::vector<std::size_t> ragged;
  for (std::size_t k = 0; k < info.fields.size(); ++k) {
    if (!info.fields[k].is_ragged) continue;
    if (key == fmt::format("length({})", info.fields[k].name)) return k;
    ragged.push_back(k);
  }
  if (key != "length") return std::nullopt;
  if (ragged.empty()) refuse("no field is ragged", key, info);
  if (ragged.size() > 1) refuse("several fields are ragged", key, info);
  return ragged.front();
}

// A number of an input, in all samples.
std::vector<double> numbers_of(const DataField& field, std::size_t index, std::size_t number,
                               const SampleSource& samples) {
  const auto width = static_cast<std::size_t>(field.shape.channels);
  std::vector<float> values(samples.size() * width);
  std::vector<std::size_t> all(samples.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::span<float>> to;
  for (const std::size_t i : all) to.push_back(std::span(values).subspan(i * width, width));
  samples.read_scaled(index, all, to, {}, nullptr);
  std::vector<double> numbers;
  for (const std::size_t i : all) numbers.push_back(values[i * width + number]);
  return numbers;
}

std::vector<double> values_of(const std::string& key, const DatasetInfo& info, const SampleSource& samples) {
  std::vector<double> values(samples.size());
  if (const auto ragged = ragged_field(key, info)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(samples.length(*ragged, i));
    return values;
  }
  const auto label = std::find(info.labels.begin(), info.labels.end(), key);
  if (label != info.labels.end()) {
    const auto number = static_cast<std::size_t>(label - info.labels.begin());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = samples.targets(i)[number];
    return values;
  }
  for (std::size_t k = 0; k < info.fields.size(); ++k) {
    const DataField& field = info.fields[k];
    if (!is_list_of_numbers(field)) continue;
    if (field.name == key && field.shape.channels == 1) return numbers_of(field, k, 0, samples);
    const auto name = std::find(field.channels.begin(), field.channels.end(), key);
    if (name != field.channels.end())
      return numbers_of(field, k, static_cast<std::size_t>(name - field.channels.begin()), samples);
  }
  refuse("no label or input of one number has this name", key, info);
}

}  // namespace

std::vector<std::uint32_t> order_by(const std::vector<std::string>& keys, const DatasetInfo& info,
                                    const SampleSource& samples) {
  if (keys.empty()) return {};
  std::vector<std::vector<double>> values;
  for (const std::string& key : keys) values.push_back(values_of(key, info, samples));
  std::vector<std::uint32_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto differs = [&](const std::vector<double>& key) { return key[a] != key[b]; };
    const auto key = std::find_if(values.begin(), values.end(), differs);
    return key != values.end() && (*key)[a] < (*key)[b];
  });
  return order;
}

}  // namespace wflow::trainer
