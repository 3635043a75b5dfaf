// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "converters/commands.h"
#include "converters/convert/conversion.h"
#include "converters/data_set_files.h"
#include "converters/shards/encode.h"
#include "converters/shards/manifest.h"
#include "traces/address_table.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// Reports the progress of the conversion to the campaign (events) and the user (lines).
class Progress {
 public:
  Progress(EventWriter& events, std::uint64_t total) : events_(events), total_(total) {}

  BlockObserver observer() {
    return {[this](std::uint64_t samples) { converted(samples); },
            [this](const MissingSample& sample) { missing(sample); },
            [this](const fs::path& path) { events_.artifact("shard", path.string()); }};
  }
  // The final result, for the campaign's status.
  void finish() {
    nlohmann::json missing = nlohmann::json::array();
    for (const Reason& reason : reasons_)
      missing.push_back({{"reason", reason.text}, {"samples", reason.samples}, {"first", reason.first}});
    for (const Reason& reason : reasons_) {
      if (reason.samples > 1)
        fmt::print(stderr, "{} samples are left out: {} (the first: sample {})\n", reason.samples,
                   reason.text, reason.first);
    }
    events_.emit(
        {{"type", "converted"}, {"samples", done_ - std::min(done_, missing_)}, {"missing", missing}});
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{500};
  static constexpr std::size_t kMostReasons = 8;

  void converted(std::uint64_t samples) {
    done_ = std::min(done_ + samples, total_);  // a block may have started again
    if (done_ < total_ && Clock::now() - last_ < kInterval) return;
    last_ = Clock::now();
    events_.progress(done_, total_, "samples");
  }
  void missing(const MissingSample& sample) {
    const std::string reason = without_folder(sample);
    if (!is_skipped(reason)) events_.emit({{"type", "missing"}, {"sample", sample.id}, {"reason", reason}});
    ++missing_;
    // An error of all samples is one line now, and one with their number at the end.
    if (count(reason, static_cast<std::uint64_t>(sample.id)))
      fmt::print(stderr, "sample {} is left out: {}\n", sample.id, sample.reason);
  }

  // Keeps only the names of files, so that equal errors have equal texts.
  static std::string without_folder(const MissingSample& sample) {
    const std::string folder = fs::path(sample.file).parent_path().string() + "/";
    std::string reason = sample.reason;
    for (std::size_t at = reason.find(folder); at != std::string::npos; at = reason.find(folder, at))
      reason.erase(at, folder.size());
    return reason;
  }

  struct Reason {
    std::string text;
    std::uint64_t samples = 0;
    std::uint64_t first = 0;
  };
  // True for the first sample with this reason.
  bool count(const std::string& text, std::uint64_t sample) {
    auto same = std::ranges::find(reasons_, text, &Reason::text);
    if (same == reasons_.end() && reasons_.size() < kMostReasons)
      same = reasons_.insert(same, {text, 0, sample});
    if (same == reasons_.end()) {
      same = std::prev(reasons_.end());
      same->text = "other reasons";
    }
    ++same->samples;
    same->first = std::min(same->first, sample);
    return same->samples == 1;
  }

  EventWriter& events_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::uint64_t missing_ = 0;
  std::vector<Reason> reasons_;
  Clock::time_point last_{};
};

struct Job {
  Conversion conversion;
  SampleTable table;  // all samples, or those of one block; empty if only finishing

