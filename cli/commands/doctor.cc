// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/text.h"
#include "base/trainer_mpi.h"
#include "cli/commands/commands.h"
#include "cli/view/terminal.h"
#include "engine/batch/batch_system.h"
#include "engine/batch/local_pool.h"

namespace wflow::cli {

namespace {

constexpr const char* kBuild = "build and install all of wflow (scripts/quickstart builds it)";

struct CheckLine {
  Style style = Style::plain;
  const char* verdict = "";
  std::string what, text;
  bool is_missing() const { return style == Style::red; }
};
using CheckLines = std::vector<CheckLine>;

CheckLine good(std::string what, std::string found) {
  return {Style::green, "ok", std::move(what), std::move(found)};
}
CheckLine missing(std::string what, std::string advice) {
  return {Style::red, "missing", std::move(what), std::move(advice)};
}
CheckLine weak(std::string what, std::string advice) {
  return {Style::yellow, "note", std::move(what), std::move(advice)};
}

CheckLine check_answer(const std::string& name, const std::string& path,
                       const std::string& option = "--version") {
  constexpr double kAnswer_s = 10;
  SpawnRequest request;
  request.argv = {path, option};
  const CommandResult result = run_command(request, kAnswer_s);
  if (result.timed_out) {
    return weak(name, fmt::format("{} {} has not ended within {} s: this machine is busy, or the file "
                                  "system slow",
                                  path, option, kAnswer_s));
  }
  const std::vector<std::string> lines = text::split(result.out + result.err, '\n');
  // MPICH's launcher has its version on the second line.
  const bool hydra = lines.front().starts_with("HYDRA") && lines.size() > 1;
  const std::string first = hydra ? "MPICH's Hydra " + text::split(lines[1], ' ').back() : lines.front();
  return result.status == 0 ? good(name, fmt::format("{} ({})", first, path))
                            : missing(name, fmt::format("{} {} fails: {}", path, option, first));
}

CheckLine check_program(const std::string& name, const std::string& advice, bool needed) {
  try {
    return check_answer(name, sibling_program(name));
  } catch (const Error&) {
    return needed ? missing(name, advice) : weak(name, advice);
  }
}

CheckLine check_mpirun() {
  const auto path = find_mpirun();
  return path ? check_answer("mpirun", *path)
              : weak("mpirun", kTrainsOnMpich
                                   ? "training on several ranks needs MPICH; install mpich"
                                   : "training on several ranks needs Open MPI; install openmpi-bin");
}

// wflow-train loads it when a network or a file needs it, perhaps hours after it has started.
CheckLines check_libtorch() {
  try {
    return {check_answer("libtorch", sibling_program("wflow-train"), "--check-libtorch")};
  } catch (const Error&) {
    return {};  // the line of wflow-train says it
  }
}

// An archive takes these from the machine where it can.
CheckLines parts_of_the_machine() {
  CheckLines lines = {good(
      "glibc", fmt::format("{} {}", ::gnu_get_libc_version(),
                           has_own_glibc() ? "of the archive: this machine's is older" : "of this machine"))};
  for (const bool mpich : {false, true}) {
    if (const auto library = site_mpi(mpich))
      lines.push_back(good(mpich ? "MPICH" : "Open MPI", *library + ", under its own mpirun"));
  }
  return lines;
}

// The distribution's libtorch multiplies matrices with the installed libblas.so.3: the reference library is
// 40 times slower than OpenBLAS.
CheckLine check_blas() {
  std::error_code error;
  // An archive contains OpenBLAS under this name.
  if (const auto bundled = bundled_open_mpi(executable_directory()))
    return good("BLAS", (bundled->parent_path() / "libblas.so.3").string());
  for (const char* folder : {"/etc/alternatives/libblas.so.3-x86_64-linux-gnu",
                             "/etc/alternatives/libblas.so.3-aarch64-linux-gnu"}) {
    const auto target = std::filesystem::read_symlink(folder, error);
    if (error) continue;
    const std::string path = target.string();
    const bool fast = path.find("openblas") != std::string::npos || path.find("mkl") != std::string::npos ||
                      path.find("blis") != std::string::npos;
    return fast ? good("BLAS", path)
                : weak("BLAS", path + " is slow; install libopenblas0 (scripts/install-deps)");
  }
  return weak("BLAS", "libblas.so.3 not found; training needs libopenblas0");
}

CheckLine check_manual() {
  // The pages are beside the program, in the build folder as in an installation; man finds them through PATH.
  const auto pages = std::filesystem::path(executable_directory()).parent_path() / "share" / "man" / "man1";
  std::error_code ignored;
  // Debian's packages compress them.
  if (!std::filesystem::exists(pages / "wflow.1", ignored) &&
      !std::filesystem::exists(pages / "wflow.1.gz", ignored)) {
    return weak("manual pages",
                fmt::format("no wflow.1 in {}; build and install all of wflow (scripts/quickstart "
                            "builds it), or use wflow help",
                            pages.string()));
  }
  const bool in_path = find_program("wflow").has_value();
  return good("manual pages", fmt::format("{}{}", pages.string(),
                                          in_path ? " (man wflow)" : " (man wflow, once wflow is in PATH)"));
}

CheckLines check_limits() {
  CheckLines lines;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("{} open files a process", limit.rlim_cur);
  lines.push_back(limit.rlim_cur >= 1024 ? good("limits", text)
                                         : weak("limits", text + "; raise it with ulimit -n"));
  struct statvfs disk {};
  if (::statvfs(".", &disk) == 0) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
    const std::string free = text::format_bytes(bytes) + " free here";
    lines.push_back(bytes > (std::uint64_t{1} << 30) ? good("disk", free) : weak("disk", free));
  }
  return lines;
}

// Recognizes each scheduler by a command that no other one has.
CheckLines check_scheduler(const char* scheduler, const char* command) {
  if (!find_program(command)) return {};
  const auto problem = engine::batch::make_batch_system(scheduler)->check();
  return {problem ? weak(scheduler, *problem)
                  : good(scheduler, fmt::format("answers; batch: {{type: {}}} runs on it", scheduler))};
}

using Check = std::function<CheckLines()>;

Check program(const char* name, const char* advice, bool needed) {
  return [=] { return CheckLines{check_program(name, advice, needed)}; };
}

std::vector<Check> all_checks() {
  constexpr const char* kNoHdf5 = "this wflow was built without HDF5 (-DWFLOW_HDF5=OFF)";
  std::vector<Check> checks = {program("wflow-convert", kHasConverter ? kBuild : kNoHdf5, kHasConverter),
                               program("wflow-plugin-host", kBuild, true)};
  if (kHasTrainer) {
    checks.push_back(program("wflow-train", kBuild, true));
    checks.emplace_back([] { return CheckLines{check_mpirun()}; });
    if (bundled_open_mpi(executable_directory())) checks.emplace_back(parts_of_the_machine);
    if (kHasTorch) checks.emplace_back(check_libtorch);
    if (kHasTorch) checks.emplace_back([] { return CheckLines{check_blas()}; });
  } else {
    constexpr const char* kNoTrainer = "this wflow was built without its trainer (-DWFLOW_TRAINER=OFF)";
    checks.push_back(program("wflow-train", kHasConverter ? kNoTrainer : kNoHdf5, false));
  }
  checks.push_back(
      program("wflow-cola", "the CosmoFlow example's simulator; build it or run scripts/quickstart", false));
  checks.push_back(program("python3", "only for python shells and --pgen; install python3", false));
  checks.emplace_back([] { return CheckLines{check_manual()}; });
  checks.emplace_back(check_limits);
  struct Known {
    const char *scheduler, *command;
  };
  for (const Known known : {Known{"slurm", "sbatch"}, Known{"flux", "flux"}, Known{"pbs", "pbsnodes"},
                            Known{"lsf", "bsub"}, Known{"sge", "qconf"}})
    checks.emplace_back([known] { return check_scheduler(known.scheduler, known.command); });
  return checks;
}

int doctor(bool json) {
  if (!json)
    fmt::print("wflow {} on {}, {} usable cores\n", kVersion, host_name(), engine::batch::usable_cores());
  // Side by side: each waits for a program of its own.
  std::vector<std::future<CheckLines>> answers;
  for (Check& check : all_checks()) answers.push_back(std::async(std::launch::async, std::move(check)));
  nlohmann::json list = nlohmann::json::array();
  bool complete = true;
  for (std::future<CheckLines>& answer : answers) {
    for (const CheckLine& row : answer.get()) {
      list.push_back({{"verdict", row.verdict}, {"what", row.what}, {"found", row.text}});
      complete = complete && !row.is_missing();
      if (!json)
        fmt::print("{} {:<22} {}\n", styled(standard_output(), row.style, fmt::format("{:<8}", row.verdict)),
                   row.what, row.text);
    }
  }
  if (json) fmt::print("{}\n", list.dump(2));
  if (complete) return 0;
  if (!json)
    fmt::print(
        "\nsomething is missing; scripts/install-deps and scripts/quickstart in wflow's source tree set it "
        "up\n");
  return static_cast<int>(ExitCode::system);
}

}  // namespace

void add_doctor(CLI::App& app, Command& chosen) {
  CLI::App* command =
      app.add_subcommand("doctor", "check this machine, or a campaign, and say what is wrong");
  command->footer(
      "Without a campaign: what is missing on this machine. With one, which nobody may run meanwhile: its "
      "database,\n"
      "journals, files left behind, markers. What can be mended is named first, and done after a yes.\n"
      "Examples:\n  wflow doctor\n  wflow doctor cosmoflow_20261121-160001\n  wflow doctor --yes .");
  const auto options = std::make_shared<DoctorOptions>();
  command->add_option("campaign", options->campaign, "its directory, or the beginning of its name");
  command->add_flag("-y,--yes", options->yes, "mend without asking");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] {
    chosen = [options] {
      if (!options->campaign.empty()) return examine_campaign(*options);
      if (options->yes) throw Error(ExitCode::usage, "wflow doctor: --yes needs a campaign to mend");
      return doctor(options->json);
    };
  });
}

}  // namespace wflow::cli
