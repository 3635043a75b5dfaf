// SPDX-License-Identifier: Apache-2.0
// merlin status, detailed-status, queue-info and query-workers: Merlin's views of a study, read from the
// campaign's record.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/fronts.h"
#include "cli/view/status.h"
#include "cli/view/terminal.h"
#include "engine/query/client.h"
#include "engine/schedule/graph.h"
#include "specs/plan/plan.h"
#include "specs/study/tokens.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;
using engine::wire::WorkerView;
using Names = std::vector<std::string>;

struct ViewOptions {
  std::string target;  // a study, or a campaign's directory
  std::string spec;    // --spec
  std::string dump;
  Names steps, queues, workers, states, codes, variables;
  std::string limit, layout;
  std::string ignored;
  const std::string& named() const { return spec.empty() ? target : spec; }
};

// The filters of `wflow tasks --where` for the words of Merlin; empty for a word that stands for nothing
// here.
struct Filter {
  std::string_view word, where;
};
constexpr std::array<Filter, 7> kStates = {{
    {"INITIALIZED", "state = blocked or state = ready or state = delayed"},
    {"RUNNING", "state = running"},
    {"FINISHED", "state = done"},
    {"FAILED", "state = hard_failed or (state = failed and exit_code != 106)"},
    {"CANCELLED", "state = cancelled"},
    {"DRY_RUN", ""},
    {"UNKNOWN", "state = failed and exit_code = 106"},
}};
constexpr std::array<Filter, 8> kCodes = {{
    {"SUCCESS", "state = done"},
    {"SOFT_FAIL", "state = failed and exit_code != 106"},
    {"HARD_FAIL", "state = hard_failed"},
    {"RESTART", "state = delayed and exit_code = 100"},
    {"RETRY", "state = delayed and exit_code = 104"},
    {"STOP_WORKERS", ""},
    {"DRY_SUCCESS", ""},
    {"UNRECOGNIZED", "state = failed and exit_code = 106"},
}};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ExitCode::usage, sentence);
}

bool is_all(const Names& names) {
  return names.empty() || std::ranges::find(names, "all") != names.end();
}

// "(state = done) or (...)"; empty without words.
std::string where_of(const Names& words, std::span<const Filter> filters, const char* option) {
  Names parts;
  for (const std::string& word : words) {
    const auto found = std::ranges::find(filters, specs::upper(word), &Filter::word);
    if (found == filters.end()) {
      Names known;
      for (const Filter& filter : filters) known.emplace_back(filter.word);
      refuse(fmt::format("merlin detailed-status {}: '{}' is none of {}", option, word,
                         text::join(known, ", ")));
    }
    if (found->where.empty())
      refuse(
          fmt::format("merlin detailed-status {} {}: wflow has no such record; a task that stopped the "
                      "workers counts as done, and a dry run runs no task",
                      option, word));
    parts.push_back(fmt::format("({})", found->where));
  }
  return text::join(parts, " or ");
}

// A campaign's steps by Merlin's words.
class Study {
 public:
  explicit Study(const specs::Plan& plan) : plan_(plan), groups_(plan.study()) {}

  // The planned steps that --steps and --queues (with or without Merlin's tag) name. Error{usage} for a name
  // that the study does not have.
  std::vector<const specs::PlannedStep*> chosen(const Names& steps, const Names& queues) const {
    for (const std::string& name : is_all(steps) ? Names() : steps) require(name, names(), "step");
    for (const std::string& name : queues) require(tagged(name), all_queues(), "task_queue");
    std::vector<const specs::PlannedStep*> found;
    for (const specs::PlannedStep& step : plan_.steps()) {
      const bool named = is_all(steps) || std::ranges::find(steps, step.name) != steps.end();
      const auto serves = [&](const std::string& name) { return tagged(name) == queue(step); };
      if (named && (queues.empty() || std::ranges::any_of(queues, serves))) found.push_back(&step);
    }
    return found;
  }

  std::string queue(const specs::PlannedStep& step) const {
    return tagged(plan_.study().steps[step.study_step].task_queue);
  }

  bool serves(const WorkerView& worker, const specs::PlannedStep& step) const {
    return std::ranges::any_of(groups_.serving(step.study_step),
                               [&](const engine::Group* group) { return group->name == worker.group; });
  }

 private:
  static std::string tagged(const std::string& queue) {
    return queue.starts_with(kTag) ? queue : std::string(kTag) + queue;
  }

  Names names() const {
    Names all;
    for (const specs::PlannedStep& step : plan_.steps()) all.push_back(step.name);
    return all;
  }

