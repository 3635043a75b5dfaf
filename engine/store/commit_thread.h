// SPDX-License-Identifier: Apache-2.0
// Group commit: one thread writes while the coordinator's loop gathers the next batch. The slower the disk,
// the larger the batches; the loop never waits for it.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/loop_inputs.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

class CommitThread {
 public:
  // `store` must outlive the thread and is its alone until stop().
  explicit CommitThread(Store& store);
  ~CommitThread();
  CommitThread(const CommitThread&) = delete;
  CommitThread& operator=(const CommitThread&) = delete;

  // Readable when a commit has ended; take it with committed().
  int descriptor() const { return wake_.descriptor(); }
  bool busy() const { return busy_; }
  // Starts to write `batch`; only when not busy().
  void submit(Batch batch);
  // True once after each commit: all batches submitted so far are durable. Throws what the commit threw. One
  // that the disk refuses (is_disk_trouble()) is tried again every kAgain_s until it succeeds.
  bool committed();
  // Why the commit under way has failed and is tried again; once for each commit.
  std::optional<std::string> trouble();
  // Waits for the running commit, if any. Then committed() has its result.
  void wait();

 private:
  static constexpr double kAgain_s = 1;

  void run();
  bool commit(const Batch& batch);

  Store& store_;
  WakeUp wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Batch> next_;
  bool finished_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::optional<std::string> trouble_;
  bool busy_ = false;  // the loop's own view
  std::thread thread_;
};

}  // namespace wflow::engine::store
