// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/observer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program_file.h"
#include "base/text.h"

namespace wflow::cli {

namespace {

using engine::CampaignState;
using engine::ElementState;

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return escaped;
}

std::string sample_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return text::from_real(value);
}

using Labels = std::initializer_list<std::pair<const char*, std::string_view>>;

// Writes one family after the other, as the format requires.
class Exposition {
 public:
  explicit Exposition(std::string campaign) : campaign_(label_value(campaign)) {}

  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(double value, Labels labels = {}, const char* suffix = "") {
    text_ += fmt::format("{}{}{{campaign=\"{}\"", name_, suffix, campaign_);
    for (const auto& [name, label] : labels) text_ += fmt::format(",{}=\"{}\"", name, label_value(label));
    text_ += "} " + sample_value(value) + "\n";
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string campaign_, name_, text_;
};

double real(std::uint64_t count) {
  return static_cast<double>(count);
}

void add_campaign(const engine::CampaignStatus& status, Exposition& out) {
  out.family("wflow_campaign_info", "gauge", "The campaign; always 1.");
  out.sample(1, {{"directory", status.directory}, {"name", status.name}, {"version", kVersion}});
  out.family("wflow_campaign_state", "gauge", "1 for the state that the campaign is in.");
  for (std::size_t i = 0; i < engine::kCampaignStates; ++i) {
    const auto state = static_cast<CampaignState>(i);
    out.sample(state == status.state ? 1 : 0, {{"state", name_of(state)}});
  }
  out.family("wflow_campaign_start_time_seconds", "gauge", "Unix time of the campaign's begin.");
  out.sample(status.started_s);
  out.family("wflow_campaign_elapsed_seconds", "gauge", "Time with a coordinator.");
  out.sample(status.elapsed_s);
  out.family("wflow_campaign_update_time_seconds", "gauge", "Unix time of these numbers.");
  out.sample(status.time_s);
}

void add_steps(const engine::CampaignStatus& status, Exposition& out) {
  out.family("wflow_tasks", "gauge", "Tasks of a step in a state.");
  for (const auto& step : status.steps) {
    for (std::size_t i = 0; i < engine::kElementStates; ++i) {
      const auto state = static_cast<ElementState>(i);
      out.sample(real(step.count(state)), {{"step", step.name}, {"state", engine::name_of(state)}});
    }
  }
  out.family("wflow_step_rate", "gauge", "Tasks that ended a second, over the last seconds.");
  for (const auto& step : status.steps) out.sample(step.rate_per_s, {{"step", step.name}});
  out.family("wflow_step_remaining_seconds", "gauge", "Estimated time until the step's tasks have ended.");
  for (const auto& step : status.steps) {
    if (step.left_s) out.sample(*step.left_s, {{"step", step.name}});
  }
  out.family("wflow_step_held", "gauge",
             "1 where nothing of the step starts: too many failures, or no worker.");
  for (const auto& step : status.steps) out.sample(step.held.empty() ? 0 : 1, {{"step", step.name}});
}

void add_summary(const engine::CampaignStatus& status, engine::wire::Spread engine::wire::UsageView::*what,
                 Exposition& out) {
  for (const auto& step : status.steps) {
    if (step.usage.executions == 0) continue;
    const engine::wire::Spread& spread = step.usage.*what;
    out.sample(spread.median, {{"step", step.name}, {"quantile", "0.5"}});
    out.sample(spread.p95, {{"step", step.name}, {"quantile", "0.95"}});
    out.sample(spread.most, {{"step", step.name}, {"quantile", "1"}});
    out.sample(spread.sum, {{"step", step.name}}, "_sum");
    out.sample(real(step.usage.executions), {{"step", step.name}}, "_count");
  }
}

void add_usage(const engine::CampaignStatus& status, Exposition& out) {
  using View = engine::wire::UsageView;
  out.family("wflow_task_duration_seconds", "summary", "Wall time of executions.");
  add_summary(status, &View::duration_s, out);
  out.family("wflow_task_cpu_seconds", "summary", "CPU time of executions.");
  add_summary(status, &View::cpu_s, out);
  out.family("wflow_task_peak_memory_bytes", "summary", "Largest memory of executions.");
  add_summary(status, &View::peak_bytes, out);
}

void add_workers(const engine::CampaignStatus& status, Exposition& out) {
  double cores = 0;
  double running = 0;
  for (const auto& worker : status.workers) {
    cores += worker.cores;
    running += real(worker.running);
  }
  out.family("wflow_workers", "gauge", "Workers that are connected.");
  out.sample(real(status.workers_total));
  out.family("wflow_worker_cores", "gauge", "Their cores.");
  out.sample(cores);
  out.family("wflow_tasks_running", "gauge", "Tasks that run on them.");
  out.sample(running);
  out.family("wflow_allocations", "gauge", "Allocations of a pool that have not ended.");
  for (const auto& pool : status.allocations.pools) {
    for (const char* state : {"intended", "queued", "running"}) {
      double count = 0;
      for (const auto& allocation : status.allocations.allocations)
        count += allocation.pool == pool.name && allocation.state == state ? 1 : 0;
      out.sample(count, {{"pool", pool.name}, {"state", state}});
    }
  }
}

void add_training(const engine::CampaignStatus& status, Exposition& out) {
  out.family("wflow_metric", "gauge", "The last value of a metric that a task has reported.");
  for (const auto& curve : status.metrics) {
    if (!curve.points.empty())
      out.sample(curve.points.back().value, {{"task", curve.task}, {"name", curve.name}});
  }
}

}  // namespace

std::string prometheus_text(const engine::CampaignStatus& status) {
  Exposition out(std::filesystem::path(status.directory).filename().string());
  add_campaign(status, out);
  add_steps(status, out);
  add_usage(status, out);
  add_workers(status, out);
  add_training(status, out);
  return std::move(out).text();
}

void write_metrics(const std::filesystem::path& file, const std::string& text) {
  if (is_special_file(file)) return write_special_file(file, text);
  // The collector reads only *.prom.
  const std::string temporary = fmt::format("{}.{}.tmp", file.string(), ::getpid());
  try {
    write_all(open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644).get(), text, temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (std::rename(temporary.c_str(), file.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw system_error(error, "cannot write " + file.string());
  }
}

Observer::Observer(const specs::Plan& plan)
    : hooks_(plan.campaign(), specs::hooks_of(plan.study())),
      metrics_(specs::metrics_file_of(plan.study())) {}

void Observer::look(const engine::CampaignStatus& status) {
  hooks_.look(status);
  if (!metrics_ || steady_now_s() < next_s_) return;
  next_s_ = steady_now_s() + metrics_->every_s;
  write_file(status);
}

void Observer::rest(const engine::CampaignStatus& status) {
  hooks_.look(status);
  if (metrics_) write_file(status);
  hooks_.record();
}

void Observer::ended(const engine::CampaignStatus& status) {
  hooks_.ended(status);
  hooks_.record();
}

void Observer::write_file(const engine::CampaignStatus& status) {
  try {
    write_metrics(metrics_->file, prometheus_text(status));
    trouble_ = false;
  } catch (const Error& error) {
    if (!std::exchange(trouble_, true)) log::write(LogLevel::warning, error.what());
  }
}

}  // namespace wflow::cli
