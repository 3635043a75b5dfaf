// SPDX-License-Identifier: Apache-2.0
#include "engine/store/commit_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace wflow::engine::store {

CommitThread::CommitThread(Store& store) : store_(store), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw system_error(errno, "cannot make an event descriptor");
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw system_error(error.code().value(),
                       "cannot start the thread that commits; allow more processes (ulimit -u)");
  }
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
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
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
    signal();
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
      signal();
      if (changed_.wait_for(lock, std::chrono::duration<double>(kAgain_s), [this] { return stop_; }))
        return false;
    }
  }
}

std::optional<std::string> CommitThread::trouble() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trouble_, std::nullopt);
}

void CommitThread::signal() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(wake_.get(), &one, sizeof(one));
}

}  // namespace wflow::engine::store
