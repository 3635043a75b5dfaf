// SPDX-License-Identifier: Apache-2.0
// batch: and the workers: wflow's at top level, Merlin's below merlin: resources:.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include "base/config_table.h"
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
constexpr int kMostGpus = 1'000'000;

// Keys of Merlin and Maestro that are known, but not used.
constexpr std::array<std::string_view, 8> kOtherKeys = {
    "flux_path", "flux_start_opts", "flux_exec", "flux_exec_workers", "host", "procs", "flux_uri", "version"};

// Options of schedulers, and wflow's names for them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kElsewhere = {{
    {"time", "walltime"},       {"time_limit", "walltime"}, {"wall_time", "walltime"},
    {"timelimit", "walltime"},  {"mem", "memory"},          {"mem_per_node", "memory"},
    {"gres", "gpus"},           {"gpus_per_node", "gpus"},  {"ngpus", "gpus"},
    {"num_nodes", "nodes"},     {"project", "account"},     {"name", "job_name"},
    {"jobname", "job_name"},    {"email", "mail"},          {"mail_user", "mail"},
    {"mail-user", "mail"},      {"module", "modules"},      {"exclude_nodes", "exclude"},
    {"options", "args"},        {"sbatch_args", "args"},    {"extra_args", "args"},
    {"features", "constraint"},
}};

using config::custom;
using config::text_schema;
using yaml::MapReader;

// The keys of batch:, and of batch: of a pool. `batch` is filled in; the rest becomes options of its
// allocation.
struct BatchBlock {
  Batch batch;
  bool merlin = false;
  std::string job_name, mail;
  std::vector<std::string> modules, exclude;
};

struct PoolBlock : WorkerGroup {
  const Study* study = nullptr;
  bool ours = true;  // not Merlin's
};

// The part of a block that holds the keys of an allocation.
struct AllocationPart {
  AllocationSpec& operator()(BatchBlock& block) const { return block.batch.allocation; }
  const AllocationSpec& operator()(const BatchBlock& block) const { return block.batch.allocation; }
  AllocationSpec& operator()(PoolBlock& block) const { return block.allocation; }
  const AllocationSpec& operator()(const PoolBlock& block) const { return block.allocation; }
};
template <typename Config>
config::Key<Config> of_allocation(const config::Key<AllocationSpec>& key) {
  return config::of_part<Config>(key, AllocationPart());
}

config::Key<BatchBlock> of_batch(const config::Key<Batch>& key) {
  return config::of_part<BatchBlock>(key, &BatchBlock::batch);
}

template <typename Config>
config::Key<Config> unused(std::string name, config::Json schema = config::Json::object()) {
  return custom<Config>(std::move(name), std::move(schema), "accepted, not used").unlisted();
}

// The value becomes a line of the submission script.
void read_line(MapReader& reader, std::string_view key, std::string& value) {
  if (reader.find(key) == nullptr) return;
  value = reader.string(key, value);
  if (value.find('\n') == std::string::npos) return;
  reader.diagnostics().error(reader.mark_of(key), fmt::format("'{}' must be one line", key));
}

// A list, or one text that is split at `separator`.
void read_list(MapReader& reader, std::string_view key, std::vector<std::string>& value, char separator,
               bool merlin) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr || (node->is_map() && merlin)) return;  // args of Maestro's Flux: a mapping
  value = node->is_scalar() ? text::split(node->text, separator) : reader.strings(key);
  if (node->is_scalar() && separator == ' ') std::erase(value, "");
}

void read_nodes(MapReader& reader, std::string_view key, AllocationSpec& spec) {
  const std::string text = reader.string(key);
  const auto number = text::to_integer(text);
  if (!text.empty() && text != "all" && (!number || *number < 1 || *number > kMostNodes)) {
    reader.diagnostics().error(reader.mark_of(key),
                               fmt::format("'nodes' must be a whole number from 1, found '{}'", text));
  } else if (number) {
    spec.nodes = static_cast<int>(*number);
    spec.nodes_given = true;
  }
}

void read_chain(MapReader& reader, std::string_view key, AllocationSpec& spec) {
  spec.chain = static_cast<int>(reader.integer(key, spec.chain, 0, kLongestChain));
  if (spec.type == "slurm") return;
  if (std::exchange(spec.chain, 0) > 0 && reader.has(key)) {
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format("'chain' needs Slurm, and the batch type is '{}'; leave it out: a pool submits the "
                    "successor of an allocation before its walltime ends",
                    spec.type));
  }
}

