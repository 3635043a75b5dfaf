// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace wflow::engine::wire {

namespace {

constexpr std::size_t kItems = 8;  // at most, of each list
constexpr std::size_t kText = 200;

std::string clean(std::string_view text) {
  std::string cleaned(text.substr(0, kText));
  std::replace_if(
      cleaned.begin(), cleaned.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return cleaned;
}

template <class T, class One>
std::string list(const std::vector<T>& items, One one) {
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), kItems); ++i)
    text += (i > 0 ? "; " : "") + one(items[i]);
  if (items.size() > kItems) text += fmt::format("; and {} more", items.size() - kItems);
  return text;
}

std::string elements(ArrayId array, Element first, std::uint64_t count) {
  return count == 1 ? fmt::format("{} of array {}", first, array)
                    : fmt::format("{} to {} of array {}", first, first + count - 1, array);
}

std::string leases(const std::vector<Lease>& all) {
  return list(all, [](const Lease& lease) { return describe(lease); });
}

std::string_view name_of(EndReason reason) {
  constexpr std::array<std::string_view, 14> kNames = {
      "exit code",     "signal",   "timed out", "not started", "bad output", "worker lost", "cancelled",
      "out of memory", "walltime", "node",      "preempted",   "launcher",   "disk",        "stalled"};
  const auto number = static_cast<std::size_t>(reason);
  return number < kNames.size() ? kNames[number] : "?";
}

std::string describe_one(const DoneRun& run) {
  return fmt::format("lease {}: {} done", run.lease, elements(run.array, run.first, run.count));
}

std::string describe_one(const Outcome& outcome) {
  const bool numbered = outcome.reason == EndReason::exited || outcome.reason == EndReason::signalled;
  return fmt::format("lease {}: {} attempt {}: {}{}", outcome.lease,
                     elements(outcome.array, outcome.element, 1), outcome.attempt, name_of(outcome.reason),
                     numbered ? fmt::format(" {}", outcome.exit_code) : "");
}

struct Describe {
  std::string operator()(const Hello& hello) const {
    return fmt::format("Hello of worker {}, group {}, {} cores, holds {} leases{}", clean(hello.worker),
                       clean(hello.group), hello.cores, hello.held.size(),
                       hello.held.empty() ? "" : ": " + leases(hello.held));
  }
  std::string operator()(const Results& results) const { return describe(results); }
  std::string operator()(const Heartbeat& heartbeat) const {
    return fmt::format("Heartbeat {}: {} queued, {} running", heartbeat.number, heartbeat.queued,
                       heartbeat.running.size());
  }
  std::string operator()(const Goodbye& goodbye) const { return "Goodbye: " + clean(goodbye.reason); }
  std::string operator()(const Welcome& welcome) const {
    return fmt::format("Welcome: heartbeat every {} s, fence after {} s", welcome.heartbeat_s,
                       welcome.lost_s);
  }
  std::string operator()(const Refuse& refuse) const { return "Refuse: " + clean(refuse.reason); }
  std::string operator()(const Templates& templates) const {
    return "Templates of arrays " + list(templates.templates, [](const specs::TaskTemplate& one) {
             return fmt::format("{}", one.array);
           });
  }
  std::string operator()(const Leases& message) const { return "Leases: " + leases(message.leases); }
  std::string operator()(const Acknowledge& acknowledge) const {
    return fmt::format("Acknowledge up to {}", acknowledge.sequence);
  }
  std::string operator()(const Revoke& revoke) const {
    return fmt::format("Revoke{}: {}", revoke.kill_running ? " and kill" : "",
                       revoke.all ? "everything" : leases(revoke.leases));
  }
  std::string operator()(const Drain&) const { return "Drain"; }
  std::string operator()(const Pulse& pulse) const { return fmt::format("Pulse {}", pulse.heartbeat); }
  std::string operator()(const Identify&) const { return "Identify"; }
  std::string operator()(const Returned& returned) const { return "Returned: " + leases(returned.leases); }
  std::string operator()(const Query& query) const {
    constexpr std::array<std::string_view, std::variant_size_v<Request>> kNames = {"status",
                                                                                   "tasks",
                                                                                   "explain",
                                                                                   "workers",
                                                                                   "retryable",
                                                                                   "snapshot",
                                                                                   "drain",
                                                                                   "stop",
                                                                                   "pause",
                                                                                   "retry",
                                                                                   "cancel",
                                                                                   "allocations",
                                                                                   "allocations command",
                                                                                   "usage",
                                                                                   "watch",
                                                                                   "usage summary"};
    return fmt::format("Query: {}", kNames.at(query.request.index()));
  }
  std::string operator()(const Answer& answer) const {
    const auto* refusal = std::get_if<Refusal>(&answer.body);
    return refusal == nullptr ? "Answer" : "Answer, refused: " + clean(refusal->sentence);
  }
};

}  // namespace

std::string describe(const Message& message) {
  return std::visit(Describe(), message);
}

std::string describe(const Lease& lease) {
  return fmt::format("lease {}: {} attempt {}", lease.id, elements(lease.array, lease.first, lease.count),
                     lease.attempt);
}

std::string describe(const Results& results) {
  std::string text = fmt::format("Results {}: ", results.sequence);
  if (!results.done.empty())
    text += list(results.done, [](const DoneRun& run) { return describe_one(run); }) + "; ";
  if (!results.outcomes.empty())
    text += list(results.outcomes, [](const Outcome& outcome) { return describe_one(outcome); }) + "; ";
  return text + fmt::format("{} events", results.events.size());
}

}  // namespace wflow::engine::wire
