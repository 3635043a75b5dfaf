// SPDX-License-Identifier: Apache-2.0
#include "converters/exchange/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "converters/convert/block_record.h"
#include "converters/convert/ordered_parallel.h"
#include "converters/exchange/rows.h"
#include "converters/shards/encode.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_writer.h"
#include "converters/split.h"
#include "traces/address_table.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostOpenShards = 200;  // above it a shard is opened for each read

struct Source {
  fs::path path;
  Manifest manifest;
  std::int64_t shift = 0;  // the amount added to its ids
};

struct SourceShard {
  std::size_t source = 0;
  fs::path path;
  const ShardEntry* entry = nullptr;
};

// A row of the result, and where its values are.
struct Place {
  std::vector<double> keys;  // of sort
  std::int64_t id = 0;       // the new one
  std::uint32_t piece = 0;
  std::uint32_t split = 0;
  std::size_t shard = 0;
  std::size_t row = 0;
};

// The reason why a sample has no row.
struct Absent {
  MissingSample sample;
  bool dropped = false;
};

// Ragged fields may have other lengths.
bool same_but_length(const FieldInfo& a, const FieldInfo& b) {
  if (!a.ragged || !b.ragged) return !a.ragged && !b.ragged && a.shape == b.shape && a.mask == b.mask;
  std::vector<std::size_t> adjusted = b.shape;
  if (a.ragged->axis != b.ragged->axis || a.shape.size() != b.shape.size()) return false;
  adjusted[b.ragged->axis] = a.shape[a.ragged->axis];
  return a.shape == adjusted && a.ragged->pad_value == b.ragged->pad_value && a.mask == b.mask;
}

std::string fields_differ(const FieldInfo& a, const FieldInfo& b) {
  const auto differ = [&](const char* what, const auto& left, const auto& right) {
    return fmt::format("{} of {} is {} and {}", what, a.name, left, right);
  };
  const auto shape = [](const FieldInfo& field) { return fmt::format("({})", fmt::join(field.shape, ", ")); };
  const auto names = [](const FieldInfo& field) {
    return fmt::format("[{}]", fmt::join(field.channels, ", "));
  };
  if (!same_but_length(a, b)) return differ("the shape", shape(a), shape(b));
  if (a.dtype != b.dtype) return differ("the type", a.dtype, b.dtype);
  if (a.role != b.role)
    return differ("the role", static_cast<int>(a.role) == 0 ? "input" : "target",
                  static_cast<int>(b.role) == 0 ? "input" : "target");
  if (a.layout != b.layout) return differ("the layout", a.layout, b.layout);
  if (a.channels != b.channels) return differ("the list of channels", names(a), names(b));
  if (a.units != b.units)
    return differ("the unit", a.units.empty() ? "none" : a.units, b.units.empty() ? "none" : b.units);
  if (a.pieces != b.pieces) return differ("the number of sub-cubes", a.pieces, b.pieces);
  if (a.normalisation != b.normalisation)
    return differ("the normalisation", a.normalisation.kind.empty() ? "none" : a.normalisation.kind,
                  b.normalisation.kind.empty() ? "none" : b.normalisation.kind);
  return {};
}

void require_same_fields(const Source& first, const Source& other) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::usage, fmt::format("{} and {} do not have the same fields: {}", first.path.string(),
                                             other.path.string(), why));
  };
  const std::string names = text::join(field_names(first.manifest), ", ");
  const std::string others = text::join(field_names(other.manifest), ", ");
  if (names != others) refuse(fmt::format("{}; and {}", names, others));
  for (std::size_t k = 0; k < first.manifest.fields.size(); ++k) {
    const std::string why = fields_differ(first.manifest.fields[k], other.manifest.fields[k]);
    if (!why.empty()) refuse(why);
  }
}

class Rewriter {
 public:
  explicit Rewriter(const RewriteOptions& options) : options_(options), folder_(options.out) {
    for (const fs::path& path : options.sources) {
      sources_.push_back({path, read_manifest(path), 0});
      require_same_fields(sources_.front(), sources_.back());
    }
    require_bricks();
    collect_rows();
    collect_absent();
    number_blocks();
  }

