// SPDX-License-Identifier: Apache-2.0
// One shard, opened for reading: where each sample's bytes lie, and how to make values of them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "converters/dtype.h"
#include "converters/shards/codec.h"
#include "converters/shards/memory_budget.h"
#include "converters/shards/planes.h"
#include "converters/shards/shard_bytes.h"

namespace wflow::converters {

// What one reading thread needs; kept between reads so that nothing is allocated a sample.
struct ReadScratch {
  Decoder decoder;
  std::vector<std::uint8_t> stored;
  std::vector<std::uint8_t> raw;
  std::vector<std::uint8_t> slab;
  std::array<std::vector<std::uint8_t>, 2> chunks;  // two that are inflated at once
};

// A row that is wanted and where its values go.
struct RowTarget {
  std::size_t row = 0;
  std::span<float> to;
};

struct ChunkPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mask = 0;
  std::uint64_t hash = 0;
};

// A field of a shard.
struct FieldLayout {
  // direct: a sample is a range of the file. library: chunks or filters of another tool, read through HDF5.
  enum class Access { direct, library };
  std::string name;
  Access access = Access::direct;
  std::vector<std::size_t> shape;  // of a sample
  DType dtype = DType::float32;    // of the values
  DType held = DType::float32;     // in the file: narrower where that holds the same values
  std::size_t sample_bytes = 0;    // as held
  std::size_t rows_per_chunk = 1;
  std::vector<std::size_t> slab;  // shape of a chunk of a sample; `shape`, unless the sample lies in several
  std::size_t slabs = 1;          // chunks of a sample, each a range of it in C order
  Filters filters;                // none where a chunk holds several samples
  bool has_hashes = false;        // the index is that of this very file
  bool index_stale = false;       // the file was changed after its index: the chunks lie elsewhere
  bool index_damaged = false;     // it should be, but its own checksum says otherwise
  std::vector<ChunkPlace> chunks;
};

// Everything that HDF5 has to tell about a shard; after this no call of it is needed.
struct ShardLayout {
  std::vector<std::int64_t> ids;
  std::vector<FieldLayout> fields;
};

// `names`: the fields that are wanted; format 1 has `x` and `y`.
ShardLayout read_shard_layout(const std::filesystem::path& path, const std::vector<std::string>& names);

// The names of a shard's fields, in the order of HDF5.
std::vector<std::string> shard_fields(const std::filesystem::path& path);

// Reads all of a small field of numbers, as float64, through HDF5.
std::vector<double> read_small_field(const std::filesystem::path& path, const FieldLayout& field,
                                     std::size_t rows);

class ShardFile {
 public:
  // keep_open: hold a descriptor, which saves an open(2) a sample.
  ShardFile(const std::filesystem::path& path, const std::vector<std::string>& fields, bool keep_open);
  // Of a shard whose layout is known; `path` names it in messages. The bytes may be anywhere, unless a field
  // is read through HDF5.
  ShardFile(std::filesystem::path path, ShardLayout layout, std::unique_ptr<ShardBytes> bytes);

  const std::filesystem::path& path() const { return path_; }
  const ShardLayout& layout() const { return layout_; }
  std::size_t size() const { return layout_.ids.size(); }

  // Field `field` of sample `row` as the file holds it, in the field's type, and as float32. Thread-safe.
  // Error{data} where the bytes are damaged. With `verify`, a chunk of several samples is compared with its
  // checksum when the first of them is read.
  void read_held(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<std::uint8_t> raw,
                 bool verify) const;
  void read_stored(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<std::uint8_t> raw,
                   bool verify) const;
  void read_float(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<float> x,
                  bool verify) const;
  // Several rows, in any order: what lies close together is read by one call, chunks are inflated two at a
  // time and go from their byte planes to float32 in one pass. `scales`: one an equal part of a sample (its
  // channels), or none. The bits are those of read_float and a multiplication and an addition after it.
  // `keep`: compressed chunks stay in memory as they are, as far as it goes, and are read no more.
  void read_floats(std::size_t field, std::span<RowTarget> rows, std::span<const Scale> scales,
                   ReadScratch& scratch, bool verify, MemoryBudget* keep = nullptr) const;
  // What `keep` would take for all of a field.
  std::int64_t compressed_bytes(std::size_t field) const;
  // `count` entries from `start` along each axis; only the slabs that they touch are read.
  void read_float_part(std::size_t field, std::size_t row, std::span<const std::size_t> start,
                       std::span<const std::size_t> count, ReadScratch& scratch, std::span<float> x,
                       bool verify) const;
  // The chunks of a packed field whose bytes are not those that were written.
  std::vector<std::size_t> damaged_chunks(std::size_t field, ReadScratch& scratch) const;

 private:
  void read_bytes(std::uint64_t offset, std::span<std::uint8_t> to) const;
  void read_chunk(const FieldLayout& layout, std::size_t chunk, std::size_t row, ReadScratch& scratch,
                  std::span<std::uint8_t> raw, bool verify) const;
  struct Piece;
  std::vector<Piece> pieces_of(std::size_t field, std::span<const RowTarget> rows, bool verify,
                               ReadScratch& scratch) const;
  void read_pieces(std::span<Piece> pieces, std::vector<std::uint8_t>& stored) const;
  void decode_pieces(const FieldLayout& layout, std::span<Piece> pieces, std::span<const Scale> scales,
                     ReadScratch& scratch, bool verify) const;
  void find_kept(std::size_t field, std::span<Piece> pieces) const;
  void keep_pieces(std::size_t field, std::span<const Piece> pieces, std::span<const std::uint8_t> stored,
                   MemoryBudget& budget) const;
  bool is_plain(const FieldLayout& layout, const Piece& piece) const;
  void read_plain(std::size_t field, std::span<const Piece> pieces, std::span<const Scale> scales,
                  bool verify) const;
  void finish_plain(std::size_t field, const Piece& piece, std::span<const std::uint8_t> bytes,
                    std::span<const Scale> scales, bool verify) const;
  Error damaged(std::size_t row) const;
  void check_packed(const FieldLayout& layout, std::size_t chunk, ReadScratch& scratch,
                    std::atomic<bool>& done) const;

  std::filesystem::path path_;
  ShardLayout layout_;
  std::unique_ptr<ShardBytes> bytes_;
  std::vector<std::unique_ptr<std::atomic<bool>[]>> checked_;  // of each field, its chunks that were whole
  // Of each field the stored bytes of chunks that were whole: what readers see, and who frees it.
  struct Kept {
    std::vector<std::atomic<const std::uint8_t*>> bytes;
    std::vector<std::unique_ptr<std::uint8_t[]>> owned;
  };
  std::vector<std::unique_ptr<Kept>> kept_;
};

}  // namespace wflow::converters
