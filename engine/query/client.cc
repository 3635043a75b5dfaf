// SPDX-License-Identifier: Apache-2.0
// The asking side of queries.h.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "engine/query/queries.h"
#include "engine/schedule/graph.h"
#include "engine/wire/transport.h"

namespace wflow::engine {

namespace {

// How long a question waits for a coordinator that begins or ends, and for one that is busy.
constexpr double kPatience_s = 10;
constexpr std::chrono::milliseconds kAnswer{20000};

std::optional<nlohmann::json> ask_coordinator(const specs::Plan& plan, const std::string& verb,
                                              const nlohmann::json& arguments) {
  if (!wire::read_endpoint(plan.campaign())) return std::nullopt;
  const auto answer = wire::ask(plan.campaign(), {verb, arguments.dump()}, kAnswer);
  if (!answer) return std::nullopt;
  if (!answer->ok) throw Error(ExitCode::usage, answer->body);
  return nlohmann::json::parse(answer->body);
}

}  // namespace

// A campaign without a coordinator: the states that a coordinator would begin with.
struct Client::Record {
  explicit Record(const specs::Plan& plan)
      : store(plan.campaign()),
        scheduler(array_specs(plan), 0),
        queries(plan, scheduler, store, nothing_runs) {
    restore_states(scheduler, store.restore());
    scheduler.start();
  }
  store::Store store;
  Scheduler scheduler;
  const Queries::Running nothing_runs;
  Queries queries;
};

Client::Client(const specs::Plan& plan) : plan_(plan) {}
Client::~Client() = default;

nlohmann::json Client::ask(const std::string& verb, const nlohmann::json& arguments) {
  for (const double until_s = steady_now_s() + kPatience_s; !record_;) {
    if (auto answer = ask_coordinator(plan_, verb, arguments)) return std::move(*answer);
    try {
      record_ = std::make_unique<Record>(plan_);
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      if (steady_now_s() > until_s) {
        throw Error(ExitCode::busy, fmt::format("the coordinator of {} does not answer; try again",
                                                plan_.campaign().string()));
      }
    }
  }
  auto answer = record_->queries.answer(verb, arguments);
  WFLOW_CHECK(answer.has_value());
  return std::move(*answer);
}

std::optional<nlohmann::json> Client::command(const std::string& verb, const nlohmann::json& arguments) {
  for (const double until_s = steady_now_s() + kPatience_s;;) {
    if (auto answer = ask_coordinator(plan_, verb, arguments)) return answer;
    try {
      const store::Store nobody_holds_it(plan_.campaign());
      return std::nullopt;
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      if (steady_now_s() > until_s) {
        throw Error(ExitCode::busy, fmt::format("the coordinator of {} does not answer; try again",
                                                plan_.campaign().string()));
      }
    }
  }
}

}  // namespace wflow::engine
