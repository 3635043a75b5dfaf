// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "converters/input/hdf5_handle.h"
#include "converters/shards/ragged.h"

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

void to_floats(DType held, std::span<const std::uint8_t> bytes, std::span<float> x) {
  with_type(held, [&](auto value) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      x[i] = static_cast<float>(value);
    }
  });
}

std::size_t slab_bytes(const FieldLayout& layout) {
  std::size_t bytes = dtype_size(layout.held);
  for (const std::size_t length : layout.slab) bytes *= length;
  return bytes;
}

// The axis that slabs cut, and the values of a step along it.
struct SlabCut {
  std::size_t along = 1;  // length of the axis
  std::size_t slab = 1;   // length of a slab
  std::size_t step = 1;
  std::size_t per_row() const { return (along + slab - 1) / slab; }
};

SlabCut cut_of(const FieldLayout& layout) {
  std::size_t axis = 0;
  while (axis + 1 < layout.slab.size() && layout.slab[axis] == 1) ++axis;
  SlabCut cut{layout.shape[axis], layout.slab[axis], 1};
  for (std::size_t k = axis + 1; k < layout.shape.size(); ++k) cut.step *= layout.shape[k];
  return cut;
}

// The place of a slab's values in the sample, in bytes; the last one along the axis may be shorter than its
// chunk.
struct SlabRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

SlabRange slab_range(const FieldLayout& layout, std::size_t k) {
  const SlabCut cut = cut_of(layout);
  const std::size_t at = k % cut.per_row() * cut.slab;
  const std::size_t width = cut.step * dtype_size(layout.held);
  return {(k / cut.per_row() * cut.along + at) * width, std::min(cut.slab, cut.along - at) * width};
}

// The index of the value with that number in the sample.
std::size_t slab_of(const FieldLayout& layout, std::size_t value) {
  const SlabCut cut = cut_of(layout);
  const std::size_t position = value / cut.step;
  return position / cut.along * cut.per_row() + position % cut.along / cut.slab;
}

// The scales apply to equal parts of a sample.
void copy_scaled(const ChunkValues& chunk, std::size_t begin, std::size_t sample_values, std::span<float> to,
                 std::span<const Scale> scales) {
  if (scales.empty()) {
    copy_as_float(chunk, 0, to, nullptr);
    return;
  }
  const std::size_t part = sample_values / scales.size();
  for (std::size_t at = 0; at < to.size();) {
    const std::size_t k = (begin + at) / part;
    const std::size_t length = std::min(to.size() - at, (k + 1) * part - begin - at);
    copy_as_float(chunk, at, to.subspan(at, length), &scales[k]);
    at += length;
  }
}

// Bytes of one step along the ragged axis.
std::size_t step_bytes(const FieldLayout& layout) {
  return layout.sample_bytes / layout.shape[layout.ragged.axis];
}

// A box of an array as runs of neighbouring values.
class PartWalk {
 public:
  PartWalk(const std::vector<std::size_t>& shape, std::span<const std::size_t> start,
           std::span<const std::size_t> count)
      : shape_(shape), start_(start), count_(count) {
    WFLOW_CHECK(start.size() == shape.size() && count.size() == shape.size());
    for (std::size_t k = 0; k < shape.size(); ++k)
      WFLOW_CHECK(count[k] <= shape[k] && start[k] <= shape[k] - count[k]);
  }
  std::size_t values() const {
    std::size_t values = 1;
    for (const std::size_t length : count_) values *= length;
    return values;
  }
  // f(number of the first value in the array, its number in the box, length)
  template <typename Function>
  void for_each_run(Function function) const {
    const std::size_t run = count_.empty() ? 1 : count_.back();
    const std::size_t total = values();
    std::vector<std::size_t> index(start_.begin(), start_.end());
    for (std::size_t to = 0; to < total; to += run) {
      std::size_t from = 0;
      for (std::size_t k = 0; k < shape_.size(); ++k) from = from * shape_[k] + index[k];
      function(from, to, run);
      for (std::size_t k = index.size() - (index.empty() ? 0 : 1); k-- > 0;) {
        if (++index[k] < start_[k] + count_[k]) break;
        index[k] = start_[k];
      }
    }
  }

