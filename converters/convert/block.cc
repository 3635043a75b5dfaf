// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "converters/convert/conversion.h"
#include "converters/convert/ordered_parallel.h"
#include "converters/input/read_ahead.h"
#include "converters/shards/encode.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_writer.h"
#include "traces/trace_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// Includes the file names, but not their folder: a campaign directory may be moved.
std::string hash_of_rows(const std::vector<std::string>& columns, std::span<const SampleRow> rows) {
  std::string text = text::join(columns, ",") + "\n";
  const auto out = std::back_inserter(text);
  const fs::path* file = nullptr;
  std::string name;
  for (const SampleRow& row : rows) {
    if (file != &row.file.get()) {
      file = &row.file.get();
      name = file->filename().string();
    }
    fmt::format_to(out, "{},{},{},{}", row.number, row.id, name, row.identity);
    if (row.row) fmt::format_to(out, ",row {}", *row.row);
    if (row.stratum) fmt::format_to(out, ",stratum {}", *row.stratum);
    if (row.split) fmt::format_to(out, ",split {}", *row.split);
    if (!row.left_out.empty()) fmt::format_to(out, ",left out {}", row.left_out);
    for (const double target : row.parameters) text.append(",").append(text::from_real(target));
    text += '\n';
  }
  return hash_bytes(text);
}

// The hash of files in turn: a stacked file is checked only once for all its rows.
class FileStates {
 public:
  const std::string& of(std::size_t place, const fs::path& file) {
    if (last_.size() <= place) last_.resize(place + 1);
    Last& last = last_[place];
    if (last.path != file.native()) {
      last.path = file.native();
      last.state = file_state(file);
    }
    return last.state;
  }

 private:
  struct Last {
    std::string path;
    std::string state;
  };
  std::vector<Last> last_;  // by the file's index among those of its sample
};

std::string hash_of_inputs(const ConvertConfig& config, std::span<const SampleRow> rows) {
  std::string text;
  FileStates states;
  for (const SampleRow& row : rows) {
    std::size_t place = 0;
    for (const fs::path& file : sample_files(config, row)) text.append(states.of(place++, file)).append("\n");
    text += '\n';
  }
  return hash_bytes(text);
}

struct PlacedRow {
  const SampleRow* row = nullptr;
  std::size_t split = 0;
};

// Strata are counted in each block separately: blocks are independent.
std::vector<PlacedRow> place_rows(const SplitMap& split, std::span<const SampleRow> rows) {
  std::vector<PlacedRow> placed;
  std::map<std::uint64_t, SplitMap::Stratum> strata;
  for (const SampleRow& row : rows) {
    const auto part =
        row.split ? row.split
        : row.stratum
            ? split.next_of(strata[*row.stratum], row.identity)
            : split.of(split.order() == SplitOrder::even ? static_cast<std::uint64_t>(row.id) : row.number,
                       row.identity);
    if (part) placed.push_back({&row, *part});
  }
  return placed;
}

// Thrown if a sample's values do not fit into the narrow type chosen by the first one: the block starts
// again.
struct TooWide {
  EncodedSample::TooWide field;
};

// Thrown if more samples have another form than the assumed one: the block starts again with theirs.
struct OutvotedForm {
  std::vector<std::size_t> placed;  // some of the samples with this form, by their number among those placed
};

// The addresses and types of the traces of a block's samples.
class TraceCounter {
 public:
  void add(const ConvertConfig& config, const SampleRow& row) {
    if (!row.row) return;
    for (const fs::path& file : sample_files(config, row)) {
      if (!file.native().ends_with(traces::kIndexEnding)) continue;
      open(file);
      count(file_->rows(*row.row));
    }
  }

  std::optional<traces::AddressTable> take() {
    if (types_.traces() == 0) return std::nullopt;
    for (traces::Address address : known_.addresses()) {
      address.count = draws_.at(traces::address_hash(address.name));
      if (address.count > 0) types_.add(address);
    }
    return std::move(types_);
  }

