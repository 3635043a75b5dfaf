// SPDX-License-Identifier: Apache-2.0
// wflow ls, rm, snapshot, workers: campaigns as a whole.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/task_words.h"
#include "cli/commands/commands.h"
#include "cli/view/status.h"
#include "cli/view/terminal.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"
#include "engine/store/store.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kCampaignArgument =
    "its directory, or the beginning of its name (default: the newest here)";

struct ManageOptions {
  std::string campaign;
  TaskWords words;
  bool preview = false;
  std::string file;
  std::vector<std::string> keep;
  bool yes = false;
  bool json = false;
  bool csv = false;
  bool size = false;
};

int list(const ManageOptions& options) {
  const Format format = options.json ? Format::json : options.csv ? Format::csv : Format::people;
  print_campaigns(find_campaigns(current_directory()), format, options.size);
  return 0;
}

// The entries of the campaign's directory to remove: all, or all but those kept by step or name.
std::vector<fs::path> doomed(const fs::path& campaign, const std::vector<std::string>& keep) {
  std::vector<std::string> names;
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(campaign, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) throw system_error(error.value(), "cannot read the directory " + campaign.string());
  for (const std::string& name : keep) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw Error(ExitCode::usage, fmt::format("--keep: there is no '{}' in {}{}", name, campaign.string(),
                                               text::suggestion(name, names)));
    }
  }
  for (const std::string& name : names) {
    if (std::find(keep.begin(), keep.end(), name) == keep.end()) paths.push_back(campaign / name);
  }
  return paths;
}

void remove_one(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw system_error(error.value(), "cannot remove " + path.string());
}

void require_people(const std::string& what) {
  if (::isatty(STDIN_FILENO) == 0)
    throw Error(ExitCode::usage, what + "; say --yes where there is nobody to ask");
}

int remove(const ManageOptions& options) {
  const fs::path campaign = find_campaign(options.campaign);
  std::vector<std::string> keep;
  for (const std::string& item : options.keep) {
    for (const std::string& name : text::split(item, ',')) keep.push_back(name);
  }
  const std::vector<fs::path> paths = doomed(campaign, keep);
  if (options.preview) {
    for (const fs::path& path : paths)
      fmt::print("{}: {}\n", path.filename().string(), text::format_bytes(bytes_below(path)));
    fmt::print("nothing was removed\n");
    return 0;
  }
  // The lock is held until the end, so that no coordinator can begin meanwhile. Error{busy} if one lives.
  const engine::FollowupQueue alone(campaign);
  engine::store::Store held(campaign);
  const bool keeps_record = std::find(keep.begin(), keep.end(), ".wflow") != keep.end();
  std::vector<std::string> names;
  for (const fs::path& path : paths) names.push_back(path.filename().string());
  if (!options.yes) {
    require_people("wflow rm asks before it removes");
    const std::string what =
        fmt::format("remove {} ({}){}", campaign.string(), text::format_bytes(bytes_below(campaign)),
                    keep.empty() ? "" : ", but keep " + text::join(keep, ", "));
    if (!says_yes(what + "?")) {
      fmt::print("nothing removed\n");
      return 0;
    }
  }
  // Remove the record last, so that the user can repeat an interrupted command.
  for (const fs::path& path : paths) {
    if (path.filename() != ".wflow") remove_one(path);
  }
  if (!keeps_record) remove_one(campaign / ".wflow");
  if (keep.empty()) remove_one(campaign);
  if (keeps_record && !names.empty()) {
    engine::store::Batch batch;
    batch.history.push_back({unix_now_s(), "note", "wflow rm removed " + text::join(names, ", ")});
    held.commit(batch);
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"removed", keep.empty() ? nlohmann::json(campaign.string())
                                                               : nlohmann::json(names)},
                                      {"directory", campaign.string()},
                                      {"kept", keep}}
                           .dump());
  } else if (keep.empty()) {
    fmt::print("removed {}\n", campaign.string());
  } else {
    fmt::print("removed {} in {}; {} there\n", names.empty() ? "nothing" : text::join(names, ", "),
               campaign.string(), text::join(keep, ", ") + (keep.size() == 1 ? " stays" : " stay"));
  }
  return 0;
}

