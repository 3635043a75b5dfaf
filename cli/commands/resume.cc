// SPDX-License-Identifier: Apache-2.0
// wflow resume: goes on with a campaign, with the study as it was or as its file is now.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/commands/handover.h"
#include "cli/commands/run.h"
#include "cli/view/terminal.h"
#include "engine/query/client.h"
#include "engine/store/store.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

namespace fs = std::filesystem;

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
std::optional<specs::Plan> take_in(const specs::Plan& plan, const ResumeOptions& options, RunOptions& run) {
  UpdateOptions update;
  update.command = "resume --update";
  ChangedStudy study(plan, options);
  auto taken = take_over(
      plan, [&] { return study.propose(); }, options.flags, update, run);
  study.end(taken.has_value());
  return taken;
}

int preview(const specs::Plan& plan, const ResumeOptions& options) {
  if (options.update)
    print_update(propose(plan.campaign(), read_changed_study(plan.campaign(), options.study).study));
  const engine::CampaignStatus status = engine::campaign_status(plan.campaign());
  for (const engine::StepStatus& step : status.steps) {
    const std::uint64_t left = step.elements - step.ended();
    if (left > 0)
      fmt::print("{}: {} of {} left\n", step.name, text::format_count(left),
                 text::format_count(step.elements));
  }
  fmt::print("{} left to run; nothing was changed\n", tasks_text(status.elements() - status.ended()));
  return 0;
}

int resume(ResumeOptions& options) {
  const fs::path campaign = find_campaign(options.run.campaign);
  if (options.run.preview) return preview(read_plan(campaign), options);
  const specs::Plan plan = read_plan_to_run(campaign);
  if (options.accept_loss) engine::store::Store(plan.campaign(), {.vfs = {}, .accept_loss = true});
  require_schedulers(plan.study(), options.run);
  if (!options.run.silent()) fmt::print("{}: continuing {}\n", plan.study().name, plan.campaign().string());
  if (options.update) {
    const auto taken = take_in(plan, options, options.run);
    return taken ? go_on(*taken, options) : 0;
  }
  const auto taken = offer_changes(plan, options.run);
  return go_on(taken ? *taken : plan, options);
}

}  // namespace

std::optional<specs::Plan> offer_changes(const specs::Plan& plan, RunOptions& run) {
  const std::string notice = notice_of_changes(plan);
  if (notice.empty() || run.silent()) return std::nullopt;
  ResumeOptions options;
  options.flags.yes_is_usual = true;
  if (!asks_people(run.silent())) {
    fmt::print("{}\n", notice);
    return std::nullopt;
  }
  try {
    auto taken = take_in(plan, options, run);
    if (!taken) fmt::print("the campaign goes on with its own copy of the study\n");
    return taken;
  } catch (const Error& error) {
    if (error.code() != ExitCode::spec && error.code() != ExitCode::usage) throw;
    fmt::print("{}\nthe changes can't be taken in: {}\n", notice, error.what());
    return std::nullopt;
  }
}

int go_on_with(const fs::path& campaign, const RunOptions& run, bool update) {
  ResumeOptions options;
  options.run = run;
  options.run.campaign = campaign.string();
  options.update = update;
  options.flags.yes = true;
  return resume(options);
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
  command->add_flag("-n,--dry-run", options->run.preview, "say what would run, and change nothing");
  command->add_flag("--update", options->update,
                    "take in the study as its file is now: what is stale or new runs, and nothing else");
  command->add_option("--study", options->study, "with --update: this file in place of the campaign's own");
  add_update_flags(*command, options->flags);
  command->add_flag("--touch", options->flags.touch,
                    "with --update: the changes do not matter; nothing that has ended runs again");
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