 private:
  void open(const fs::path& path) {
    if (path == path_) return;
    path_ = path;
    file_.emplace(path);
    known_.merge(traces::addresses_in(path.parent_path()));
    for (const traces::Address& address : known_.addresses())
      draws_.try_emplace(traces::address_hash(address.name), 0);
  }

  void count(const std::vector<double>& rows) {
    traces::TypeHash type;
    for (std::size_t i = 0; i < rows.size(); i += traces::kRowValues) {
      const std::uint64_t hash = traces::hash_of_halves(rows[i + traces::kHigh], rows[i + traces::kLow]);
      type.add(hash);
      const auto found = draws_.find(hash);
      if (found == draws_.end())
        throw Error(
            ExitCode::data,
            fmt::format("{} has a draw whose address is in no addresses.*.json beside it", path_.string()));
      ++found->second;
    }
    types_.add_type(type.value(), rows.size() / traces::kRowValues);
  }

  fs::path path_;
  std::optional<traces::TraceFile> file_;
  traces::AddressTable known_;                    // the addresses beside all files so far
  std::map<std::uint64_t, std::uint64_t> draws_;  // of the block's samples, by the hash of each of them
  traces::AddressTable types_;
};

class BlockConverter {
 public:
  BlockConverter(const Conversion& conversion, std::uint64_t block, std::span<const SampleRow> rows,
                 std::optional<SampleForm> form, const BlockObserver& observer)
      : conversion_(conversion),
        config_(conversion.config),
        observer_(observer),
        placed_(place_rows(SplitMap(config_.split, config_.count, config_.grown), rows)),
        form_(std::move(form)) {
    // Rows of stacked files share them, and are read ahead by the reader.
    if (!config_.stacked)
      ahead_.emplace(placed_.size(),
                     [this](std::size_t i) { return sample_files(config_, *placed_[i].row); });
    record_.block = block;
    record_.shard_samples = config_.shard_samples;
    record_.config_hash = conversion_hash(config_);
    record_.rows_hash = hash_of_rows(conversion.columns, rows);
    record_.inputs_hash =
        hash_of_inputs(config_, rows);  // before reading: a change in the meantime is detected next time
    if (form_) record_.fields = *form_;
    for (FieldForm& field : record_.fields) field.forget_lengths();
  }

  BlockRecord run() {
    remove_leftovers();
    encode_all();
    // Only now: the block may have started again with another form.
    for (const MissingSample& sample : record_.missing) {
      if (observer_.missing) observer_.missing(sample);
    }
    close_shards();
    record_.addresses = addresses_.take();
    if (config_.delete_inputs) verify_shards();
    publish();
    return std::move(record_);
  }

 private:
  struct Shard {
    std::optional<ShardWriter> writer;
    std::vector<std::vector<std::uint64_t>> raw_hashes;  // for each sample, by field
    std::vector<std::int64_t> missing;
  };

  fs::path shard_path(std::size_t split) const {
    return conversion_.output / shard_name(kSplitNames[split], record_.block);
  }

  // Temporaries of a killed run of this block. (A run that is still alive has lost its lease.)
  void remove_leftovers() const {
    const auto remove = [](const fs::path& target) {
      remove_temporaries(target.parent_path(), target.filename().string());
    };
    for (std::size_t k = 0; k < kSplitNames.size(); ++k) remove(shard_path(k));
    remove(block_record_path(conversion_.output, record_.block));
  }

