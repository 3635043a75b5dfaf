// SPDX-License-Identifier: Apache-2.0
#include "engine/query/queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "engine/monitor/metric_curves.h"
#include "engine/monitor/missing_samples.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

namespace {

constexpr std::size_t kListedParents = 500;
constexpr std::size_t kNamedElements = 5;
constexpr std::size_t kListedExecutions = 100;
constexpr std::size_t kWorkersPage = 1000;

wire::Answer bounded(wire::Answer answer) {
  const std::size_t bytes = wire::encode(answer).size();
  if (bytes <= wire::kMaxAnswerBytes) return answer;
  return wire::refusal(fmt::format("the answer would take {}, and {} is the most; ask for less at once",
                                   text::format_bytes(bytes), text::format_bytes(wire::kMaxAnswerBytes)));
}

}  // namespace

std::vector<std::pair<ArrayId, Range>> parts_to_retry(const specs::Plan& plan, const Scheduler& scheduler,
                                                      store::Store& store, const wire::Selection& selection) {
  std::vector<std::pair<ArrayId, Range>> parts;
  const auto add = [&](ArrayId array, Range range) {
    const bool joins =
        !parts.empty() && parts.back().first == array && parts.back().second.last + 1 == range.first;
    joins ? void(parts.back().second.last = range.last) : parts.push_back({array, range});
  };
  // By exit code, page by page: a mass failure has a record for each element.
  const auto add_matching = [&](ArrayId array, Range range) {
    while (range.first <= range.last) {
      const auto records = store.executions(array, range, kPageItems);
      for (const auto& record : records) {
        if (record.reason == "exited" && record.exit_code == selection.exit_code)
          add(array, {record.element, record.element});
      }
      if (records.size() < kPageItems) return;
      range.first = records.back().element + 1;
    }
  };
  for (const auto& [array, range] : parts_named(plan, selection)) {
    scheduler.states(array).for_each_in(range, [&, array = array](Range part, ElementState state) {
      if (!Scheduler::can_retry(state)) return;
      selection.by_exit_code ? add_matching(array, part) : add(array, part);
    });
  }
  return parts;
}

Queries::Queries(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
                 const RunningElements& running, StatusSource status)
    : plan_(plan), scheduler_(scheduler), store_(store), running_(running), status_(std::move(status)) {}

namespace {

// Whatever goes wrong is this request's refusal alone.
template <class Make>
wire::Answer answer_or_refusal(Make make) {
  try {
    return make();
  } catch (const Error& error) {
    return wire::refusal(error.what(), error.code());
  } catch (const std::exception& error) {
    return wire::refusal(fmt::format("the question can't be answered: {}", error.what()), ExitCode::internal);
  }
}

}  // namespace

wire::Answer answer_snapshot(store::Store& store, const std::string& path) {
  return answer_or_refusal([&] {
    store.snapshot(path);
    return wire::done_answer();
  });
}

wire::Answer Queries::answer(const wire::Request& request) {
  return answer_or_refusal([&] {
    return bounded(std::visit(
        [&](const auto& asked) -> wire::Answer {
          if constexpr (requires { on(asked); }) return on(asked);
          return wire::refusal("only the coordinator of a running campaign can do that");
        },
        request));
  });
}

wire::Answer Queries::on(const wire::StatusRequest&) {
  CampaignStatus status = status_();
  keep_bounds(status);
  return {std::move(status)};
}

void cut_to(wire::WatchAnswer& answer, const wire::WatchRequest& request) {
  CampaignStatus& status = answer.status;
  keep_bounds(status);
  thin_curves(status.metrics, std::min<std::size_t>(request.points, kListedPoints));
  if (status.workers.size() > request.workers) status.workers.resize(request.workers);
  // A dashboard does not show these.
  status.artifacts.clear();
}

