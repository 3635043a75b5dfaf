// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "converters/input/hdf5_handle.h"
#include "converters/shards/encode.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_driver.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPackBelow = 4096;                  // bytes of a sample
constexpr std::size_t kPackedChunk = 64 << 10;            // bytes of a chunk of such samples
constexpr std::size_t kMostChunk = std::size_t{8} << 20;  // bytes, of a larger sample's slabs
constexpr std::size_t kBrick = 64;                        // cells along each axis of a volume
constexpr std::uint64_t kUnknownPlace = HADDR_UNDEF;

}  // namespace

struct ShardWriter::State {
  // A field's dataset during writing.
  struct FieldOutput {
    DatasetId dataset;
    std::uint64_t rows_per_chunk = 1;
    std::optional<ChunkGrid> grid;      // chunks of a sample; none of a ragged field
    std::vector<std::uint8_t> pending;  // rows of a packed chunk that is not full
    std::vector<std::uint64_t> chunks;  // offset, bytes, mask and hash of each
    // Ragged: one axis of steps instead of one of samples, and rows_per_chunk counts steps.
    std::vector<std::uint64_t> offsets;  // in steps: of each sample, then the end
    std::size_t step_bytes = 0;
    std::optional<Encoder> encoder;
  };

  fs::path target;
  ShardDescription description;
  DurableFile durable;
  FileId file;
  std::vector<FieldOutput> outputs;
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> pieces;

  State(fs::path path, ShardDescription given)
      : target(std::move(path)), description(std::move(given)), durable(target) {}

  [[noreturn]] void fail() const {
    throw_hdf5(ExitCode::system, fmt::format("cannot write {}", target.string()));
  }
  hid_t check(hid_t id) const {
    if (id < 0) fail();
    return id;
  }
  void create();
  void create_field(const FieldForm& form);
  void write_chunk(std::size_t field, const EncodedChunk& chunk);
  void flush_packed(std::size_t field);
  void create_ragged(const FieldForm& form);
  void add_steps(std::size_t field, const EncodedField& sample);
  void write_steps(std::size_t field, const EncodedChunk& chunk);
  void close_ragged(std::size_t field);
  void describe(hid_t dataset, const FieldForm& form, const std::string& layout) const;
  DatasetId new_dataset(const FieldForm& form, const std::vector<hsize_t>& dims,
                        const std::vector<hsize_t>& most, const std::vector<hsize_t>& chunk) const;
  void write_text(hid_t object, const char* name, const std::string& value) const;
  void write_texts(hid_t object, const char* name, const std::vector<std::string>& values) const;
  void write_number(hid_t object, const char* name, std::uint64_t value) const {
    write_integer(object, name, H5T_STD_I64LE, value);
  }
  void write_integer(hid_t object, const char* name, hid_t stored, std::uint64_t value) const;
  void write_real(hid_t object, const char* name, double value) const;
  DatasetId write_table(const char* name, hid_t stored, hid_t native, std::vector<hsize_t> dims,
                        const void* values) const;
  std::vector<hsize_t> chunk_start(std::size_t field, std::size_t chunk) const;
  std::uint64_t ask_place(std::size_t field, std::size_t chunk) const;
  std::vector<std::uint64_t> chunk_index(std::size_t field) const;
  void write_index(std::size_t field) const;
  void write_offsets() const;
  void write_tables(std::span<const std::int64_t> missing);
  void record_size() const;
};

namespace {

PropertyId new_property(hid_t kind) {
  return PropertyId(H5Pcreate(kind));
}

// The bytes must depend on the content alone: no times. Format of HDF5 1.8, which all tools in use read, and
// which has checksums over its own structures.
PropertyId file_access() {
  PropertyId access = new_property(H5P_FILE_ACCESS);
  H5Pset_file_locking(access.get(), false, true);
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18);
  return access;
}

TypeId text_type() {
  TypeId type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

}  // namespace

