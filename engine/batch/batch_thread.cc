// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/batch_thread.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "engine/batch/command.h"

namespace wflow::engine::batch {

BatchThread::BatchThread(Factory make)
    : make_(std::move(make)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw system_error(errno, "cannot make an event descriptor");
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw system_error(error.code().value(),
                       "cannot start the thread that calls the scheduler; allow more processes (ulimit -u)");
  }
}

BatchThread::~BatchThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchThread::call(BatchCall call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_all();
}

std::vector<BatchReply> BatchThread::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
  const std::lock_guard lock(mutex_);
  return std::exchange(replies_, {});
}

void BatchThread::run() {
  for (;;) {
    BatchCall call;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !calls_.empty(); });
      if (stop_) return;
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    BatchReply reply = std::visit([this](const auto& asked) { return answer(asked); }, call);
    {
      const std::lock_guard lock(mutex_);
      replies_.push_back(std::move(reply));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(wake_.get(), &one, sizeof(one));
  }
}

BatchSystem& BatchThread::system(const std::string& scheduler) {
  std::unique_ptr<BatchSystem>& known = systems_[scheduler];
  if (!known) known = make_(scheduler);
  if (!known) throw Error(ExitCode::usage, fmt::format("'{}' is no scheduler that wflow knows", scheduler));
  return *known;
}

// An exception of a call becomes its answer: no directory for the script, no process left, ...
BatchReply BatchThread::answer(const SubmitCall& call) {
  SubmitReply reply{call.job.token, {}};
  try {
    reply.submission = system(call.scheduler).submit(call.job);
  } catch (const std::exception& error) {
    reply.submission = {{}, Submission::Refusal::wait, error.what()};
  }
  return reply;
}

BatchReply BatchThread::answer(const CancelCall& call) {
  CancelReply reply{call.scheduler, call.ids, std::nullopt};
  try {
    reply.error = system(call.scheduler).cancel(call.ids);
  } catch (const std::exception& error) {
    reply.error = error.what();
  }
  return reply;
}

BatchReply BatchThread::answer(const QueryCall& call) {
  QueryReply reply{call.scheduler, {}};
  try {
    reply.list = system(call.scheduler).query(call.prefix);
    if (!call.directory.empty()) look_at_output(reply.list, call.directory);
  } catch (const std::exception& error) {
    reply.list.text = error.what();
  }
  return reply;
}

std::string memory_kill_of(std::string_view output) {
  struct Saying {
    std::string_view speaker;
    std::vector<std::string_view> words;
  };
  static const std::vector<Saying> kSayings = {
      {"slurmstepd",
       {"oom_kill", "oom-kill", "out of memory", "exceeded memory limit", "exceeded job memory limit"}},
      {"=>> PBS: job killed:", {"mem"}},
      {"TERM_MEMLIMIT", {"TERM_MEMLIMIT"}}};
  for (const std::string_view line : lines_of(output)) {
    for (const Saying& saying : kSayings) {
      if (mentions_any(line, {saying.speaker}) && mentions_any(line, saying.words)) return one_line(line);
    }
  }
  return {};
}

// If the scheduler polls memory, the job's state is only failed or cancelled.
void BatchThread::look_at_output(JobList& list, const std::string& directory) {
  constexpr std::size_t kTail = 1 << 14;
  for (JobStatus& job : list.jobs) {
    if (job.state != JobState::failed || (job.end != JobEnd::exit && job.end != JobEnd::cancelled)) continue;
    if (!looked_at_.insert(job.token + "/" + std::to_string(job.restarts)).second) continue;
    try {
      const std::string text = read_file(directory + "/" + job.token + ".out");
      const std::string line =
          memory_kill_of(std::string_view(text).substr(text.size() - std::min(text.size(), kTail)));
      if (line.empty()) continue;
      job.end = JobEnd::memory;
      job.reason = line;
    } catch (const Error&) {
      continue;  // it has printed nothing, or its file is not visible here
    }
  }
}

}  // namespace wflow::engine::batch
