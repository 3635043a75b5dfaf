// SPDX-License-Identifier: Apache-2.0
// What people ask of a running coordinator (wflow retry, cancel, pause, ...), beside the questions of
// queries.h.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "engine/coordinate/coordinator_impl.h"

namespace wflow::engine {

wire::Answer Coordinator::answer(const wire::Query& query) {
  try {
    const nlohmann::json arguments = nlohmann::json::parse(query.arguments);
    return {true, execute(query.verb, arguments).dump()};
  } catch (const nlohmann::json::exception& error) {
    return {false,
            fmt::format("the coordinator can't read the arguments of '{}': {}", query.verb, error.what())};
  } catch (const Error& error) {
    if (error.code() == ExitCode::system) throw;  // a full disk is not the asking one's mistake
    return {false, error.what()};
  }
}

nlohmann::json Coordinator::execute(const std::string& verb, const nlohmann::json& arguments) {
  if (verb == "drain") {
    request_drain("asked to drain");
    return nlohmann::json::object();
  }
  if (verb == "stop") {
    request_stop("asked to stop");
    return nlohmann::json::object();
  }
  if (verb == "pause" || verb == "unpause") {
    if (phase_ != Phase::running)
      throw Error(ExitCode::usage, "the campaign is ending; it can be continued with wflow resume");
    const bool pause = verb == "pause";
    if (pause != scheduler_.paused()) record("stop", pause ? "paused: no new tasks are started" : "goes on");
    scheduler_.set_paused(pause);
    status_.set_state(pause ? "paused" : "running");
    return nlohmann::json::object();
  }
  if (verb == "retry") return {{"count", retry(retry_from_json(arguments))}};
  if (verb == "cancel") return {{"count", cancel(arguments)}};
  // Everything that it could be about is on disk first; until the next commit is submitted the store is ours.
  flush();
  Queries::Running running;
  for (const auto& [id, peer] : peers_) {
    for (const wire::RunningElement& element : peer.running) running.emplace_back(id, element);
  }
  if (auto known = Queries(plan_, scheduler_, store_, running).answer(verb, arguments))
    return std::move(*known);
  throw Error(ExitCode::usage, fmt::format("the coordinator does not know the question '{}'", verb));
}

std::uint64_t Coordinator::retry(const RetryRequest& request) {
  if (phase_ != Phase::running) {
    throw Error(ExitCode::usage,
                "the campaign is ending; ask again when it has ended: wflow retry then continues it");
  }
  if (commits_) flush();  // failures that it may be about are in the store
  std::uint64_t count = 0;
  for (const auto& [array, range] : parts_to_retry(plan_, scheduler_, store_, request)) {
    count += scheduler_.retry_failed(array, range);
    status_.reopened(array, range);
  }
  if (count > 0) {
    cancelled_ = false;
    record("retry",
           fmt::format("{} failed task{} will run again, with what follows from {}",
                       text::format_count(count), count == 1 ? "" : "s", count == 1 ? "it" : "them"));
  }
  return count;
}

std::uint64_t Coordinator::cancel(const nlohmann::json& arguments) {
  const RetryRequest request = retry_from_json(arguments);
  const bool kill = arguments.value("kill", false);
  std::uint64_t count = 0;
  for (const auto& [array, range] : parts_named(plan_, request))
    count += scheduler_.cancel(array, range, kill);
  const bool everything = request.step.empty() && !request.elements && !request.parts;
  if (everything) cancelled_ = true;
  record("stop",
         fmt::format("{}{} task{} cancelled{}", request.step.empty() ? "" : request.step + ": ",
                     text::format_count(count), count == 1 ? "" : "s", kill ? ", running ones ended" : ""));
  return count;
}

}  // namespace wflow::engine
