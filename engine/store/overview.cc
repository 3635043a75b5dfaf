// SPDX-License-Identifier: Apache-2.0
// The whole record in one pass over its executions.
#include "engine/monitor/overview.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "engine/monitor/status.h"
#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

// Adds what each execution took to slices of the campaign's time.
class SliceSums {
 public:
  SliceSums(double begin_s, double end_s, std::size_t slices)
      : begin_s_(begin_s),
        slice_s_(std::max(end_s - begin_s, 1e-3) / static_cast<double>(slices)),
        slices_(slices) {}

  std::size_t slice_of(double time_s) const {
    const double slice = (time_s - begin_s_) / slice_s_;
    if (!(slice > 0)) return 0;
    return slice >= static_cast<double>(slices_) ? slices_ - 1 : static_cast<std::size_t>(slice);
  }

  void add_running(const TaskUsage& usage, std::vector<double>& running) const {
    const double ended_s = usage.started_s + usage.duration_s;
    const std::size_t first = slice_of(usage.started_s);
    const std::size_t last = slice_of(ended_s);
    if (first == last) {
      running[first] += usage.duration_s / slice_s_;
      return;
    }
    for (std::size_t slice = first; slice <= last; ++slice) {
      const double from = begin_s_ + static_cast<double>(slice) * slice_s_;
      const double overlap = std::min(ended_s, from + slice_s_) - std::max(usage.started_s, from);
      running[slice] += std::max(overlap, 0.0) / slice_s_;
    }
  }

 private:
  double begin_s_, slice_s_;
  std::size_t slices_;
};

// Times without which a timeline has no length.
void find_span(SQLite::Database& database, Overview& overview) {
  SQLite::Statement span(database,
                         "SELECT COALESCE(min(began), 0), COALESCE(max(last), 0) FROM sessions UNION ALL "
                         "SELECT COALESCE(min(time), 0), COALESCE(max(time), 0) FROM history");
  overview.begin_s = 0;
  while (span.executeStep()) {
    const double begin_s = span.getColumn(0).getDouble();
    if (begin_s > 0 && (overview.begin_s == 0 || begin_s < overview.begin_s)) overview.begin_s = begin_s;
    overview.end_s = std::max(overview.end_s, span.getColumn(1).getDouble());
  }
}

struct ArrayFacts {
  std::string step;
  std::uint64_t elements = 1;
};

std::map<ArrayId, ArrayFacts> read_arrays(SQLite::Database& database) {
  std::map<ArrayId, ArrayFacts> arrays;
  SQLite::Statement select(database, "SELECT id, step, elements FROM arrays");
  while (select.executeStep())
    arrays[select.getColumn(0).getUInt()] = {select.getColumn(1).getString(),
                                             static_cast<std::uint64_t>(select.getColumn(2).getInt64())};
  return arrays;
}

// Which of a step's executions are kept one by one.
bool is_chosen(const TaskUsage& usage, std::uint64_t elements_of_step, std::size_t wanted) {
  const std::uint64_t of = std::max<std::uint64_t>(1, elements_of_step / std::max<std::size_t>(1, wanted));
  return hash64(usage.array, usage.first) % of == 0;
}

using NumberedRuns = std::vector<std::pair<std::uint64_t, Overview::Run>>;  // with the number of the worker

// Gives each run the id of its worker, and sorts them by their start.
void name_runs(SQLite::Database& database, NumberedRuns numbered, Overview& overview) {
  SQLite::Statement select(database, "SELECT number, id FROM usage_workers");
  std::map<std::uint64_t, std::string> names;
  while (select.executeStep())
    names[static_cast<std::uint64_t>(select.getColumn(0).getInt64())] = select.getColumn(1).getString();
  for (auto& [number, run] : numbered) {
    run.worker = names[number];
    overview.runs.push_back(std::move(run));
  }
  std::ranges::stable_sort(overview.runs, {}, [](const Overview::Run& run) { return run.usage.started_s; });
}

}  // namespace

Overview Store::overview(const OverviewWish& wish) {
  return impl_->reading([&] {
    Overview overview;
    const std::size_t slices = std::max<std::size_t>(wish.slices, 1);
    SQLite::Database& database = impl_->database;
    find_span(database, overview);
    const std::map<ArrayId, ArrayFacts> arrays = read_arrays(database);
    std::map<std::string, std::uint64_t> elements;
    for (const auto& [id, facts] : arrays) elements[facts.step] += facts.elements;
    impl_->add_activity(overview, wish, slices, elements);
    impl_->add_states(overview);
    impl_->mark_failed(overview.runs);
    impl_->add_failures(overview, wish);
    return overview;
  });
}

