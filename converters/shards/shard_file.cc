// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "converters/input/hdf5_handle.h"
#include "converters/shards/encode.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

void read_through_library(const fs::path& path, const FieldLayout& field, std::size_t row, std::int64_t id,
                          void* values) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  const DatasetId x(H5Dopen2(file.get(), field.name.c_str(), H5P_DEFAULT));
  const SpaceId space(H5Dget_space(x.get()));
  std::vector<hsize_t> start(field.shape.size() + 1, 0);
  std::vector<hsize_t> count = {1};
  start[0] = row;
  count.insert(count.end(), field.shape.begin(), field.shape.end());
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
  const SpaceId memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr));
  if (H5Dread(x.get(), native_type(field.held), memory.get(), space.get(), H5P_DEFAULT, values) < 0) {
    throw_hdf5(ExitCode::data, fmt::format("cannot read sample {} of {}", id, path.string()));
  }
}

// Bytes of a decoded chunk.
std::size_t chunk_bytes(const FieldLayout& layout) {
  return values_of(layout.chunk) * dtype_size(layout.held);
}

// Values of a sample that are neighbours: the number of the first one in the chunk, and in the sample.
struct ValueRun {
  std::size_t in_chunk = 0;
  std::size_t in_sample = 0;
};

// The scales apply to equal parts of a sample.
void copy_scaled(const ChunkValues& chunk, const ValueRun& run, std::size_t sample_values,
                 std::span<float> to, std::span<const Scale> scales) {
  if (scales.empty()) {
    copy_as_float(chunk, run.in_chunk, to, nullptr);
    return;
  }
  const std::size_t part = sample_values / scales.size();
  for (std::size_t at = 0; at < to.size();) {
    const std::size_t k = (run.in_sample + at) / part;
    const std::size_t length = std::min(to.size() - at, (k + 1) * part - run.in_sample - at);
    copy_as_float(chunk, run.in_chunk + at, to.subspan(at, length), &scales[k]);
    at += length;
  }
}

// Bytes of one step along the ragged axis.
std::size_t step_bytes(const FieldLayout& layout) {
  return layout.sample_bytes / layout.shape[layout.ragged.axis];
}

}  // namespace

std::vector<double> read_small_field(const fs::path& path, const FieldLayout& field, std::size_t rows) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  const DatasetId dataset(H5Dopen2(file.get(), field.name.c_str(), H5P_DEFAULT));
  std::vector<double> values(rows * (field.sample_bytes / dtype_size(field.held)));
  if (!values.empty() &&
      H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
    throw_hdf5(ExitCode::data, fmt::format("cannot read /{} of {}", field.name, path.string()));
  return values;
}

ShardFile::ShardFile(const fs::path& path, const std::vector<std::string>& fields, bool keep_open)
    : ShardFile(path, read_shard_layout(path, fields), std::make_unique<FileBytes>(path, keep_open)) {}

ShardFile::ShardFile(fs::path path, ShardLayout layout, std::unique_ptr<ShardBytes> bytes)
    : path_(std::move(path)), layout_(std::move(layout)), bytes_(std::move(bytes)) {
  sharing_.resize(layout_.fields.size());
  for (const FieldLayout& field : layout_.fields) {
    const std::size_t hashed = field.has_hashes ? field.chunks.size() : 0;
    checked_.push_back(hashed > 0 ? std::make_unique<std::atomic<bool>[]>(hashed) : nullptr);
    kept_.push_back(std::make_unique<Kept>());
    if (!field.filters.deflate || field.access == FieldLayout::Access::library) continue;
    kept_.back()->bytes = std::vector<std::atomic<const std::uint8_t*>>(field.chunks.size());
    kept_.back()->owned.resize(field.chunks.size());
  }
}

void ShardFile::read_bytes(std::uint64_t offset, std::span<std::uint8_t> to, ReadScratch& scratch) const {
  const ByteRange range{offset, to};
  bytes_->read({&range, 1});
  scratch.counts.read += to.size();
}

