// SPDX-License-Identifier: Apache-2.0
// The CosmoFlow data of MLPerf HPC (https://github.com/mlcommons/hpc, cosmoflow) as a data set of ours:
//   HDF5      full (D, H, W, channels), int16; unitPar (4); also physPar (4), namePar
//   TFRecord  x: the bytes of such a volume; y: 4 floats; a record a file, plain or gzip
// Files below a folder train, validation (val, valid) or test keep that split.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "converters/dtype.h"

namespace wflow::converters {

struct ImportOptions {
  std::vector<std::filesystem::path> sources;  // files, or folders of them
  std::filesystem::path out;
  std::vector<std::string> labels;  // names of the parameters; empty: those of the files, or CosmoFlow's
  std::vector<std::size_t> shape;   // of x in a TFRecord, channels last; empty: a cube of 4 channels
  std::optional<DType> dtype;       // of x in a TFRecord; nothing: int16 or float32, by its size
  bool physical = false;            // HDF5: physPar in place of unitPar
  std::uint64_t subcubes = 0;       // edge of the cubes that each volume is cut into
  std::uint64_t shard_samples = 0;  // 0: about 512 MiB of values
  std::array<double, 3> split = {0.8, 0.1, 0.1};  // of files that lie in no such folder
  std::uint64_t seed = 1;
  unsigned threads = 1;
};

// Converts the files as wflow-convert does: what was stopped goes on when it is started again. Error{usage}
// where `out` holds something else, Error{data} where no file can be used.
void import_mlperf(const ImportOptions& options);

}  // namespace wflow::converters
