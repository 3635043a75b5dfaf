// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

constexpr double kHour_s = 3600;
constexpr double kUnmeasured_s = 1e-3;  // a shorter execution has no record

void add(Span& sum, const Span& more) {
  sum.low += more.low;
  sum.high += more.high;
}

Span times(const Span& span, const Span& factor) {
  return {span.low * factor.low, span.high * factor.high};
}

bool follows_on_samples(const specs::Plan& plan, const specs::PlannedStep& step) {
  if (step.sample_dependent || step.block_samples > 0) return true;
  return std::ranges::any_of(step.edges, [&](const specs::Edge& edge) {
    return follows_on_samples(plan, plan.steps()[plan.step_of(edge.parent)]);
  });
}

double samples_of(const specs::Plan& plan) {
  return plan.study().samples ? static_cast<double>(plan.study().samples->design.count) : 1;
}

// How much more work the step has in the whole campaign.
Span growth_of(const specs::Plan& whole, const specs::PlannedStep& step, const specs::Plan& small,
               const specs::PlannedStep& sampled) {
  const double arrays = static_cast<double>(step.arrays) / static_cast<double>(sampled.arrays);
  const double samples = arrays * samples_of(whole) / std::max(samples_of(small), 1.0);
  if (step.sample_dependent || step.block_samples > 0) return {samples, samples};
  return {arrays, follows_on_samples(whole, step) ? samples : arrays};
}

StepEstimate estimate_step(const specs::Plan& whole, const specs::PlannedStep& step, const specs::Plan& small,
                           const specs::PlannedStep& sampled, const StepFacts& facts, int node_cores) {
  StepEstimate result;
  result.name = step.name;
  result.tasks = step.arrays * step.elements;
  result.measured = sampled.arrays * sampled.elements;
  result.cores_used = cores_used(facts.used);
  result.cores_asked = facts.asked.all_cores();
  result.peak_bytes = facts.used.peak_bytes.most();
  const bool known = facts.used.executions() > 0;
  result.task_s =
      known ? Span{facts.used.duration_s.quantile(0), facts.used.duration_s.most()} : Span{0, kUnmeasured_s};
  const double ran =
      known ? static_cast<double>(facts.used.executions()) : static_cast<double>(result.measured);
  const Span seconds =
      times({ran * result.task_s.low, ran * result.task_s.high}, growth_of(whole, step, small, sampled));
  result.core_h = times(seconds, {result.cores_asked / kHour_s, result.cores_asked / kHour_s});
  const int nodes = step.resources.nodes;
  const double share = nodes > 1 ? nodes : static_cast<double>(result.cores_asked) / node_cores;
  result.node_h = times(seconds, {share / kHour_s, share / kHour_s});
  return result;
}

const specs::PlannedStep* step_named(const specs::Plan& plan, const std::string& name) {
  const auto at = std::ranges::find(plan.steps(), name, &specs::PlannedStep::name);
  return at == plan.steps().end() ? nullptr : &*at;
}

}  // namespace

std::vector<std::size_t> steps_of_trainings(const specs::Plan& plan) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan.steps().size(); ++i) {
    const specs::PlannedStep& step = plan.steps()[i];
    const bool follows = std::ranges::any_of(step.edges, [&](const specs::Edge& edge) {
      return std::ranges::find(found, plan.step_of(edge.parent)) != found.end();
    });
    if (step.kind == specs::StepKind::train || follows) found.push_back(i);
  }
  return found;
}

Estimate estimate_of(const specs::Plan& whole, const specs::Plan& small, const UsageFacts& measured,
                     const std::map<std::string, std::uint64_t>& disk, std::uint64_t of, int node_cores) {
  Estimate estimate;
  estimate.of = of;
  estimate.node_cores = node_cores;
  const std::vector<std::size_t> trainings = steps_of_trainings(whole);
  for (std::size_t i = 0; i < whole.steps().size(); ++i) {
    const specs::PlannedStep& step = whole.steps()[i];
    const specs::PlannedStep* sampled = step_named(small, step.name);
    const auto facts = std::ranges::find(measured.steps, step.name, &StepFacts::name);
    if (std::ranges::find(trainings, i) != trainings.end() || sampled == nullptr ||
        facts == measured.steps.end()) {
      estimate.left_out.push_back(step.name);
      continue;
    }
    StepEstimate one = estimate_step(whole, step, small, *sampled, *facts, node_cores);
    if (const auto bytes = disk.find(step.name); bytes != disk.end()) {
      const auto had = static_cast<double>(bytes->second);
      one.disk_bytes = times({had, had}, growth_of(whole, step, small, *sampled));
    }
    add(estimate.core_h, one.core_h);
    add(estimate.node_h, one.node_h);
    add(estimate.disk_bytes, one.disk_bytes);
    estimate.peak_bytes = std::max(estimate.peak_bytes, one.peak_bytes);
    estimate.steps.push_back(std::move(one));
  }
  return estimate;
}

