// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace wflow::cli {

std::vector<std::string> pool_lines(const engine::wire::AllocationsAnswer& answer) {
  std::vector<std::string> lines;
  for (const auto& pool : answer.pools) {
    int queued = 0;
    int running = 0;
    int ending = 0;
    for (const auto& allocation : answer.allocations) {
      if (allocation.pool != pool.name) continue;
      if (allocation.state == "running") ++(allocation.leaving ? ending : running);
      if (allocation.state == "queued" || allocation.state == "intended") ++queued;
    }
    std::string line =
        fmt::format("  pool {} ({}): {} running, {} queued", pool.name, pool.scheduler, running, queued);
    if (ending > 0) line += fmt::format(", {} ending", ending);
    if (pool.used_node_h >= 0.005) line += fmt::format(", {:.2f} node-hours used", pool.used_node_h);
    if (pool.left_node_h >= 0.005) line += fmt::format(", about {:.2f} left", pool.left_node_h);
    if (pool.ends_s) line += ", ends about " + clock_time(*pool.ends_s);
    if (pool.more > 0) {
      line += fmt::format("; {} more allocation{} of {}", pool.more, pool.more == 1 ? "" : "s",
                          text::format_duration(pool.walltime_s));
    }
    if (!pool.gave_up.empty()) line += "; submits no more: " + pool.gave_up;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> allocation_lines(const engine::wire::AllocationsAnswer& answer, double now_s,
                                          bool everything) {
  std::vector<std::string> lines = pool_lines(answer);
  for (const auto& allocation : answer.allocations) {
    if (allocation.never_clears.empty() && !everything) continue;
    lines.push_back("    " + allocation_line(allocation, now_s));
  }
  return lines;
}

namespace {

// The workers may have left by themselves, or because the user cancelled the job: the scheduler will say
// which.
std::string leaving_or(const engine::wire::AllocationView& allocation, const std::string& otherwise) {
  if (!allocation.leaving) return otherwise;
  return allocation.workers > 0 ? "is given back" : "ends";
}

}  // namespace

std::string allocation_line(const engine::wire::AllocationView& allocation, double now_s) {
  const std::string id = allocation.id.empty() ? allocation.token : allocation.id;
  const auto since = [&](double time_s) { return text::format_duration(std::max(0.0, now_s - time_s)); };
  if (allocation.state == "ended") return fmt::format("allocation {}: ended: {}", id, allocation.reason);
  if (allocation.state == "running") {
    std::string line = fmt::format("allocation {}: {} on {}, {} worker{}", id, leaving_or(allocation, "runs"),
                                   text::join(allocation.node_names, ", "), allocation.workers,
                                   allocation.workers == 1 ? "" : "s");
    if (allocation.ends_s > now_s) line += ", ends in " + text::format_duration(allocation.ends_s - now_s);
    return line;
  }
  std::string line = fmt::format("allocation {}: pending for {}", id, since(allocation.created_s));
  if (!allocation.never_clears.empty()) return line + ", and will never start: " + allocation.never_clears;
  return allocation.reason.empty() ? line : line + ": " + allocation.reason;
}

}  // namespace wflow::cli
