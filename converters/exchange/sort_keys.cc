// SPDX-License-Identifier: Apache-2.0
#include "converters/exchange/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {

namespace {

// The names that sort_keys() accepts, for messages.
std::vector<std::string> known_keys(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const FieldInfo& field : manifest.fields) {
    if (field.ragged && !field.mask) names.push_back(fmt::format("length({})", field.name));
    if (field.shape.empty()) names.push_back(field.name);
    if (field.layout == "C") names.insert(names.end(), field.channels.begin(), field.channels.end());
  }
  return names;
}

[[noreturn]] void refuse(const std::string& why, const std::string& key, const Manifest& manifest) {
  const std::vector<std::string> known = known_keys(manifest);
  throw Error(ExitCode::usage, fmt::format("--by {}: {}; there are {}{}", key, why, text::join(known, ", "),
                                           text::suggestion(key, known)));
}

// The ragged field that the key names; nothing if the key is not a length.
std::optional<std::size_t> ragged_field(const std::string& key, const Manifest& manifest) {
  std::vector<std::size_t> found;
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    const FieldInfo& field = manifest.fields[k];
    if (!field.ragged || field.mask) continue;
    if (key == fmt::format("length({})", field.name)) return k;
    if (key == "length") found.push_back(k);
  }
  if (key != "length") return std::nullopt;
  if (found.empty()) refuse("no field is ragged", key, manifest);
  if (found.size() > 1) refuse("several fields are ragged", key, manifest);
  return found.front();
}

struct Column {
  std::size_t field = 0;
  std::size_t number = 0;
};

Column column_of(const std::string& key, const Manifest& manifest) {
  for (std::size_t k = 0; k < manifest.fields.size(); ++k) {
    const FieldInfo& field = manifest.fields[k];
    if (field.shape.empty() && field.name == key) return {k, 0};
    const auto name = std::find(field.channels.begin(), field.channels.end(), key);
    if (field.layout == "C" && name != field.channels.end())
      return {k, static_cast<std::size_t>(name - field.channels.begin())};
  }
  refuse("no field or label of one number has this name", key, manifest);
}

}  // namespace

std::vector<std::vector<double>> sort_keys(const ShardFile& shard, const Manifest& manifest,
                                           const std::vector<std::string>& keys) {
  std::vector<std::vector<double>> result;
  for (const std::string& key : keys) {
    std::vector<double>& values = result.emplace_back(shard.size());
    if (const auto ragged = ragged_field(key, manifest)) {
      const FieldLayout& field = shard.layout().fields[*ragged];
      for (std::size_t row = 0; row < values.size(); ++row)
        values[row] = static_cast<double>(field.length(row));
      continue;
    }
    const Column column = column_of(key, manifest);
    const FieldLayout& field = shard.layout().fields[column.field];
    const std::vector<double> all = read_small_field(shard.path(), field, shard.size());
    const std::size_t width = manifest.fields[column.field].values();
    for (std::size_t row = 0; row < values.size(); ++row) values[row] = all[row * width + column.number];
  }
  return result;
}

}  // namespace wflow::converters
