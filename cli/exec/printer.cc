// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/printer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/view/status.h"
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

OutputPrinter::OutputPrinter(const specs::Plan& plan, PrinterOptions options)
    : options_(std::move(options)),
      terminal_(standard_error()),
      plan_(plan),
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

void OutputPrinter::show(const engine::CampaignStatus& status, bool more) {
  if (options_.progress == PrinterOptions::Progress::none) return;
  const std::lock_guard lock(mutex_);
  news_.progress = {status.ended(), status.failed(), status.elements(), status.elapsed_s, more};
}

void OutputPrinter::go_on(const specs::Plan& plan, specs::Element ended) {
  std::unique_lock lock(mutex_);
  news_.plan = plan;
  news_.ended = ended;
  wake_.notify_all();
  taken_.wait(lock, [this] { return !news_.plan || gone_; });
}

OutputPrinter::News OutputPrinter::wait(Milliseconds pause) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, pause, [this] { return ended_ || news_.plan; });
  News news = std::exchange(news_, {});
  news.last = ended_;
  taken_.notify_all();
  return news;
}

void OutputPrinter::follow() {
  try {
    Milliseconds pause = kSoon;
    for (bool last = false; !last;) {
      News news = wait(pause);
      last = news.last;
      if (news.plan) {
        plan_ = std::move(*news.plan);
        samples_.reset();
        open_ = news.ended;
      }
      // Ask before reading the files: the output of a command exists before the command counts as ended.
      const bool asks = options_.keep_order && !last && !waiting_.empty();
      const specs::Element below = last ? kEverything : asks ? first_open() : open_;
      const bool printed = options_.output && take_news();
      print_in_order(below);
      if (news.progress) draw(*news.progress);
      pause = printed ? kSoon : std::min(2 * pause, kLater);
    }
    if (drawing_) write(STDERR_FILENO, "\n");
  } catch (const Error& error) {
    // The campaign's record still has the output.
    fmt::print(stderr, "wflow exec: cannot show what the commands print: {}\n", error.what());
    failed_ = true;
  }
  const std::lock_guard lock(mutex_);
  gone_ = true;
  taken_.notify_all();
}

bool OutputPrinter::take_news() {
  const auto executions = reader_.news();
  for (const steps::PackedExecution& execution : executions) {
    options_.keep_order ? void(waiting_.emplace(execution.entry.element, execution)) : print(execution);
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
  erase();
  const specs::Element element = execution.entry.element;
  if (execution.entry.out_bytes > 0)
    failed_ = !write(STDOUT_FILENO, tagged(steps::packed_out(execution), element));
  if (execution.entry.err_bytes > 0 && !failed_)
    failed_ = !write(STDERR_FILENO, tagged(steps::packed_err(execution), element));
  if (!failed_) return;
  // The campaign ends like every program in a pipe whose reader has gone (| head); it can go on later. After
  // its end nothing handles the signal, which would then kill this process.
  const std::lock_guard lock(mutex_);
  if (!ended_) ::kill(::getpid(), SIGINT);
}

std::string OutputPrinter::tag_of(specs::Element element) {
  if (!samples_) samples_ = specs::open_samples(plan_.study().samples->design);
  std::string tag;
  for (const TextPiece& piece : options_.tag.pieces) {
    const auto column = std::ranges::find(samples_->columns(), piece.text);
    if (!piece.is_column) {
      tag += piece.text;
    } else if (piece.text == kNumberPiece) {
      tag += std::to_string(element + 1);
    } else if (column != samples_->columns().end()) {
      tag += samples_->text(element, static_cast<std::size_t>(column - samples_->columns().begin()));
    }
  }
  return tag + "\t";
}

std::string OutputPrinter::tagged(const std::string& text, specs::Element element) {
  if (options_.tag.pieces.empty()) return text;
  const std::string tag = tag_of(element);
  std::string lines;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    lines += tag;
    lines += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  return lines;
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

// With commands that still come, there is no end to reckon with.
std::string OutputPrinter::line_of(const Progress& progress) const {
  constexpr int kBarColumns = 30;
  constexpr double kWhole = 100;
  std::string line;
  const double part =
      progress.all == 0 ? 0 : static_cast<double>(progress.ended) / static_cast<double>(progress.all);
  const auto failed = static_cast<double>(progress.failed);
  const double good = static_cast<double>(progress.ended) - failed;
  const auto waiting = static_cast<double>(progress.all - progress.ended);
  if (options_.progress == PrinterOptions::Progress::bar && !progress.more)
    line = fmt::format("{} {:.0f} %  ", bar_of({good, failed, 0, 0, 0, waiting}, terminal_, kBarColumns),
                       std::floor(kWhole * part));
  line += fmt::format("{} of {}{} ended", text::format_count(progress.ended),
                      text::format_count(progress.all), progress.more ? " so far" : "");
  if (progress.failed > 0) line += fmt::format(", {} failed", text::format_count(progress.failed));
  if (!progress.more && progress.ended > 0 && progress.ended < progress.all)
    line += fmt::format(", {} left", text::format_duration(progress.elapsed_s * (1 - part) / part));
  return line;
}

// A terminal shows the last state; elsewhere, each tenth is a line.
void OutputPrinter::draw(const Progress& progress) {
  if (drawn_ == progress) return;
  if (!terminal_.interactive) {
    constexpr std::uint64_t kTenths = 10;
    const auto tenth = [](const Progress& one) { return one.all == 0 ? 0 : kTenths * one.ended / one.all; };
    if (drawn_ && drawn_->all == progress.all && tenth(*drawn_) == tenth(progress)) return;
    write(STDERR_FILENO, line_of(progress) + "\n");
  } else {
    write(STDERR_FILENO, "\r" + fitted(line_of(progress), terminal_.width - 1, false) + "\x1b[K");
    drawing_ = true;
  }
  drawn_ = progress;
}

void OutputPrinter::erase() {
  if (!drawing_) return;
  write(STDERR_FILENO, "\r\x1b[K");
  drawing_ = false;
  drawn_.reset();
}

}  // namespace wflow::cli
