// SPDX-License-Identifier: Apache-2.0
// Asks HDF5 for the places of the samples of a shard. The shard may have gone through another tool (h5repack,
// a copy by h5py): the index of chunks is then stale, and any layout is possible.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/error.h"
#include "converters/input/hdf5_handle.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

struct Opened {
  const fs::path& path;
  FileId file;
  std::uint64_t file_bytes = 0;
  std::uint64_t format = 1;
};

// A field's dataset during the inspection.
struct OpenedField {
  DatasetId dataset;
  std::size_t rows = 0;
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
    refuse(shard.path, fmt::format("the shape of {} does not fit its samples", name));
  *columns = rank > 1 ? dims[1] : 1;
  // Deflate makes at most about a thousand bytes of one: a larger claim is a damaged header.
  const std::uint64_t most = shard.file_bytes * 1024 / sizeof(Value);
  if (rows > most || *columns > most || rows * *columns > most)
    refuse(shard.path, fmt::format("{} is too large", name));
  std::vector<Value> values(rows * *columns);
  if (!values.empty() && H5Dread(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    throw_hdf5(ExitCode::data, fmt::format("cannot read {} of {}", name, shard.path.string()));
  }
  return values;
}

std::uint64_t checked_format(const Opened& shard) {
  const auto format = number_attribute(shard.file.get(), "wflow_format");
  if (!format) refuse(shard.path, "it has no attribute wflow_format");
  if (*format > kFormatWithRagged) {
    throw Error(ExitCode::version,
                fmt::format("{} is of shard format {}, this wflow knows {}; use a newer wflow",
                            shard.path.string(), *format, kFormatWithRagged));
  }
  return *format;
}

// The filters, if Decoder knows them.
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

// Chunks along the first axis, of samples or (ragged) of steps.
std::optional<ChunkPlace> place_by_coordinate(const Opened& shard, const OpenedField& field,
                                              const FieldLayout& layout, std::size_t chunk) {
  std::vector<hsize_t> start(layout.shape.size() + 1, 0);
  start[0] = chunk / layout.chunks_per_sample * layout.rows_per_chunk;
  if (layout.chunks_per_sample > 1) {
    const std::vector<std::size_t> corner = layout.grid().corner(chunk % layout.chunks_per_sample);
    std::copy(corner.begin(), corner.end(), start.begin() + 1);
  }
  unsigned mask = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t bytes = 0;
  if (H5Dget_chunk_info_by_coord(field.dataset.get(), start.data(), &mask, &address, &bytes) < 0)
    return std::nullopt;
  if (address == HADDR_UNDEF || address > shard.file_bytes || bytes > shard.file_bytes - address)
    return std::nullopt;
  return ChunkPlace{address, bytes, mask, 0};
}

bool same_place(const std::optional<ChunkPlace>& a, const ChunkPlace& b) {
  return a && a->offset == b.offset && a->bytes == b.bytes && a->mask == b.mask;
}

std::size_t chunk_count(const OpenedField& field, const FieldLayout& layout) {
  return (field.rows + layout.rows_per_chunk - 1) / layout.rows_per_chunk * layout.chunks_per_sample;
}

// The size of the file when the index was written.
std::optional<std::uint64_t> indexed_size(const Opened& shard) {
  if (shard.format == 1) {
    const DatasetId index(H5Dopen2(shard.file.get(), "/wflow/index", H5P_DEFAULT));
    return index ? number_attribute(index.get(), "index_file_size") : std::nullopt;
  }
  const GroupId index(H5Gopen2(shard.file.get(), "/wflow/index", H5P_DEFAULT));
  return index ? number_attribute(index.get(), "index_file_size") : std::nullopt;
}

// Tables of older shards have no checksum.
template <typename Value>
bool table_is_whole(const DatasetId& table, const std::vector<Value>& values) {
  const auto hash = number_attribute(table.get(), "xxh3_64");
  return !hash || *hash == chunk_hash({reinterpret_cast<const std::uint8_t*>(values.data()),
                                       values.size() * sizeof(values[0])});
}

// The index that wflow-convert wrote, unless the file has changed since.
std::optional<std::vector<ChunkPlace>> places_by_index(const Opened& shard, const OpenedField& field,
                                                       FieldLayout& layout) {
  const std::string name = shard.format == 1 ? "/wflow/index" : "/wflow/index/" + layout.name;
  if (shard.format == 1 && layout.name != "x") return std::nullopt;
  for (const std::string& part : {std::string("/wflow"), std::string("/wflow/index"), name}) {
    if (H5Lexists(shard.file.get(), part.c_str(), H5P_DEFAULT) <= 0) return std::nullopt;
  }
  const std::size_t count = chunk_count(field, layout);
  const DatasetId index(H5Dopen2(shard.file.get(), name.c_str(), H5P_DEFAULT));
  layout.index_stale = true;  // until it proves to belong to this file
  if (!index || dimensions(index.get()) != std::vector<hsize_t>{count, 4}) return std::nullopt;
  if (indexed_size(shard) != shard.file_bytes) return std::nullopt;
  std::size_t columns = 0;
  const auto words = read_table<std::uint64_t>(shard, name.c_str(), H5T_NATIVE_UINT64, 2, count, &columns);
  if (!table_is_whole(index, words)) {
    layout.index_damaged = true;
    layout.index_stale = false;
    return std::nullopt;
  }
  std::vector<ChunkPlace> places(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t* word = words.data() + 4 * i;
    places[i] = {word[0], word[1], static_cast<std::uint32_t>(word[2]), word[3]};
    if (word[0] > shard.file_bytes || word[1] > shard.file_bytes - word[0]) return std::nullopt;
  }
  const bool fits = same_place(place_by_coordinate(shard, field, layout, 0), places.front()) &&
                    same_place(place_by_coordinate(shard, field, layout, count - 1), places.back());
  if (!fits) return std::nullopt;
  layout.index_stale = false;
  return places;
}

std::vector<ChunkPlace> places_by_library(const Opened& shard, const OpenedField& field,
                                          const FieldLayout& layout) {
  std::vector<ChunkPlace> places;
  const std::size_t count = chunk_count(field, layout);
  places.reserve(count);
  for (std::size_t chunk = 0; chunk < count; ++chunk) {
    const auto place = place_by_coordinate(shard, field, layout, chunk);
    if (!place)
      refuse(shard.path, fmt::format("row {} of /{} has no data in it",
                                     chunk / layout.chunks_per_sample * layout.rows_per_chunk, layout.name));
    places.push_back(*place);
  }
  return places;
}

// Accepts complete samples in each chunk, or equal parts of one sample; false if chunks are cut otherwise.
bool place_rows(hid_t creation, FieldLayout& layout) {
  const int rank = static_cast<int>(layout.shape.size()) + 1;
  std::vector<hsize_t> chunk(layout.shape.size() + 1, 0);
  if (H5Pget_chunk(creation, rank, chunk.data()) != rank || chunk[0] == 0) return false;
  const std::vector<std::size_t> of_sample(chunk.begin() + 1, chunk.end());
  for (std::size_t k = 0; k < of_sample.size(); ++k) {
    if (of_sample[k] == 0 || of_sample[k] > layout.shape[k]) return false;
  }
  const bool whole = of_sample == layout.shape;
  if (!whole && (chunk[0] != 1 || layout.is_ragged() || of_sample.size() > kMostRank)) return false;
  layout.rows_per_chunk = chunk[0];
  layout.chunk = of_sample;
  if (layout.chunk != layout.shape) layout.chunks_per_sample = layout.grid().chunks();
  return true;
}

// HDF5 searches through all chunks before the one that it is asked for: seconds for so many.
constexpr std::size_t kMostAsked = 16384;

// Finds the places of the samples, or of the steps of a ragged field; false if only HDF5 itself can read
// them.
bool place_chunks(const Opened& shard, const OpenedField& field, FieldLayout& layout) {
  const PropertyId creation(H5Dget_create_plist(field.dataset.get()));
  const H5D_layout_t kind = H5Pget_layout(creation.get());
  const std::size_t bytes = layout.sample_bytes;
  if (kind == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0) {
    const haddr_t start = H5Dget_offset(field.dataset.get());
    if (start == HADDR_UNDEF || start > shard.file_bytes || field.rows * bytes > shard.file_bytes - start)
      return false;
    for (std::size_t row = 0; row < field.rows; ++row)
      layout.chunks.push_back({start + row * bytes, bytes, 0, 0});
    return true;
  }
  const auto filters = known_filters(creation.get());
  if (kind != H5D_CHUNKED || !filters) return false;
  if (!place_rows(creation.get(), layout)) return false;
  // The chunk's shape of a damaged file may claim any number of them.
  if (layout.chunks_per_sample > 1 && layout.chunks_per_sample > shard.file_bytes / field.rows) return false;
  layout.filters = *filters;
  const bool filtered = filters->shuffle || filters->deflate;
  if (layout.rows_per_chunk > 1 && filtered && !layout.is_ragged()) return false;
  if (auto places = places_by_index(shard, field, layout)) {
    layout.chunks = std::move(*places);
    layout.has_hashes = true;
  } else if (layout.chunks_per_sample > 1 && chunk_count(field, layout) > kMostAsked) {
    return false;
  } else {
    layout.chunks = places_by_library(shard, field, layout);
  }
  // A chunk of several samples is addressed by rows, so it must be complete.
  return layout.rows_per_chunk == 1 || filtered ||
         std::all_of(layout.chunks.begin(), layout.chunks.end(),
                     [&](const ChunkPlace& place) { return place.bytes == layout.rows_per_chunk * bytes; });
}

// A user block shifts all addresses; other byte orders need conversion: both are left to HDF5.
bool plain_bytes(const Opened& shard, const OpenedField& field, DType dtype) {
  const TypeId type(H5Dget_type(field.dataset.get()));
  const PropertyId creation(H5Fget_create_plist(shard.file.get()));
  hsize_t user_block = 0;
  H5Pget_userblock(creation.get(), &user_block);
  return user_block == 0 && H5Tequal(type.get(), stored_type(dtype)) > 0;
}

// Refuses a size that cannot fit into memory.
std::size_t checked_sample_bytes(const Opened& shard, const FieldLayout& layout) {
  std::size_t bytes = dtype_size(layout.held);
  for (const std::size_t length : layout.shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes) || bytes > (std::size_t{1} << 46)) {
      refuse(shard.path, "its samples are impossibly large");
    }
  }
  return bytes;
}

