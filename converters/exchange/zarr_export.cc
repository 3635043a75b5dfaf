// SPDX-License-Identifier: Apache-2.0
// Zarr, storage specification version 2: a group for each split with an array for each field, zlib chunks of
// a sample (or of many small ones), and consolidated metadata.
#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "converters/exchange/exchange.h"
#include "converters/exchange/rows.h"

namespace wflow::converters {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr int kLevel = 1;
constexpr std::size_t kPackBelow = 4096;                     // bytes of a sample
constexpr std::size_t kPackedChunk = std::size_t{64} << 10;  // bytes of a chunk of such samples

std::vector<std::uint8_t> zlib_stream(std::span<const std::uint8_t> bytes) {
  struct Free {
    void operator()(libdeflate_compressor* compressor) const { libdeflate_free_compressor(compressor); }
  };
  thread_local const std::unique_ptr<libdeflate_compressor, Free> compressor(
      libdeflate_alloc_compressor(kLevel));
  std::vector<std::uint8_t> stream(libdeflate_zlib_compress_bound(compressor.get(), bytes.size()));
  stream.resize(
      libdeflate_zlib_compress(compressor.get(), bytes.data(), bytes.size(), stream.data(), stream.size()));
  WFLOW_CHECK(!stream.empty());
  return stream;
}

// An array of the group during writing.
struct ZarrArray {
  std::string name;
  std::string dtype;
  std::vector<std::size_t> shape;  // shape of a row
  std::size_t rows_per_chunk = 1;
  std::vector<std::uint8_t> pending;  // rows of a chunk that is not full
  std::size_t chunks = 0;

  ZarrArray(std::string array, std::string type, std::vector<std::size_t> row_shape)
      : name(std::move(array)), dtype(std::move(type)), shape(std::move(row_shape)) {
    const std::size_t bytes = row_bytes();
    rows_per_chunk = bytes < kPackBelow ? kPackedChunk / std::max<std::size_t>(1, bytes) : 1;
  }
  std::size_t row_bytes() const {
    std::size_t bytes = dtype_size(parse_dtype(dtype).value_or(DType::float32));
    for (const std::size_t length : shape) bytes *= length;
    return bytes;
  }
  // "3.0.0.0": the key of the chunk with that number; a row is never cut.
  std::string chunk_name(std::size_t chunk) const {
    std::string text = fmt::to_string(chunk);
    for (std::size_t k = 0; k < shape.size(); ++k) text += ".0";
    return text;
  }
  Json description(std::uint64_t rows) const {
    std::vector<std::size_t> all = {rows};
    std::vector<std::size_t> chunk = {rows_per_chunk};
    all.insert(all.end(), shape.begin(), shape.end());
    chunk.insert(chunk.end(), shape.begin(), shape.end());
    return {{"zarr_format", 2},
            {"shape", all},
            {"chunks", chunk},
            {"dtype", numpy_type(dtype)},
            {"compressor", {{"id", "zlib"}, {"level", kLevel}}},
            {"fill_value", 0},
            {"order", "C"},
            {"filters", nullptr}};
  }
};

class ZarrExporter final : public Exporter {
 public:
  ZarrExporter(const Manifest& manifest, fs::path folder)
      : manifest_(manifest), folder_(std::move(folder)), metadata_(export_metadata(manifest)) {}

  void open_split(std::string_view split, std::uint64_t rows) override {
    split_ = split;
    arrays_.clear();
    for (const FieldInfo& field : manifest_.fields)
      arrays_.emplace_back(field.name, field.dtype, field.shape);
    arrays_.emplace_back("id", "int64", std::vector<std::size_t>{});
    put(split_ + "/.zgroup", {{"zarr_format", 2}});
    for (std::size_t k = 0; k < arrays_.size(); ++k) {
      const std::string array = split_ + "/" + arrays_[k].name;
      put(array + "/.zarray", arrays_[k].description(rows));
      put(array + "/.zattrs", attributes(k));
    }
  }
  void prepare(DataRow& row) const override {
    for (std::size_t k = 0; k < row.fields.size(); ++k) {
      if (arrays_[k].rows_per_chunk == 1) row.fields[k] = zlib_stream(row.fields[k]);
    }
  }
  void add(const DataRow& row) override {
    for (std::size_t k = 0; k < row.fields.size(); ++k) add_row(arrays_[k], row.fields[k]);
    add_row(arrays_.back(), {reinterpret_cast<const std::uint8_t*>(&row.id), sizeof row.id});
  }
  void close_split() override {
    for (ZarrArray& array : arrays_) {
      if (!array.pending.empty()) write_packed(array);
    }
  }
  void finish() override {
    put(".zgroup", {{"zarr_format", 2}});
    put(".zattrs", {{"wflow", metadata_}});
    write(".zmetadata", {{"zarr_consolidated_format", 1}, {"metadata", consolidated_}});
  }

 private:
  void add_row(ZarrArray& array, std::span<const std::uint8_t> bytes) {
    if (array.rows_per_chunk == 1) {
      write_chunk(array, bytes);
      return;
    }
    array.pending.insert(array.pending.end(), bytes.begin(), bytes.end());
    if (array.pending.size() == array.rows_per_chunk * array.row_bytes()) write_packed(array);
  }
  // A chunk is always complete; bytes behind the last row are zero.
  void write_packed(ZarrArray& array) {
    array.pending.resize(array.rows_per_chunk * array.row_bytes(), 0);
    write_chunk(array, zlib_stream(array.pending));
    array.pending.clear();
  }
  void write_chunk(ZarrArray& array, std::span<const std::uint8_t> stream) {
    OutputFile file(folder_ / split_ / array.name / array.chunk_name(array.chunks++));
    file.write(stream);
    file.close();
  }
  // xarray takes the names of the axes from _ARRAY_DIMENSIONS.
  Json attributes(std::size_t k) const {
    Json attributes = {{"_ARRAY_DIMENSIONS", {"sample"}}};
    if (k == manifest_.fields.size()) return attributes;
    const FieldInfo& field = manifest_.fields[k];
    for (const char axis : field.layout)
      attributes["_ARRAY_DIMENSIONS"].push_back(fmt::format("{}_{}", field.name, axis));
    attributes.update(metadata_.at("fields").at(k));
    attributes["statistics"] = metadata_.at("statistics").at(field.name);
    return attributes;
  }
  void put(const std::string& name, Json json) {
    write(name, json);
    consolidated_[name] = std::move(json);
  }
  void write(const std::string& name, const Json& json) const {
    make_directories((folder_ / name).parent_path());
    OutputFile file(folder_ / name);
    file.write(json.dump(2) + "\n");
    file.close();
  }

  const Manifest& manifest_;
  fs::path folder_;
  Json metadata_;
  Json consolidated_;
  std::string split_;
  std::vector<ZarrArray> arrays_;
};

}  // namespace

std::unique_ptr<Exporter> make_zarr_exporter(const Manifest& manifest, fs::path folder) {
  return std::make_unique<ZarrExporter>(manifest, std::move(folder));
}

}  // namespace wflow::converters
