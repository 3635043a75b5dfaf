// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "converters/data_set_files.h"
#include "engine/wire/messages.h"

namespace wflow::engine {

namespace {

using Json = nlohmann::json;

Json json_of(const wire::AllocationView& view) {
  return {{"token", view.token},
          {"id", view.id},
          {"pool", view.pool},
          {"scheduler", view.scheduler},
          {"state", view.state},
          {"nodes", view.nodes},
          {"walltime_s", view.walltime_s},
          {"created_s", view.created_s},
          {"started_s", view.started_s},
          {"ends_s", view.ends_s},
          {"ended_s", view.ended_s},
          {"workers", view.workers},
          {"leaving", view.leaving},
          {"reason", view.reason},
          {"never_clears", view.never_clears},
          {"node_names", view.node_names}};
}

Json json_of(const wire::PoolView& view) {
  Json json = {{"name", view.name},
               {"scheduler", view.scheduler},
               {"nodes", view.nodes},
               {"slots", view.slots},
               {"min", view.min},
               {"max", view.max},
               {"walltime_s", view.walltime_s},
               {"used_node_hours", view.used_node_h},
               {"left_node_hours", view.left_node_h},
               {"more_allocations", view.more},
               {"gave_up", view.gave_up}};
  if (view.ends_s) json["ends_s"] = *view.ends_s;
  return json;
}

}  // namespace

wire::AllocationView view_of(const batch::Allocation& allocation) {
  wire::AllocationView view;
  view.token = allocation.token;
  view.id = allocation.id;
  view.pool = allocation.pool;
  view.scheduler = allocation.scheduler;
  view.state = name_of(allocation.state);
  view.nodes = allocation.nodes;
  view.walltime_s = allocation.walltime_s;
  view.created_s = allocation.created_s;
  view.started_s = allocation.started_s;
  view.ends_s = allocation.ends_s;
  view.ended_s = allocation.ended_s;
  view.reason = allocation.reason;
  view.never_clears = allocation.never_clears;
  view.node_names = allocation.node_names;
  return view;
}

wire::AllocationsAnswer recorded_allocations(const std::vector<batch::Allocation>& rows) {
  wire::AllocationsAnswer answer;
  answer.allocations_total = rows.size();
  const std::size_t first = rows.size() - std::min(rows.size(), kListedAllocations);
  for (std::size_t i = first; i < rows.size(); ++i) answer.allocations.push_back(view_of(rows[i]));
  return answer;
}

Json to_json(const wire::AllocationsAnswer& answer) {
  Json json = {{"allocations", Json::array()},
               {"allocations_total", answer.allocations_total},
               {"pools", Json::array()},
               {"excluded_nodes", answer.excluded_nodes}};
  for (const auto& view : answer.allocations) json["allocations"].push_back(json_of(view));
  for (const auto& view : answer.pools) json["pools"].push_back(json_of(view));
  return json;
}

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
  if (state == ElementState::skipped) how = converters::kSkippedEnding;
  if (state == ElementState::cancelled) how = " was cancelled";
  return std::string(kItsTask) + step + how;
}

MissingCounts counts_of(const std::vector<wire::MissingReason>& reasons) {
  MissingCounts counts;
  for (const wire::MissingReason& missing : reasons) {
    const bool left_out = missing.reason.starts_with(kItsTask);
    (converters::is_skipped(missing.reason) ? counts.skipped
     : left_out                             ? counts.failed
                                            : counts.unusable) += missing.samples;
  }
  return counts;
}

}  // namespace wflow::engine