std::optional<std::string> text_attribute(hid_t dataset, const char* name) {
  if (H5Aexists(dataset, name) <= 0) return std::nullopt;
  const AttributeId attribute(H5Aopen(dataset, name, H5P_DEFAULT));
  const TypeId type(H5Aget_type(attribute.get()));
  if (H5Tis_variable_str(type.get()) <= 0) return std::nullopt;
  char* text = nullptr;
  if (H5Aread(attribute.get(), type.get(), static_cast<void*>(&text)) < 0 || text == nullptr)
    return std::nullopt;
  const std::string value = text;
  H5free_memory(text);
  return value;
}

// The type of the values, if the file has a narrower type.
std::optional<DType> value_type(hid_t dataset) {
  const auto text = text_attribute(dataset, "dtype");
  return text ? parse_dtype(*text) : std::nullopt;
}

bool has_object(const Opened& shard, const std::string& group, const std::string& name) {
  for (const std::string& part : {std::string("/wflow"), group, group + "/" + name}) {
    if (H5Lexists(shard.file.get(), part.c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return true;
}

constexpr const char* kOffsets = "/wflow/offsets";

std::vector<std::uint64_t> read_offsets(const Opened& shard, const std::string& name, std::size_t samples) {
  const std::string path = fmt::format("{}/{}", kOffsets, name);
  std::size_t columns = 0;
  auto offsets = read_table<std::uint64_t>(shard, path.c_str(), H5T_NATIVE_UINT64, 1, samples + 1, &columns);
  const DatasetId table(H5Dopen2(shard.file.get(), path.c_str(), H5P_DEFAULT));
  const bool rising =
      std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) == offsets.end();
  if (!table_is_whole(table, offsets) || offsets.front() != 0 || !rising)
    throw Error(ExitCode::data, fmt::format("the offsets of {} in {} are damaged; convert its block again",
                                            name, shard.path.string()));
  return offsets;
}

double real_attribute(hid_t object, const char* name) {
  double value = 0;
  if (H5Aexists(object, name) <= 0) return value;
  const AttributeId attribute(H5Aopen(object, name, H5P_DEFAULT));
  if (!attribute || H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) < 0) return 0;
  return value;
}

// From the places of steps to a sample of the shard's longest.
void shape_of_samples(FieldLayout& layout, std::size_t axis) {
  const std::vector<std::uint64_t>& offsets = layout.ragged.offsets;
  std::uint64_t longest = 0;
  for (std::size_t k = 1; k < offsets.size(); ++k) longest = std::max(longest, offsets[k] - offsets[k - 1]);
  layout.ragged.axis = axis;
  layout.ragged.steps_per_chunk = layout.rows_per_chunk;
  layout.rows_per_chunk = 1;
  layout.shape.insert(layout.shape.begin() + static_cast<std::ptrdiff_t>(axis),
                      static_cast<std::size_t>(longest));
  layout.chunk = layout.shape;
}

FieldLayout read_ragged(const Opened& shard, const std::string& name, const std::vector<std::int64_t>& ids) {
  FieldLayout layout;
  layout.name = name;
  layout.ragged.offsets = read_offsets(shard, name, ids.size());
  const std::uint64_t steps = layout.ragged.offsets.back();
  const OpenedField field{DatasetId(H5Dopen2(shard.file.get(), name.c_str(), H5P_DEFAULT)),
                          static_cast<std::size_t>(steps)};
  if (!field.dataset) refuse(shard.path, fmt::format("it has no /{}", name));
  const auto dims = dimensions(field.dataset.get());
  if (dims.empty() || dims[0] != steps)
    refuse(shard.path, fmt::format("/{} does not have the {} steps of its offsets", name, steps));
  layout.shape.assign(dims.begin() + 1, dims.end());
  if (std::find(layout.shape.begin(), layout.shape.end(), std::size_t{0}) != layout.shape.end())
    refuse(shard.path, fmt::format("the samples of /{} hold nothing", name));
  const TypeId type(H5Dget_type(field.dataset.get()));
  const auto dtype = dtype_of(type.get());
  const std::uint64_t axis = number_attribute(field.dataset.get(), "ragged_axis").value_or(0);
  if (!dtype || axis > layout.shape.size())
    refuse(shard.path, fmt::format("/{} is not described as a ragged field", name));
  layout.held = layout.dtype = *dtype;
  layout.chunk = layout.shape;
  layout.sample_bytes =
      checked_sample_bytes(shard, layout);  // of a step, until the shape is that of a sample
  if (!plain_bytes(shard, field, layout.held) || !place_chunks(shard, field, layout))
    throw Error(
        ExitCode::data,
        fmt::format("/{} of {} is ragged and has chunks or filters of another tool, which wflow does not "
                    "read; convert its block again",
                    name, shard.path.string()));
  layout.ragged.pad_value = real_attribute(field.dataset.get(), "pad_value");
  shape_of_samples(layout, static_cast<std::size_t>(axis));
  layout.sample_bytes = checked_sample_bytes(shard, layout);
  return layout;
}

// The mask of a ragged field has the lengths of it, without its channels, and no values in the file.
FieldLayout read_mask(const Opened& shard, const std::string& name, const std::string& ragged,
                      const std::vector<std::int64_t>& ids) {
  FieldLayout layout = read_ragged(shard, ragged, ids);
  layout.name = name;
  layout.held = layout.dtype = DType::uint8;
  layout.chunks.clear();
  layout.filters = {};
  layout.has_hashes = layout.index_stale = layout.index_damaged = false;
  layout.ragged.mask = true;
  const DatasetId dataset(H5Dopen2(shard.file.get(), ragged.c_str(), H5P_DEFAULT));
  const std::optional<std::string> axes = text_attribute(dataset.get(), "layout");
  if (axes && axes->find('C') != std::string::npos) {
    if (layout.ragged.axis == 0)
      refuse(shard.path, fmt::format("/{} is not described as a ragged field", ragged));
    layout.shape.erase(layout.shape.begin());
    --layout.ragged.axis;
  }
  layout.chunk = layout.shape;
  layout.sample_bytes = checked_sample_bytes(shard, layout);
  return layout;
}

FieldLayout read_field(const Opened& shard, const std::string& name, const std::vector<std::int64_t>& ids) {
  if (has_object(shard, kOffsets, name)) return read_ragged(shard, name, ids);
  constexpr std::string_view kMask = "_mask";
  const std::string ragged = name.ends_with(kMask) ? name.substr(0, name.size() - kMask.size()) : "";
  const bool stored = H5Lexists(shard.file.get(), name.c_str(), H5P_DEFAULT) > 0;
  if (!stored && !ragged.empty() && has_object(shard, kOffsets, ragged))
    return read_mask(shard, name, ragged, ids);
  FieldLayout layout;
  layout.name = name;
  const OpenedField field{DatasetId(H5Dopen2(shard.file.get(), name.c_str(), H5P_DEFAULT)), ids.size()};
  if (!field.dataset) refuse(shard.path, fmt::format("it has no /{}", name));
  const auto dims = dimensions(field.dataset.get());
  if (dims.empty() || dims[0] != ids.size())
    refuse(shard.path, fmt::format("/{} is not of {} samples, as /id", name, ids.size()));
  layout.shape.assign(dims.begin() + 1, dims.end());
  const bool labels = shard.format == 1 && name == "y";  // may have no label
  if (!labels && std::find(layout.shape.begin(), layout.shape.end(), std::size_t{0}) != layout.shape.end())
    refuse(shard.path, fmt::format("the samples of /{} hold nothing", name));
  const TypeId type(H5Dget_type(field.dataset.get()));
  const auto dtype = dtype_of(type.get());
  if (!dtype) refuse(shard.path, fmt::format("/{} holds values of a type that is not known", name));
  layout.held = *dtype;
  layout.dtype = value_type(field.dataset.get()).value_or(*dtype);
  layout.chunk = layout.shape;
  layout.sample_bytes = checked_sample_bytes(shard, layout);
  const bool direct = plain_bytes(shard, field, layout.held) && place_chunks(shard, field, layout);
  if (!direct) {
    // HDF5 must not read more than the file can hold.
    if (layout.sample_bytes > shard.file_bytes * 1032 + 65536)
      refuse(shard.path, fmt::format("/{} claims samples of {} bytes", name, layout.sample_bytes));
    layout.access = FieldLayout::Access::library;
    layout.rows_per_chunk = 1;
    layout.chunk = layout.shape;
    layout.chunks_per_sample = 1;
  }
  return layout;
}

std::vector<std::int64_t> read_ids(const Opened& shard) {
  const DatasetId dataset(H5Dopen2(shard.file.get(), "/id", H5P_DEFAULT));
  if (!dataset) refuse(shard.path, "it has no /id");
  const auto dims = dimensions(dataset.get());
  if (dims.size() != 1 || dims[0] == 0) refuse(shard.path, "it has no samples");
  std::size_t columns = 0;
  auto ids = read_table<std::int64_t>(shard, "/id", H5T_NATIVE_INT64, 1, dims[0], &columns);
  if (!table_is_whole(dataset, ids))
    throw Error(ExitCode::data,
                fmt::format("the sample numbers (/id) of {} are damaged; convert its block again",
                            shard.path.string()));
  return ids;
}

}  // namespace

std::vector<std::string> shard_fields(const fs::path& path) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  std::vector<std::string> names;
  H5Literate(
      file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
      [](hid_t, const char* name, const H5L_info_t*, void* list) -> herr_t {
        const std::string found = name;
        if (found != "id" && found != "missing" && found != "wflow")
          static_cast<std::vector<std::string>*>(list)->push_back(found);
        return 0;
      },
      &names);
  return names;
}

ShardLayout read_shard_layout(const fs::path& path, const std::vector<std::string>& names) {
  const Hdf5Section section;
  Opened shard{path, open_hdf5(path, H5F_ACC_RDONLY), fs::file_size(path)};
  shard.format = checked_format(shard);
  ShardLayout layout;
  layout.ids = read_ids(shard);
  for (const std::string& name : names) layout.fields.push_back(read_field(shard, name, layout.ids));
  return layout;
}

}  // namespace wflow::converters