void ShardFile::check_packed(const FieldLayout& layout, std::size_t chunk, ReadScratch& scratch,
                             std::atomic<bool>& done) const {
  const ChunkPlace& place = layout.chunks[chunk];
  scratch.stored.resize(place.bytes);
  read_bytes(place.offset, scratch.stored, scratch);
  if (chunk_hash(scratch.stored) != place.hash) {
    const std::size_t first = chunk * layout.rows_per_chunk;
    const std::size_t last = std::min(first + layout.rows_per_chunk, size()) - 1;
    throw Error(
        ExitCode::data,
        fmt::format(
            "{} of samples {} to {} of {} is damaged; `wflow-convert verify` checks the whole data set",
            layout.name, layout_.ids[first], layout_.ids[last], path_.string()));
  }
  done.store(true, std::memory_order_relaxed);
}

Error ShardFile::damaged(std::size_t row) const {
  return Error(ExitCode::data,
               fmt::format("sample {} of {} is damaged; `wflow-convert verify` checks the whole data set",
                           layout_.ids[row], path_.string()));
}

// One chunk of a sample, inflated.
void ShardFile::read_chunk(const FieldLayout& layout, std::size_t chunk, std::size_t row,
                           ReadScratch& scratch, std::span<std::uint8_t> raw) const {
  const ChunkPlace& place = layout.chunks[chunk];
  scratch.stored.resize(place.bytes);
  read_bytes(place.offset, scratch.stored, scratch);
  if (layout.has_hashes && chunk_hash(scratch.stored) != place.hash) throw damaged(row);
  scratch.counts.decoded += raw.size();
  const bool whole =
      scratch.decoder.decode(scratch.stored, layout.filters, place.mask, dtype_size(layout.held), raw);
  if (!whole) throw damaged(row);
}

// A range of the file that holds values of one row.
struct ShardFile::Piece {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  ChunkPlace place;  // place of its own chunk; for a packed row only the range
  std::size_t row = 0;
  std::size_t begin = 0;               // number of the first value in the sample; of a box it is unused
  std::span<float> to;                 // place for these values, or for all values of the box
  std::size_t chunk = 0;               // its number
  const SampleBox* box = nullptr;      // its values are not a range: those of this box are copied
  std::size_t at = 0;                  // offset in the bytes that were read
  const std::uint8_t* kept = nullptr;  // its bytes, if in memory
};

// The bytes of a chunk of steps, decoded: the last one is still in `scratch` if neighbours follow.
std::span<const std::uint8_t> ShardFile::steps_chunk(std::size_t field, std::size_t chunk, std::size_t row,
                                                     ReadScratch& scratch, MemoryBudget* keep) const {
  DecodedSteps& last = scratch.steps;
  if (last.valid && last.chunk == chunk) return last.bytes;
  const FieldLayout& layout = layout_.fields[field];
  Piece piece;
  piece.place = layout.chunks[chunk];
  piece.bytes = piece.place.bytes;
  piece.chunk = chunk;
  find_kept(field, {&piece, 1});
  std::span<const std::uint8_t> stored(piece.kept, piece.bytes);
  if (piece.kept == nullptr) {
    scratch.stored.resize(piece.bytes);
    read_bytes(piece.place.offset, scratch.stored, scratch);
    stored = scratch.stored;
    if (layout.has_hashes && chunk_hash(stored) != piece.place.hash) throw damaged(row);
  }
  last.valid = false;
  last.chunk = chunk;
  last.bytes.resize(layout.ragged.steps_per_chunk * step_bytes(layout));
  scratch.counts.decoded += last.bytes.size();
  if (!scratch.decoder.decode(stored, layout.filters, piece.place.mask, dtype_size(layout.held), last.bytes))
    throw damaged(row);
  last.valid = true;
  if (keep != nullptr) keep_pieces(field, {&piece, 1}, scratch.stored, *keep);
  return last.bytes;
}

// take(bytes) for each part of a sample that lies in one chunk, in order.
template <typename Take>
void ShardFile::for_each_steps(std::size_t field, std::size_t row, ReadScratch& scratch, MemoryBudget* keep,
                               Take take) const {
  const FieldLayout& layout = layout_.fields[field];
  const std::uint64_t each = layout.ragged.steps_per_chunk;
  const std::size_t width = step_bytes(layout);
  const std::uint64_t end = layout.ragged.offsets[row + 1];
  for (std::uint64_t at = layout.ragged.offsets[row]; at < end;) {
    const std::uint64_t chunk = at / each;
    const std::uint64_t until = std::min(end, (chunk + 1) * each);
    const auto bytes = steps_chunk(field, static_cast<std::size_t>(chunk), row, scratch, keep);
    take(bytes.subspan(static_cast<std::size_t>(at % each) * width,
                       static_cast<std::size_t>(until - at) * width));
    at = until;
  }
}

