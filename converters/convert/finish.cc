// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/finish.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

std::vector<BlockRecord> read_records(const Conversion& conversion) {
  const ConvertConfig& config = conversion.config;
  const std::uint64_t blocks = block_count(config.count, config.shard_samples);
  const std::string hash = conversion_hash(config);
  std::vector<BlockRecord> records;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    auto record = read_block_record(conversion.output, block);
    if (!record) {
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

// The first block with samples decides, and the others must agree.
const BlockRecord& find_form(const std::vector<BlockRecord>& records) {
  const auto has_samples = [](const auto& r) { return !r.shards.empty(); };
  const auto first = std::find_if(records.begin(), records.end(), has_samples);
  if (first == records.end()) {
    const auto failed =
        std::find_if(records.begin(), records.end(), [](const auto& r) { return !r.missing.empty(); });
    throw Error(ExitCode::data,
                fmt::format("no sample is usable{}{}", failed == records.end() ? "" : "; the first: ",
                            failed == records.end() ? "" : failed->missing.front().reason));
  }
  for (const BlockRecord& record : records) {
    if (!has_samples(record)) continue;
    if (record.shape == first->shape && record.dtype == first->dtype && record.labels == first->labels)
      continue;
    throw Error(ExitCode::data,
                fmt::format("block {} holds ({}) {} with {} labels, block {} ({}) {} with {}; give "
                            "'shape' and 'dtype' to say which is right",
                            record.block, fmt::join(record.shape, ", "), record.dtype, record.labels.size(),
                            first->block, fmt::join(first->shape, ", "), first->dtype, first->labels.size()));
  }
  return *first;
}

void check_missing(const ConvertConfig& config, const std::vector<BlockRecord>& records) {
  std::size_t missing = 0;
  std::uint64_t converted = 0;
  const MissingSample* first = nullptr;
  for (const BlockRecord& record : records) {
    missing += record.missing.size();
    if (first == nullptr && !record.missing.empty()) first = &record.missing.front();
    for (const BlockShard& shard : record.shards) converted += shard.entry.samples;
  }
  const double all = static_cast<double>(missing + converted);
  if (first == nullptr || static_cast<double>(missing) <= config.max_missing * all) return;
  throw Error(ExitCode::data,
              fmt::format("{} of {} samples are not usable, more than max_missing: {} allows; the first "
                          "is sample {}: {}",
                          missing, missing + converted, config.max_missing, first->id, first->reason));
}

void add_record(const BlockRecord& record, Manifest& manifest) {
  for (const BlockShard& shard : record.shards) {
    SplitEntry& split = manifest.splits[shard.split];
    split.samples += shard.entry.samples;
    split.shards.push_back(shard.entry);
  }
  for (const MissingSample& sample : record.missing) manifest.missing.push_back(sample.id);
}

std::vector<ChannelStatistics> summaries(const std::vector<Moments>& moments, std::size_t count) {
  std::vector<ChannelStatistics> result;
  for (const Moments& m : moments) result.push_back(summary(m));
  result.resize(count);
  return result;
}

}  // namespace

Manifest finish_conversion(const Conversion& conversion) {
  const ConvertConfig& config = conversion.config;
  const std::vector<BlockRecord> records = read_records(conversion);
  check_missing(config, records);
  const BlockRecord& form = find_form(records);
  Manifest manifest;
  manifest.name = config.name.empty() ? conversion.output.filename().string() : config.name;
  manifest.created_by = fmt::format("wflow {}", kVersion);
  manifest.shape = form.shape;
  manifest.dtype = form.dtype;
  manifest.units = config.units;
  manifest.labels = form.labels;
  manifest.channels = config.channels;
  manifest.split_seed = config.split.seed;
  for (const std::string_view name : kSplitNames) manifest.splits[std::string(name)] = {};
  std::vector<Moments> x;
  std::vector<Moments> y;
  for (const BlockRecord& record : records) {
    add_record(record, manifest);
    if (!record.x.empty()) merge(x, record.x);
    if (!record.y.empty()) merge(y, record.y);
  }
  std::sort(manifest.missing.begin(), manifest.missing.end());
  manifest.statistics = {summaries(x, manifest.shape[0]), summaries(y, manifest.labels.size())};
  const std::string text = manifest_text(manifest);
  write_file_durably(conversion.output / kManifestName, text);
  manifest.hash = hash_bytes(text);
  return manifest;
}

}  // namespace wflow::converters