 private:
  const std::vector<std::size_t>& shape_;
  std::span<const std::size_t> start_;
  std::span<const std::size_t> count_;
};

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
  for (const FieldLayout& field : layout_.fields) {
    const std::size_t hashed = field.has_hashes ? field.chunks.size() : 0;
    checked_.push_back(hashed > 0 ? std::make_unique<std::atomic<bool>[]>(hashed) : nullptr);
    kept_.push_back(std::make_unique<Kept>());
    if (!field.filters.deflate || field.access == FieldLayout::Access::library) continue;
    kept_.back()->bytes = std::vector<std::atomic<const std::uint8_t*>>(field.chunks.size());
    kept_.back()->owned.resize(field.chunks.size());
  }
}

void ShardFile::read_bytes(std::uint64_t offset, std::span<std::uint8_t> to) const {
  const ByteRange range{offset, to};
  bytes_->read({&range, 1});
}

void ShardFile::check_packed(const FieldLayout& layout, std::size_t chunk, ReadScratch& scratch,
                             std::atomic<bool>& done) const {
  const ChunkPlace& place = layout.chunks[chunk];
  scratch.stored.resize(place.bytes);
  read_bytes(place.offset, scratch.stored);
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
                           ReadScratch& scratch, std::span<std::uint8_t> raw, bool verify) const {
  const ChunkPlace& place = layout.chunks[chunk];
  scratch.stored.resize(place.bytes);
  read_bytes(place.offset, scratch.stored);
  if (verify && layout.has_hashes && chunk_hash(scratch.stored) != place.hash) throw damaged(row);
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
  std::size_t begin = 0;               // number of the first value in the sample
  std::span<float> to;                 // place for these values
  std::size_t at = 0;                  // offset in the bytes that were read
  std::size_t chunk = 0;               // its number
  const std::uint8_t* kept = nullptr;  // its bytes, if in memory
};

// The bytes of a chunk of steps, decoded: the last one is still in `scratch` if neighbours follow.
std::span<const std::uint8_t> ShardFile::steps_chunk(std::size_t field, std::size_t chunk, std::size_t row,
                                                     ReadScratch& scratch, bool verify,
                                                     MemoryBudget* keep) const {
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
    read_bytes(piece.place.offset, scratch.stored);
    stored = scratch.stored;
    if (verify && layout.has_hashes && chunk_hash(stored) != piece.place.hash) throw damaged(row);
  }
  last.valid = false;
  last.chunk = chunk;
  last.bytes.resize(layout.ragged.steps_per_chunk * step_bytes(layout));
  if (!scratch.decoder.decode(stored, layout.filters, piece.place.mask, dtype_size(layout.held), last.bytes))
    throw damaged(row);
  last.valid = true;
  if (keep != nullptr) keep_pieces(field, {&piece, 1}, scratch.stored, *keep);
  return last.bytes;
}

// take(bytes) for each part of a sample that lies in one chunk, in order.
template <typename Take>
void ShardFile::for_each_steps(std::size_t field, std::size_t row, ReadScratch& scratch, bool verify,
                               MemoryBudget* keep, Take take) const {
  const FieldLayout& layout = layout_.fields[field];
  const std::uint64_t each = layout.ragged.steps_per_chunk;
  const std::size_t width = step_bytes(layout);
  const std::uint64_t end = layout.ragged.offsets[row + 1];
  for (std::uint64_t at = layout.ragged.offsets[row]; at < end;) {
    const std::uint64_t chunk = at / each;
    const std::uint64_t until = std::min(end, (chunk + 1) * each);
    const auto bytes = steps_chunk(field, static_cast<std::size_t>(chunk), row, scratch, verify, keep);
    take(bytes.subspan(static_cast<std::size_t>(at % each) * width,
                       static_cast<std::size_t>(until - at) * width));
    at = until;
  }
}

