// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/signals.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace wflow::engine {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : signals) ::sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw system_error(errno, "cannot watch for signals");
}

SignalQueue::~SignalQueue() {
  // Left for the queue around this one, where there is one; else they would end the process.
  const bool outermost = ::sigismember(&before_, SIGINT) == 0;
  while (outermost && take()) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalQueue::take() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace wflow::engine
