// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/text.h"
#include "engine/wire/messages.h"

namespace wflow::engine {

namespace {

// Names of connections are bytes of the transport's choice.
std::string name_of_peer(const PeerId& peer) {
  std::string name;
  for (const char c : peer) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isgraph(byte) != 0 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return name;
}

std::string name_of_process(const ProcessIdentity& process) {
  return fmt::format("process {} of {}", process.pid, process.host);
}

std::string first_of(const std::vector<RecordEnd>& ends) {
  constexpr std::size_t kEnds = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ends.size(), kEnds); ++i) {
    text += fmt::format("{}{} to {} of array {} {}", i == 0 ? " (" : "; ", ends[i].range.first,
                        ends[i].range.last, ends[i].array, name_of(ends[i].state));
  }
  if (ends.size() > kEnds) text += "; ...";
  return text.empty() ? text : text + ")";
}

struct DescribeEvent {
  std::string operator()(const event::Message& message) const {
    return fmt::format("from {}: {}", name_of_peer(message.peer), wire::describe(message.message));
  }
  std::string operator()(const event::Undelivered& undelivered) const {
    return fmt::format("a message to {} was not delivered", name_of_peer(undelivered.peer));
  }
  std::string operator()(const event::WorkerStarted& started) const {
    return fmt::format("a worker of group {} is {}", started.group, name_of_process(started.guardian));
  }
  std::string operator()(const event::ProcessEnded& ended) const {
    return name_of_process(ended.process) + " has ended";
  }
  std::string operator()(const event::JournalRead& read) const {
    return fmt::format("journal of {}: {} records{}, {} orphans", read.worker, read.results.size(),
                       read.damaged ? ", damaged" : "", read.orphans);
  }
  std::string operator()(const event::JournalEnded& ended) const {
    return "the journal of " + ended.worker + " says that it has ended";
  }
  std::string operator()(const event::CommitFinished&) const { return "the commit is on disk"; }
  std::string operator()(const event::CommitWaits& waits) const { return "the commit waits: " + waits.why; }
  std::string operator()(const event::Retry& retry) const {
    return fmt::format("retry means {} parts", retry.parts.size());
  }
  std::string operator()(const event::JobSubmitted& submitted) const {
    return fmt::format(
        "submission of {}: {}", submitted.token,
        submitted.submission.id.empty() ? submitted.submission.text : "job " + submitted.submission.id);
  }
  std::string operator()(const event::JobsListed& listed) const {
    return fmt::format("{} names {} jobs", listed.scheduler, listed.list.jobs.size());
  }
  std::string operator()(const event::JobsCancelled& cancelled) const {
    return fmt::format("cancelling {} at {}: {}", text::join(cancelled.ids, ", "), cancelled.scheduler,
                       cancelled.error.value_or("done"));
  }
  std::string operator()(const event::OutputsMeasured& outputs) const {
    return outputs.bytes ? fmt::format("an element of array {} left {} bytes", outputs.array, *outputs.bytes)
                         : fmt::format("what an element of array {} left is not there", outputs.array);
  }
  std::string operator()(const event::Signal& signal) const {
    constexpr std::array<std::string_view, 4> kNames = {"interrupt", "terminate", "hangup", "workers left"};
    return fmt::format("signal: {}", kNames.at(static_cast<std::size_t>(signal.kind)));
  }
  std::string operator()(const event::Time&) const { return "time"; }
};

struct DescribeAction {
  std::string operator()(const action::Send& send) const {
    return fmt::format("to {}: {}", name_of_peer(send.peer), wire::describe(send.message));
  }
  std::string operator()(const action::Commit& commit) const {
    const store::Batch& batch = commit.batch;
    return fmt::format(
        "commit: {} ends{}, {} failures, {} floors, {} workers joined, {} ended, {} lines of history",
        batch.ends.size(), first_of(batch.ends), batch.failures.size(), batch.floors.size(),
        batch.workers_joined.size(), batch.workers_ended.size(), batch.history.size());
  }
  std::string operator()(const action::StartWorker& start) const {
    return fmt::format("start a worker of group {} with {} slots", start.group, start.slots);
  }
  std::string operator()(const action::Watch& watch) const {
    return "watch " + name_of_process(watch.process);
  }
  std::string operator()(const action::Kill& kill) const {
    return fmt::format("signal {} to {}", kill.signal, name_of_process(kill.process));
  }
  std::string operator()(const action::ReadJournal& read) const {
    return "read the journal of " + read.worker;
  }
  std::string operator()(const action::LookAtJournal& look) const {
    return "look at the journal of " + look.worker;
  }
  std::string operator()(const action::RemoveJournal& remove) const {
    return "remove the journal of " + remove.worker;
  }
  std::string operator()(const action::AnswerQuery& answer) const {
    return fmt::format("answer {}: {}", name_of_peer(answer.peer), wire::describe(answer.query));
  }
  std::string operator()(const action::ResolveRetry& resolve) const {
    return "resolve the retry of " + (resolve.peer.empty() ? "the start" : name_of_peer(resolve.peer));
  }
  std::string operator()(const action::MeasureOutputs& measure) const {
    return fmt::format("measure what element {} of array {} left", measure.element, measure.array);
  }
  std::string operator()(const action::SubmitJob& submit) const {
    return fmt::format("submit {} to {}", submit.job.token, submit.scheduler);
  }
  std::string operator()(const action::CancelJobs& cancel) const {
    return fmt::format("cancel {} at {}", text::join(cancel.ids, ", "), cancel.scheduler);
  }
  std::string operator()(const action::QueryJobs& query) const {
    return fmt::format("ask {} for the jobs {}*", query.scheduler, query.prefix);
  }
  std::string operator()(const action::Log& log) const { return log.text; }
  std::string operator()(const action::Fail& fail) const { return "fail: " + fail.text; }
};

}  // namespace

std::string describe(const CoordinatorEvent& event) {
  return std::visit(DescribeEvent(), event);
}

std::string describe(const CoordinatorAction& action) {
  return std::visit(DescribeAction(), action);
}

}  // namespace wflow::engine
