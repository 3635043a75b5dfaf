// SPDX-License-Identifier: Apache-2.0
// wflow_simulation: see README.md.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "tests/simulation/jobs.h"

namespace wflow::simulation {
namespace {

constexpr const char* kUsage =
    "usage: wflow_simulation [--seed N [--trace]] [--seeds FIRST COUNT] [--seconds S] [--jobs J]\n"
    "                        [--regressions FILE] [--all-faults] [--planted NAME]\n"
    "planted bugs: acknowledge_before_commit, lease_before_fence, forget_leases_at_hand_over, "
    "fill_the_disk,\n"
    "release_only_what_fits, signal_before_end, forget_what_ran, ignore_the_scheduler\n";
constexpr std::uint64_t kReplayEvery = 100;

struct Arguments {
  JobOptions job;
  std::optional<std::uint64_t> seed;
  bool trace = false;
  bool all_faults = false;  // each must have happened
  std::string planted;
  std::string regressions;
};

std::uint64_t number(const char* text) {
  const auto value = text::to_integer(text);
  if (!value || *value < 0) throw Error(ExitCode::usage, fmt::format("'{}' is no number\n{}", text, kUsage));
  return static_cast<std::uint64_t>(*value);
}

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  int at = 1;
  const auto next = [&] {
    if (at >= argc) throw Error(ExitCode::usage, kUsage);
    return argv[at++];
  };
  while (at < argc) {
    const std::string option = next();
    if (option == "--seed") {
      arguments.seed = number(next());
    } else if (option == "--trace") {
      arguments.trace = true;
    } else if (option == "--seeds") {
      arguments.job.first = number(next());
      arguments.job.count = number(next());
    } else if (option == "--seconds") {
      arguments.job.seconds = static_cast<double>(number(next()));
    } else if (option == "--jobs") {
      arguments.job.jobs = static_cast<unsigned>(number(next()));
    } else if (option == "--regressions") {
      arguments.regressions = next();
    } else if (option == "--all-faults") {
      arguments.all_faults = true;
    } else if (option == "--planted") {
      arguments.planted = next();
    } else {
      throw Error(ExitCode::usage, kUsage);
    }
  }
  engine::PlantedBugs& planted = arguments.job.run.planted;
  planted.acknowledge_before_commit = arguments.planted == "acknowledge_before_commit";
  planted.lease_before_fence = arguments.planted == "lease_before_fence";
  planted.fill_the_disk = arguments.planted == "fill_the_disk";
  planted.release_only_what_fits = arguments.planted == "release_only_what_fits";
  planted.forget_leases_at_hand_over = arguments.planted == "forget_leases_at_hand_over";
  planted.ignore_the_scheduler = arguments.planted == "ignore_the_scheduler";
  arguments.job.run.planted_signal_before_end = arguments.planted == "signal_before_end";
  arguments.job.run.planted_forget_what_ran = arguments.planted == "forget_what_ran";
  const bool any = arguments.job.run.planted_signal_before_end || arguments.job.run.planted_forget_what_ran ||
                   planted.ignore_the_scheduler || planted.acknowledge_before_commit || planted.lease_before_fence ||
                   planted.forget_leases_at_hand_over || planted.fill_the_disk ||
                   planted.release_only_what_fits;
  if (!arguments.planted.empty() && !any) throw Error(ExitCode::usage, kUsage);
  return arguments;
}

int run_one(const Studies& studies, Vfs& vfs, const Arguments& arguments) {
  RunOptions options = arguments.job.run;
  options.trace = arguments.trace ? Trace::Mode::print : Trace::Mode::last_lines;
  const RunResult result = World(*arguments.seed, studies, vfs, options).run();
  if (result.violation) {
    fmt::print("seed {}: {}\n", *arguments.seed, *result.violation);
    if (!arguments.trace) {
      for (const std::string& line : result.last_lines) fmt::print("  {}\n", line);
    }
    return 1;
  }
  fmt::print("seed {}: {:.0f} simulated seconds, {} executions, {} steps, {:.0f} % of the time to end in\n",
             *arguments.seed, result.simulated_s, result.executions, result.steps, 100 * result.over_bound);
  return 0;
}

// Lines of a seed and why it is there.
std::vector<std::uint64_t> read_regressions(const std::string& path) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(path);
  if (!file) throw Error(ExitCode::usage, "cannot read " + path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    seeds.push_back(number(line.substr(0, line.find(' ')).c_str()));
  }
  return seeds;
}

