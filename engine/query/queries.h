// SPDX-License-Identifier: Apache-2.0
// Questions about single tasks and workers, answered in the same way by a coordinator and from the record of
// a campaign at rest: from a scheduler's states and the store. Answers are JSON, as they travel
//.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/store/store.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// Which failures to run again; or, for cancel, which tasks.
struct RetryRequest {
  std::string step;  // of the study; empty: all
  std::optional<Range> elements;
  std::optional<int> exit_code;  // of the last execution
  // These instead, where the asking side has chosen: what is above does not count.
  std::optional<std::vector<std::pair<ArrayId, Range>>> parts;
};
nlohmann::json to_json(const RetryRequest& request);
RetryRequest retry_from_json(const nlohmann::json& json);

// The parts of arrays that the request means. Error{usage} for a step that the study does not have.
std::vector<std::pair<ArrayId, Range>> parts_to_retry(const specs::Plan& plan, const Scheduler& scheduler,
                                                      store::Store& store, const RetryRequest& request);

// The parts of arrays that the request names, whatever their state and exit codes are.
std::vector<std::pair<ArrayId, Range>> parts_named(const specs::Plan& plan, const RetryRequest& request);

// The arrays of a step of the study or plan ("data" is also "data.manifest"), all of them for an empty name.
std::vector<ArrayId> arrays_of_step(const specs::Plan& plan, const std::string& step);

// "simulate/12", or the array's name where it has one element.
std::string task_name(const specs::Plan& plan, ArrayId array, Element element);

class Queries {
 public:
  using Running = std::vector<std::pair<WorkerId, wire::RunningElement>>;
  // `running`: what workers said last; empty at rest.
  Queries(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store, const Running& running);

  // Nothing for a question that it does not know.
  std::optional<nlohmann::json> answer(const std::string& verb, const nlohmann::json& arguments);

 private:
  nlohmann::json tasks(const nlohmann::json& arguments);
  nlohmann::json explain(const nlohmann::json& arguments);
  nlohmann::json workers();
  nlohmann::json parents(ArrayId array, Element element) const;
  nlohmann::json retryable(const nlohmann::json& arguments);
  nlohmann::json snapshot(const nlohmann::json& arguments);

  const specs::Plan& plan_;
  const Scheduler& scheduler_;
  store::Store& store_;
  const Running& running_;
};

// Asks about one campaign: its coordinator where one lives, else its record. Errors as Store's constructor,
// and what the coordinator objects to.
class Client {
 public:
  explicit Client(const specs::Plan& plan);
  ~Client();
  nlohmann::json ask(const std::string& verb, const nlohmann::json& arguments);
  // Only a coordinator can do it: nothing when none lives.
  std::optional<nlohmann::json> command(const std::string& verb, const nlohmann::json& arguments);
  // Whether the last answer came from a coordinator.
  bool live() const { return record_ == nullptr; }

 private:
  struct Record;
  const specs::Plan& plan_;
  std::unique_ptr<Record> record_;
};

}  // namespace wflow::engine