std::vector<std::uint8_t> ShardFile::read_steps(std::size_t field, std::size_t row, ReadScratch& scratch,
                                                bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  std::vector<std::uint8_t> steps;
  if (layout.ragged.mask) return steps;
  steps.reserve(layout.length(row) * step_bytes(layout));
  scratch.steps.valid = false;
  for_each_steps(field, row, scratch, verify, nullptr, [&](std::span<const std::uint8_t> part) {
    steps.insert(steps.end(), part.begin(), part.end());
  });
  return steps;
}

void ShardFile::read_padded(std::size_t field, std::size_t row, ReadScratch& scratch,
                            std::span<std::uint8_t> raw, bool verify, MemoryBudget* keep) const {
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
  for_each_steps(field, row, scratch, verify, keep, [&](std::span<const std::uint8_t> part) {
    const std::size_t count = part.size() / step_bytes(layout);
    put_steps(part, layout.shape, {layout.ragged.axis, done, count}, width, raw);
    done += count;
  });
}

// In order of row, so that a chunk is decoded once for all samples in it.
void ShardFile::read_ragged_floats(std::size_t field, std::span<RowTarget> rows,
                                   std::span<const Scale> scales, ReadScratch& scratch, bool verify,
                                   MemoryBudget* keep) const {
  const FieldLayout& layout = layout_.fields[field];
  std::vector<RowTarget> ascending(rows.begin(), rows.end());
  std::sort(ascending.begin(), ascending.end(),
            [](const RowTarget& a, const RowTarget& b) { return a.row < b.row; });
  scratch.steps.valid = false;
  scratch.raw.resize(layout.sample_bytes);
  for (const RowTarget& wanted : ascending) {
    WFLOW_CHECK(wanted.row < size() && wanted.to.size() * dtype_size(layout.held) == layout.sample_bytes);
    read_padded(field, wanted.row, scratch, scratch.raw, verify, keep);
    copy_scaled({scratch.raw, layout.held, false}, 0, wanted.to.size(), wanted.to, scales);
  }
}

void ShardFile::read_held(std::size_t field, std::size_t row, ReadScratch& scratch,
                          std::span<std::uint8_t> raw, bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(row < size() && raw.size() == layout.sample_bytes);
  if (layout.is_ragged()) {
    scratch.steps.valid = false;
    read_padded(field, row, scratch, raw, verify, nullptr);
    return;
  }
  if (layout.access == FieldLayout::Access::library) {
    read_through_library(path_, layout, row, layout_.ids[row], raw.data());
    return;
  }
  if (layout.rows_per_chunk > 1) {
    const std::size_t chunk = row / layout.rows_per_chunk;
    if (verify && checked_[field] && !checked_[field][chunk].load(std::memory_order_relaxed))
      check_packed(layout, chunk, scratch, checked_[field][chunk]);
    read_bytes(layout.chunks[chunk].offset + row % layout.rows_per_chunk * raw.size(), raw);
    return;
  }
  if (layout.slabs == 1) {
    read_chunk(layout, row, row, scratch, raw, verify);
    return;
  }
  for (std::size_t k = 0; k < layout.slabs; ++k) {
    const SlabRange range = slab_range(layout, k);
    scratch.slab.resize(slab_bytes(layout));
    read_chunk(layout, row * layout.slabs + k, row, scratch, scratch.slab, verify);
    std::copy_n(scratch.slab.begin(), range.bytes, raw.begin() + static_cast<std::ptrdiff_t>(range.offset));
  }
}

