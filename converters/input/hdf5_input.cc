// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "converters/input/hdf5_handle.h"
#include "converters/input/input.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

herr_t collect_dataset(hid_t group, const char* name, const H5L_info_t*, void* names) {
  const DatasetId dataset(H5Dopen2(group, name, H5P_DEFAULT));
  if (dataset) static_cast<std::vector<std::string>*>(names)->emplace_back(std::string("/") + name);
  return 0;
}

std::vector<std::string> root_datasets(const FileId& file) {
  std::vector<std::string> names;
  H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_dataset, &names);
  return names;
}

DatasetId open_dataset(const FileId& file, const fs::path& path, std::string name) {
  const auto available = [&] {
    const auto names = root_datasets(file);
    return names.empty() ? std::string("its root group has none") : "it has " + text::join(names, ", ");
  };
  if (name.empty()) {
    const auto names = root_datasets(file);
    if (names.size() != 1) {
      throw Error(ExitCode::data,
                  fmt::format("{} does not hold just one dataset ({}); name it with the key 'dataset'",
                              path.string(), available()));
    }
    name = names.front();
  }
  DatasetId dataset(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
  if (!dataset) {
    throw Error(ExitCode::data, fmt::format("{} has no dataset {}; {}{}", path.string(), name, available(),
                                            text::suggestion(name, root_datasets(file))));
  }
  return dataset;
}

// A dataset of numbers, open.
struct Source {
  FileId file;
  DatasetId dataset;
  SpaceId space;
  FileForm form;
};

Source open_source(const fs::path& path, const ConvertConfig& config) {
  FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  DatasetId dataset = open_dataset(file, path, config.dataset);
  const TypeId type(H5Dget_type(dataset.get()));
  const auto dtype = dtype_of(type.get());
  if (!dtype) {
    throw Error(ExitCode::data,
                fmt::format("the dataset of {} is not of integers of 1 to 8 bytes or floats of 4 or 8",
                            path.string()));
  }
  SpaceId space(H5Dget_space(dataset.get()));
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> dims(rank > 0 ? static_cast<std::size_t>(rank) : 0);
  if (rank > 0) H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  return {std::move(file), std::move(dataset), std::move(space), {*dtype, {dims.begin(), dims.end()}}};
}

// Leaves only `row` selected; gives the matching space in memory.
SpaceId select_row(const Source& source, std::uint64_t row) {
  const std::vector<std::size_t>& shape = source.form.shape;
  std::vector<hsize_t> start(shape.size());
  std::vector<hsize_t> count(shape.begin(), shape.end());
  start[0] = row;
  count[0] = 1;
  H5Sselect_hyperslab(source.space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
  return SpaceId(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr));
}

}  // namespace

FileForm hdf5_form(const fs::path& path, const ConvertConfig& config) {
  const InputFile plain(path);
  const Hdf5Section section;
  return open_source(path, config).form;
}

Array read_hdf5(const fs::path& path, const ConvertConfig& config, Row row) {
  const InputFile plain(path);  // our own messages for what is no regular file
  const Hdf5Section section;
  const Source source = open_source(path, config);
  Array array{source.form.dtype, row ? row_shape(path, source.form.shape, *row) : source.form.shape, {}};
  const auto bytes = array_bytes(array.dtype, array.shape);
  if (!bytes) {
    throw Error(ExitCode::data,
                fmt::format("{} holds more than 4 GiB, which no sample may have", path.string()));
  }
  array.bytes.resize(*bytes);
  const SpaceId memory = row ? select_row(source, *row) : SpaceId();
  const hid_t in_memory = row ? memory.get() : H5S_ALL;
  const hid_t in_file = row ? source.space.get() : H5S_ALL;
  if (*bytes > 0 && H5Dread(source.dataset.get(), native_type(array.dtype), in_memory, in_file, H5P_DEFAULT,
                            array.bytes.data()) < 0) {
    throw_hdf5(ExitCode::data, fmt::format("cannot read the dataset of {}", path.string()));
  }
  return array;
}

}  // namespace wflow::converters
