// SPDX-License-Identifier: Apache-2.0
// Reading a training data set that wflow-convert wrote (docs/formats/shards.md). The trainer's data loader
// calls this; HDF5 stays behind it, in the .cc files of this folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/shards/memory_budget.h"
#include "converters/shards/planes.h"

namespace wflow::converters {

// Of the training split alone; std is the population's.
struct ChannelStatistics {
  double mean = 0;
  double std = 0;
  double min = 0;
  double max = 0;
  // Pairs of a level (0 to 1) and the value below which that fraction of all lies, within 1.6 % of it; none
  // in older data sets.
  std::vector<std::pair<double, double>> quantiles = {};
  bool operator==(const ChannelStatistics&) const = default;
};

// What readers that normalise do with the stored values, a channel: standardise (x - mean) / std; min_max
// from [min, max] to [low, high]; quantile the fraction of training values below x (uniform), or the normal
// deviate of it (normal). Nothing: as stored.
struct Normalisation {
  std::string kind;  // "", "standardise", "min_max", "quantile"
  double low = 0;
  double high = 1;
  std::string shape = {};  // of quantile: "uniform" or "normal"
  bool operator==(const Normalisation&) const = default;
};

enum class FieldRole { input, target };

// A named field of every sample.
struct FieldInfo {
  std::string name;
  FieldRole role = FieldRole::input;
  std::string dtype;               // of the stored values: "float32", "uint16", ...
  std::vector<std::size_t> shape;  // of a sample; empty: one number
  std::string layout;  // a letter an axis, in this order: C (channel), T (time), D, H, W; "" for one number
  std::string layout_from;  // "layout" (the configuration said so), "format" (the file did), "rank" (assumed)
  std::vector<std::string> channels;  // names of the entries of C, where known
  std::string units;
  std::string stored;  // the type in the files, where it was another: "float16", "complex"
  std::vector<ChannelStatistics> statistics;  // one an entry of C; one without it
  Normalisation normalisation = {};
  std::string compression = {};  // "gzip" or "none", of the first block; empty: not known
  std::string coder = {};        // of the streams: "runs" (field_deflate) or "matches" (libdeflate)
  std::size_t pieces = 1;        // sub-cubes of a sample, a row each
  std::size_t values() const;
  bool operator==(const FieldInfo&) const = default;
};

// Of the present trainer's view: x and y.
struct DatasetStatistics {
  std::vector<ChannelStatistics> x;  // one a channel
  std::vector<ChannelStatistics> y;  // one a label
};

struct ShardEntry {
  std::string file;  // relative to the data directory
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::string xxh3_128;
};

struct SplitEntry {
  std::uint64_t samples = 0;
  std::vector<ShardEntry> shards;  // in order of block number
};

struct Manifest {
  std::string name;
  std::string created_by;
  std::vector<FieldInfo> fields;  // inputs, then targets

  // The same as a volume and labels: the first input as (C, D, H, W), and all targets one behind the other.
  std::array<std::size_t, 4> shape{};
  std::string dtype;                  // of the stored values: "float32", "uint16", ...
  std::string units;                  // of the stored values, where given
  std::vector<std::string> labels;    // names of the numbers of the targets; empty where a target is a field
  std::vector<std::string> channels;  // names of the channels; empty where none were given

  std::string split_order;  // "even", "hash", "count" or "given"
  std::uint64_t split_seed = 0;
  std::map<std::string, SplitEntry, std::less<>> splits;  // always "train", "validation" and "test"
  std::vector<std::int64_t> missing;                      // ids of the samples without usable output
  std::vector<std::int64_t> dropped;                      // ids of the samples that a filter left out
  DatasetStatistics statistics;
  std::string hash;  // XXH3-128 of the manifest without its checksum: names this very data set

  // Index into `fields`; Error{usage} with the names there are.
  std::size_t field(std::string_view name) const;
  const SplitEntry& split(std::string_view name) const;  // Error{usage} for an unknown name
};

// Error{data} where there is no manifest (the conversion has not ended) or it is damaged; Error{version}
// where a newer wflow wrote it.
Manifest read_manifest(const std::filesystem::path& data_directory);

struct ReadOptions {
  bool verify = true;      // compare the XXH3-64 of the stored bytes at each read (over 10 GB/s a core)
  bool normalise = false;  // read_field applies the normalisation of the field
};

struct OpenedShard;

// All samples of one split, addressed 0..size()-1 in order of shard and row. Ids of the whole split, and its
// targets where all are numbers or short lists of them, are in memory from open() on; all else stays on disk.
class SplitReader {
 public:
  // Opens every shard once with HDF5. Error{data} where a shard is missing or is not what the manifest says.
  static SplitReader open(const std::filesystem::path& data_directory, const Manifest& manifest,
                          std::string_view split, ReadOptions options = {});
  // The same of shards that `opener` opens, wherever it finds them (shard_contents.h).
  static SplitReader open_with(const std::filesystem::path& data_directory, const Manifest& manifest,
                               std::string_view split,
                               const std::function<OpenedShard(const ShardEntry& shard)>& opener,
                               ReadOptions options = {});
  SplitReader(SplitReader&&) noexcept;
  SplitReader& operator=(SplitReader&&) noexcept;
  ~SplitReader();

  std::size_t size() const;
  std::int64_t id(std::size_t i) const;

  // The fields of the manifest, by index. Reads field `field` of sample i as float32, whatever type is
  // stored; values.size() == fields()[field].values(). Thread-safe: pread and inflate on the calling thread,
  // no HDF5 call and no lock held while reading. (A shard that some other tool rewrote in a layout of its
  // own, with other chunks or filters, is still read, but through HDF5 and its global lock.) Error{data}
  // names the file and the sample where the bytes are damaged.
  const std::vector<FieldInfo>& fields() const;
  void read_field(std::size_t field, std::size_t i, std::span<float> values) const;
  // Several samples at once, in any order, sample indices[k] to to[k]: faster than one by one (see
  // ShardFile::read_floats). `scales`: of equal parts of a sample (its channels), in place of the
  // normalisation; none: as read_field.
  // `keep`: compressed chunks stay in memory as they are, as far as the budget goes.
  void read_fields(std::size_t field, std::span<const std::size_t> indices,
                   std::span<const std::span<float>> to, std::span<const Scale> scales = {},
                   MemoryBudget* keep = nullptr) const;
  // What `keep` would take for all samples.
  std::int64_t compressed_bytes(std::size_t field) const;
  // A part of it: `count` entries from `start` along each axis. Of a sample in slabs only those are read that
  // the part touches.
  void read_field_part(std::size_t field, std::size_t i, std::span<const std::size_t> start,
                       std::span<const std::size_t> count, std::span<float> values) const;
  // In the type of the field's `dtype`; values.size() is fields()[field].values() times the size of that
  // type.
  void read_field_stored(std::size_t field, std::size_t i, std::span<std::uint8_t> values) const;

  // The view of a volume and labels (see Manifest): the first input, and all targets as a list of numbers.
  std::array<std::size_t, 4> shape() const;
  std::size_t values() const;  // C * D * H * W: the length that read() wants

  std::span<const double> targets(std::size_t i) const;
  void read(std::size_t i, std::span<float> x) const;

 private:
  struct State;
  explicit SplitReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace wflow::converters
