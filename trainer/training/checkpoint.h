// SPDX-License-Identifier: Apache-2.0
// The checkpoint file: docs/formats/checkpoints.md. Arrays by name in plain layout, counters and
// configuration in a JSON header; nothing in it depends on the number of ranks.
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
inline constexpr std::size_t kHashLength = 32;  // of hash_bytes(), at the end of the file

struct CheckpointArray {
  std::string kind;  // "parameter", "buffer", or an optimiser's state: "first_moment", ...
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  bool operator==(const CheckpointArray&) const = default;
};

struct Checkpoint {
  nlohmann::json header;  // whatever the trainer keeps besides arrays
  std::vector<CheckpointArray> arrays;
  const CheckpointArray* find(std::string_view kind, std::string_view name) const;
};

// An array that is still where the training computes on it.
struct CheckpointView {
  std::string kind;
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};
// The bytes of a checkpoint without the checksum at their end, in one copy of the arrays; sealed() adds it.
std::string encode_unsealed(nlohmann::json header, std::span<const CheckpointView> arrays);
std::string sealed(std::string unsealed);
std::string encode_checkpoint(const Checkpoint& checkpoint);  // sealed
// Error{data} for damaged bytes, Error{version} for a newer format; `name` is for the message.
Checkpoint decode_checkpoint(std::string_view bytes, const std::string& name);

// The files of one training run: step-<12 digits>.wfck, the last few, and best.wfck.
class CheckpointDirectory {
 public:
  static constexpr std::int64_t kNoLimit = 1'000'000'000'000;  // more steps than a file's name has digits for
  CheckpointDirectory(std::filesystem::path directory, std::int64_t keep);

  struct Written {
    std::filesystem::path path;
    std::string hash;
  };
  // The bytes of a sealed checkpoint. Durable when it returns; older ones beyond `keep` are then removed, but
  // for those of `keep_steps`.
  Written write(std::int64_t step, const std::string& bytes,
                std::span<const std::int64_t> keep_steps = {}) const;
  Written write_best(const std::string& bytes) const;

  // The bytes of the newest checkpoint before `limit` that is whole, checked; `report` gets a sentence for
  // each damaged one.
  struct Found {
    std::filesystem::path path;
    std::string bytes;
  };
  std::optional<Found> newest(const std::function<void(const std::string&)>& report,
                              std::int64_t limit = kNoLimit) const;
  // Those of `step` and later ones are removed, best.wfck stays.
  void remove_from(std::int64_t step) const;
  // The bytes of the best one, checked; empty where there is none or it is damaged.
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
