// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/pools.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/commands/handover.h"
#include "engine/batch/batch_system.h"
#include "engine/coordinate/pool_specs.h"
#include "engine/query/client.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

void add_read_options(CLI::App& command, specs::ReadOptions& options) {
  command.add_option("--vars", options.variables, "NAME=value: overrides a variable of the study")
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

namespace {

// Throws if a program beside wflow that the study's tasks need is missing: before the first task needs it.
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

// Throws if a scheduler can't be used: before the campaign is created.
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

// Prints a note about an earlier campaign whose study differed. `run` creates a new campaign in any case.
void note_earlier(const specs::Study& study) {
  const auto last = last_campaign_of(study);
  if (!last) return;
  std::error_code none;
  const fs::path copy = specs::study_copy(*last);
  if (!fs::exists(copy, none) || read_file(copy) == study.text) return;
  fmt::print(
      "the study has changed since {} began; there, wflow resume --update would run only what is affected\n",
      last->string());
}

}  // namespace

int run_study(const RunOptions& options) {
  limit_of(options);
  const specs::StudyAndWarnings read = specs::read_study(options.study, options.read);
  require_programs(read.study);
  for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  const bool dry = options.dry || read.study.batch.dry_run;
  if (dry) check_dry(specs::Plan(read.study, "/"));
  if (!dry) require_schedulers(read.study, options);
  if (!options.local && !engine::wanted_schedulers(read.study).empty()) {
    const specs::Plan plan(read.study, "/");
    check_nodes(plan);
    check_room(plan);
  }
  if (!dry && !options.silent()) note_earlier(read.study);
  const specs::Plan plan = create(read);
  if (!options.silent()) {
    fmt::print("{}\n", specs::describe(read.study.format));
    fmt::print("{}: {} tasks in {}\n", plan.study().name, text::format_count(plan.element_count()),
               plan.campaign().string());
  }
  return dry ? write_scripts(plan, options.silent()) : coordinate(plan, options, false);
}

namespace {

struct ResumeOptions {
  RunOptions run;
  bool update = false;
  std::string study;
  UpdateFlags flags;
  bool accept_loss = false;
  bool trust_markers = false;
  bool ignore_markers = false;
  bool with_dependents = false;
};

// Finds done tasks without their marker, and prints a note about failed tasks.
void look_at_record(const specs::Plan& plan, ResumeOptions& options) {
  const bool merlin = plan.study().format.dialect == specs::Dialect::merlin;
  const bool trust = !options.ignore_markers && (options.trust_markers || merlin);
  engine::Client client(plan);  // must end here: its lock on the record would keep the coordinator out
  const std::uint64_t failed = client.status().failed();
  if (trust && !client.live()) options.run.run_again = {lost_markers(plan, client), options.with_dependents};
  if (options.run.silent()) return;
  std::uint64_t lost = 0;
  for (const auto& [array, range] : options.run.run_again.parts) lost += range.size();
  if (lost > 0) {
    fmt::print("{} task{} without MERLIN_FINISHED run{} again{}\n", text::format_count(lost),
               lost == 1 ? "" : "s", lost == 1 ? "s" : "",
               options.with_dependents ? ", with what depends on them"
                                       : "; --with-dependents runs what depends on them, too");
  }
  if (failed > 0) {
    fmt::print("{} task{} failed and stay{} so; to run {} again: wflow retry {}\n",
               text::format_count(failed), failed == 1 ? "" : "s", failed == 1 ? "s" : "",
               failed == 1 ? "it" : "them", plan.campaign().string());
  }
}

int go_on(const specs::Plan& plan, ResumeOptions& options) {
  look_at_record(plan, options);
  return coordinate(plan, options.run, true);
}

// The study's file as it is now, with the samples that its command generates.
class ChangedStudy {
 public:
  ChangedStudy(const specs::Plan& plan, const ResumeOptions& options) : plan_(plan), options_(options) {}

  Update propose() {
    specs::StudyAndWarnings read = read_changed_study(plan_.campaign(), options_.study);
    if (!std::exchange(said_, true)) {
      for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
    }
    require_programs(read.study);
    require_schedulers(read.study, options_.run);
    // Not possible while tasks run that read the table.
    if (!generated_ && specs::generates_samples(plan_.study(), read.study) && !is_coordinated(plan_)) {
      before_ = specs::generate_samples_anew(read.study, plan_.campaign());
      generated_.emplace(std::move(read.study));
      read = read_changed_study(plan_.campaign(), options_.study);
    }
    Update update = cli::propose(plan_.campaign(), std::move(read.study));
    update.generates = update.generates && !generated_;
    return update;
  }
  void end(bool taken) {
    std::error_code none;
    if (!generated_) return;
    if (!taken) specs::undo_generated_samples(*generated_, before_);
    if (taken && !before_.empty()) fs::remove(before_, none);
  }

 private:
  const specs::Plan& plan_;
  const ResumeOptions& options_;
  bool said_ = false;
  std::optional<specs::Study> generated_;
  fs::path before_;
};

// The plan to go on with; empty if the user declined.
std::optional<specs::Plan> take_in(const specs::Plan& plan, ResumeOptions& options) {
  UpdateOptions update;
  update.command = "resume --update";
  ChangedStudy study(plan, options);
  auto taken = take_over(
      plan, [&] { return study.propose(); }, options.flags, update, options.run);
  study.end(taken.has_value());
  return taken;
}

int resume(ResumeOptions& options) {
  const specs::Plan plan = read_plan_to_run(find_campaign(options.run.campaign));
  if (options.accept_loss) engine::store::Store(plan.campaign(), {.vfs = {}, .accept_loss = true});
  require_schedulers(plan.study(), options.run);
  if (!options.run.silent()) fmt::print("{}: continuing {}\n", plan.study().name, plan.campaign().string());
  if (options.update) {
    const auto taken = take_in(plan, options);
    return taken ? go_on(*taken, options) : 0;
  }
  if (const std::string notice = notice_of_changes(plan); !notice.empty() && !options.run.silent())
    fmt::print("{}\n", notice);
  return go_on(plan, options);
}

}  // namespace

void add_common(CLI::App& command, RunOptions& options) {
  command.add_option("-j,--slots", options.slots, "cores that tasks may use on this machine (default: all)")
      ->check(CLI::Range(1, 100000));
  command.add_option("--time-limit", options.time_limit,
                     "stop starting tasks after this time (10min, 1.5h), so that a batch job ends cleanly");
  command.add_flag("--local", options.local,
                   "run all tasks on this machine, also where the study asks for a batch scheduler");
  command.add_flag("-q,--quiet", options.quiet, "print errors only");
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
      "Examples:\n  wflow run cosmoflow.yaml\n  wflow run study.yaml --vars OUTPUT_PATH=/scratch/me N=100 -j "
      "8\n"
      "  wflow run study.yaml --time-limit 2h     # then: wflow resume");
  command->add_option("study", options->study, "the study (YAML)")->required();
  add_read_options(*command, options->read);
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

void add_resume(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ResumeOptions>();
  CLI::App* command = app.add_subcommand("resume", "go on with a campaign that was interrupted");
  command->footer(
      "Nothing that has finished runs again; training goes on from its last checkpoint. Of Merlin's files, "
      "what\n"
      "has lost its MERLIN_FINISHED runs again. Failed tasks stay failed: wflow retry runs them again.\n"
      "Of a study that has changed, wflow diff shows what --update would do.\n"
      "Examples:\n  wflow resume\n  wflow resume campaigns/cosmoflow_20261121-160001\n  wflow resume "
      "--update -m \"the mesh was wrong\"\n"
      "  rm CAMPAIGN/simulate/03/MERLIN_FINISHED; wflow resume --trust-markers --with-dependents");
  command->add_option("campaign", options->run.campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  command->add_flag("--json", options->run.json, "only the status at the end, as JSON");
  command->add_flag("--update", options->update,
                    "take in the study as its file is now: what is stale or new runs, and nothing else");
  command->add_option("--study", options->study, "with --update: this file in place of the campaign's own");
  add_update_flags(*command, options->flags);
  command->add_flag("--accept-loss", options->accept_loss,
                    "go on although the record lost commits: what they recorded runs again");
  CLI::Option* trust =
      command->add_flag("--trust-markers", options->trust_markers,
                        "tasks whose MERLIN_FINISHED was deleted run again (default: for Merlin's files)");
  command->add_flag("--no-trust-markers", options->ignore_markers, "the record alone counts")
      ->excludes(trust);
  command->add_flag("--with-dependents", options->with_dependents,
                    "and what depends on them, although it is done");
  add_common(*command, options->run);
  command->callback([options, &chosen] { chosen = [options] { return resume(*options); }; });
}

}  // namespace wflow::cli
