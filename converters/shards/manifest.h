// SPDX-License-Identifier: Apache-2.0
// The manifest of a data set, read and written, and the normalisation by its statistics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wflow::converters {

inline constexpr int kFormatVersion = 2;
inline constexpr int kFormatWithRagged = 3;  // of data sets with a ragged field, which older versions refuse
inline constexpr const char* kManifestName = "manifest.json";

// Statistics of the training split only; std is the population's.
struct ChannelStatistics {
  double mean = 0;
  double std = 0;
  double min = 0;
  double max = 0;
  // Pairs of a level (0 to 1) and the value below which that fraction of all lies, within 1.6 % of it; empty
  // in older data sets.
  std::vector<std::pair<double, double>> quantiles = {};
  bool operator==(const ChannelStatistics&) const = default;
};

// The normalisation of the stored values of a channel by readers: standardise (x - mean) / std; min_max
// from [min, max] to [low, high]; quantile the fraction of training values below x (uniform), or the normal
// deviate of it (normal). Nothing: as stored.
struct Normalisation {
  std::string kind;  // "", "standardise", "min_max", "quantile"
  double low = 0;
  double high = 1;
  std::string shape = {};  // for quantile: "uniform" or "normal"
  bool operator==(const Normalisation&) const = default;
};

enum class FieldRole { input, target };

// The axis of a ragged field along which each sample has its own length. The field's `shape` has the longest:
// readers return samples padded to it.
struct RaggedLengths {
  std::size_t axis = 0;  // in the field's shape
  std::size_t least = 0;
  std::size_t most = 0;
  double pad_value = 0;
  bool operator==(const RaggedLengths&) const = default;
};

// A named field of every sample.
struct FieldInfo {
  std::string name;
  FieldRole role = FieldRole::input;
  std::string dtype;               // type of the stored values: "float32", "uint16", ...
  std::vector<std::size_t> shape;  // shape of a sample; empty: one number
  std::string
      layout;  // a letter for each axis, in this order: C (channel), T (time), D, H, W; "" for one number
  std::string layout_from;  // source of it: "layout" (configuration), "format" (file) or "rank" (assumed)
  std::vector<std::string> channels;  // names of the entries of C, where known
  std::string units;
  std::string stored;                         // the type in the files, if different: "float16", "complex"
  std::vector<ChannelStatistics> statistics;  // one for each entry of C; one without C
  Normalisation normalisation = {};
  std::string compression = {};  // "gzip" or "none", in the first block; empty: unknown
  std::string coder = {};        // coder of the streams: "runs" (field_deflate) or "matches" (libdeflate)
  std::size_t pieces = 1;        // sub-cubes of a sample, one row each
  std::optional<RaggedLengths> ragged = {};
  bool mask = false;  // of a ragged field NAME: NAME_mask, which readers make from the lengths
  // The bricks of its samples, if the configuration has set them: cells along the last axes; empty: none.
  std::optional<std::vector<std::size_t>> chunk = {};
  std::size_t values() const;
  bool operator==(const FieldInfo&) const = default;
};

// The statistics of the view x and y.
struct DatasetStatistics {
  std::vector<ChannelStatistics> x;  // one for each channel
  std::vector<ChannelStatistics> y;  // one for each label
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

  // The same fields viewed as x and y: the first input as a volume (C, D, H, W), and all targets in one list.
  std::array<std::size_t, 4> shape{};
  std::string dtype;                  // type of the stored values: "float32", "uint16", ...
  std::string units;                  // units of the stored values, if given
  std::vector<std::string> labels;    // names of the numbers of the targets; empty if a target is a field
  std::vector<std::string> channels;  // names of the channels; empty if not given

  std::string split_order;  // "even", "hash", "count" or "given"
  std::uint64_t split_seed = 0;
  std::vector<std::string> sorted_by;  // keys of the order of samples in each split; empty: by id
  std::map<std::string, SplitEntry, std::less<>> splits;  // always "train", "validation" and "test"
  std::vector<std::int64_t> missing;                      // ids of the samples without usable output
  std::vector<std::int64_t> dropped;                      // ids of the samples that a filter dropped
  DatasetStatistics statistics;
  std::string hash;  // XXH3-128 of the manifest without its checksum: identifies exactly this data set

  // Index into `fields`; Error{usage} with the existing names.
  std::size_t field(std::string_view name) const;
  const SplitEntry& split(std::string_view name) const;  // Error{usage} for an unknown name
};

// Error{data} if there is no manifest (the conversion has not ended) or it is damaged; Error{version} if a
// newer wflow wrote it.
Manifest read_manifest(const std::filesystem::path& data_directory);

// Derives the view as x and y from the fields.
void derive_flat_view(Manifest& manifest);

std::string manifest_text(const Manifest& manifest);

// Parses a JSON file of wflow and checks its checksum (base/checksum.h) and its wflow_format; `what` names it
// in messages ("the manifest"). `hash`: receives the XXH3-128 of its text without the checksum.
nlohmann::json read_json(const std::filesystem::path& path, const std::string& what,
                         std::string* hash = nullptr);

}  // namespace wflow::converters