  std::string run() {
    Manifest manifest = first();
    manifest.created_by = fmt::format("wflow {}", kVersion);
    for (auto& [name, split] : manifest.splits) split = {};
    manifest.sorted_by = options_.sort_by;
    manifest.missing.clear();
    manifest.dropped.clear();
    for (const Source& source : sources_) {
      if (source.manifest.split_order != manifest.split_order ||
          source.manifest.split_seed != manifest.split_seed)
        manifest.split_order = "given";
    }
    std::vector<MergedStatistics> merged(manifest.fields.size());
    make_directories(folder_.path() / "blocks");
    for (std::uint64_t block = 0; block * per_block_ < ids_.size(); ++block) {
      const BlockRecord record = write_block(block);
      add_record(record, manifest);
      for (std::size_t k = 0; k < merged.size(); ++k) merged[k].add(record, k);
      include_lengths(record);
    }
    for (std::size_t k = 0; k < merged.size(); ++k) {
      FieldInfo& field = manifest.fields[k];
      if (takes_bricks(field)) field.chunk = options_.bricks;
      take_lengths(lengths_[k], field);
      field.statistics = field.mask
                             ? merged[k].of_mask(manifest.split(kSplitNames[kTrain]).samples, field.values())
                             : merged[k].summaries(field.normalisation, field.statistics.size());
    }
    write_file_durably(folder_.path() / kManifestName, manifest_text(manifest));
    write_addresses();
    folder_.publish();
    std::string text;
    for (const Source& source : sources_) {
      if (source.shift != 0)
        text += fmt::format("the ids of {} are {} higher\n", source.path.string(), source.shift);
    }
    return text + fmt::format("{}: {} train, {} validation, {} test samples in blocks of {}, {} missing\n",
                              options_.out.string(), manifest.split("train").samples,
                              manifest.split("validation").samples, manifest.split("test").samples,
                              per_block_, manifest.missing.size());
  }

 private:
  const Manifest& first() const { return sources_.front().manifest; }

  // Those of the sources' traces.
  void write_addresses() const {
    traces::AddressTable all;
    for (const Source& source : sources_) {
      const fs::path file = source.path / traces::kAddressFile;
      if (fs::exists(file)) all.merge(traces::read_address_table(file));
    }
    if (all.size() > 0)
      write_file_durably(folder_.path() / traces::kAddressFile, all.to_json().dump(1) + "\n");
  }

  void require_bricks() const {
    if (!options_.bricks || options_.bricks->empty()) return;
    if (std::ranges::any_of(first().fields, [&](const FieldInfo& field) { return takes_bricks(field); }))
      return;
    throw Error(ExitCode::usage,
                fmt::format("no field of {} has {} axes besides channels, as --bricks {} has",
                            sources_.front().path.string(), options_.bricks->size(),
                            fmt::join(*options_.bricks, "x")));
  }

  void include_lengths(const BlockRecord& record) {
    if (record.shards.empty()) return;
    if (lengths_.empty()) lengths_ = record.fields;
    for (std::size_t k = 0; k < lengths_.size(); ++k) {
      if (const auto& ragged = record.fields[k].ragged)
        lengths_[k].include_length(ragged->least, ragged->most);
    }
  }

