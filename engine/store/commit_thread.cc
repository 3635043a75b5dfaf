// SPDX-License-Identifier: Apache-2.0
#include "engine/store/commit_thread.h"

#include <chrono>
#include <utility>

#include "base/error.h"

namespace wflow::engine::store {

CommitThread::CommitThread(Store& store) : store_(store) {
  thread_ = start_thread("commits", [this] { run(); });
}

CommitThread::~CommitThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CommitThread::submit(Batch batch) {
  WFLOW_CHECK(!busy_);
  busy_ = true;
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(batch);
  }
  changed_.notify_all();
}

bool CommitThread::committed() {
  wake_.clear();
  const std::lock_guard lock(mutex_);
  if (!std::exchange(finished_, false)) return false;
  busy_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return true;
}

void CommitThread::wait() {
  if (!busy_) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
}

void CommitThread::run() {
  for (;;) {
    Batch batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return next_ || stop_; });
      if (!next_) return;
      batch = std::move(*next_);
      next_.reset();
    }
    std::exception_ptr error;
    try {
      if (!commit(batch)) return;
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      finished_ = true;
    }
    changed_.notify_all();
    wake_.signal();
  }
}

// A failed transaction is rolled back, so that the same batch can be written again. False: it was given up at
// the end of the thread.
bool CommitThread::commit(const Batch& batch) {
  for (bool said = false;; said = true) {
    try {
      store_.commit(batch);
      return true;
    } catch (const Error& error) {
      if (!is_disk_trouble(error)) throw;
      std::unique_lock lock(mutex_);
      if (!said) trouble_ = error.what();
      wake_.signal();
      if (changed_.wait_for(lock, std::chrono::duration<double>(kAgain_s), [this] { return stop_; }))
        return false;
    }
  }
}

std::optional<std::string> CommitThread::trouble() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trouble_, std::nullopt);
}

}  // namespace wflow::engine::store
