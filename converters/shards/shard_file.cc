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
  if (H5Dread(x.get(), native_type(field.dtype), memory.get(), space.get(), H5P_DEFAULT, values) < 0) {
    throw_hdf5(ExitCode::data, fmt::format("cannot read sample {} of {}", id, path.string()));
  }
}

}  // namespace

std::vector<double> read_small_field(const fs::path& path, const FieldLayout& field, std::size_t rows) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  const DatasetId dataset(H5Dopen2(file.get(), field.name.c_str(), H5P_DEFAULT));
  std::vector<double> values(rows * (field.sample_bytes / dtype_size(field.dtype)));
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

void ShardFile::read_stored(std::size_t field, std::size_t row, ReadScratch& scratch,
                            std::span<std::uint8_t> raw, bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(row < size() && raw.size() == layout.sample_bytes);
  if (layout.access == FieldLayout::Access::library) {
    read_through_library(path_, layout, row, layout_.ids[row], raw.data());
    return;
  }
  const FileDescriptor opened = fd_ ? FileDescriptor() : open_file(path_, O_RDONLY);
  const int fd = fd_ ? fd_.get() : opened.get();
  const ChunkPlace& place = layout.chunks[row / layout.rows_per_chunk];
  if (layout.rows_per_chunk > 1) {
    const std::size_t chunk = row / layout.rows_per_chunk;
    if (verify && checked_[field] && !checked_[field][chunk].load(std::memory_order_relaxed))
      check_packed(fd, layout, chunk, scratch, checked_[field][chunk]);
    read_exactly(fd, place.offset + row % layout.rows_per_chunk * raw.size(), raw, path_);
    return;
  }
  const auto damaged = [&] {
    return Error(ExitCode::data,
                 fmt::format("sample {} of {} is damaged; `wflow-convert verify` checks the whole data set",
                             layout_.ids[row], path_.string()));
  };
  scratch.stored.resize(place.bytes);
  read_exactly(fd, place.offset, scratch.stored, path_);
  if (verify && layout.has_hashes && chunk_hash(scratch.stored) != place.hash) throw damaged();
  const bool whole =
      scratch.decoder.decode(scratch.stored, layout.filters, place.mask, dtype_size(layout.dtype), raw);
  if (!whole) throw damaged();
}

void ShardFile::read_float(std::size_t field, std::size_t row, ReadScratch& scratch, std::span<float> x,
                           bool verify) const {
  const FieldLayout& layout = layout_.fields[field];
  WFLOW_CHECK(x.size() * dtype_size(layout.dtype) == layout.sample_bytes);
  if (layout.dtype == DType::float32) {
    read_stored(field, row, scratch, {reinterpret_cast<std::uint8_t*>(x.data()), x.size_bytes()}, verify);
    return;
  }
  scratch.raw.resize(layout.sample_bytes);
  read_stored(field, row, scratch, scratch.raw, verify);
  with_type(layout.dtype, [&](auto zero) {
    using Value = decltype(zero);
    for (std::size_t i = 0; i < x.size(); ++i) {
      Value value;
      std::memcpy(&value, scratch.raw.data() + i * sizeof(Value), sizeof(Value));
      x[i] = static_cast<float>(value);
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