int run_planted(const Studies& studies, Vfs& vfs, Arguments& arguments) {
  arguments.job.stop_at_failure = true;
  const double begun_s = steady_now_s();
  const JobResult result = run_jobs(studies, vfs, arguments.job);
  if (result.failed.empty()) {
    fmt::print("{}: not found in {} seeds\n", arguments.planted, result.seeds);
    return 1;
  }
  fmt::print("{}: found after {} seeds, {:.1f} s\n", arguments.planted, result.seeds,
             steady_now_s() - begun_s);
  report_failure(studies, vfs, result.failed.front(), arguments.job.run, arguments.planted.c_str());
  return 0;
}

int run_many(const Studies& studies, Vfs& vfs, const Arguments& arguments) {
  const double begun_s = steady_now_s();
  std::vector<std::uint64_t> failed;
  if (!arguments.regressions.empty()) {
    const std::vector<std::uint64_t> seeds = read_regressions(arguments.regressions);
    for (const std::uint64_t seed : seeds) {
      JobOptions one = arguments.job;
      one.first = seed;
      one.count = 1;
      one.jobs = 1;
      for (const std::uint64_t broken : run_jobs(studies, vfs, one).failed) failed.push_back(broken);
    }
    fmt::print("{} seeds that once failed, {} of them again\n", seeds.size(), failed.size());
  }
  const JobResult result = run_jobs(studies, vfs, arguments.job);
  failed.insert(failed.end(), result.failed.begin(), result.failed.end());
  const double took_s = steady_now_s() - begun_s;
  fmt::print(
      "{} seeds in {:.1f} s ({:.1f} ms each), {:.0f} simulated hours, {} executions of tasks, {} steps\n",
      result.seeds, took_s,
      1e3 * took_s * arguments.job.jobs / static_cast<double>(std::max<std::uint64_t>(result.seeds, 1)),
      result.simulated_s / 3600, result.executions, result.steps);
  fmt::print("{} results lost between a task's end and its journal (the documented exception)\n",
             result.lost_results);
  fmt::print("the slowest end took {:.0f} % of the time that it may take (seed {})\n",
             100 * result.worst_over_bound, result.worst_seed);
  bool missing = false;
  for (std::size_t fault = 0; fault < kFaults; ++fault) {
    const std::uint64_t count = result.faults.of(static_cast<Fault>(fault));
    fmt::print("  {:<36} {:>10}\n", name_of(static_cast<Fault>(fault)), count);
    missing = missing || (arguments.all_faults && count == 0);
  }
  if (missing) fmt::print("a kind of fault never happened\n");
  fmt::print("{} seeds failed\n", failed.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(failed.size(), 5); ++i)
    report_failure(studies, vfs, failed[i], arguments.job.run, "");
  for (std::size_t i = 5; i < failed.size(); ++i) fmt::print("seed {}\n", failed[i]);
  return failed.empty() && !missing ? 0 : 1;
}

int run(int argc, char** argv) {
  Arguments arguments = read_arguments(argc, argv);
  arguments.job.check_replay_every = kReplayEvery;
  const Studies studies = make_studies();
  Vfs vfs;
  if (arguments.seed) return run_one(studies, vfs, arguments);
  if (arguments.job.count == 0 && arguments.job.seconds == 0) throw Error(ExitCode::usage, kUsage);
  if (!arguments.planted.empty()) return run_planted(studies, vfs, arguments);
  return run_many(studies, vfs, arguments);
}

}  // namespace
}  // namespace wflow::simulation

int main(int argc, char** argv) {
  try {
    return wflow::simulation::run(argc, argv);
  } catch (const wflow::Error& error) {
    fmt::print(stderr, "wflow_simulation: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
