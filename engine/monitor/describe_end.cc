// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/describe_end.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/wire/messages.h"

namespace wflow::engine {

std::string describe_end(int reason, int exit_code) {
  switch (static_cast<wire::EndReason>(reason)) {
    case wire::EndReason::exited:
      return fmt::format("exit code {}", exit_code);
    case wire::EndReason::signalled:
      return fmt::format("signal {} ({})", exit_code, ::strsignal(exit_code));
    case wire::EndReason::timed_out:
      return "killed at its time limit";
    case wire::EndReason::not_started:
      return "could not be started";
    case wire::EndReason::bad_output:
      return "its output is missing or wrong";
    case wire::EndReason::worker_lost:
      return "its worker was lost";
    case wire::EndReason::cancelled:
      return "cancelled";
    case wire::EndReason::out_of_memory:
      return "killed for want of memory";
    case wire::EndReason::walltime:
      return "ended with the walltime of its allocation";
    case wire::EndReason::node:
      return "its node failed";
    case wire::EndReason::preempted:
      return "its allocation was preempted, requeued or cancelled";
    case wire::EndReason::launcher:
      return "its launcher could not start its processes";
    case wire::EndReason::disk:
      return "its disk was full, read-only or broken";
    case wire::EndReason::stalled:
      return "killed: it printed nothing and used no CPU for its stall_timeout";
  }
  return "unknown";
}

namespace {
constexpr std::string_view kItsTask = "its task of ";
}

std::string reason_left_out(const std::string& step, ElementState state) {
  std::string how = " failed";
  if (state == ElementState::skipped) how = " was skipped";
  if (state == ElementState::cancelled) how = " was cancelled";
  return std::string(kItsTask) + step + how;
}

bool is_left_out(std::string_view reason) {
  return reason.starts_with(kItsTask);
}

}  // namespace wflow::engine
