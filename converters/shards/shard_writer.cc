// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_writer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "converters/input/hdf5_handle.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {

namespace fs = std::filesystem;

struct ShardWriter::State {
  fs::path target;
  ShardDescription description;
  DurableFile durable;
  FileId file;
  DatasetId x;
  std::vector<std::int64_t> ids;
  std::vector<double> targets;
  std::vector<std::uint64_t> hashes;

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
  void create_x();
  void write_text(hid_t object, const char* name, const std::string& value) const;
  void write_texts(hid_t object, const char* name, const std::vector<std::string>& values) const;
  void write_number(hid_t object, const char* name, std::uint64_t value) const;
  DatasetId write_table(const char* name, hid_t stored, hid_t native, std::vector<hsize_t> dims,
                        const void* values) const;
  std::vector<std::uint64_t> chunk_index() const;
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
  const PropertyId creation = new_property(H5P_FILE_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  file = FileId(check(H5Fcreate(durable.temporary().c_str(), H5F_ACC_EXCL, creation.get(), access.get())));
  write_number(file.get(), "wflow_format", kFormatVersion);
  write_text(file.get(), "split", description.split);
  write_number(file.get(), "block", description.block);
  write_text(file.get(), "producer", fmt::format("wflow {}", kVersion));
  create_x();
}

void ShardWriter::State::create_x() {
  const auto& s = description.shape;
  const hsize_t dims[5] = {description.most_samples, s[0], s[1], s[2], s[3]};
  const hsize_t chunk[5] = {1, s[0], s[1], s[2], s[3]};
  const SpaceId space(check(H5Screate_simple(5, dims, nullptr)));
  const PropertyId creation = new_property(H5P_DATASET_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  check(H5Pset_chunk(creation.get(), 5, chunk));
  if (description.filters.shuffle) check(H5Pset_shuffle(creation.get()));
  if (description.filters.deflate) {
    check(H5Pset_deflate(creation.get(), static_cast<unsigned>(std::min(description.level, 9))));
  }
  const PropertyId access = new_property(H5P_DATASET_ACCESS);
  H5Pset_chunk_cache(access.get(), 1, 0, 1);  // chunks come ready: a cache would only hold copies
  x = DatasetId(check(H5Dcreate2(file.get(), "/x", stored_type(description.dtype), space.get(), H5P_DEFAULT,
                                 creation.get(), access.get())));
  if (!description.channels.empty()) write_texts(x.get(), "channels", description.channels);
  if (!description.units.empty()) write_text(x.get(), "units", description.units);
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

void ShardWriter::State::write_number(hid_t object, const char* name, std::uint64_t value) const {
  const SpaceId space(check(H5Screate(H5S_SCALAR)));
  const AttributeId attribute(
      check(H5Acreate2(object, name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
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

std::vector<std::uint64_t> ShardWriter::State::chunk_index() const {
  std::vector<std::uint64_t> words;
  words.reserve(4 * ids.size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const hsize_t start[5] = {row, 0, 0, 0, 0};
    unsigned mask = 0;
    haddr_t address = 0;
    hsize_t bytes = 0;
    check(H5Dget_chunk_info_by_coord(x.get(), start, &mask, &address, &bytes));
    words.insert(words.end(), {address, bytes, mask, hashes[row]});
  }
  return words;
}

void ShardWriter::State::write_tables(std::span<const std::int64_t> missing) {
  const hsize_t rows = ids.size();
  const hsize_t labels = description.labels.size();
  const DatasetId y = write_table("/y", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {rows, labels}, targets.data());
  write_texts(y.get(), "names", description.labels);
  write_table("/id", H5T_STD_I64LE, H5T_NATIVE_INT64, {rows}, ids.data());
  write_table("/missing", H5T_STD_I64LE, H5T_NATIVE_INT64, {missing.size()}, missing.data());
  const PropertyId creation = new_property(H5P_GROUP_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  const GroupId group(check(H5Gcreate2(file.get(), "/wflow", H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  const std::vector<std::uint64_t> index = chunk_index();
  const DatasetId table =
      write_table("/wflow/index", H5T_STD_U64LE, H5T_NATIVE_UINT64, {rows, 4}, index.data());
  write_number(table.get(), "index_file_size", 0);  // its place; the size is known once the file is closed
}

// The attribute is overwritten where it stands, so the size it tells does not change by telling it.
void ShardWriter::State::record_size() const {
  const fs::path& path = durable.temporary();
  const std::uint64_t bytes = fs::file_size(path);
  {
    const PropertyId access = file_access();
    FileId again(check(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get())));
    DatasetId index(check(H5Dopen2(again.get(), "/wflow/index", H5P_DEFAULT)));
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
  state_->x.close();
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

void ShardWriter::add(std::int64_t id, std::span<const double> targets, const EncodedChunk& chunk) {
  State& s = *state_;
  WFLOW_CHECK(s.ids.size() < s.description.most_samples && targets.size() == s.description.labels.size());
  const Hdf5Section section;
  const hsize_t start[5] = {s.ids.size(), 0, 0, 0, 0};
  s.check(H5Dwrite_chunk(s.x.get(), H5P_DEFAULT, chunk.mask, start, chunk.bytes.size(), chunk.bytes.data()));
  s.ids.push_back(id);
  s.targets.insert(s.targets.end(), targets.begin(), targets.end());
  s.hashes.push_back(chunk.hash);
}

void ShardWriter::close(std::span<const std::int64_t> missing) {
  State& s = *state_;
  const Hdf5Section section;
  const auto& shape = s.description.shape;
  const hsize_t dims[5] = {s.ids.size(), shape[0], shape[1], shape[2], shape[3]};
  s.check(H5Dset_extent(s.x.get(), dims));
  s.write_tables(missing);
  s.check(s.x.close());
  s.check(s.file.close());
  s.record_size();
}

}  // namespace wflow::converters
