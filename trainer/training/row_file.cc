// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/row_file.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "converters/input/hdf5_handle.h"

namespace wflow::trainer {

using converters::AttributeId;
using converters::DatasetId;
using converters::FileId;
using converters::GroupId;
using converters::Hdf5Section;
using converters::PropertyId;
using converters::SpaceId;
using converters::TypeId;

struct RowFile::State {
  DurableFile durable;
  std::filesystem::path target;
  std::size_t rows;
  FileId file{};
  struct Rows {
    DatasetId id;
    std::vector<hsize_t> shape;  // shape of the dataset
    std::size_t values;          // per row
  };
  std::vector<Rows> datasets{};
  converters::GroupId group{};  // the group in use, if there is one

  hid_t place() const { return group.get() >= 0 ? group.get() : file.get(); }

  hid_t check(hid_t id) const {
    if (id < 0) converters::throw_hdf5(ExitCode::system, fmt::format("cannot write {}", target.string()));
    return id;
  }
};

RowFile::RowFile(const std::filesystem::path& target, std::span<const std::int64_t> ids)
    : state_(new State{DurableFile(target), target, ids.size()}) {
  const Hdf5Section section;
  const PropertyId access(state_->check(H5Pcreate(H5P_FILE_ACCESS)));
  H5Pset_file_locking(access.get(), false, true);
  state_->file = FileId(
      state_->check(H5Fcreate(state_->durable.temporary().c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get())));
  const hsize_t count = ids.size();
  const SpaceId space(state_->check(H5Screate_simple(1, &count, nullptr)));
  const DatasetId id(state_->check(H5Dcreate2(state_->file.get(), "id", H5T_STD_I64LE, space.get(),
                                              H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  if (!ids.empty())
    state_->check(H5Dwrite(id.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data()));
}

RowFile::~RowFile() {
  const Hdf5Section section;
  state_->group.close();
  state_->datasets.clear();
  state_->file.close();
}

void RowFile::use_group(const std::string& name) {
  const Hdf5Section section;
  state_->group.close();
  if (name.empty()) return;
  state_->group = GroupId(
      state_->check(H5Gcreate2(state_->file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
}

void RowFile::text(const char* name, const std::vector<std::string>& values) {
  const Hdf5Section section;
  const hsize_t count = values.size();
  const SpaceId space(state_->check(H5Screate_simple(1, &count, nullptr)));
  const TypeId type(state_->check(H5Tcopy(H5T_C_S1)));
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const AttributeId attribute(
      state_->check(H5Acreate2(state_->place(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  std::vector<const char*> texts;
  for (const std::string& value : values) texts.push_back(value.c_str());
  if (!texts.empty()) state_->check(H5Awrite(attribute.get(), type.get(), texts.data()));
}

void RowFile::number(const char* name, std::int64_t value) {
  const Hdf5Section section;
  const SpaceId space(state_->check(H5Screate(H5S_SCALAR)));
  const AttributeId attribute(
      state_->check(H5Acreate2(state_->place(), name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  state_->check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value));
}

void RowFile::reals(const char* name, std::span<const double> values) {
  const Hdf5Section section;
  const hsize_t count = values.size();
  const SpaceId space(state_->check(H5Screate_simple(1, &count, nullptr)));
  const AttributeId attribute(state_->check(
      H5Acreate2(state_->file.get(), name, H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  if (!values.empty()) state_->check(H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, values.data()));
}

std::size_t RowFile::add(const char* name, std::span<const std::int64_t> shape, bool wide) {
  return add(name, shape, wide ? Number::float64 : Number::float32);
}

std::size_t RowFile::add_bytes(const char* name, std::span<const std::int64_t> shape) {
  return add(name, shape, Number::uint8);
}

std::size_t RowFile::add(const char* name, std::span<const std::int64_t> shape, Number number) {
  const Hdf5Section section;
  const hid_t type = number == Number::uint8     ? H5T_STD_U8LE
                     : number == Number::float64 ? H5T_IEEE_F64LE
                                                 : H5T_IEEE_F32LE;
  std::vector<hsize_t> dims = {state_->rows};
  for (const std::int64_t n : shape) dims.push_back(static_cast<hsize_t>(n));
  const SpaceId space(state_->check(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr)));
  DatasetId id(state_->check(
      H5Dcreate2(state_->place(), name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  const auto values = std::accumulate(dims.begin() + 1, dims.end(), hsize_t{1}, std::multiplies<>());
  state_->datasets.push_back({std::move(id), std::move(dims), values});
  return state_->datasets.size() - 1;
}

void RowFile::write(std::size_t dataset, std::size_t first, std::span<const float> values) {
  write_rows(dataset, first, values.data(), values.size(), Number::float32);
}

void RowFile::write(std::size_t dataset, std::size_t first, std::span<const double> values) {
  write_rows(dataset, first, values.data(), values.size(), Number::float64);
}

void RowFile::write(std::size_t dataset, std::size_t first, std::span<const std::uint8_t> values) {
  write_rows(dataset, first, values.data(), values.size(), Number::uint8);
}

void RowFile::write_rows(std::size_t dataset, std::size_t first, const void* values, std::size_t count,
                         Number number) {
  if (count == 0) return;
  const Hdf5Section section;
  const State::Rows& rows = state_->datasets.at(dataset);
  std::vector<hsize_t> extent = rows.shape;
  extent[0] = count / rows.values;
  WFLOW_CHECK(count % rows.values == 0 && first + extent[0] <= state_->rows);
  std::vector<hsize_t> begin(extent.size(), 0);
  begin[0] = first;
  const SpaceId whole(state_->check(H5Dget_space(rows.id.get())));
  state_->check(
      H5Sselect_hyperslab(whole.get(), H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr));
  const SpaceId memory(
      state_->check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr)));
  const hid_t type = number == Number::uint8     ? H5T_NATIVE_UINT8
                     : number == Number::float64 ? H5T_NATIVE_DOUBLE
                                                 : H5T_NATIVE_FLOAT;
  state_->check(H5Dwrite(rows.id.get(), type, memory.get(), whole.get(), H5P_DEFAULT, values));
}

void RowFile::publish() {
  {
    const Hdf5Section section;
    state_->group.close();
    for (State::Rows& rows : state_->datasets)
      if (rows.id.close() < 0) state_->check(-1);
    if (state_->file.close() < 0) state_->check(-1);
  }
  state_->durable.publish();
}

std::size_t RowFile::rows() const {
  return state_->rows;
}

struct RowFileReader::State {
  std::filesystem::path path;
  FileId file{};
  std::vector<std::int64_t> ids{};

  hid_t check(hid_t id) const {
    if (id < 0) converters::throw_hdf5(ExitCode::data, fmt::format("cannot read {}", path.string()));
    return id;
  }
  std::vector<hsize_t> extent(const DatasetId& dataset) const {
    const SpaceId space(check(H5Dget_space(dataset.get())));
    const int axes = static_cast<int>(check(H5Sget_simple_extent_ndims(space.get())));
    std::vector<hsize_t> extent(static_cast<std::size_t>(axes));
    check(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr));
    return extent;
  }
};

RowFileReader::RowFileReader(const std::filesystem::path& path) : state_(new State{path}) {
  const Hdf5Section section;
  const PropertyId access(state_->check(H5Pcreate(H5P_FILE_ACCESS)));
  H5Pset_file_locking(access.get(), false, true);
  state_->file = FileId(state_->check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get())));
  if (state_->check(H5Lexists(state_->file.get(), "id", H5P_DEFAULT)) == 0) return;
  const DatasetId id(state_->check(H5Dopen2(state_->file.get(), "id", H5P_DEFAULT)));
  state_->ids.resize(state_->extent(id).at(0));
  if (!state_->ids.empty())
    state_->check(H5Dread(id.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, state_->ids.data()));
}

RowFileReader::~RowFileReader() {
  const Hdf5Section section;
  if (state_) state_->file.close();
}

RowFileReader::RowFileReader(RowFileReader&&) noexcept = default;

const std::vector<std::int64_t>& RowFileReader::ids() const {
  return state_->ids;
}

std::optional<std::vector<std::int64_t>> RowFileReader::shape(const char* name) const {
  const Hdf5Section section;
  if (state_->check(H5Lexists(state_->file.get(), name, H5P_DEFAULT)) == 0) return std::nullopt;
  const DatasetId dataset(state_->check(H5Dopen2(state_->file.get(), name, H5P_DEFAULT)));
  const std::vector<hsize_t> extent = state_->extent(dataset);
  return std::vector<std::int64_t>(extent.begin() + 1, extent.end());
}

std::vector<double> RowFileReader::read_all(const char* name, std::vector<std::int64_t>& extent) const {
  const Hdf5Section section;
  const DatasetId dataset(state_->check(H5Dopen2(state_->file.get(), name, H5P_DEFAULT)));
  const std::vector<hsize_t> lengths = state_->extent(dataset);
  extent.assign(lengths.begin(), lengths.end());
  std::vector<double> values(
      std::accumulate(lengths.begin(), lengths.end(), hsize_t{1}, std::multiplies<>()));
  if (!values.empty())
    state_->check(H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return values;
}

bool RowFileReader::is_wide(const char* name) const {
  const Hdf5Section section;
  const DatasetId dataset(state_->check(H5Dopen2(state_->file.get(), name, H5P_DEFAULT)));
  const TypeId type(state_->check(H5Dget_type(dataset.get())));
  return H5Tget_size(type.get()) == sizeof(double);
}

std::vector<double> RowFileReader::read(const char* name, std::size_t first, std::size_t count) const {
  const Hdf5Section section;
  const DatasetId dataset(state_->check(H5Dopen2(state_->file.get(), name, H5P_DEFAULT)));
  std::vector<hsize_t> extent = state_->extent(dataset);
  extent[0] = count;
  std::vector<double> values(std::accumulate(extent.begin(), extent.end(), hsize_t{1}, std::multiplies<>()));
  if (values.empty()) return values;
  std::vector<hsize_t> begin(extent.size(), 0);
  begin[0] = first;
  const SpaceId whole(state_->check(H5Dget_space(dataset.get())));
  state_->check(
      H5Sselect_hyperslab(whole.get(), H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr));
  const SpaceId memory(
      state_->check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr)));
  state_->check(
      H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, memory.get(), whole.get(), H5P_DEFAULT, values.data()));
  return values;
}

}  // namespace wflow::trainer