std::vector<std::uint8_t> ShardFile::read_steps(std::size_t field, std::size_t row,
                                                ReadScratch& scratch) const {
  const FieldLayout& layout = layout_.fields[field];
  std::vector<std::uint8_t> steps;
  if (layout.ragged.mask) return steps;
  steps.reserve(layout.length(row) * step_bytes(layout));
  scratch.steps.valid = false;
  for_each_steps(field, row, scratch, nullptr, [&](std::span<const std::uint8_t> part) {
    steps.insert(steps.end(), part.begin(), part.end());
  });
  return steps;
}

void ShardFile::read_padded(std::size_t field, std::size_t row, ReadScratch& scratch,
                            std::span<std::uint8_t> raw, MemoryBudget* keep) const {
  const FieldLayout& layout = layout_.fields[field];
  const std::size_t width = dtype_size(layout.held);
  if (layout.ragged.mask) {
    fill_values(layout.held, 0, raw);
    const std::vector<std::uint8_t> ones(layout.length(row) * step_bytes(layout), 1);
    put_steps(ones, layout.shape, {layout.ragged.axis, 0, layout.length(row)}, width, raw);
    return;
  }
  fill_values(layout.held, layout.ragged.pad_value, raw);
  std::size_t done = 0;
  for_each_steps(field, row, scratch, keep, [&](std::span<const std::uint8_t> part) {
    const std::size_t count = part.size() / step_bytes(layout);
    put_steps(part, layout.shape, {layout.ragged.axis, done, count}, width, raw);
    done += count;
  });
}

// In order of row, so that a chunk is decoded once for all samples in it.
void ShardFile::read_ragged_floats(std::size_t field, std::span<RowTarget> rows,
                                   std::span<const Scale> scales, ReadScratch& scratch,
                                   MemoryBudget* keep) const {
  const FieldLayout& layout = layout_.fields[field];
  std::vector<RowTarget> ascending(rows.begin(), rows.end());
  std::sort(ascending.begin(), ascending.end(),
            [](const RowTarget& a, const RowTarget& b) { return a.row < b.row; });
  scratch.steps.valid = false;
  scratch.raw.resize(layout.sample_bytes);
  for (const RowTarget& wanted : ascending) {
    WFLOW_CHECK(wanted.row < size());
    read_padded(field, wanted.row, scratch, scratch.raw, keep);
    copy_row(layout, wanted, scratch.raw, scales);
  }
}

void ShardFile::read_held(std::size_t field, std::size_t row, ReadScratch& scratch,
                          std::span<std::uint8_t> raw) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(row < size() && raw.size() == layout.sample_bytes);
  if (layout.is_ragged()) {
    scratch.steps.valid = false;
    read_padded(field, row, scratch, raw, nullptr);
    return;
  }
  if (layout.access == FieldLayout::Access::library) {
    read_through_library(path_, layout, row, layout_.ids[row], raw.data());
    scratch.counts += {raw.size(), raw.size()};
    return;
  }
  if (layout.rows_per_chunk > 1) {
    const std::size_t chunk = row / layout.rows_per_chunk;
    if (checked_[field] && !checked_[field][chunk].load(std::memory_order_relaxed))
      check_packed(layout, chunk, scratch, checked_[field][chunk]);
    read_bytes(layout.chunks[chunk].offset + row % layout.rows_per_chunk * raw.size(), raw, scratch);
    scratch.counts.decoded += raw.size();
    return;
  }
  if (layout.chunks_per_sample == 1) {
    read_chunk(layout, row, row, scratch, raw);
    return;
  }
  const ChunkGrid grid = layout.grid();
  const SampleBox whole = SampleBox::whole(layout.shape);
  const std::size_t width = dtype_size(layout.held);
  scratch.chunk.resize(chunk_bytes(layout));
  for (std::size_t k = 0; k < grid.chunks(); ++k) {
    read_chunk(layout, row * grid.chunks() + k, row, scratch, scratch.chunk);
    grid.for_each_run(k, whole, [&](const ChunkGrid::Run& run) {
      std::memcpy(raw.data() + run.in_sample * width, scratch.chunk.data() + run.in_chunk * width,
                  run.values * width);
    });
  }
}