  void encode_all() {
    const std::size_t threads =
        std::max<std::size_t>(1, std::min<std::size_t>(conversion_.threads, placed_.size()));
    std::vector<SampleEncoder> encoders;
    for (std::size_t i = 0; i < threads; ++i) encoders.emplace_back(config_, conversion_.columns, form_);
    const std::size_t group = group_of_samples(threads);
    const auto end_of = [&](std::size_t first) { return std::min(placed_.size(), first + group); };
    ordered_parallel<std::vector<EncodedSample>>(
        (placed_.size() + group - 1) / group, threads,
        [&](std::size_t worker, std::size_t g) {
          if (ahead_) ahead_->reached(end_of(g * group));
          std::vector<EncodedSample> samples;
          for (std::size_t i = g * group; i < end_of(g * group); ++i)
            samples.push_back(encoders[worker].encode(*placed_[i].row, placed_[i].split == kTrain));
          return samples;
        },
        [&](std::size_t g, std::vector<EncodedSample> samples) {
          for (std::size_t k = 0; k < samples.size(); ++k) {
            const std::size_t i = g * group + k;
            count_form(i, samples[k]);
            take(placed_[i], samples[k]);
            if (2 * of_form_ > placed_.size()) fail_if_unusable();
          }
        });
    check_majority();
    fail_if_unusable();
    add_sketches(encoders);
  }

  // The number of samples that a thread passes on at once: for tiny samples, passing costs more than reading.
  // Reading may still be slow, so every thread gets several groups.
  std::size_t group_of_samples(std::size_t threads) const {
    constexpr std::size_t kGroupBytes = std::size_t{512} << 10;
    constexpr std::size_t kGroupsPerThread = 8;
    if (!form_) return 1;
    std::size_t bytes = 1;
    for (const FieldForm& field : *form_) bytes += field.values() * dtype_size(field.dtype);
    return std::max<std::size_t>(
        1, std::min(kGroupBytes / bytes, placed_.size() / (kGroupsPerThread * threads)));
  }

  // The majority of the readable samples decides, the first of equal ones: otherwise one wrong first sample
  // would make all others missing.
  void count_form(std::size_t i, EncodedSample& sample) {
    if (!sample.readable) return;
    if (!sample.other_form) {
      ++of_form_;
      return;
    }
    const auto same = [&](const OtherForm& other) { return other.form == *sample.other_form; };
    auto found = std::find_if(others_.begin(), others_.end(), same);
    if (found == others_.end())
      found = others_.insert(others_.end(), OtherForm{std::move(*sample.other_form), {}});
    found->placed.push_back(i);
    // Stops as soon as this is certain: reading the other samples would be wasted.
    if (2 * found->placed.size() > placed_.size()) check_majority();
  }

  void check_majority() const {
    const auto largest = std::max_element(others_.begin(), others_.end(), [](const auto& a, const auto& b) {
      return a.placed.size() < b.placed.size();
    });
    if (largest != others_.end() && largest->placed.size() > of_form_) throw OutvotedForm{largest->placed};
  }

  void take(const PlacedRow& placed, const EncodedSample& sample) {
    if (sample.too_wide) throw TooWide{*sample.too_wide};
    if (!sample.problem.empty()) {
      note_missing(placed, sample);
    } else if (!sample.dropped.empty()) {
      const SampleRow& row = *placed.row;
      record_.dropped.push_back(
          {row.id, std::string(kSplitNames[placed.split]), sample.dropped, first_file(row)});
    } else {
      add(placed, sample);
    }
    if (observer_.converted) observer_.converted(1);
  }

  void note_missing(const PlacedRow& placed, const EncodedSample& sample) {
    const std::string& reason = sample.problem;
    const SampleRow& row = *placed.row;
    if (config_.on_missing == OnMissing::fail) {
      const std::string said = fmt::format("sample {} is not usable: {} (on_missing: fail)", row.id, reason);
      if (!sample.readable) throw Error(ExitCode::data, said);
      if (unusable_.empty()) unusable_ = said;
      return;
    }
    record_.missing.push_back({row.id, std::string(kSplitNames[placed.split]), reason, first_file(row)});
    shards_[placed.split].missing.push_back(row.id);
  }

  // Only when the block's form is certainly that of most samples: before, the other samples may be the
  // correct ones.
  void fail_if_unusable() const {
    if (!unusable_.empty()) throw Error(ExitCode::data, unusable_);
  }