// batch:, its namesake in a pool and the pool itself may have these.
template <typename Config>
std::vector<config::Key<Config>> size_keys(const std::string& usual_nodes, const std::string& usual_walltime,
                                           const std::string& usual_chain) {
  return {
      of_allocation<Config>(custom<AllocationSpec>("nodes", {{"type", {"integer", "string"}}},
                                                   "nodes of one allocation; `all` means the default",
                                                   read_nodes))
          .usually(usual_nodes),
      of_allocation<Config>(config::seconds("walltime", &AllocationSpec::walltime_s,
                                            "time limit of one allocation: `hh:mm:ss`, `mm:ss`, seconds, or "
                                            "`90 min`"))
          .usually(usual_walltime),
      of_allocation<Config>(
          custom<AllocationSpec>(
              "chain", config::integer_schema(0, kLongestChain),
              "number of allocations that wait in the queue together and run one after another "
              "([cluster.md](cluster.md#queues-that-limit-jobs)); Slurm only",
              read_chain))
          .usually(usual_chain)};
}

template <typename Config>
config::Key<Config> line(std::string name, std::string Config::*member, std::string meaning) {
  return custom<Config>(std::move(name), text_schema(), std::move(meaning),
                        [=](MapReader& reader, std::string_view key, Config& config) {
                          read_line(reader, key, config.*member);
                        });
}

config::Key<BatchBlock> line(std::string name, std::string AllocationSpec::*member, std::string meaning) {
  return of_allocation<BatchBlock>(line<AllocationSpec>(std::move(name), member, std::move(meaning)));
}

// `part`: a member of the block, or a function that gives one.
template <typename Part>
config::Key<BatchBlock> lines(std::string name, const Part& part, char separator, std::string meaning) {
  return custom<BatchBlock>(std::move(name), config::one_or_list_schema(text_schema()), std::move(meaning),
                            [=](MapReader& reader, std::string_view key, BatchBlock& block) {
                              read_list(reader, key, std::invoke(part, block), separator, block.merlin);
                            })
      .usually("none");
}

config::Key<BatchBlock> launch_text(std::string name, std::string AllocationSpec::*member,
                                    std::string meaning) {
  return of_allocation<BatchBlock>(config::text(std::move(name), member, std::move(meaning))).usually("none");
}

// Merlin's word for `key`. Comes before it: where both are given, `key` counts.
config::Key<BatchBlock> merlins(std::string name, std::string key, std::string AllocationSpec::*member) {
  auto word = line(name, member, key + ", in Merlin's word").unlisted();
  return std::move(word).then([name, key](MapReader& reader, BatchBlock&) {
    const bool both = reader.has(key) && reader.has(name);
    if (!both || reader.string(key) == reader.string(name)) return;
    reader.diagnostics().error(
        reader.mark_of(name),
        fmt::format("'{}' and '{}' mean the same and differ; one of them must go", key, name));
  });
}

void read_type(MapReader& reader, std::string_view key, BatchBlock& block) {
  std::string& type = block.batch.allocation.type;
  if (reader.find(key) != nullptr) type = kTypes[reader.choice(key, 0, kTypes)];
  if (type == "local_pool") type = "local";  // Maestro's word for several tasks at once
}