  Names all_queues() const {
    Names all;
    for (const specs::PlannedStep& step : plan_.steps()) all.push_back(queue(step));
    return all;
  }

  void require(const std::string& name, const Names& known, const char* what) const {
    if (std::ranges::find(known, name) != known.end()) return;
    refuse(fmt::format("the study {} has no {} '{}'{}", plan_.study().name, what, name,
                       text::suggestion(name, known)));
  }

  static constexpr const char* kTag = "[merlin]_";
  const specs::Plan& plan_;
  engine::Groups groups_;
};

void note_variables(const char* command, const Names& variables) {
  if (!variables.empty())
    fmt::print(stderr, "merlin {}: --vars has no effect: a campaign keeps the variables that it began with\n",
               command);
}

// Becomes `wflow verb [CAMPAIGN] ...`.
int show(const ViewOptions& options, Names words) {
  if (!options.dump.empty())
    refuse(fmt::format("merlin --dump: wflow {} --{} > {}", words.front(),
                       options.dump.ends_with(".json") ? "json" : "csv", options.dump));
  const std::string campaign = merlins_campaign(options.named());
  if (!campaign.empty()) words.insert(words.begin() + 1, campaign);
  become_wflow(std::move(words));
}

int detailed_status(const ViewOptions& options) {
  Names words = {"tasks"};
  if (!is_all(options.steps) || !options.queues.empty()) {
    const specs::Plan plan = read_plan(find_campaign(merlins_campaign(options.named())));
    for (const auto* step : Study(plan).chosen(options.steps, options.queues)) words.push_back(step->name);
    if (words.size() == 1) refuse("merlin detailed-status: no step of --steps has one of --task-queues");
  }
  Names parts;
  for (const std::string& where : {where_of(options.states, kStates, "--task-status"),
                                   where_of(options.codes, kCodes, "--return-code")}) {
    if (!where.empty()) parts.push_back(fmt::format("({})", where));
  }
  Names workers;
  for (const std::string& worker : options.workers) workers.push_back(fmt::format("worker = '{}'", worker));
  if (!workers.empty()) parts.push_back(fmt::format("({})", text::join(workers, " or ")));
  if (!parts.empty()) words.insert(words.end(), {"--where", text::join(parts, " and ")});
  if (!options.limit.empty()) words.insert(words.end(), {"--limit", options.limit});
  return show(options, std::move(words));
}

// ---- queue-info

struct Queue {
  Names steps;
  std::uint64_t waiting = 0, running = 0, workers = 0;
};
using Queues = std::map<std::string, Queue>;

Queues queues_of(const fs::path& campaign, const ViewOptions& options) {
  using engine::ElementState;
  const specs::Plan plan = read_plan(campaign);
  const engine::CampaignStatus status = engine::campaign_status(campaign);
  const auto workers = engine::Client(campaign).workers();
  const Study study(plan);
  Queues queues;
  for (const specs::PlannedStep* step : study.chosen(options.steps, options.queues)) {
    Queue& queue = queues[study.queue(*step)];
    queue.steps.push_back(step->name);
    const auto counts = std::ranges::find(status.steps, step->name, &engine::StepStatus::name);
    if (counts == status.steps.end()) continue;
    queue.waiting += counts->count(ElementState::ready) + counts->count(ElementState::delayed);
    queue.running += counts->count(ElementState::leased);
    const auto serving = std::ranges::count_if(
        workers, [&](const WorkerView& worker) { return works(worker) && study.serves(worker, *step); });
    queue.workers = std::max(queue.workers, static_cast<std::uint64_t>(serving));
  }
  return queues;
}

// As Merlin writes it: the tasks and consumers of each queue at this time.
void dump(const Queues& queues, const std::string& file) {
  const std::string time = clock_time(unix_now_s());
  if (file.ends_with(".json")) {
    nlohmann::ordered_json json;
    for (const auto& [name, queue] : queues)
      json[name] = {{"tasks", queue.waiting + queue.running}, {"consumers", queue.workers}};
    return write_file_durably(file, nlohmann::ordered_json{{time, json}}.dump(2) + "\n");
  }
  if (!file.ends_with(".csv"))
    refuse(fmt::format("merlin queue-info --dump takes a file .csv or .json, found {}", file));
  std::string heading = "time", row = time;
  for (const auto& [name, queue] : queues) {
    heading += fmt::format(",{0}:tasks,{0}:consumers", name);
    row += fmt::format(",{},{}", queue.waiting + queue.running, queue.workers);
  }
  write_file_durably(file, heading + "\n" + row + "\n");
}

