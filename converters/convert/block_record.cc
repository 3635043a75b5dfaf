// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/block_record.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_writer.h"

namespace wflow::converters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

Json to_json(const std::vector<Moments>& list) {
  Json result = Json::array();
  for (const Moments& m : list) {
    result.push_back({{"count", m.count}, {"mean", m.mean}, {"m2", m.m2}, {"min", m.min}, {"max", m.max}});
  }
  return result;
}

std::vector<Moments> moments_from(const nlohmann::json& list) {
  std::vector<Moments> result;
  for (const auto& m : list)
    result.push_back({m.at("count"), m.at("mean"), m.at("m2"), m.at("min"), m.at("max")});
  return result;
}

// Bucket, count, bucket, count, ... for each channel.
Json to_json(const std::vector<Sketch>& list) {
  Json result = Json::array();
  for (const Sketch& sketch : list) {
    Json counts = Json::array();
    for (const auto& [bucket, count] : sketch.counts()) {
      counts.push_back(bucket);
      counts.push_back(count);
    }
    result.push_back(std::move(counts));
  }
  return result;
}

std::vector<Sketch> sketches_from(const nlohmann::json& list) {
  std::vector<Sketch> result;
  for (const auto& item : list) {
    BucketCounts counts;
    for (std::size_t k = 0; k + 1 < item.size(); k += 2) {
      const auto bucket = item.at(k).get<std::int32_t>();
      const bool rising = counts.empty() || bucket > counts.back().first;
      if (!rising || !is_bucket(bucket))
        throw Error(ExitCode::data, "a block record's distribution is damaged");
      counts.emplace_back(bucket, item.at(k + 1).get<std::uint64_t>());
    }
    result.emplace_back().add(counts);
  }
  return result;
}

Json to_json(const BlockShard& shard) {
  const ShardEntry& e = shard.entry;
  return {{"split", shard.split},
          {"file", e.file},
          {"samples", e.samples},
          {"bytes", e.bytes},
          {"xxh3_128", e.xxh3_128}};
}

BlockShard shard_from(const nlohmann::json& json) {
  return {json.at("split"), {json.at("file"), json.at("samples"), json.at("bytes"), json.at("xxh3_128")}};
}

Json to_json(const MissingSample& m) {
  return {{"sample", m.id}, {"split", m.split}, {"reason", m.reason}, {"file", m.file}};
}

MissingSample missing_from(const nlohmann::json& json) {
  return {json.at("sample"), json.at("split"), json.at("reason"), json.at("file")};
}

Json to_json(const FieldForm& form) {
  Json json = {{"name", form.name},
               {"role", role_name(form.role)},
               {"dtype", dtype_name(form.dtype)},
               {"shape", form.shape},
               {"layout", form.layout},
               {"layout_from", form.layout_from},
               {"channels", form.channels},
               {"units", form.units},
               {"stored", form.stored},
               {"pieces", form.pieces},
               {"compression", form.compressed && rows_per_chunk(form) == 1 ? "gzip" : "none"},
               {"coder", form.matches ? "matches" : "runs"}};
  if (form.ragged) {
    json["ragged"] = {{"axis", form.ragged->axis},
                      {"least", form.ragged->least},
                      {"most", form.ragged->most},
                      {"pad_value", form.ragged->pad_value}};
  }
  if (form.mask) json["mask"] = true;
  if (form.chunk) json["chunk"] = *form.chunk;
  return json;
}

