// SPDX-License-Identifier: Apache-2.0
// Asks HDF5 where the samples of a shard lie. The shard may have gone through another tool (h5repack, a
// copy by h5py): the index of chunks is then stale, and the layout may be any.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "converters/input/hdf5_handle.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr int kFormat = 1;
constexpr int kRank = 5;  // N, C, D, H, W

struct Opened {
  const fs::path& path;
  FileId file;
  DatasetId x;
  std::uint64_t file_bytes = 0;
};

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Error(ExitCode::data, fmt::format("{} is not a shard of wflow: {}", path.string(), what));
}

std::optional<std::uint64_t> number_attribute(hid_t object, const char* name) {
  if (H5Aexists(object, name) <= 0) return std::nullopt;
  const AttributeId attribute(H5Aopen(object, name, H5P_DEFAULT));
  std::uint64_t value = 0;
  if (!attribute || H5Aread(attribute.get(), H5T_NATIVE_UINT64, &value) < 0) return std::nullopt;
  return value;
}

std::vector<hsize_t> dimensions(hid_t dataset) {
  const SpaceId space(H5Dget_space(dataset));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> dims(rank > 0 ? static_cast<std::size_t>(rank) : 0);
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  return dims;
}

// Reads a whole small data set of `rank` axes whose first has `rows` entries.
template <typename Value>
std::vector<Value> read_table(const Opened& shard, const char* name, hid_t type, std::size_t rank,
                              std::size_t rows, std::size_t* columns) {
  const DatasetId dataset(H5Dopen2(shard.file.get(), name, H5P_DEFAULT));
  if (!dataset) refuse(shard.path, fmt::format("it has no {}", name));
  const auto dims = dimensions(dataset.get());
  if (dims.size() != rank || dims[0] != rows)
    refuse(shard.path, fmt::format("the shape of {} does not fit /x", name));
  *columns = rank > 1 ? dims[1] : 1;
  // Even deflate makes no more than a thousand bytes of one: a larger claim is a damaged header.
  const std::uint64_t most = shard.file_bytes * 1024 / sizeof(Value);
  if (rows > most || *columns > most || rows * *columns > most)
    refuse(shard.path, fmt::format("{} is too large", name));
  std::vector<Value> values(rows * *columns);
  if (!values.empty() && H5Dread(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    throw_hdf5(ExitCode::data, fmt::format("cannot read {} of {}", name, shard.path.string()));
  }
  return values;
}

void check_format(const Opened& shard) {
  const auto format = number_attribute(shard.file.get(), "wflow_format");
  if (!format) refuse(shard.path, "it has no attribute wflow_format");
  if (*format > kFormat) {
    throw Error(ExitCode::version,
                fmt::format("{} is of shard format {}, this wflow knows {}; use a newer wflow",
                            shard.path.string(), *format, kFormat));
  }
}

// The filters, where they are ones that Decoder knows.
std::optional<Filters> known_filters(hid_t creation) {
  Filters filters;
  const int count = H5Pget_nfilters(creation);
  for (int k = 0; k < count; ++k) {
    unsigned flags = 0;
    unsigned config = 0;
    std::size_t values = 0;
    const auto id =
        H5Pget_filter2(creation, static_cast<unsigned>(k), &flags, &values, nullptr, 0, nullptr, &config);
    if (id == H5Z_FILTER_SHUFFLE && !filters.shuffle && !filters.deflate) {
      filters.shuffle = true;
    } else if (id == H5Z_FILTER_DEFLATE && !filters.deflate) {
      filters.deflate = true;
    } else {
      return std::nullopt;
    }
  }
  return filters;
}

std::optional<ChunkPlace> place_by_coordinate(const Opened& shard, std::size_t row) {
  const hsize_t start[kRank] = {row, 0, 0, 0, 0};
  unsigned mask = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t bytes = 0;
  if (H5Dget_chunk_info_by_coord(shard.x.get(), start, &mask, &address, &bytes) < 0) return std::nullopt;
  if (address == HADDR_UNDEF || address > shard.file_bytes || bytes > shard.file_bytes - address)
    return std::nullopt;
  return ChunkPlace{address, bytes, mask, 0};
}

bool same_place(const std::optional<ChunkPlace>& a, const ChunkPlace& b) {
  return a && a->offset == b.offset && a->bytes == b.bytes && a->mask == b.mask;
}

// The index as wflow-convert wrote it, unless the file is another one since.
std::optional<std::vector<ChunkPlace>> places_by_index(const Opened& shard, std::size_t rows) {
  if (H5Lexists(shard.file.get(), "/wflow", H5P_DEFAULT) <= 0) return std::nullopt;
  if (H5Lexists(shard.file.get(), "/wflow/index", H5P_DEFAULT) <= 0) return std::nullopt;
  const DatasetId index(H5Dopen2(shard.file.get(), "/wflow/index", H5P_DEFAULT));
  const auto dims = dimensions(index.get());
  if (dims != std::vector<hsize_t>{rows, 4}) return std::nullopt;
  if (number_attribute(index.get(), "index_file_size") != shard.file_bytes) return std::nullopt;
  std::size_t columns = 0;
  const auto words = read_table<std::uint64_t>(shard, "/wflow/index", H5T_NATIVE_UINT64, 2, rows, &columns);
  std::vector<ChunkPlace> places(rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint64_t* word = words.data() + 4 * i;
    places[i] = {word[0], word[1], static_cast<std::uint32_t>(word[2]), word[3]};
    if (word[0] > shard.file_bytes || word[1] > shard.file_bytes - word[0]) return std::nullopt;
  }
  const bool fits = same_place(place_by_coordinate(shard, 0), places.front()) &&
                    same_place(place_by_coordinate(shard, rows - 1), places.back());
  if (!fits) return std::nullopt;
  return places;
}

std::vector<ChunkPlace> places_by_library(const Opened& shard, const ShardLayout& layout) {
  std::vector<ChunkPlace> places;
  places.reserve(layout.ids.size());
  for (std::size_t row = 0; row < layout.ids.size(); ++row) {
    const auto place = place_by_coordinate(shard, row);
    if (!place) refuse(shard.path, fmt::format("sample {} has no data in it", layout.ids[row]));
    places.push_back(*place);
  }
  return places;
}

bool one_chunk_a_sample(hid_t creation, const ShardLayout& layout) {
  hsize_t chunk[kRank] = {};
  if (H5Pget_chunk(creation, kRank, chunk) != kRank || chunk[0] != 1) return false;
  return std::equal(layout.shape.begin(), layout.shape.end(), chunk + 1);
}

// Finds where the samples lie; false where only HDF5 itself can read them.
bool place_chunks(const Opened& shard, hid_t creation, std::size_t sample_bytes, ShardLayout& layout) {
  const std::size_t rows = layout.ids.size();
  const H5D_layout_t kind = H5Pget_layout(creation);
  if (kind == H5D_CONTIGUOUS && H5Pget_external_count(creation) == 0) {
    const haddr_t start = H5Dget_offset(shard.x.get());
    if (start == HADDR_UNDEF || start > shard.file_bytes || rows * sample_bytes > shard.file_bytes - start)
      return false;
    for (std::size_t row = 0; row < rows; ++row)
      layout.chunks.push_back({start + row * sample_bytes, sample_bytes, 0, 0});
    return true;
  }
  const auto filters = known_filters(creation);
  if (kind != H5D_CHUNKED || !filters || !one_chunk_a_sample(creation, layout)) return false;
  layout.filters = *filters;
  if (auto places = places_by_index(shard, rows)) {
    layout.chunks = std::move(*places);
    layout.has_hashes = true;
  } else {
    layout.chunks = places_by_library(shard, layout);
  }
  return true;
}

// A user block shifts all addresses; other byte orders need conversion: both are left to HDF5.
bool plain_bytes(const Opened& shard, DType dtype) {
  const TypeId type(H5Dget_type(shard.x.get()));
  const PropertyId creation(H5Fget_create_plist(shard.file.get()));
  hsize_t user_block = 0;
  H5Pget_userblock(creation.get(), &user_block);
  return user_block == 0 && H5Tequal(type.get(), stored_type(dtype)) > 0;
}

std::size_t read_shape(const Opened& shard, ShardLayout& layout) {
  const auto dims = dimensions(shard.x.get());
  if (dims.size() != kRank || std::find(dims.begin(), dims.end(), hsize_t{0}) != dims.end()) {
    refuse(shard.path, "/x is not of shape (N, C, D, H, W)");
  }
  std::copy(dims.begin() + 1, dims.end(), layout.shape.begin());
  const TypeId type(H5Dget_type(shard.x.get()));
  const auto dtype = dtype_of(type.get());
  if (!dtype) refuse(shard.path, "/x holds values of a type that is not known");
  layout.dtype = *dtype;
  return dims[0];
}

// C * D * H * W * bytes a value, refused where it could not be a size in memory.
std::size_t checked_sample_bytes(const Opened& shard, const ShardLayout& layout) {
  std::size_t bytes = dtype_size(layout.dtype);
  for (const std::size_t length : layout.shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes) || bytes > (std::size_t{1} << 46)) {
      refuse(shard.path, "its samples are impossibly large");
    }
  }
  return bytes;
}

}  // namespace

ShardLayout read_shard_layout(const fs::path& path) {
  const Hdf5Section section;
  Opened shard{path, open_hdf5(path, H5F_ACC_RDONLY), {}, fs::file_size(path)};
  check_format(shard);
  shard.x = DatasetId(H5Dopen2(shard.file.get(), "/x", H5P_DEFAULT));
  if (!shard.x) refuse(path, "it has no /x");
  ShardLayout layout;
  const std::size_t rows = read_shape(shard, layout);
  const std::size_t sample_bytes = checked_sample_bytes(shard, layout);
  std::size_t columns = 0;
  layout.ids = read_table<std::int64_t>(shard, "/id", H5T_NATIVE_INT64, 1, rows, &columns);
  layout.targets = read_table<double>(shard, "/y", H5T_NATIVE_DOUBLE, 2, rows, &layout.labels);
  const PropertyId creation(H5Dget_create_plist(shard.x.get()));
  const bool direct =
      plain_bytes(shard, layout.dtype) && place_chunks(shard, creation.get(), sample_bytes, layout);
  if (!direct) layout.access = ShardLayout::Access::library;
  return layout;
}

}  // namespace wflow::converters
