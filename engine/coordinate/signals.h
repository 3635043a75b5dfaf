// SPDX-License-Identifier: Apache-2.0
// Signals as something to read: no handler, no global state.
#pragma once

#include <signal.h>

#include <initializer_list>
#include <optional>

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

}  // namespace wflow::engine
