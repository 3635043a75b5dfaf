// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "converters/dtype.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

Json to_json(const std::vector<ChannelStatistics>& list) {
  Json result = Json::array();
  for (const auto& s : list) {
    Json entry = {{"mean", s.mean}, {"std", s.std}, {"min", s.min}, {"max", s.max}};
    for (const auto& [level, value] : s.quantiles) entry["quantiles"].push_back(Json::array({level, value}));
    result.push_back(std::move(entry));
  }
  return result;
}

std::vector<ChannelStatistics> statistics_from(const nlohmann::json& list) {
  std::vector<ChannelStatistics> result;
  for (const auto& item : list) {
    result.push_back({item.at("mean"), item.at("std"), item.at("min"), item.at("max"), {}});
    for (const auto& pair : item.value("quantiles", nlohmann::json::array()))
      result.back().quantiles.emplace_back(pair.at(0).get<double>(), pair.at(1).get<double>());
  }
  return result;
}

Json to_json(const SplitEntry& split) {
  Json shards = Json::array();
  for (const ShardEntry& s : split.shards) {
    shards.push_back(
        {{"file", s.file}, {"samples", s.samples}, {"bytes", s.bytes}, {"xxh3_128", s.xxh3_128}});
  }
  return {{"samples", split.samples}, {"shards", std::move(shards)}};
}

// The file may have been edited: its paths must not lead out of the data directory.
bool stays_inside(const fs::path& file) {
  if (file.empty() || file.is_absolute()) return false;
  return *file.lexically_normal().begin() != "..";
}

SplitEntry split_from(const nlohmann::json& json) {
  SplitEntry split;
  split.samples = json.at("samples");
  std::uint64_t sum = 0;
  for (const auto& item : json.at("shards")) {
    split.shards.push_back({item.at("file"), item.at("samples"), item.at("bytes"), item.at("xxh3_128")});
    if (!stays_inside(split.shards.back().file))
      throw std::invalid_argument("a shard's path leads elsewhere");
    sum += split.shards.back().samples;
  }
  if (sum != split.samples) throw std::invalid_argument("the shards' samples do not sum to the split's");
  return split;
}

Json to_json(const FieldInfo& field) {
  Json json = {{"name", field.name},     {"role", field.role == FieldRole::input ? "input" : "target"},
               {"dtype", field.dtype},   {"shape", field.shape},
               {"layout", field.layout}, {"layout_from", field.layout_from}};
  if (!field.channels.empty()) json["channels"] = field.channels;
  if (!field.units.empty()) json["units"] = field.units;
  if (!field.stored.empty()) json["stored"] = field.stored;
  if (!field.compression.empty()) json["compression"] = field.compression;
  if (!field.coder.empty()) json["coder"] = field.coder;
  if (field.pieces > 1) json["pieces"] = field.pieces;
  if (field.ragged) {
    json["ragged"] = {{"axis", std::string(1, field.layout[field.ragged->axis])},
                      {"least", field.ragged->least},
                      {"most", field.ragged->most},
                      {"pad_value", field.ragged->pad_value}};
  }
  if (field.mask) json["mask"] = true;
  if (field.chunk) json["chunk"] = *field.chunk;
  const Normalisation& n = field.normalisation;
  if (n.kind == "standardise") json["normalisation"] = {{"kind", n.kind}};
  if (n.kind == "min_max") json["normalisation"] = {{"kind", n.kind}, {"low", n.low}, {"high", n.high}};
  if (n.kind == "quantile") json["normalisation"] = {{"kind", n.kind}, {"shape", n.shape}};
  return json;
}

RaggedLengths lengths_from(const nlohmann::json& json, const FieldInfo& field) {
  const std::string letter = json.at("axis");
  const std::size_t axis = field.layout.find(letter);
  const RaggedLengths lengths{axis, json.at("least"), json.at("most"), json.at("pad_value")};
  const bool possible = letter.size() == 1 && axis < field.shape.size() && lengths.least > 0 &&
                        lengths.least <= lengths.most && lengths.most == field.shape[axis];
  if (!possible) throw std::invalid_argument("a ragged field's lengths are impossible");
  return lengths;
}

