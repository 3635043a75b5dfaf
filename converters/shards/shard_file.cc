// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "converters/input/hdf5_handle.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

void read_exactly(int fd, std::uint64_t offset, std::span<std::uint8_t> bytes, const fs::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", path.string()));
    if (got == 0)
      throw Error(ExitCode::data, fmt::format("{} is shorter than when it was opened", path.string()));
    done += static_cast<std::size_t>(got);
  }
}

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
  std::size_t slab = 1;   // of a slab
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

// Where a slab's values lie in the sample, in bytes; the last along the axis may be shorter than its chunk.
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

// Of the value with that number in the sample.
std::size_t slab_of(const FieldLayout& layout, std::size_t value) {
  const SlabCut cut = cut_of(layout);
  const std::size_t position = value / cut.step;
  return position / cut.along * cut.per_row() + position % cut.along / cut.slab;
}

// A box of an array, as runs of neighbouring values.
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

ShardFile::ShardFile(fs::path path, const std::vector<std::string>& fields, bool keep_open)
    : path_(std::move(path)), layout_(read_shard_layout(path_, fields)) {
  if (keep_open) fd_ = open_file(path_, O_RDONLY);
  for (const FieldLayout& field : layout_.fields) {
    const bool packed = field.rows_per_chunk > 1 && field.has_hashes;
    checked_.push_back(packed ? std::make_unique<std::atomic<bool>[]>(field.chunks.size()) : nullptr);
  }
}

void ShardFile::check_packed(int fd, const FieldLayout& layout, std::size_t chunk, ReadScratch& scratch,
                             std::atomic<bool>& done) const {
  const ChunkPlace& place = layout.chunks[chunk];
  scratch.stored.resize(place.bytes);
  read_exactly(fd, place.offset, scratch.stored, path_);
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

// One chunk of a sample, inflated.
void ShardFile::read_chunk(int fd, const FieldLayout& layout, std::size_t chunk, std::size_t row,
                           ReadScratch& scratch, std::span<std::uint8_t> raw, bool verify) const {
  const auto damaged = [&] {
    return Error(ExitCode::data,
                 fmt::format("sample {} of {} is damaged; `wflow-convert verify` checks the whole data set",
                             layout_.ids[row], path_.string()));
  };
  const ChunkPlace& place = layout.chunks[chunk];
  scratch.stored.resize(place.bytes);
  read_exactly(fd, place.offset, scratch.stored, path_);
  if (verify && layout.has_hashes && chunk_hash(scratch.stored) != place.hash) throw damaged();
  const bool whole =
      scratch.decoder.decode(scratch.stored, layout.filters, place.mask, dtype_size(layout.held), raw);
  if (!whole) throw damaged();
}

void ShardFile::read_held(std::size_t field, std::size_t row, ReadScratch& scratch,
                          std::span<std::uint8_t> raw, bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(row < size() && raw.size() == layout.sample_bytes);
  if (layout.access == FieldLayout::Access::library) {
    read_through_library(path_, layout, row, layout_.ids[row], raw.data());
    return;
  }
  const FileDescriptor opened = fd_ ? FileDescriptor() : open_file(path_, O_RDONLY);
  const int fd = fd_ ? fd_.get() : opened.get();
  if (layout.rows_per_chunk > 1) {
    const std::size_t chunk = row / layout.rows_per_chunk;
    if (verify && checked_[field] && !checked_[field][chunk].load(std::memory_order_relaxed))
      check_packed(fd, layout, chunk, scratch, checked_[field][chunk]);
    read_exactly(fd, layout.chunks[chunk].offset + row % layout.rows_per_chunk * raw.size(), raw, path_);
    return;
  }
  if (layout.slabs == 1) {
    read_chunk(fd, layout, row, row, scratch, raw, verify);
    return;
  }
  for (std::size_t k = 0; k < layout.slabs; ++k) {
    const SlabRange range = slab_range(layout, k);
    scratch.slab.resize(slab_bytes(layout));
    read_chunk(fd, layout, row * layout.slabs + k, row, scratch, scratch.slab, verify);
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
  const FileDescriptor opened = fd_ || whole ? FileDescriptor() : open_file(path_, O_RDONLY);
  const int fd = fd_ ? fd_.get() : opened.get();
  std::size_t have = layout.slabs;  // the slab that scratch.slab holds
  if (whole) {
    scratch.slab.resize(layout.sample_bytes);
    read_held(field, row, scratch, scratch.slab, verify);
  }
  // Runs of neighbouring values, cut where a slab ends.
  part.for_each_run([&](std::size_t from, std::size_t to, std::size_t length) {
    while (length > 0) {
      std::size_t begin = 0;
      std::size_t piece = length;
      if (!whole) {
        const std::size_t k = slab_of(layout, from);
        const SlabRange range = slab_range(layout, k);
        if (k != have) {
          scratch.slab.resize(slab_bytes(layout));
          read_chunk(fd, layout, row * layout.slabs + k, row, scratch, scratch.slab, verify);
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

std::vector<std::size_t> ShardFile::damaged_chunks(std::size_t field, ReadScratch& scratch) const {
  const FieldLayout& layout = layout_.fields[field];
  std::vector<std::size_t> damaged;
  if (!layout.has_hashes) return damaged;
  const FileDescriptor fd = open_file(path_, O_RDONLY);
  for (std::size_t k = 0; k < layout.chunks.size(); ++k) {
    scratch.stored.resize(layout.chunks[k].bytes);
    read_exactly(fd.get(), layout.chunks[k].offset, scratch.stored, path_);
    if (chunk_hash(scratch.stored) != layout.chunks[k].hash) damaged.push_back(k);
  }
  return damaged;
}

}  // namespace wflow::converters
