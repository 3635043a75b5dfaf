// SPDX-License-Identifier: Apache-2.0
// Records for users: failures, metrics, artifacts, history.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/monitor/metric_curves.h"
#include "engine/monitor/status.h"
#include "engine/store/impl.h"
#include "engine/store/store.h"
#include "specs/plan/plan.h"
#include "specs/study/blocks.h"

namespace wflow::engine::store {

namespace {

// A value, or the name of one that is no number.
double number_of(const SQLite::Column& column) {
  if (!column.isText()) return column.getDouble();
  const std::string name = column.getString();
  if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return name.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
}

std::uint64_t whole(const SQLite::Column& column) {
  return static_cast<std::uint64_t>(column.getInt64());
}

}  // namespace

std::vector<FailureView> Store::Impl::read_failures(SQLite::Statement& select) {
  std::vector<FailureView> views;
  while (select.executeStep()) {
    FailureView view;
    view.element = whole(select.getColumn(3));
    view.task = specs::task_name(select.getColumn(0).getString(), whole(select.getColumn(2)), view.element);
    view.step = select.getColumn(1).getString();
    view.attempt = select.getColumn(4).getUInt();
    view.reason =
        describe_end(reason_from_name(select.getColumn(5).getString()), select.getColumn(6).getInt());
    view.time_s = select.getColumn(7).getDouble();
    view.duration_s = select.getColumn(8).getDouble();
    view.worker = select.getColumn(9).getString();
    view.final = select.getColumn(10).getInt() != 0;
    view.detail = select.getColumn(11).getString();
    view.number = whole(select.getColumn(12));
    view.array = select.getColumn(13).getUInt();
    views.push_back(std::move(view));
  }
  return views;
}

namespace {

// `final`: whether the element has ended by this failure, as in v_failures (schema.h).
std::string failures_query(const char* which) {
  return fmt::format(
      "SELECT a.name, a.step, a.elements, f.element, f.attempt, f.reason, f.exit_code, f.started, "
      "f.duration, "
      "f.worker, f.id = (SELECT max(g.id) FROM failures g WHERE g.array = f.array AND g.element = f.element) "
      "AND EXISTS (SELECT 1 FROM runs r WHERE r.array = f.array AND r.last >= f.element AND r.state IN (5, "
      "6) "
      "AND r.first = (SELECT max(q.first) FROM runs q WHERE q.array = f.array AND q.first <= f.element)) "
      "AS final, f.detail, f.id, f.array FROM failures f JOIN arrays a ON a.id = f.array {}",
      which);
}

}  // namespace

std::vector<FailureView> Store::failures(std::size_t limit, bool final_only) {
  return impl_->reading([&] {
    // No more than that have ended so: a search for more would read every failure.
    const auto all = impl_->database.execAndGet("SELECT sum(failed + hard_failed) FROM arrays").getInt64();
    auto& select = impl_->statement(
        failures_query(final_only ? "WHERE final ORDER BY f.id DESC LIMIT ?" : "ORDER BY f.id DESC LIMIT ?")
            .c_str());
    SQLite::bind(select, final_only ? std::min(signed_of(limit), all) : signed_of(limit));
    auto views = impl_->read_failures(select);
    std::reverse(views.begin(), views.end());
    return views;
  });
}

std::vector<FailureView> Store::Impl::some_failures(std::uint64_t of, std::size_t limit) {
  auto& select = statement(failures_query("WHERE f.id % ? = 0 ORDER BY f.id LIMIT ?").c_str());
  SQLite::bind(select, signed_of(of), signed_of(limit));
  return read_failures(select);
}

std::vector<FailureView> Store::failures_of(ArrayId array, Element element) {
  return impl_->reading([&] {
    auto& select =
        impl_->statement(failures_query("WHERE f.array = ? AND f.element = ? ORDER BY f.id").c_str());
    SQLite::bind(select, array, signed_of(element));
    return impl_->read_failures(select);
  });
}

void Store::add_records(CampaignStatus& status) {
  status.failures = failures(kListedFailures, true);
  for (const Followup& followup : followups()) {
    FollowupView& view = status.followups.emplace_back();
    view.kind = followup.kind;
    view.iteration = followup.iteration;
    view.spec = followup.spec;
    view.directory = followup.directory;
    view.state = followup.state;
    view.handed_to = followup.handed_to;
  }
  impl_->reading([&] {
    impl_->add_metrics(status);
    impl_->add_artifacts(status);
    impl_->add_records(status);
  });
  keep_bounds(status);
}

void Store::Impl::add_metrics(CampaignStatus& status) {
  auto& select = statement(
      "SELECT array, element, name, step, epoch, COALESCE(value, not_finite) FROM metrics WHERE array >= 0 "
      "ORDER BY array, element, name, step");
  MetricCurves curves;
  while (select.executeStep()) {
    curves.add(select.getColumn(0).getUInt(), whole(select.getColumn(1)),
               {select.getColumn(2).getString(), whole(select.getColumn(4)), whole(select.getColumn(3)),
                number_of(select.getColumn(5))});
  }
  const auto name = [&](ArrayId array, Element element) {
    auto& of_array = statement("SELECT name, elements FROM arrays WHERE id = ?");
    of_array.bind(1, array);
    if (!of_array.executeStep()) return std::string();
    std::string task =
        specs::task_name(of_array.getColumn(0).getString(), whole(of_array.getColumn(1)), element);
    of_array.reset();  // a statement in progress would refuse a snapshot
    return task;
  };
  status.metrics = curves.curves(name, kListedPoints);
}

// Tasks name files where the campaign was when they ran; it may have been moved or copied since.
std::string Store::Impl::place_now(const std::string& path, const std::vector<std::string>& places) const {
  for (const std::string& place : places) {
    if (path.starts_with(place) && path.substr(place.size()).starts_with("/"))
      return (campaign / path.substr(place.size() + 1)).string();
  }
  return path;
}

std::vector<std::string> Store::Impl::places() {
  std::vector<std::string> places;
  auto& select = statement("SELECT substr(key, 7) FROM meta WHERE key >= 'place:' AND key < 'place;'");
  while (select.executeStep()) places.push_back(select.getColumn(0).getString());
  return places;
}

void Store::Impl::add_artifacts(CampaignStatus& status) {
  const std::vector<std::string> all_places = places();
  auto& select = statement(
      "SELECT a.step, e.body FROM events e JOIN arrays a ON a.id = e.array WHERE e.type = 'artifact' ORDER "
      "BY e.id");
  while (select.executeStep()) {
    const auto line = wire::parse_event_line(select.getColumn(1).getString());
    const auto* body = line ? std::get_if<wire::EventBody>(&*line) : nullptr;
    const auto* artifact = body != nullptr ? std::get_if<wire::Artifact>(body) : nullptr;
    if (artifact == nullptr || artifact->kind == "shard") continue;  // thousands; the manifest lists them
    const std::string path = place_now(artifact->path, all_places);
    const auto same = [&](const ArtifactView& known) { return known.path == path; };
    if (std::erase_if(status.artifacts, same) == 0) ++status.artifacts_total;
    status.artifacts.push_back({select.getColumn(0).getString(), artifact->kind, path});
    if (status.artifacts.size() > kListedArtifacts) status.artifacts.erase(status.artifacts.begin());
  }
}

void Store::Impl::add_records(CampaignStatus& status) {
  auto& history = statement(
      "SELECT id, time, kind, text FROM (SELECT * FROM history ORDER BY id DESC LIMIT ?) ORDER BY id");
  SQLite::bind(history, static_cast<std::int64_t>(kListedHistory));
  while (history.executeStep()) {
    status.history.push_back({whole(history.getColumn(0)), history.getColumn(1).getDouble(),
                              history.getColumn(2).getString(), history.getColumn(3).getString()});
  }
  auto& progress = statement(
      "SELECT a.step, p.done, p.total, p.unit FROM progress p JOIN arrays a ON a.id = p.array WHERE "
      "a.elements = 1");
  while (progress.executeStep()) {
    for (StepStatus& step : status.steps) {
      if (step.name != progress.getColumn(0).getString()) continue;
      step.progress_done = whole(progress.getColumn(1));
      step.progress_total = whole(progress.getColumn(2));
      step.progress_unit = progress.getColumn(3).getString();
    }
  }
  status.iterations =
      database.execAndGet("SELECT COALESCE(max(value), '') FROM meta WHERE key = 'iterations'").getString();
  status.started_s = database.execAndGet("SELECT COALESCE(MIN(time), 0) FROM history").getDouble();
  status.elapsed_s = coordinated_s();
  status.last_failure = whole(database.execAndGet("SELECT COALESCE(max(id), 0) FROM failures"));
}

double Store::Impl::coordinated_s() {
  return database.execAndGet("SELECT COALESCE(sum(last - began), 0) FROM sessions").getDouble();
}

// Added up here, in the order of the arrays: SQLite would sort them by step first.
std::vector<StepStatus> Store::Impl::read_steps() {
  auto& select = statement(
      "SELECT step, kind, elements, timed, duration_sum, duration_square_sum, done, failed, hard_failed, "
      "skipped, "
      "cancelled, (SELECT s.elements FROM arrays s WHERE s.id = arrays.source) FROM arrays ORDER BY id");
  struct Durations {
    double timed = 0, sum_s = 0, square_sum = 0;
  };
  std::vector<StepStatus> steps;
  std::vector<Durations> durations;
  while (select.executeStep()) {
    const char* name = select.getColumn(0).getText();
    if (steps.empty() || steps.back().name != name) {
      steps.emplace_back().name = name;
      steps.back().kind = select.getColumn(1).getString();
      steps.back().arrays = 0;
      durations.emplace_back();
    }
    StepStatus& step = steps.back();
    ++step.arrays;
    step.elements += static_cast<std::uint64_t>(select.getColumn(2).getInt64());
    durations.back().timed += select.getColumn(3).getDouble();
    durations.back().sum_s += select.getColumn(4).getDouble();
    durations.back().square_sum += select.getColumn(5).getDouble();
    int column = 6;
    for (const ElementState state : {ElementState::done, ElementState::failed, ElementState::hard_failed,
                                     ElementState::skipped, ElementState::cancelled}) {
      step.counts[static_cast<std::size_t>(state)] +=
          static_cast<std::uint64_t>(select.getColumn(column++).getInt64());
    }
    // Both the blocks and the closing task read the source; the blocks are what has samples.
    if (step.kind == "convert" && !std::string_view(name).ends_with(specs::kManifestSuffix))
      step.samples += static_cast<std::uint64_t>(select.getColumn(column).getInt64());
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& [timed, sum_s, square_sum] = durations[i];
    if (timed <= 0) continue;
    steps[i].mean_s = sum_s / timed;
    steps[i].deviation_s = std::sqrt(std::max(0.0, square_sum / timed - steps[i].mean_s * steps[i].mean_s));
  }
  return steps;
}

namespace {

// The end time of an ended campaign: later coordinators without any work do not count.
double end_of_work_s(const std::vector<HistoryView>& history) {
  double ended_s = history.back().time_s;
  for (auto row = history.rbegin(); row != history.rend(); ++row) {
    const bool worked =
        row->kind == "retry" || (row->kind == "worker" && row->text.find(" joined ") != std::string::npos);
    if (worked) break;
    if (row->kind == "end") ended_s = row->time_s;
  }
  return ended_s;
}

}  // namespace

CampaignStatus Store::status_at_rest() {
  CampaignStatus status;
  status.directory = impl_->campaign.string();
  impl_->reading([&] {
    status.name = impl_->database.execAndGet("SELECT value FROM meta WHERE key = 'name'").getString();
    status.steps = impl_->read_steps();
  });
  const std::map<std::string, StepUsage> used = usage();
  const MissingSamples missing = missing_samples();
  ArrayId first_array = 0;
  for (StepStatus& step : status.steps) {
    step.missing = missing.sum(first_array, static_cast<std::uint32_t>(step.arrays));
    first_array += static_cast<ArrayId>(step.arrays);
    if (const auto found = used.find(step.name); found != used.end()) step.usage = view_of(found->second);
    step.counts[static_cast<std::size_t>(ElementState::blocked)] = step.elements - step.ended();
  }
  add_records(status);
  // Without a coordinator the last line of the history has the end state.
  const bool all_ended = status.ended() == status.elements();
  status.state = all_ended ? end_state(status) : CampaignState::interrupted;
  if (!status.history.empty()) {
    status.time_s = all_ended ? end_of_work_s(status.history) : status.history.back().time_s;
  }
  // Between two coordinators: what the next one comes with.
  const auto holder = read_lock(impl_->campaign);
  if (holder && holder->state == HolderState::handed_over && !all_ended) {
    auto rows = allocations();
    std::erase_if(rows, [](const auto& row) { return row.state == batch::AllocationState::ended; });
    status.allocations = recorded_allocations(rows);
  }
  return status;
}

}  // namespace wflow::engine::store