namespace {

template <class Format>
std::string span_text(const Span& span, Format format) {
  const std::string low = format(span.low);
  const std::string high = format(span.high);
  return low == high ? low : low + " to " + high;
}

std::string seconds_text(double seconds) {
  return text::format_duration(seconds);
}

std::string bytes_text_of(double bytes) {
  return text::format_bytes(static_cast<std::uint64_t>(std::max(bytes, 0.0)));
}

std::string hours_number(double hours) {
  constexpr double kLeast = 1e-3;
  return hours < kLeast ? "<0.001" : fmt::format("{:.2g}", hours);
}

Span hours_here(const Estimate& estimate) {
  return {estimate.core_h.low / estimate.node_cores, estimate.core_h.high / estimate.node_cores};
}

}  // namespace

std::string text_of(const Estimate& estimate) {
  Table table({"step", "tasks", "ran", "time a task", "cores used", "asked", "memory", "disk", "core-hours"});
  for (const StepEstimate& step : estimate.steps) {
    table.add({{step.name},
               {text::format_count(step.tasks)},
               {text::format_count(step.measured)},
               {span_text(step.task_s, seconds_text)},
               {fmt::format("{:.2f}", step.cores_used)},
               {std::to_string(step.cores_asked)},
               {bytes_text_of(step.peak_bytes)},
               {span_text(step.disk_bytes, bytes_text_of)},
               {span_text(step.core_h, hours_number)}});
  }
  const std::string cores =
      fmt::format("{} core{}", estimate.node_cores, estimate.node_cores == 1 ? "" : "s");
  std::string result = text::join(table.lines({}), "\n");
  result += fmt::format("\n\nthe whole campaign, estimated from {} task{} of each step on this machine:\n",
                        estimate.of, estimate.of == 1 ? "" : "s");
  result += fmt::format("  core-hours  {}\n", span_text(estimate.core_h, hours_number));
  result += fmt::format("  node-hours  {}  (nodes of {}, as here)\n",
                        span_text(estimate.node_h, hours_number), cores);
  const Span here = hours_here(estimate);
  result += fmt::format("  time        {}  on {}, if they are always busy\n",
                        span_text({here.low * kHour_s, here.high * kHour_s}, seconds_text), cores);
  result += fmt::format("  memory      {} for the largest task\n", bytes_text_of(estimate.peak_bytes));
  result += fmt::format("  disk        {}\n", span_text(estimate.disk_bytes, bytes_text_of));
  if (!estimate.left_out.empty())
    result += fmt::format("without {}: a training on a few samples says nothing of one on all\n",
                          text::join(estimate.left_out, ", "));
  return result;
}

nlohmann::ordered_json to_json(const Estimate& estimate) {
  using Json = nlohmann::ordered_json;
  const auto span = [](const Span& one) { return Json{{"low", one.low}, {"high", one.high}}; };
  Json steps = Json::array();
  for (const StepEstimate& step : estimate.steps) {
    steps.push_back({{"step", step.name},
                     {"tasks", step.tasks},
                     {"measured", step.measured},
                     {"task_s", span(step.task_s)},
                     {"cores_used", step.cores_used},
                     {"cores_asked", step.cores_asked},
                     {"peak_bytes", step.peak_bytes},
                     {"disk_bytes", span(step.disk_bytes)},
                     {"core_hours", span(step.core_h)},
                     {"node_hours", span(step.node_h)}});
  }
  return {{"sample", estimate.of},
          {"node_cores", estimate.node_cores},
          {"steps", std::move(steps)},
          {"left_out", estimate.left_out},
          {"core_hours", span(estimate.core_h)},
          {"node_hours", span(estimate.node_h)},
          {"hours", span(hours_here(estimate))},
          {"peak_bytes", estimate.peak_bytes},
          {"disk_bytes", span(estimate.disk_bytes)}};
}

}  // namespace wflow::cli
