// SPDX-License-Identifier: Apache-2.0
// batch: and the workers: wflow's at top level, Merlin's below merlin: resources:.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "specs/study/reading.h"

namespace wflow::specs {

namespace {

const std::array<std::string, 8> kTypes = {"local", "slurm", "flux",     "pbs",
                                           "lsf",   "sge",   "lsf-srun", "local_pool"};
const std::array<std::string, 2> kPlaces = {"here", "in_allocation"};

constexpr int kMostNodes = 1'000'000;
constexpr int kLongestChain = 1000;

// Keys of Merlin and Maestro that are known, but not used.
constexpr std::array<std::string_view, 8> kOtherKeys = {
    "flux_path", "flux_start_opts", "flux_exec", "flux_exec_workers", "host", "procs", "flux_uri", "version"};

// Options of schedulers, and wflow's names for them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kElsewhere = {{
    {"time", "walltime"},       {"time_limit", "walltime"},    {"wall_time", "walltime"}, {"timelimit", "walltime"},
    {"mem", "memory"},          {"mem_per_node", "memory"},    {"gres", "gpus"},          {"gpus_per_node", "gpus"},
    {"ngpus", "gpus"},          {"num_nodes", "nodes"},        {"project", "account"},    {"name", "job_name"},
    {"jobname", "job_name"},    {"email", "mail"},             {"mail_user", "mail"},     {"mail-user", "mail"},
    {"module", "modules"},      {"exclude_nodes", "exclude"},  {"options", "args"},       {"sbatch_args", "args"},
    {"extra_args", "args"},     {"features", "constraint"},
}};

// The blocks that may have the keys of an allocation: batch:, and batch: of a pool.
class AllocationReader {
 public:
  AllocationReader(yaml::MapReader& block, AllocationSpec& spec, const Study& study)
      : block_(block), spec_(spec), study_(study) {}

  void read() {
    if (block_.find("type") != nullptr) spec_.type = kTypes[block_.choice("type", 0, kTypes)];
    if (spec_.type == "local_pool") spec_.type = "local";  // Maestro's word for several tasks at once
    read_names();
    read_sizes();
    lines("args", spec_.args, [](const std::string& text) { return words_of(text); });
    lines("setup", spec_.setup, [](const std::string& text) { return text::split(text, '\n'); });
    spec_.launch_pre = block_.string("launch_pre", spec_.launch_pre);
    spec_.launch_args = block_.string("launch_args", spec_.launch_args);
    spec_.worker_launch = block_.string("worker_launch", spec_.worker_launch);
    read_modules();
    read_options();
    for (const std::string_view key : kOtherKeys) block_.find(key);
    for (const auto& [word, ours] : kElsewhere) {
      if (study_.merlin || block_.find(word) == nullptr) continue;
      block_.diagnostics().unknown_key(block_.mark_of(word),
                                       fmt::format("unknown key '{}' in batch:; its name here is '{}'", word, ours));
    }
  }

  // The pool itself may have these keys, too.
  void read_nodes_and_walltime() {
    const std::string text = block_.string("nodes");
    const auto number = text::to_integer(text);
    if (!text.empty() && text != "all" && (!number || *number < 1 || *number > kMostNodes)) {
      block_.diagnostics().error(block_.mark_of("nodes"),
                                 fmt::format("'nodes' must be a whole number from 1, found '{}'", text));
    } else if (number) {
      spec_.nodes = static_cast<int>(*number);
      spec_.nodes_given = true;
    }
    spec_.walltime_s = block_.seconds("walltime", spec_.walltime_s);
    spec_.chain = static_cast<int>(block_.integer("chain", spec_.chain, 0, kLongestChain));
    if (spec_.type == "slurm") return;
    if (std::exchange(spec_.chain, 0) > 0 && block_.has("chain")) {
      block_.diagnostics().error(
          block_.mark_of("chain"),
          fmt::format("'chain' needs Slurm, and the batch type is '{}'; leave it out: a pool submits the "
                      "successor of an allocation before its walltime ends",
                      spec_.type));
    }
  }

 private:
  // Before the lines of setup, which may need them.
  void read_modules() {
    std::vector<std::string> modules;
    lines("modules", modules, [](const std::string& text) { return words_of(text); });
    if (!modules.empty()) spec_.setup.insert(spec_.setup.begin(), "module load " + text::join(modules, " "));
  }

