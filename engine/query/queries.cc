// SPDX-License-Identifier: Apache-2.0
#include "engine/query/queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace wflow::engine {

namespace {

using Json = nlohmann::json;

// Runs a page: what a coordinator may spend on one question without keeping its workers waiting.
constexpr std::size_t kPage = 10000;
constexpr std::size_t kNamedParents = 5;

Json record_json(ArrayId array, const store::ExecutionRecord& record) {
  return {array,         record.element, record.executions, record.exit_code,
          record.reason, record.worker,  record.started_s,  record.duration_s};
}

Range whole(const Scheduler& scheduler, ArrayId array) {
  return {0, scheduler.states(array).count() - 1};
}

}  // namespace

Json to_json(const RetryRequest& request) {
  Json json = {{"step", request.step}};
  if (request.elements) json["elements"] = {request.elements->first, request.elements->last};
  if (request.exit_code) json["exit_code"] = *request.exit_code;
  if (request.parts) {
    Json& parts = json["parts"] = Json::array();
    for (const auto& [array, range] : *request.parts) parts.push_back({array, range.first, range.last});
  }
  return json;
}

RetryRequest retry_from_json(const Json& json) {
  RetryRequest request;
  request.step = json.value("step", "");
  if (json.contains("elements")) request.elements = Range{json["elements"].at(0), json["elements"].at(1)};
  if (json.contains("exit_code")) request.exit_code = json["exit_code"].get<int>();
  if (json.contains("parts")) {
    request.parts.emplace();
    for (const Json& part : json["parts"]) request.parts->push_back({part.at(0), {part.at(1), part.at(2)}});
  }
  return request;
}

std::vector<ArrayId> arrays_of_step(const specs::Plan& plan, const std::string& step) {
  std::vector<ArrayId> arrays;
  std::vector<std::string> names;
  for (const specs::PlannedStep& planned : plan.steps()) {
    const std::string& of_study = plan.study().steps[planned.study_step].name;
    for (const std::string& name : {planned.name, of_study}) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    if (!step.empty() && step != planned.name && step != of_study) continue;
    for (ArrayId array = planned.first_array; array < planned.first_array + planned.arrays; ++array)
      arrays.push_back(array);
  }
  if (arrays.empty()) {
    throw Error(ExitCode::usage,
                fmt::format("no step '{}' in this campaign{}", step, text::suggestion(step, names)));
  }
  return arrays;
}

std::string task_name(const specs::Plan& plan, ArrayId array, Element element) {
  const std::string name = plan.array_name(array);
  return plan.steps()[plan.step_of(array)].elements > 1 ? fmt::format("{}/{}", name, element) : name;
}

std::vector<std::pair<ArrayId, Range>> parts_named(const specs::Plan& plan, const RetryRequest& request) {
  std::vector<std::pair<ArrayId, Range>> named;
  const auto add = [&](ArrayId array, Range range) {
    if (array >= plan.array_count()) return;
    const std::uint64_t count = plan.steps()[plan.step_of(array)].elements;
    if (count == 0 || range.first >= count || range.first > range.last) return;
    named.push_back({array, {range.first, std::min(range.last, count - 1)}});
  };
  if (request.parts) {
    for (const auto& [array, range] : *request.parts) add(array, range);
    return named;
  }
  const Range everything{0, std::numeric_limits<Element>::max()};
  for (const ArrayId array : arrays_of_step(plan, request.step))
    add(array, request.elements.value_or(everything));
  return named;
}

std::vector<std::pair<ArrayId, Range>> parts_to_retry(const specs::Plan& plan, const Scheduler& scheduler,
                                                      store::Store& store, const RetryRequest& request) {
  std::vector<std::pair<ArrayId, Range>> parts;
  for (const auto& [array, range] : parts_named(plan, request)) {
    scheduler.states(array).for_each_in(range, [&, array = array](Range part, ElementState state) {
      if (!Scheduler::can_retry(state)) return;
      if (!request.exit_code) {
        parts.emplace_back(array, part);
        return;
      }
      for (const auto& record : store.executions(array, part)) {
        if (record.reason == "exited" && record.exit_code == *request.exit_code) {
          parts.push_back({array, {record.element, record.element}});
        }
      }
    });
  }
  return parts;
}

Queries::Queries(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
                 const Running& running)
    : plan_(plan), scheduler_(scheduler), store_(store), running_(running) {}

std::optional<Json> Queries::answer(const std::string& verb, const Json& arguments) {
  if (verb == "tasks") return tasks(arguments);
  if (verb == "explain") return explain(arguments);
  if (verb == "workers") return workers();
  if (verb == "retryable") return retryable(arguments);
  if (verb == "snapshot") return snapshot(arguments);
  return std::nullopt;
}

