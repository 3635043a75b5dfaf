// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/status.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/wire/messages.h"

namespace wflow::engine {

namespace {

using Json = nlohmann::json;

template <class T>
void keep_newest(std::vector<T>& list, std::size_t most) {
  if (list.size() > most) list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(most));
}

void cut(std::string& text) {
  if (text.size() > kListedText) text.erase(0, text.size() - kListedText);
  if (!is_utf8(text)) text = printable(text);
}

Json json_of(const wire::Spread& spread) {
  return {{"median", spread.median}, {"p95", spread.p95}, {"max", spread.most}, {"sum", spread.sum}};
}

Json json_of(const StepStatus& step) {
  Json counts = Json::object();
  for (std::size_t state = 0; state < kElementStates; ++state) {
    counts[std::string(name_of(static_cast<ElementState>(state)))] = step.counts[state];
  }
  Json json = {
      {"name", step.name},
      {"kind", step.kind},
      {"arrays", step.arrays},
      {"elements", step.elements},
      {"counts", counts},
      {"mean_s", step.mean_s},
      {"deviation_s", step.deviation_s},
      {"rate_per_s", step.rate_per_s},
      {"progress",
       {{"done", step.progress_done}, {"total", step.progress_total}, {"unit", step.progress_unit}}}};
  json["usage"] = {
      {"executions", step.usage.executions},          {"duration_s", json_of(step.usage.duration_s)},
      {"cpu_s", json_of(step.usage.cpu_s)},           {"peak_bytes", json_of(step.usage.peak_bytes)},
      {"read_bytes", json_of(step.usage.read_bytes)}, {"written_bytes", json_of(step.usage.written_bytes)}};
  if (step.samples > 0) json["samples"] = step.samples;
  json["missing"] = {{"samples", step.missing_samples()}, {"reasons", Json::array()}};
  for (const wire::MissingReason& reason : step.missing) {
    json["missing"]["reasons"].push_back(
        {{"reason", reason.reason}, {"samples", reason.samples}, {"first", reason.first}});
  }
  json["held"] = step.held.empty() ? Json() : Json(step.held);
  json["left_s"] = step.left_s ? Json(*step.left_s) : Json();
  return json;
}

Json json_of(const FailureView& failure) {
  return {{"task", failure.task},       {"step", failure.step},
          {"element", failure.element}, {"attempt", failure.attempt},
          {"reason", failure.reason},   {"worker", failure.worker},
          {"time_s", failure.time_s},   {"duration_s", failure.duration_s},
          {"final", failure.final},     {"detail", failure.detail}};
}

Json json_of(const WorkerStatus& worker) {
  return {{"id", worker.id},
          {"host", worker.host},
          {"cores", worker.cores},
          {"running", worker.running},
          {"leased", worker.leased},
          {"silent_s", worker.silent_s},
          {"draining", worker.draining},
          {"ended", worker.ended}};
}

Json json_of(const HistoryView& row) {
  return {{"time_s", row.time_s}, {"kind", row.kind}, {"text", row.text}};
}

Json json_of(const ArtifactView& artifact) {
  return {{"step", artifact.step}, {"kind", artifact.kind}, {"path", artifact.path}};
}

Json json_of(const FollowupView& followup) {
  return {{"kind", followup.kind},         {"iteration", followup.iteration},
          {"spec", followup.spec},         {"directory", followup.directory},
          {"state", state_text(followup)}, {"elements", followup.elements},
          {"ended", followup.ended},       {"failed", followup.failed}};
}

Json json_of(const wire::SlowView& task) {
  return {
      {"task", task.task}, {"worker", task.worker}, {"running_s", task.running_s}, {"usual_s", task.usual_s}};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

// A point each. JSON has no numbers that are infinite or none: null.
Json list_of(const std::vector<MetricCurve>& curves) {
  Json list = Json::array();
  for (const MetricCurve& curve : curves) {
    for (const MetricPoint& point : curve.points) {
      list.push_back({{"task", curve.task},
                      {"name", curve.name},
                      {"epoch", point.epoch},
                      {"step", point.step},
                      {"value", std::isfinite(point.value) ? Json(point.value) : Json()}});
    }
  }
  return list;
}

}  // namespace

Json to_json(const CampaignStatus& status) {
  return {{"version", kStatusVersion},
          {"name", status.name},
          {"directory", status.directory},
          {"state", name_of(status.state)},
          {"coordinator", status.coordinator},
          {"started_s", status.started_s},
          {"elapsed_s", status.elapsed_s},
          {"time_s", status.time_s},
          {"steps", list_of(status.steps)},
          {"workers", list_of(status.workers)},
          {"workers_total", status.workers_total},
          {"failures", list_of(status.failures)},
          {"metrics", list_of(status.metrics)},
          {"artifacts", list_of(status.artifacts)},
          {"artifacts_total", status.artifacts_total},
          {"history", list_of(status.history)},
          {"followups", list_of(status.followups)},
          {"iterations", status.iterations},
          {"allocations", to_json(status.allocations)},
          {"slow", list_of(status.slow)},
          {"slow_total", status.slow_total},
          {"refused",
           {{"connections", status.refused.connections},
            {"other_keys", status.refused.other_keys},
            {"messages", status.refused.messages}}}};
}

void keep_bounds(CampaignStatus& status) {
  keep_newest(status.failures, kListedFailures);
  keep_newest(status.history, kListedHistory);
  keep_newest(status.artifacts, kListedArtifacts);
  keep_newest(status.workers, kListedWorkers);
  keep_newest(status.followups, kListedFollowups);
  for (FailureView& failure : status.failures) cut(failure.detail);
  for (HistoryView& row : status.history) cut(row.text);
}

std::string state_text(const FollowupView& followup) {
  if (followup.state != FollowupState::handed_over) return std::string(name_of(followup.state));
  return fmt::format("{} to {}", name_of(followup.state), followup.handed_to);
}

CampaignState end_state(const CampaignStatus& status) {
  if (status.cancelled() > 0) return CampaignState::cancelled;
  return status.failed() > 0 ? CampaignState::finished_with_failures : CampaignState::finished;
}

ExitCode end_code(const CampaignStatus& status) {
  if (status.ended() < status.elements() || status.cancelled() > 0) return ExitCode::interrupted;
  return status.failed() > 0 ? ExitCode::tasks_failed : ExitCode::ok;
}

wire::UsageView view_of(const StepUsage& usage) {
  const auto spread = [](const QuantileSketch& sketch) {
    constexpr double kHigh = 0.95;
    return wire::Spread{sketch.quantile(0.5), sketch.quantile(kHigh), sketch.most(), sketch.sum()};
  };
  return {usage.executions(),       spread(usage.duration_s), spread(usage.cpu_s),
          spread(usage.peak_bytes), spread(usage.read_bytes), spread(usage.written_bytes)};
}

}  // namespace wflow::engine
