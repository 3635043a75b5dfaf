// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/status.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/wire/messages.h"

namespace wflow::engine {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FailureView, task, step, element, attempt, reason, worker, time_s,
                                   duration_s, final, detail)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MetricPoint, name, epoch, step, value)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerStatus, id, host, cores, running, leased, silent_s, draining)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HistoryView, time_s, kind, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ArtifactView, step, kind, path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FollowupView, kind, iteration, spec, directory, state, elements, ended,
                                   failed)

namespace {

std::uint64_t sum(const std::vector<StepStatus>& steps, std::uint64_t (StepStatus::*member)() const) {
  std::uint64_t total = 0;
  for (const StepStatus& step : steps) total += (step.*member)();
  return total;
}

}  // namespace

void to_json(nlohmann::json& json, const StepStatus& step) {
  nlohmann::json counts = nlohmann::json::object();
  for (std::size_t state = 0; state < kElementStates; ++state) {
    counts[std::string(name_of(static_cast<ElementState>(state)))] = step.counts[state];
  }
  json = {{"name", step.name},
          {"kind", step.kind},
          {"arrays", step.arrays},
          {"elements", step.elements},
          {"counts", counts},
          {"mean_s", step.mean_s},
          {"deviation_s", step.deviation_s},
          {"rate_per_s", step.rate_per_s},
          {"progress",
           {{"done", step.progress_done}, {"total", step.progress_total}, {"unit", step.progress_unit}}}};
  json["left_s"] = step.left_s ? nlohmann::json(*step.left_s) : nlohmann::json();
}

void from_json(const nlohmann::json& json, StepStatus& step) {
  step.name = json.at("name");
  step.kind = json.at("kind");
  step.arrays = json.at("arrays");
  step.elements = json.at("elements");
  for (std::size_t state = 0; state < kElementStates; ++state) {
    step.counts[state] =
        json.at("counts").value(std::string(name_of(static_cast<ElementState>(state))), 0ULL);
  }
  step.mean_s = json.at("mean_s");
  step.deviation_s = json.at("deviation_s");
  step.rate_per_s = json.at("rate_per_s");
  if (!json.at("left_s").is_null()) step.left_s = json.at("left_s").get<double>();
  step.progress_done = json.at("progress").at("done");
  step.progress_total = json.at("progress").at("total");
  step.progress_unit = json.at("progress").at("unit");
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CampaignStatus, name, directory, state, coordinator, started_s, elapsed_s,
                                   steps, workers, failures, metrics, artifacts, history, followups,
                                   iterations)

nlohmann::json to_json(const CampaignStatus& status) {
  nlohmann::json json;
  to_json(json, status);
  return json;
}

CampaignStatus status_from_json(const nlohmann::json& json) {
  return json.get<CampaignStatus>();
}

bool FollowupView::left() const {
  if (state == "could not begin" || state.starts_with("handed over")) return false;
  return elements == 0 || ended < elements;
}

std::uint64_t StepStatus::ended() const {
  std::uint64_t total = 0;
  for (std::size_t state = 0; state < kElementStates; ++state) {
    if (has_ended(static_cast<ElementState>(state))) total += counts[state];
  }
  return total;
}

std::uint64_t CampaignStatus::elements() const {
  std::uint64_t total = 0;
  for (const StepStatus& step : steps) total += step.elements;
  return total;
}

std::uint64_t CampaignStatus::ended() const {
  return sum(steps, &StepStatus::ended);
}
std::uint64_t CampaignStatus::failed() const {
  return sum(steps, &StepStatus::failed);
}
std::uint64_t CampaignStatus::cancelled() const {
  std::uint64_t total = 0;
  for (const StepStatus& step : steps) total += step.count(ElementState::cancelled);
  return total;
}

std::string end_state(const CampaignStatus& status) {
  if (status.cancelled() > 0) return "cancelled";
  return status.failed() > 0 ? "finished with failures" : "finished";
}

ExitCode end_code(const CampaignStatus& status) {
  if (status.ended() < status.elements() || status.cancelled() > 0) return ExitCode::interrupted;
  return status.failed() > 0 ? ExitCode::tasks_failed : ExitCode::ok;
}

std::string describe_end(int reason, int exit_code) {
  switch (static_cast<wire::EndReason>(reason)) {
    case wire::EndReason::exited:
      return fmt::format("exit code {}", exit_code);
    case wire::EndReason::signalled:
      return fmt::format("signal {} ({})", exit_code, ::strsignal(exit_code));
    case wire::EndReason::timed_out:
      return "killed at its time limit";
    case wire::EndReason::not_started:
      return "could not be started";
    case wire::EndReason::bad_output:
      return "its output is missing or wrong";
    case wire::EndReason::worker_lost:
      return "its worker was lost";
    case wire::EndReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace wflow::engine
