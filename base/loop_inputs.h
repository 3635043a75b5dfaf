// SPDX-License-Identifier: Apache-2.0
// Inputs of a loop, each with a descriptor to wait for: signals without handlers, and work that a thread does
// beside the loop.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace wflow {

// A descriptor that one thread makes readable for another.
class WakeUp {
 public:
  WakeUp();
  int descriptor() const { return fd_.get(); }
  void signal() const;  // readable from now on
  void clear() const;

 private:
  FileDescriptor fd_;
};

// `purpose` of the thread, for the error where there are too many: "commits".
std::thread start_thread(const std::string& purpose, std::function<void()> run);

// Runs work that may wait for a disk or another program. One piece at a time, in order.
class SideThread {
 public:
  using OnLoop = std::function<void()>;
  using Work = std::function<OnLoop()>;
  // The end of the thread finishes the work that has not begun, or drops it. It always drops results.
  enum class AtEnd : bool { finish, drop };

  explicit SideThread(const std::string& purpose = "works with files", AtEnd at_end = AtEnd::finish);
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // `work` runs on the thread and must not throw. The loop runs the function that it returns, if any.
  void call(Work work);
  // Readable when take() has something.
  int descriptor() const { return wake_.descriptor(); }
  std::vector<OnLoop> take();

 private:
  void run();

  const AtEnd at_end_;
  WakeUp wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::vector<OnLoop> done_;
  bool stop_ = false;
  std::thread thread_;
};

// Makes the thread at the first use.
SideThread& made(std::optional<SideThread>& thread);

// Blocks the signals for this thread (and those made after it) while it lives, and queues them.
class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  int descriptor() const { return fd_.get(); }
  std::optional<int> take();
  // For a signal that was taken and had no effect: leaves it to the queue around this one. Does nothing if
  // there is none.
  void give_back(int signal) const;

 private:
  sigset_t before_;
  FileDescriptor fd_;
};

}  // namespace wflow
