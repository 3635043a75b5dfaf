// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/top/chart.h"
#include "cli/top/data.h"
#include "cli/top/feed.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

using engine::StepUsage;

constexpr double kHigh = 0.95;
constexpr double kMargin = 1.5;  // factor above the need of 95 % of the executions
constexpr std::uint64_t kFewExecutions = 20;

std::string bytes_text(double bytes) {
  return text::format_bytes(static_cast<std::uint64_t>(std::max(bytes, 0.0)));
}

std::uint64_t lost_by(const std::vector<engine::wire::LostTime>& lost, std::string_view reason) {
  std::uint64_t count = 0;
  for (const engine::wire::LostTime& time : lost) {
    if (time.reason == reason) count += time.executions;
  }
  return count;
}

std::string executions_text(std::uint64_t count) {
  return fmt::format("{} execution{}", text::format_count(count), count == 1 ? "" : "s");
}

// 1.5 times the need of 95 % of the executions, but at least the largest, in steps of 64 MiB.
std::uint64_t memory_to_ask(const StepUsage& used) {
  constexpr double kStep = 64 << 20;
  const double needed = std::max(used.peak_bytes.quantile(kHigh) * kMargin, used.peak_bytes.most());
  return static_cast<std::uint64_t>(std::max(std::ceil(needed / kStep), 1.0) * kStep);
}

std::string memory_line(std::uint64_t bytes) {
  return fmt::format("memory: {} MiB", bytes >> 20);
}

std::vector<Advice> memory_advice(const StepUsage& used, const StepAsked& asked,
                                  const std::vector<engine::wire::LostTime>& lost) {
  constexpr double kWorthAsking = std::uint64_t{1} << 30;
  const std::uint64_t killed = lost_by(lost, "out_of_memory");
  const std::uint64_t next = memory_to_ask(used);
  const std::string needs =
      fmt::format("95 % need {}, the largest {}", bytes_text(used.peak_bytes.quantile(kHigh)),
                  bytes_text(used.peak_bytes.most()));
  if (asked.memory_bytes <= 0) {
    if (killed == 0 && used.peak_bytes.quantile(kHigh) < kWorthAsking) return {};
    const std::string why =
        killed > 0 ? fmt::format("; {} killed for memory", executions_text(killed))
                   : std::string("; with a request, a node gets no more tasks than its memory holds");
    return {{"memory", "asked nothing, " + needs + why, memory_line(next)}};
  }
  const auto have = static_cast<std::uint64_t>(asked.memory_bytes);
  if (killed > 0) {
    // The real need of killed tasks is unknown: advise twice their limit.
    return {{"memory",
             fmt::format("asked {}, {} killed for memory; {}", text::format_bytes(have),
                         executions_text(killed), needs),
             memory_line(std::max(next, 2 * have))}};
  }
  if (next * 2 > have && used.peak_bytes.most() <= static_cast<double>(have)) return {};
  return {{"memory", fmt::format("asked {}, {}", text::format_bytes(have), needs), memory_line(next)}};
}

// Most of the CPU time of very short tasks is their start.
std::vector<Advice> cores_advice(const StepUsage& used, const StepAsked& asked) {
  constexpr double kTimed_s = 1;
  constexpr double kIdle = 0.5, kCrowded = 1.3, kMarginCores = 1.1;
  if (used.duration_s.quantile(0.5) < kTimed_s) return {};
  const double mean = cores_used(used);
  const int all = asked.all_cores();
  const int next = std::max(1, static_cast<int>(std::ceil(mean * kMarginCores)));
  std::string text;
  if (all > 1 && mean < kIdle * all) {
    text = fmt::format("asked {}, used {:.1f}; fewer cores let more tasks run at a time", all, mean);
  } else if (mean > kCrowded * all) {
    text = fmt::format("asked {}, used {:.1f}; tasks take cores from each other", all, mean);
  } else {
    return {};
  }
  if (asked.procs > 1) return {{"cores", std::move(text), ""}};
  return {{"cores", std::move(text), fmt::format("cores: {}", next)}};
}

std::string duration_key(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", std::ceil(seconds / 10) * 10);
  if (seconds < 7200) return fmt::format("{:.0f} min", std::ceil(seconds / 60));
  return fmt::format("{:.0f} h", std::ceil(seconds / 3600));
}