// Names of fields become part of HDF5 paths and messages: an impossible name means damage.
FieldInfo field_from(const nlohmann::json& json) {
  FieldInfo field;
  field.name = json.at("name");
  const std::string role = json.at("role");
  if (role != "input" && role != "target") throw std::invalid_argument("a field has neither role");
  field.role = role == "input" ? FieldRole::input : FieldRole::target;
  field.dtype = json.at("dtype");
  field.shape = json.at("shape").get<std::vector<std::size_t>>();
  field.layout = json.at("layout");
  field.layout_from = json.value("layout_from", "");
  field.channels = json.value("channels", std::vector<std::string>{});
  field.units = json.value("units", "");
  field.stored = json.value("stored", "");
  field.compression = json.value("compression", "");
  field.coder = json.value("coder", "");
  field.pieces = json.value("pieces", std::size_t{1});
  if (json.contains("normalisation")) {
    const auto& n = json.at("normalisation");
    field.normalisation = {n.at("kind"), n.value("low", 0.0), n.value("high", 1.0),
                           n.value("shape", "uniform")};
  }
  const bool plain = !field.name.empty() && field.name[0] != '.' && field.name.find('/') == std::string::npos;
  std::size_t values = 1;
  for (const std::size_t length : field.shape) {
    if (length == 0 || __builtin_mul_overflow(values, length, &values))
      throw std::invalid_argument("a field's shape is impossible");
  }
  if (!plain || !parse_dtype(field.dtype) || field.shape.size() > 4 ||
      field.layout.size() != field.shape.size())
    throw std::invalid_argument("a field is not described as one");
  if (json.contains("ragged")) field.ragged = lengths_from(json.at("ragged"), field);
  field.mask = json.value("mask", false);
  if (json.contains("chunk")) {
    field.chunk = json.at("chunk").get<std::vector<std::size_t>>();
    if (field.chunk->size() > field.shape.size() || std::ranges::find(*field.chunk, 0U) != field.chunk->end())
      throw std::invalid_argument("the bricks of a field do not fit its shape");
  }
  return field;
}

// Format 1: one volume `x` and the labels `y`.
void read_format_1(const nlohmann::json& json, Manifest& m) {
  FieldInfo x;
  x.name = "x";
  const std::array<std::size_t, 4> shape = json.at("shape");
  x.shape.assign(shape.begin(), shape.end());
  x.dtype = json.at("dtype");
  x.units = json.value("units", "");
  x.channels = json.at("channels").get<std::vector<std::string>>();
  x.layout = "CDHW";
  x.layout_from = "rank";
  x.statistics = statistics_from(json.at("statistics").at("x"));
  FieldInfo y;
  y.name = "y";
  y.role = FieldRole::target;
  y.dtype = "float64";
  y.channels = json.at("labels").get<std::vector<std::string>>();
  y.shape = {y.channels.size()};
  y.layout = "C";
  y.layout_from = "format";
  y.statistics = statistics_from(json.at("statistics").at("y"));
  if (x.statistics.size() != x.shape[0]) throw std::invalid_argument("statistics are not one a channel");
  if (y.statistics.size() != y.shape[0]) throw std::invalid_argument("statistics are not one a label");
  m.fields = {x, y};
  m.split_order = "count";
  m.split_seed = json.at("split_seed");
}

void read_format_2(const nlohmann::json& json, Manifest& m) {
  for (const auto& item : json.at("fields")) {
    FieldInfo field = field_from(item);
    field.statistics = statistics_from(json.at("statistics").at(field.name));
    const std::size_t channels = field.layout.starts_with('C') ? field.shape[0] : 1;
    if (field.statistics.size() != channels) throw std::invalid_argument("statistics are not one a channel");
    m.fields.push_back(std::move(field));
  }
  m.split_order = json.at("split").at("order");
  m.split_seed = json.at("split").at("seed");
  m.sorted_by = json.value("sorted_by", std::vector<std::string>{});
}

Manifest manifest_from(const nlohmann::json& json) {
  Manifest m;
  m.name = json.at("name");
  m.created_by = json.value("created_by", "");
  if (json.at("wflow_format").get<int>() == 1) {
    read_format_1(json, m);
  } else {
    read_format_2(json, m);
  }
  for (const std::string_view name : kSplitNames) {
    m.splits[std::string(name)] = split_from(json.at("splits").at(std::string(name)));
  }
  m.missing = json.at("missing").get<std::vector<std::int64_t>>();
  m.dropped = json.value("dropped", std::vector<std::int64_t>{});
  derive_flat_view(m);
  return m;
}

Error damaged(const fs::path& path, const std::string& what, const char* why) {
  return Error(ExitCode::data,
               fmt::format("{} {} is damaged ({}); {}", what, path.string(), why,
                           path.filename() == kManifestName ? "write it anew: convert again with --finish"
                                                            : "remove it and convert its block again"));
}

}  // namespace