  std::uint64_t blocks() const { return blocks_of(conversion.config).count(conversion.config.count); }
  // They are in order of their numbers.
  std::span<const SampleRow> rows_of(std::uint64_t block) const {
    const BlockRange items = blocks_of(conversion.config).items(block, conversion.config.count);
    const auto first = std::ranges::lower_bound(table.rows, items.first, {}, &SampleRow::number);
    const auto end = std::ranges::lower_bound(first, table.rows.end(), items.end, {}, &SampleRow::number);
    return {first, end};
  }
};

void require_output(const ConvertConfig& config) {
  if (config.output.empty())
    throw Error(ExitCode::spec, "the configuration needs the key 'output': where the data set goes");
}

// Existing blocks decide: with another K the same samples would be in other files, and the files that
// determined K may be deleted (delete_inputs).
std::uint64_t choose_shard_samples(const ConvertConfig& config, const fs::path& output,
                                   const SampleTable& table) {
  const bool decided = config.shard_samples > 0;
  if (!decided) {
    if (const auto record = read_block_record(output, 0)) return record->shard_samples;
  }
  std::uint64_t bytes = 0;
  if (const auto form = decided ? std::nullopt : find_form(config, table.columns, table.rows)) {
    for (const FieldForm& field : *form) bytes += field.values() * dtype_size(field.dtype);
  }
  return shard_samples_of(config, config.count, bytes);
}

bool gives_order(const fs::path& path) {
  yaml::Diagnostics ignored("");
  const yaml::Node root = yaml::parse(read_file(path), ignored);
  const yaml::Node* block = root.find("convert");
  const yaml::Node* split = (block != nullptr ? *block : root).find("split");
  return split != nullptr && split->is_map() && split->find("order") != nullptr;
}

// True if the existing data set was split by hash.
bool was_split_by_hash(const ConvertConfig& by_hash, const fs::path& output) {
  if (fs::exists(output / kManifestName)) return read_manifest(output).split_order == "hash";
  const auto record = read_block_record(output, 0);
  return record && record->config_hash == conversion_hash(by_hash);
}

// The default order: by hash without ids (rows inserted between others would move these), or if the data set
// was started so. `config.shard_samples` is known.
void choose_order(ConvertConfig& config, const fs::path& path, const SampleTable& table) {
  if (config.split.order != SplitOrder::even || gives_order(path)) return;
  ConvertConfig by_hash = config;
  by_hash.split.order = SplitOrder::hash;
  if (!table.has_ids || was_split_by_hash(by_hash, config.output)) config = std::move(by_hash);
}

// Checked before the rows, so that a wrong number has its own error. `config.count` and `shard_samples` are
// known.
void check_block(const ConvertConfig& config, const RunOptions& options) {
  if (!options.block) return;
  const std::uint64_t blocks = blocks_of(config).count(config.count);
  if (*options.block < blocks) return;
  throw Error(ExitCode::usage,
              fmt::format("there is no block {}: the {} samples make {} of {}", *options.block, config.count,
                          blocks, std::min(config.shard_samples, config.count)));
}

// For a table of all samples.
Job table_job(ConvertConfig config, const RunOptions& options) {
  require_output(config);
  SampleTable table = read_sample_table(config.samples, config, Numbering::by_row);
  if (config.count > 0 && config.count != table.rows.size()) {
    throw Error(ExitCode::spec, fmt::format("'count' is {}, but {} has {} rows", config.count, config.samples,
                                            table.rows.size()));
  }
  config.count = table.rows.size();
  config.shard_samples = choose_shard_samples(config, config.output, table);
  choose_order(config, options.config, table);
  check_block(config, options);
  const fs::path output = config.output;
  const auto columns = table.columns;
  return {{std::move(config), output, columns}, std::move(table)};
}

// Samples without a row from the campaign are missing.
void fill_gaps(SampleTable& table, std::uint64_t first, std::uint64_t end) {
  std::vector<SampleRow> rows;
  auto next = table.rows.begin();
  for (std::uint64_t number = first; number < end; ++number) {
    if (next != table.rows.end() && next->number == number) {
      rows.push_back(*next++);
    } else {
      const std::vector<double> unknown(table.columns.size(), std::numeric_limits<double>::quiet_NaN());
      SampleRow row;
      row.number = number;
      row.id = static_cast<std::int64_t>(number);
      row.parameters = unknown;
      row.identity = identity_of(std::to_string(number));
      rows.push_back(std::move(row));
    }
  }
  table.rows = std::move(rows);
}

// In a campaign: the rows of one block, or none to finish.
Job campaign_job(ConvertConfig config, const RunOptions& options) {
  require_output(config);
  if (config.count == 0)
    throw Error(ExitCode::spec, "the configuration needs the key 'count': the number of samples in all");
  config.shard_samples = campaign_shard_samples(config);
  check_block(config, options);
  const fs::path output = config.output;
  Job job{{std::move(config), output, {}}, {}};
  if (!options.block) return job;
  const ConvertConfig& c = job.conversion.config;
  job.table = read_sample_table(options.rows, c, Numbering::by_id);
  job.conversion.columns = job.table.columns;
  const auto [first, end] = blocks_of(c).items(*options.block, c.count);
  for (const SampleRow& row : job.table.rows) {
    if (row.number >= first && row.number < end) continue;
    throw Error(ExitCode::data,
                fmt::format("{} has sample {}, but block {} is of samples {} to {}", options.rows.string(),
                            row.id, *options.block, first, end == 0 ? 0 : end - 1));
  }
  fill_gaps(job.table, first, end);
  return job;
}

Job make_job(const RunOptions& options) {
  ConvertConfig config = load_config(options.config);
  const bool campaign = !options.rows.empty() || config.samples.empty();
  if (campaign && !options.block && !options.finish) {
    throw Error(ExitCode::usage,
                fmt::format("{} is of a campaign ('from'): give --block and --samples, or --finish",
                            options.config.string()));
  }
  if (campaign && options.block && options.rows.empty()) {
    throw Error(ExitCode::usage, "--block needs --samples here: the table of the block's rows");
  }
  Job job = campaign ? campaign_job(std::move(config), options) : table_job(std::move(config), options);
  job.conversion.threads = options.threads;
  job.conversion.force = options.force;
  return job;
}

void convert_one(const Job& job, std::uint64_t block, const BlockObserver& observer) {
  const BlockRecord record = convert_block(job.conversion, block, job.rows_of(block), observer);
  std::uint64_t samples = 0;
  for (const BlockShard& shard : record.shards) samples += shard.entry.samples;
  fmt::print("block {}: {} samples in {} shards, {} missing\n", block, samples, record.shards.size(),
             record.missing.size());
}

void print_sizes(const fs::path& path, const Manifest& manifest) {
  fmt::print("{}: {} train, {} validation, {} test samples, {} missing\n", path.string(),
             manifest.split("train").samples, manifest.split("validation").samples,
             manifest.split("test").samples, manifest.missing.size());
}

void finish(const Job& job, EventWriter& events) {
  const fs::path addresses = job.conversion.output / traces::kAddressFile;
  const std::size_t known = fs::exists(addresses) ? traces::read_address_table(addresses).size() : 0;
  std::vector<MissingSample> outvoted;
  const Manifest manifest = finish_conversion(job.conversion, &outvoted);
  Progress progress(events, outvoted.size());
  const BlockObserver observer = progress.observer();
  for (const MissingSample& sample : outvoted) observer.missing(sample);
  if (!outvoted.empty()) progress.finish();
  const fs::path path = job.conversion.output / kManifestName;
  events.artifact("manifest", path.string());
  for (const FieldInfo& field : manifest.fields) fmt::print("{}\n", describe_field(field));
  if (fs::exists(addresses)) {
    const traces::AddressTable table = traces::read_address_table(addresses);
    std::string line = table.summary();
    if (known > 0 && table.size() != known) line += fmt::format(", {} before", known);
    fmt::print("{}\n", line);
    events.note(line);
  }
  print_sizes(path, manifest);
}

void print_plan(const Job& job) {
  const ConvertConfig& config = job.conversion.config;
  const SplitMap split(config.split, config.count, config.grown);
  std::uint64_t done = 0;
  for (std::uint64_t block = 0; block < job.blocks(); ++block) {
    const auto record = read_block_record(job.conversion.output, block);
    if (record && record->config_hash == conversion_hash(config) &&
        !shards_problem(job.conversion.output, *record))
      ++done;
  }
  fmt::print("{} samples in {} blocks of {}: {}{} train, {} validation, {} test\n", config.count,
             job.blocks(), config.shard_samples, split.exact() ? "" : "about ", split.size(0), split.size(1),
             split.size(2));
  fmt::print("parameters: {}\n", text::join(job.conversion.columns, ", "));
  for (const FieldConfig& field : config.fields)
    fmt::print("field: {} ({})\n", field.name, role_name(field.role));
  fmt::print("output: {} ({} of {} blocks are there)\n", job.conversion.output.string(), done, job.blocks());
}

}  // namespace

