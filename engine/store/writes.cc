// SPDX-License-Identifier: Apache-2.0
// What a batch becomes in the database.
#include <algorithm>
#include <cmath>

#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

constexpr double kLongest_s = 1e12;  // 30,000 years: a longer time is an error of the sender

// Neighbours that ended in one batch become one write. With an element that is opened again the order
// counts, and only what follows each other is joined.
std::vector<RecordEnd> merged(std::vector<RecordEnd> ends) {
  const bool reopens =
      std::any_of(ends.begin(), ends.end(), [](const auto& e) { return !has_ended(e.state); });
  if (!reopens) {
    std::sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
      return std::pair(a.array, a.range.first) < std::pair(b.array, b.range.first);
    });
  }
  std::vector<RecordEnd> result;
  for (const RecordEnd& end : ends) {
    const bool joins = !result.empty() && result.back().array == end.array &&
                       result.back().state == end.state && result.back().range.last + 1 == end.range.first;
    joins ? void(result.back().range.last = end.range.last) : result.push_back(end);
  }
  return result;
}

}  // namespace

double stored_time(double seconds) {
  return std::isnan(seconds) ? 0 : std::clamp(seconds, -kLongest_s, kLongest_s);
}

double stored_duration(double seconds) {
  return std::max(stored_time(seconds), 0.0);
}

void Store::Impl::write(const Batch& batch) {
  for (const WorkerRow& worker : batch.workers_joined) write_worker(worker);
  write_ends(merged(batch.ends));
  write_counts();
  for (const RecordFloor& floor : batch.floors) write_floor(floor);
  for (const RecordFailure& failure : batch.failures) write_failure(failure);
  for (const RecordCause& cause : batch.causes) write_cause(cause);
  for (const wire::TaskEvent& event : batch.events) write_event(event);
  for (const Followup& followup : batch.followups) write_followup(followup);
  for (const auto& [array, progress] : batch.totals) {
    const double square_sum = std::isfinite(progress.duration_square_sum) ? progress.duration_square_sum : 0;
    execute(statement("UPDATE arrays SET timed = ?, duration_sum = ?, duration_square_sum = ? WHERE id = ?"),
            signed_of(progress.timed), stored_duration(progress.duration_sum_s), square_sum, array);
  }
  for (const Batch::WorkerEnd& end : batch.workers_ended) {
    // Not a later row: a worker that was given up may have joined again since.
    execute(statement("UPDATE workers SET ended = ?, reason = ? WHERE id = ? AND joined <= ?"),
            stored_time(end.time_s), end.reason, end.id, stored_time(end.time_s));
  }
  for (const batch::Allocation& row : batch.allocations) write_allocation(row);
  for (const HistoryRow& row : batch.history) write_history(row);
  write_usage(batch.usage);
  if (batch.time_s > 0) write_session(batch.time_s);
}

// A clock that was set back does not shorten it.
void Store::Impl::write_session(double time_s) {
  const double time = stored_time(time_s);
  execute(
      statement(
          "INSERT INTO sessions (epoch, began, last) SELECT CAST(value AS INTEGER), ?1, ?1 FROM meta WHERE "
          "key = 'epoch' ON CONFLICT (epoch) DO UPDATE SET last = max(last, ?1)"),
      time);
}

