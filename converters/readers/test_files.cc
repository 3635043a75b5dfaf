// SPDX-License-Identifier: Apache-2.0
#include "converters/readers/test_files.h"

#include <fmt/format.h>
#include <netcdf.h>
#include <png.h>
#include <zip.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/protobuf.h"
#include "converters/input/hdf5_handle.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

template <typename Value>
void put(std::string& bytes, Value value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename Value>
std::vector<Value> ramp(std::size_t count) {
  std::vector<Value> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<Value>(i);
  return values;
}

template <typename Value>
std::string bytes_of_ramp(std::size_t count) {
  const auto values = ramp<Value>(count);
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(Value)};
}

std::string npy_bytes_of(const std::string& dict, const std::string& data) {
  std::string header = dict;
  header.append(118 - 1 - header.size(), ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += header;
  return bytes += data;
}

std::string record(const std::string& content) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(content.size()));
  bytes += content;
  put(bytes, static_cast<std::uint32_t>(content.size()));
  return bytes;
}

// Eight particles of type 1 and mass 2, at the centres of the cells of a grid of 2 in a box of 4.
std::string gadget(bool labelled) {
  std::string header;
  for (std::uint32_t type = 0; type < 6; ++type) put(header, type == 1 ? 8U : 0U);
  for (std::uint32_t type = 0; type < 6; ++type) put(header, type == 1 ? 2.0 : 0.0);
  header.resize(124);
  put(header, std::uint32_t{1});
  put(header, 4.0);
  header.resize(256);
  std::string positions;
  for (int i = 0; i < 8; ++i) {
    for (const int shift : {2, 1, 0}) put(positions, (i >> shift & 1) != 0 ? 3.0F : 1.0F);
  }
  std::string bytes;
  const std::array<std::pair<const char*, std::string>, 4> blocks = {
      std::pair<const char*, std::string>{"HEAD", header},
      {"POS ", positions},
      {"VEL ", std::string(96, '\0')},
      {"ID  ", std::string(32, '\0')}};
  for (const auto& [label, content] : blocks) {
    std::string name = label;
    put(name, static_cast<std::uint32_t>(content.size() + 8));
    if (labelled) bytes += record(name);
    bytes += record(content);
  }
  return bytes;
}

// A field of a protocol buffer with bytes.
std::string proto(int number, const std::string& content) {
  std::string bytes(1, static_cast<char>(number << 3 | 2));
  for (std::size_t length = content.size();; length >>= 7) {
    bytes += static_cast<char>((length & 0x7F) | (length > 0x7F ? 0x80 : 0));
    if (length <= 0x7F) break;
  }
  return bytes + content;
}

// x: a byte string of 24 int16; y: 4 floats, packed; z: 2 integers, one field each.
std::string tfrecord() {
  const auto feature = [](const char* name, int kind, const std::string& list) {
    return proto(1, proto(1, name) + proto(2, proto(kind, list)));
  };
  const std::string example = proto(1, feature("x", 1, proto(1, bytes_of_ramp<std::int16_t>(24))) +
                                           feature("y", 2, proto(1, bytes_of_ramp<float>(4))) +
                                           feature("z", 3, "\x08\x05\x08\x81\x01"));
  return tfrecord_of(example);
}

void write_npz(const fs::path& path) {
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  WFLOW_CHECK(archive != nullptr);
  const std::string array =
      npy_bytes_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 6), }", bytes_of_ramp<float>(24));
  const std::string other =
      npy_bytes_of("{'descr': '<c16', 'fortran_order': True, 'shape': (2, 3), }", bytes_of_ramp<double>(12));
  zip_file_add(archive, "a.npy", zip_source_buffer(archive, array.data(), array.size(), 0), 0);
  zip_file_add(archive, "b.npy", zip_source_buffer(archive, other.data(), other.size(), 0), 0);
  WFLOW_CHECK(zip_close(archive) == 0);
}

void write_netcdf(const fs::path& path, int kind) {
  const Hdf5Section section;
  int file = 0;
  WFLOW_CHECK(nc_create(path.c_str(), NC_CLOBBER | kind, &file) == NC_NOERR);
  std::array<int, 2> dimensions{};
  nc_def_dim(file, "y", 4, dimensions.data());
  nc_def_dim(file, "x", 6, &dimensions[1]);
  int variable = 0;
  nc_def_var(file, "u", NC_SHORT, 2, dimensions.data(), &variable);
  const float scale = 0.5F;
  const float offset = 10;
  nc_put_att_float(file, variable, "scale_factor", NC_FLOAT, 1, &scale);
  nc_put_att_float(file, variable, "add_offset", NC_FLOAT, 1, &offset);
  nc_enddef(file);
  const auto values = ramp<short>(24);
  nc_put_var_short(file, variable, values.data());
  WFLOW_CHECK(nc_close(file) == NC_NOERR);
}