void ShardWriter::State::create() {
  const PropertyId access = file_access();
  use_shard_driver(access.get());
  const PropertyId creation = new_property(H5P_FILE_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  file = FileId(check(H5Fcreate(durable.temporary().c_str(), H5F_ACC_EXCL, creation.get(), access.get())));
  const bool ragged = std::any_of(description.fields.begin(), description.fields.end(),
                                  [](const FieldForm& form) { return form.ragged.has_value(); });
  write_number(file.get(), "wflow_format", ragged ? kFormatWithRagged : kFormatVersion);
  write_text(file.get(), "split", description.split);
  write_number(file.get(), "block", description.block);
  write_text(file.get(), "producer", fmt::format("wflow {}", kVersion));
  for (const FieldForm& form : description.fields) create_field(form);
}

void ShardWriter::State::create_field(const FieldForm& form) {
  if (form.ragged) {
    create_ragged(form);
    return;
  }
  FieldOutput output;
  output.rows_per_chunk = std::min<std::uint64_t>(converters::rows_per_chunk(form), description.most_samples);
  const std::vector<std::size_t> of_sample = chunk_shape(form);
  output.grid = chunk_grid(form);
  std::vector<hsize_t> dims = {description.most_samples};
  std::vector<hsize_t> chunk = {output.rows_per_chunk};
  dims.insert(dims.end(), form.shape.begin(), form.shape.end());
  chunk.insert(chunk.end(), of_sample.begin(), of_sample.end());
  output.dataset = new_dataset(form, dims, dims, chunk);
  describe(output.dataset.get(), form, form.layout);
  outputs.push_back(std::move(output));
}

DatasetId ShardWriter::State::new_dataset(const FieldForm& form, const std::vector<hsize_t>& dims,
                                          const std::vector<hsize_t>& most,
                                          const std::vector<hsize_t>& chunk) const {
  const Filters filters = filters_of(form);
  const int rank = static_cast<int>(dims.size());
  const SpaceId space(check(H5Screate_simple(rank, dims.data(), most.data())));
  const PropertyId creation = new_property(H5P_DATASET_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  check(H5Pset_chunk(creation.get(), rank, chunk.data()));
  if (filters.shuffle) check(H5Pset_shuffle(creation.get()));
  if (filters.deflate) {
    check(H5Pset_deflate(creation.get(), static_cast<unsigned>(std::min(description.level, 9))));
  }
  const PropertyId access = new_property(H5P_DATASET_ACCESS);
  H5Pset_chunk_cache(access.get(), 1, 0, 1);  // chunks are already encoded: a cache would only hold copies
  return DatasetId(check(H5Dcreate2(file.get(), form.name.c_str(), stored_type(form.held()), space.get(),
                                    H5P_DEFAULT, creation.get(), access.get())));
}

void ShardWriter::State::describe(hid_t dataset, const FieldForm& form, const std::string& layout) const {
  write_text(dataset, "role", std::string(role_name(form.role)));
  write_text(dataset, "layout", layout);
  if (form.held() != form.dtype) write_text(dataset, "dtype", std::string(dtype_name(form.dtype)));
  if (!form.channels.empty()) write_texts(dataset, layout == "C" ? "names" : "channels", form.channels);
  if (!form.units.empty()) write_text(dataset, "units", form.units);
}

// The steps of all samples, one behind the other: (steps, other axes).
void ShardWriter::State::create_ragged(const FieldForm& form) {
  FieldOutput& output = outputs.emplace_back();
  output.offsets = {0};
  if (form.mask) return;
  const std::size_t axis = form.ragged->axis;
  std::vector<hsize_t> dims(form.shape.begin(), form.shape.end());
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  output.step_bytes = dtype_size(form.held());
  for (const hsize_t length : dims) output.step_bytes *= length;
  output.rows_per_chunk = std::max<std::size_t>(1, kPackedChunk / output.step_bytes);
  std::vector<hsize_t> chunk = dims;
  chunk.insert(chunk.begin(), output.rows_per_chunk);
  dims.insert(dims.begin(), 0);
  std::vector<hsize_t> most = dims;
  most[0] = H5S_UNLIMITED;
  output.dataset = new_dataset(form, dims, most, chunk);
  std::string layout = form.layout;
  layout.erase(axis, 1);
  describe(output.dataset.get(), form, form.layout[axis] + layout);
  write_number(output.dataset.get(), "ragged_axis", axis);
  write_real(output.dataset.get(), "pad_value", form.ragged->pad_value);
  output.encoder.emplace(filters_of(form), form.matches ? Coder::matches : Coder::runs, description.level);
}

void ShardWriter::State::add_steps(std::size_t field, const EncodedField& sample) {
  FieldOutput& output = outputs[field];
  output.offsets.push_back(output.offsets.back() + sample.steps);
  if (description.fields[field].mask) return;
  const std::vector<std::uint8_t>& bytes = sample.chunks.front().bytes;
  WFLOW_CHECK(bytes.size() == sample.steps * output.step_bytes);
  output.pending.insert(output.pending.end(), bytes.begin(), bytes.end());
  const std::size_t whole = output.rows_per_chunk * output.step_bytes;
  const std::size_t width = dtype_size(description.fields[field].held());
  std::size_t at = 0;
  const Hdf5Section section;
  for (; output.pending.size() - at > whole; at += whole)  // close() writes the last chunk
    write_steps(field, output.encoder->encode(std::span(output.pending).subspan(at, whole), width));
  output.pending.erase(output.pending.begin(), output.pending.begin() + static_cast<std::ptrdiff_t>(at));
}

// HDF5 refuses a chunk beyond the extent.
void ShardWriter::State::write_steps(std::size_t field, const EncodedChunk& chunk) {
  const FieldOutput& output = outputs[field];
  std::vector<hsize_t> dims(description.fields[field].shape.begin(), description.fields[field].shape.end());
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(description.fields[field].ragged->axis));
  const std::uint64_t steps_now = (output.chunks.size() / 4 + 1) * output.rows_per_chunk;
  dims.insert(dims.begin(), std::min(steps_now, output.offsets.back()));
  check(H5Dset_extent(output.dataset.get(), dims.data()));
  write_chunk(field, chunk);
}

// The last chunk is complete in the file, as those of packed fields are.
void ShardWriter::State::close_ragged(std::size_t field) {
  FieldOutput& output = outputs[field];
  const FieldForm& form = description.fields[field];
  if (form.mask) return;
  output.pending.resize(output.rows_per_chunk * output.step_bytes, 0);
  write_steps(field, output.encoder->encode(output.pending, dtype_size(form.held())));
}

// The offset of the chunk with that number: rows, then the chunks of a sample in C order.
std::vector<hsize_t> ShardWriter::State::chunk_start(std::size_t field, std::size_t chunk) const {
  const FieldOutput& output = outputs[field];
  if (!output.grid) {
    std::vector<hsize_t> start(description.fields[field].shape.size(), 0);
    start[0] = chunk * output.rows_per_chunk;
    return start;
  }
  const std::vector<std::size_t> corner = output.grid->corner(chunk % output.grid->chunks());
  std::vector<hsize_t> start = {chunk / output.grid->chunks() * output.rows_per_chunk};
  start.insert(start.end(), corner.begin(), corner.end());
  return start;
}

void ShardWriter::State::write_chunk(std::size_t field, const EncodedChunk& chunk) {
  FieldOutput& output = outputs[field];
  const std::vector<hsize_t> start = chunk_start(field, output.chunks.size() / 4);
  check(H5Dwrite_chunk(output.dataset.get(), H5P_DEFAULT, chunk.mask, start.data(), chunk.bytes.size(),
                       chunk.bytes.data()));
  const auto place = take_place_of_write(file.get(), chunk.bytes);
  const bool known = place && !description.ask_places;
  output.chunks.insert(output.chunks.end(),
                       {known ? *place : kUnknownPlace, chunk.bytes.size(), chunk.mask, chunk.hash});
}

// The last chunk is complete in the file; bytes behind the samples are zero.
void ShardWriter::State::flush_packed(std::size_t field) {
  FieldOutput& output = outputs[field];
  if (output.pending.empty()) return;
  const FieldForm& form = description.fields[field];
  EncodedChunk chunk;
  chunk.bytes = std::move(output.pending);
  chunk.bytes.resize(output.rows_per_chunk * form.values() * dtype_size(form.held()), 0);
  chunk.hash = chunk_hash(chunk.bytes);
  write_chunk(field, chunk);
  output.pending = std::move(chunk.bytes);
  output.pending.clear();
}

void ShardWriter::State::write_text(hid_t object, const char* name, const std::string& value) const {
  const SpaceId space(check(H5Screate(H5S_SCALAR)));
  const TypeId type = text_type();
  const AttributeId attribute(
      check(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  const char* text = value.c_str();
  check(H5Awrite(attribute.get(), type.get(), &text));
}

void ShardWriter::State::write_texts(hid_t object, const char* name,
                                     const std::vector<std::string>& values) const {
  const hsize_t count = values.size();
  const SpaceId space(check(H5Screate_simple(1, &count, nullptr)));
  const TypeId type = text_type();
  const AttributeId attribute(
      check(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value.c_str());
  if (!texts.empty()) check(H5Awrite(attribute.get(), type.get(), texts.data()));
}

void ShardWriter::State::write_real(hid_t object, const char* name, double value) const {
  const SpaceId space(check(H5Screate(H5S_SCALAR)));
  const AttributeId attribute(
      check(H5Acreate2(object, name, H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  check(H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, &value));
}

void ShardWriter::State::write_integer(hid_t object, const char* name, hid_t stored,
                                       std::uint64_t value) const {
  const SpaceId space(check(H5Screate(H5S_SCALAR)));
  const AttributeId attribute(check(H5Acreate2(object, name, stored, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  check(H5Awrite(attribute.get(), H5T_NATIVE_UINT64, &value));
}

DatasetId ShardWriter::State::write_table(const char* name, hid_t stored, hid_t native,
                                          std::vector<hsize_t> dims, const void* values) const {
  const SpaceId space(check(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr)));
  const PropertyId creation = new_property(H5P_DATASET_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  DatasetId dataset(
      check(H5Dcreate2(file.get(), name, stored, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  std::uint64_t total = 1;
  for (const hsize_t length : dims) total *= length;
  if (total > 0) check(H5Dwrite(dataset.get(), native, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
  return dataset;
}

// HDF5 searches through all chunks before this one.
std::uint64_t ShardWriter::State::ask_place(std::size_t field, std::size_t chunk) const {
  const FieldOutput& output = outputs[field];
  const std::vector<hsize_t> start = chunk_start(field, chunk);
  unsigned mask = 0;
  haddr_t address = 0;
  hsize_t bytes = 0;
  check(H5Dget_chunk_info_by_coord(output.dataset.get(), start.data(), &mask, &address, &bytes));
  WFLOW_CHECK(bytes == output.chunks[4 * chunk + 1] && mask == output.chunks[4 * chunk + 2]);
  return address;
}

// The driver has recorded the place of each chunk. HDF5 must agree on the last one; if not, it has moved
// chunks.
std::vector<std::uint64_t> ShardWriter::State::chunk_index(std::size_t field) const {
  std::vector<std::uint64_t> words = outputs[field].chunks;
  const std::size_t count = words.size() / 4;
  const bool moved = count > 0 && words[4 * (count - 1)] != ask_place(field, count - 1);
  for (std::size_t k = 0; k < count; ++k) {
    if (moved || words[4 * k] == kUnknownPlace) words[4 * k] = ask_place(field, k);
  }
  return words;
}

// With a checksum of its own: the checksums of the chunks are useless if the index is damaged.
void ShardWriter::State::write_index(std::size_t field) const {
  const std::vector<std::uint64_t> words = chunk_index(field);
  const DatasetId index = write_table(("/wflow/index/" + description.fields[field].name).c_str(),
                                      H5T_STD_U64LE, H5T_NATIVE_UINT64, {words.size() / 4, 4}, words.data());
  write_integer(
      index.get(), "xxh3_64", H5T_STD_U64LE,
      chunk_hash({reinterpret_cast<const std::uint8_t*>(words.data()), words.size() * sizeof(words[0])}));
}

// With checksums, as the index has.
void ShardWriter::State::write_offsets() const {
  if (std::all_of(outputs.begin(), outputs.end(),
                  [](const FieldOutput& output) { return output.offsets.empty(); }))
    return;
  const PropertyId creation = new_property(H5P_GROUP_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  const GroupId group(
      check(H5Gcreate2(file.get(), "/wflow/offsets", H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const std::vector<std::uint64_t>& offsets = outputs[k].offsets;
    if (offsets.empty() || description.fields[k].mask) continue;
    const DatasetId table = write_table(("/wflow/offsets/" + description.fields[k].name).c_str(),
                                        H5T_STD_U64LE, H5T_NATIVE_UINT64, {offsets.size()}, offsets.data());
    write_integer(table.get(), "xxh3_64", H5T_STD_U64LE,
                  chunk_hash({reinterpret_cast<const std::uint8_t*>(offsets.data()),
                              offsets.size() * sizeof(offsets[0])}));
  }
}

void ShardWriter::State::write_tables(std::span<const std::int64_t> missing) {
  const DatasetId id = write_table("/id", H5T_STD_I64LE, H5T_NATIVE_INT64, {ids.size()}, ids.data());
  write_integer(id.get(), "xxh3_64", H5T_STD_U64LE,
                chunk_hash({reinterpret_cast<const std::uint8_t*>(ids.data()), ids.size() * sizeof(ids[0])}));
  write_table("/missing", H5T_STD_I64LE, H5T_NATIVE_INT64, {missing.size()}, missing.data());
  const PropertyId creation = new_property(H5P_GROUP_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  const GroupId group(check(H5Gcreate2(file.get(), "/wflow", H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  const GroupId index(
      check(H5Gcreate2(file.get(), "/wflow/index", H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (!description.fields[k].mask) write_index(k);
  }
  write_offsets();
  if (std::any_of(pieces.begin(), pieces.end(), [](std::uint32_t piece) { return piece > 0; }))
    write_table("/wflow/piece", H5T_STD_U32LE, H5T_NATIVE_UINT32, {pieces.size()}, pieces.data());
  write_number(index.get(), "index_file_size",
               0);  // a placeholder; the size is known when the file is closed
}

// Overwrites the attribute in place, so that writing the size does not change it.
void ShardWriter::State::record_size() const {
  const fs::path& path = durable.temporary();
  const std::uint64_t bytes = fs::file_size(path);
  {
    const PropertyId access = file_access();
    FileId again(check(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get())));
    GroupId index(check(H5Gopen2(again.get(), "/wflow/index", H5P_DEFAULT)));
    AttributeId size(check(H5Aopen(index.get(), "index_file_size", H5P_DEFAULT)));
    check(H5Awrite(size.get(), H5T_NATIVE_UINT64, &bytes));
    check(size.close());
    check(index.close());
    check(again.close());
  }
  WFLOW_CHECK(fs::file_size(path) == bytes);
}

ShardWriter::ShardWriter(const fs::path& target, const ShardDescription& description)
    : state_(std::make_unique<State>(target, description)) {
  make_directories(target.parent_path());
  const Hdf5Section section;
  state_->create();
}

ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;

ShardWriter::~ShardWriter() {
  if (!state_) return;
  const Hdf5Section section;
  state_->outputs.clear();
  state_->file.close();
}

std::uint64_t ShardWriter::samples() const {
  return state_->ids.size();
}
const fs::path& ShardWriter::temporary() const {
  return state_->durable.temporary();
}
void ShardWriter::publish() {
  state_->durable.publish();
}

void ShardWriter::add(std::int64_t id, std::span<const EncodedField> fields, std::uint32_t piece) {
  State& s = *state_;
  WFLOW_CHECK(s.ids.size() < s.description.most_samples && fields.size() == s.outputs.size());
  for (std::size_t k = 0; k < fields.size(); ++k) {
    State::FieldOutput& output = s.outputs[k];
    if (s.description.fields[k].ragged) {
      s.add_steps(k, fields[k]);
      continue;
    }
    if (converters::rows_per_chunk(s.description.fields[k]) == 1) {
      const Hdf5Section section;
      for (const EncodedChunk& chunk : fields[k].chunks) s.write_chunk(k, chunk);
      continue;
    }
    const std::vector<std::uint8_t>& bytes = fields[k].chunks.front().bytes;
    output.pending.insert(output.pending.end(), bytes.begin(), bytes.end());
    if (output.pending.size() < output.rows_per_chunk * bytes.size()) continue;
    const Hdf5Section section;
    s.flush_packed(k);
  }
  s.ids.push_back(id);
  s.pieces.push_back(piece);
}

void ShardWriter::close(std::span<const std::int64_t> missing) {
  State& s = *state_;
  const Hdf5Section section;
  for (std::size_t k = 0; k < s.outputs.size(); ++k) {
    if (s.description.fields[k].ragged) {
      s.close_ragged(k);
      continue;
    }
    std::vector<hsize_t> dims = {s.ids.size()};
    const auto& shape = s.description.fields[k].shape;
    dims.insert(dims.end(), shape.begin(), shape.end());
    // First, so that HDF5 does not touch the last chunk again.
    s.check(H5Dset_extent(s.outputs[k].dataset.get(), dims.data()));
    s.flush_packed(k);
  }
  s.write_tables(missing);
  for (State::FieldOutput& output : s.outputs) {
    if (output.dataset) s.check(output.dataset.close());
  }
  s.check(s.file.close());
  s.record_size();
}

std::size_t rows_per_chunk(const FieldForm& form) {
  if (form.ragged) return 1;
  const std::size_t bytes = form.values() * dtype_size(form.held());
  return bytes < kPackBelow ? kPackedChunk / std::max<std::size_t>(1, bytes) : 1;
}

Filters filters_of(const FieldForm& form) {
  const bool gzip = form.compressed && rows_per_chunk(form) == 1;
  return {.shuffle = gzip && dtype_size(form.held()) > 1, .deflate = gzip};
}

namespace {

std::vector<std::size_t> slab_shape(const FieldForm& form) {
  std::vector<std::size_t> slab = form.shape;
  std::size_t bytes = form.values() * dtype_size(form.held());
  for (std::size_t k = 0; k < slab.size() && bytes > kMostChunk; ++k) {
    bytes /= slab[k];  // bytes of one step along this axis
    const std::size_t most = std::max<std::size_t>(1, kMostChunk / bytes);
    const std::size_t parts = (slab[k] + most - 1) / most;
    slab[k] = (slab[k] + parts - 1) / parts;  // about equal parts
    bytes *= slab[k];
  }
  return slab;
}

// The cells of a brick along the last axes; empty: the sample is not stored in bricks.
std::vector<std::size_t> brick_cells(const FieldForm& form) {
  const bool volume = form.layout.ends_with("DHW") && form.values() * dtype_size(form.held()) >= kMostChunk;
  return form.chunk.value_or(volume ? std::vector<std::size_t>(3, kBrick) : std::vector<std::size_t>{});
}

}  // namespace

std::vector<std::size_t> chunk_shape(const FieldForm& form) {
  const std::vector<std::size_t> cells = brick_cells(form);
  if (rows_per_chunk(form) > 1 || form.ragged) return form.shape;
  if (cells.empty()) return slab_shape(form);
  std::vector<std::size_t> brick = form.shape;
  const std::size_t first = brick.size() - cells.size();
  for (std::size_t k = 0; k < cells.size(); ++k) brick[first + k] = std::min(brick[first + k], cells[k]);
  // All entries of the leading axes, as far as the brick has at most kMostChunk bytes.
  std::size_t bytes = values_of(brick) * dtype_size(form.held());
  for (std::size_t k = 0; k < first && bytes > kMostChunk; ++k) {
    bytes /= brick[k];
    brick[k] = std::clamp<std::size_t>(kMostChunk / bytes, 1, brick[k]);
    bytes *= brick[k];
  }
  return brick;
}

ChunkGrid chunk_grid(const FieldForm& form) {
  return ChunkGrid(form.shape, chunk_shape(form));
}

}  // namespace wflow::converters
