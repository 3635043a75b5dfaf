// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/commands/handover.h"
#include "cli/view/terminal.h"
#include "engine/batch/batch_system.h"
#include "engine/coordinate/coordinator.h"
#include "engine/query/client.h"
#include "engine/query/selection.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"
#include "specs/plan/plan.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

void add_read_options(CLI::App& command, specs::ReadOptions& options) {
  command.add_option("--vars,--set", options.variables, "NAME=value: overrides a variable of the study")
      ->take_all();
  command.add_option("--samplesfile", options.samples_file,
                     "use this table of samples instead of the study's");
  command.add_option("--pgen", options.generator,
                     "a Python file whose get_custom_generator(env, **kwargs) makes the parameters");
  command.add_option("--pargs", options.generator_arguments, "KEY:VALUE: an argument of it; may be repeated")
      ->take_all();
  command.add_flag("--strict", options.strict, "unknown keys are errors in Merlin's files too");
  const auto add = [&](const char* name, std::optional<specs::Dialect>& dialect, const char* description) {
    return command
        .add_option_function<std::string>(
            name, [&dialect](const std::string& text) { dialect = specs::dialect_named(text); }, description)
        ->check(CLI::IsMember({"wflow", "merlin", "maestro"}));
  };
  add("--dialect", options.dialect,
      "whose format the study is in (default: the file tells; wflow validate says it)")
      ->type_name("NAME");
  add("--as", options.command, "")->group("");  // the commands merlin and maestro use it
}

namespace fs = std::filesystem;

namespace {

// The directory's name contains the time in seconds: a second campaign in the same second takes the next free
// name. The directory is created here, before it is filled, so that two runs at once can't both take it.
fs::path make_campaign_directory(const specs::Study& study, std::string* timestamp) {
  for (std::time_t now = std::time(nullptr);; ++now) {
    *timestamp = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(now));
    const fs::path directory = specs::campaign_directory(study, *timestamp);
    make_directories(directory.parent_path());
    std::error_code error;
    if (fs::create_directory(directory, error)) {
      // Ignores the umask: wflow itself refuses a campaign that others can change.
      fs::permissions(directory, fs::perms::others_write, fs::perm_options::remove, error);
      return directory;
    }
    if (error) throw system_error(error.value(), "cannot make " + directory.string());
  }
}

}  // namespace

specs::Plan create(const specs::StudyAndWarnings& read) {
  specs::ReadOptions options = read.study.options;
  const fs::path directory = make_campaign_directory(read.study, &options.timestamp);
  try {
    specs::Plan plan =
        specs::create_campaign(specs::Plan(specs::read_study(read.study.file, options).study, directory));
    engine::wire::create_keys(plan.campaign());
    engine::store::Store::create(plan.campaign(), plan);
    return plan;
  } catch (const Error& error) {
    // Keep the log of a command that generates samples: its error refers to it.
    std::error_code ignored;
    if (error.code() != ExitCode::data) fs::remove_all(directory, ignored);
    throw;
  }
}

void require_programs(const specs::Study& study) {
  for (const specs::Step& step : study.steps) {
    const bool looks = std::any_of(step.outputs.begin(), step.outputs.end(), [](const auto& output) {
      return !output.dataset.empty() || !output.shape.empty() || output.finite;
    });
    if (step.kind == specs::StepKind::convert || looks) sibling_program("wflow-convert");
    if (step.kind == specs::StepKind::train) sibling_program("wflow-train");
    if (step.kind == specs::StepKind::plugin) sibling_program("wflow-plugin-host");
  }
}

void require_schedulers(const specs::Study& study, const RunOptions& options) {
  if (options.local) return;
  for (const std::string& name : engine::wanted_schedulers(study)) {
    const auto scheduler = engine::batch::make_batch_system(name);
    const auto why =
        scheduler ? scheduler->check() : std::optional<std::string>("wflow has no adapter for it");
    if (!why) continue;
    throw Error(ExitCode::usage,
                fmt::format("the study asks for the scheduler '{}', which can't be used here: {}; start "
                            "it where {} is, or run it on this machine with --local",
                            name, *why, name));
  }
}

std::string study_here() {
  std::vector<std::string> studies;
  std::error_code error;
  for (fs::directory_iterator at(current_directory(), error), end; !error && at != end; at.increment(error)) {
    const std::string extension = at->path().extension().string();
    if (extension != ".yaml" && extension != ".yml") continue;
    yaml::Diagnostics ignored("");
    const yaml::Node root = yaml::parse(read_file(at->path()), ignored);
    if (root.is_map() && root.find("study") != nullptr) studies.push_back(at->path().filename().string());
  }
  std::ranges::sort(studies);
  if (studies.size() == 1) return studies.front();
  throw Error(
      ExitCode::usage,
      studies.empty()
          ? std::string("no study (*.yaml with study:) in this directory; name one, or write "
                        "a template with: wflow init")
          : fmt::format("name one of the {} studies here: {}", studies.size(), text::join(studies, ", ")));
}