// Runs of equal state from (array, element) on, in arrays [.., last_array], elements [first, last], of the
// states in the mask; and for these what is known of single elements. "next" goes on where the page ended.
Json Queries::tasks(const Json& arguments) {
  const ArrayId last_array =
      std::min(arguments.at("last_array").get<ArrayId>(), static_cast<ArrayId>(scheduler_.array_count() - 1));
  const Element last = arguments.at("last");
  const unsigned mask = arguments.at("states");
  ArrayId array = arguments.at("from").at(0);
  Element from = arguments.at("from").at(1);
  Json answer = {{"runs", Json::array()},
                 {"records", Json::array()},
                 {"leases", Json::array()},
                 {"running", Json::array()},
                 {"next", nullptr}};
  Json& runs = answer["runs"];
  for (; array <= last_array; ++array, from = arguments.at("first")) {
    const auto& states = scheduler_.states(array);
    if (states.count() == 0) continue;
    const Range range{from, std::min(last, states.count() - 1)};
    if (range.first > range.last) continue;
    std::optional<Range> spanned;
    states.for_each_in(range, [&](Range run, ElementState state) {
      if ((mask >> static_cast<unsigned>(state) & 1U) == 0 || !answer["next"].is_null()) return;
      if (runs.size() >= kPage) {
        answer["next"] = {array, run.first};
        return;
      }
      runs.push_back({array, run.first, run.last, static_cast<int>(state)});
      spanned = Range{spanned ? spanned->first : run.first, run.last};
    });
    if (spanned) {
      for (const auto& record : store_.executions(array, *spanned))
        answer["records"].push_back(record_json(array, record));
    }
    if (!answer["next"].is_null()) break;
  }
  if ((mask >> static_cast<unsigned>(ElementState::leased) & 1U) == 0) return answer;
  scheduler_.for_each_lease([&](const WorkerId& worker, ArrayId leased, Range part) {
    answer["leases"].push_back({leased, part.first, part.last, worker});
  });
  for (const auto& [worker, element] : running_)
    answer["running"].push_back({element.array, element.element, element.started_s});
  return answer;
}

// What an element waits for: for each edge how many of the elements that it needs are in which state, and
// some by name.
Json Queries::parents(ArrayId array, Element element) const {
  Json list = Json::array();
  for (const specs::Edge& edge : plan_.edges(array)) {
    const auto& states = scheduler_.states(edge.parent);
    Range needed = whole(scheduler_, edge.parent);
    if (edge.kind == specs::EdgeKind::element) needed = {element, element};
    if (edge.kind == specs::EdgeKind::block) {
      needed = {element * edge.block, std::min((element + 1) * edge.block, states.count()) - 1};
    }
    Json counts = Json::object();
    Json open = Json::array();
    Json bad = Json::array();
    states.for_each_in(needed, [&](Range part, ElementState state) {
      const std::string name(name_of(state));
      counts[name] = counts.value(name, std::uint64_t{0}) + part.size();
      if (state == ElementState::done) return;
      Json& names = has_ended(state) ? bad : open;
      for (Element at = part.first; at <= part.last && names.size() < kNamedParents; ++at) {
        names.push_back(task_name(plan_, edge.parent, at));
      }
    });
    list.push_back({{"array", plan_.array_name(edge.parent)},
                    {"needed", needed.size()},
                    {"counts", counts},
                    {"open", open},
                    {"ended_badly", bad}});
  }
  return list;
}

Json Queries::explain(const Json& arguments) {
  const ArrayId array = arguments.at("array");
  const Element element = arguments.at("element");
  if (array >= scheduler_.array_count() || element >= scheduler_.states(array).count()) {
    throw Error(ExitCode::usage, "no such task in this campaign");
  }
  Json answer = {{"task", task_name(plan_, array, element)},
                 {"step", plan_.steps()[plan_.step_of(array)].name},
                 {"state", std::string(name_of(scheduler_.states(array).at(element)))},
                 {"waits_for", parents(array, element)},
                 {"paused", scheduler_.paused()},
                 {"executions", Json::array()}};
  if (const auto worker = scheduler_.worker_of(array, element)) answer["worker"] = *worker;
  for (const auto& [worker, execution] : running_) {
    if (execution.array == array && execution.element == element)
      answer["running_since"] = execution.started_s;
  }
  for (const FailureView& failure : store_.failures_of(array, element)) {
    Json row = {{"attempt", failure.attempt}, {"reason", failure.reason},       {"worker", failure.worker},
                {"started", failure.time_s},  {"duration", failure.duration_s}, {"final", failure.final},
                {"detail", failure.detail}};
    if (const auto worker = store_.worker(failure.worker)) {
      row["host"] = worker->host;
      if (worker->ended_s > 0) row["worker_ended"] = worker->ended_s;
      row["worker_reason"] = worker->reason;
    }
    answer["executions"].push_back(std::move(row));
  }
  return answer;
}

Json Queries::workers() {
  const auto views = scheduler_.workers();
  Json list = Json::array();
  for (const store::WorkerRecord& row : store_.workers()) {
    Json worker = {{"id", row.id},           {"host", row.host},   {"group", row.group},
                   {"pid", row.pid},         {"cores", row.cores}, {"gpus", row.gpus},
                   {"joined", row.joined_s}, {"state", "ended"},   {"failures", row.failures}};
    if (row.ended_s > 0) worker["ended"] = row.ended_s;
    if (!row.reason.empty()) worker["reason"] = row.reason;
    if (const auto view = views.find(row.id); view != views.end()) {
      worker["state"] = view->second.draining ? "draining" : "working";
      worker["leased"] = view->second.elements;
      worker["running"] =
          std::count_if(running_.begin(), running_.end(), [&](const auto& r) { return r.first == row.id; });
    } else if (row.ended_s <= 0) {
      worker["state"] = "unknown";  // its coordinator was killed and none has asked for it since
    }
    list.push_back(std::move(worker));
  }
  return {{"workers", list}};
}

Json Queries::retryable(const Json& arguments) {
  std::uint64_t count = 0;
  for (const auto& [array, range] : parts_to_retry(plan_, scheduler_, store_, retry_from_json(arguments)))
    count += range.size();
  return {{"count", count}};
}

Json Queries::snapshot(const Json& arguments) {
  store_.snapshot(arguments.at("path").get<std::string>());
  return Json::object();
}

}  // namespace wflow::engine
