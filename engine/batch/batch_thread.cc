// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/batch_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "engine/batch/command.h"

namespace wflow::engine::batch {

void BatchThread::call(BatchCall call) {
  thread_.call([this, call = std::move(call)] {
    BatchReply reply = std::visit([this](const auto& asked) { return answer(asked); }, call);
    return [this, reply = std::move(reply)] { replies_.push_back(reply); };
  });
}

std::vector<BatchReply> BatchThread::take() {
  for (const SideThread::OnLoop& then : thread_.take()) then();
  return std::exchange(replies_, {});
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
