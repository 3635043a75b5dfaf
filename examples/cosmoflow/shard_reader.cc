// SPDX-License-Identifier: Apache-2.0
#include "shard_reader.h"

#include <hdf5.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "error.h"
#include "handle.h"

namespace cola {
namespace {

namespace fs = std::filesystem;

Error wrong(const std::string& path, const std::string& sentence) {
  return Error(ExitCode::input, path + ": " + sentence);
}

Handle opened(const std::string& path, const char* what, hid_t id, herr_t (*close)(hid_t)) {
  if (id < 0) throw wrong(path, std::string("cannot read ") + what + ".");
  return Handle(id, close);
}

std::vector<hsize_t> dimensions(const std::string& path, const char* name, hid_t dataset, std::size_t rank) {
  const Handle space = opened(path, name, H5Dget_space(dataset), H5Sclose);
  const int found = H5Sget_simple_extent_ndims(space);
  if (found != static_cast<int>(rank)) {
    throw wrong(path, std::string(name) + " has " + std::to_string(found) + " dimensions, expected " +
                          std::to_string(rank) + ".");
  }
  std::vector<hsize_t> sizes(rank);
  H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
  return sizes;
}

// The attribute `names` of /y: strings of fixed or variable length.
std::vector<std::string> read_names(const std::string& path, hid_t dataset) {
  const Handle attribute =
      opened(path, "attribute names of /y", H5Aopen(dataset, "names", H5P_DEFAULT), H5Aclose);
  const Handle type = opened(path, "names", H5Aget_type(attribute), H5Tclose);
  const Handle space = opened(path, "names", H5Aget_space(attribute), H5Sclose);
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (H5Tget_class(type) != H5T_STRING || count < 0)
    throw wrong(path, "attribute names of /y holds no strings.");
  std::vector<std::string> names;
  if (H5Tis_variable_str(type) > 0) {
    std::vector<char*> values(static_cast<std::size_t>(count), nullptr);
    if (H5Aread(attribute, type, values.data()) < 0) throw wrong(path, "cannot read attribute names of /y.");
    for (const char* value : values) names.emplace_back(value == nullptr ? "" : value);
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, values.data());
  } else {
    const std::size_t size = H5Tget_size(type);
    std::string values(size * static_cast<std::size_t>(count), '\0');
    if (H5Aread(attribute, type, values.data()) < 0) throw wrong(path, "cannot read attribute names of /y.");
    for (hssize_t i = 0; i < count; ++i) {
      const std::string field = values.substr(static_cast<std::size_t>(i) * size, size);
      names.push_back(field.substr(0, std::min(field.find('\0'), field.find_last_not_of(' ') + 1)));
    }
  }
  return names;
}

void read_shard(const std::string& path, Split& split, const Visit& visit) {
  const Handle file =
      opened(path, "this as an HDF5 file", H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  const Handle x = opened(path, "/x", H5Dopen2(file, "x", H5P_DEFAULT), H5Dclose);
  const Handle y = opened(path, "/y", H5Dopen2(file, "y", H5P_DEFAULT), H5Dclose);
  const Handle id = opened(path, "/id", H5Dopen2(file, "id", H5P_DEFAULT), H5Dclose);
  const auto x_size = dimensions(path, "/x", x, 5), y_size = dimensions(path, "/y", y, 2);
  const hsize_t samples = x_size[0];
  if (y_size[0] != samples || dimensions(path, "/id", id, 1)[0] != samples) {
    throw wrong(path, "/x, /y and /id have different numbers of samples.");
  }
  const Shape shape{static_cast<int>(x_size[1]), static_cast<int>(x_size[2]), static_cast<int>(x_size[3]),
                    static_cast<int>(x_size[4])};
  const std::vector<std::string> labels = read_names(path, y);
  if (labels.size() != y_size[1]) throw wrong(path, "attribute names of /y does not name each column.");
  if (split.labels.empty()) {
    split.shape = shape;
    split.labels = labels;
  } else if (split.shape != shape || split.labels != labels) {
    throw wrong(path, "its samples have another shape or other labels than those of the files before.");
  }
  const std::size_t first = split.ids.size();
  split.ids.resize(first + samples);
  split.targets.resize((first + samples) * labels.size());
  if (samples == 0) return;
  if (H5Dread(y, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &split.targets[first * labels.size()]) <
          0 ||
      H5Dread(id, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &split.ids[first]) < 0) {
    throw wrong(path, "cannot read /y and /id.");
  }
  const Handle from = opened(path, "/x", H5Dget_space(x), H5Sclose);
  const hsize_t count[5] = {1, x_size[1], x_size[2], x_size[3], x_size[4]};
  const Handle to = opened(path, "/x", H5Screate_simple(5, count, nullptr), H5Sclose);
  std::vector<float> values(shape.size());
  for (hsize_t sample = 0; sample < samples; ++sample) {
    const hsize_t start[5] = {sample, 0, 0, 0, 0};
    if (H5Sselect_hyperslab(from, H5S_SELECT_SET, start, nullptr, count, nullptr) < 0 ||
        H5Dread(x, H5T_NATIVE_FLOAT, to, from, H5P_DEFAULT, values.data()) < 0) {
      throw wrong(path, "cannot read sample " + std::to_string(sample) + " of /x.");
    }
    visit(first + sample, shape, values);
  }
}

}  // namespace

Split read_split(const std::string& folder, const Visit& visit) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // failures are reported by our own sentence
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("shard-") && name.ends_with(".h5")) paths.push_back(entry.path().string());
  }
  if (error) throw wrong(folder, "cannot list this folder: " + error.message() + ".");
  if (paths.empty()) throw wrong(folder, "has no file shard-*.h5.");
  std::sort(paths.begin(), paths.end());
  Split split;
  for (const std::string& path : paths) read_shard(path, split, visit);
  return split;
}

}  // namespace cola