wire::Answer Queries::on(const wire::WatchRequest& request) {
  wire::WatchAnswer answer;
  answer.status = status_();
  cut_to(answer, request);
  std::vector<const RunningElements::value_type*> running;
  for (const auto& element : running_) running.push_back(&element);
  answer.running_total = running.size();
  const std::size_t count = std::min<std::size_t>({running.size(), request.running, kPageItems});
  const auto begin = [](const auto* element) { return element->second.started_s; };
  std::ranges::partial_sort(running, running.begin() + static_cast<std::ptrdiff_t>(count), {}, begin);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [worker, element] = *running[i];
    if (element.array >= plan_.array_count()) continue;
    answer.running.push_back({element.array, element.element,
                              specs::task_name(plan_, element.array, element.element), worker,
                              element.started_s, element.memory_bytes});
  }
  if (request.points > 0) answer.checkpoints = store_.checkpoints();
  return {std::move(answer)};
}

wire::Answer Queries::on(const wire::TasksRequest& request) {
  return {task_page(plan_, scheduler_, store_, running_, request)};
}

// The parents of an element: for each edge, how many of the elements that it needs are in which state, and
// some by name.
wire::ParentView Queries::parent(const specs::Edge& edge, Element element) const {
  const auto& states = scheduler_.states(edge.parent);
  wire::ParentView view;
  view.array = plan_.array_name(edge.parent);
  if (states.count() == 0) return view;
  Range needed{0, states.count() - 1};
  if (edge.kind == specs::EdgeKind::element) needed = {element, element};
  if (edge.kind == specs::EdgeKind::block) {
    const BlockRange items = edge.blocks().items(element, states.count());
    needed = {items.first, items.end - 1};
  }
  view.needed = needed.size();
  states.for_each_in(needed, [&](Range part, ElementState state) {
    view.counts[static_cast<std::size_t>(state)] += part.size();
    if (state == ElementState::done) return;
    auto& names = has_ended(state) ? view.ended_badly : view.open;
    for (Element at = part.first; at <= part.last && names.size() < kNamedElements; ++at) {
      names.push_back(specs::task_name(plan_, edge.parent, at));
    }
  });
  return view;
}

void Queries::add_parents(ArrayId array, Element element, wire::ExplainAnswer& answer) const {
  const auto edges = plan_.edges(array);
  answer.parents_total = edges.size();
  for (std::size_t i = 0; i < std::min(edges.size(), kListedParents); ++i)
    answer.parents.push_back(parent(edges[i], element));
}

void Queries::add_executions(ArrayId array, Element element, wire::ExplainAnswer& answer) {
  auto failures = store_.failures_of(array, element);
  answer.executions_total = failures.size();
  if (failures.size() > kListedExecutions) {
    failures.erase(failures.begin(), failures.end() - static_cast<std::ptrdiff_t>(kListedExecutions));
  }
  for (FailureView& failure : failures) {
    wire::ExecutionView& view = answer.executions.emplace_back();
    view.attempt = failure.attempt;
    view.reason = failure.reason;
    view.worker = failure.worker;
    view.started_s = failure.time_s;
    view.duration_s = failure.duration_s;
    view.final = failure.final;
    view.detail = printable(text::tail(failure.detail, kListedText));
    const auto worker = store_.worker(failure.worker);
    if (!worker) continue;
    view.host = worker->guardian.host;
    view.worker_ended_s = worker->ended_s;
    view.worker_reason = worker->reason;
  }
}

void Queries::add_usage(ArrayId array, Element element, wire::ExplainAnswer& answer) {
  std::vector<store::UsageRow> rows = store_.usage_of(array, {element, element});
  if (rows.size() > kListedExecutions)
    rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(kListedExecutions));
  for (store::UsageRow& row : rows) answer.used.push_back({row.usage, std::move(row.worker)});
}

void Queries::add_missing(ArrayId array, Element element, wire::ExplainAnswer& answer) {
  if (answer.state != ElementState::done) return;
  const auto all = conversions(plan_);
  const auto [begin, end] = all.equal_range(array);
  for (auto at = begin; at != end; ++at) {
    for (const store::MissingRecord& record : store_.missing(at->second, {element, element}, 1))
      answer.missing.push_back(fmt::format("{}: {}", plan_.array_name(at->second), record.reason));
  }
}