  // Common options of the submission, in the scheduler's own words.
  void read_options() {
    std::string name, mail;
    std::vector<std::string> exclude;
    one_line("job_name", name);
    one_line("mail", mail);
    lines("exclude", exclude, [](const std::string& text) { return words_of(text); });
    const bool slurm = spec_.type == "slurm";
    const auto add = [&](const std::string& option) { spec_.args.push_back(option); };
    const auto only_slurm = [&](std::string_view key, bool given) {
      if (!given || slurm || spec_.is_local()) return;
      block_.diagnostics().error(
          block_.mark_of(key),
          fmt::format("'{}' is for Slurm, and the batch type is '{}'; give the option of its submission in 'args'", key,
                      spec_.type));
    };
    only_slurm("job_name", !name.empty());
    only_slurm("exclude", !exclude.empty());
    if (slurm && !name.empty()) add("--job-name=" + name);
    if (slurm && !exclude.empty()) add("--exclude=" + text::join(exclude, ","));
    if (mail.empty() || spec_.is_local()) return;
    if (slurm) add("--mail-type=END,FAIL");
    if (slurm) add("--mail-user=" + mail);
    if (spec_.type == "pbs") add("-m ae");
    if (spec_.type == "sge") add("-m ea");
    if (spec_.type == "pbs" || spec_.type == "sge") add("-M " + mail);
    if (spec_.type.starts_with("lsf")) add("-N");
    if (spec_.type.starts_with("lsf")) add("-u " + mail);
    if (spec_.type == "flux") only_slurm("mail", true);
  }

  static std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    for (std::string& word : text::split(text, ' ')) {
      if (!word.empty()) words.push_back(std::move(word));
    }
    return words;
  }

  void read_names() {
    named("account", "bank", spec_.account);
    named("partition", "queue", spec_.partition);
    one_line("qos", spec_.qos);
    one_line("constraint", spec_.constraint);
    one_line("reservation", spec_.reservation);
    one_line("memory", spec_.memory);
  }

  void read_sizes() {
    read_nodes_and_walltime();
    spec_.gpus = static_cast<int>(block_.integer("gpus", spec_.gpus, 0, 1'000'000));
    spec_.exclusive = block_.boolean("exclusive", spec_.exclusive);
  }

  // wflow's key, or Merlin's.
  void named(std::string_view key, std::string_view merlins, std::string& value) {
    const bool both = block_.has(key) && block_.has(merlins);
    if (both && block_.string(key) != block_.string(merlins)) {
      block_.diagnostics().error(
          block_.mark_of(merlins),
          fmt::format("'{}' and '{}' mean the same and differ; one of them must go", key, merlins));
    }
    one_line(merlins, value);
    one_line(key, value);
  }

  // The value becomes a line of the submission script.
  void one_line(std::string_view key, std::string& value) {
    if (block_.find(key) == nullptr) return;
    value = block_.string(key, value);
    if (value.find('\n') == std::string::npos) return;
    block_.diagnostics().error(block_.mark_of(key), fmt::format("'{}' must be one line", key));
  }

  template <typename Split>
  void lines(std::string_view key, std::vector<std::string>& value, const Split& split) {
    const yaml::Node* node = block_.find(key);
    if (node == nullptr || (node->is_map() && study_.merlin)) return;  // args of Maestro's Flux: a mapping
    value = node->is_scalar() ? split(node->text) : block_.strings(key);
  }

  yaml::MapReader& block_;
  AllocationSpec& spec_;
  const Study& study_;
};

// The number behind --concurrency (-c) of Celery's worker arguments; 0 without one.
int concurrency_of(const std::string& args) {
  std::vector<std::string> words;
  for (const std::string& word : text::split(args, ' ')) {
    const std::size_t equals = word.find('=');
    if (!word.empty()) words.push_back(word.substr(0, equals));
    if (equals != std::string::npos) words.push_back(word.substr(equals + 1));
  }
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "--concurrency" && words[i] != "-c" && words[i] != "--autoscale") continue;
    const auto number = text::to_integer(words[i + 1].substr(0, words[i + 1].find(',')));
    if (number && *number > 0 && *number < 100000) return static_cast<int>(*number);
  }
  return 0;
}

// Names of steps; also accepts steps themselves, for a better message.
void check_steps(Reading& reading, const yaml::Node* node, WorkerGroup& group) {
  const std::vector<std::string> known = step_names(reading.study);
  if (node == nullptr) return;
  for (const yaml::Node& item : node->is_sequence() ? node->items : std::vector<yaml::Node>{*node}) {
    if (!item.is_scalar() || item.text == "all") continue;
    if (std::find(known.begin(), known.end(), item.text) != known.end()) continue;
    reading.diagnostics.error(item.mark,
                              fmt::format("the worker '{}' serves the step '{}', which is not in the study{}",
                                          group.name, item.text, text::suggestion(item.text, known)));
  }
}

