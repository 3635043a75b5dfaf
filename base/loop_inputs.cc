// SPDX-License-Identifier: Apache-2.0
#include "base/loop_inputs.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace wflow {

WakeUp::WakeUp() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw system_error(errno, "cannot make an event descriptor");
}

void WakeUp::signal() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(fd_.get(), &one, sizeof(one));
}

void WakeUp::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
}

std::thread start_thread(const std::string& purpose, std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw system_error(
        error.code().value(),
        fmt::format("cannot start the thread that {}; allow more processes (ulimit -u)", purpose));
  }
}

SideThread::SideThread(const std::string& purpose, AtEnd at_end)
    : at_end_(at_end), thread_(start_thread(purpose, [this] { run(); })) {}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (at_end_ == AtEnd::drop) work_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void SideThread::call(Work work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

std::vector<SideThread::OnLoop> SideThread::take() {
  wake_.clear();
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void SideThread::run() {
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    OnLoop then = work();
    if (!then) continue;
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(std::move(then));
    }
    wake_.signal();
  }
}

SideThread& made(std::optional<SideThread>& thread) {
  return thread ? *thread : thread.emplace();
}

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : signals) ::sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw system_error(errno, "cannot watch for signals");
}

SignalQueue::~SignalQueue() {
  // Leaves pending signals to the queue around this one, if there is one; else they would end the process.
  const bool outermost = ::sigismember(&before_, SIGINT) == 0;
  while (outermost && take()) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalQueue::give_back(int signal) const {
  if (::sigismember(&before_, signal) == 1) ::kill(::getpid(), signal);  // stays pending: it is blocked
}

std::optional<int> SignalQueue::take() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace wflow