// A limit far above the usual duration finds hanging tasks late; a limit that tasks reach kills good ones.
std::vector<Advice> timeout_advice(const StepUsage& used, const StepAsked& asked,
                                   const std::vector<engine::wire::LostTime>& lost) {
  constexpr double kFarAbove = 10, kNext = 3;
  if (asked.timeout_s <= 0) return {};
  const std::string takes = fmt::format("95 % take at most {}, the longest {}",
                                        text::format_duration(used.duration_s.quantile(kHigh)),
                                        text::format_duration(used.duration_s.most()));
  const std::string limit = text::format_duration(asked.timeout_s);
  if (const std::uint64_t reached = lost_by(lost, "timed_out"); reached > 0) {
    return {{"timeout", fmt::format("asked {}, {} reached it; {}", limit, executions_text(reached), takes),
             "timeout: " + duration_key(2 * asked.timeout_s)}};
  }
  if (used.executions() < kFewExecutions || asked.timeout_s < kFarAbove * used.duration_s.most()) return {};
  const std::string next = duration_key(std::max(kNext * used.duration_s.most(), 10.0));
  return {{"timeout", fmt::format("asked {}, {}", limit, takes), "timeout: " + next}};
}

std::string walltime_key(double seconds) {
  constexpr double kStep_s = 300;
  const auto whole = static_cast<std::uint64_t>(std::max(std::ceil(seconds / kStep_s), 1.0) * kStep_s);
  return fmt::format("walltime: \"{:02}:{:02}:00\"", whole / 3600, whole / 60 % 60);
}

}  // namespace

double cores_used(const StepUsage& used) {
  return used.duration_s.sum() > 0 ? used.cpu_s.sum() / used.duration_s.sum() : 0;
}

std::vector<Advice> step_advice(const StepUsage& used, const StepAsked& asked,
                                const std::vector<engine::wire::LostTime>& lost) {
  if (used.executions() == 0) return {};
  std::vector<Advice> all = memory_advice(used, asked, lost);
  std::ranges::move(cores_advice(used, asked), std::back_inserter(all));
  std::ranges::move(timeout_advice(used, asked, lost), std::back_inserter(all));
  return all;
}

std::vector<Advice> walltime_advice(const std::vector<engine::wire::AllocationView>& allocations) {
  struct Pool {
    double asked_s = 0, most_s = 0;
    std::uint64_t count = 0;
  };
  std::map<std::string, Pool> pools;
  for (const engine::wire::AllocationView& allocation : allocations) {
    if (allocation.started_s <= 0 || allocation.ended_s <= allocation.started_s || allocation.walltime_s <= 0)
      continue;
    Pool& pool = pools[allocation.pool];
    ++pool.count;
    pool.asked_s = std::max(pool.asked_s, allocation.walltime_s);
    pool.most_s = std::max(pool.most_s, allocation.ended_s - allocation.started_s);
  }
  constexpr double kHalf = 0.5;
  std::vector<Advice> all;
  for (const auto& [name, pool] : pools) {
    if (pool.most_s > kHalf * pool.asked_s) continue;
    all.push_back({"walltime",
                   fmt::format("asked {} an allocation, the longest of {} in pool {} was used for {}",
                               text::format_duration(pool.asked_s), pool.count, name,
                               text::format_duration(pool.most_s)),
                   walltime_key(pool.most_s * kMargin)});
  }
  return all;
}

std::string sentence_of(const Advice& advice) {
  return fmt::format("{}: {}{}", advice.about, advice.text,
                     advice.line.empty() ? "" : fmt::format("; write `{}`", advice.line));
}

namespace {

constexpr std::uint32_t kRunning = 5000;

std::map<std::string, StepAsked> asked_by_step(const specs::Plan& plan) {
  std::map<std::string, StepAsked> asked;
  for (const specs::PlannedStep& step : plan.steps()) {
    const specs::TaskTemplate task = plan.task_template(step.first_array);
    const specs::Resources& resources = task.resources;
    const int nodes = std::max(resources.nodes, 1);
    asked[step.name] = {std::max(1, resources.cores), std::max({1, resources.procs, nodes}),
                        resources.memory_bytes, task.timeout_s};
  }
  return asked;
}

double lost_core_s(const StepFacts& step) {
  double seconds = 0;
  for (const engine::wire::LostTime& lost : step.lost) seconds += lost.seconds;
  return seconds * step.asked.all_cores();
}

std::optional<HourFacts> hours_of(const top::TopData& data, const std::vector<StepFacts>& steps) {
  const auto hours = top::node_hours(data);
  if (!hours) return std::nullopt;
  constexpr double kHour_s = 3600;
  HourFacts facts;
  facts.workers = data.workers.size();
  facts.core_h = hours->core_h;
  facts.node_h = hours->used;
  facts.idle_node_h = hours->idle;
  facts.used_node_h = hours->used - hours->idle;
  double lost_s = 0;
  for (const StepFacts& step : steps) lost_s += lost_core_s(step);
  const double share = hours->core_h > 0 ? lost_s / kHour_s / hours->core_h : 0;
  facts.lost_node_h = std::min(facts.node_h * share, facts.used_node_h);
  return facts;
}

}  // namespace

