// SPDX-License-Identifier: Apache-2.0
// One shard, opened for reading: the places of each sample's bytes, and their conversion to values.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "converters/dtype.h"
#include "converters/shards/chunk_grid.h"
#include "converters/shards/codec.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shared_chunks.h"

namespace wflow::converters {

struct ByteRange {
  std::uint64_t offset = 0;
  std::span<std::uint8_t> to;
};

// The source of a shard's bytes: its file, a copy on this node, or another process.
class ShardBytes {
 public:
  virtual ~ShardBytes() = default;
  // Fills all ranges. Thread-safe. Error{data} if the shard ends before a range.
  virtual void read(std::span<const ByteRange> ranges) const = 0;
};

class FileBytes final : public ShardBytes {
 public:
  // keep_open: keeps a descriptor, which saves an open(2) for each read.
  FileBytes(std::filesystem::path path, bool keep_open);
  // For an open file; messages name it `path`.
  FileBytes(std::filesystem::path path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void read(std::span<const ByteRange> ranges) const override;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
};

// The bytes that caches may still take, shared by several splits and threads.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t bytes = 0) : left_(bytes) {}
  // False, without taking anything, if fewer bytes are left.
  bool take(std::int64_t bytes) {
    std::int64_t left = left_.load(std::memory_order_relaxed);
    while (left >= bytes) {
      if (left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give_back(std::int64_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }
  void set(std::int64_t bytes) { left_.store(bytes, std::memory_order_relaxed); }
  bool holds(std::int64_t bytes) const { return left_.load(std::memory_order_relaxed) >= bytes; }

 private:
  std::atomic<std::int64_t> left_;
};

// The last chunk of a ragged field that was decoded: neighbouring samples share it.
struct DecodedSteps {
  std::size_t chunk = 0;
  bool valid = false;
  std::vector<std::uint8_t> bytes;
};

// The work of reading fields of samples.
struct ReadCounts {
  std::uint64_t read = 0;     // bytes from the source of the shards
  std::uint64_t decoded = 0;  // bytes of values, as held, in the chunks that were inflated or copied
  ReadCounts& operator+=(const ReadCounts& other) {
    read += other.read;
    decoded += other.decoded;
    return *this;
  }
};

// The buffers of one reading thread, kept between reads to avoid an allocation for each sample.
struct ReadScratch {
  Decoder decoder;
  std::vector<std::uint8_t> stored;
  std::vector<std::uint8_t> raw;
  std::vector<std::uint8_t> chunk;
  std::array<std::vector<std::uint8_t>, 2> chunks;  // two chunks that are inflated at once
  DecodedSteps steps;                               // valid during one call
  ReadCounts counts;                                // of all calls
};

// A row to read and the place for its values.
struct RowTarget {
  std::size_t row = 0;
  std::span<float> to;
  const SampleBox* box = nullptr;  // the values to read, C order; nothing: all
};

struct ChunkPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mask = 0;
  std::uint64_t hash = 0;
};

// Where the samples of a ragged field are: chunks hold steps along the ragged axis, not samples.
struct RaggedLayout {
  std::size_t axis = 0;  // in the shape of a sample
  std::size_t steps_per_chunk = 1;
  std::vector<std::uint64_t> offsets;  // in steps: of each sample, then the end; empty: not ragged
  double pad_value = 0;
  bool mask = false;  // no values in the file: 1 up to the sample's length, then 0
};

// A field of a shard.
struct FieldLayout {
  // direct: a sample is a range of the file. library: chunks or filters of another tool, read through HDF5.
  enum class Access { direct, library };
  std::string name;
  Access access = Access::direct;
  std::vector<std::size_t> shape;  // shape of a sample
  DType dtype = DType::float32;    // type of the values
  DType held = DType::float32;     // type in the file: narrower if that holds the same values
  std::size_t sample_bytes = 0;    // as held
  std::size_t rows_per_chunk = 1;
  std::vector<std::size_t> chunk;     // shape of a chunk of a sample; `shape`, unless a sample has several
  std::size_t chunks_per_sample = 1;  // in C order (chunk_grid.h)
  Filters filters;                    // none if a chunk holds several samples
  bool has_hashes = false;            // the index belongs to exactly this file
  bool index_stale = false;           // the file was changed after its index: the chunks are elsewhere
  bool index_damaged = false;         // the index should belong to the file, but its own checksum is wrong
  std::vector<ChunkPlace> chunks;
  // Samples are read padded: `shape` has the longest of the shard, or of the data set (pad_to_longest).
  RaggedLayout ragged;
  bool is_ragged() const { return !ragged.offsets.empty(); }
  ChunkGrid grid() const { return ChunkGrid(shape, chunk); }
  std::size_t length(std::size_t row) const {
    return static_cast<std::size_t>(ragged.offsets[row + 1] - ragged.offsets[row]);
  }
};

// All that HDF5 knows about a shard; no further call of HDF5 is needed.
struct ShardLayout {
  std::vector<std::int64_t> ids;
  std::vector<FieldLayout> fields;
};

// `names`: the fields to read; format 1 has `x` and `y`.
ShardLayout read_shard_layout(const std::filesystem::path& path, const std::vector<std::string>& names);

// Ragged fields get the length of the data set's longest sample.
void pad_to_longest(ShardLayout& layout, const Manifest& manifest);

// The names of a shard's fields, in the order of HDF5.
std::vector<std::string> shard_fields(const std::filesystem::path& path);

// Reads a complete small field of numbers as float64, through HDF5.
std::vector<double> read_small_field(const std::filesystem::path& path, const FieldLayout& field,
                                     std::size_t rows);

class ShardFile {
 public:
  // keep_open: keeps a descriptor, which saves an open(2) for each sample.
  ShardFile(const std::filesystem::path& path, const std::vector<std::string>& fields, bool keep_open);
  // For a shard with a known layout; `path` names it in messages. The bytes may come from anywhere, unless a
  // field is read through HDF5.
  ShardFile(std::filesystem::path path, ShardLayout layout, std::unique_ptr<ShardBytes> bytes);

  const std::filesystem::path& path() const { return path_; }
  const ShardLayout& layout() const { return layout_; }
  std::size_t size() const { return layout_.ids.size(); }

  // The values of a ragged field without padding, the ragged axis first; none of a mask.
  std::vector<std::uint8_t> read_steps(std::size_t field, std::size_t row, ReadScratch& scratch) const;

  // Reads field `field` of sample `row`: as stored, in the field's type, and as float32. Thread-safe.
  // Throws Error{data} if the bytes do not match the XXH3-64 of their chunk (over 10 GB/s a core). A chunk
  // that holds several samples is checked once, at its first read.
  void read_held(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<std::uint8_t> raw) const;
  void read_stored(std::size_t field, std::size_t row, ReadScratch& scratch,
                   std::span<std::uint8_t> raw) const;
  void read_float(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<float> x) const;
  // Reads several rows, in any order: one call reads nearby bytes, chunks are inflated in pairs and converted
  // from byte planes to float32 in one pass. `scales`: one for each equal part of a sample (its channels), or
  // none. The bits are those of read_float followed by a multiplication and an addition. `keep`: compressed
  // chunks stay in memory up to this budget, and are not read again. A row with a box costs the chunks that
  // have values of it.
  void read_floats(std::size_t field, std::span<RowTarget> rows, std::span<const Scale> scales,
                   ReadScratch& scratch, MemoryBudget* keep = nullptr) const;
  // From now on read_floats() takes inflated chunks of a field from `chunks`, or decodes them for all
  // processes that share it. `key` names the field's shard for all of them. Of `ranks` processes, each begins
  // with other chunks.
  struct Sharing {
    SharedChunks* chunks = nullptr;
    std::uint64_t key = 0;
    std::size_t rank = 0;
    std::size_t ranks = 1;
  };
  void share(std::size_t field, const Sharing& sharing) { sharing_[field] = sharing; }
  // The bytes that `keep` needs for a complete field.
  std::int64_t compressed_bytes(std::size_t field) const;
  // The damaged chunks of a packed field: their checksum is wrong.
  std::vector<std::size_t> damaged_chunks(std::size_t field, ReadScratch& scratch) const;

 private:
  void read_bytes(std::uint64_t offset, std::span<std::uint8_t> to, ReadScratch& scratch) const;
  void read_chunk(const FieldLayout& layout, std::size_t chunk, std::size_t row, ReadScratch& scratch,
                  std::span<std::uint8_t> raw) const;
  struct Piece;
  std::vector<Piece> pieces_of(std::size_t field, std::span<const RowTarget> rows, const SampleBox& whole,
                               ReadScratch& scratch) const;
  void read_pieces(std::span<Piece> pieces, ReadScratch& scratch) const;
  void read_shared(std::size_t field, std::vector<Piece> pieces, std::span<const Scale> scales,
                   ReadScratch& scratch, MemoryBudget* keep) const;
  void decode_for_all(std::size_t field, std::span<Piece> pieces, std::span<SharedChunks::Chunk> places,
                      std::span<const Scale> scales, ReadScratch& scratch, MemoryBudget* keep) const;
  void decode_pieces(const FieldLayout& layout, std::span<Piece> pieces, std::span<const Scale> scales,
                     ReadScratch& scratch) const;
  static void copy_piece(const FieldLayout& layout, const ChunkGrid& grid, const Piece& piece,
                         const ChunkValues& values, std::span<const Scale> scales);
  // From a decoded sample.
  static void copy_row(const FieldLayout& layout, const RowTarget& wanted,
                       std::span<const std::uint8_t> sample, std::span<const Scale> scales);
  void find_kept(std::size_t field, std::span<Piece> pieces) const;
  void keep_pieces(std::size_t field, std::span<const Piece> pieces, std::span<const std::uint8_t> stored,
                   MemoryBudget& budget) const;
  bool is_plain(const FieldLayout& layout, const Piece& piece) const;
  void read_plain(std::size_t field, std::span<const Piece> pieces, std::span<const Scale> scales,
                  ReadScratch& scratch) const;
  void finish_plain(std::size_t field, const Piece& piece, std::span<const std::uint8_t> bytes,
                    std::span<const Scale> scales) const;
  Error damaged(std::size_t row) const;
  std::span<const std::uint8_t> steps_chunk(std::size_t field, std::size_t chunk, std::size_t row,
                                            ReadScratch& scratch, MemoryBudget* keep) const;
  template <typename Take>
  void for_each_steps(std::size_t field, std::size_t row, ReadScratch& scratch, MemoryBudget* keep,
                      Take take) const;
  void read_padded(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<std::uint8_t> raw,
                   MemoryBudget* keep) const;
  void read_ragged_floats(std::size_t field, std::span<RowTarget> rows, std::span<const Scale> scales,
                          ReadScratch& scratch, MemoryBudget* keep) const;
  void check_packed(const FieldLayout& layout, std::size_t chunk, ReadScratch& scratch,
                    std::atomic<bool>& done) const;

  std::filesystem::path path_;
  ShardLayout layout_;
  std::unique_ptr<ShardBytes> bytes_;
  std::vector<std::unique_ptr<std::atomic<bool>[]>> checked_;  // for each field, its intact chunks
  // For each field, the stored bytes of intact chunks: the pointers for readers, and the owners.
  struct Kept {
    std::vector<std::atomic<const std::uint8_t*>> bytes;
    std::vector<std::unique_ptr<std::uint8_t[]>> owned;
  };
  std::vector<std::unique_ptr<Kept>> kept_;
  std::vector<Sharing> sharing_;  // of each field
};

// A shard of a data set, with all fields of its manifest.
ShardFile open_shard(const std::filesystem::path& path, const Manifest& manifest, bool keep_open);

// All that HDF5 knows about a shard of a data set, in a form that processes can exchange: with it a reader
// needs only the shard's bytes.
struct ShardContents {
  ShardLayout layout;
  std::vector<double> targets;  // the targets of all samples in order, if all are numbers
};

// `path`: the shard, or a copy of it.
ShardContents read_shard_contents(const std::filesystem::path& path, const Manifest& manifest);

// An encoding for programs of the same build.
std::string encode_contents(const ShardContents& contents);
ShardContents decode_contents(std::string_view bytes);

// A shard as SplitReader needs it.
struct OpenedShard {
  ShardContents contents;
  std::unique_ptr<ShardBytes> bytes;
};
using ShardOpener = std::function<OpenedShard(const ShardEntry& shard)>;

}  // namespace wflow::converters