FieldForm form_from(const nlohmann::json& json) {
  FieldForm form;
  form.name = json.at("name");
  form.role = json.at("role").get<std::string>() == "input" ? Role::input : Role::target;
  const auto dtype = parse_dtype(json.at("dtype").get<std::string>());
  form.dtype = dtype.value_or(DType::float32);
  form.shape = json.at("shape").get<std::vector<std::size_t>>();
  form.layout = json.at("layout");
  form.layout_from = json.at("layout_from");
  form.channels = json.at("channels").get<std::vector<std::string>>();
  form.units = json.at("units");
  form.stored = json.at("stored");
  form.pieces = json.value("pieces", std::size_t{1});
  form.compressed = json.value("compression", "gzip") == "gzip";
  form.matches = json.value("coder", "matches") == "matches";
  if (json.contains("ragged")) {
    const auto& ragged = json.at("ragged");
    form.ragged =
        RaggedAxis{ragged.at("axis"), ragged.at("least"), ragged.at("most"), ragged.at("pad_value")};
    if (form.ragged->axis >= form.shape.size())
      throw Error(ExitCode::data, "a block record's ragged field is damaged");
  }
  form.mask = json.value("mask", false);
  if (json.contains("chunk")) form.chunk = json.at("chunk").get<std::vector<std::size_t>>();
  if (form.chunk && form.chunk->size() > form.shape.size())
    throw Error(ExitCode::data, "the bricks of a field in a block record do not fit its shape");
  return form;
}

template <typename List>
Json list_json(const List& list) {
  Json result = Json::array();
  for (const auto& item : list) result.push_back(to_json(item));
  return result;
}

BlockRecord record_from(const nlohmann::json& json) {
  BlockRecord r;
  r.block = json.at("block");
  r.shard_samples = json.at("shard_samples");
  r.config_hash = json.at("config");
  r.rows_hash = json.at("rows");
  r.inputs_hash = json.at("inputs");
  for (const auto& form : json.at("fields")) r.fields.push_back(form_from(form));
  for (const auto& shard : json.at("shards")) r.shards.push_back(shard_from(shard));
  for (const auto& sample : json.at("missing")) r.missing.push_back(missing_from(sample));
  for (const auto& sample : json.value("dropped", nlohmann::json::array()))
    r.dropped.push_back(missing_from(sample));
  for (const auto& moments : json.at("statistics")) r.moments.push_back(moments_from(moments));
  for (const auto& list : json.value("distributions", nlohmann::json::array()))
    r.sketches.push_back(sketches_from(list));
  if (json.contains("addresses"))
    r.addresses = traces::parse_address_table(json.at("addresses").dump(), "the block record");
  return r;
}

}  // namespace