  std::string first_file(const SampleRow& row) const {
    const auto files = sample_files(config_, row);
    return files.empty() ? "" : files.front().string();
  }

  void add(const PlacedRow& placed, const EncodedSample& sample) {
    Shard& shard = shards_[placed.split];
    if (!shard.writer) shard.writer.emplace(shard_path(placed.split), describe(placed.split));
    for (std::size_t piece = 0; piece < sample.rows.size(); ++piece) {
      shard.writer->add(placed.row->id, sample.rows[piece], static_cast<std::uint32_t>(piece));
      for (std::size_t k = 0; k < record_.fields.size(); ++k) {
        const std::size_t steps = sample.rows[piece][k].steps;
        record_.fields[k].include_length(steps, steps);
      }
      std::vector<std::uint64_t> hashes;
      for (const EncodedField& field : sample.rows[piece]) hashes.push_back(field.raw_hash);
      if (config_.delete_inputs) shard.raw_hashes.push_back(std::move(hashes));
    }
    if (placed.split == kTrain) add_statistics(sample);
    addresses_.add(config_, *placed.row);
  }

  void add_statistics(const EncodedSample& sample) {
    record_.moments.resize(form_->size());
    const Moments* next = sample.moments.data();
    for (std::size_t k = 0; k < form_->size(); ++k) {
      std::vector<Moments>& total = record_.moments[k];
      total.resize((*form_)[k].channel_count());
      for (Moments& channel : total) channel.merge(*next++);
    }
  }

  void add_sketches(const std::vector<SampleEncoder>& encoders) {
    record_.sketches.resize(record_.moments.size());
    for (const SampleEncoder& encoder : encoders) {
      for (std::size_t k = 0; k < encoder.sketches().size(); ++k) {
        const std::vector<Sketch>& part = encoder.sketches()[k];
        std::vector<Sketch>& total = record_.sketches.at(k);
        total.resize(std::max(total.size(), part.size()));
        for (std::size_t c = 0; c < part.size(); ++c) total[c].add(part[c]);
      }
    }
  }

  ShardDescription describe(std::size_t split) const {
    const auto samples =
        std::count_if(placed_.begin(), placed_.end(), [&](const auto& p) { return p.split == split; });
    std::size_t pieces = 1;
    for (const FieldForm& field : *form_) pieces = std::max(pieces, field.pieces);
    return {.fields = *form_,
            .level = config_.level,
            .split = std::string(kSplitNames[split]),
            .block = record_.block,
            .most_samples = static_cast<std::uint64_t>(samples) * pieces};
  }

