// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "converters/convert/block_record.h"
#include "converters/convert/conversion.h"
#include "converters/data_set_files.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// `first`: as for finish_first_blocks(), which takes the blocks that are there.
std::vector<BlockRecord> read_records(const Conversion& conversion, std::optional<std::uint64_t> first = {}) {
  const ConvertConfig& config = conversion.config;
  const std::uint64_t all = blocks_of(config).count(config.count);
  const std::uint64_t blocks = std::min(all, first.value_or(all));
  const std::string hash = conversion_hash(config);
  std::vector<BlockRecord> records;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    auto record = read_block_record(conversion.output, block);
    if (!record) {
      if (first) continue;
      throw Error(ExitCode::data,
                  fmt::format("block {} of {} has not been converted; run wflow-convert again without "
                              "--finish",
                              block, blocks));
    }
    if (record->config_hash != hash) {
      throw Error(ExitCode::data,
                  fmt::format("block {} was converted with another configuration; convert it again", block));
    }
    if (const auto problem = shards_problem(conversion.output, *record)) {
      throw Error(ExitCode::data,
                  fmt::format("block {} is not whole: {}; convert it again", block, *problem));
    }
    records.push_back(std::move(*record));
  }
  return records;
}

std::uint64_t samples_of(const BlockRecord& record) {
  std::uint64_t samples = 0;
  for (const BlockShard& shard : record.shards) samples += shard.entry.samples;
  return samples;
}

// The form of most samples; the first of equally frequent ones.
const BlockRecord& find_form(const std::vector<BlockRecord>& records) {
  struct Votes {
    const BlockRecord* first;
    std::uint64_t samples;
  };
  std::vector<Votes> votes;
  for (const BlockRecord& record : records) {
    if (record.shards.empty()) continue;
    const auto same = [&](const Votes& vote) { return vote.first->fields == record.fields; };
    auto found = std::find_if(votes.begin(), votes.end(), same);
    if (found == votes.end()) found = votes.insert(votes.end(), {&record, 0});
    found->samples += samples_of(record);
  }
  if (votes.empty()) {
    const auto failed =
        std::find_if(records.begin(), records.end(), [](const auto& r) { return !r.missing.empty(); });
    throw Error(ExitCode::data,
                fmt::format("no sample is usable{}{}", failed == records.end() ? "" : "; the first: ",
                            failed == records.end() ? "" : failed->missing.front().reason));
  }
  return *std::max_element(votes.begin(), votes.end(), [](const Votes& x, const Votes& y) {
            return x.samples < y.samples;
          })->first;
}

std::string form_text(const std::vector<FieldForm>& fields, const std::vector<FieldForm>& others) {
  for (std::size_t k = 0; k < std::min(fields.size(), others.size()); ++k) {
    if (fields[k] == others[k]) continue;
    return fmt::format("({}) {} in {}", fmt::join(fields[k].shape, ", "), dtype_name(fields[k].dtype),
                       fields[k].name);
  }
  return fmt::format("{} fields", fields.size());
}

// The samples of a block whose form differs from the data set's: the block stays, but is not in the data set.
std::vector<MissingSample> outvoted_samples(const Conversion& conversion, const BlockRecord& record,
                                            const BlockRecord& form) {
  std::vector<MissingSample> samples;
  const std::string reason =
      fmt::format("block {} holds {}, most samples of the data set {}", record.block,
                  form_text(record.fields, form.fields), form_text(form.fields, record.fields));
  for (const BlockShard& shard : record.shards) {
    const ShardFile file(conversion.output / shard.entry.file, {record.fields.front().name}, true);
    std::set<std::int64_t> ids(file.layout().ids.begin(), file.layout().ids.end());
    for (const std::int64_t id : ids) samples.push_back({id, shard.split, reason, shard.entry.file});
  }
  return samples;
}

// A sample that the campaign skipped, because a training had reached its goal, is no failure.
void check_missing(const ConvertConfig& config, const std::vector<BlockRecord>& records) {
  std::size_t missing = 0;
  std::uint64_t converted = 0;
  const MissingSample* first = nullptr;
  for (const BlockRecord& record : records) {
    for (const MissingSample& sample : record.missing) {
      if (is_skipped(sample.reason)) continue;
      ++missing;
      if (first == nullptr) first = &sample;
    }
    for (const BlockShard& shard : record.shards) converted += shard.entry.samples;
  }
  const double all = static_cast<double>(missing + converted);
  if (first == nullptr || static_cast<double>(missing) <= config.max_missing * all) return;
  throw Error(ExitCode::data,
              fmt::format("{} of {} samples are not usable, more than max_missing: {} allows; the first "
                          "is sample {}: {}",
                          missing, missing + converted, config.max_missing, first->id, first->reason));
}

Normalisation normalisation_of(const ConvertConfig& config, const std::string& name) {
  for (const FieldConfig& field : config.fields) {
    if (field.name != name || field.transforms.empty()) continue;
    const Transform& last = field.transforms.back();
    if (last.kind == Transform::Kind::standardise) return {"standardise", 0, 1};
    if (last.kind == Transform::Kind::min_max) return {"min_max", last.a, last.b};
    if (last.kind == Transform::Kind::quantile) return {"quantile", 0, 1, last.text};
  }
  return {};
}

