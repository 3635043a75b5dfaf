// SPDX-License-Identifier: Apache-2.0
// A summary of the campaign, in sentences.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cli/report/report.h"
#include "engine/monitor/status.h"

namespace wflow::cli::report {

namespace {

using engine::CampaignState;

std::string state_words(CampaignState state) {
  switch (state) {
    case CampaignState::finished:
    case CampaignState::finished_with_failures:
      return fmt::format("has {}", engine::name_of(state));
    case CampaignState::cancelled:
    case CampaignState::interrupted:
      return fmt::format("was {}", engine::name_of(state));
    default:
      return fmt::format("is {}", engine::name_of(state));
  }
}

std::string state_sentence(const ReportData& data) {
  const engine::CampaignStatus& status = data.status;
  const std::string begun =
      fmt::format("The campaign {} {}. It began at {} and {} {}", status.name, state_words(status.state),
                  date_text(status.started_s), data.live ? "has run for" : "took",
                  text::format_duration(status.elapsed_s));
  double left_s = 0;
  for (const engine::StepStatus& step : status.steps) left_s = std::max(left_s, step.left_s.value_or(0));
  if (!data.live || left_s <= 0) return begun + ".";
  return fmt::format("{}; about {} are left.", begun, text::format_duration(left_s));
}

std::string tasks_sentence(const engine::CampaignStatus& status) {
  std::uint64_t done = 0;
  std::uint64_t skipped = 0;
  std::uint64_t missing = 0;
  for (const engine::StepStatus& step : status.steps) {
    done += step.count(engine::ElementState::done);
    skipped += step.count(engine::ElementState::skipped);
    const engine::MissingCounts samples = engine::counts_of(step.missing);
    missing += samples.failed + samples.unusable;
  }
  std::string text =
      fmt::format("{} of {} in {} {} done", text::format_count(done), counted(status.elements(), "task"),
                  counted(status.steps.size(), "step"), done == 1 ? "is" : "are");
  if (status.failed() > 0) text += fmt::format(", {} failed", text::format_count(status.failed()));
  if (skipped > 0)
    text += fmt::format(", {} {} skipped", text::format_count(skipped), skipped == 1 ? "was" : "were");
  if (status.cancelled() > 0)
    text += fmt::format(", {} were cancelled", text::format_count(status.cancelled()));
  const std::uint64_t open = status.elements() - std::min(status.elements(), status.ended());
  if (open > 0) text += fmt::format(", {} have not ended", text::format_count(open));
  text += ".";
  if (missing > 0)
    text += fmt::format(" A conversion could not use the output of {}.", counted(missing, "sample"));
  return text;
}

// The processor time that tasks used, compared with that of the workers.
std::string resources_sentence(const ReportData& data) {
  double cpu_s = 0;
  std::uint64_t executions = 0;
  for (const auto& [step, usage] : data.usage) {
    cpu_s += usage.cpu_s.sum();
    executions += usage.executions();
  }
  double had_s = 0;
  for (const engine::wire::WorkerView& worker : data.workers) {
    const double end_s = worker.ended_s > 0 ? worker.ended_s : data.live ? data.made_s : data.overview.end_s;
    had_s += std::max(0.0, end_s - worker.joined_s) * worker.cores;
  }
  if (data.workers.empty()) return "No worker has joined yet.";
  std::string text = fmt::format("{} took part", counted(data.workers.size(), "worker"));
  if (executions > 0)
    text += fmt::format("; {} used {} of CPU time, and the workers' cores offered {}",
                        counted(executions, "execution"), core_time_text(cpu_s), core_time_text(had_s));
  return text + ".";
}

std::vector<std::string> training_sentences(const ReportData& data) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> sentences;
  for (const engine::MetricCurve& curve : data.status.metrics) {
    if (curve.name != "validation_loss" || curve.points.empty()) continue;
    const auto best = std::ranges::min_element(curve.points, [](const auto& a, const auto& b) {
      return std::isfinite(a.value) && (!std::isfinite(b.value) || a.value < b.value);
    });
    if (sentences.size() == kMost) {
      sentences.emplace_back("More trainings are listed below.");
      break;
    }
    sentences.push_back(fmt::format(
        "The training {} has a validation loss of {:.4g} after epoch {}; the best was {:.4g} after epoch {}.",
        curve.task, curve.points.back().value, curve.points.back().epoch, best->value, best->epoch));
  }
  return sentences;
}

}  // namespace

void write_summary(const ReportData& data, Page& page) {
  page.section("summary", "Summary");
  if (!data.plan.study().description.empty()) page.paragraph(data.plan.study().description);
  page.paragraph(state_sentence(data));
  page.paragraph(tasks_sentence(data.status));
  page.paragraph(resources_sentence(data));
  for (const std::string& sentence : training_sentences(data)) page.paragraph(sentence);
  for (const engine::StepStatus& step : data.status.steps)
    if (!step.held.empty()) page.note(fmt::format("Nothing more of {} starts: {}", step.name, step.held));
  if (!data.status.iterations.empty()) page.paragraph(data.status.iterations);
  for (const std::string& note : data.notes) page.note(note);
}

}  // namespace wflow::cli::report
