// SPDX-License-Identifier: Apache-2.0
// One shard, opened for reading: where each sample's bytes lie, and how to make values of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "converters/dtype.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

// What one reading thread needs; kept between reads so that nothing is allocated a sample.
struct ReadScratch {
  Decoder decoder;
  std::vector<std::uint8_t> stored;
  std::vector<std::uint8_t> raw;
};

struct ChunkPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mask = 0;
  std::uint64_t hash = 0;
};

// Everything that HDF5 has to tell about a shard; after this no call of it is needed.
struct ShardLayout {
  // direct: a sample is a range of the file. library: chunks or filters of another tool, read through HDF5.
  enum class Access { direct, library };
  Access access = Access::direct;
  std::array<std::size_t, 4> shape{};
  DType dtype = DType::float32;
  Filters filters;
  bool has_hashes = false;  // the index is that of this very file
  std::size_t labels = 0;
  std::vector<std::int64_t> ids;
  std::vector<double> targets;  // ids.size() * labels
  std::vector<ChunkPlace> chunks;
};

ShardLayout read_shard_layout(const std::filesystem::path& path);

class ShardFile {
 public:
  // keep_open: hold a descriptor, which saves an open(2) a sample.
  ShardFile(std::filesystem::path path, bool keep_open);

  const std::filesystem::path& path() const { return path_; }
  const ShardLayout& layout() const { return layout_; }
  std::size_t size() const { return layout_.ids.size(); }
  std::size_t sample_bytes() const;

  // Sample `row` in the stored type, and as float32. Thread-safe. Error{data} where the bytes are damaged.
  void read_stored(std::size_t row, ReadScratch& scratch, std::span<std::uint8_t> raw, bool verify) const;
  void read_float(std::size_t row, ReadScratch& scratch, std::span<float> x, bool verify) const;

 private:
  std::filesystem::path path_;
  ShardLayout layout_;
  FileDescriptor fd_;
};

}  // namespace wflow::converters
