// SPDX-License-Identifier: Apache-2.0
// Data sets in formats of other tools: export to TFRecord, WebDataset, NPY and Zarr (docs/shards.md describes
// them), import from MLPerf HPC; and data sets in other shards.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "converters/dtype.h"
#include "converters/exchange/rows.h"
#include "converters/shards/shard_file.h"

namespace wflow::converters {

enum class ExportFormat { tfrecord, webdataset, npy, zarr };

struct ExportOptions {
  std::filesystem::path data;
  std::filesystem::path out;  // must not exist
  ExportFormat format = ExportFormat::npy;
  bool exact = false;  // tfrecord: float64 as bytes, instead of the nearest float32
  unsigned threads = 1;
};

// Writes the folder, which gets its name when all of it is on the disk, and returns a text about its content.
// Error{usage} if the folder exists, Error{data} if the data set is damaged.
std::string export_data(const ExportOptions& options);

// A format. The calls are: open_split (for each split with samples) { open_shard { add } close_shard }
// close_split, finish. prepare() runs on several threads, all others on one.
class Exporter {
 public:
  virtual ~Exporter() = default;
  Exporter() = default;
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  virtual void open_split(std::string_view /*split*/, std::uint64_t /*rows*/) {}
  virtual void open_shard(std::size_t /*number*/) {}  // number within the split
  virtual void prepare(DataRow& /*row*/) const {}
  virtual void add(const DataRow& row) = 0;
  virtual void close_shard() {}
  virtual void close_split() {}
  virtual void finish() {}
  virtual std::string note() const { return {}; }  // a remark for the user
};

// The content of the manifest except the names of shards: fields, units, normalisation, statistics, splits.
nlohmann::ordered_json export_metadata(const Manifest& manifest);

// The type in NumPy's notation: "<f4".
std::string numpy_type(std::string_view dtype);
// The first bytes of a .npy file of that array, up to its values.
std::string npy_header(std::string_view dtype, const std::vector<std::size_t>& shape);

std::unique_ptr<Exporter> make_tfrecord_exporter(const Manifest& manifest, std::filesystem::path folder,
                                                 bool exact);
std::unique_ptr<Exporter> make_webdataset_exporter(const Manifest& manifest, std::filesystem::path folder);
std::unique_ptr<Exporter> make_npy_exporter(const Manifest& manifest, std::filesystem::path folder);
std::unique_ptr<Exporter> make_zarr_exporter(const Manifest& manifest, std::filesystem::path folder);

// The CosmoFlow data of MLPerf HPC (https://github.com/mlcommons/hpc, cosmoflow) as a data set of wflow:
//   HDF5      full (D, H, W, channels), int16; unitPar (4); also physPar (4), namePar
//   TFRecord  x: the bytes of such a volume; y: 4 floats; one record in a file, plain or gzip
// Files below a folder train, validation (val, valid) or test keep that split.

struct ImportOptions {
  std::vector<std::filesystem::path> sources;  // files, or folders of them
  std::filesystem::path out;
  std::vector<std::string> labels;  // names of the parameters; empty: those of the files, or CosmoFlow's
  std::vector<std::size_t> shape;   // shape of x in a TFRecord, channels last; empty: a cube of 4 channels
  std::optional<DType> dtype;       // type of x in a TFRecord; nothing: int16 or float32, by its size
  bool physical = false;            // HDF5: physPar instead of unitPar
  std::uint64_t subcubes = 0;       // edge of the cubes into which each volume is cut
  std::uint64_t shard_samples = 0;  // 0: about 512 MiB of values
  std::array<double, 3> split = {0.8, 0.1, 0.1};  // for files in no such folder
  std::uint64_t seed = 1;
  unsigned threads = 1;
};

// Converts the files as wflow-convert does: a stopped import continues when it is started again. Error{usage}
// if `out` has other content, Error{data} if no file can be used.
void import_mlperf(const ImportOptions& options);

// Rewrites data sets in other shards: several into one (merge), one with shards of another size (reshard), or
// one in another order (sort).
// Every sample keeps its values, its split and, unless they are renumbered, its id.

struct RewriteOptions {
  std::vector<std::filesystem::path> sources;
  std::filesystem::path out;                             // must not exist
  std::uint64_t shard_samples = 0;                       // 0: as many as make about shard_bytes
  std::uint64_t shard_bytes = std::uint64_t{512} << 20;  // size of a block's shards, as stored
  std::vector<std::string> sort_by;                      // keys of the order (docs/convert.md); empty: by id
  // The bricks of fields with so many axes: cells along the last ones; empty: none. Nothing: as they are.
  std::optional<std::vector<std::size_t>> bricks;
  bool renumber = false;  // the ids of each further data set follow those of the one before
  unsigned threads = 1;
};

// Writes the folder, which gets its name when all of it is on the disk, and returns a text about its content.
// Error{usage} if the folder exists, the fields differ or two data sets have the same id; Error{data} if a
// data set is damaged.
std::string rewrite_data(const RewriteOptions& options);

// The keys of `wflow shards sort` for the samples of a shard.

// For each key, the values of all rows. A key is a field of one number, a number of a list by its name, or
// `length`: that of the data set's one ragged field; `length(NAME)` names one of several. Error{usage} if
// there is no such key.
std::vector<std::vector<double>> sort_keys(const ShardFile& shard, const Manifest& manifest,
                                           const std::vector<std::string>& keys);

}  // namespace wflow::converters
