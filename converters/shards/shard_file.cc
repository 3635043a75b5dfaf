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

std::size_t volume(const std::array<std::size_t, 4>& shape) {
  return shape[0] * shape[1] * shape[2] * shape[3];
}

void read_exactly(int fd, const ChunkPlace& place, std::span<std::uint8_t> bytes, const fs::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(place.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", path.string()));
    if (got == 0)
      throw Error(ExitCode::data, fmt::format("{} is shorter than when it was opened", path.string()));
    done += static_cast<std::size_t>(got);
  }
}

void read_through_library(const fs::path& path, const ShardLayout& layout, std::size_t row, void* values) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  const DatasetId x(H5Dopen2(file.get(), "/x", H5P_DEFAULT));
  const SpaceId space(H5Dget_space(x.get()));
  const hsize_t start[5] = {row, 0, 0, 0, 0};
  const auto& s = layout.shape;
  const hsize_t count[5] = {1, s[0], s[1], s[2], s[3]};
  H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, nullptr, count, nullptr);
  const SpaceId memory(H5Screate_simple(5, count, nullptr));
  if (H5Dread(x.get(), native_type(layout.dtype), memory.get(), space.get(), H5P_DEFAULT, values) < 0) {
    throw_hdf5(ExitCode::data, fmt::format("cannot read sample {} of {}", layout.ids[row], path.string()));
  }
}

}  // namespace

ShardFile::ShardFile(fs::path path, bool keep_open)
    : path_(std::move(path)), layout_(read_shard_layout(path_)) {
  if (keep_open) fd_ = open_file(path_, O_RDONLY);
}

std::size_t ShardFile::sample_bytes() const {
  return volume(layout_.shape) * dtype_size(layout_.dtype);
}

void ShardFile::read_stored(std::size_t row, ReadScratch& scratch, std::span<std::uint8_t> raw,
                            bool verify) const {
  WFLOW_CHECK(row < size() && raw.size() == sample_bytes());
  if (layout_.access == ShardLayout::Access::library) {
    read_through_library(path_, layout_, row, raw.data());
    return;
  }
  const ChunkPlace& place = layout_.chunks[row];
  const FileDescriptor opened = fd_ ? FileDescriptor() : open_file(path_, O_RDONLY);
  const int fd = fd_ ? fd_.get() : opened.get();
  const auto damaged = [&] {
    return Error(ExitCode::data,
                 fmt::format("sample {} of {} is damaged; `wflow-convert verify` checks the whole data set",
                             layout_.ids[row], path_.string()));
  };
  scratch.stored.resize(place.bytes);
  read_exactly(fd, place, scratch.stored, path_);
  if (verify && layout_.has_hashes && chunk_hash(scratch.stored) != place.hash) throw damaged();
  const bool whole =
      scratch.decoder.decode(scratch.stored, layout_.filters, place.mask, dtype_size(layout_.dtype), raw);
  if (!whole) throw damaged();
}

void ShardFile::read_float(std::size_t row, ReadScratch& scratch, std::span<float> x, bool verify) const {
  WFLOW_CHECK(x.size() == volume(layout_.shape));
  if (layout_.dtype == DType::float32) {
    read_stored(row, scratch, {reinterpret_cast<std::uint8_t*>(x.data()), x.size_bytes()}, verify);
    return;
  }
  scratch.raw.resize(sample_bytes());
  read_stored(row, scratch, scratch.raw, verify);
  with_type(layout_.dtype, [&](auto zero) {
    using Value = decltype(zero);
    for (std::size_t i = 0; i < x.size(); ++i) {
      Value value;
      std::memcpy(&value, scratch.raw.data() + i * sizeof(Value), sizeof(Value));
      x[i] = static_cast<float>(value);
    }
  });
}

}  // namespace wflow::converters