std::string file_state(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "absent";
  return fmt::format("{}@{}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

fs::path block_record_path(const fs::path& output, std::uint64_t block) {
  return output / "blocks" / fmt::format("{:05}.json", block);
}

std::string shard_name(std::string_view split, std::uint64_t block) {
  return fmt::format("{}/shard-{:05}.h5", split, block);
}

void write_block_record(const fs::path& output, const BlockRecord& r) {
  const bool ragged = std::any_of(r.fields.begin(), r.fields.end(),
                                  [](const FieldForm& form) { return form.ragged.has_value(); });
  Json json = {{"wflow_format", ragged ? kFormatWithRagged : kFormatVersion},
               {"block", r.block},
               {"shard_samples", r.shard_samples},
               {"config", r.config_hash},
               {"rows", r.rows_hash},
               {"inputs", r.inputs_hash},
               {"fields", list_json(r.fields)},
               {"shards", list_json(r.shards)},
               {"missing", list_json(r.missing)},
               {"dropped", list_json(r.dropped)},
               {"statistics", list_json(r.moments)},
               {"distributions", list_json(r.sketches)}};
  if (r.addresses) json["addresses"] = r.addresses->to_json();
  write_file_durably(block_record_path(output, r.block),
                     with_checksum(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
}

std::optional<BlockRecord> read_block_record(const fs::path& output, std::uint64_t block) {
  const fs::path path = block_record_path(output, block);
  if (!fs::exists(path)) return std::nullopt;
  const nlohmann::json json = read_json(path, "the block record");
  if (json.at("wflow_format").get<int>() < kFormatVersion)
    return std::nullopt;  // written by an older wflow: the block is converted again
  try {
    return record_from(json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data,
                fmt::format("the block record {} is damaged ({}); remove it and convert the block again",
                            path.string(), error.what()));
  }
}

void add_record(const BlockRecord& record, Manifest& manifest) {
  for (const BlockShard& shard : record.shards) {
    SplitEntry& split = manifest.splits[shard.split];
    split.samples += shard.entry.samples;
    split.shards.push_back(shard.entry);
  }
  for (const MissingSample& sample : record.missing) manifest.missing.push_back(sample.id);
  for (const MissingSample& sample : record.dropped) manifest.dropped.push_back(sample.id);
}

std::optional<std::string> shards_problem(const fs::path& output, const BlockRecord& record) {
  for (const BlockShard& shard : record.shards) {
    const fs::path path = output / shard.entry.file;
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) return fmt::format("{} is missing", path.string());
    if (bytes != shard.entry.bytes) {
      return fmt::format("{} has {} bytes, {} were written", path.string(), bytes, shard.entry.bytes);
    }
  }
  return std::nullopt;
}

namespace {

// The levels in a manifest: all percentiles if a normalisation uses them.
std::vector<double> quantile_levels(const Normalisation& normalisation) {
  if (normalisation.kind != "quantile") return {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
  std::vector<double> levels;
  for (int percent = 0; percent <= 100; ++percent) levels.push_back(percent / 100.0);
  return levels;
}

}  // namespace

void take_lengths(const FieldForm& form, FieldInfo& field) {
  if (!form.ragged) return;
  field.shape = form.shape;
  field.ragged =
      RaggedLengths{form.ragged->axis, form.ragged->least, form.ragged->most, form.ragged->pad_value};
}

std::vector<ChannelStatistics> MergedStatistics::of_mask(std::uint64_t samples, std::size_t cells) const {
  const double ones = moments.empty() ? 0 : static_cast<double>(moments.front().count);
  const double mean = samples == 0 ? 0 : ones / (static_cast<double>(samples) * static_cast<double>(cells));
  return {{.mean = mean, .std = std::sqrt(mean * (1 - mean)), .min = mean < 1 ? 0.0 : 1.0, .max = 1}};
}

void MergedStatistics::add(const BlockRecord& record, std::size_t field) {
  if (field < record.moments.size()) merge(moments, record.moments[field]);
  if (field >= record.sketches.size()) return;
  sketches.resize(std::max(sketches.size(), record.sketches[field].size()));
  for (std::size_t c = 0; c < record.sketches[field].size(); ++c)
    sketches[c].add(record.sketches[field][c].counts());
}

std::vector<ChannelStatistics> MergedStatistics::summaries(const Normalisation& normalisation,
                                                           std::size_t channels) const {
  std::vector<ChannelStatistics> result;
  for (const Moments& m : moments) result.push_back(summary(m));
  result.resize(channels);
  for (std::size_t c = 0; c < std::min(sketches.size(), channels); ++c) {
    if (sketches[c].total() == 0) continue;
    for (const double level : quantile_levels(normalisation))
      result[c].quantiles.emplace_back(level, sketches[c].quantile(level, result[c].min, result[c].max));
  }
  return result;
}

std::vector<std::vector<Sketch>> merged_sketches(const std::filesystem::path& data, std::size_t fields) {
  std::vector<std::vector<Sketch>> merged(fields);
  for (std::uint64_t block = 0;; ++block) {
    const auto record = read_block_record(data, block);
    if (!record) return merged;
    for (std::size_t k = 0; k < std::min(fields, record->sketches.size()); ++k) {
      merged[k].resize(std::max(merged[k].size(), record->sketches[k].size()));
      for (std::size_t c = 0; c < record->sketches[k].size(); ++c)
        merged[k][c].add(record->sketches[k][c].counts());
    }
  }
}

}  // namespace wflow::converters