void Store::Impl::write_worker(const WorkerRow& worker) {
  const auto& [host, boot, name_space, pid, ticks] = worker.guardian;
  const ProcessIdentity& agent = worker.agent;
  execute(
      statement(
          "INSERT OR REPLACE INTO workers (id, worker_group, cores, gpus, host, boot, pid_namespace, pid, "
          "started_ticks, agent_host, agent_boot, agent_pid_namespace, agent_pid, agent_started_ticks, "
          "lost_s, joined) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      worker.id, worker.group, worker.cores, worker.gpus, host, boot, name_space, pid, signed_of(ticks),
      agent.host, agent.boot, agent.namespace_id, agent.pid, signed_of(agent.start_ticks),
      stored_duration(worker.lost_s), stored_time(worker.joined_s));
}

void Store::Impl::write_ends(std::span<const RecordEnd> ends) {
  while (!ends.empty()) {
    std::size_t written = 1;
    has_ended(ends.front().state) ? write_end(ends.front()) : void(written = write_reopened(ends));
    ends = ends.subspan(written);
  }
}

void Store::Impl::write_end(const RecordEnd& end) {
  count_replaced(end.array, runs.set(end.array, end.range, static_cast<int>(end.state)));
  changes[end.array][static_cast<std::size_t>(end.state)] += signed_of(end.range.size());
  if (!sources_of.empty() && end.state == ElementState::done) {
    if (const auto at = sources_of.find(end.array); at != sources_of.end())
      made.set(end.array, end.range, at->second);
  }
  execute(statement("DELETE FROM attempts WHERE array = ? AND element BETWEEN ? AND ?"), end.array,
          signed_of(end.range.first), signed_of(end.range.last));
}

// Writes the leading ends that are in order at once: a retry may open a million. Returns their number.
std::size_t Store::Impl::write_reopened(std::span<const RecordEnd> ends) {
  const ArrayId array = ends.front().array;
  std::vector<Range> parts;
  for (const RecordEnd& end : ends) {
    const bool in_order = parts.empty() || parts.back().last < end.range.first;
    if (has_ended(end.state) || end.array != array || !in_order) break;
    parts.push_back(end.range);
  }
  count_replaced(array, runs.clear(array, parts));
  if (has_made()) made.clear(array, parts);
  forget_missing(array, parts);
  return parts.size();
}

void Store::Impl::count_replaced(ArrayId array, const std::vector<RunTable::Row>& replaced) {
  auto& change = changes[array];
  for (const RunTable::Row& row : replaced)
    change[static_cast<std::size_t>(row.value)] -= signed_of(row.range.size());
}

// From the runs themselves: independent of a batch's totals, the counts are the sums of the runs
// (restore.cc).
void Store::Impl::write_counts() {
  for (const auto& [array, change] : changes) {
    const auto of = [&counts = change](ElementState state) {
      return counts[static_cast<std::size_t>(state)];
    };
    execute(
        statement("UPDATE arrays SET done = done + ?, failed = failed + ?, hard_failed = hard_failed + ?, "
                  "skipped = skipped + ?, cancelled = cancelled + ? WHERE id = ?"),
        of(ElementState::done), of(ElementState::failed), of(ElementState::hard_failed),
        of(ElementState::skipped), of(ElementState::cancelled), array);
  }
}

// Reopening an element resets its budgets.
void Store::Impl::write_floor(const RecordFloor& floor) {
  floors.set(floor.array, floor.range, signed_of(floor.lease));
  execute(statement("DELETE FROM attempts WHERE array = ? AND element BETWEEN ? AND ?"), floor.array,
          signed_of(floor.range.first), signed_of(floor.range.last));
}

// After the ends and floors of its batch: an element that has ended since, or was opened again, has no counts
// of this failure.
void Store::Impl::write_failure(const RecordFailure& row) {
  const auto& outcome = row.outcome;
  execute(statement("INSERT INTO failures (array, element, attempt, reason, exit_code, started, duration, "
                    "worker, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"),
          outcome.array, signed_of(outcome.element), outcome.attempt, reason_name(outcome.reason),
          outcome.exit_code, stored_time(outcome.started_s), stored_duration(outcome.duration_s), row.worker,
          outcome.detail);
  if (row.final || runs.find(outcome.array, outcome.element)) return;
  if (signed_of(outcome.lease) < floors.find(outcome.array, outcome.element).value_or(0)) return;
  write_attempt(outcome.array, outcome.element, row.counts);
}

void Store::Impl::write_attempt(ArrayId array, Element element, const AttemptCounts& counts) {
  execute(
      statement("INSERT OR REPLACE INTO attempts (array, element, next_attempt, failures, crashes, restart, "
                "neutral, launches, memory, memory_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      array, signed_of(element), counts.number, counts.failures, counts.crashes, counts.restart ? 1 : 0,
      counts.neutral, counts.launches, counts.memory, counts.memory_bytes);
}

// After the failures and floors of its batch.
void Store::Impl::write_cause(const RecordCause& cause) {
  execute(
      statement("UPDATE failures SET reason = ?, detail = ? WHERE array = ? AND element = ? AND attempt = ? "
                "AND worker = ? AND reason = 'worker_lost'"),
      reason_name(cause.reason), cause.detail, cause.array, signed_of(cause.element), cause.attempt,
      cause.worker);
  if (cause.counts && !runs.find(cause.array, cause.element))
    write_attempt(cause.array, cause.element, *cause.counts);
}

void Store::Impl::write_history(const HistoryRow& row) {
  execute(statement("INSERT INTO history (time, kind, text) VALUES (?, ?, ?)"), stored_time(row.time_s),
          row.kind, row.text);
}

}  // namespace wflow::engine::store