void write_hdf5(const fs::path& path) {
  const Hdf5Section section;
  const FileId file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  const std::array<hsize_t, 2> dims = {4, 6};
  const SpaceId space(H5Screate_simple(2, dims.data(), nullptr));
  const PropertyId creation(H5Pcreate(H5P_DATASET_CREATE));
  const std::array<hsize_t, 2> chunk = {2, 6};
  H5Pset_chunk(creation.get(), 2, chunk.data());
  H5Pset_shuffle(creation.get());
  H5Pset_deflate(creation.get(), 1);
  const DatasetId dataset(
      H5Dcreate2(file.get(), "/u", H5T_IEEE_F64BE, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  const auto values = ramp<double>(24);
  H5Dwrite(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  const SpaceId scalar(H5Screate(H5S_SCALAR));
  const AttributeId attribute(
      H5Acreate2(dataset.get(), "time", H5T_IEEE_F32LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT));
  const float time = 3;
  H5Awrite(attribute.get(), H5T_NATIVE_FLOAT, &time);
}

void write_png(const fs::path& path, std::uint32_t format) {
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = 6;
  image.height = 4;
  image.format = format;
  std::vector<std::uint8_t> pixels = ramp<std::uint8_t>(PNG_IMAGE_SIZE(image));
  WFLOW_CHECK(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
}

Selector of(Format format) {
  Selector selector;
  selector.format = format;
  return selector;
}

}  // namespace

std::vector<TestFile> write_test_files(const fs::path& folder) {
  const auto write = [&](const char* name, const std::string& bytes) {
    write_file_durably(folder / name, bytes);
  };
  std::vector<TestFile> files;
  const auto add = [&](const char* name, Selector selector, std::vector<std::size_t> shape) {
    files.push_back({name, std::move(selector), std::move(shape)});
  };
  write("u.npy", npy_bytes_of("{'descr': '>i2', 'fortran_order': True, 'shape': (4, 6), }",
                              bytes_of_ramp<std::int16_t>(24)));
  add("u.npy", of(Format::npy), {4, 6});
  write("h.npy", npy_bytes_of("{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }",
                              std::string("\x00\x3c\x00\xc0\xff\x7b", 6)));
  add("h.npy", of(Format::npy), {3});
  write_npz(folder / "u.npz");
  Selector a = of(Format::npz);
  a.dataset = "a";
  add("u.npz", a, {4, 6});
  a.dataset = "b";
  add("u.npz", a, {2, 3, 2});
  Selector raw = of(Format::raw);
  raw.raw.dtype = DType::float64;
  raw.raw.shape = {4, 6};
  raw.raw.offset = 3;
  write("u.raw", "abc" + bytes_of_ramp<double>(24));
  add("u.raw", raw, {4, 6});
  raw.raw.offset = 0;
  raw.raw.markers = 4;
  raw.raw.fortran_order = true;
  write("records.raw", record(bytes_of_ramp<double>(20)) + record(bytes_of_ramp<double>(4)));
  add("records.raw", raw, {4, 6});
  write_netcdf(folder / "classic.nc", 0);
  Selector variable = of(Format::netcdf);
  variable.dataset = "u";
  add("classic.nc", variable, {4, 6});
  write_netcdf(folder / "four.nc", NC_NETCDF4);
  add("four.nc", variable, {4, 6});
  write_hdf5(folder / "u.h5");
  Selector dataset = of(Format::hdf5);
  dataset.dataset = "/u";
  add("u.h5", dataset, {4, 6});
  dataset.attribute = "time";
  add("u.h5", dataset, {});
  write("t.csv", "t,\"x\",v\n0,1.5,2\n1,2.5,-3e2\n2,nan,4\n");
  Selector columns = of(Format::csv);
  columns.columns = {"x", "v"};
  add("t.csv", columns, {3, 2});
  write("t.txt", "# t x v\n0 1.5 2\n1 2.5 3\n");
  columns.columns = {"v"};
  add("t.txt", columns, {2});
  write("log.txt", "step 1\nE = 1.5\nE = 2.5D0 K = 7\n");
  Selector text = of(Format::text);
  text.regex = "E = (\\S+)";
  text.match = Match::all;
  add("log.txt", text, {2});
  write("r.json", R"({"result": {"energy": 1.5, "list": [[1, 2], [3, null]]}})");
  Selector json = of(Format::json);
  json.json = "$.result.list";
  add("r.json", json, {2, 2});
  write_png(folder / "grey.png", PNG_FORMAT_GRAY);
  add("grey.png", of(Format::image), {4, 6});
  write_png(folder / "colour.png", PNG_FORMAT_RGB);
  add("colour.png", of(Format::image), {4, 6, 3});
  write("u.pgm", "P5\n# a comment\n6 4\n255\n" + bytes_of_ramp<std::uint8_t>(24));
  add("u.pgm", of(Format::image), {4, 6});
  write("plain.pgm", "P2 3 2 300 0 1 2 3 4 300\n");
  add("plain.pgm", of(Format::image), {2, 3});
  Selector particles = of(Format::gadget);
  particles.gadget.grid = 2;
  particles.gadget.types = {1};
  write("snap1", gadget(false));
  add("snap1", particles, {2, 2, 2});
  write("snap2", gadget(true));
  add("snap2", particles, {2, 2, 2});
  write("u.tfrecord", tfrecord());
  Selector feature = of(Format::tfrecord);
  feature.dataset = "y";
  add("u.tfrecord", feature, {4});
  feature.dataset = "x";
  feature.raw.dtype = DType::int16;
  feature.raw.shape = {4, 6};
  add("u.tfrecord", feature, {4, 6});
  return files;
}

}  // namespace wflow::converters