int queue_info(const ViewOptions& options) {
  note_variables("queue-info", options.variables);
  const Queues queues = queues_of(find_campaign(merlins_campaign(options.named())), options);
  if (!options.dump.empty()) dump(queues, options.dump);
  Table table({"queue", "waiting", "running", "workers", "steps"});
  for (const auto& [name, queue] : queues)
    table.add({{name},
               {text::format_count(queue.waiting)},
               {text::format_count(queue.running)},
               {text::format_count(queue.workers)},
               {text::join(queue.steps, " ")}});
  table.print_whole(standard_output());
  return 0;
}

// ---- query-workers

// Merlin's patterns are those of Python, and match the names of workers.
std::vector<std::regex> patterns_of(const Names& words) {
  std::vector<std::regex> patterns;
  for (const std::string& word : words) {
    try {
      patterns.emplace_back(word);
    } catch (const std::regex_error&) {
      refuse(fmt::format("merlin query-workers --workers: '{}' is no regular expression", word));
    }
  }
  return patterns;
}

int query_workers(const ViewOptions& options) {
  const fs::path campaign = find_campaign(merlins_campaign(options.named()));
  const specs::Plan plan = read_plan(campaign);
  const Study study(plan);
  const auto steps = study.chosen(options.steps, options.queues);
  const std::vector<std::regex> patterns = patterns_of(options.workers);
  Table table({"worker", "group", "state", "queues"});
  for (const WorkerView& worker : engine::Client(campaign).workers()) {
    const auto fits = [&](const std::regex& pattern) {
      return std::regex_search(worker.group, pattern) || std::regex_search(worker.id, pattern);
    };
    Names queues;
    for (const specs::PlannedStep* step : steps) {
      const std::string queue = study.queue(*step);
      if (study.serves(worker, *step) && std::ranges::find(queues, queue) == queues.end())
        queues.push_back(queue);
    }
    if (queues.empty() || (!patterns.empty() && std::ranges::none_of(patterns, fits))) continue;
    table.add({{worker.id}, {worker.group}, {state_of(worker)}, {text::join(queues, " ")}});
  }
  table.print_whole(standard_output());
  return 0;
}

// ---- the options

using Options = std::shared_ptr<ViewOptions>;

void add_list(CLI::App& command, const char* names, Names& list) {
  command.add_option(names, list)->expected(1, -1);
}

CLI::App* add_view(const AddCommand& add, const char* name, int (*action)(const ViewOptions&),
                   const Options& options) {
  CLI::App* command = add(name, [options, action] { return action(*options); });
  command->add_option("--task_server", options->ignored);  // Celery is the only one
  return command;
}

// Without effect: wflow has no pager here and asks nothing.
void add_display(CLI::App& command, const Options& options) {
  command.add_option("specification", options->target);
  command.add_option("--dump", options->dump);
  command.add_option("-o,--output-path", options->ignored);
  for (const char* flag : {"--disable-pager", "--disable-theme", "--no-prompts", "--cb-help"})
    command.add_flag(flag);
}

}  // namespace

void add_merlin_views(const AddCommand& add) {
  const auto options = std::make_shared<ViewOptions>();
  const auto status = [](const ViewOptions& given) { return show(given, {"status"}); };
  add_display(*add_view(add, "status", status, options), options);
  CLI::App* tasks = add_view(add, "detailed-status", detailed_status, options);
  add_display(*tasks, options);
  add_list(*tasks, "--steps", options->steps);
  add_list(*tasks, "--task-queues", options->queues);
  add_list(*tasks, "--workers", options->workers);
  add_list(*tasks, "--task-status", options->states);
  add_list(*tasks, "--return-code", options->codes);
  tasks->add_option("--max-tasks", options->limit);
  tasks->add_option("--layout", options->layout)->check(CLI::IsMember({"table", "default"}));
  CLI::App* queues = add_view(add, "queue-info", queue_info, options);
  queues->add_option("--spec,--specification", options->spec);
  queues->add_option("--dump", options->dump);
  add_list(*queues, "--specific-queues", options->queues);
  add_list(*queues, "--steps", options->steps);
  add_list(*queues, "--vars", options->variables);
  CLI::App* workers = add_view(add, "query-workers", query_workers, options);
  workers->add_option("--spec", options->spec);
  add_list(*workers, "--queues", options->queues);
  add_list(*workers, "--steps", options->steps);
  add_list(*workers, "--workers", options->workers);
}

}  // namespace wflow::cli
