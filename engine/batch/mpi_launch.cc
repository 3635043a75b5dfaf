// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/mpi_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/text.h"

namespace wflow::engine::batch {

namespace {

constexpr std::size_t kMostBytes = 256 << 20;

// mpirun passes the task's variables to ranks on other nodes only if they are named.
constexpr std::array<const char*, 8> kPassedOn = {"WFLOW_TASK",     "WFLOW_ATTEMPT",   "WFLOW_EVENTS",
                                                  "WFLOW_CAMPAIGN", "WFLOW_WORKSPACE", "WFLOW_LEASE",
                                                  "WFLOW_NODES",    "WFLOW_WORLD_SIZE"};

bool knows(const MpiLaunch& launch, std::string_view type) {
  return std::find(launch.mpi_types.begin(), launch.mpi_types.end(), type) != launch.mpi_types.end();
}

std::string given_type(const MpiLaunch& launch) {
  constexpr std::string_view kOption = "--mpi=";
  for (const std::string& option : launch.options) {
    if (option.starts_with(kOption)) return option.substr(kOption.size());
  }
  return {};
}

// An MPI library that does not find its manager's interface takes each process for a world of its own, and
// says nothing.
void check_type(const MpiLaunch& launch, const std::string& type) {
  const bool pmix = type.starts_with("pmix");
  const bool wrong = (launch.library == MpiLibrary::mpich && pmix) ||
                     (launch.library == MpiLibrary::open_mpi && !pmix) ||
                     (launch.library != MpiLibrary::unknown && type == "none");
  if (!wrong) return;
  const bool mpich = launch.library == MpiLibrary::mpich;
  throw Error(
      ExitCode::usage,
      fmt::format("the step's options of srun say --mpi={0}, and the program is built with {1}: it would "
                  "run as {2} worlds of one process; leave the option out, or say --mpi={3}",
                  type, mpich ? "MPICH" : "Open MPI", launch.procs, mpich ? "pmi2" : "pmix"));
}

// Empty: the site's default.
std::string mpi_type(const MpiLaunch& launch) {
  if (launch.library == MpiLibrary::mpich) return knows(launch, "pmi2") ? "pmi2" : "";
  return knows(launch, "pmix") ? "pmix" : "";
}

void add_options(std::vector<std::string>& words, const MpiLaunch& launch) {
  words.insert(words.end(), launch.options.begin(), launch.options.end());
}

// Not --exact: Slurm gives all steps that overlap the same processors, and these would be all that a rank may
// use. The workers count the slots; binding would undo that, too. Ranks may end at different times (--wait),
// and one that fails ends the others.
std::vector<std::string> slurm_words(const MpiLaunch& launch) {
  std::vector<std::string> words = {"srun",
                                    fmt::format("--nodes={}", std::max<std::size_t>(1, launch.nodes.size())),
                                    fmt::format("--ntasks={}", launch.procs),
                                    "--overlap",
                                    "--mem=0",
                                    "--cpu-bind=none",
                                    "--export=ALL",
                                    "--kill-on-bad-exit=1",
                                    "--wait=0"};
  if (!launch.nodes.empty()) words.push_back("--nodelist=" + text::join(launch.nodes, ","));
  const std::string given = given_type(launch);
  if (given.empty() && !mpi_type(launch).empty()) words.push_back("--mpi=" + mpi_type(launch));
  if (!given.empty()) check_type(launch, given);
  add_options(words, launch);
  return words;
}

// Open MPI without Slurm's PMIx: mpirun starts its ranks through srun by itself.
bool by_srun(const MpiLaunch& launch) {
  const bool no_pmix =
      launch.library == MpiLibrary::open_mpi && !knows(launch, "pmix") && given_type(launch).empty();
  return launch.manager == "slurm" && !no_pmix;
}

std::vector<std::string> flux_words(const MpiLaunch& launch) {
  std::vector<std::string> words = {"flux", "run",
                                    fmt::format("--nodes={}", std::max<std::size_t>(1, launch.nodes.size())),
                                    fmt::format("--ntasks={}", launch.procs)};
  if (!launch.nodes.empty()) words.push_back("--requires=hosts:" + text::join(launch.nodes, ","));
  add_options(words, launch);
  return words;
}

std::vector<std::string> lsf_words(const MpiLaunch& launch) {
  const auto nodes = static_cast<int>(std::max<std::size_t>(1, launch.nodes.size()));
  std::vector<std::string> words = {"jsrun",
                                    fmt::format("--nrs={}", nodes),
                                    "--rs_per_host=1",
                                    fmt::format("--np={}", launch.procs),
                                    fmt::format("--tasks_per_rs={}", (launch.procs + nodes - 1) / nodes),
                                    "--cpu_per_rs=ALL_CPUS",
                                    "--bind=none",
                                    "--exit_on_error=1"};
  add_options(words, launch);
  return words;
}

// "n1:2,n2:2"
std::string hosts_text(const MpiLaunch& launch) {
  const auto nodes = static_cast<int>(launch.nodes.size());
  const int on_each = (launch.procs + nodes - 1) / nodes;
  std::vector<std::string> hosts;
  for (const std::string& node : launch.nodes) hosts.push_back(fmt::format("{}:{}", node, on_each));
  return text::join(hosts, ",");
}

// Debian installs MPICH's mpirun beside Open MPI's.
std::vector<std::string> mpirun_words(const MpiLaunch& launch) {
  const bool mpich = launch.library == MpiLibrary::mpich;
  const std::string name = mpich ? "mpirun.mpich" : "mpirun.openmpi";
  std::vector<std::string> words = {find_program(name).value_or("mpirun"), "-n",
                                    std::to_string(launch.procs)};
  if (mpich) {
    if (!launch.nodes.empty()) words.insert(words.end(), {"-hosts", hosts_text(launch)});
  } else {
    // Two programs on one node would be bound to the same cores; the requested processes run, if slowly.
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
    if (launch.root) words.emplace_back("--allow-run-as-root");
    if (!launch.nodes.empty()) words.insert(words.end(), {"--host", hosts_text(launch)});
    for (const char* name_of : kPassedOn) {
      if (!launch.nodes.empty()) words.insert(words.end(), {"-x", name_of});
    }
  }
  add_options(words, launch);
  return words;
}

}  // namespace

MpiLibrary mpi_library_of(const std::filesystem::path& file_of_program) {
  const std::filesystem::path program = program_behind(file_of_program);
  std::ifstream file(program, std::ios::binary);
  std::string bytes(4, '\0');
  if (!file.read(bytes.data(), 4) || bytes !=
                                         "\x7f"
                                         "ELF")
    return MpiLibrary::unknown;
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(program, error);
  if (error || size > kMostBytes) return MpiLibrary::unknown;
  bytes.resize(size);
  file.seekg(0);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) return MpiLibrary::unknown;
  const auto asks_for = [&](std::string_view name) { return bytes.find(name) != std::string::npos; };
  // Libraries that are MPICH's by their interface are called libmpi.so.12 at most sites.
  using namespace std::string_view_literals;
  if (asks_for("libmpich.so."sv) || asks_for("\0libmpi.so.12\0"sv)) return MpiLibrary::mpich;
  return asks_for("\0libmpi.so."sv) ? MpiLibrary::open_mpi : MpiLibrary::unknown;
}

