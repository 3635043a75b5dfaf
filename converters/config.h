// SPDX-License-Identifier: Apache-2.0
// The `convert:` block of a study, and the configuration file of wflow-convert: the same keys. Only this
// file reads them, so that `wflow validate` checks a conversion without HDF5. docs/convert.md is the table
// for users.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/blocks.h"
#include "base/yaml.h"
#include "converters/fields.h"
#include "converters/split.h"

namespace wflow::converters {

// A column in the table of a campaign's block: the reason why a sample has nothing to convert; else empty.
inline constexpr std::string_view kLeftOutColumn = "wflow:left_out";

enum class Compression { gzip, none, automatic };
enum class OnMissing { skip, fail };

struct ConvertConfig {
  // Exactly one of the two is set.
  std::string from;     // campaign: the step whose sample directories hold the files
  std::string samples;  // stand-alone: a CSV table with a column `file`

  std::string file;          // campaign: the file's name in each sample (or bundle) directory
  bool stacked = false;      // a file holds an array of samples, one for each row of its slowest axis
  std::uint64_t bundle = 0;  // campaign: samples in one directory of the step `from`, if they share it

  // The short form (`file`, `dataset`, `targets: [names]`) is the fields `x`, always of axes C, D, H, W, and
  // `y`, a list of parameters. `shape` of its x is the expected shape (raw: that in the file).
  bool short_form = true;
  std::vector<FieldConfig> fields;  // at least one; inputs, then targets

  bool check_finite = true;
  std::vector<std::string> drop_if;  // formulas; a sample for which one is true is dropped
  Compression compression = Compression::gzip;
  int level = 1;

  std::uint64_t shard_samples = 0;  // 0: chosen, see shard_samples_of()
  SplitRequest split;
  OnMissing on_missing = OnMissing::skip;
  double max_missing = 0.5;  // finish fails if a larger fraction is missing
  bool delete_inputs = false;
  bool external_files = false;  // HDF5 outputs may have their values in other files (links, external storage)
  bool use_failed = false;      // campaign: also convert files of samples with a failed task

  std::string output;
  std::string name;
  std::uint64_t count = 0;  // samples in all; 0: not known yet (the campaign sets it, or the table's rows)
  // campaign: the numbers of samples before it grew, ascending. A split by count splits each part separately,
  // so that no earlier sample moves; and blocks also begin at these numbers, besides multiples of
  // shard_samples, so that no earlier block changes.
  std::vector<std::uint64_t> grown;
  std::vector<std::uint64_t> block_starts;

  bool operator==(const ConvertConfig&) const = default;
};

// Adds every error of the block to `diagnostics`, with its place. If `count` is known, a split that does not
// fit it is an error here; otherwise the caller calls split_problem() when it knows the count.
ConvertConfig read_convert_config(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// A configuration file of wflow-convert that reads back as an equal ConvertConfig.
yaml::Node to_yaml(const ConvertConfig& config);

// The fields of the short form: x of one file, y of these columns (none: all).
std::vector<FieldConfig> short_fields(FieldConfig x, std::vector<std::string> targets);

// The columns of the sample table that a conversion reads as numbers, each once: those of its parameters and
// formulas. Nothing if it reads all.
std::optional<std::vector<std::string>> parameter_columns(const ConvertConfig& config);

// The shape as (C, D, H, W): leading axes of length 1 are added, or dropped if there are more than four.
// Nothing if that is impossible or a length is 0.
std::optional<std::array<std::size_t, 4>> normal_shape(const std::vector<std::size_t>& shape);

inline constexpr std::uint64_t kShardBytes = std::uint64_t{512} << 20;

// The samples of a block: the configured number, else as many as make about 512 MiB of values if the sample's
// size is known (from `shape`, or `sample_bytes` as measured), else 64; at most `count`. A campaign plans its
// blocks by this before any sample exists.
std::uint64_t shard_samples_of(const ConvertConfig& config, std::uint64_t count,
                               std::uint64_t sample_bytes = 0);

// The same in a campaign, whose samples may become more: not limited by their number now.
std::uint64_t campaign_shard_samples(const ConvertConfig& config);

// The blocks of a conversion. `config` must outlive the result.
Blocks blocks_of(const ConvertConfig& config);

}  // namespace wflow::converters