UsageFacts usage_facts(const std::filesystem::path& campaign) {
  const specs::Plan plan = read_plan(campaign);
  engine::Client client(plan);
  top::TopData data;
  engine::wire::WatchAnswer watch = client.watch({0, 0, kRunning});
  const engine::wire::UsageSummary summary = client.usage_summary();
  data.workers = client.workers();
  data.status = std::move(watch.status);
  data.running = std::move(watch.running);
  data.needs = top::needs_of(plan);
  data.now_s = data.status.time_s;
  // The end of a worker that was killed together with its coordinator is unknown.
  const bool live = client.live();
  for (engine::wire::WorkerView& worker : data.workers) {
    const bool over = !live || worker.state == engine::wire::WorkerViewState::unknown;
    if (worker.ended_s <= 0 && over) worker.ended_s = std::max(data.now_s, worker.joined_s);
  }

  UsageFacts facts;
  facts.name = data.status.name;
  facts.directory = data.status.directory;
  facts.state = data.status.state;
  facts.time_s = data.status.time_s;
  std::map<std::string, engine::StepUsage> used;
  for (const engine::wire::StepSketches& step : summary.steps)
    used[step.step] = engine::StepUsage::from_bytes(step.body);
  std::map<std::string, StepAsked> asked = asked_by_step(plan);
  for (const engine::StepStatus& status : data.status.steps) {
    StepFacts& step = facts.steps.emplace_back();
    step.name = status.name;
    step.kind = status.kind;
    step.asked = asked[status.name];
    step.used = std::move(used[status.name]);
    for (const engine::wire::LostTime& lost : summary.lost) {
      if (lost.step == status.name) step.lost.push_back(lost);
    }
    step.advice = step_advice(step.used, step.asked, step.lost);
  }
  facts.hours = hours_of(data, facts.steps);
  if (engine::is_at_rest(facts.state)) facts.advice = walltime_advice(client.allocations().allocations);
  return facts;
}

namespace {

// The number of buckets of the sketch that span a factor of two.
std::int32_t buckets_of_two() {
  return static_cast<std::int32_t>(std::ceil(std::log(2.0) / std::log(engine::QuantileSketch::bound(1))));
}

}  // namespace

std::vector<HistogramBin> histogram(const engine::QuantileSketch& sketch, std::size_t bins) {
  const auto& buckets = sketch.buckets();
  if (buckets.empty() || bins == 0) return {};
  std::int32_t low = buckets.begin()->first;
  std::int32_t high = buckets.rbegin()->first;
  // Values that are nearly equal are one narrow bar, not a wide spread.
  if (const std::int32_t missing = buckets_of_two() - (high - low); missing > 0) {
    low -= missing / 2;
    high += missing - missing / 2;
  }
  const auto span = static_cast<double>(high - low + 1);
  const std::size_t count = std::min(bins, static_cast<std::size_t>(high - low + 1));
  std::vector<HistogramBin> result(count);
  const double ratio = std::log(engine::QuantileSketch::bound(1));
  const auto bound = [&](std::size_t bin) {
    return std::exp(ratio * (low - 1 + span * static_cast<double>(bin) / static_cast<double>(count)));
  };
  for (std::size_t bin = 0; bin < count; ++bin) result[bin] = {bound(bin), bound(bin + 1), 0};
  for (const auto& [bucket, number] : buckets) {
    const double share = (static_cast<double>(bucket - low) + 0.5) / span;
    result[std::min(static_cast<std::size_t>(share * static_cast<double>(count)), count - 1)].count += number;
  }
  return result;
}

std::string bars_of(const std::vector<HistogramBin>& bins, const Terminal& terminal) {
  std::vector<double> counts;
  for (const HistogramBin& bin : bins) counts.push_back(static_cast<double>(bin.count));
  return top::sparkline_of(counts, static_cast<int>(counts.size()),
                           terminal.unicode ? top::Charset::utf8 : top::Charset::ascii);
}

}  // namespace wflow::cli