ConvertConfig load_config(const fs::path& path) {
  yaml::Diagnostics diagnostics(path.string());
  const yaml::Node root = yaml::parse(read_file(path), diagnostics);
  diagnostics.throw_if_errors();
  const yaml::Node* block = root.find("convert");
  ConvertConfig config = read_convert_config(block != nullptr ? *block : root, diagnostics);
  diagnostics.throw_if_errors();
  const fs::path folder = path.parent_path();
  if (!config.samples.empty()) config.samples = (folder / config.samples).string();
  if (!config.output.empty()) config.output = (folder / config.output).lexically_normal().string();
  while (config.output.size() > 1 && config.output.ends_with('/')) config.output.pop_back();
  return config;
}

void run_conversion(const RunOptions& options) {
  const Job job = make_job(options);
  if (options.dry_run) {
    print_plan(job);
    return;
  }
  if (options.first_blocks) {
    print_sizes(options.into / kManifestName,
                finish_first_blocks(job.conversion, *options.first_blocks, options.into));
    return;
  }
  EventWriter events = EventWriter::from_environment();
  if (!options.finish) {
    Progress progress(events, job.table.rows.size());
    const BlockObserver observer = progress.observer();
    if (options.block) {
      convert_one(job, *options.block, observer);
      progress.finish();
      return;
    }
    for (std::uint64_t block = 0; block < job.blocks(); ++block) convert_one(job, block, observer);
    progress.finish();
  }
  finish(job, events);
}

}  // namespace wflow::converters
