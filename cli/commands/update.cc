// SPDX-License-Identifier: Apache-2.0
// wflow diff, history, redo: the effects of a changed study, the versions of a campaign's study, repeated
// tasks.
#include "cli/commands/handover.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/view/terminal.h"
#include "engine/coordinate/journals.h"
#include "engine/query/client.h"
#include "engine/query/selection.h"
#include "engine/store/store.h"
#include "specs/plan/versions.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

nlohmann::ordered_json to_json(const engine::Changes& changes) {
  constexpr const char* kKinds[] = {"changed", "follows", "grown", "added", "removed", "applies"};
  nlohmann::ordered_json steps = nlohmann::json::array();
  for (const engine::StepChange& step : changes.steps) {
    steps.push_back({{"step", step.step},
                     {"kind", kKinds[static_cast<std::size_t>(step.kind)]},
                     {"changed", step.parts},
                     {"elements", step.elements},
                     {"stale", step.stale},
                     {"more", step.more},
                     {"gone", step.gone},
                     {"deletes_inputs", step.deletes}});
  }
  return steps;
}

// Warns that the user's file lacks samples of the campaign: wflow extend does not change that file.
void warn_of_lost_growth(const Update& update) {
  const auto& was = update.from.study();
  const auto& is = update.to.study();
  if (was.options.grown.empty() || !was.samples) return;
  const std::uint64_t count = is.samples ? is.samples->design.count : 0;
  if (count >= was.samples->design.count) return;
  fmt::print(
      "the campaign has grown since ({} samples), and {} has not; to keep them, write its samples: block as "
      "in: "
      "wflow history {} --show {}\n",
      text::format_count(was.samples->design.count), is.file.string(), update.from.campaign().string(),
      recorded_version(update.from.campaign()));
}

// ---- diff

struct DiffOptions {
  std::string campaign, study;
  bool json = false;
};

int diff(const DiffOptions& options) {
  const fs::path campaign = find_campaign(options.campaign);
  specs::StudyAndWarnings read = read_changed_study(campaign, options.study);
  const Update update = propose(campaign, std::move(read.study));
  if (!options.json) {
    print_update(update);
    return 0;
  }
  nlohmann::ordered_json keys = nlohmann::json::array();
  for (const specs::KeyChange& key : update.keys) {
    nlohmann::ordered_json entry = {{"key", key.key}, {"before", nullptr}, {"after", nullptr}};
    if (key.before) entry["before"] = *key.before;
    if (key.after) entry["after"] = *key.after;
    keys.push_back(std::move(entry));
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"campaign", campaign.string()},
                                            {"version", recorded_version(campaign)},
                                            {"keys", keys},
                                            {"generates_samples", update.generates},
                                            {"steps", to_json(update.changes)},
                                            {"to_run", tasks_to_run(update.changes)},
                                            {"replaces", json_of_replaced(update)}}
                         .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

// ---- history

struct HistoryOptions {
  std::string campaign;
  std::uint64_t version = 0;
  bool json = false;
};

std::string time_text(double time_s) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<std::time_t>(time_s)));
}

int history(const HistoryOptions& options) {
  const fs::path campaign = find_campaign(options.campaign);
  if (options.version > 0) {
    if (!specs::has_version(campaign, options.version))
      throw Error(ExitCode::usage,
                  fmt::format("{} has no version {} of its study; it has {}", campaign.string(),
                              options.version, recorded_version(campaign)));
    fmt::print("{}", specs::read_version(campaign, options.version).text);
    return 0;
  }
  const std::vector<specs::VersionInfo> all = specs::versions(campaign, recorded_version(campaign));
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::json::array();
    for (const specs::VersionInfo& one : all) {
      list.push_back({{"version", one.number},
                      {"time", one.time_s},
                      {"user", one.user},
                      {"host", one.host},
                      {"command", one.command},
                      {"why", one.why},
                      {"changes", one.changes},
                      {"study", (specs::version_directory(campaign, one.number) / "study.yaml").string()}});
    }
    fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  for (const specs::VersionInfo& one : all) {
    fmt::print("version {}  {}  {}@{}  wflow {}{}\n", one.number, time_text(one.time_s), one.user, one.host,
               one.command, one.why.empty() ? "" : "  \"" + one.why + "\"");
    for (const std::string& line : one.changes) fmt::print("  {}\n", line);
  }
  return 0;
}