  void collect_rows() {
    std::int64_t next = 0;  // greater than all ids so far
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      Source& source = sources_[s];
      std::optional<std::int64_t> least;
      const std::size_t begin = places_.size();
      for (std::uint32_t split = 0; split < kSplitNames.size(); ++split) {
        for (const ShardEntry& entry : source.manifest.split(kSplitNames[split]).shards) {
          shards_.push_back({s, source.path / entry.file, &entry});
          add_rows(split);
        }
      }
      for (std::size_t k = begin; k < places_.size(); ++k)
        least = std::min(least.value_or(places_[k].id), places_[k].id);
      for (const auto* list : {&source.manifest.missing, &source.manifest.dropped}) {
        for (const std::int64_t id : *list) least = std::min(least.value_or(id), id);
      }
      if (options_.renumber && s > 0) source.shift = next - least.value_or(0);
      for (std::size_t k = begin; k < places_.size(); ++k) {
        places_[k].id += source.shift;
        next = std::max(next, places_[k].id + 1);
      }
      for (const auto* list : {&source.manifest.missing, &source.manifest.dropped}) {
        for (const std::int64_t id : *list) next = std::max(next, id + source.shift + 1);
      }
    }
    std::stable_sort(places_.begin(), places_.end(),
                     [](const Place& a, const Place& b) { return a.id < b.id; });
    require_unique();
  }

  void add_rows(std::uint32_t split) {
    const SourceShard& shard = shards_.back();
    const Manifest& manifest = sources_[shard.source].manifest;
    const ShardFile file = open_shard(shard.path, manifest, true);
    check_shard(file, *shard.entry, manifest);
    // The stored types of the fields decide the types in the result.
    std::vector<DType>& held = held_.emplace_back();
    for (const FieldLayout& field : file.layout().fields) held.push_back(field.held);
    const std::vector<std::uint32_t> pieces = piece_numbers(file.layout().ids);
    const std::vector<std::vector<double>> keys = sort_keys(file, manifest, options_.sort_by);
    for (std::size_t row = 0; row < file.size(); ++row) {
      std::vector<double> of_row;
      for (const std::vector<double>& key : keys) of_row.push_back(key[row]);
      places_.push_back(
          {std::move(of_row), file.layout().ids[row], pieces[row], split, shards_.size() - 1, row});
    }
  }

  // Only sub-cubes of one sample share an id and a shard.
  void require_unique() const {
    for (std::size_t k = 1; k < places_.size(); ++k) {
      const Place& a = places_[k - 1];
      const Place& b = places_[k];
      if (a.id != b.id || a.shard == b.shard) continue;
      const fs::path& left = sources_[shards_[a.shard].source].path;
      const fs::path& right = sources_[shards_[b.shard].source].path;
      if (left == right)
        throw Error(ExitCode::data, fmt::format("{} has the sample {} twice", left.string(), a.id));
      throw Error(ExitCode::usage,
                  fmt::format("{} and {} both have a sample {}; --renumber gives those of {} "
                              "new ids",
                              left.string(), right.string(), a.id, right.string()));
    }
  }

  // A sample that exists in another data set is not missing.
  void collect_absent() {
    std::set<std::int64_t> present;
    for (const Place& place : places_) present.insert(place.id);
    for (const Source& source : sources_) {
      std::map<std::int64_t, MissingSample> reasons;
      for (std::uint64_t block = 0;; ++block) {
        const auto record = read_block_record(source.path, block);
        if (!record) break;
        for (const auto* list : {&record->missing, &record->dropped}) {
          for (const MissingSample& sample : *list) reasons[sample.id] = sample;
        }
      }
      const auto add = [&](std::int64_t id, bool dropped) {
        const std::int64_t shifted = id + source.shift;
        if (present.count(shifted) > 0) return;
        MissingSample sample{id, std::string(kSplitNames[kTrain]), "no reason is recorded", ""};
        if (const auto found = reasons.find(id); found != reasons.end()) sample = found->second;
        sample.id = shifted;
        absent_[shifted] = {std::move(sample), dropped};
      };
      for (const std::int64_t id : source.manifest.missing) add(id, false);
      for (const std::int64_t id : source.manifest.dropped) add(id, true);
    }
    for (const auto& [id, absent] : absent_) present.insert(id);
    ids_.assign(present.begin(), present.end());
    if (!options_.sort_by.empty()) sort_places();
  }

  // The samples in order of their keys, those of equal keys by id; then the ids of samples without a row.
  void sort_places() {
    std::stable_sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::tie(a.keys, a.id, a.piece) < std::tie(b.keys, b.id, b.piece);
    });
    ids_.clear();
    for (const Place& place : places_) {
      if (ids_.empty() || ids_.back() != place.id) ids_.push_back(place.id);
    }
    for (const auto& [id, absent] : absent_) ids_.push_back(id);
  }

  void number_blocks() {
    if (places_.empty())
      throw Error(ExitCode::usage, fmt::format("there is no sample in {}", sources_.front().path.string()));
    per_block_ = options_.shard_samples;
    if (per_block_ > 0) return;
    std::uint64_t bytes = 0;
    for (const SourceShard& shard : shards_) bytes += shard.entry->bytes;
    const std::uint64_t samples = ids_.size() - absent_.size();
    const double each = static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(1, samples));
    per_block_ = std::clamp<std::uint64_t>(
        static_cast<std::uint64_t>(static_cast<double>(options_.shard_bytes) / std::max(1.0, each)), 1,
        ids_.size());
  }

  // The type that holds all values of these types, if it is smaller than the field's own.
  std::optional<DType> narrow_for(std::size_t field, const std::vector<Place>& places, DType own) const {
    static constexpr std::array<DType, 4> kNarrow = {DType::uint8, DType::int8, DType::uint16, DType::int16};
    const auto fits = [](DType from, DType to) {
      if (from == to) return true;
      if (to == DType::uint16 || to == DType::int16)
        return from == DType::uint8 || (from == DType::int8 && to == DType::int16);
      return false;
    };
    for (const DType type : kNarrow) {
      const bool holds = dtype_size(type) < dtype_size(own) &&
                         std::all_of(places.begin(), places.end(), [&](const Place& place) {
                           return fits(held_[place.shard][field], type);
                         });
      if (holds) return type;
    }
    return std::nullopt;
  }

  // Fields with fewer axes keep their chunks.
  bool takes_bricks(const FieldInfo& field) const {
    const std::size_t channels = field.layout.starts_with('C') ? 1 : 0;
    return options_.bricks && !field.ragged && field.shape.size() >= options_.bricks->size() + channels;
  }

  std::vector<FieldForm> forms_of(const std::vector<Place>& places) const {
    std::vector<FieldForm> forms;
    for (std::size_t k = 0; k < first().fields.size(); ++k) {
      const FieldInfo& field = first().fields[k];
      FieldForm form;
      form.name = field.name;
      form.role = field.role == FieldRole::input ? Role::input : Role::target;
      form.dtype = parse_dtype(field.dtype).value_or(DType::float32);
      form.shape = field.shape;
      form.layout = field.layout;
      form.layout_from = field.layout_from;
      form.channels = field.channels;
      form.units = field.units;
      form.stored = field.stored;
      form.narrow = narrow_for(k, places, form.dtype);
      form.compressed = field.compression != "none";
      form.matches = field.coder == "matches";
      form.pieces = field.pieces;
      form.mask = field.mask;
      form.chunk = takes_bricks(field) ? options_.bricks : field.chunk;
      if (field.ragged) form.ragged = RaggedAxis{field.ragged->axis, 0, 0, field.ragged->pad_value};
      forms.push_back(std::move(form));
    }
    return forms;
  }

  BlockRecord write_block(std::uint64_t block) {
    const auto end = std::min<std::uint64_t>(ids_.size(), (block + 1) * per_block_);
    BlockRecord record;
    record.block = block;
    record.shard_samples = per_block_;
    std::string source_hashes;
    for (const Source& source : sources_) source_hashes += source.manifest.hash + "\n";
    record.config_hash = hash_bytes(source_hashes);
    std::vector<Place> places;
    std::array<std::vector<std::int64_t>, 3> missing;
    std::string rows;
    for (std::uint64_t k = block * per_block_; k < end; ++k) {
      rows += fmt::format("{}\n", ids_[k]);
      if (const auto found = absent_.find(ids_[k]); found != absent_.end()) {
        const Absent& absent = found->second;
        (absent.dropped ? record.dropped : record.missing).push_back(absent.sample);
        for (std::size_t split = 0; !absent.dropped && split < 3; ++split) {
          if (kSplitNames[split] == absent.sample.split) missing[split].push_back(ids_[k]);
        }
        continue;
      }
      for (; next_ < places_.size() && places_[next_].id == ids_[k]; ++next_)
        places.push_back(places_[next_]);
    }
    record.rows_hash = hash_bytes(rows);
    record.inputs_hash = hash_bytes("");
    if (!places.empty()) record.fields = forms_of(places);
    for (std::uint32_t split = 0; split < kSplitNames.size(); ++split) {
      std::vector<Place> part;
      std::copy_if(places.begin(), places.end(), std::back_inserter(part),
                   [&](const Place& place) { return place.split == split; });
      if (!part.empty()) record.shards.push_back(write_shard(record, split, part, missing[split]));
    }
    write_block_record(folder_.path(), record);
    return record;
  }

  struct Encoded {
    std::vector<EncodedField> fields;
    std::vector<FieldStatistics> statistics;
  };

  BlockShard write_shard(BlockRecord& record, std::uint32_t split, const std::vector<Place>& places,
                         const std::vector<std::int64_t>& missing) {
    const std::string name = shard_name(kSplitNames[split], record.block);
    ShardWriter writer(folder_.path() / name, {.fields = record.fields,
                                               .level = 1,
                                               .split = std::string(kSplitNames[split]),
                                               .block = record.block,
                                               .most_samples = places.size()});
    std::map<std::size_t, std::unique_ptr<ShardFile>> files;
    for (const Place& place : places) files.try_emplace(place.shard);
    for (auto& [shard, file] : files)
      file = std::make_unique<ShardFile>(shards_[shard].path, field_names(first()),
                                         files.size() <= kMostOpenShards);
    const std::size_t threads =
        std::max<std::size_t>(1, std::min<std::size_t>(options_.threads, places.size()));
    std::vector<ReadScratch> scratch(threads);
    std::vector<std::vector<Encoder>> encoders(threads);
    for (auto& list : encoders) {
      for (const FieldForm& form : record.fields)
        list.emplace_back(filters_of(form), form.matches ? Coder::matches : Coder::runs, 1);
    }
    const std::vector<FieldForm> forms = record.fields;  // as they are now: the record's lengths grow
    ordered_parallel<Encoded>(
        places.size(), threads,
        [&](std::size_t worker, std::size_t i) {
          const ShardFile& file = *files.at(places[i].shard);
          DataRow row = read_row(file, places[i].row, first(), scratch[worker], RaggedRows::stored);
          return encode(forms, lengths_of(file, places[i].row), places[i], std::move(row), encoders[worker]);
        },
        [&](std::size_t i, const Encoded& row) {
          writer.add(places[i].id, row.fields, places[i].piece);
          for (std::size_t k = 0; k < row.fields.size(); ++k)
            record.fields[k].include_length(row.fields[k].steps, row.fields[k].steps);
          add_statistics(record, row);
        });
    writer.close(missing);
    const fs::path& file = writer.temporary();
    BlockShard shard{std::string(kSplitNames[split]),
                     {name, writer.samples(), fs::file_size(file), hash_file(file)}};
    writer.publish();
    return shard;
  }

  // The lengths of ragged fields, 0 for others.
  static std::vector<std::size_t> lengths_of(const ShardFile& file, std::size_t row) {
    std::vector<std::size_t> lengths;
    for (const FieldLayout& field : file.layout().fields)
      lengths.push_back(field.is_ragged() ? field.length(row) : 0);
    return lengths;
  }

  // A sample of a ragged field as the conversion had it: in its own shape, and a mask of ones.
  static FieldValue ragged_value(const FieldForm& form, std::size_t length, std::vector<std::uint8_t> steps) {
    FieldValue value{form, {}};
    value.form.shape[form.ragged->axis] = length;
    value.bytes.assign(value.form.values() * dtype_size(form.dtype), 1);
    if (!form.mask)
      put_steps(steps, value.form.shape, {form.ragged->axis, 0, length}, dtype_size(form.dtype), value.bytes);
    return value;
  }

  static Encoded encode(const std::vector<FieldForm>& forms, const std::vector<std::size_t>& lengths,
                        const Place& place, DataRow row, std::vector<Encoder>& encoders) {
    Encoded encoded;
    for (std::size_t k = 0; k < forms.size(); ++k) {
      FieldValue value = forms[k].ragged ? ragged_value(forms[k], lengths[k], std::move(row.fields[k]))
                                         : FieldValue{forms[k], std::move(row.fields[k])};
      value.form.pieces = 1;
      if (place.split == kTrain) {
        // A field that is not cut is in the row of every sub-cube, and counts once.
        const bool counts = forms[k].pieces > 1 || place.piece == 0;
        encoded.statistics.push_back(counts ? channel_statistics(value) : FieldStatistics{});
      }
      if (forms[k].ragged) {
        const FieldForm& form = value.form;
        encoded.fields.push_back(encode_ragged(std::move(value.bytes), form, false));
        continue;
      }
      if (forms[k].narrow) {
        Array array{forms[k].dtype, {forms[k].values()}, std::move(value.bytes)};
        convert_values(array, *forms[k].narrow);
        value.bytes = std::move(array.bytes);
      }
      encoded.fields.push_back(encode_values(std::move(value.bytes), forms[k], encoders[k], false));
    }
    return encoded;
  }

  static void add_statistics(BlockRecord& record, const Encoded& row) {
    if (row.statistics.empty()) return;
    record.moments.resize(row.statistics.size());
    record.sketches.resize(row.statistics.size());
    for (std::size_t k = 0; k < row.statistics.size(); ++k) {
      const FieldStatistics& of_row = row.statistics[k];
      if (of_row.moments.empty()) continue;
      merge(record.moments[k], of_row.moments);
      record.sketches[k].resize(of_row.sketches.size());
      for (std::size_t c = 0; c < of_row.sketches.size(); ++c) record.sketches[k][c].add(of_row.sketches[c]);
    }
  }

  const RewriteOptions& options_;
  NewFolder folder_;
  std::vector<Source> sources_;
  std::vector<SourceShard> shards_;
  std::vector<std::vector<DType>> held_;  // for each of them, the types of its fields
  std::vector<Place> places_;             // in order of the keys, if sorted, of id, then of sub-cube
  std::vector<FieldForm> lengths_;        // the forms of the result, with the lengths of all blocks so far
  std::map<std::int64_t, Absent> absent_;
  std::vector<std::int64_t> ids_;  // those of all samples in the order of the result, also missing ones
  std::uint64_t per_block_ = 0;
  std::size_t next_ = 0;  // the first place that is in no block yet
};

}  // namespace

std::string rewrite_data(const RewriteOptions& options) {
  return Rewriter(options).run();
}

}  // namespace wflow::converters
