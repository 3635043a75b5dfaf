// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/jobs.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "base/clock.h"
#include "base/error.h"

namespace wflow::simulation {

namespace {

constexpr std::size_t kFailures = 64;  // are kept of a process

// In memory that parent and children share: what a child did is known even when it is killed by a check.
struct Shared {
  std::uint64_t current = 0;  // 0: none
  std::uint64_t seeds = 0, others = 0, steps = 0, executions = 0, lost_results = 0;
  double simulated_s = 0, worst_over_bound = 0;
  std::uint64_t worst_seed = 0;
  FaultCounts faults;
  std::size_t failures = 0;
  std::uint64_t failed[kFailures] = {};
};

struct Board {
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
};

void fail(Shared& shared, std::uint64_t seed, Board& board, const JobOptions& options) {
  if (shared.failures < kFailures) shared.failed[shared.failures++] = seed;
  if (options.run.planted != Planted::none) board.stop = true;
}

void work(const Studies& studies, Vfs& vfs, const JobOptions& options, Shared& shared, Board& board,
          double until_s) {
  while (!board.stop) {
    const std::uint64_t index = board.next++;
    if (options.count > 0 && index >= options.count + options.more_count) break;
    if (options.count == 0 && steady_now_s() > until_s) break;
    const bool more = options.count > 0 && index >= options.count;
    const std::uint64_t seed = more ? options.more_first + (index - options.count) : options.first + index;
    shared.current = seed;
    const RunResult result = World(seed, studies, vfs, options.run).run();
    bool failed = result.violation.has_value();
    const PlantedBug* const bug = find_planted(options.run.planted);
    if (failed && bug != nullptr && result.invariant != bug->invariant) {
      failed = false;
      ++shared.others;
    }
    if (!failed && bug == nullptr && options.check_replay_every > 0 && seed % options.check_replay_every == 0)
      failed = World(seed, studies, vfs, options.run).run().fingerprint != result.fingerprint;
    shared.current = 0;
    if (failed) fail(shared, seed, board, options);
    ++shared.seeds;
    shared.steps += result.steps;
    shared.executions += result.executions;
    shared.lost_results += result.lost_results;
    shared.simulated_s += result.simulated_s;
    shared.faults.add(result.faults);
    if (result.over_bound > shared.worst_over_bound) {
      shared.worst_over_bound = result.over_bound;
      shared.worst_seed = seed;
    }
  }
}

}  // namespace

JobResult run_jobs(const Studies& studies, Vfs& vfs, const JobOptions& options) {
  const std::size_t bytes = sizeof(Board) + options.jobs * sizeof(Shared);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(ExitCode::system, "no shared memory");
  Board* const board = std::construct_at(static_cast<Board*>(memory));
  Shared* const all = reinterpret_cast<Shared*>(board + 1);
  const double until_s = steady_now_s() + options.seconds;
  std::vector<pid_t> children;
  for (unsigned i = 0; i < options.jobs; ++i) {
    std::construct_at(all + i);
    const pid_t child = ::fork();
    if (child == 0) {
      work(studies, vfs, options, all[i], *board, until_s);
      ::_exit(0);
    }
    children.push_back(child);
  }
  JobResult result;
  for (unsigned i = 0; i < options.jobs; ++i) {
    int status = 0;
    ::waitpid(children[i], &status, 0);
    Shared& one = all[i];
    if (status != 0 && one.current != 0) {
      fmt::print("seed {} ended its process (status {})\n", one.current, status);
      if (options.run.planted == Planted::none) fail(one, one.current, *board, options);
    }
    result.seeds += one.seeds;
    result.others += one.others;
    result.steps += one.steps;
    result.executions += one.executions;
    result.lost_results += one.lost_results;
    result.simulated_s += one.simulated_s;
    result.faults.add(one.faults);
    if (one.worst_over_bound > result.worst_over_bound) {
      result.worst_over_bound = one.worst_over_bound;
      result.worst_seed = one.worst_seed;
    }
    result.failed.insert(result.failed.end(), one.failed, one.failed + one.failures);
  }
  ::munmap(memory, bytes);
  std::sort(result.failed.begin(), result.failed.end());
  return result;
}

void report_failure(const Studies& studies, Vfs& vfs, std::uint64_t seed, const RunOptions& run) {
  std::fflush(stdout);
  const pid_t child = ::fork();  // a broken check ends the process
  if (child == 0) {
    RunOptions again = run;
    again.trace = Trace::Mode::last_lines;
    const RunResult result = World(seed, studies, vfs, again).run();
    fmt::print("seed {}: {}\n", seed, result.violation.value_or("two runs of it differ"));
    for (const std::string& line : result.last_lines) fmt::print("  {}\n", line);
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const PlantedBug* const bug = find_planted(run.planted);
  fmt::print("replay: wflow_simulation --seed {}{} --trace\n\n", seed,
             bug != nullptr ? fmt::format(" --planted {}", bug->name) : "");
}

}  // namespace wflow::simulation