void ShardFile::read_stored(std::size_t field, std::size_t row, ReadScratch& scratch,
                            std::span<std::uint8_t> raw) const {
  const FieldLayout& layout = layout_.fields[field];
  if (layout.held == layout.dtype) {
    read_held(field, row, scratch, raw);
    return;
  }
  const std::size_t count = layout.sample_bytes / dtype_size(layout.held);
  WFLOW_CHECK(raw.size() == count * dtype_size(layout.dtype));
  scratch.raw.resize(layout.sample_bytes);
  read_held(field, row, scratch, scratch.raw);
  with_type(layout.held, [&](auto from) {
    with_type(layout.dtype, [&](auto to) {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&from, scratch.raw.data() + i * sizeof from, sizeof from);
        to = static_cast<decltype(to)>(from);
        std::memcpy(raw.data() + i * sizeof to, &to, sizeof to);
      }
    });
  });
}

void ShardFile::read_float(std::size_t field, std::size_t row, ReadScratch& scratch,
                           std::span<float> x) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(x.size() * dtype_size(layout.held) == layout.sample_bytes);
  if (layout.held == DType::float32) {
    read_held(field, row, scratch, {reinterpret_cast<std::uint8_t*>(x.data()), x.size_bytes()});
    return;
  }
  scratch.raw.resize(layout.sample_bytes);
  read_held(field, row, scratch, scratch.raw);
  copy_as_float({scratch.raw, layout.held, false}, 0, x, nullptr);
}

