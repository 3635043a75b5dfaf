// SPDX-License-Identifier: Apache-2.0
// wflow usage: what the tasks of each step used, beside what the study asked for.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/view/table.h"
#include "engine/monitor/status.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

using engine::StepStatus;

struct UsageOptions {
  std::string campaign;
  bool json = false;
  bool csv = false;
};

// What the study asked for, a process.
struct Asked {
  double cores = 1;
  std::uint64_t memory_bytes = 0;  // 0: nothing was asked
};

std::map<std::string, Asked> asked_by_step(const specs::Plan& plan) {
  std::map<std::string, Asked> asked;
  for (const specs::PlannedStep& step : plan.steps()) {
    const specs::Resources& resources = plan.task_template(step.first_array).resources;
    asked[step.name] = {static_cast<double>(std::max(1, resources.cores * resources.procs)),
                        static_cast<std::uint64_t>(resources.memory_bytes)};
  }
  return asked;
}

double cores_used(const StepStatus& step) {
  return step.usage.duration_s.sum > 0 ? step.usage.cpu_s.sum / step.usage.duration_s.sum : 0;
}

std::string bytes_text(double bytes) {
  return text::format_bytes(static_cast<std::uint64_t>(bytes));
}

// Next time's numbers: half as much again as what 95 % needed, in steps of 64 MiB.
std::uint64_t memory_to_ask(const engine::wire::Spread& peak) {
  constexpr double kStep = 64 << 20;
  constexpr double kMargin = 1.5;
  return static_cast<std::uint64_t>(std::ceil(std::max(peak.p95 * kMargin, peak.most) / kStep) * kStep);
}

// Whole nodes make a low share of the memory meaningless: advice is given where a step asks for an amount.
std::vector<std::string> advice(const StepStatus& step, const Asked& asked) {
  std::vector<std::string> lines;
  const engine::wire::UsageView& used = step.usage;
  if (asked.memory_bytes > 0) {
    const std::uint64_t next = memory_to_ask(used.peak_bytes);
    if (next * 2 <= asked.memory_bytes || used.peak_bytes.most > static_cast<double>(asked.memory_bytes)) {
      lines.push_back(fmt::format("{}: memory: asked {}, 95 % need {}, the largest {}; ask for {}", step.name,
                                  text::format_bytes(asked.memory_bytes), bytes_text(used.peak_bytes.p95),
                                  bytes_text(used.peak_bytes.most), text::format_bytes(next)));
    }
  }
  constexpr double kIdle = 0.5;
  constexpr double kTimed_s = 1;
  if (asked.cores > 1 && cores_used(step) < kIdle * asked.cores && used.duration_s.median >= kTimed_s) {
    lines.push_back(fmt::format("{}: cores: asked {}, used {:.1f}; fewer cores let more tasks run at a time", step.name,
                                asked.cores, cores_used(step)));
  }
  return lines;
}

Table table_of(const engine::CampaignStatus& status) {
  Table table({"step", "executions", "time median", "95 %", "longest", "cores", "memory median", "95 %", "largest",
               "CPU in all", "read", "written"});
  for (const StepStatus& step : status.steps) {
    const engine::wire::UsageView& used = step.usage;
    if (used.executions == 0) continue;
    const auto time = [](double seconds) { return Cell{text::format_duration(seconds)}; };
    const auto size = [](double bytes) { return Cell{bytes_text(bytes)}; };
    table.add({{step.name}, {text::format_count(used.executions)}, time(used.duration_s.median),
               time(used.duration_s.p95), time(used.duration_s.most), {fmt::format("{:.2f}", cores_used(step))},
               size(used.peak_bytes.median), size(used.peak_bytes.p95), size(used.peak_bytes.most),
               time(used.cpu_s.sum), size(used.read_bytes.sum), size(used.written_bytes.sum)});
  }
  return table;
}