// The keys of batch: and of batch: of a pool.
std::vector<config::Key<BatchBlock>> allocation_keys() {
  using Spec = AllocationSpec;
  auto args = lines(
      "args", [](BatchBlock & block) -> auto& { return block.batch.allocation.args; }, ' ',
      "a list: more options of the submission, verbatim, after wflow's. wflow quotes a value with "
      "blanks for Slurm: `\"--comment=two words\"`");
  args.schema = config::any_of({args.schema, {{"type", "object"}}});
  std::vector<config::Key<BatchBlock>> keys = {
      custom<BatchBlock>(
          "type", config::choice_schema(kTypes),
          "`local` (this machine), `slurm`, `flux`, `pbs`, `lsf`, `sge`; `lsf-srun`: an LSF that starts "
          "programs with `srun`",
          read_type)
          .with_default("local"),
      merlins("bank", "account", &Spec::account),
      line("account", &Spec::account, "the account to charge; `bank` is the same").usually("the site's"),
      merlins("queue", "partition", &Spec::partition),
      line("partition", &Spec::partition, "the partition; `queue` is the same").usually("the site's"),
      line("qos", &Spec::qos, "quality of service, in the notation of the batch system").usually("none"),
      line("constraint", &Spec::constraint, "what the nodes must have, in the notation of the batch system")
          .usually("none"),
      line("reservation", &Spec::reservation, "the reservation to run in").usually("none"),
      lines("exclude", &BatchBlock::exclude, ' ', "a list of node names that wflow does not use (Slurm)"),
      line("job_name", &BatchBlock::job_name,
           "the name of its jobs (Slurm). The comment of each job names the campaign")
          .usually("`STUDY-POOL-n`"),
      line("mail", &BatchBlock::mail,
           "an address that receives a mail at the end of each allocation (Slurm, PBS, LSF, SGE)")
          .usually("none"),
      lines("modules", &BatchBlock::modules, ' ',
            "a list of modules: `module load` of all of them, before `setup`"),
      of_allocation<BatchBlock>(
          config::boolean("exclusive", &Spec::exclusive,
                          "whole nodes. With `false`, as many processors on each node as the "
                          "pool has `slots`")),
      line("memory", &Spec::memory, "for each node: `64G`; for each processor: `per_cpu 4G`")
          .usually("whole node"),
      of_allocation<BatchBlock>(
          config::integer(
              "gpus", &Spec::gpus, 0, kMostGpus,
              "GPUs of each node. By default, as many as one task of the steps takes. If several tasks "
              "are to share a node, give the number of GPUs that a node has: Slurm gives a job no "
              "others, even with `exclusive`"))
          .usually("as its steps"),
      std::move(args),
      lines(
          "setup", [](BatchBlock & block) -> auto& { return block.batch.allocation.setup; }, '\n',
          "a list: lines of shell that run before the workers start (modules, environments). The shell of "
          "the "
          "node expands `$NAME` in them"),
      launch_text("launch_pre", &Spec::launch_pre, "text before the command that starts the workers"),
      launch_text("launch_args", &Spec::launch_args, "more arguments for that command"),
      launch_text("worker_launch", &Spec::worker_launch, "another command in its place"),
  };
  const auto sizes = size_keys<BatchBlock>("1", "the site's", "0");
  keys.insert(keys.end(), sizes.begin(), sizes.end());
  for (const std::string_view key : kOtherKeys) keys.push_back(unused<BatchBlock>(std::string(key)));
  return keys;
}

void check_coordinator(MapReader& reader, BatchBlock& block) {
  if (!block.batch.coordinator_in_allocation || !block.batch.allocation.is_local()) return;
  reader.diagnostics().error(reader.mark_of("coordinator"),
                             "'coordinator: in_allocation' needs a scheduler: give batch: a 'type' such as "
                             "slurm");
}

std::vector<config::Key<BatchBlock>> batch_keys() {
  std::vector<config::Key<BatchBlock>> keys = allocation_keys();
  keys.push_back(of_batch(config::seconds("linger", &Batch::linger_s,
                                          "how long allocations live after their coordinator is gone"))
                     .with_default("10 min"));
  keys.push_back(
      of_batch(config::choice("coordinator", &Batch::coordinator_in_allocation, kPlaces,
                              "`here`: the coordinator runs where you typed `wflow run`; "
                              "`in_allocation`: it runs inside the allocations and moves from one to the "
                              "next ([cluster.md](cluster.md#the-coordinator-in-an-allocation))"))
          .then(check_coordinator));
  keys.push_back(of_batch(config::text("shell", &Batch::shell, "the interpreter of all steps")));
  keys.push_back(of_batch(
      config::boolean("dry_run", &Batch::dry_run,
                      "like `wflow run --dry`: create the campaign's directories and scripts, run nothing")));
  return keys;
}

const config::Table<BatchBlock>& batch_table() {
  static const config::Table<BatchBlock> table("the batch: block", batch_keys());
  return table;
}

const config::Table<BatchBlock>& pool_batch_table() {
  static const config::Table<BatchBlock> table = [] {
    std::vector<config::Key<BatchBlock>> keys = allocation_keys();
    keys.push_back(unused<BatchBlock>("shell", text_schema()));  // Merlin's, only in batch:
    return config::Table<BatchBlock>("batch: of a worker", std::move(keys));
  }();
  return table;
}

