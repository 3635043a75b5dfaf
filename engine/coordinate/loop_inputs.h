// SPDX-License-Identifier: Apache-2.0
// Work that may wait for a disk, beside the coordinator's loop: workers fence when the loop is silent for too
// long. One piece at a time, in order.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/file.h"

namespace wflow::engine {

// Blocks the signals for this thread (and those made after it) while it lives, and queues them.
class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  int descriptor() const { return fd_.get(); }
  std::optional<int> take();

 private:
  sigset_t before_;
  FileDescriptor fd_;
};

class SideThread {
 public:
  using OnLoop = std::function<void()>;
  using Work = std::function<OnLoop()>;

  SideThread();
  ~SideThread();  // when all work is done; what it would give to the loop is dropped
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // `work` runs on the thread and must not throw. What it gives, if anything, is for the loop to run.
  void call(Work work);
  // Readable when take() has something.
  int descriptor() const { return wake_.get(); }
  std::vector<OnLoop> take();

 private:
  void run();

  FileDescriptor wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::vector<OnLoop> done_;
  bool stop_ = false;
  std::thread thread_;
};

// Makes the thread when there is work for the first time.
SideThread& made(std::optional<SideThread>& thread);

}  // namespace wflow::engine
