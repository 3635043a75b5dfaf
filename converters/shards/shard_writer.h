// SPDX-License-Identifier: Apache-2.0
// Writes one shard, chunk by chunk, in memory that does not grow with its size.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "converters/dtype.h"
#include "converters/shards/codec.h"

namespace wflow::converters {

struct ShardDescription {
  std::array<std::size_t, 4> shape{};
  DType dtype = DType::float32;
  Filters filters;
  int level = 1;  // recorded in the filter's parameters; the encoder compresses
  std::vector<std::string> labels;
  std::vector<std::string> channels;
  std::string units;
  std::string split;
  std::uint64_t block = 0;
  std::uint64_t most_samples = 0;
};

// The same calls give the same bytes. All throw Error{system} when the disk refuses.
class ShardWriter {
 public:
  ShardWriter(const std::filesystem::path& target, const ShardDescription& description);
  ShardWriter(ShardWriter&&) noexcept;
  ~ShardWriter();  // an unpublished file is removed

  // In ascending order of id.
  void add(std::int64_t id, std::span<const double> targets, const EncodedChunk& chunk);
  std::uint64_t samples() const;
  // Writes all that is not chunks and closes the file, still under its temporary name.
  void close(std::span<const std::int64_t> missing);
  const std::filesystem::path& temporary() const;
  // The file takes its name. Only after close().
  void publish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::converters