// Each step as a block that fits 80 columns.
void print_for_people(const engine::CampaignStatus& status, const std::map<std::string, Asked>& asked) {
  bool any = false;
  for (const StepStatus& step : status.steps) {
    const engine::wire::UsageView& used = step.usage;
    if (used.executions == 0) continue;
    any = true;
    const Asked& wanted = asked.at(step.name);
    fmt::print("{}  {} executions, {} of CPU\n", styled(standard_output(), Style::bold, step.name),
               text::format_count(used.executions), text::format_duration(used.cpu_s.sum));
    const auto line = [](const char* what, const std::string& median, const std::string& high,
                         const std::string& most, const std::string& request) {
      fmt::print("  {:<8} median {:>11}   95 % {:>11}   most {:>11}{}\n", what, median, high, most,
                 request.empty() ? "" : "   asked " + request);
    };
    const auto times = [&](const char* what, const engine::wire::Spread& spread) {
      line(what, text::format_duration(spread.median), text::format_duration(spread.p95),
           text::format_duration(spread.most), "");
    };
    const auto sizes = [&](const char* what, const engine::wire::Spread& spread, std::uint64_t request) {
      line(what, bytes_text(spread.median), bytes_text(spread.p95), bytes_text(spread.most),
           request == 0 ? "" : text::format_bytes(request));
    };
    times("time", used.duration_s);
    sizes("memory", used.peak_bytes, wanted.memory_bytes);
    if (used.read_bytes.sum > 0) sizes("read", used.read_bytes, 0);
    if (used.written_bytes.sum > 0) sizes("written", used.written_bytes, 0);
    fmt::print("  {:<8} {:.2f} used of {:g} asked\n", "cores", cores_used(step), wanted.cores);
  }
  if (!any) fmt::print("no execution of a millisecond or more has ended yet\n");
  bool first = true;
  for (const StepStatus& step : status.steps) {
    if (step.usage.executions == 0) continue;
    for (const std::string& text : advice(step, asked.at(step.name))) {
      if (std::exchange(first, false)) fmt::print("\nfor the next run\n");
      fmt::print("  {}\n", text);
    }
  }
}

void print_json(const engine::CampaignStatus& status, const std::map<std::string, Asked>& asked) {
  const nlohmann::json all = engine::to_json(status);
  nlohmann::json steps = nlohmann::json::array();
  for (std::size_t i = 0; i < status.steps.size(); ++i) {
    const StepStatus& step = status.steps[i];
    nlohmann::json entry = all.at("steps").at(i).at("usage");
    entry["step"] = step.name;
    entry["cores_used"] = cores_used(step);
    entry["cores_asked"] = asked.at(step.name).cores;
    entry["memory_asked_bytes"] = asked.at(step.name).memory_bytes;
    entry["advice"] = step.usage.executions == 0 ? std::vector<std::string>() : advice(step, asked.at(step.name));
    steps.push_back(std::move(entry));
  }
  fmt::print("{}\n", nlohmann::json{{"steps", steps}}.dump(2));
}

int usage(const UsageOptions& options) {
  const std::filesystem::path campaign = find_campaign(options.campaign);
  const engine::CampaignStatus status = engine::campaign_status(campaign);
  const std::map<std::string, Asked> asked = asked_by_step(read_plan(campaign));
  if (options.json) {
    print_json(status, asked);
  } else if (options.csv) {
    table_of(status).print_csv();
  } else {
    print_for_people(status, asked);
  }
  return 0;
}

}  // namespace

void add_usage(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<UsageOptions>();
  CLI::App* command = app.add_subcommand("usage", "time, processor and memory that the tasks of each step used");
  command->footer(
      "Of every execution of a millisecond or more, and of those that failed; live and afterwards.\n"
      "`wflow explain TASK` has the same of one task.\n"
      "Examples:\n  wflow usage\n  wflow usage campaigns/cosmoflow_20261121-160001 --csv");
  command->add_option("campaign", options->campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  auto* json = command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--csv", options->csv, "a row a step, as comma-separated values")->excludes(json);
  command->callback([options, &chosen] { chosen = [options] { return usage(*options); }; });
}

}  // namespace wflow::cli