// ---- redo

struct RedoOptions {
  SelectionOptions tasks;
  RunOptions run;
  UpdateFlags flags;
};

engine::ArrayParts parts_of(const specs::Plan& plan, const RedoOptions& options) {
  engine::Client client(plan);
  return done_tasks(plan, client, options.tasks);
}

int redo(RedoOptions& options) {
  if (options.tasks.failed)
    throw Error(ExitCode::usage, "redo runs tasks again that are done; for failed ones: wflow retry");
  specs::Plan plan = read_plan_to_run(open_selection(options.tasks));
  const bool live = is_coordinated(plan);
  if (!live && !options.run.preview) settle(plan, options.run);
  Redo redo = propose_redo(plan, parts_of(plan, options));
  if (redo.count == 0) {
    if (!options.run.silent())
      fmt::print("nothing to run again: none of these tasks is done (wflow retry runs failed ones)\n");
    if (options.run.json) fmt::print("{}\n", nlohmann::json{{"count", 0}}.dump());
    return 0;
  }
  if (!options.run.silent()) {
    for (const engine::StepChange& step : redo.changes.steps)
      fmt::print("{}: {} of {}\n", step.step, text::format_count(step.stale),
                 text::format_count(step.elements));
    for (const std::string& line : lines_of_replaced(plan, redo, options.flags.keep_old))
      fmt::print("{}\n", line);
  }
  if (options.run.preview || !may_go_on(options.flags, options.run, live, "run these again?")) {
    fmt::print("nothing was changed\n");
    return 0;
  }
  if (live) {
    plan = take_turn(plan, options.run);
    redo = propose_redo(plan, parts_of(plan, options));
  }
  UpdateOptions update;
  update.keep_old = options.flags.keep_old;
  update.why = options.flags.why;
  update.command = "redo";
  const fs::path old = take(plan, redo, update);
  std::error_code none;
  if (!options.run.silent() && fs::exists(old, none))
    fmt::print("replaced outputs are in {}\n", old.string());
  return coordinate(plan, options.run, true);
}

}  // namespace

std::uint64_t tasks_to_run(const engine::Changes& changes) {
  std::uint64_t count = 0;
  for (const engine::StepChange& step : changes.steps) count += step.stale + step.more + step.deletes;
  return count;
}

void print_update(const Update& update, bool keep_old) {
  for (const specs::KeyChange& key : update.keys) {
    for (const std::string& line : specs::lines_of(key)) fmt::print("{}\n", line);
  }
  const std::vector<std::string> lines = engine::lines_of(update.changes, keep_old);
  if (!update.keys.empty() && !lines.empty()) fmt::print("\n");
  for (const std::string& line : lines) fmt::print("{}\n", line);
  for (const std::string& line : lines_of_replaced(update, keep_old)) fmt::print("{}\n", line);
  if (update.generates) {
    fmt::print(
        "samples: not generated yet; wflow resume --update runs the command that has changed, and rows that "
        "come out equal keep their results\n");
  }
  warn_of_lost_growth(update);
  const std::uint64_t count = tasks_to_run(update.changes);
  if (update.generates && count == 0) return;
  if (update.keys.empty() && lines.empty()) {
    fmt::print("nothing differs from the campaign's copy of the study\n");
  } else if (count == 0) {
    fmt::print("no task needs to run again\n");
  } else {
    fmt::print("{} to run\n", tasks_text(count));
  }
}

void add_update_flags(CLI::App& command, UpdateFlags& flags) {
  command.add_flag("-y,--yes", flags.yes, "do it without asking");
  command.add_flag("--keep-old", flags.keep_old, "keep the outputs that are replaced, in .wflow/old");
  command.add_option("-m,--message", flags.why, "why, for wflow history");
}

void settle(const specs::Plan& plan, const RunOptions& run) {
  const auto left = [&] {
    engine::store::Store store(plan.campaign());
    return !engine::known_workers(plan.campaign(), store.restore().workers, store).empty();
  };
  if (is_coordinated(plan)) {
    throw Error(ExitCode::busy,
                fmt::format("another coordinator has begun to run {}; ask again", plan.campaign().string()));
  }
  if (!left()) return;
  if (command_between_allocations(plan, engine::wire::StopRequest{})) return;
  RunOptions options = run;
  options.quiet = true;
  options.json = false;
  options.detach = false;
  options.first = engine::wire::StopRequest{};
  run_here(plan, options, true);
}

