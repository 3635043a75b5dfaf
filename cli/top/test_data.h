// SPDX-License-Identifier: Apache-2.0
// A campaign as the dashboard sees it, for tests: three steps, two allocations, failures, two trainings.
#pragma once

#include <cmath>
#include <string>

#include "cli/top/data.h"

namespace wflow::cli::top {

inline constexpr double kNow_s = 1'700'000'000;

inline wire::StepStatus test_step(const std::string& name, std::uint64_t done, std::uint64_t running,
                                  std::uint64_t failed, std::uint64_t retrying, std::uint64_t waiting) {
  using engine::ElementState;
  wire::StepStatus step;
  step.name = name;
  step.kind = "shell";
  const auto set = [&](ElementState state, std::uint64_t count) {
    step.counts[static_cast<std::size_t>(state)] = count;
  };
  set(ElementState::done, done);
  set(ElementState::leased, running);
  set(ElementState::failed, failed);
  set(ElementState::delayed, retrying);
  set(ElementState::blocked, waiting);
  step.elements = done + running + failed + retrying + waiting;
  return step;
}

inline wire::MetricCurve test_curve(const std::string& task, specs::Element element, const std::string& name,
                                    double scale) {
  wire::MetricCurve curve;
  curve.array = 2;
  curve.element = element;
  curve.task = task;
  curve.name = name;
  for (std::uint64_t epoch = 1; epoch <= 40; ++epoch)
    curve.points.push_back({epoch, epoch * 10, scale / static_cast<double>(epoch)});
  return curve;
}

inline wire::FailureView test_failure(std::uint64_t number, const std::string& task,
                                      const std::string& reason) {
  wire::FailureView failure;
  failure.number = number;
  failure.task = task;
  failure.step = "simulate";
  failure.array = 0;
  failure.element = number;
  failure.attempt = 2;
  failure.reason = reason;
  failure.worker = "node1-77-abc";
  failure.time_s = kNow_s - 100 + static_cast<double>(number);
  failure.duration_s = 3.2;
  failure.final = true;
  failure.detail = "reading input\nno root in cell " + std::to_string(number) + "\n";
  return failure;
}

inline wire::AllocationView test_allocation(const std::string& id, const std::string& state,
                                            const std::string& node) {
  wire::AllocationView allocation;
  allocation.token = "w" + id;
  allocation.id = id;
  allocation.pool = "cpu";
  allocation.scheduler = "slurm";
  allocation.state = state;
  if (state == "running") allocation.started_s = kNow_s - 3600;
  if (state == "running") allocation.ends_s = kNow_s + 3600;
  if (state == "running") allocation.workers = 1;
  if (!node.empty()) allocation.node_names = {node};
  return allocation;
}

inline TopData test_data() {
  TopData data;
  data.now_s = kNow_s;
  auto& status = data.status;
  status.name = "cosmoflow";
  status.directory = "/campaigns/cosmoflow_20261122-190000";
  status.state = engine::CampaignState::running;
  status.started_s = kNow_s - 3723;
  status.elapsed_s = 3723;
  status.time_s = kNow_s;
  status.steps = {test_step("simulate", 612'345, 96, 3, 7, 387'549), test_step("data", 12, 1, 0, 0, 19),
                  test_step("train", 0, 2, 0, 0, 0)};
  status.steps[0].rate_per_s = 1234.5;
  status.steps[0].left_s = 312;
  status.steps[0].usage.executions = 612'345;
  status.steps[0].usage.duration_s = {0.85, 2.4, 9, 612'345 * 0.9};
  status.steps[0].usage.peak_bytes = {900 << 20, 1800.0 * (1 << 20), 2000.0 * (1 << 20), 0};
  status.steps[0].mean_s = 0.9;
  data.needs["simulate"] = {1, std::int64_t{2} << 30};
  data.rates["simulate"] = {0, 100, 400, 800, 1200, 1234};
  status.workers = {{"node1-77-abc", "node1", 64, 60, 4096, 0.2, false},
                    {"node2-99-def", "node2", 64, 36, 40, 12.5, true}};
  status.workers_total = 2;
  status.allocations.allocations = {test_allocation("4711", "running", "node1"),
                                    test_allocation("4712", "queued", "")};
  status.allocations.allocations[1].reason = "Priority";
  status.failures = {test_failure(1, "simulate/1", "exit code 3"),
                     test_failure(2, "simulate/2", "time limit")};
  status.last_failure = 2;
  status.history = {{1, kNow_s - 3723, "started", "started on login1"},
                    {2, kNow_s - 50, "worker", "worker node2-99-def joined"}};
  status.metrics = {test_curve("train/0", 0, "learning_rate", 0.001),
                    test_curve("train/0", 0, "samples_per_second", 400),
                    test_curve("train/0", 0, "train_loss", 2), test_curve("train/0", 0, "validation_loss", 3),
                    test_curve("train/1", 1, "train_loss", 1)};
  data.checkpoints = {{2, 0, 39, 390, kNow_s - 8, "/campaigns/checkpoints/39"}};
  data.running = {{0, 612'350, "simulate/612350", "node1-77-abc", kNow_s - 1.5, std::uint64_t{1900} << 20},
                  {2, 0, "train/0", "node2-99-def", kNow_s - 600}};
  data.running_total = 96;
  data.worker_rates = {{"node1-77-abc", 12.34}};
  data.training_parameters = {{{2, 0}, "rate 0.001"}, {{2, 1}, "rate 0.1"}};
  for (const auto& worker : status.workers) {
    wire::WorkerView& view = data.workers.emplace_back();
    view.id = worker.id;
    view.host = worker.host;
    view.cores = worker.cores;
    view.joined_s = kNow_s - 7200;
  }
  return data;
}

}  // namespace wflow::cli::top