void ShardFile::read_stored(std::size_t field, std::size_t row, ReadScratch& scratch,
                            std::span<std::uint8_t> raw, bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  if (layout.held == layout.dtype) {
    read_held(field, row, scratch, raw, verify);
    return;
  }
  const std::size_t count = layout.sample_bytes / dtype_size(layout.held);
  WFLOW_CHECK(raw.size() == count * dtype_size(layout.dtype));
  scratch.raw.resize(layout.sample_bytes);
  read_held(field, row, scratch, scratch.raw, verify);
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

void ShardFile::read_float(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<float> x,
                           bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(x.size() * dtype_size(layout.held) == layout.sample_bytes);
  if (layout.held == DType::float32) {
    read_held(field, row, scratch, {reinterpret_cast<std::uint8_t*>(x.data()), x.size_bytes()}, verify);
    return;
  }
  scratch.raw.resize(layout.sample_bytes);
  read_held(field, row, scratch, scratch.raw, verify);
  to_floats(layout.held, scratch.raw, x);
}

void ShardFile::read_float_part(std::size_t field, std::size_t row, std::span<const std::size_t> start,
                                std::span<const std::size_t> count, ReadScratch& scratch, std::span<float> x,
                                bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  const PartWalk part(layout.shape, start, count);
  WFLOW_CHECK(part.values() == x.size());
  const std::size_t width = dtype_size(layout.held);
  const bool whole = layout.access == FieldLayout::Access::library || layout.slabs == 1;
  std::size_t have = layout.slabs;  // the slab that scratch.slab holds
  if (whole) {
    scratch.slab.resize(layout.sample_bytes);
    read_held(field, row, scratch, scratch.slab, verify);
  }
  // Runs of neighbouring values, cut at the ends of slabs.
  part.for_each_run([&](std::size_t from, std::size_t to, std::size_t length) {
    while (length > 0) {
      std::size_t begin = 0;
      std::size_t piece = length;
      if (!whole) {
        const std::size_t k = slab_of(layout, from);
        const SlabRange range = slab_range(layout, k);
        if (k != have) {
          scratch.slab.resize(slab_bytes(layout));
          read_chunk(layout, row * layout.slabs + k, row, scratch, scratch.slab, verify);
          have = k;
        }
        begin = range.offset / width;
        piece = std::min(length, begin + range.bytes / width - from);
      }
      to_floats(layout.held, std::span(scratch.slab).subspan((from - begin) * width, piece * width),
                x.subspan(to, piece));
      from += piece;
      to += piece;
      length -= piece;
    }
  });
}

std::vector<ShardFile::Piece> ShardFile::pieces_of(std::size_t field, std::span<const RowTarget> rows,
                                                   bool verify, ReadScratch& scratch) const {
  const FieldLayout& layout = layout_.fields[field];
  const std::size_t width = dtype_size(layout.held);
  std::vector<Piece> pieces;
  pieces.reserve(rows.size() * layout.slabs);
  for (const RowTarget& wanted : rows) {
    WFLOW_CHECK(wanted.row < size() && wanted.to.size() * width == layout.sample_bytes);
    if (layout.rows_per_chunk > 1) {
      const std::size_t chunk = wanted.row / layout.rows_per_chunk;
      if (verify && checked_[field] && !checked_[field][chunk].load(std::memory_order_relaxed))
        check_packed(layout, chunk, scratch, checked_[field][chunk]);
      const std::uint64_t offset =
          layout.chunks[chunk].offset + wanted.row % layout.rows_per_chunk * layout.sample_bytes;
      pieces.push_back({offset, layout.sample_bytes, {}, wanted.row, 0, wanted.to, 0, chunk});
      continue;
    }
    for (std::size_t k = 0; k < layout.slabs; ++k) {
      const ChunkPlace& place = layout.chunks[wanted.row * layout.slabs + k];
      SlabRange range{0, layout.sample_bytes};
      if (layout.slabs > 1) range = slab_range(layout, k);
      pieces.push_back({place.offset, place.bytes, place, wanted.row, range.offset / width,
                        wanted.to.subspan(range.offset / width, range.bytes / width), 0,
                        wanted.row * layout.slabs + k});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return pieces;
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
void ShardFile::read_pieces(std::span<Piece> pieces, std::vector<std::uint8_t>& stored) const {
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
}

namespace {

void grow(std::vector<std::uint8_t>& bytes, std::size_t size) {
  if (bytes.size() < size) bytes.resize(size);
}

}  // namespace

void ShardFile::decode_pieces(const FieldLayout& layout, std::span<Piece> pieces,
                              std::span<const Scale> scales, ReadScratch& scratch, bool verify) const {
  const std::size_t width = dtype_size(layout.held);
  const bool packed = layout.rows_per_chunk > 1;
  const std::size_t inflated = packed ? layout.sample_bytes : slab_bytes(layout);
  const auto stored = [&](const Piece& piece) {
    if (piece.kept != nullptr) return std::span(piece.kept, piece.bytes);
    return std::span<const std::uint8_t>(scratch.stored).subspan(piece.at, piece.bytes);
  };
  const auto copy = [&](const Piece& piece, std::span<const std::uint8_t> bytes) {
    const bool shuffled = !packed && layout.filters.shuffled(piece.place.mask) && width > 1;
    copy_scaled({bytes, layout.held, shuffled}, piece.begin, layout.sample_bytes / width, piece.to, scales);
  };
  const Piece* waiting = nullptr;  // waits for a second chunk to be inflated with it
  for (const Piece& piece : pieces) {
    const bool unknown = verify && !packed && layout.has_hashes && piece.kept == nullptr;
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
                            ReadScratch& scratch, bool verify, MemoryBudget* keep) const {
  constexpr std::uint64_t kWindow = 4 << 20;  // limit of stored bytes at once
  const FieldLayout& layout = layout_.fields[field];
  if (layout.is_ragged()) {
    read_ragged_floats(field, rows, scales, scratch, verify, keep);
    return;
  }
  if (layout.access == FieldLayout::Access::library) {
    for (const RowTarget& wanted : rows) {
      scratch.raw.resize(layout.sample_bytes);
      read_held(field, wanted.row, scratch, scratch.raw, verify);
      copy_scaled({scratch.raw, layout.held, false}, 0, wanted.to.size(), wanted.to, scales);
    }
    return;
  }
  std::vector<Piece> pieces = pieces_of(field, rows, verify, scratch);
  const auto plain = std::stable_partition(pieces.begin(), pieces.end(),
                                           [&](const Piece& piece) { return !is_plain(layout, piece); });
  read_plain(field, {plain, pieces.end()}, scales, verify);
  pieces.erase(plain, pieces.end());
  find_kept(field, pieces);
  for (std::size_t k = 0; k < pieces.size();) {
    std::size_t next = k;
    for (std::uint64_t bytes = 0;
         next < pieces.size() && (next == k || bytes + pieces[next].bytes <= kWindow); ++next)
      bytes += pieces[next].bytes;
    if ((next - k) % 2 == 1 && next - k > 1 && next < pieces.size()) --next;  // pairs
    const auto window = std::span(pieces).subspan(k, next - k);
    read_pieces(window, scratch.stored);
    decode_pieces(layout, window, scales, scratch, verify);
    if (keep != nullptr) keep_pieces(field, window, scratch.stored, *keep);
    k = next;
  }
}

bool ShardFile::is_plain(const FieldLayout& layout, const Piece& piece) const {
  const bool filtered =
      layout.filters.deflated(piece.place.mask) || layout.filters.shuffled(piece.place.mask);
  return layout.rows_per_chunk == 1 && !filtered && layout.held == DType::float32 &&
         piece.bytes == piece.to.size_bytes();
}

// Copies directly into the batch, in pieces that fit into a processor's cache.
void ShardFile::read_plain(std::size_t field, std::span<const Piece> pieces, std::span<const Scale> scales,
                           bool verify) const {
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
    for (std::size_t i = 0; i < ranges.size(); ++i)
      finish_plain(field, pieces[k + i], ranges[i].to, scales, verify);
  }
}

// Checks the checksum of such a chunk only once: checking at each read would add a quarter to its cost.
void ShardFile::finish_plain(std::size_t field, const Piece& piece, std::span<const std::uint8_t> bytes,
                             std::span<const Scale> scales, bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  std::atomic<bool>* checked = verify && checked_[field] ? &checked_[field][piece.chunk] : nullptr;
  if (checked != nullptr && !checked->load(std::memory_order_relaxed)) {
    if (chunk_hash(bytes) != piece.place.hash) throw damaged(piece.row);
    checked->store(true, std::memory_order_relaxed);
  }
  if (!scales.empty())
    copy_scaled({bytes, layout.held, false}, piece.begin, layout.sample_bytes / sizeof(float), piece.to,
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
    field.slab = field.shape;
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
    read_bytes(layout.chunks[k].offset, scratch.stored);
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