  void close_shards() {
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      auto& writer = shards_[k].writer;
      if (!writer) continue;
      writer->close(shards_[k].missing);
      const fs::path& file = writer->temporary();
      record_.shards.push_back({std::string(kSplitNames[k]),
                                {shard_name(kSplitNames[k], record_.block), writer->samples(),
                                 fs::file_size(file), hash_file(file)}});
    }
  }

  // Reads every sample back from the shard before its input is deleted.
  void verify_shards() const {
    ReadScratch scratch;
    std::vector<std::string> names;
    for (const FieldForm& field : record_.fields) names.push_back(field.name);
    for (const Shard& shard : shards_) {
      if (!shard.writer) continue;
      const ShardFile file(shard.writer->temporary(), names, true);
      for (std::size_t row = 0; row < file.size(); ++row) {
        for (std::size_t k = 0; k < names.size(); ++k)
          verify_field(file, k, row, shard.raw_hashes[row][k], scratch);
      }
    }
  }

  static void verify_field(const ShardFile& file, std::size_t field, std::size_t row, std::uint64_t hash,
                           ReadScratch& scratch) {
    const FieldLayout& layout = file.layout().fields[field];
    if (layout.ragged.mask) return;
    std::vector<std::uint8_t> raw(layout.sample_bytes);
    if (layout.is_ragged()) {
      raw = file.read_steps(field, row, scratch);
    } else {
      file.read_held(field, row, scratch, raw);
    }
    if (chunk_hash(raw) == hash) return;
    throw Error(ExitCode::system,
                fmt::format("sample {} did not read back from {} as it was written; no input was deleted",
                            file.layout().ids[row], file.path().string()));
  }

  // The record and the manifest describe the shards, so they are removed before the shards are replaced. A
  // manifest of the earlier blocks stays valid if this block only adds shards.
  void publish() {
    if (replaces_something()) remove_durably(conversion_.output / kManifestName);
    remove_durably(block_record_path(conversion_.output, record_.block));
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      if (shards_[k].writer) {
        shards_[k].writer->publish();
        if (observer_.shard) observer_.shard(shard_path(k));
      } else {
        remove_durably(shard_path(k));
      }
    }
    write_block_record(conversion_.output, record_);
  }

  bool replaces_something() const {
    bool there = fs::exists(block_record_path(conversion_.output, record_.block));
    for (std::size_t k = 0; k < kSplitNames.size(); ++k) there = there || fs::exists(shard_path(k));
    return there;
  }

  static void remove_durably(const fs::path& path) {
    std::error_code error;
    const bool removed = fs::remove(path, error);
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
      throw system_error(error.value(), fmt::format("cannot replace {}", path.string()));
    }
    if (removed) sync_directory(path.parent_path());
  }

  const Conversion& conversion_;
  const ConvertConfig& config_;
  const BlockObserver& observer_;
  std::vector<PlacedRow> placed_;
  std::optional<SampleForm> form_;
  std::array<Shard, 3> shards_;
  TraceCounter addresses_;
  BlockRecord record_;
  std::string unusable_;  // with on_missing: fail, the first unusable sample
  // The readable samples by form.
  std::size_t of_form_ = 0;
  struct OtherForm {
    SampleForm form;
    std::vector<std::size_t> placed;
  };
  std::vector<OtherForm> others_;
  std::optional<ReadAhead> ahead_;  // last member: its threads use the others
};

bool is_missing(const BlockRecord& record, std::int64_t id) {
  return std::any_of(record.missing.begin(), record.missing.end(), [&](const auto& m) { return m.id == id; });
}

// True if a sample in the shards could not be read again because its input was deleted.
bool inputs_gone(const ConvertConfig& config, const BlockRecord& record,
                 const std::vector<PlacedRow>& placed) {
  return std::any_of(placed.begin(), placed.end(), [&](const PlacedRow& p) {
    const auto files = sample_files(config, *p.row);
    return !is_missing(record, p.row->id) &&
           std::any_of(files.begin(), files.end(), [](const fs::path& file) { return !fs::exists(file); });
  });
}

// Files newer than `until` were written again later: they stay.
void delete_inputs(const ConvertConfig& config, const BlockRecord& record,
                   const std::vector<PlacedRow>& placed, std::optional<fs::file_time_type> until) {
  for (const PlacedRow& p : placed) {
    if (is_missing(record, p.row->id)) continue;
    for (const fs::path& file : sample_files(config, *p.row)) {
      std::error_code error;
      if (until && fs::last_write_time(file, error) > *until) continue;
      fs::remove(file, error);
      if (error) throw system_error(error.value(), fmt::format("cannot delete {}", file.string()));
    }
  }
}

void report_existing(const BlockRecord& record, std::size_t rows, const BlockObserver& observer) {
  for (const MissingSample& sample : record.missing) {
    if (observer.missing) observer.missing(sample);
  }
  if (observer.converted) observer.converted(rows);
}

}  // namespace

