// SPDX-License-Identifier: Apache-2.0
// Makes a finished campaign of so many tasks without running them, for `wflow report` (bench/report_cost):
// executions of 2 ms to 10 s on 300 workers of 60 nodes, of which one in a hundred fails.
//
//   wflow_report_campaign TASKS DIRECTORY      prints the campaign's directory
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/random.h"
#include "engine/store/store.h"
#include "specs/plan/workspace.h"
#include "specs/study/study.h"

namespace {

namespace fs = std::filesystem;
using namespace wflow;
using namespace wflow::engine;

constexpr std::uint64_t kCommit = 50'000;
constexpr std::uint64_t kWorkers = 300;
constexpr double kBegin_s = 1.76e9;
constexpr double kBetween_s = 1e-3;  // from one task's end to the next one's
constexpr std::uint64_t kFails = 100;

specs::Plan make_campaign(const fs::path& folder, std::uint64_t tasks) {
  write_file_durably(
      folder / "study.yaml",
      fmt::format("description: {{name: large, description: a campaign that was never run}}\n"
                  "env: {{variables: {{OUTPUT_PATH: {}}}}}\n"
                  "samples: {{design: sobol, count: {}, seed: 1, parameters: {{x: [0, 1], y: [-1, 1]}}}}\n"
                  "study:\n  - name: simulate\n    description: one\n    run: {{cmd: 'echo $(x) $(y)', "
                  "memory: 1GiB}}\n",
                  folder.string(), tasks));
  specs::ReadOptions options;
  options.timestamp = "20260101-000000";
  const specs::Study study = specs::read_study(folder / "study.yaml", options).study;
  return specs::create_campaign(specs::Plan(study, folder / "large_20260101-000000"));
}

std::string worker_name(std::uint64_t worker) {
  return fmt::format("node{:03}-{}", worker / 5, 4711 + worker);
}

TaskUsage usage_of(std::uint64_t task) {
  const auto unit = [&](std::uint64_t k) { return static_cast<double>(hash64(task, k) >> 11) * 0x1p-53; };
  TaskUsage usage;
  usage.first = task;
  usage.duration_s = 0.002 * std::pow(5000, unit(1));
  usage.cpu_s = usage.duration_s * (0.5 + 0.5 * unit(2));
  usage.started_s = kBegin_s + 10 + static_cast<double>(task) * kBetween_s - std::min(usage.duration_s, 9.0);
  usage.peak_bytes = static_cast<std::uint64_t>((10 + 500 * unit(3)) * (1 << 20));
  return usage;
}

RecordFailure failure_of(std::uint64_t task, const TaskUsage& usage) {
  RecordFailure failure;
  failure.outcome.element = task;
  failure.outcome.reason = EndReason::exited;
  failure.outcome.exit_code = 1 + static_cast<int>(task / kFails % 3);
  failure.outcome.started_s = usage.started_s;
  failure.outcome.duration_s = usage.duration_s;
  failure.outcome.detail =
      fmt::format("residual {} after 100 steps\nno convergence in cell {}\n", task * 7 % 1000, task % 997);
  failure.worker = worker_name(task % kWorkers);
  failure.final = true;
  return failure;
}

store::Batch batch_of(std::uint64_t first, std::uint64_t end) {
  store::Batch batch;
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker)
    batch.usage.push_back({worker_name(worker), {}});
  std::uint64_t from = first;
  for (std::uint64_t task = first; task < end; ++task) {
    const TaskUsage usage = usage_of(task);
    batch.usage[task % kWorkers].executions.push_back(usage);
    if (hash64(task, 9) % kFails != 0) continue;
    if (task > from) batch.ends.push_back({0, {from, task - 1}, ElementState::done});
    batch.ends.push_back({0, {task, task}, ElementState::failed});
    batch.failures.push_back(failure_of(task, usage));
    from = task + 1;
  }
  if (end > from) batch.ends.push_back({0, {from, end - 1}, ElementState::done});
  batch.time_s = kBegin_s + static_cast<double>(end) * kBetween_s;
  return batch;
}

store::Batch first_batch() {
  store::Batch batch;
  batch.history.push_back({kBegin_s, "started", "coordinator 1 on login1 (pid 4711)"});
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker) {
    store::WorkerRow row;
    row.id = worker_name(worker);
    row.group = "all";
    row.guardian.host = row.agent.host = fmt::format("node{:03}", worker / 5);
    row.cores = 36;
    row.joined_s = kBegin_s + 1 + 0.1 * static_cast<double>(worker);
    batch.workers_joined.push_back(row);
  }
  batch.time_s = kBegin_s;
  return batch;
}

store::Batch last_batch(std::uint64_t tasks) {
  store::Batch batch;
  batch.time_s = kBegin_s + 11 + static_cast<double>(tasks) * kBetween_s;
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker)
    batch.workers_ended.push_back({worker_name(worker), batch.time_s, "no work is left"});
  batch.history.push_back({batch.time_s, "end", fmt::format("{} tasks ended", tasks)});
  return batch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: wflow_report_campaign TASKS DIRECTORY\n");
    return 2;
  }
  const std::uint64_t tasks = std::strtoull(argv[1], nullptr, 10);
  const specs::Plan plan = make_campaign(fs::absolute(argv[2]), tasks);
  store::Store::create(plan.campaign(), plan);
  store::Store store(plan.campaign());
  store.next_epoch();
  store.commit(first_batch());
  for (std::uint64_t first = 0; first < tasks; first += kCommit)
    store.commit(batch_of(first, std::min(tasks, first + kCommit)));
  store.commit(last_batch(tasks));
  fmt::print("{}\n", plan.campaign().string());
  return 0;
}