wire::Answer Queries::on(const wire::ExplainRequest& request) {
  const auto [array, element] = request.task;
  if (array >= scheduler_.array_count() || element >= scheduler_.states(array).count())
    return wire::refusal("no such task in this campaign");
  wire::ExplainAnswer answer;
  answer.task = specs::task_name(plan_, array, element);
  answer.step = plan_.steps()[plan_.step_of(array)].name;
  answer.state = scheduler_.states(array).at(element);
  answer.paused = scheduler_.paused();
  answer.worker = scheduler_.worker_of(array, element).value_or("");
  for (const auto& [worker, execution] : running_) {
    if (execution.array == array && execution.element == element)
      answer.running_since_s = execution.started_s;
  }
  add_usage(array, element, answer);
  add_missing(array, element, answer);
  add_parents(array, element, answer);
  add_executions(array, element, answer);
  return {std::move(answer)};
}

wire::Answer Queries::on(const wire::UsageRequest& request) {
  if (request.array >= scheduler_.array_count()) return wire::refusal("no such tasks in this campaign");
  const std::size_t limit =
      request.limit == 0 ? kPageItems : std::min<std::size_t>(request.limit, kPageItems);
  wire::UsageAnswer answer;
  for (store::UsageRow& row : store_.usage_of(request.array, {request.first, request.last}, limit))
    answer.used.push_back({row.usage, std::move(row.worker)});
  // The next page repeats all records of the element at which this one ends.
  if (answer.used.size() == limit) answer.next = std::max(answer.used.back().usage.first, request.first + 1);
  return {std::move(answer)};
}

wire::Answer Queries::on(const wire::UsageSummaryRequest&) {
  return {usage_summary(store_)};
}

wire::UsageSummary usage_summary(store::Store& store) {
  wire::UsageSummary summary;
  for (const auto& [step, usage] : store.usage()) summary.steps.push_back({step, usage.bytes()});
  summary.lost = store.lost_times();
  return summary;
}

wire::WorkerView view_of(const store::WorkerRecord& row) {
  wire::WorkerView view;
  view.id = row.id;
  view.host = row.guardian.host;
  view.group = row.group;
  view.pid = row.guardian.pid;
  view.cores = row.cores;
  view.gpus = row.gpus;
  view.joined_s = row.joined_s;
  view.ended_s = row.ended_s;
  view.reason = row.reason;
  view.failures = row.failures;
  view.state = row.ended_s > 0 ? wire::WorkerViewState::ended : wire::WorkerViewState::unknown;
  return view;
}

wire::Answer Queries::on(const wire::WorkersRequest& request) {
  const auto working = scheduler_.workers();
  std::map<WorkerId, std::uint64_t> running;
  for (const auto& [worker, element] : running_) ++running[worker];
  const auto rows = store_.workers();
  wire::WorkersAnswer answer;
  std::uint64_t at = request.from;
  for (; at < rows.size() && answer.workers.size() < kWorkersPage; ++at) {
    wire::WorkerView view = view_of(rows[at]);
    if (const auto found = working.find(view.id); found != working.end()) {
      view.state = found->second.draining ? wire::WorkerViewState::draining : wire::WorkerViewState::working;
      view.leased = found->second.elements;
      view.running = running[view.id];
    }
    answer.workers.push_back(std::move(view));
  }
  if (at < rows.size()) answer.next = at;
  return {std::move(answer)};
}

wire::Answer Queries::on(const wire::RetryableRequest& request) {
  std::uint64_t count = 0;
  for (const auto& [array, range] : parts_to_retry(plan_, scheduler_, store_, request.tasks))
    count += range.size();
  return wire::done_answer(count);
}

wire::Answer Queries::on(const wire::SnapshotRequest& request) {
  return answer_snapshot(store_, request.path);
}

}  // namespace wflow::engine