// The number of allocations, and their time.
void read_pool(yaml::MapReader& block, WorkerGroup& group, const Study& study) {
  if (const yaml::Node* own = block.find("batch")) {
    yaml::MapReader inner(*own, fmt::format("batch: of the worker '{}'", group.name), block.diagnostics());
    AllocationReader(inner, group.allocation, study).read();
    inner.find("shell");  // Merlin's, only in batch:
    inner.finish();
  }
  AllocationReader(block, group.allocation, study).read_nodes_and_walltime();
  if (study.batch.coordinator_in_allocation && group.allocation.is_local()) {
    block.diagnostics().error(
        block.mark_of("batch"),
        fmt::format("the worker '{}' is local, and with 'coordinator: in_allocation' all workers come from "
                    "allocations: give it a 'type' such as slurm",
                    group.name));
  }
  group.min = static_cast<int>(block.integer("min", 0, 0, kMostNodes));
  group.max = static_cast<int>(block.integer("max", std::max(1, group.min), 1, kMostNodes));
  group.idle_timeout_s = block.seconds("idle_timeout", group.idle_timeout_s);
  if (group.min > group.max) {
    block.diagnostics().error(
        block.mark_of("min"),
        fmt::format("'min' is {} and 'max' {}; 'max' is the larger of the two", group.min, group.max));
  }
  if (group.allocation.chain > 0 && group.max > 1) {
    block.diagnostics().error(
        block.mark_of("max"),
        fmt::format("the worker '{}' has a 'chain', in which one allocation runs after another, and 'max' {}: "
                    "one of them must go",
                    group.name, group.max));
  }
  if (!group.allocation.exclusive && group.slots == 0 && !group.allocation.is_local()) {
    block.diagnostics().error(
        block.mark_of("slots"),
        fmt::format("the worker '{}' shares its nodes ('exclusive: false') and needs 'slots': how many "
                    "processors it asks for",
                    group.name));
  }
}

// Merlin's --local ignores workers, and so does a local campaign of one of its files. Otherwise the campaign waits for
// workers on those machines, which may surprise the user.
void check_machines(Reading& reading, const yaml::Mark& mark, WorkerGroup& group) {
  const Study& study = reading.study;
  const std::string host = host_name();
  if (group.machines.empty() || names_host(group.machines, host)) return;
  const std::string names = text::join(group.machines, ", ");
  if (reading.options.local || (study.merlin && study.batch.allocation.is_local())) {
    reading.diagnostics.warning(
        mark, fmt::format("'machines' of the worker '{}' ({}) is left out of account: this is a local "
                          "campaign, and all its steps run on this machine ({})",
                          group.name, names, host));
    group.machines.clear();
    return;
  }
  reading.diagnostics.warning(
      mark,
      fmt::format("the worker '{}' runs on machines whose name contains {}, which this one ({}) does not: "
                  "its steps wait until you start it, on any machine that sees the campaign's directory: "
                  "wflow worker --campaign DIRECTORY --group '{}'; or run all steps here: wflow run --local",
                  group.name, text::join(group.machines, " or "), host, group.name));
}

void read_group(Reading& reading, const yaml::Node& key, const yaml::Node& node, bool ours) {
  yaml::MapReader block(node, fmt::format("the worker '{}'", key.text), reading.diagnostics);
  WorkerGroup group;
  group.name = key.text;
  group.allocation = reading.study.batch.allocation;
  group.steps = block.strings("steps");
  group.machines = block.strings("machines");
  group.slots = static_cast<int>(block.integer("slots", 0, 0, 100000));
  group.pin = block.boolean("pin", false);
  const std::string args = block.string("args");
  if (!ours && group.slots == 0) group.slots = concurrency_of(args);
  read_pool(block, group, reading.study);
  block.finish();
  check_machines(reading, block.mark_of("machines"), group);
  check_steps(reading, block.find("steps"), group);
  reading.study.workers.push_back(std::move(group));
}

void read_groups(Reading& reading, const yaml::Node& node, bool ours) {
  yaml::MapReader block(node, "the workers: block", reading.diagnostics);
  for (const auto& [key, value] : block.node().entries) read_group(reading, key, value, ours);
}