FieldInfo info_of(const ConvertConfig& config, const FieldForm& form, const MergedStatistics& merged,
                  std::uint64_t training_samples) {
  const Normalisation normalisation = normalisation_of(config, form.name);
  FieldInfo info = {.name = form.name,
                    .role = form.role == Role::input ? FieldRole::input : FieldRole::target,
                    .dtype = std::string(dtype_name(form.dtype)),
                    .shape = form.shape,
                    .layout = form.layout,
                    .layout_from = form.layout_from,
                    .channels = form.channels,
                    .units = form.units,
                    .stored = form.stored,
                    .statistics = form.mask ? merged.of_mask(training_samples, form.values())
                                            : merged.summaries(normalisation, form.channel_count()),
                    .normalisation = normalisation,
                    .compression = form.compressed ? "gzip" : "none",
                    .coder = !form.compressed ? ""
                             : form.matches   ? "matches"
                                              : "runs",
                    .pieces = form.pieces,
                    .mask = form.mask,
                    .chunk = form.chunk};
  take_lengths(form, info);
  return info;
}

// The addresses of all traces, in order of block; beside the manifest, because a simulator may have 100,000.
void write_addresses(const fs::path& output, const std::vector<BlockRecord>& records) {
  traces::AddressTable all;
  for (const BlockRecord& record : records)
    if (record.addresses) all.merge(*record.addresses);
  if (all.size() > 0) write_file_durably(output / traces::kAddressFile, all.to_json().dump(1) + "\n");
}

// Excludes the blocks of another form.
Manifest manifest_of(const Conversion& conversion, std::vector<BlockRecord>& records,
                     std::vector<MissingSample>* outvoted) {
  const ConvertConfig& config = conversion.config;
  BlockRecord form = find_form(records);
  for (BlockRecord& record : records) {
    if (record.shards.empty() || record.fields == form.fields) continue;
    for (MissingSample& sample : outvoted_samples(conversion, record, form)) {
      if (outvoted != nullptr) outvoted->push_back(sample);
      record.missing.push_back(std::move(sample));
    }
    record.shards.clear();
    record.moments.clear();
    record.sketches.clear();
  }
  Manifest manifest;
  manifest.name = config.name.empty() ? conversion.output.filename().string() : config.name;
  manifest.created_by = fmt::format("wflow {}", kVersion);
  manifest.split_order = conversion.given_splits                  ? "given"
                         : config.split.order == SplitOrder::hash ? "hash"
                         : config.split.order == SplitOrder::even ? "even"
                                                                  : "count";
  manifest.split_seed = config.split.seed;
  for (const std::string_view name : kSplitNames) manifest.splits[std::string(name)] = {};
  std::vector<MergedStatistics> merged(form.fields.size());
  for (const BlockRecord& record : records) {
    add_record(record, manifest);
    for (std::size_t k = 0; k < merged.size(); ++k) {
      merged[k].add(record, k);
      const auto lengths = record.shards.empty() ? std::nullopt : record.fields[k].ragged;
      if (lengths) form.fields[k].include_length(lengths->least, lengths->most);
    }
  }
  std::sort(manifest.missing.begin(), manifest.missing.end());
  std::sort(manifest.dropped.begin(), manifest.dropped.end());
  for (std::size_t k = 0; k < form.fields.size(); ++k)
    manifest.fields.push_back(
        info_of(config, form.fields[k], merged[k], manifest.split(kSplitNames[kTrain]).samples));
  derive_flat_view(manifest);
  return manifest;
}

void write_manifest(const fs::path& folder, Manifest& manifest, const std::vector<BlockRecord>& records) {
  write_addresses(folder, records);
  const std::string text = manifest_text(manifest);
  write_file_durably(folder / kManifestName, text);
  manifest.hash = hash_bytes(take_checksum(text).text);
}

// Links of the folder to the data set's shards, so that the manifest's names lead to them.
void link_shards(const fs::path& folder, const fs::path& data) {
  for (const std::string_view name : kSplitNames) {
    const fs::path link = folder / name;
    if (fs::is_symlink(fs::symlink_status(link))) {
      fs::remove(link);
    } else if (fs::exists(link)) {
      throw Error(ExitCode::usage,
                  fmt::format("{} has a folder '{}' of its own: the data set of the first blocks "
                              "needs a new folder",
                              folder.string(), name));
    }
    fs::create_directory_symlink(fs::absolute(data / name).lexically_relative(fs::absolute(folder)), link);
  }
}

}  // namespace

Manifest finish_conversion(const Conversion& conversion, std::vector<MissingSample>* outvoted) {
  std::vector<BlockRecord> records = read_records(conversion);
  check_missing(conversion.config, records);
  Manifest manifest = manifest_of(conversion, records, outvoted);
  check_missing(conversion.config, records);
  write_manifest(conversion.output, manifest, records);
  return manifest;
}

Manifest finish_first_blocks(const Conversion& conversion, std::uint64_t blocks, const fs::path& folder) {
  std::vector<BlockRecord> records = read_records(conversion, blocks);
  if (records.empty())
    throw Error(ExitCode::data, fmt::format("none of the first {} blocks has been converted", blocks));
  Manifest manifest = manifest_of(conversion, records, nullptr);
  fs::create_directories(folder);
  link_shards(folder, conversion.output);
  write_manifest(folder, manifest, records);
  return manifest;
}

}  // namespace wflow::converters