nlohmann::json read_json(const fs::path& path, const std::string& what, std::string* hash) {
  nlohmann::json json;
  int format = 0;
  const CheckedJson file = take_checksum(read_file(path));
  if (!file.whole) throw damaged(path, what, "its checksum does not match");
  if (hash != nullptr) *hash = hash_bytes(file.text);
  try {
    json = nlohmann::json::parse(file.text);
    format = json.at("wflow_format");
  } catch (const nlohmann::json::exception& error) {
    throw damaged(path, what, error.what());
  }
  if (format > kFormatWithRagged) {
    throw Error(ExitCode::version,
                fmt::format("{} {} is of format {}, this wflow knows {}; use a newer wflow", what,
                            path.string(), format, kFormatWithRagged));
  }
  return json;
}

std::size_t FieldInfo::values() const {
  std::size_t count = 1;
  for (const std::size_t length : shape) count *= length;
  return count;
}

void derive_flat_view(Manifest& m) {
  const auto is_input = [](const FieldInfo& field) { return field.role == FieldRole::input; };
  const auto input = std::find_if(m.fields.begin(), m.fields.end(), is_input);
  m.shape = {1, 1, 1, 1};
  if (input != m.fields.end()) {
    std::size_t at = m.shape.size();
    for (std::size_t k = input->shape.size(); k-- > 0;) {
      const bool channel = input->layout[k] == 'C' || at == 1;
      m.shape[channel ? 0 : --at] = input->shape[k];
    }
    m.dtype = input->dtype;
    m.units = input->units;
    m.channels = input->channels;
    m.statistics.x = input->statistics;
  }
  m.labels.clear();
  m.statistics.y.clear();
  for (const FieldInfo& field : m.fields) {
    if (is_input(field)) continue;
    if (field.ragged || field.shape.size() > 1 || field.statistics.size() != field.values()) {
      m.labels.clear();
      m.statistics.y.clear();
      return;
    }
    for (std::size_t k = 0; k < field.values(); ++k) {
      const std::string numbered = fmt::format("{}[{}]", field.name, k);
      m.labels.push_back(field.shape.empty()         ? field.name
                         : k < field.channels.size() ? field.channels[k]
                                                     : numbered);
    }
    m.statistics.y.insert(m.statistics.y.end(), field.statistics.begin(), field.statistics.end());
  }
}

std::string manifest_text(const Manifest& m) {
  Json splits;
  for (const std::string_view name : kSplitNames) splits[std::string(name)] = to_json(m.split(name));
  Json fields = Json::array();
  Json statistics = Json::object();
  for (const FieldInfo& field : m.fields) {
    fields.push_back(to_json(field));
    statistics[field.name] = to_json(field.statistics);
  }
  const bool ragged = std::any_of(m.fields.begin(), m.fields.end(),
                                  [](const FieldInfo& field) { return field.ragged.has_value(); });
  Json json = {{"wflow_format", ragged ? kFormatWithRagged : kFormatVersion},
               {"name", m.name},
               {"created_by", m.created_by},
               {"fields", std::move(fields)},
               {"splits", std::move(splits)},
               {"split", {{"order", m.split_order}, {"seed", m.split_seed}}},
               {"missing", m.missing},
               {"statistics", std::move(statistics)}};
  if (!m.sorted_by.empty()) json["sorted_by"] = m.sorted_by;
  if (!m.dropped.empty()) json["dropped"] = m.dropped;
  return with_checksum(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::size_t Manifest::field(std::string_view name_wanted) const {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < fields.size(); ++k) {
    if (fields[k].name == name_wanted) return k;
    names.push_back(fields[k].name);
  }
  throw Error(ExitCode::usage, fmt::format("there is no field '{}' (there are {}){}", name_wanted,
                                           text::join(names, ", "), text::suggestion(name_wanted, names)));
}

const SplitEntry& Manifest::split(std::string_view name_wanted) const {
  const auto found = splits.find(name_wanted);
  if (found != splits.end()) return found->second;
  const std::vector<std::string> names(kSplitNames.begin(), kSplitNames.end());
  throw Error(ExitCode::usage, fmt::format("there is no split '{}' (there are {}){}", name_wanted,
                                           text::join(names, ", "), text::suggestion(name_wanted, names)));
}

Manifest read_manifest(const fs::path& data_directory) {
  const fs::path path = data_directory / kManifestName;
  if (!fs::exists(path)) {
    throw Error(ExitCode::data,
                fmt::format("{} has no {}: it is not a training data set, or its conversion has not ended",
                            data_directory.string(), kManifestName));
  }
  std::string hash;
  const nlohmann::json json = read_json(path, "the manifest", &hash);
  try {
    Manifest manifest = manifest_from(json);
    manifest.hash = std::move(hash);
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw damaged(path, "the manifest", error.what());
  } catch (const std::invalid_argument& error) {
    throw damaged(path, "the manifest", error.what());
  }
}

}  // namespace wflow::converters