std::vector<ShardFile::Piece> ShardFile::pieces_of(std::size_t field, std::span<const RowTarget> rows,
                                                   const SampleBox& whole, ReadScratch& scratch) const {
  const FieldLayout& layout = layout_.fields[field];
  const ChunkGrid grid = layout.grid();
  const bool ranges = grid.are_ranges();
  std::vector<Piece> pieces;
  pieces.reserve(rows.size() * layout.chunks_per_sample);
  for (const RowTarget& wanted : rows) {
    const SampleBox& box = wanted.box == nullptr ? whole : *wanted.box;
    WFLOW_CHECK(wanted.row < size() && wanted.to.size() == box.values());
    Piece piece;
    piece.row = wanted.row;
    piece.to = wanted.to;
    piece.box = wanted.box;
    if (layout.rows_per_chunk > 1) {
      const std::size_t chunk = wanted.row / layout.rows_per_chunk;
      if (checked_[field] && !checked_[field][chunk].load(std::memory_order_relaxed))
        check_packed(layout, chunk, scratch, checked_[field][chunk]);
      piece.offset = layout.chunks[chunk].offset + wanted.row % layout.rows_per_chunk * layout.sample_bytes;
      piece.bytes = layout.sample_bytes;
      piece.chunk = chunk;
      pieces.push_back(piece);
      continue;
    }
    for (std::size_t k = 0; k < grid.chunks(); ++k) {
      if (!grid.shares(k, box)) continue;
      piece.chunk = wanted.row * grid.chunks() + k;
      piece.place = layout.chunks[piece.chunk];
      piece.offset = piece.place.offset;
      piece.bytes = piece.place.bytes;
      if (wanted.box == nullptr && ranges) {
        grid.for_each_run(k, whole, [&](const ChunkGrid::Run& run) {
          piece.begin = run.in_sample;
          piece.to = wanted.to.subspan(run.in_sample, run.values);
        });
      } else {
        piece.box = &box;
      }
      pieces.push_back(piece);
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return pieces;
}

void ShardFile::copy_piece(const FieldLayout& layout, const ChunkGrid& grid, const Piece& piece,
                           const ChunkValues& values, std::span<const Scale> scales) {
  const std::size_t sample_values = layout.sample_bytes / dtype_size(layout.held);
  if (piece.box == nullptr) {
    copy_scaled(values, {0, piece.begin}, sample_values, piece.to, scales);
    return;
  }
  grid.for_each_run(piece.chunk % grid.chunks(), *piece.box, [&](const ChunkGrid::Run& run) {
    copy_scaled(values, {run.in_chunk, run.in_sample}, sample_values,
                piece.to.subspan(run.in_box, run.values), scales);
  });
}

void ShardFile::copy_row(const FieldLayout& layout, const RowTarget& wanted,
                         std::span<const std::uint8_t> sample, std::span<const Scale> scales) {
  Piece piece;
  piece.to = wanted.to;
  piece.box = wanted.box;
  WFLOW_CHECK(wanted.to.size() == (wanted.box == nullptr ? values_of(layout.shape) : wanted.box->values()));
  copy_piece(layout, ChunkGrid(layout.shape, layout.shape), piece, {sample, layout.held, false}, scales);
}

std::int64_t ShardFile::compressed_bytes(std::size_t field) const {
  const FieldLayout& layout = layout_.fields[field];
  std::int64_t bytes = 0;
  for (const ChunkPlace& place : layout.chunks)
    if (!kept_[field]->bytes.empty() && layout.filters.deflated(place.mask))
      bytes += static_cast<std::int64_t>(place.bytes);
  return bytes;
}

void ShardFile::find_kept(std::size_t field, std::span<Piece> pieces) const {
  const Kept& kept = *kept_[field];
  if (kept.bytes.empty()) return;
  for (Piece& piece : pieces) piece.kept = kept.bytes[piece.chunk].load(std::memory_order_acquire);
}

// Called after decoding: keeps only intact chunks.
void ShardFile::keep_pieces(std::size_t field, std::span<const Piece> pieces,
                            std::span<const std::uint8_t> stored, MemoryBudget& budget) const {
  Kept& kept = *kept_[field];
  if (kept.bytes.empty()) return;
  for (const Piece& piece : pieces) {
    const bool deflated = layout_.fields[field].filters.deflated(piece.place.mask);
    const auto bytes = static_cast<std::int64_t>(piece.bytes);
    if (piece.kept != nullptr || !deflated || !budget.take(bytes)) continue;
    auto copy = std::make_unique_for_overwrite<std::uint8_t[]>(piece.bytes);
    std::copy_n(stored.begin() + static_cast<std::ptrdiff_t>(piece.at), piece.bytes, copy.get());
    const std::uint8_t* expected = nullptr;
    if (kept.bytes[piece.chunk].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel)) {
      kept.owned[piece.chunk] = std::move(copy);
    } else {
      budget.give_back(bytes);  // another thread has read the same
    }
  }
}

// Reads in ascending order of offset; one call reads ranges with gaps of less than kMostGap.
void ShardFile::read_pieces(std::span<Piece> pieces, ReadScratch& scratch) const {
  std::vector<std::uint8_t>& stored = scratch.stored;
  constexpr std::uint64_t kMostGap = 8 << 10;
  std::vector<std::pair<std::uint64_t, std::size_t>> runs;  // offset and length
  std::size_t filled = 0;
  for (std::size_t k = 0; k < pieces.size();) {
    if (pieces[k].kept != nullptr) {
      ++k;
      continue;
    }
    const std::uint64_t begin = pieces[k].offset;
    std::uint64_t end = begin;
    std::size_t next = k;
    for (; next < pieces.size() && pieces[next].kept == nullptr &&
           pieces[next].offset <= end + (next == k ? 0 : kMostGap);
         ++next) {
      pieces[next].at = filled + static_cast<std::size_t>(pieces[next].offset - begin);
      end = std::max(end, pieces[next].offset + pieces[next].bytes);
    }
    const auto length = static_cast<std::size_t>(end - begin);
    runs.emplace_back(begin, length);
    filled += length;
    k = next;
  }
  if (stored.size() < filled) stored.resize(filled);
  std::vector<ByteRange> ranges;
  std::size_t at = 0;
  for (const auto& [offset, length] : runs) {
    ranges.push_back({offset, std::span(stored).subspan(at, length)});
    at += length;
  }
  bytes_->read(ranges);
  scratch.counts.read += filled;
}

namespace {

void grow(std::vector<std::uint8_t>& bytes, std::size_t size) {
  if (bytes.size() < size) bytes.resize(size);
}

}  // namespace

void ShardFile::decode_pieces(const FieldLayout& layout, std::span<Piece> pieces,
                              std::span<const Scale> scales, ReadScratch& scratch) const {
  const std::size_t width = dtype_size(layout.held);
  const bool packed = layout.rows_per_chunk > 1;
  const std::size_t inflated = packed ? layout.sample_bytes : chunk_bytes(layout);
  // A piece of a packed chunk is one row.
  const ChunkGrid grid = packed ? ChunkGrid(layout.shape, layout.shape) : layout.grid();
  const auto stored = [&](const Piece& piece) {
    if (piece.kept != nullptr) return std::span(piece.kept, piece.bytes);
    return std::span<const std::uint8_t>(scratch.stored).subspan(piece.at, piece.bytes);
  };
  const auto copy = [&](const Piece& piece, std::span<const std::uint8_t> bytes) {
    const bool shuffled = !packed && layout.filters.shuffled(piece.place.mask) && width > 1;
    scratch.counts.decoded += inflated;
    copy_piece(layout, grid, piece, {bytes, layout.held, shuffled}, scales);
  };
  const Piece* waiting = nullptr;  // waits for a second chunk to be inflated with it
  for (const Piece& piece : pieces) {
    const bool unknown = !packed && layout.has_hashes && piece.kept == nullptr;
    if (unknown && chunk_hash(stored(piece)) != piece.place.hash) throw damaged(piece.row);
    if (packed || !layout.filters.deflated(piece.place.mask)) {
      if (piece.bytes != inflated) throw damaged(piece.row);
      copy(piece, stored(piece));
    } else if (waiting == nullptr) {
      waiting = &piece;
    } else {
      for (auto& chunk : scratch.chunks) grow(chunk, inflated);
      const auto first = std::span(scratch.chunks[0]).first(inflated);
      const auto second = std::span(scratch.chunks[1]).first(inflated);
      const auto whole = scratch.decoder.inflate_two({stored(*waiting), stored(piece)}, {first, second});
      if (!whole[0]) throw damaged(waiting->row);
      if (!whole[1]) throw damaged(piece.row);
      copy(*waiting, first);
      copy(piece, second);
      waiting = nullptr;
    }
  }
  if (waiting == nullptr) return;
  grow(scratch.chunks[0], inflated);
  const auto last = std::span(scratch.chunks[0]).first(inflated);
  if (!scratch.decoder.inflate(stored(*waiting), last)) throw damaged(waiting->row);
  copy(*waiting, last);
}

void ShardFile::read_floats(std::size_t field, std::span<RowTarget> rows, std::span<const Scale> scales,
                            ReadScratch& scratch, MemoryBudget* keep) const {
  constexpr std::uint64_t kWindow = 4 << 20;  // limit of stored bytes at once
  const FieldLayout& layout = layout_.fields[field];
  if (layout.is_ragged()) {
    read_ragged_floats(field, rows, scales, scratch, keep);
    return;
  }
  if (layout.access == FieldLayout::Access::library) {
    for (const RowTarget& wanted : rows) {
      scratch.raw.resize(layout.sample_bytes);
      read_held(field, wanted.row, scratch, scratch.raw);
      copy_row(layout, wanted, scratch.raw, scales);
    }
    return;
  }
  const SampleBox whole = SampleBox::whole(layout.shape);
  std::vector<Piece> pieces = pieces_of(field, rows, whole, scratch);
  const auto plain = std::stable_partition(pieces.begin(), pieces.end(),
                                           [&](const Piece& piece) { return !is_plain(layout, piece); });
  read_plain(field, {plain, pieces.end()}, scales, scratch);
  pieces.erase(plain, pieces.end());
  find_kept(field, pieces);
  if (sharing_[field].chunks != nullptr && layout.rows_per_chunk == 1) {
    const auto own = std::stable_partition(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return !layout.filters.deflated(piece.place.mask);
    });
    read_shared(field, {own, pieces.end()}, scales, scratch, keep);
    pieces.erase(own, pieces.end());
  }
  for (std::size_t k = 0; k < pieces.size();) {
    std::size_t next = k;
    for (std::uint64_t bytes = 0;
         next < pieces.size() && (next == k || bytes + pieces[next].bytes <= kWindow); ++next)
      bytes += pieces[next].bytes;
    if ((next - k) % 2 == 1 && next - k > 1 && next < pieces.size()) --next;  // pairs
    const auto window = std::span(pieces).subspan(k, next - k);
    read_pieces(window, scratch);
    decode_pieces(layout, window, scales, scratch);
    if (keep != nullptr) keep_pieces(field, window, scratch.stored, *keep);
    k = next;
  }
}

