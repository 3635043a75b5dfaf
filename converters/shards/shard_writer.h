// SPDX-License-Identifier: Apache-2.0
// Writes one shard, sample by sample, with memory independent of its size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "converters/config.h"
#include "converters/input/arrange.h"
#include "converters/shards/chunk_grid.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

struct EncodedField;

struct ShardDescription {
  std::vector<FieldForm> fields;
  int level = 1;  // recorded in the filter's parameters; the encoder compresses
  std::string split;
  std::uint64_t block = 0;
  std::uint64_t most_samples = 0;
  bool ask_places = false;  // for tests: asks HDF5 for the place of every chunk and compares with the driver
};

// Samples of less than 4 KiB are packed, about 64 KiB in a chunk, without filters: each is then one read of a
// few bytes, and a million of them are some thousand chunks. Larger samples have a chunk each. 1 for a ragged
// field, whose chunks hold steps and not samples.
std::size_t rows_per_chunk(const FieldForm& form);
Filters filters_of(const FieldForm& form);

// The shape of a chunk of a sample: the whole sample, unless it is stored in several chunks, so that a reader
// of a part reads a part of the file, and several threads can decode one sample. These are
// - bricks, where the form has them, and by default for volumes (axes D, H, W) of 8 MiB or more: 64 cells
//   along each of the last axes, with all channels, because who reads cells reads all channels of them;
// - else slabs of a sample of more than 8 MiB: each a range of it in C order (length 1 along the first axes,
// a
//   part of one axis, and the full length of the axes after it).
std::vector<std::size_t> chunk_shape(const FieldForm& form);
ChunkGrid chunk_grid(const FieldForm& form);

// The same calls give the same bytes. All throw Error{system} if the disk refuses.
class ShardWriter {
 public:
  ShardWriter(const std::filesystem::path& target, const ShardDescription& description);
  ShardWriter(ShardWriter&&) noexcept;
  ~ShardWriter();  // removes an unpublished file

  // Call it in ascending order of id (sub-cubes of a sample have the same id), with the fields in the order
  // of the description. `piece`: number of the sub-cube.
  void add(std::int64_t id, std::span<const EncodedField> fields, std::uint32_t piece = 0);
  std::uint64_t samples() const;
  // Writes the remaining data and closes the file, still under its temporary name.
  void close(std::span<const std::int64_t> missing);
  const std::filesystem::path& temporary() const;
  // Renames the file to its final name. Only after close().
  void publish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::converters
