// SPDX-License-Identifier: Apache-2.0
// wflow_simulation: see README.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tests/simulation/jobs.h"

namespace wflow::simulation {
namespace {

constexpr const char* kUsage =
    "usage: wflow_simulation [--seed N [--trace]] [--seeds FIRST COUNT] [--seconds S] [--jobs J]\n"
    "                        [--commit-seeds COUNT DIRECTORY] [--regressions FILE] [--all-faults]\n"
    "                        [--planted NAME|all [--readme FILE]] [--workers N]\n"
    "       wflow_simulation --planted-table\n";
constexpr std::uint64_t kReplayEvery = 100;

struct Arguments {
  JobOptions job;
  std::optional<std::uint64_t> seed;
  bool trace = false;
  bool all_faults = false;  // each must have happened
  bool planted_table = false;
  std::vector<PlantedBug> planted;
  std::string checkout;  // the seeds beside the fixed ones are those of its commit
  std::string readme;    // must have the planted bugs, and an invariant for each
  std::string regressions;
};

std::uint64_t number(const char* text) {
  const auto value = text::to_integer(text);
  if (!value || *value < 0) throw Error(ExitCode::usage, fmt::format("'{}' is no number\n{}", text, kUsage));
  return static_cast<std::uint64_t>(*value);
}

std::vector<PlantedBug> planted_of(std::string_view name) {
  if (name == "all") return {kPlantedBugs.begin(), kPlantedBugs.end()};
  if (const PlantedBug* const bug = find_planted(name)) return {*bug};
  throw Error(ExitCode::usage,
              fmt::format("no planted bug is called '{}'; see --planted-table\n{}", name, kUsage));
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
    } else if (option == "--commit-seeds") {
      arguments.job.more_count = number(next());
      arguments.checkout = next();
    } else if (option == "--seconds") {
      arguments.job.seconds = static_cast<double>(number(next()));
    } else if (option == "--workers") {
      arguments.job.run.workers = number(next());
    } else if (option == "--jobs") {
      arguments.job.jobs = static_cast<unsigned>(number(next()));
    } else if (option == "--regressions") {
      arguments.regressions = next();
    } else if (option == "--all-faults") {
      arguments.all_faults = true;
    } else if (option == "--planted") {
      arguments.planted = planted_of(next());
    } else if (option == "--planted-table") {
      arguments.planted_table = true;
    } else if (option == "--readme") {
      arguments.readme = next();
    } else {
      throw Error(ExitCode::usage, kUsage);
    }
  }
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

// The rows of the table below a heading.
std::vector<std::string> rows_below(const std::string& page, std::string_view heading) {
  std::vector<std::string> rows;
  std::istringstream lines(page.substr(std::min(page.size(), page.find(heading))));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| ")) rows.push_back(line);
    if (!rows.empty() && !line.starts_with('|')) break;
  }
  return rows;
}

// Each invariant of the page has a planted bug, and the page has the table of bugs as it is here.
int check_readme(const std::string& path) {
  const std::string page = read_file(path);
  int wrong = 0;
  std::set<std::string, std::less<>> invariants;
  for (const std::string& row : rows_below(page, "## Invariants")) {
    const std::string name = row.substr(2, row.find(" |", 2) - 2);
    if (name == "name") continue;
    invariants.insert(name);
    if (std::ranges::find(kPlantedBugs, name, &PlantedBug::invariant) != kPlantedBugs.end()) continue;
    fmt::print("{}: no planted bug breaks '{}'\n", path, name);
    wrong = 1;
  }
  for (const PlantedBug& bug : kPlantedBugs) {
    if (invariants.contains(bug.invariant)) continue;
    fmt::print("{}: '{}' is not in the table of invariants\n", path, bug.invariant);
    wrong = 1;
  }
  if (page.find(planted_table()) != std::string::npos) return wrong;
  fmt::print("{}: the table of planted bugs is not that of --planted-table\n", path);
  return 1;
}

int run_planted(const Studies& studies, Vfs& vfs, Arguments& arguments) {
  int missed = arguments.readme.empty() ? 0 : check_readme(arguments.readme);
  for (const PlantedBug& bug : arguments.planted) {
    arguments.job.run.planted = bug.bug;
    const double begun_s = steady_now_s();
    const JobResult result = run_jobs(studies, vfs, arguments.job);
    fmt::print("{:<28} {:<26} {} {:>5} seeds, {:5.1f} s; {} of them broke another invariant\n", bug.name,
               bug.invariant, result.failed.empty() ? "NOT FOUND in" : "found after", result.seeds,
               steady_now_s() - begun_s, result.others);
    if (result.failed.empty()) {
      missed = 1;
    } else if (arguments.planted.size() == 1) {
      report_failure(studies, vfs, result.failed.front(), arguments.job.run);
    } else {
      fmt::print("  replay: wflow_simulation --seed {} --planted {} --trace\n", result.failed.front(),
                 bug.name);
    }
    std::fflush(stdout);
  }
  return missed;
}

// The commit that is checked out in the directory; empty without one.
std::string commit_of(const std::string& directory) {
  std::string commit;
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> git(
      ::popen(fmt::format("git -C '{}' rev-parse HEAD 2> /dev/null", directory).c_str(), "r"));
  for (int c = git ? std::fgetc(git.get()) : EOF; c != EOF && c != '\n'; c = std::fgetc(git.get()))
    commit += static_cast<char>(c);
  return commit;
}

// Each commit has seeds of its own, far from the fixed ones.
void choose_commit_seeds(const std::string& checkout, JobOptions& job) {
  constexpr std::uint64_t kFarAway = 1'000'000, kSeeds = 1'000'000'000'000;
  const std::string commit = commit_of(checkout);
  if (commit.empty()) {
    fmt::print("{} is no git checkout: the {} seeds of the commit are the fixed ones that follow\n", checkout,
               job.more_count);
    job.more_first = job.first + job.count;
    return;
  }
  job.more_first = kFarAway + std::stoull(hash_bytes(commit).substr(0, 15), nullptr, 16) % kSeeds;
  fmt::print("{} seeds from {} on are those of commit {}\n", job.more_count, job.more_first, commit);
}

int run_many(const Studies& studies, Vfs& vfs, const Arguments& given) {
  const double begun_s = steady_now_s();
  Arguments arguments = given;
  if (!arguments.checkout.empty()) choose_commit_seeds(arguments.checkout, arguments.job);
  std::vector<std::uint64_t> failed;
  if (!arguments.regressions.empty()) {
    const std::vector<std::uint64_t> seeds = read_regressions(arguments.regressions);
    for (const std::uint64_t seed : seeds) {
      JobOptions one = arguments.job;
      one.more_count = 0;
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
    report_failure(studies, vfs, failed[i], arguments.job.run);
  for (std::size_t i = 5; i < failed.size(); ++i)
    fmt::print("replay: wflow_simulation --seed {} --trace\n", failed[i]);
  return failed.empty() && !missing ? 0 : 1;
}

int run(int argc, char** argv) {
  Arguments arguments = read_arguments(argc, argv);
  if (arguments.planted_table) {
    fmt::print("{}", planted_table());
    return 0;
  }
  arguments.job.check_replay_every = kReplayEvery;
  const Studies studies = make_studies(arguments.job.run.workers);
  Vfs vfs;
  if (arguments.planted.size() == 1) arguments.job.run.planted = arguments.planted.front().bug;
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