namespace {

// The campaign of the study where another run of the study would be a mistake more often than not: it is not
// finished, or the study has changed since so that some of it runs again.
struct Earlier {
  fs::path campaign;
  bool changed = false;
  std::uint64_t to_run = 0;  // tasks, with the changes
  std::uint64_t failed = 0;
};

// Options that make the study another one, and the commands merlin and maestro, ask for a new campaign.
bool asks_for_another(const RunOptions& options) {
  const specs::ReadOptions& read = options.read;
  return options.fresh || options.dry || read.command || !read.variables.empty() ||
         !read.samples_file.empty() || !read.generator.empty();
}

// A comparison of two plans takes long where they have millions of tasks, and is not made without a cause.
bool may_have_changed(const specs::Plan& plan) {
  const auto& samples = plan.study().samples;
  return !notice_of_changes(plan).empty() || (samples && !specs::sample_files(samples->design).empty());
}

std::optional<Earlier> earlier_campaign(const specs::Study& study, bool silent) {
  const auto last = study.iterate ? std::nullopt : last_campaign_of(study);
  if (!last) return std::nullopt;
  specs::require_trusted(*last);
  try {
    const specs::Plan plan = read_plan(*last);
    if (is_coordinated(plan)) return std::nullopt;
    Earlier earlier{*last, false, 0, 0};
    const engine::CampaignStatus status = engine::campaign_status(*last);
    if (status.ended() == 0) return std::nullopt;  // there is nothing to go on with
    if (may_have_changed(plan)) {
      const Update update = propose(*last, read_changed_study(*last, {}).study);
      earlier.changed = update.generates || !update.keys.empty() || !update.changes.same_tasks();
      earlier.to_run = tasks_to_run(update.changes);
    }
    earlier.to_run += status.elements() - status.ended();
    earlier.failed = status.failed();
    if (earlier.to_run + earlier.failed > 0 || earlier.changed) return earlier;
  } catch (const Error& error) {
    if (!silent)
      fmt::print(stderr, "wflow: a new campaign begins, because the last one can't be looked at: {}\n",
                 error.what());
  }
  return std::nullopt;
}

enum class Course { begin, go_on, nothing };

Course course_of(const Earlier& earlier, const RunOptions& options, const specs::Study& study) {
  const std::string name = earlier.campaign.filename().string();
  const std::string state =
      earlier.changed ? fmt::format("{} has changed since the campaign {} began", options.study, name)
                      : fmt::format("the campaign {} of {} is not finished", name, options.study);
  if (earlier.to_run == 0 && (!earlier.changed || earlier.failed == 0)) {
    const std::string note =
        earlier.changed
            ? state + "; there, wflow resume --update takes it in, and nothing runs again"
            : fmt::format("a new campaign: in the last one {} failed; wflow retry {} runs {} again",
                          tasks_text(earlier.failed), text::shell_quote(earlier.campaign.string()),
                          earlier.failed == 1 ? "it" : "them");
    if (!options.silent()) fmt::print("{}\n", note);
    return Course::begin;
  }
  const std::string verb = earlier.changed ? "update" : "resume";
  std::string left = fmt::format("{} to run", tasks_text(earlier.to_run));
  if (earlier.failed > 0) left += fmt::format(", {} failed", text::format_count(earlier.failed));
  const std::uint64_t new_tasks = specs::Plan(study, "/").element_count();
  if (!asks_people(options.silent())) {
    throw Error(
        ExitCode::usage,
        fmt::format("{}; go on with it ({}): wflow resume {}{}; or begin anew ({}): wflow run --new {}",
                    state, left, earlier.changed ? "--update " : "",
                    text::shell_quote(earlier.campaign.string()), tasks_text(new_tasks),
                    text::shell_quote(options.study)));
  }
  fmt::print("{}\n", state);
  const std::string answer = ask(fmt::format("[{}]{} {} ({}) / [n]ew campaign ({}) / [q]uit: ", verb.front(),
                                             verb.substr(1), name, left, tasks_text(new_tasks)));
  if (!answer.empty() && verb.starts_with(answer)) return Course::go_on;
  if (!answer.empty() && std::string_view("new").starts_with(answer)) return Course::begin;
  fmt::print("nothing was changed\n");
  return Course::nothing;
}

int preview(const specs::Study& study, const RunOptions& options) {
  const specs::Plan plan(study, specs::campaign_directory(study, specs::kNoTimestamp));
  if (!options.silent()) fmt::print("{}", specs::describe(plan));
  if (options.json) {
    fmt::print("{}\n",
               specs::plan_to_json(plan).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("\n{} would run; nothing was made\n", tasks_text(plan.element_count()));
  }
  return 0;
}

// Merlin's status files belong to Merlin's studies.
void note_unused_status(const specs::Study& study) {
  if (!study.options.leaf_status || study.format.dialect == specs::Dialect::merlin) return;
  fmt::print(stderr,
             "--merlin-status has no effect: this file was {}, and wflow writes MERLIN_STATUS.json for "
             "Merlin's files only\n",
             specs::describe(study.format));
}

}  // namespace

int run_study(RunOptions options) {
  limit_of(options);
  if (options.study.empty()) options.study = study_here();
  const specs::StudyAndWarnings read = specs::read_study(options.study, options.read);
  if (options.preview) {
    for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
    return preview(read.study, options);
  }
  if (options.update || !asks_for_another(options)) {
    const auto earlier = earlier_campaign(read.study, options.silent());
    if (options.update && !earlier)
      throw Error(ExitCode::usage,
                  fmt::format("there is nothing to update: {} has no campaign with results that differs",
                              options.study));
    const Course course = !earlier         ? Course::begin
                          : options.update ? Course::go_on
                                           : course_of(*earlier, options, read.study);
    if (course == Course::nothing) return 0;
    if (course == Course::go_on) return go_on_with(earlier->campaign, options, earlier->changed);
  }
  require_programs(read.study);
  for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  note_unused_status(read.study);
  const bool dry = options.dry || read.study.batch.dry_run;
  if (dry) check_dry(specs::Plan(read.study, "/"));
  if (!dry) require_schedulers(read.study, options);
  if (!options.local && !engine::wanted_schedulers(read.study).empty()) {
    const specs::Plan plan(read.study, "/");
    check_nodes(plan);
    check_room(plan);
  }
  if (!options.until.empty()) engine::arrays_of_step(specs::Plan(read.study, "/"), options.until);  // a step
  const specs::Plan plan = create(read);
  if (!options.silent()) {
    fmt::print("{}: {} in {}\n", plan.study().name, tasks_text(plan.element_count()),
               plan.campaign().string());
  }
  return dry ? write_scripts(plan, options.silent()) : coordinate(plan, options, false);
}

void add_common(CLI::App& command, RunOptions& options) {
  command
      .add_option("-j,--slots,--jobs,--cores", options.slots,
                  "cores that tasks may use on this machine (default: all)")
      ->check(CLI::Range(1, 100000));
  command.add_option("--time-limit", options.time_limit,
                     "stop starting tasks after this time (10min, 1.5h), so that a batch job ends cleanly");
  command.add_flag("--local", options.local,
                   "run all tasks on this machine, also where the study asks for a batch scheduler");
  command.add_flag("-q,--quiet", options.quiet, "print errors only");
  command
      .add_option("--until", options.until,
                  "run only this step and what it needs; wflow resume runs the rest")
      ->type_name("STEP");
  command.add_flag("--keep-going", options.keep_going,
                   "exit code 102 of a task ends only what depends on it, not the campaign");
  command.add_flag("--soft-fail-ok", options.soft_fail_ok,
                   "exit code 0 although tasks failed, unless with exit code 102; as merlin run");
  command.add_flag(
      "--listen", options.listen,
      "take workers and questions from other hosts, too; a campaign of one machine opens no port");
  command.add_flag("--detach", options.detach, "go on in the background; wflow attach shows it");
  // For tests that interrupt connections and can't wait for a minute each time.
  command
      .add_option("--fence", options.fence_s,
                  "seconds of silence after which a worker of another host ends its tasks")
      ->check(CLI::Range(1.0, 3600.0))
      ->group("");
}

void add_run(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "run a study");
  command->footer(
      "If the last campaign of this study is not finished, or the study has changed since, wflow asks on a\n"
      "terminal, and ends with exit code 2 elsewhere: --update goes on with it, --new begins another.\n"
      "Examples:\n  wflow run\n  wflow run cosmoflow.yaml -n\n  wflow run study.yaml --vars "
      "OUTPUT_PATH=/scratch/me N=100 -j "
      "8\n"
      "  wflow run study.yaml --time-limit 2h     # then: wflow resume");
  command->add_option("study", options->study, "the study (YAML; default: the only one in this directory)");
  add_read_options(*command, options->read);
  auto* update =
      command->add_flag("--update", options->update,
                        "take the changed study into its last campaign; as wflow resume --update -y");
  command->add_flag("--new", options->fresh, "begin a new campaign, also where the last one could go on")
      ->excludes(update);
  command->add_flag("-n,--dry-run", options->preview, "show the steps and tasks, and make nothing");
  command->add_flag("--dry", options->dry,
                    "make the campaign with all directories and scripts, and run nothing");
  command
      ->add_option_function<std::string>(
          "--merlin-status",
          [options](const std::string& where) { options->read.leaf_status = where == "leaf"; },
          "where MERLIN_STATUS.json of Merlin's files is: step, or leaf (with status.lock, as merlin run "
          "--local)")
      ->check(CLI::IsMember({"step", "leaf"}))
      ->type_name("NAME");
  command->add_flag("--no-errors")->group("");  // Merlin's option: the report never leaves errors out
  command->add_flag("--json", options->json, "only the status at the end, as JSON");
  add_common(*command, *options);
  command->callback([options, &chosen] {
    chosen = [options] {
      options->read.local = options->local;
      return run_study(*options);
    };
  });
}

}  // namespace wflow::cli