// Common options of the submission, in the scheduler's own words.
void add_options(MapReader& reader, BatchBlock& block) {
  AllocationSpec& spec = block.batch.allocation;
  // Before the lines of setup, which may need them.
  if (!block.modules.empty())
    spec.setup.insert(spec.setup.begin(), "module load " + text::join(block.modules, " "));
  const bool slurm = spec.type == "slurm";
  const auto add = [&](const std::string& option) { spec.args.push_back(option); };
  const auto only_slurm = [&](std::string_view key, bool given) {
    if (!given || slurm || spec.is_local()) return;
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format(
            "'{}' is for Slurm, and the batch type is '{}'; give the option of its submission in 'args'", key,
            spec.type));
  };
  only_slurm("job_name", !block.job_name.empty());
  only_slurm("exclude", !block.exclude.empty());
  if (slurm && !block.job_name.empty()) add("--job-name=" + block.job_name);
  if (slurm && !block.exclude.empty()) add("--exclude=" + text::join(block.exclude, ","));
  const std::string& mail = block.mail;
  if (mail.empty() || spec.is_local()) return;
  if (slurm) add("--mail-type=END,FAIL");
  if (slurm) add("--mail-user=" + mail);
  if (spec.type == "pbs") add("-m ae");
  if (spec.type == "sge") add("-m ea");
  if (spec.type == "pbs" || spec.type == "sge") add("-M " + mail);
  if (spec.type.starts_with("lsf")) add("-N");
  if (spec.type.starts_with("lsf")) add("-u " + mail);
  if (spec.type == "flux") only_slurm("mail", true);
}

void read_batch_block(MapReader& reader, const config::Table<BatchBlock>& table, BatchBlock& block) {
  table.read_keys(reader, block);
  add_options(reader, block);
  for (const auto& [word, ours] : kElsewhere) {
    if (block.merlin || reader.find(word) == nullptr) continue;
    reader.diagnostics().unknown_key(
        reader.mark_of(word), fmt::format("unknown key '{}' in batch:; its name here is '{}'", word, ours));
  }
  reader.finish();
}

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

void read_pool_batch(MapReader& reader, std::string_view key, PoolBlock& group) {
  if (const yaml::Node* own = reader.find(key)) {
    MapReader inner(*own, fmt::format("batch: of the worker '{}'", group.name), reader.diagnostics());
    BatchBlock block;
    block.batch.allocation = group.allocation;
    block.merlin = group.study->merlin;
    read_batch_block(inner, pool_batch_table(), block);
    group.allocation = std::move(block.batch.allocation);
  }
  if (!group.study->batch.coordinator_in_allocation || !group.allocation.is_local()) return;
  reader.diagnostics().error(
      reader.mark_of(key),
      fmt::format("the worker '{}' is local, and with 'coordinator: in_allocation' all workers come from "
                  "allocations: give it a 'type' such as slurm",
                  group.name));
}

std::vector<config::Key<PoolBlock>> pool_keys() {
  auto args = custom<PoolBlock>("args", text_schema(), "Celery's arguments; --concurrency gives the slots",
                                [](MapReader& reader, std::string_view key, PoolBlock& group) {
                                  const std::string text = reader.string(key);
                                  if (!group.ours && group.slots == 0) group.slots = concurrency_of(text);
                                });
  std::vector<config::Key<PoolBlock>> keys = {
      config::texts<PoolBlock>("steps", &WorkerGroup::steps, "the steps that it serves; `[all]`: every step")
          .usually("every step"),
      config::texts<PoolBlock>("machines", &WorkerGroup::machines,
                               "only on hosts whose name contains one of these")
          .usually("any"),
      config::integer<PoolBlock, int>("slots", &WorkerGroup::slots, 0, 100000, "slots of each worker")
          .usually("the node's cores"),
      config::boolean<PoolBlock>("pin", &WorkerGroup::pin, "every task has processors of its own"),
      std::move(args).unlisted(),
      custom<PoolBlock>("batch", schema_named("pool_batch"),
                        "any allocation key of [batch](#batch), for this pool alone", read_pool_batch)
          .usually("the study's"),
      config::integer<PoolBlock, int>("min", &WorkerGroup::min, 0, kMostNodes,
                                      "fewest allocations at the same time, while there is work"),
      custom<PoolBlock>("max", config::integer_schema(1, kMostNodes), "most allocations at the same time",
                        [](MapReader& reader, std::string_view key, PoolBlock& group) {
                          group.max =
                              static_cast<int>(reader.integer(key, std::max(1, group.min), 1, kMostNodes));
                        })
          .with_default("1"),
      config::seconds<PoolBlock>("idle_timeout", &WorkerGroup::idle_timeout_s,
                                 "wflow gives an allocation back after this time without work")
          .with_default("60 s"),
  };
  const auto sizes = size_keys<PoolBlock>("that of `batch`", "that of `batch`", "that of `batch`");
  keys.insert(std::ranges::find(keys, std::string("min"), &config::Key<PoolBlock>::name), sizes.begin(),
              sizes.end());
  return keys;
}

const config::Table<PoolBlock>& pool_table() {
  static const config::Table<PoolBlock> table("a worker", pool_keys());
  return table;
}