// Takes what others have decoded, and decodes the others, two at once. A process
// waits for others only while none waits for it.
void ShardFile::read_shared(std::size_t field, std::vector<Piece> pieces, std::span<const Scale> scales,
                            ReadScratch& scratch, MemoryBudget* keep) const {
  constexpr std::chrono::microseconds kPause(100);
  const FieldLayout& layout = layout_.fields[field];
  const Sharing& sharing = sharing_[field];
  const ChunkGrid grid = layout.grid();
  const std::size_t inflated = chunk_bytes(layout);
  // All go through the same chunks, as many at a time as the memory holds, and each begins with its own.
  const std::size_t together = std::max(2 * sharing.ranks, sharing.chunks->slots() / 2);
  std::ranges::stable_sort(pieces, {}, [&](const Piece& piece) {
    return std::pair(piece.chunk / together, piece.chunk % sharing.ranks != sharing.rank);
  });
  while (!pieces.empty()) {
    std::vector<Piece> own;
    std::vector<SharedChunks::Chunk> places;
    std::vector<Piece> later;
    for (const Piece& piece : pieces) {
      SharedChunks::Chunk chunk;
      const auto found = own.size() == 2
                             ? SharedChunks::Found::busy
                             : sharing.chunks->take(hash64(sharing.key, piece.chunk), inflated, chunk);
      if (found == SharedChunks::Found::busy) {
        later.push_back(piece);
      } else if (found == SharedChunks::Found::decoded) {
        const bool shuffled = layout.filters.shuffled(piece.place.mask) && dtype_size(layout.held) > 1;
        copy_piece(layout, grid, piece, {chunk.bytes(), layout.held, shuffled}, scales);
      } else {
        own.push_back(piece);
        places.push_back(std::move(chunk));
      }
    }
    if (own.empty()) {
      std::this_thread::sleep_for(kPause);
    } else {
      if (own.back().offset < own.front().offset) {  // they are read in order of the file
        std::swap(own.front(), own.back());
        std::swap(places.front(), places.back());
      }
      decode_for_all(field, own, places, scales, scratch, keep);
    }
    pieces = std::move(later);
  }
}