void Store::Impl::add_activity(Overview& overview, const OverviewWish& wish, std::size_t slices,
                               const std::map<std::string, std::uint64_t>& elements) {
  const SliceSums sums(overview.begin_s, overview.end_s, slices);
  const std::map<ArrayId, ArrayFacts> arrays = read_arrays(database);
  std::map<std::uint64_t, std::vector<double>> by_worker;
  std::map<std::string, std::size_t> chosen;
  NumberedRuns runs;
  SQLite::Statement blocks(database, "SELECT array, body FROM task_usage WHERE array >= 0");
  while (blocks.executeStep()) {
    const ArrayId array = blocks.getColumn(0).getUInt();
    const auto facts = arrays.find(array);
    if (facts == arrays.end()) continue;  // a later version has removed it
    const std::string& step = facts->second.step;
    Overview::Activity& activity = overview.steps[step];
    activity.ended.resize(slices);
    activity.running.resize(slices);
    const std::uint64_t of_step = elements.at(step);
    const SQLite::Column body = blocks.getColumn(1);
    const std::string_view bytes(static_cast<const char*>(body.getBlob()),
                                 static_cast<std::size_t>(body.getBytes()));
    std::uint64_t worker = 0;
    std::vector<double>* on_worker = nullptr;
    for (const UsageBlock::Record& record : UsageBlock::read(array, bytes)) {
      const TaskUsage& used = record.usage;
      ++overview.records;
      activity.ended[sums.slice_of(used.started_s + used.duration_s)] += static_cast<double>(used.count);
      sums.add_running(used, activity.running);
      if (on_worker == nullptr || record.worker != worker) {
        worker = record.worker;
        on_worker = &by_worker[worker];
        on_worker->resize(slices);
      }
      sums.add_running(used, *on_worker);
      if (is_chosen(used, of_step, wish.executions) && chosen[step]++ < 2 * wish.executions)
        overview.executions.push_back({step, array, used.first, used, ElementState::ready});
      if (overview.records <= wish.runs) runs.push_back({record.worker, {step, {}, used, false}});
    }
  }
  std::vector<std::pair<double, std::uint64_t>> busiest;
  for (const auto& [number, running] : by_worker) {
    double sum = 0;
    for (const double share : running) sum += share;
    busiest.emplace_back(-sum, number);
  }
  std::sort(busiest.begin(), busiest.end());
  if (busiest.size() > wish.busiest) busiest.resize(wish.busiest);
  SQLite::Statement name(database, "SELECT id FROM usage_workers WHERE number = ?");
  for (const auto& [sum, number] : busiest) {
    name.bind(1, signed_of(number));
    if (name.executeStep()) overview.workers[name.getColumn(0).getString()] = std::move(by_worker[number]);
    name.reset();
  }
  if (overview.records <= wish.runs) name_runs(database, std::move(runs), overview);
}

// Marks the runs whose execution is in the table of failures.
void Store::Impl::mark_failed(std::vector<Overview::Run>& runs) {
  SQLite::Statement select(
      database, "SELECT 1 FROM failures WHERE array = ? AND element BETWEEN ? AND ? AND attempt = ? LIMIT 1");
  for (Overview::Run& run : runs) {
    const TaskUsage& used = run.usage;
    SQLite::bind(select, used.array, signed_of(used.first), signed_of(used.first + used.count - 1),
                 used.attempt);
    run.failed = select.executeStep();
    select.reset();
  }
}

// The last execution of each chosen element counts.
void Store::Impl::add_states(Overview& overview) {
  auto& executions = overview.executions;
  const auto place = [](const Overview::Execution& a) { return std::tuple(a.array, a.element); };
  std::sort(executions.begin(), executions.end(), [&](const auto& a, const auto& b) {
    return std::tuple_cat(place(a), std::tuple(-a.usage.started_s)) <
           std::tuple_cat(place(b), std::tuple(-b.usage.started_s));
  });
  const auto twice = std::unique(executions.begin(), executions.end(),
                                 [&](const auto& a, const auto& b) { return place(a) == place(b); });
  executions.erase(twice, executions.end());
  SQLite::Statement select(
      database, "SELECT last, state FROM runs WHERE array = ? AND first <= ? ORDER BY first DESC LIMIT 1");
  for (Overview::Execution& execution : executions) {
    SQLite::bind(select, execution.array, signed_of(execution.element));
    if (select.executeStep() && static_cast<Element>(select.getColumn(0).getInt64()) >= execution.element)
      execution.state = static_cast<ElementState>(select.getColumn(1).getInt());
    select.reset();
  }
}

void Store::Impl::add_failures(Overview& overview, const OverviewWish& wish) {
  SQLite::Statement counts(
      database,
      "SELECT a.step, f.reason, f.exit_code, COALESCE(f.worker, ''), count(*) FROM failures f "
      "JOIN arrays a ON a.id = f.array GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC");
  std::uint64_t all = 0;
  while (counts.executeStep()) {
    const auto count = static_cast<std::uint64_t>(counts.getColumn(4).getInt64());
    all += count;
    overview.failure_counts.push_back(
        {counts.getColumn(0).getString(),
         describe_end(reason_from_name(counts.getColumn(1).getString()), counts.getColumn(2).getInt()),
         counts.getColumn(3).getString(), count});
  }
  overview.failures = some_failures(std::max<std::uint64_t>(1, all / std::max<std::size_t>(1, wish.failures)),
                                    2 * wish.failures);
}

}  // namespace wflow::engine::store