// Steps with `batch: own` have a pool of their own, of the step's name: no other pool serves them.
void add_own_pools(Reading& reading) {
  Study& study = reading.study;
  std::vector<std::string> others;
  std::vector<WorkerGroup> own;
  for (const Step& step : study.steps) {
    if (!step.own_allocation) {
      others.push_back(step.name);
      continue;
    }
    if (study.batch.allocation.is_local()) continue;  // only this machine is available
    WorkerGroup group;
    group.name = step.name;
    group.steps = {step.name};
    group.allocation = study.batch.allocation;
    group.allocation.nodes = std::max(1, step.resources.nodes);
    group.allocation.nodes_given = true;
    if (const auto walltime = step.launcher_keys.find("walltime"); walltime != step.launcher_keys.end())
      group.allocation.walltime_s =
          yaml::parse_seconds(walltime->second).value_or(group.allocation.walltime_s);
    for (const WorkerGroup& other : study.workers) {
      if (other.name != step.name && std::ranges::find(other.steps, step.name) == other.steps.end()) continue;
      reading.diagnostics.error(
          step.mark,
          fmt::format("the step '{}' has an allocation of its own ('batch: own'), and the worker '{}' {}",
                      step.name, other.name, other.name == step.name ? "has its name" : "serves it, too"));
    }
    own.push_back(std::move(group));
  }
  if (own.empty()) return;
  for (WorkerGroup& group : study.workers) {
    const bool all = group.steps.empty() || std::ranges::find(group.steps, "all") != group.steps.end();
    if (all) group.steps = others;
  }
  std::erase_if(study.workers, [](const WorkerGroup& group) { return group.steps.empty(); });
  study.workers.insert(study.workers.end(), own.begin(), own.end());
}

// If the study does not set the nodes of an allocation: as many as its widest step needs, and as many GPUs a node as a
// task of its steps takes.
void fit_to_steps(Study& study) {
  std::vector<const AllocationSpec*> given;  // those that set their number of GPUs
  for (const WorkerGroup& group : study.workers) {
    if (group.allocation.gpus > 0) given.push_back(&group.allocation);
  }
  if (study.batch.allocation.gpus > 0) given.push_back(&study.batch.allocation);
  const auto fit = [&](AllocationSpec& allocation, const Resources& asked) {
    if (!allocation.nodes_given) allocation.nodes = std::max(allocation.nodes, asked.nodes);
    // Merlin's files give GPUs to launchers, not to tasks.
    const bool says = std::ranges::find(given, &allocation) != given.end();
    if (!says && !study.merlin) allocation.gpus = std::max(allocation.gpus, asked.gpus);
  };
  for (const Step& step : study.steps) {
    bool served = false;
    for (WorkerGroup& group : study.workers) {
      const bool serves = group.steps.empty() || std::ranges::find(group.steps, "all") != group.steps.end() ||
                          std::ranges::find(group.steps, step.name) != group.steps.end();
      served = served || serves;
      if (serves) fit(group.allocation, step.resources);
    }
    if (!served) fit(study.batch.allocation, step.resources);
  }
}

// Where the coordinator of a campaign runs, and how its allocations follow each other.
void read_coordinator(yaml::MapReader& block, Batch& batch) {
  batch.linger_s = block.seconds("linger", batch.linger_s);
  batch.coordinator_in_allocation = block.choice("coordinator", 0, kPlaces) != 0;
  if (batch.coordinator_in_allocation && batch.allocation.is_local()) {
    block.diagnostics().error(block.mark_of("coordinator"),
                              "'coordinator: in_allocation' needs a scheduler: give batch: a 'type' such as "
                              "slurm");
  }
}

}  // namespace

void read_batch(Reading& reading) {
  const yaml::Node* node = reading.root.find("batch");
  if (node == nullptr) return;
  yaml::MapReader block(*node, "the batch: block", reading.diagnostics);
  Batch& batch = reading.study.batch;
  AllocationReader(block, batch.allocation, reading.study).read();
  batch.shell = block.string("shell", batch.shell);
  batch.dry_run = block.boolean("dry_run", false);
  read_coordinator(block, batch);
  block.finish();
}

namespace {

void read_all_groups(Reading& reading) {
  const yaml::Node* ours = reading.root.find("workers");
  if (ours != nullptr && !ours->is_null()) read_groups(reading, *ours, true);
  const yaml::Node* merlin = reading.root.find("merlin");
  if (merlin == nullptr || merlin->is_null()) return;
  yaml::MapReader block(*merlin, "the merlin: block", reading.diagnostics);
  block.find("samples");
  if (const yaml::Node* resources = block.find("resources")) {
    yaml::MapReader inner(*resources, "the resources: block", reading.diagnostics);
    inner.find("task_server");
    inner.find("overlap");
    if (const yaml::Node* workers = inner.find("workers")) {
      if (ours != nullptr)
        reading.diagnostics.error(workers->mark, "workers stand here and at top level; one of them must go");
      read_groups(reading, *workers, false);
    }
    inner.finish();
  }
  block.finish();
}

}  // namespace

void read_workers(Reading& reading) {
  read_all_groups(reading);
  add_own_pools(reading);
  fit_to_steps(reading.study);
}

}  // namespace wflow::specs