// One chunk, or two that are inflated together. Without a place, this process alone has the chunk.
void ShardFile::decode_for_all(std::size_t field, std::span<Piece> pieces,
                               std::span<SharedChunks::Chunk> places, std::span<const Scale> scales,
                               ReadScratch& scratch, MemoryBudget* keep) const {
  const FieldLayout& layout = layout_.fields[field];
  const std::size_t inflated = chunk_bytes(layout);
  read_pieces(pieces, scratch);
  std::array<std::span<const std::uint8_t>, 2> stored;
  std::array<std::span<std::uint8_t>, 2> to;
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const Piece& piece = pieces[k];
    stored[k] = piece.kept != nullptr
                    ? std::span(piece.kept, piece.bytes)
                    : std::span<const std::uint8_t>(scratch.stored).subspan(piece.at, piece.bytes);
    if (layout.has_hashes && piece.kept == nullptr && chunk_hash(stored[k]) != piece.place.hash)
      throw damaged(piece.row);
    to[k] = places[k].bytes();
    if (!to[k].empty()) continue;
    grow(scratch.chunks[k], inflated);
    to[k] = std::span(scratch.chunks[k]).first(inflated);
  }
  if (pieces.size() == 2) {
    const auto whole = scratch.decoder.inflate_two(stored, to);
    for (std::size_t k = 0; k < 2; ++k)
      if (!whole[k]) throw damaged(pieces[k].row);
  } else if (!scratch.decoder.inflate(stored[0], to[0])) {
    throw damaged(pieces[0].row);
  }
  for (SharedChunks::Chunk& place : places)
    if (!place.bytes().empty()) place.fill();
  const ChunkGrid grid = layout.grid();
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const bool shuffled = layout.filters.shuffled(pieces[k].place.mask) && dtype_size(layout.held) > 1;
    copy_piece(layout, grid, pieces[k], {to[k], layout.held, shuffled}, scales);
  }
  scratch.counts.decoded += pieces.size() * inflated;
  if (keep != nullptr) keep_pieces(field, pieces, scratch.stored, *keep);
}

bool ShardFile::is_plain(const FieldLayout& layout, const Piece& piece) const {
  const bool filtered =
      layout.filters.deflated(piece.place.mask) || layout.filters.shuffled(piece.place.mask);
  return layout.rows_per_chunk == 1 && piece.box == nullptr && !filtered && layout.held == DType::float32 &&
         piece.bytes == piece.to.size_bytes();
}

