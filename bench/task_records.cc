// SPDX-License-Identifier: Apache-2.0
// What the records of tasks cost: so many executions, as workers report them, go through the store of a
// campaign.
//
//   wflow_task_records [TASKS]      default 10,000,000
//   wflow_task_records TASKS FOLDER   makes FOLDER a finished campaign with these records, one task in a
//   hundred
//                                     failed, for bench/finished_campaign
//
// Prints seconds of CPU and bytes of the database a task, with records and without, the peak memory of this
// process, and how long it takes to read the records of one task and of 4,000 neighbours (a page of `wflow
// tasks`).
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
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

constexpr std::uint64_t kCommit = 20'000;  // executions of a commit: half a second of a busy coordinator
constexpr std::uint64_t kWorkers = 64;

double cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double peak_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

specs::Plan make_plan(const fs::path& folder, std::uint64_t tasks) {
  write_file_durably(
      folder / "study.yaml",
      fmt::format("description: {{name: records, description: a bench}}\n"
                  "samples: {{design: uniform, count: {}, seed: 1, parameters: {{x: [0, 1]}}}}\n"
                  "study:\n  - name: simulate\n    description: one\n    run: {{cmd: 'echo $(x)'}}\n",
                  tasks));
  specs::ReadOptions options;
  options.timestamp = "20260101-000000";
  return {specs::read_study(folder / "study.yaml", options).study, folder};
}

// Tasks of 2 ms to 10 s that end in about their order on many workers; no two alike.
TaskUsage usage_of(std::uint64_t task) {
  const auto unit = [&](std::uint64_t k) { return static_cast<double>(hash64(task, k) >> 11) * 0x1p-53; };
  TaskUsage usage;
  usage.first = task;
  usage.duration_s = 0.002 * std::pow(5000, unit(1));
  usage.cpu_s = usage.duration_s * (0.5 + 0.5 * unit(2));
  usage.started_s = 1.76e9 + static_cast<double>(task) * 1e-3 - usage.duration_s;
  usage.peak_bytes = static_cast<std::uint64_t>((10 + 500 * unit(3)) * (1 << 20));
  return usage;
}

struct Result {
  double cpu_s = 0, wall_s = 0, bytes = 0;
};

Result fill(const fs::path& folder, std::uint64_t tasks, bool with_records) {
  fs::create_directories(folder);
  const specs::Plan plan = make_plan(folder, tasks);
  store::Store::create(folder, plan);
  store::Store store(folder);
  const double before_s = cpu_s();
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t first = 0; first < tasks; first += kCommit) {
    const std::uint64_t end = std::min(tasks, first + kCommit);
    store::Batch batch;
    batch.ends.push_back({0, {first, end - 1}, ElementState::done});
    for (std::uint64_t worker = 0; with_records && worker < kWorkers; ++worker) {
      store::Batch::Usage& used = batch.usage.emplace_back();
      used.worker = fmt::format("node{:03}-4711", worker);
      for (std::uint64_t task = first + worker; task < end; task += kWorkers)
        used.executions.push_back(usage_of(task));
    }
    store.commit(batch);
  }
  Result result;
  result.cpu_s = cpu_s() - before_s;
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  store.snapshot(folder / "copy.db");
  result.bytes = static_cast<double>(fs::file_size(folder / "copy.db"));
  if (!with_records) return result;
  const auto read = [&](std::uint64_t count) {
    constexpr int kTimes = 20;
    const auto start = std::chrono::steady_clock::now();
    std::size_t found = 0;
    for (int i = 0; i < kTimes; ++i) {
      const std::uint64_t first = hash64(i, 7) % (tasks - count + 1);
      found += store.usage_of(0, {first, first + count - 1}).size();
    }
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    fmt::print("reading {} neighbours: {:.2f} ms, {:.1f} records\n", count, ms / kTimes,
               static_cast<double>(found) / kTimes);
  };
  read(1);
  read(std::min<std::uint64_t>(4000, tasks));
  return result;
}

// A campaign of these tasks that has ended, with records of all of them.
void make_campaign(const fs::path& folder, std::uint64_t tasks) {
  fs::create_directories(folder);
  const specs::Plan plan = specs::create_campaign(make_plan(folder, tasks));
  store::Store::create(folder, plan);
  store::Store store(folder);
  constexpr double kBegin_s = 1.76e9;
  const double end_s = kBegin_s + static_cast<double>(tasks) * 1e-3;
  store::Batch first;
  first.history = {{kBegin_s, "started", "coordinator 1"}};
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker) {
    store::WorkerRow& row = first.workers_joined.emplace_back();
    row.id = fmt::format("node{:03}-4711", worker);
    row.guardian.host = row.agent.host = fmt::format("node{:03}", worker);
    row.cores = 64;
    row.joined_s = kBegin_s;
    first.workers_ended.push_back({row.id, end_s, "drained"});
  }
  store.commit(first);
  for (std::uint64_t begin = 0; begin < tasks; begin += kCommit) {
    const std::uint64_t end = std::min(tasks, begin + kCommit);
    store::Batch batch;
    batch.time_s = kBegin_s + static_cast<double>(end) * 1e-3;
    for (std::uint64_t worker = 0; worker < kWorkers; ++worker) {
      store::Batch::Usage& used = batch.usage.emplace_back();
      used.worker = fmt::format("node{:03}-4711", worker);
      for (std::uint64_t task = begin + worker; task < end; task += kWorkers)
        used.executions.push_back(usage_of(task));
    }
    std::uint64_t done_from = begin;
    for (std::uint64_t task = begin; task < end; ++task) {
      if (hash64(task, 9) % 100 != 0) continue;
      RecordFailure& failure = batch.failures.emplace_back();
      failure.outcome.element = task;
      failure.outcome.exit_code = 3;
      failure.outcome.started_s = usage_of(task).started_s;
      failure.outcome.duration_s = usage_of(task).duration_s;
      failure.outcome.detail = fmt::format("no root in cell {}\n", task);
      failure.worker = "node000-4711";
      failure.final = true;
      if (task > done_from) batch.ends.push_back({0, {done_from, task - 1}, ElementState::done});
      batch.ends.push_back({0, {task, task}, ElementState::failed});
      done_from = task + 1;
    }
    if (done_from < end) batch.ends.push_back({0, {done_from, end - 1}, ElementState::done});
    store.commit(batch);
  }
  store::Batch last;
  last.history = {{end_s, "end", "finished with failures"}};
  last.time_s = end_s;
  store.commit(last);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t tasks = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  if (argc > 2) {
    make_campaign(argv[2], tasks);
    return 0;
  }
  const fs::path folder = fs::temp_directory_path() / fmt::format("wflow_task_records_{}", ::getpid());
  const auto n = static_cast<double>(tasks);
  const Result without = fill(folder / "without", tasks, false);
  const double memory_before = peak_mb();
  const Result with = fill(folder / "with", tasks, true);
  fmt::print("{} tasks: CPU {:.3f} us a task with records, {:.3f} without; wall {:.1f} s, {:.1f} s\n", tasks,
             1e6 * with.cpu_s / n, 1e6 * without.cpu_s / n, with.wall_s, without.wall_s);
  fmt::print("database: {:.1f} MB with records, {:.3f} MB without: {:.2f} bytes a task\n", with.bytes / 1e6,
             without.bytes / 1e6, (with.bytes - without.bytes) / n);
  fmt::print("peak memory: {:.1f} MB; {:.1f} MB without records\n", peak_mb(), memory_before);
  fs::remove_all(folder);
  return 0;
}
