// SPDX-License-Identifier: Apache-2.0
// wflow launch: the value of $(LAUNCHER) in wflow's own studies. It becomes the launcher of the innermost
// manager, on the nodes that the task has.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/text.h"
#include "base/trainer_mpi.h"
#include "cli/commands/commands.h"
#include "engine/batch/adapters.h"
#include "engine/batch/mpi_launch.h"

namespace wflow::cli {

namespace {

namespace batch = engine::batch;

struct LaunchOptions {
  int nodes = 0, procs = 0;  // 0: all that the task has
  std::string slurm, flux, lsf;
  std::vector<std::string> program;
};

// Variables of an allocation do not count outside of its nodes (on a login node below salloc).
std::string manager_around() {
  if (!environment_value("FLUX_URI").empty()) return "flux";
  if (!environment_value("SLURM_JOB_ID").empty() && !environment_value("SLURMD_NODENAME").empty())
    return "slurm";
  if (!environment_value("LSB_JOBID").empty()) return "lsf";
  if (!environment_value("PBS_JOBID").empty()) return "pbs";
  return {};
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::string& word : text::split(text, ' ')) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::string> nodes_of_task(const std::string& manager) {
  if (const std::string nodes = environment_value("WFLOW_NODES"); !nodes.empty())
    return text::split(nodes, ',');
  if (manager == "slurm") return {environment_value("SLURMD_NODENAME")};
  return {};
}

[[noreturn]] void too_many(const char* what, int asked, int there) {
  throw Error(ExitCode::usage,
              fmt::format("wflow launch is asked for {} {}, and the task has {}", asked, what, there));
}

// wflow-train may be there for both MPIs (base/trainer_mpi.h): the launcher that is here decides.
bool trains_on_mpich(const std::filesystem::path& program, const batch::MpiLaunch& launch) {
  std::error_code ignored;
  if (program.filename() != "wflow-train" ||
      !std::filesystem::exists(program.parent_path() / "wflow-train-mpich", ignored))
    return false;
  const auto knows = [&](std::string_view type) {
    return std::ranges::find(launch.mpi_types, type) != launch.mpi_types.end();
  };
  if (launch.manager == "slurm" && launch.procs > 1 && knows("pmix")) return false;
  if (launch.manager == "slurm" && launch.procs > 1 && knows("pmi2") && site_mpi(true)) return true;
  const auto mpirun = find_program("mpirun");
  return mpirun && is_launcher_of_mpich(*mpirun);
}

batch::MpiLibrary library_of(const std::string& program, const batch::MpiLaunch& launch) {
  return trains_on_mpich(program, launch) ? batch::MpiLibrary::mpich : batch::mpi_library_of(program);
}

batch::MpiLaunch launch_of(const LaunchOptions& options) {
  batch::MpiLaunch launch;
  launch.manager = manager_around();
  launch.nodes = nodes_of_task(launch.manager);
  const int world = static_cast<int>(text::to_integer(environment_value("WFLOW_WORLD_SIZE")).value_or(0));
  const int there = std::max(1, static_cast<int>(launch.nodes.size()));
  if (options.nodes > there && world > 0) too_many("nodes", options.nodes, there);
  if (options.procs > world && world > 0) too_many("processes", options.procs, world);
  launch.procs = options.procs > 0 ? options.procs : std::max(1, world);
  const int most = options.nodes > 0 ? std::min(options.nodes, launch.procs) : launch.procs;
  if (most < there) launch.nodes.resize(static_cast<std::size_t>(most));
  const std::string path = find_program(options.program.front()).value_or(options.program.front());
  static const std::string kNone;
  const std::string& given = launch.manager == "flux"    ? options.flux
                             : launch.manager == "lsf"   ? options.lsf
                             : launch.manager == "slurm" ? options.slurm
                                                         : kNone;
  launch.options = words_of(given);
  launch.root = ::geteuid() == 0;
  if (launch.manager == "slurm")
    launch.job_nodes = batch::expand_host_list(environment_value("SLURM_JOB_NODELIST"));
  if (launch.manager == "slurm" && launch.procs > 1) {
    SpawnRequest request;
    request.argv = {"srun", "--mpi=list"};
    constexpr double kLimit_s = 30;
    const CommandResult answer = run_command(request, kLimit_s);
    launch.mpi_types = batch::parse_mpi_types(answer.out + "\n" + answer.err);
  }
  launch.library = library_of(path, launch);
  return launch;
}

// The options of `wflow launch` come before the program.
LaunchOptions read(const std::vector<std::string>& words) {
  LaunchOptions options;
  std::size_t at = 0;
  const auto value_of = [&](const std::string& word) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) return word.substr(equals + 1);
    if (at + 1 >= words.size())
      throw Error(ExitCode::usage, fmt::format("wflow launch: {} needs a value", word));
    return words[++at];
  };
  const auto number_of = [&](const std::string& word) {
    const std::string text = value_of(word);
    const auto number = text::to_integer(text);
    if (!number || *number < 1 || *number > 10'000'000)
      throw Error(ExitCode::usage,
                  fmt::format("wflow launch: {} needs a number from 1, found '{}'", word, text));
    return static_cast<int>(*number);
  };
  for (; at < words.size() && words[at].starts_with('-'); ++at) {
    const std::string name = words[at].substr(0, words[at].find('='));
    if (name == "--") {
      ++at;
      break;
    }
    if (name == "-N" || name == "--nodes") {
      options.nodes = number_of(words[at]);
    } else if (name == "-n" || name == "--procs") {
      options.procs = number_of(words[at]);
    } else if (name == "--slurm") {
      options.slurm = value_of(words[at]);
    } else if (name == "--flux") {
      options.flux = value_of(words[at]);
    } else if (name == "--lsf") {
      options.lsf = value_of(words[at]);
    } else {
      throw Error(ExitCode::usage,
                  fmt::format("wflow launch has no option {}; see wflow launch --help", name));
    }
  }
  options.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (options.program.empty()) throw Error(ExitCode::usage, "wflow launch: which program?");
  return options;
}

// Replaces this process by the program or its launcher, so that it gets the signals that the worker sends.
int start(const LaunchOptions& options) {
  const batch::MpiLaunch launch = launch_of(options);
  std::vector<std::string> words = batch::launch_words(launch);
  ::setenv("WFLOW_WORLD_SIZE", std::to_string(launch.procs).c_str(), 1);
  for (const auto& [name, value] : batch::launch_variables(launch)) ::setenv(name.c_str(), value.c_str(), 1);
  words.insert(words.end(), options.program.begin(), options.program.end());
  become_program(std::move(words));
}

}  // namespace

void add_launch(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "launch", "start an MPI program on the nodes of the task that calls it: $(LAUNCHER) in a study");
  command->footer(
      "Examples:\n  wflow launch ./simulate input.yaml\n  wflow launch -N 2 -n 4 ./simulate input.yaml");
  // run_launch() reads the options: words after the program belong to the program.
  command->add_option("-N,--nodes", "nodes (default: all of the task)");
  command->add_option("-n,--procs", "processes (default: all of the task)");
  command->add_option("--slurm", "more options, where srun starts the program");
  command->add_option("--flux", "the same of flux run");
  command->add_option("--lsf", "the same of jsrun");
  command->add_option("PROGRAM", "the program and its arguments")->required();
}

std::optional<int> run_launch(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return std::nullopt;
  const std::vector<std::string> words(argv + 2, argv + argc);
  const bool asks_for_help =
      words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "--help-all";
  return asks_for_help ? std::nullopt : std::optional(start(read(words)));
}

}  // namespace wflow::cli
