// SPDX-License-Identifier: Apache-2.0
// The checkpoint file (docs/formats/checkpoints.md): arrays by name in plain layout, counters and
// configuration in a JSON header. Nothing in it depends on the number of ranks. Arrays are written and read
// in pieces, so that neither needs memory for a second copy of the state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

inline constexpr int kCheckpointVersion = 2;
inline constexpr std::size_t kHashLength = 32;  // length of hash_bytes() at the end of the file
inline constexpr std::size_t kPieceFloats = std::size_t{1} << 20;

// An array in the memory of the training.
struct CheckpointView {
  std::string kind;  // "parameter", "buffer", or an optimiser's state: "first_moment", ...
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
  // Set for an array of which each rank has a part, `values`: its number among the arrays of the network.
  std::optional<std::size_t> shared = {};
  std::size_t count() const;
};

// All state of a trainer, in place.
struct Snapshot {
  nlohmann::json header;  // all but the arrays
  std::vector<CheckpointView> arrays;
  std::size_t bytes() const;  // of the arrays
};
// The same with arrays of its own.
class SnapshotCopy {
 public:
  explicit SnapshotCopy(const Snapshot& from);
  SnapshotCopy(const SnapshotCopy&) = delete;
  SnapshotCopy& operator=(const SnapshotCopy&) = delete;
  const Snapshot& get() const { return copy_; }

 private:
  Snapshot copy_;
  std::vector<std::vector<float>> values_;
};

// Gives `count` values of an array from `first` on, valid until the next call.
using PieceSource =
    std::function<std::span<const float>(const CheckpointView&, std::size_t first, std::size_t count)>;
// Calls the source for the pieces of each array, in order.
void for_pieces(const CheckpointView& array, const PieceSource& source,
                const std::function<void(std::span<const float>)>& call);

// Writes the file, which is durable on return. Returns the checksum at its end. `source`: for arrays of which
// each rank has a share.
std::string write_checkpoint(const std::filesystem::path& path, const Snapshot& snapshot,
                             const PieceSource& source = {});

// A checkpoint to read from.
class CheckpointReader {
 public:
  struct Entry {
    std::string kind;
    std::string name;
    std::vector<std::int64_t> shape;
    std::uint64_t position = 0;  // in the file
    std::uint64_t count = 0;     // of floats
    std::string hash;            // of the array; empty in files of version 1
  };
  virtual ~CheckpointReader() = default;

  const std::string& name() const { return name_; }  // in messages
  const nlohmann::json& header() const { return header_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(std::string_view kind, std::string_view name) const;  // null: there is none
  // Reads the values of an array from `first` on. Error{data} if the array is not the one that was written.
  void read(const Entry& entry, std::size_t first, std::span<float> values) const;

 protected:
  CheckpointReader() = default;
  virtual void read_piece(const Entry& entry, std::size_t first, std::span<float> values) const = 0;

  std::string name_;
  nlohmann::json header_;
  std::vector<Entry> entries_;
};

class CheckpointFile final : public CheckpointReader {
 public:
  // Error{data} for a file that is damaged anywhere: the whole file is read once. Error{version} for a newer
  // format.
  explicit CheckpointFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  void read_piece(const Entry& entry, std::size_t first, std::span<float> values) const override;

 private:
  std::string bytes_at(std::uint64_t position, std::size_t count) const;

  std::filesystem::path path_;
  FileDescriptor file_;
};

// Rank 0's checkpoint, read on all ranks: the file systems of other nodes need not have it. read() is a
// collective call, and an error of rank 0 is thrown on all ranks.
class SharedCheckpoint final : public CheckpointReader {
 public:
  // A collective call. `file`: that of rank 0; ignored on the other ranks. Null on all ranks if it is null.
  static std::unique_ptr<SharedCheckpoint> share(Communicator& communicator,
                                                 std::unique_ptr<CheckpointFile> file);

 private:
  SharedCheckpoint(Communicator& communicator, std::unique_ptr<CheckpointFile> file,
                   const std::string& table);
  void read_piece(const Entry& entry, std::size_t first, std::span<float> values) const override;

  Communicator& communicator_;
  std::unique_ptr<CheckpointFile> file_;
};

// The files of one training run: the last few step-<12 digits>.wfck, best.wfck and beginning.wfck.
class CheckpointDirectory {
 public:
  static constexpr std::int64_t kNoLimit = 1'000'000'000'000;  // more steps than the digits of a file name
  CheckpointDirectory(std::filesystem::path directory, std::int64_t keep);

  struct Written {
    std::filesystem::path path;
    std::string hash;
  };
  // Then removes older ones beyond `keep`, except those of `keep_steps`.
  Written write(std::int64_t step, const Snapshot& snapshot, std::span<const std::int64_t> keep_steps = {},
                const PieceSource& source = {}) const;
  void write_best(const Snapshot& snapshot, const PieceSource& source = {}) const;
  // The state at the start of this run, which the guard returns to while there is no other.
  void write_beginning(const Snapshot& snapshot, const PieceSource& source = {}) const;
  void remove_beginning() const;

  // Calls `report` with a sentence for each damaged one.
  using Report = std::function<void(const std::string&)>;
  // The newest intact checkpoint before step `limit`; null if there is none.
  std::unique_ptr<CheckpointFile> newest(const Report& report, std::int64_t limit = kNoLimit) const;
  // Null if it is missing or damaged.
  std::unique_ptr<CheckpointFile> best(const Report& report) const;
  std::unique_ptr<CheckpointFile> beginning(const Report& report) const;
  // Removes the checkpoints from `step` on, but not best.wfck.
  void remove_from(std::int64_t step) const;
  // Removes all checkpoints, and temporary files of a killed run.
  void clear() const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path path_of(std::int64_t step) const;
  std::unique_ptr<CheckpointFile> named(const char* name, const Report& report) const;
  std::vector<std::filesystem::path> files() const;  // newest first
  std::filesystem::path directory_;
  std::int64_t keep_;
};

}  // namespace wflow::trainer
