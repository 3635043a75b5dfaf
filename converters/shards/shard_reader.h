// SPDX-License-Identifier: Apache-2.0
// Reads a training data set that wflow-convert wrote (docs/formats/shards.md). The trainer's data loader
// calls this; HDF5 is hidden in the .cc files of this folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "converters/shards/codec.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

// All samples of one split, addressed 0..size()-1 in order of shard and row. Ids of the whole split, and its
// targets if all are numbers or short lists of them, are in memory after open(); all other data stays on
// disk.
class SplitReader {
 public:
  // Opens every shard once with HDF5. Error{data} if a shard is missing or does not match the manifest.
  static SplitReader open(const std::filesystem::path& data_directory, const Manifest& manifest,
                          std::string_view split);
  // The same for shards that `opener` opens, from any place (shard_file.h).
  static SplitReader open_with(const std::filesystem::path& data_directory, const Manifest& manifest,
                               std::string_view split,
                               const std::function<OpenedShard(const ShardEntry& shard)>& opener);
  SplitReader(SplitReader&&) noexcept;
  SplitReader& operator=(SplitReader&&) noexcept;
  ~SplitReader();

  std::size_t size() const;
  std::int64_t id(std::size_t i) const;

  // The length of sample i along the axis of a ragged field. read_field() and the others return the sample
  // padded to the field's shape, which has the longest.
  std::size_t length(std::size_t field, std::size_t i) const;

  // The fields of the manifest, by index. Reads field `field` of sample i as float32, from any stored
  // type; values.size() == fields()[field].values(). Thread-safe: pread and inflate on the calling thread,
  // no HDF5 call and no lock held while reading. (A shard that another tool rewrote with other chunks or
  // filters is still readable, but through HDF5 and its global lock.) Error{data} names the file and the
  // sample if the bytes are damaged.
  const std::vector<FieldInfo>& fields() const;
  void read_field(std::size_t field, std::size_t i, std::span<float> values) const;
  // Reads several samples at once, in any order, sample indices[k] into to[k]: faster than one by one (see
  // ShardFile::read_floats). `scales`: for equal parts of a sample (its channels); none: like
  // read_field. `keep`: compressed chunks stay in memory up to this budget.
  void read_fields(std::size_t field, std::span<const std::size_t> indices,
                   std::span<const std::span<float>> to, std::span<const Scale> scales = {},
                   MemoryBudget* keep = nullptr) const;
  // The same for a box of each sample: reads only the chunks that have values of it. No boxes: whole samples.
  void read_boxes(std::size_t field, std::span<const std::size_t> indices, std::span<const SampleBox> boxes,
                  std::span<const std::span<float>> to, std::span<const Scale> scales = {},
                  MemoryBudget* keep = nullptr) const;
  // True if samples have several chunks, so that a box costs less than all.
  bool has_parts(std::size_t field) const;
  // The work of all reads so far, without those that threw.
  ReadCounts counts() const;
  // The next reads of a field share decoded chunks with other processes, which read the same split, each with
  // its own `rank` of `ranks`. `chunks` must outlive this reader. Before the first read.
  void share(std::size_t field, SharedChunks& chunks, std::uint64_t key, std::size_t rank, std::size_t ranks);
  // The shape of a field's chunks as bytes are held, and the bytes of the largest; empty: samples share
  // chunks, or are not compressed.
  struct ChunkForm {
    std::vector<std::size_t> shape;
    std::size_t bytes = 0;
  };
  ChunkForm chunk_form(std::size_t field) const;
  // The bytes that `keep` needs for all samples.
  std::int64_t compressed_bytes(std::size_t field) const;
  // Reads a part of the field: `count` entries from `start` along each axis.
  void read_field_part(std::size_t field, std::size_t i, std::span<const std::size_t> start,
                       std::span<const std::size_t> count, std::span<float> values) const;

  // The view as x and y (see Manifest): the first input, and all targets as a list of numbers.
  std::array<std::size_t, 4> shape() const;
  std::size_t values() const;  // C * D * H * W: the length for read()

  std::span<const double> targets(std::size_t i) const;
  void read(std::size_t i, std::span<float> x) const;

 private:
  struct State;
  explicit SplitReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace wflow::converters
