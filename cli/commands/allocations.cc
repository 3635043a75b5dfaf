// SPDX-License-Identifier: Apache-2.0
// wflow allocations: the jobs of a campaign at a batch scheduler, and their state.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/view/status.h"
#include "cli/view/terminal.h"
#include "engine/monitor/status.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

namespace wire = engine::wire;

struct AllocationOptions {
  std::string verb = "list";
  std::string campaign;
  std::string name;
  std::string pool;
  std::uint32_t count = 1;
  bool all = false;
  bool json = false;
};

std::string time_or_dash(double unix_s) {
  return unix_s > 0 ? clock_time(unix_s) : "-";
}

std::string remark(const wire::AllocationView& view) {
  if (!view.never_clears.empty()) return "will never start: " + view.never_clears;
  if (view.leaving) return view.workers > 0 ? "is given back" : "ends: its workers have left";
  return view.reason.empty() ? text::join(view.node_names, ", ") : view.reason;
}

int list(const AllocationOptions& options) {
  engine::Client client(find_campaign(options.campaign));
  const wire::AllocationsAnswer answer = client.allocations();
  if (options.json) {
    fmt::print("{}\n", engine::to_json(answer).dump(2));
    return 0;
  }
  Table table(
      {"id", "token", "pool", "state", "nodes", "workers", "wanted", "started", "ends", "ended", "remark"});
  for (const wire::AllocationView& view : answer.allocations) {
    table.add({{view.id.empty() ? "-" : view.id},
               {view.token},
               {view.pool},
               {view.state},
               {std::to_string(view.nodes)},
               {std::to_string(view.workers)},
               {time_or_dash(view.created_s)},
               {time_or_dash(view.started_s)},
               {time_or_dash(view.ends_s)},
               {time_or_dash(view.ended_s)},
               {remark(view)}});
  }
  if (answer.allocations.empty()) {
    fmt::print("no allocation so far\n");
  } else {
    table.print(standard_output());
  }
  for (const std::string& line : pool_lines(answer)) fmt::print("{}\n", line);
  if (!answer.excluded_nodes.empty()) fmt::print("  left out: {}\n", text::join(answer.excluded_nodes, ", "));
  return 0;
}

int command(const AllocationOptions& options, wire::AllocationsVerb verb, const char* said) {
  wire::AllocationsCommand request{verb, options.name, options.count};
  if (verb == wire::AllocationsVerb::add) request.name = options.pool;
  const bool names_none = verb != wire::AllocationsVerb::add && options.name.empty();
  if (names_none && !options.all)
    throw Error(ExitCode::usage, "which allocation? Give its id (wflow allocations lists them), or --all");
  const auto campaign = find_campaign(options.campaign);
  if (!engine::Client(campaign).command(request)) {
    throw Error(ExitCode::usage,
                fmt::format("no coordinator runs {}; wflow resume continues it", campaign.string()));
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"directory", campaign.string()}, {"done", true}}.dump());
  } else {
    fmt::print("{}\n", said);
  }
  return 0;
}

int run(const AllocationOptions& options) {
  if (options.verb == "add") return command(options, wire::AllocationsVerb::add, "will be submitted");
  if (options.verb == "cancel") return command(options, wire::AllocationsVerb::cancel, "is cancelled");
  if (options.verb == "drain") return command(options, wire::AllocationsVerb::drain, "is drained");
  return list(options);
}

}  // namespace

void add_allocations(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<AllocationOptions>();
  CLI::App* command = app.add_subcommand("allocations", "batch allocations: list, add, cancel or drain them");
  command->footer(
      "The coordinator submits allocations and gives them back by itself; this is for you to intervene.\n"
      "  list    all of the campaign, with node-hours used and a forecast\n"
      "  add     submit allocations that the backlog need not justify\n"
      "  cancel  end an allocation now; its tasks run again elsewhere, without a charged attempt\n"
      "  drain   give an allocation back once its tasks have ended\n"
      "Examples:\n  wflow allocations\n  wflow allocations add --count 2\n  wflow allocations drain 1234\n"
      "  wflow allocations cancel --all");
  command->add_option("verb", options->verb, "list, add, cancel or drain (default: list)")
      ->check(CLI::IsMember({"list", "add", "cancel", "drain"}));
  command->add_option("allocation", options->name, "cancel, drain: its id at the scheduler, or its token");
  command->add_option("--campaign", options->campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  command->add_option("--pool", options->pool, "add: of which pool (default: the only one)");
  command->add_option("--count", options->count, "add: how many")->check(CLI::Range(1, 1000));
  command->add_flag("--all", options->all, "cancel, drain: all of them");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace wflow::cli
