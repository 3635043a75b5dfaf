// SPDX-License-Identifier: Apache-2.0
// Inputs of the coordinator's loop, each with a descriptor to wait for: signals without handlers, and work
// that a thread does beside the loop.
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

// Runs work that may wait for a disk beside the coordinator's loop: workers fence if the loop is silent for
// too long. One piece at a time, in order.
class SideThread {
 public:
  using OnLoop = std::function<void()>;
  using Work = std::function<OnLoop()>;

  SideThread();
  ~SideThread();  // waits for all work; drops its results
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // `work` runs on the thread and must not throw. The loop runs the function that it returns, if any.
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

// Makes the thread at the first use.
SideThread& made(std::optional<SideThread>& thread);

}  // namespace wflow::engine
