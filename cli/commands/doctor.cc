// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/commands/commands.h"
#include "cli/view/terminal.h"
#include "engine/batch/batch_system.h"
#include "engine/batch/local_pool.h"

namespace wflow::cli {

namespace {

constexpr const char* kBuild = "build and install all of wflow (scripts/quickstart builds it)";

class Report {
 public:
  explicit Report(bool silent) : silent_(silent) {}
  void good(const std::string& what, const std::string& found) { line(Style::green, "ok", what, found); }
  void missing(const std::string& what, const std::string& advice) {
    line(Style::red, "missing", what, advice);
    complete_ = false;
  }
  void weak(const std::string& what, const std::string& advice) { line(Style::yellow, "note", what, advice); }
  bool complete() const { return complete_; }
  const nlohmann::json& rows() const { return rows_; }

 private:
  void line(Style style, const char* verdict, const std::string& what, const std::string& text) {
    rows_.push_back({{"verdict", verdict}, {"what", what}, {"found", text}});
    if (silent_) return;
    fmt::print("{} {:<22} {}\n", styled(terminal_, style, fmt::format("{:<8}", verdict)), what, text);
  }
  Terminal terminal_ = standard_output();
  nlohmann::json rows_ = nlohmann::json::array();
  bool silent_;
  bool complete_ = true;
};

void check_program(Report& report, const std::string& name, const std::string& advice, bool needed) {
  try {
    const std::string path = sibling_program(name);
    SpawnRequest request;
    request.argv = {path, "--version"};
    const CommandResult result = run_command(request);
    const std::string first = text::split(result.out + result.err, '\n').front();
    if (result.status == 0) {
      report.good(name, fmt::format("{} ({})", first, path));
    } else {
      report.missing(name, fmt::format("{} does not start: {}", path, first));
    }
  } catch (const Error&) {
    needed ? report.missing(name, advice) : report.weak(name, advice);
  }
}

// The distribution's libtorch multiplies matrices with the installed libblas.so.3: the reference library is
// 40 times slower than OpenBLAS.
void check_blas(Report& report) {
  std::error_code error;
  for (const char* folder : {"/etc/alternatives/libblas.so.3-x86_64-linux-gnu",
                             "/etc/alternatives/libblas.so.3-aarch64-linux-gnu"}) {
    const auto target = std::filesystem::read_symlink(folder, error);
    if (error) continue;
    const std::string path = target.string();
    const bool fast = path.find("openblas") != std::string::npos || path.find("mkl") != std::string::npos ||
                      path.find("blis") != std::string::npos;
    fast ? report.good("BLAS", path)
         : report.weak("BLAS", path + " is slow; install libopenblas0 (scripts/install-deps)");
    return;
  }
  report.weak("BLAS", "libblas.so.3 not found; training needs libopenblas0");
}

void check_manual(Report& report) {
  // The pages are beside the program, in the build folder as in an installation; man finds them through PATH.
  const auto pages = std::filesystem::path(executable_directory()).parent_path() / "share" / "man" / "man1";
  std::error_code ignored;
  if (!std::filesystem::exists(pages / "wflow.1", ignored)) {
    report.weak("manual pages",
                fmt::format("no wflow.1 in {}; build and install all of wflow (scripts/quickstart "
                            "builds it), or use wflow help",
                            pages.string()));
    return;
  }
  const bool in_path = find_program("wflow").has_value();
  report.good("manual pages", fmt::format("{}{}", pages.string(),
                                          in_path ? " (man wflow)" : " (man wflow, once wflow is in PATH)"));
}

void check_trainer(Report& report) {
  if (!kHasTrainer) {
    check_program(report, "wflow-train", "this wflow was built without its trainer (-DWFLOW_TRAINER=OFF)",
                  false);
    return;
  }
  check_program(report, "wflow-train", kBuild, true);
  check_program(report, "mpirun.openmpi", "training on several ranks needs it; install openmpi-bin", false);
  check_blas(report);
}

void check_limits(Report& report) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("{} open files a process", limit.rlim_cur);
  limit.rlim_cur >= 1024 ? report.good("limits", text)
                         : report.weak("limits", text + "; raise it with ulimit -n");
  struct statvfs disk {};
  if (::statvfs(".", &disk) == 0) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
    const std::string free = text::format_bytes(bytes) + " free here";
    bytes > (std::uint64_t{1} << 30) ? report.good("disk", free) : report.weak("disk", free);
  }
}

// Recognizes each scheduler by a command that no other one has.
void check_schedulers(Report& report) {
  struct Known {
    const char *scheduler, *command;
  };
  for (const Known known : {Known{"slurm", "sbatch"}, Known{"flux", "flux"}, Known{"pbs", "pbsnodes"},
                            Known{"lsf", "bsub"}, Known{"sge", "qconf"}}) {
    if (!find_program(known.command)) continue;
    const auto problem = engine::batch::make_batch_system(known.scheduler)->check();
    problem ? report.weak(known.scheduler, *problem)
            : report.good(known.scheduler,
                          fmt::format("answers; batch: {{type: {}}} runs on it", known.scheduler));
  }
}

int doctor(bool json) {
  Report report(json);
  if (!json)
    fmt::print("wflow {} on {}, {} usable cores\n", kVersion, host_name(), engine::batch::usable_cores());
  check_program(report, "wflow-convert", kBuild, true);
  check_program(report, "wflow-plugin-host", kBuild, true);
  check_trainer(report);
  check_program(report, "wflow-cola", "the CosmoFlow example's simulator; build it or run scripts/quickstart",
                false);
  check_program(report, "python3", "only for python shells and --pgen; install python3", false);
  check_manual(report);
  check_limits(report);
  check_schedulers(report);
  if (json) fmt::print("{}\n", report.rows().dump(2));
  if (report.complete()) return 0;
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
