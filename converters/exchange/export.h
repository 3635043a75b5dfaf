// SPDX-License-Identifier: Apache-2.0
// A data set in formats of other tools: TFRecord, WebDataset, NPY, Zarr. docs/shards.md says what each looks
// like.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "converters/exchange/rows.h"

namespace wflow::converters {

enum class ExportFormat { tfrecord, webdataset, npy, zarr };

struct ExportOptions {
  std::filesystem::path data;
  std::filesystem::path out;  // must not exist
  ExportFormat format = ExportFormat::npy;
  bool exact = false;  // tfrecord: float64 as bytes, in place of the nearest float32
  unsigned threads = 1;
};

// The folder takes its name when all of it is on the disk. The text says what was written. Error{usage}
// where the folder exists, Error{data} where the data set is damaged.
std::string export_data(const ExportOptions& options);

// A format. The calls are: open_split (of each with samples) { open_shard { add } close_shard } close_split,
// finish. prepare() runs on several threads, all others on one.
class Exporter {
 public:
  virtual ~Exporter() = default;
  Exporter() = default;
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  virtual void open_split(std::string_view /*split*/, std::uint64_t /*rows*/) {}
  virtual void open_shard(std::size_t /*number*/) {}  // of the split
  virtual void prepare(DataRow& /*row*/) const {}
  virtual void add(const DataRow& row) = 0;
  virtual void close_shard() {}
  virtual void close_split() {}
  virtual void finish() {}
  virtual std::string note() const { return {}; }  // what the user should know
};

// What the manifest says but the names of shards: fields, units, normalisation, statistics, splits.
nlohmann::ordered_json export_metadata(const Manifest& manifest);

// The type as NumPy writes it: "<f4".
std::string numpy_type(std::string_view dtype);
// The first bytes of a .npy file of that array, up to its values.
std::string npy_header(std::string_view dtype, const std::vector<std::size_t>& shape);

std::unique_ptr<Exporter> make_tfrecord_exporter(const Manifest& manifest, std::filesystem::path folder,
                                                 bool exact);
std::unique_ptr<Exporter> make_webdataset_exporter(const Manifest& manifest, std::filesystem::path folder);
std::unique_ptr<Exporter> make_npy_exporter(const Manifest& manifest, std::filesystem::path folder);
std::unique_ptr<Exporter> make_zarr_exporter(const Manifest& manifest, std::filesystem::path folder);

}  // namespace wflow::converters