namespace {

// The rows with these indices among the converted ones.
std::vector<SampleRow> rows_at(const Conversion& conversion, std::span<const SampleRow> rows,
                               const std::vector<std::size_t>& placed) {
  const auto all =
      place_rows(SplitMap(conversion.config.split, conversion.config.count, conversion.config.grown), rows);
  std::vector<SampleRow> chosen;
  for (const std::size_t i : placed) chosen.push_back(*all[i].row);
  return chosen;
}

// A field's narrow type grows until all values of the block fit, or the field is not narrowed: independent of
// the number of threads.
BlockRecord convert_rows(const Conversion& conversion, std::uint64_t block, std::span<const SampleRow> rows,
                         const BlockObserver& observer) {
  auto form = find_form(conversion.config, conversion.columns, rows);
  while (true) {
    try {
      return BlockConverter(conversion, block, rows, form, observer).run();
    } catch (const TooWide& wide) {
      form->at(wide.field.field).narrow = wide.field.type;
    } catch (const OutvotedForm& outvoted) {
      form = find_form(conversion.config, conversion.columns, rows_at(conversion, rows, outvoted.placed));
    }
  }
}

}  // namespace

std::string conversion_hash(const ConvertConfig& config) {
  ConvertConfig relevant = config;
  const ConvertConfig defaults;
  relevant.from = defaults.from;
  relevant.samples = defaults.samples;
  relevant.file = defaults.file;
  relevant.bundle = defaults.bundle;
  relevant.on_missing = defaults.on_missing;
  relevant.max_missing = defaults.max_missing;
  relevant.delete_inputs = defaults.delete_inputs;
  relevant.use_failed = defaults.use_failed;
  relevant.output = defaults.output;
  relevant.name = defaults.name;
  // Evenly and by hash, a growing campaign moves no sample: finished blocks stay.
  if (relevant.split.order != SplitOrder::count) relevant.count = 0;
  // By count, the first samples are split separately.
  if (!relevant.grown.empty() && relevant.count > 0) relevant.count = relevant.grown.front();
  relevant.grown.clear();
  relevant.block_starts.clear();
  return hash_bytes(yaml::emit(to_yaml(relevant)));
}

namespace {

// A damaged record counts as missing if its samples can be converted again.
std::optional<BlockRecord> read_whole_record(const Conversion& conversion, std::uint64_t block) {
  try {
    return read_block_record(conversion.output, block);
  } catch (const Error& error) {
    if (error.code() != ExitCode::data || conversion.config.delete_inputs) throw;
    log::write(LogLevel::warning, fmt::format("{}; block {} is converted again", error.what(), block));
    return std::nullopt;
  }
}

}  // namespace

BlockRecord convert_block(const Conversion& conversion, std::uint64_t block, std::span<const SampleRow> rows,
                          const BlockObserver& observer) {
  const ConvertConfig& config = conversion.config;
  make_directories(conversion.output / "blocks");
  const auto placed = place_rows(SplitMap(config.split, config.count, config.grown), rows);
  const auto existing = read_whole_record(conversion, block);
  if (existing && !shards_problem(conversion.output, *existing)) {
    const bool same = existing->config_hash == conversion_hash(config) &&
                      existing->rows_hash == hash_of_rows(conversion.columns, rows);
    const bool gone = inputs_gone(config, *existing, placed);
    if (same && !conversion.force && (gone || existing->inputs_hash == hash_of_inputs(config, rows))) {
      // A former run was killed during the deletion, or before.
      if (config.delete_inputs) {
        delete_inputs(config, *existing, placed,
                      fs::last_write_time(block_record_path(conversion.output, block)));
      }
      report_existing(*existing, rows.size(), observer);
      return *existing;
    }
    if (gone) {
      throw Error(ExitCode::data,
                  fmt::format("block {} was converted from files that are no longer there; remove {} to "
                              "convert it without them",
                              block, block_record_path(conversion.output, block).string()));
    }
  }
  BlockRecord record = convert_rows(conversion, block, rows, observer);
  if (!config.delete_inputs) return record;
  if (record.inputs_hash != hash_of_inputs(config, rows)) {
    throw Error(
        ExitCode::system,
        fmt::format("files of block {} have changed while they were converted; no input was deleted", block));
  }
  delete_inputs(config, record, placed, std::nullopt);
  return record;
}

}  // namespace wflow::converters
