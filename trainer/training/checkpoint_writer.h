// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints on its own thread: the training only copies its state and continues; checksum, write,
// fsync and the removal of old files happen in parallel. A state of more than kMostCopiedBytes is not copied:
// the training waits until it is written.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/training/checkpoint.h"

namespace wflow::trainer {

class CheckpointWriter {
 public:
  static constexpr std::size_t kMostCopiedBytes = std::size_t{1} << 30;
  // Called on the writer's thread when a file is durable; must not throw.
  using Done = std::function<void(const CheckpointDirectory::Written&)>;

  explicit CheckpointWriter(const CheckpointDirectory& directory,
                            std::size_t most_copied_bytes = kMostCopiedBytes);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  // Writes the waiting checkpoints and drops their errors: call finish() before.
  ~CheckpointWriter();

  // At most one checkpoint waits while another is written, to bound memory: a further call blocks. Throws
  // the error of an earlier write, or of this one if it is not copied.
  // With a `source`, the state is not copied either.
  void write(std::int64_t step, const Snapshot& snapshot, std::vector<std::int64_t> keep_steps, Done done,
             const PieceSource& source = {});
  void write_best(const Snapshot& snapshot, const PieceSource& source = {});
  // Returns when all checkpoints are durable, or throws the error of a write.
  void finish();

 private:
  using Job = std::function<void()>;
  using Write = std::function<void(const Snapshot&)>;
  void write(const Snapshot& snapshot, bool in_place, const Write& call);
  void add(Job job);
  void run();
  void rethrow();

  const CheckpointDirectory& directory_;
  const std::size_t most_copied_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first is being written
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;  // last member: it uses the others
};

}  // namespace wflow::trainer