void check_pool(MapReader& block, const WorkerGroup& group) {
  if (group.min > group.max) {
    block.diagnostics().error(
        block.mark_of("min"),
        fmt::format("'min' is {} and 'max' {}; 'max' is the larger of the two", group.min, group.max));
  }
  if (group.allocation.chain > 0 && group.max > 1) {
    block.diagnostics().error(
        block.mark_of("max"),
        fmt::format(
            "the worker '{}' has a 'chain', in which one allocation runs after another, and 'max' {}: "
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

// Merlin's --local ignores workers, and so does a local campaign of one of its files. Otherwise the campaign
// waits for workers on those machines, which may surprise the user.
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
  MapReader block(node, fmt::format("the worker '{}'", key.text), reading.diagnostics);
  PoolBlock group;
  group.name = key.text;
  group.allocation = reading.study.batch.allocation;
  group.study = &reading.study;
  group.ours = ours;
  pool_table().read_keys(block, group);
  check_pool(block, group);
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
    group.allocation.walltime_s = walltime_s(step.launcher_keys).value_or(group.allocation.walltime_s);
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

// If the study does not set the nodes of an allocation: as many as its widest step needs, and as many GPUs a
// node as a task of its steps takes.
void fit_to_steps(Study& study) {
  std::vector<const AllocationSpec*> given;  // those that set their number of GPUs
  for (const WorkerGroup& group : study.workers) {
    if (group.allocation.gpus > 0) given.push_back(&group.allocation);
  }
  if (study.batch.allocation.gpus > 0) given.push_back(&study.batch.allocation);
  // Maestro submits each step by itself, with the nodes of the step.
  const bool maestro = study.format.dialect == Dialect::maestro;
  const auto fit = [&](AllocationSpec& allocation, const Resources& asked) {
    if (!allocation.nodes_given || maestro) allocation.nodes = std::max(allocation.nodes, asked.nodes);
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

// A pool's keys take the place of the study's: they have no defaults of their own.
config::Json without_defaults(config::Json schema) {
  for (config::Json& property : schema["properties"]) property.erase("default");
  return schema;
}

const config::Table<KnownKeys>& resources_table() {
  static const config::Table<KnownKeys> table(
      "the resources: block",
      {known_key("task_server", config::Json::object(), "accepted, not used"),
       known_key("overlap", config::Json::object(), "accepted, not used"),
       known_key("workers", mapping_of(schema_named("worker")), "groups of workers")});
  return table;
}

const config::Table<KnownKeys>& merlin_table() {
  static const config::Table<KnownKeys> table(
      "the merlin: block",
      {known_key("samples", schema_named("merlin_samples"), "Merlin's samples"),
       known_key("resources", config::or_null(resources_table().schema()), "Merlin's workers")});
  return table;
}

}  // namespace

BlockTables batch_tables() {
  return {{{"merlin", config::or_null(merlin_table().schema())},
           {"batch", config::or_null(batch_table().schema())},
           {"pool_batch", config::or_null(without_defaults(pool_batch_table().schema()))},
           {"worker", config::or_null(pool_table().schema())}},
          {{"batch", batch_table().rows()}, {"workers", pool_table().rows()}}};
}

void read_batch(Reading& reading) {
  const yaml::Node* node = reading.root.find("batch");
  if (node == nullptr) return;
  MapReader reader(*node, batch_table().where(), reading.diagnostics);
  BatchBlock block;
  block.batch = std::move(reading.study.batch);
  block.merlin = reading.study.merlin;
  read_batch_block(reader, batch_table(), block);
  reading.study.batch = std::move(block.batch);
}

namespace {

void read_all_groups(Reading& reading) {
  const yaml::Node* ours = reading.root.find("workers");
  if (ours != nullptr && !ours->is_null()) read_groups(reading, *ours, true);
  const yaml::Node* merlin = reading.root.find("merlin");
  if (merlin == nullptr || merlin->is_null()) return;
  KnownKeys none;
  merlin_table().read(*merlin, none, reading.diagnostics);
  const yaml::Node* resources = merlin->find("resources");
  if (resources == nullptr || resources->is_null()) return;
  resources_table().read(*resources, none, reading.diagnostics);
  const yaml::Node* workers = resources->find("workers");
  if (workers == nullptr || workers->is_null()) return;
  if (ours != nullptr)
    reading.diagnostics.error(workers->mark, "workers stand here and at top level; one of them must go");
  read_groups(reading, *workers, false);
}

}  // namespace

void read_workers(Reading& reading) {
  read_all_groups(reading);
  add_own_pools(reading);
  fit_to_steps(reading.study);
}

}  // namespace wflow::specs
