// SPDX-License-Identifier: Apache-2.0
// The checkpoint file (docs/formats/checkpoints.md): arrays by name in plain layout, counters and
// configuration in a JSON header. Nothing in it depends on the number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::trainer {

inline constexpr int kCheckpointVersion = 1;
inline constexpr std::size_t kHashLength = 32;  // length of hash_bytes() at the end of the file

struct CheckpointArray {
  std::string kind;  // "parameter", "buffer", or an optimiser's state: "first_moment", ...
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  bool operator==(const CheckpointArray&) const = default;
};

struct Checkpoint {
  nlohmann::json header;  // all state of the trainer but the arrays
  std::vector<CheckpointArray> arrays;
  const CheckpointArray* find(std::string_view kind, std::string_view name) const;
};

// An array in the memory of the training.
struct CheckpointView {
  std::string kind;
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};
// The bytes of a checkpoint without the final checksum, which sealed() adds. Copies the arrays once.
std::string encode_unsealed(nlohmann::json header, std::span<const CheckpointView> arrays);
std::string sealed(std::string unsealed);
std::string encode_checkpoint(const Checkpoint& checkpoint);  // sealed
// Error{data} for damaged bytes, Error{version} for a newer format; `name` is used in the message.
Checkpoint decode_checkpoint(std::string_view bytes, const std::string& name);

// The files of one training run: the last few step-<12 digits>.wfck, and best.wfck.
class CheckpointDirectory {
 public:
  static constexpr std::int64_t kNoLimit = 1'000'000'000'000;  // more steps than the digits of a file name
  CheckpointDirectory(std::filesystem::path directory, std::int64_t keep);

  struct Written {
    std::filesystem::path path;
    std::string hash;
  };
  // Writes the bytes of a sealed checkpoint, which is durable on return. Then removes older ones beyond
  // `keep`, except those of `keep_steps`.
  Written write(std::int64_t step, const std::string& bytes,
                std::span<const std::int64_t> keep_steps = {}) const;
  Written write_best(const std::string& bytes) const;

  // The newest intact checkpoint before step `limit`. Calls `report` with a sentence for each damaged one.
  struct Found {
    std::filesystem::path path;
    std::string bytes;
  };
  std::optional<Found> newest(const std::function<void(const std::string&)>& report,
                              std::int64_t limit = kNoLimit) const;
  // Removes the checkpoints from `step` on, but not best.wfck.
  void remove_from(std::int64_t step) const;
  // The bytes of best.wfck; empty if it is missing or damaged.
  std::string best_bytes(const std::function<void(const std::string&)>& report) const;
  // Removes all checkpoints, and temporary files of a killed run.
  void clear() const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path path_of(std::int64_t step) const;
  std::vector<std::filesystem::path> files() const;  // newest first
  std::filesystem::path directory_;
  std::int64_t keep_;
};

}  // namespace wflow::trainer
