// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/allocations.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

}  // namespace wflow::engine
