// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/end_watch.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <thread>

#include "base/error.h"

namespace wflow::workers {

namespace {

[[noreturn]] void keep_asking(const EndWatch::Ask& ask, double period_s, pid_t parent,
                              std::atomic<double>& answer) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  while (true) {
    std::this_thread::sleep_for(std::chrono::duration<double>(period_s));
    try {
      if (const auto ends_unix_s = ask()) answer = *ends_unix_s;
    } catch (const std::exception&) {
      // The scheduler does not answer for the moment: what is known holds.
    }
  }
}

}  // namespace

EndWatch::EndWatch(double ends_unix_s) {
  void* memory =
      ::mmap(nullptr, sizeof(std::atomic<double>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error(errno, "cannot map memory for the worker");
  shared_ = new (memory) std::atomic<double>(ends_unix_s);
}

EndWatch::~EndWatch() {
  ::munmap(shared_, sizeof(std::atomic<double>));
}

void EndWatch::start(const Ask& ask, double period_s) {
  const pid_t parent = ::getpid();
  // Without it the end stays the one that is known: no reason not to work.
  if (::fork() == 0) keep_asking(ask, period_s, parent, *shared_);
}

}  // namespace wflow::workers