// The steps with raw outputs that the words name. Error{usage} for others, and for those whose readers are
// not done: they would find nothing.
std::vector<const specs::PlannedStep*> steps_to_clean(const specs::Plan& plan, engine::Client& client,
                                                      const TaskWords& words) {
  std::vector<const specs::PlannedStep*> steps;
  for (const Stretch& stretch : tasks_named(plan, words)) {
    const specs::PlannedStep& step = plan.steps()[plan.step_of(stretch.first)];
    const bool raw = step.kind == specs::StepKind::shell || step.kind == specs::StepKind::plugin;
    if (!stretch.is_whole(step))
      throw Error(ExitCode::usage, fmt::format("name whole steps, such as {}", step.name));
    if (!raw || plan.study().steps[step.study_step].output == specs::OutputMode::packed) {
      throw Error(
          ExitCode::usage,
          fmt::format("wflow clean deletes the raw outputs of steps with run:, each in a directory of its "
                      "own; {} is none (wflow rm --keep removes all but what it names)",
                      step.name));
    }
    steps.push_back(&step);
  }
  const engine::CampaignStatus status = client.status();
  for (std::size_t i = 0; i < plan.steps().size(); ++i) {
    const engine::StepStatus& reader = status.steps[i];
    const std::uint64_t open = reader.elements - reader.count(engine::ElementState::done);
    for (const specs::Edge& edge : plan.steps()[i].edges) {
      const specs::PlannedStep& read = plan.steps()[plan.step_of(edge.parent)];
      if (open == 0 || std::ranges::find(steps, &read) == steps.end()) continue;
      throw Error(ExitCode::usage, fmt::format("{} of {} tasks of {} are not done, and read what {} left",
                                               text::format_count(open), text::format_count(reader.elements),
                                               reader.name, read.name));
    }
  }
  return steps;
}

struct Folder {
  std::string step;
  fs::path path;
  std::uint64_t bytes = 0;
};

// Where the tasks of these steps worked, as far as it is there.
std::vector<Folder> folders_of(const specs::Plan& plan, const std::vector<const specs::PlannedStep*>& steps) {
  std::vector<Folder> folders;
  std::error_code none;
  for (const specs::PlannedStep* step : steps) {
    const fs::path first = plan.task_template(step->first_array).workspace;
    const fs::path path = step->arrays > 1 ? first.parent_path() : first;  // one below for each combination
    if (fs::exists(path, none)) folders.push_back({step->name, path, bytes_below(path)});
  }
  return folders;
}

void print_cleaned(const std::vector<Folder>& folders, const ManageOptions& options, bool deleted) {
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Folder& folder : folders)
      list.push_back({{"step", folder.step}, {"directory", folder.path.string()}, {"bytes", folder.bytes}});
    fmt::print("{}\n", nlohmann::json{{"deleted", deleted}, {"steps", std::move(list)}}.dump());
  } else if (deleted) {
    fmt::print("deleted; the tasks stay done, and run again where a later change needs their outputs\n");
  } else {
    fmt::print("{}\n", folders.empty() ? "nothing is left of it" : "nothing was deleted");
  }
}

// Holds the record until the end, so that no coordinator can begin meanwhile. Error{busy} if one lives.
void delete_outputs(const fs::path& campaign, const std::vector<Folder>& folders) {
  const engine::FollowupQueue alone(campaign);
  engine::store::Store held(campaign);
  std::vector<std::string> names;
  for (const Folder& folder : folders) {
    remove_one(folder.path);
    names.push_back(folder.step);
  }
  engine::store::Batch batch;
  batch.history.push_back(
      {unix_now_s(), "note", "wflow clean deleted the outputs of " + text::join(names, ", ")});
  held.commit(batch);
}

int clean(const ManageOptions& options) {
  const Meant meant = meant_by(options.words);
  if (meant.tasks.empty())
    throw Error(ExitCode::usage, "name the steps whose outputs are deleted: wflow clean STEP");
  const specs::Plan plan = options.preview ? read_plan(meant.campaign) : read_plan_to_run(meant.campaign);
  std::vector<const specs::PlannedStep*> steps;
  {
    engine::Client client(plan);  // must end here: at rest it holds the record
    steps = steps_to_clean(plan, client, meant.tasks);
  }
  const std::vector<Folder> folders = folders_of(plan, steps);
  for (const Folder& folder : folders) {
    if (!options.json)
      fmt::print("{}: {} in {}\n", folder.step, text::format_bytes(folder.bytes), folder.path.string());
  }
  bool deletes = !options.preview && !folders.empty();
  if (deletes && !options.yes) require_people("wflow clean asks before it deletes");
  deletes = deletes && (options.yes || says_yes("delete these, with what their tasks printed?"));
  if (deletes) delete_outputs(meant.campaign, folders);
  print_cleaned(folders, options, deletes);
  return 0;
}

int snapshot(const ManageOptions& options) {
  // A single word is the file.
  const fs::path campaign = find_campaign(options.file.empty() ? "" : options.campaign);
  const fs::path file = absolute_path(options.file.empty() ? options.campaign : options.file);
  engine::Client(campaign).snapshot(file);
  fmt::print("{}\n", options.json ? nlohmann::json{{"file", file.string()}}.dump() : file.string());
  return 0;
}

nlohmann::json json_of(const engine::wire::WorkerView& worker) {
  nlohmann::json json = {
      {"id", worker.id},           {"host", worker.host},       {"group", worker.group},
      {"pid", worker.pid},         {"cores", worker.cores},     {"gpus", worker.gpus},
      {"joined", worker.joined_s}, {"state", state_of(worker)}, {"failures", worker.failures}};
  if (worker.ended_s > 0) json["ended"] = worker.ended_s;
  if (!worker.reason.empty()) json["reason"] = worker.reason;
  if (!works(worker)) return json;
  json["leased"] = worker.leased;
  json["running"] = worker.running;
  return json;
}

