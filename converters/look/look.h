// SPDX-License-Identifier: Apache-2.0
// The texts that `wflow shards` prints about a finished data set. All throw Error{data} if it is damaged, and
// change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/shards/shard_reader.h"

namespace wflow::converters {

inline constexpr std::size_t kMostShown = 10;  // findings of one kind; the others are counted

std::string list_shards(const std::filesystem::path& data);
std::string describe_shard(const std::filesystem::path& shard);

// The first samples of a split: numbers as they are, fields by their least, mean and greatest value.
std::string show_head(const std::filesystem::path& data, std::string_view split, std::size_t count);

// Prints a CSV row for each sample, in ascending order of id: id, split, and the targets if all are numbers.
void print_samples(const std::filesystem::path& data);

// One sample by its id: its origin, its fields, and a picture of one of them (`field` empty: the
// first of two or more axes). With `png` the picture goes to that file.
std::string show_sample(const std::filesystem::path& data, std::int64_t id, std::string field,
                        const std::filesystem::path& png);

// For an imported data set: id, record and file of each sample, one line a sample.
inline constexpr const char* kSourcesName = "sources.csv";

// The origin of a sample: its shard and block and, if `data` is in the campaign that made it, the task, its
// worker and time, the parameters, the conversion and the versions of the study.
std::string show_lineage(const std::filesystem::path& data, std::int64_t id);

struct MosaicOptions {
  std::filesystem::path data;
  std::filesystem::path png;
  std::string split = "train";
  std::string field;                    // empty: the first of two or more axes
  std::vector<std::string> parameters;  // one or two; empty: the first two that vary, targets before inputs
  std::size_t grid = 16;                // cells a side at most
  std::size_t tile = 64;                // pixels a side at most
};
// Slices of samples side by side, placed by the ranks of their parameters. Returns a legend.
std::string draw_mosaic(const MosaicOptions& options);

std::string show_statistics(const std::filesystem::path& data);

// For programs, as JSON (docs/report.md): fields with statistics and histograms, splits, and `samples`
// samples with pictures or series of their fields. Reads the manifest, the block records and one shard.
std::string summarise(const std::filesystem::path& data, std::size_t examples);

struct Comparison {
  std::string text;
  bool same = false;
};
// Compares sample by sample, by id. Values may differ by `tolerance` (absolute).
Comparison compare_data(const std::filesystem::path& first, const std::filesystem::path& second,
                        double tolerance);

// The last two axes of an array, at the middle of the others.
struct Slice {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> values;
};
Slice middle_slice(const std::vector<std::size_t>& shape, std::span<const float> values);
// Two rows of cells a line, in shades from the least to the greatest value; larger slices are averaged down
// to 64 columns.
std::string draw(const Slice& slice);
// Averaged down to at most this number of columns.
Slice reduced_slice(const Slice& slice, std::size_t columns);
// 8-bit grey, the least value black.
void write_png(const Slice& slice, const std::filesystem::path& path);

}  // namespace wflow::converters