// Copies directly into the batch, in pieces that fit into a processor's cache.
void ShardFile::read_plain(std::size_t field, std::span<const Piece> pieces, std::span<const Scale> scales,
                           ReadScratch& scratch) const {
  constexpr std::uint64_t kTogether = 1 << 20;
  std::vector<ByteRange> ranges;
  for (std::size_t k = 0; k < pieces.size(); k += ranges.size()) {
    ranges.clear();
    std::uint64_t bytes = 0;
    for (std::size_t next = k; next < pieces.size() && (next == k || bytes + pieces[next].bytes <= kTogether);
         ++next) {
      const std::span<float> to = pieces[next].to;
      ranges.push_back({pieces[next].offset, {reinterpret_cast<std::uint8_t*>(to.data()), to.size_bytes()}});
      bytes += pieces[next].bytes;
    }
    bytes_->read(ranges);
    scratch.counts += {bytes, bytes};
    for (std::size_t i = 0; i < ranges.size(); ++i) finish_plain(field, pieces[k + i], ranges[i].to, scales);
  }
}

// Checks the checksum of such a chunk only once: checking at each read would add a quarter to its cost.
void ShardFile::finish_plain(std::size_t field, const Piece& piece, std::span<const std::uint8_t> bytes,
                             std::span<const Scale> scales) const {
  const FieldLayout& layout = layout_.fields[field];
  std::atomic<bool>* checked = checked_[field] ? &checked_[field][piece.chunk] : nullptr;
  if (checked != nullptr && !checked->load(std::memory_order_relaxed)) {
    if (chunk_hash(bytes) != piece.place.hash) throw damaged(piece.row);
    checked->store(true, std::memory_order_relaxed);
  }
  if (!scales.empty())
    copy_scaled({bytes, layout.held, false}, {0, piece.begin}, layout.sample_bytes / sizeof(float), piece.to,
                scales);
}

void pad_to_longest(ShardLayout& layout, const Manifest& manifest) {
  for (FieldLayout& field : layout.fields) {
    const auto info = std::find_if(manifest.fields.begin(), manifest.fields.end(),
                                   [&](const FieldInfo& known) { return known.name == field.name; });
    if (!field.is_ragged() || info == manifest.fields.end() || !info->ragged) continue;
    const std::size_t axis = field.ragged.axis;
    const std::size_t longest = info->ragged->most;
    if (axis != info->ragged->axis || longest < field.shape[axis])
      continue;  // the caller compares the shapes
    field.sample_bytes = step_bytes(field) * longest;
    field.shape[axis] = longest;
    field.chunk = field.shape;
  }
}

ShardFile open_shard(const fs::path& path, const Manifest& manifest, bool keep_open) {
  std::vector<std::string> names;
  for (const FieldInfo& field : manifest.fields) names.push_back(field.name);
  ShardLayout layout = read_shard_layout(path, names);
  pad_to_longest(layout, manifest);
  return ShardFile(path, std::move(layout), std::make_unique<FileBytes>(path, keep_open));
}

std::vector<std::size_t> ShardFile::damaged_chunks(std::size_t field, ReadScratch& scratch) const {
  const FieldLayout& layout = layout_.fields[field];
  std::vector<std::size_t> damaged;
  if (!layout.has_hashes) return damaged;
  for (std::size_t k = 0; k < layout.chunks.size(); ++k) {
    scratch.stored.resize(layout.chunks[k].bytes);
    read_bytes(layout.chunks[k].offset, scratch.stored, scratch);
    if (chunk_hash(scratch.stored) != layout.chunks[k].hash) damaged.push_back(k);
  }
  return damaged;
}

FileBytes::FileBytes(std::filesystem::path path, bool keep_open) : path_(std::move(path)) {
  if (keep_open) fd_ = open_file(path_, O_RDONLY);
}

void FileBytes::read(std::span<const ByteRange> ranges) const {
  const FileDescriptor opened = fd_ ? FileDescriptor() : open_file(path_, O_RDONLY);
  const int fd = fd_ ? fd_.get() : opened.get();
  for (const ByteRange& range : ranges) {
    if (read_at(fd, range.offset, range.to.data(), range.to.size(), path_) < range.to.size())
      throw Error(ExitCode::data, fmt::format("{} is shorter than when it was opened", path_.string()));
  }
}

}  // namespace wflow::converters