int workers(const ManageOptions& options) {
  const auto workers = engine::Client(find_campaign(options.campaign)).workers();
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& worker : workers) list.push_back(json_of(worker));
    fmt::print("{}\n", list.dump(2));
    return 0;
  }
  Table table({"worker", "state", "cores", "running", "leased", "failures", "joined", "ended"});
  for (const auto& w : workers) {
    const bool working = w.state == engine::wire::WorkerViewState::working;
    const std::string ended =
        w.reason.empty() ? clock_time(w.ended_s) : clock_time(w.ended_s) + " " + w.reason;
    table.add({{w.id},
               {state_of(w), working ? Style::green : Style::plain},
               {std::to_string(w.cores)},
               {works(w) ? text::format_count(w.running) : ""},
               {works(w) ? text::format_count(w.leased) : ""},
               {text::format_count(w.failures)},
               {clock_time(w.joined_s)},
               {w.ended_s > 0 ? ended : ""}});
  }
  table.print_whole(standard_output());
  return 0;
}

CLI::App* add(CLI::App& app, Command& chosen, const char* name, const char* description, const char* footer,
              const std::shared_ptr<ManageOptions>& options, int (*action)(const ManageOptions&)) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(footer);
  command->callback([options, action, &chosen] { chosen = [options, action] { return action(*options); }; });
  return command;
}

}  // namespace

std::string state_of(const engine::wire::WorkerView& worker) {
  switch (worker.state) {
    case engine::wire::WorkerViewState::working:
      return "working";
    case engine::wire::WorkerViewState::draining:
      return "draining";
    case engine::wire::WorkerViewState::ended:
      return "ended";
    case engine::wire::WorkerViewState::unknown:
      break;
  }
  return "unknown";
}

bool works(const engine::wire::WorkerView& worker) {
  return worker.state == engine::wire::WorkerViewState::working ||
         worker.state == engine::wire::WorkerViewState::draining;
}

void add_manage(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ManageOptions>();
  auto* ls = add(app, chosen, "ls", "the campaigns here and two levels below",
                 "wflow status --all lists those elsewhere, too.\nExamples:\n  wflow ls\n  wflow ls --size\n "
                 " wflow ls --json",
                 options, list);
  ls->add_flag("--size", options->size, "with the bytes that each takes (reads all of it)");
  auto* json = ls->add_flag("--json", options->json, "as JSON");
  ls->add_flag("--csv", options->csv, "as comma-separated values")->excludes(json);
  auto* all = add(app, chosen, "workers", "the workers of a campaign, also those that are gone",
                  "Examples:\n  wflow workers\n  wflow workers cosmoflow --json", options, workers);
  all->add_option("campaign", options->campaign, kCampaignArgument);
  all->add_flag("--json", options->json, "as JSON");
  auto* rm = add(app, chosen, "rm", "remove a campaign's directory",
                 "Asks first; refuses while the campaign runs.\n"
                 "Examples:\n  wflow rm campaigns/cosmoflow_20261121-160001\n  wflow rm cosmoflow --keep "
                 "data,train --yes",
                 options, remove);
  rm->add_option("campaign", options->campaign, "its directory, or the beginning of its name")->required();
  rm->add_option("--keep", options->keep, "directories in it that stay: steps' names, .wflow for the record")
      ->take_all();
  rm->add_flag("-y,--yes", options->yes, "do not ask");
  rm->add_flag("--json", options->json, "as JSON");
  rm->add_flag("-n,--dry-run", options->preview, "say what would be removed, and remove nothing");
  auto* raw =
      add(app, chosen, "clean", "delete the raw outputs of steps that nothing reads any more",
          "Shows their sizes and asks first. Refuses while a step that reads them is not done, and while "
          "the campaign runs.\n"
          "Examples:\n  wflow clean simulate -n\n  wflow clean cosmoflow simulate post --yes",
          options, clean);
  add_task_words(*raw, options->words);
  raw->add_flag("-n,--dry-run", options->preview, "only the sizes");
  raw->add_flag("-y,--yes", options->yes, "do not ask");
  raw->add_flag("--json", options->json, "as JSON");
  auto* copy = add(app, chosen, "snapshot", "a consistent copy of a campaign's database, also while it runs",
                   "Examples:\n  wflow snapshot copy.db && sqlite3 copy.db 'select * from v_progress'\n"
                   "  wflow snapshot cosmoflow copy.db",
                   options, snapshot);
  copy->add_option("campaign-or-file", options->campaign,
                   "the campaign (default: the newest here), then the file")
      ->required();
  copy->add_option("file", options->file, "the copy; must not exist");
  copy->add_flag("--json", options->json, "as JSON");
}

}  // namespace wflow::cli
