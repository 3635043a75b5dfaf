// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/printer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "engine/query/client.h"
#include "engine/schedule/states.h"

namespace wflow::cli {

namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kSoon{10};
constexpr Milliseconds kLater{100};  // pause after some time without output
constexpr auto kEverything = std::numeric_limits<specs::Element>::max();

// The states of commands that may still print.
constexpr std::uint32_t open_states() {
  std::uint32_t bits = 0;
  for (std::size_t state = 0; state < engine::kElementStates; ++state) {
    if (!engine::has_ended(static_cast<engine::ElementState>(state))) bits |= 1U << state;
  }
  return bits;
}

}  // namespace

OutputPrinter::OutputPrinter(const specs::Plan& plan, bool keep_order)
    : plan_(plan),
      keep_order_(keep_order),
      reader_(steps::packed_directory(plan.task_template(0).workspace)) {
  // Signals are for the thread that coordinates.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { follow(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OutputPrinter::~OutputPrinter() {
  finish();
}

bool OutputPrinter::finish() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  return !failed_;
}

void OutputPrinter::follow() {
  try {
    Milliseconds pause = kSoon;
    for (bool last = false; !last;) {
      {
        std::unique_lock lock(mutex_);
        last = wake_.wait_for(lock, pause, [this] { return ended_; });
      }
      // Ask before reading the files: the output of a command exists before the command counts as ended.
      const bool asks = keep_order_ && !last && !waiting_.empty();
      const specs::Element below = last ? kEverything : asks ? first_open() : open_;
      const bool news = take_news();
      print_in_order(below);
      pause = news ? kSoon : std::min(2 * pause, kLater);
    }
  } catch (const Error& error) {
    // The campaign's record still has the output.
    fmt::print(stderr, "wflow exec: cannot show what the commands print: {}\n", error.what());
    failed_ = true;
  }
}

bool OutputPrinter::take_news() {
  const auto executions = reader_.news();
  for (const steps::PackedExecution& execution : executions) {
    keep_order_ ? void(waiting_.emplace(execution.entry.element, execution)) : print(execution);
  }
  return !executions.empty();
}

// The first command that has not ended for the coordinator, which never knows more than the files.
specs::Element OutputPrinter::first_open() {
  const specs::Element last = plan_.element_count() - 1;
  const engine::Client client(plan_);
  const auto page = client.live_tasks({{0, open_}, 0, open_, last, open_states(), false});
  if (!page) return open_;
  if (!page->runs.empty()) open_ = page->runs.front().first;
  return open_;
}

void OutputPrinter::print_in_order(specs::Element below) {
  while (!waiting_.empty() && waiting_.begin()->first < below) {
    print(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
  }
}

void OutputPrinter::print(const steps::PackedExecution& execution) {
  if (failed_) return;
  if (execution.entry.out_bytes > 0) failed_ = !write(STDOUT_FILENO, steps::packed_out(execution));
  if (execution.entry.err_bytes > 0 && !failed_)
    failed_ = !write(STDERR_FILENO, steps::packed_err(execution));
  if (!failed_) return;
  // The campaign ends like every program in a pipe whose reader has gone (| head); it can go on later. After
  // its end nothing handles the signal, which would then kill this process.
  const std::lock_guard lock(mutex_);
  if (!ended_) ::kill(::getpid(), SIGINT);
}

bool OutputPrinter::write(int target, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(target, bytes.data(), bytes.size());
    if (put < 0 && errno == EAGAIN) {
      pollfd ready{target, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (put < 0 && errno != EINTR) {
      error_ = errno;
      return false;
    }
    if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace wflow::cli