bool may_go_on(const UpdateFlags& flags, const RunOptions& run, bool live, const std::string& question) {
  if (flags.yes || !asks_people(run.json)) return true;
  return says_yes(
      live ? "the campaign runs: its coordinator is drained first, then it goes on here; " + question
           : question,
      flags.yes_is_usual);
}

specs::Plan take_turn(const specs::Plan& plan, RunOptions& run) {
  const fs::path& campaign = plan.campaign();
  drain_and_wait(campaign, run.silent());
  take_start(campaign, run);
  specs::Plan now = read_plan_to_run(campaign);
  settle(now, run);
  return now;
}

std::optional<specs::Plan> take_over(const specs::Plan& plan, const std::function<Update()>& propose,
                                     const UpdateFlags& flags, UpdateOptions options, RunOptions& run) {
  const bool live = is_coordinated(plan);
  if (!live) settle(plan, run);
  const auto proposed = [&] {
    Update update = propose();
    if (flags.touch) update.changes = engine::touched(update.from, std::move(update.changes));
    return update;
  };
  Update update = proposed();
  if (!run.silent()) print_update(update, options.keep_old || flags.keep_old);
  const bool applies = flags.touch && !update.changes.steps.empty();
  if (update.keys.empty() && update.changes.same_tasks() && !applies) return std::move(update.from);
  if (!may_go_on(flags, run, live, "take this into the campaign?")) {
    fmt::print("nothing was changed\n");
    return std::nullopt;
  }
  if (live) {
    take_turn(plan, run);
    update = proposed();
  }
  options.keep_old = options.keep_old || flags.keep_old;
  options.why = flags.why;
  const fs::path& campaign = update.from.campaign();
  const fs::path old = take(update, options);
  std::error_code none;
  if (!run.silent() && fs::exists(old, none)) fmt::print("replaced outputs are in {}\n", old.string());
  return read_plan(campaign);
}

void add_update(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* command =
      app.add_subcommand("diff", "what changed in a study since its campaign began, and what follows");
  command->footer(
      "Key by key, then as a plan: which tasks are stale and would run again, which are only added. Nothing "
      "is "
      "changed;\n"
      "wflow resume --update does it. Retries, time-outs, resources, workers, batch: and priorities apply "
      "without "
      "any rerun.\n"
      "Examples:\n  wflow diff\n  wflow diff cosmoflow mended.yaml");
  command->add_option("campaign", options->campaign, kCampaign);
  command->add_option("study", options->study,
                      "the changed study (default: the file that the campaign was made of)");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return diff(*options); }; });

  const auto past = std::make_shared<HistoryOptions>();
  command =
      app.add_subcommand("history", "the versions of a campaign's study: who took them in, when and why");
  command->footer("Examples:\n  wflow history\n  wflow history cosmoflow --show 1 > first.yaml");
  command->add_option("campaign", past->campaign, kCampaign);
  command->add_option("--show", past->version, "print the study of this version")->check(CLI::PositiveNumber);
  command->add_flag("--json", past->json, "as JSON");
  command->callback([past, &chosen] { chosen = [past] { return history(*past); }; });
}

void add_redo(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<RedoOptions>();
  CLI::App* command = app.add_subcommand("redo", "run tasks that are done again, with everything below them");
  command->footer(
      "Blocks, manifests and trainings that read them follow, and nothing else. Their outputs are replaced; "
      "a "
      "data set\n"
      "or model stays in .wflow/old until the new one is done (--keep-old: all outputs, for good); trainings "
      "begin "
      "anew. For failed tasks: wflow retry.\n"
      "Examples:\n  wflow redo simulate/12\n  wflow redo simulate/100-199,250 -m \"new compiler\"\n  wflow "
      "redo "
      "train\n"
      "  wflow redo --step simulate --where \"omega_m > 0.45\"");
  add_chosen(*command, options->tasks);
  command->add_flag("-n,--dry-run", options->run.preview, "say what would run again, and change nothing");
  add_update_flags(*command, options->flags);
  command->add_flag("--json", options->run.json, "only the status at the end, as JSON");
  add_common(*command, options->run);
  command->callback([options, &chosen] { chosen = [options] { return redo(*options); }; });
}

}  // namespace wflow::cli
