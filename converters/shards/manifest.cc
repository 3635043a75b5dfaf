// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/manifest.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "converters/split.h"

namespace wflow::converters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

Json to_json(const std::vector<ChannelStatistics>& list) {
  Json result = Json::array();
  for (const auto& s : list)
    result.push_back({{"mean", s.mean}, {"std", s.std}, {"min", s.min}, {"max", s.max}});
  return result;
}

std::vector<ChannelStatistics> statistics_from(const nlohmann::json& list) {
  std::vector<ChannelStatistics> result;
  for (const auto& item : list) {
    result.push_back({item.at("mean"), item.at("std"), item.at("min"), item.at("max")});
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

// The paths come from a file that anyone may have edited: they must not lead out of the data directory.
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

Manifest manifest_from(const nlohmann::json& json) {
  Manifest m;
  m.name = json.at("name");
  m.created_by = json.value("created_by", "");
  m.shape = json.at("shape");
  m.dtype = json.at("dtype");
  m.units = json.value("units", "");
  m.labels = json.at("labels");
  m.channels = json.at("channels");
  m.split_seed = json.at("split_seed");
  for (const std::string_view name : kSplitNames) {
    m.splits[std::string(name)] = split_from(json.at("splits").at(std::string(name)));
  }
  m.missing = json.at("missing").get<std::vector<std::int64_t>>();
  m.statistics.x = statistics_from(json.at("statistics").at("x"));
  m.statistics.y = statistics_from(json.at("statistics").at("y"));
  if (m.statistics.x.size() != m.shape[0]) throw std::invalid_argument("statistics are not one a channel");
  if (m.statistics.y.size() != m.labels.size()) throw std::invalid_argument("statistics are not one a label");
  return m;
}

Error damaged(const fs::path& path, const std::string& what, const char* why) {
  return Error(ExitCode::data,
               fmt::format("{} {} is damaged ({}); convert again with --finish", what, path.string(), why));
}

}  // namespace

nlohmann::json read_json(const fs::path& path, const std::string& what) {
  nlohmann::json json;
  int format = 0;
  try {
    json = nlohmann::json::parse(read_file(path));
    format = json.at("wflow_format");
  } catch (const nlohmann::json::exception& error) {
    throw damaged(path, what, error.what());
  }
  if (format > kFormatVersion) {
    throw Error(ExitCode::version,
                fmt::format("{} {} is of format {}, this wflow knows {}; use a newer wflow", what,
                            path.string(), format, kFormatVersion));
  }
  return json;
}

std::string manifest_text(const Manifest& m) {
  Json splits;
  for (const std::string_view name : kSplitNames) splits[std::string(name)] = to_json(m.split(name));
  Json json = {{"wflow_format", kFormatVersion},
               {"name", m.name},
               {"created_by", m.created_by},
               {"shape", m.shape},
               {"dtype", m.dtype}};
  if (!m.units.empty()) json["units"] = m.units;
  json["labels"] = m.labels;
  json["channels"] = m.channels;
  json["splits"] = std::move(splits);
  json["split_seed"] = m.split_seed;
  json["missing"] = m.missing;
  json["statistics"] = {{"x", to_json(m.statistics.x)}, {"y", to_json(m.statistics.y)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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
  const nlohmann::json json = read_json(path, "the manifest");
  try {
    Manifest manifest = manifest_from(json);
    manifest.hash = hash_file(path);
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw damaged(path, "the manifest", error.what());
  } catch (const std::invalid_argument& error) {
    throw damaged(path, "the manifest", error.what());
  }
}

}  // namespace wflow::converters