std::vector<std::string> launch_words(const MpiLaunch& launch) {
  if (launch.procs <= 1 && launch.nodes.size() <= 1) return {};
  if (launch.manager == "flux") return flux_words(launch);
  if (launch.manager == "lsf" && find_program("jsrun")) return lsf_words(launch);
  return by_srun(launch) ? slurm_words(launch) : mpirun_words(launch);
}

// Slurm's PMIx plugin (22.05) takes a node's number in the step for its number in the job. Where the step's
// nodes are not the first ones, the question for another rank's address goes to a wrong node, and both ranks
// wait in MPI_Init forever. Ranks ask if a message arrives before all addresses are exchanged, in 1 to 3 of
// 100 starts. Open MPI may crash if an address comes in both ways; with the tree there is only the question.
std::vector<std::pair<std::string, std::string>> launch_variables(const MpiLaunch& launch) {
  if (launch.nodes.size() <= 1 || !by_srun(launch)) return {};
  const std::string given = given_type(launch);
  const std::string type = given.empty() ? mpi_type(launch) : given;
  if (!type.starts_with("pmix")) return {};
  std::vector<std::string> in_order;
  for (const std::string& node : launch.job_nodes) {
    if (std::find(launch.nodes.begin(), launch.nodes.end(), node) != launch.nodes.end())
      in_order.push_back(node);
  }
  if (in_order.size() != launch.nodes.size()) return {};
  return {{"SLURM_PMIX_FENCE", "tree"}, {"SLURM_JOB_NODELIST", text::join(in_order, ",")}};
}

std::vector<std::string> parse_mpi_types(std::string_view answer) {
  std::vector<std::string> types;
  for (const std::string& line : text::split(answer, '\n')) {
    std::string word = std::string(text::trim(line));
    // Older versions print "srun: pmix".
    if (word.starts_with("srun: ")) word = word.substr(6);
    if (!word.empty() && word.find(' ') == std::string::npos) types.push_back(word);
  }
  return types;
}

}  // namespace wflow::engine::batch
