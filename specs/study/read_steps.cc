// SPDX-License-Identifier: Apache-2.0
// study: the list of steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "base/config_table.h"
#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/report_files.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"

namespace wflow::specs {

namespace {

using config::custom;
using yaml::MapReader;

constexpr int kMostPriority = 1000;
constexpr double kMostMemoryFactor = 64;
constexpr std::int64_t kMostCount = 10'000'000;

// Maestro has words; wflow has numbers.
constexpr std::array<std::pair<std::string_view, int>, 9> kPriorities = {{{"held", -1000},
                                                                          {"minimal", -200},
                                                                          {"low", -100},
                                                                          {"medium", 0},
                                                                          {"normal", 0},
                                                                          {"high", 100},
                                                                          {"expedite", 200},
                                                                          {"expedited", 200},
                                                                          {"critical", 300}}};

const std::array<std::string, 3> kContinueOn = {"never", "soft_fail", "any"};
const std::array<std::string, 2> kOutputModes = {"files", "packed"};

// A step as it is read, from its own mapping and from run:.
struct StepBlock : Step {
  Reading* reading = nullptr;
  std::string where;                 // "the step 'simulate'"
  std::size_t index = 0;             // in the list of steps
  const yaml::Node* node = nullptr;  // its own mapping
};

using StepKeys = std::vector<config::Key<StepBlock>>;

std::uint64_t read_extent(const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  const auto extent = yaml::as_integer(node, "shape", diagnostics);
  if (!extent || *extent > 0) return static_cast<std::uint64_t>(extent.value_or(1));
  diagnostics.error(node.mark, fmt::format("'shape' holds numbers from 1, found {}", *extent));
  return 1;
}

const config::Table<StepOutput>& output_table() {
  static const config::Table<StepOutput> table(
      "an entry of outputs:",
      {config::required_text("file", &StepOutput::file, "a path, relative to the working directory"),
       config::text("dataset", &StepOutput::dataset, "the name of a dataset in an HDF5 file").usually("none"),
       custom<StepOutput>("shape", config::one_or_list_schema(config::integer_schema(1, INT64_MAX)),
                          "the lengths of the axes, slowest first, of the dataset or of an array file",
                          [](MapReader& reader, std::string_view key, StepOutput& output) {
                            for (const yaml::Node& extent : items_of(reader.find(key)))
                              output.shape.push_back(read_extent(extent, reader.diagnostics()));
                          })
           .usually("any"),
       config::boolean("finite", &StepOutput::finite, "neither NaN nor infinity is in it")});
  return table;
}

void read_outputs(MapReader& reader, std::string_view key, StepBlock& step) {
  for (const yaml::Node& node : items_of(reader.find(key))) {
    const std::string where = "an entry of outputs: of " + step.where;
    StepOutput& output = step.outputs.emplace_back();
    if (!node.is_scalar() && !node.is_null()) {
      output_table().read(node, output, reader.diagnostics(), where);
      continue;
    }
    output.file = node.text;
    if (output.file.empty()) reader.diagnostics().error(node.mark, where + " is empty");
  }
}

void read_depends(MapReader& reader, std::string_view key, StepBlock& step) {
  std::set<std::string> seen;
  for (const std::string& name : reader.strings(key)) {
    if (name.empty()) continue;
    if (seen.insert(name).second) {
      step.depends.push_back({name, name.ends_with('*')});
    } else {
      reader.diagnostics().error(reader.mark_of(key),
                                 fmt::format("{} depends on '{}' twice", step.where, name));
    }
  }
}

// The type of its launcher, as in Merlin; or the word own, an allocation for this step only.
const config::Table<StepBlock>& launcher_table() {
  static const config::Table<StepBlock> table(
      "batch: of a step", {custom<StepBlock>("type", config::text_schema(), "local, slurm, flux, lsf, pbs",
                                             [](MapReader& reader, std::string_view key, StepBlock& step) {
                                               if (reader.node().is_map())
                                                 step.launcher_keys["batch type"] = reader.string(key);
                                             })});
  return table;
}

void read_step_batch(MapReader& reader, std::string_view key, StepBlock& step) {
  const yaml::Node* batch = reader.find(key);
  if (batch == nullptr) return;
  step.own_allocation = batch->is_scalar() && batch->text == "own";
  if (!step.own_allocation)
    launcher_table().read(*batch, step, reader.diagnostics(), "batch: of " + step.where);
}

// The expression before its variables are replaced: their values must not be parsed as an expression.
void read_when(MapReader& reader, std::string_view key, StepBlock& step) {
  step.when = reader.string(key);
  if (reader.has(key) && step.when.empty() && reader.find(key)->is_scalar())
    reader.diagnostics().error(reader.mark_of(key), "'when' is empty; an expression was expected");
  const yaml::Node* list = step.reading->study.original.find("study");
  if (step.when.empty() || list == nullptr || step.index >= list->items.size()) return;
  const yaml::Node& original = list->items[step.index];
  const yaml::Node* place = &reader.node() == step.node ? &original : original.find("run");
  const yaml::Node* when = place == nullptr ? nullptr : place->find(key);
  if (when != nullptr && when->is_scalar()) step.when = when->text;
}

// `2x`, or only the number: more than 1.
void read_retry_memory(MapReader& reader, std::string_view key, StepBlock& step) {
  const yaml::Node* value = reader.find(key);
  if (value == nullptr) return;
  std::string_view number = value->is_scalar() ? text::trim(value->text) : std::string_view();
  if (number.ends_with("x")) number.remove_suffix(1);
  const auto factor = text::to_real(number);
  if (!factor || !(*factor > 1) || *factor > kMostMemoryFactor) {
    reader.diagnostics().error(
        value->mark, fmt::format("'retry_memory' must be a factor above 1 and up to {}, as 2x; found {}",
                                 kMostMemoryFactor, value->describe()));
    return;
  }
  if (step.resources.memory_bytes <= 0)
    reader.diagnostics().error(value->mark, "'retry_memory' needs 'memory', the amount that it multiplies");
  step.retry_memory = *factor;
}

// `20`, `5 %`, or the word none.
void read_max_failures(MapReader& reader, std::string_view key, StepBlock& step) {
  using Kind = FailureLimit::Kind;
  const yaml::Node* value = reader.find(key);
  if (value == nullptr) return;
  std::string_view written = value->is_scalar() ? text::trim(value->text) : std::string_view();
  const bool percent = written.ends_with("%");
  if (percent) written = text::trim(written.substr(0, written.size() - 1));
  const auto number = text::to_real(written);
  const auto count = text::to_integer(written);
  if (written == "none" && !percent) {
    step.max_failures = {Kind::none, 0, 0};
  } else if (percent && number && *number > 0 && *number <= 100) {
    step.max_failures = {Kind::fraction, 0, *number / 100};
  } else if (!percent && count && *count > 0) {
    step.max_failures = {Kind::count, static_cast<std::uint64_t>(*count), 0};
  } else {
    reader.diagnostics().error(
        value->mark,
        fmt::format("'max_failures' must be a whole number from 1, a part of the step's tasks as 5 %, "
                    "or none; found {}",
                    value->describe()));
  }
}

std::vector<std::string> priority_words() {
  std::vector<std::string> words;
  for (const auto& [word, number] : kPriorities) words.emplace_back(word);
  return words;
}

void read_priority(MapReader& reader, std::string_view key, StepBlock& step) {
  const yaml::Node* value = reader.find(key);
  if (value == nullptr) return;
  if (value->is_scalar() && text::to_integer(value->text)) {
    step.priority = static_cast<int>(reader.integer(key, 0, -kMostPriority, kMostPriority));
    return;
  }
  const std::vector<std::string> words = priority_words();
  const auto word = std::ranges::find(words, value->is_scalar() ? text::lower(value->text) : std::string());
  if (word != words.end()) {
    step.priority = kPriorities[static_cast<std::size_t>(word - words.begin())].second;
    return;
  }
  reader.diagnostics().error(
      value->mark, fmt::format("'priority' must be a whole number from {} to {}, or one of {}; found {}{}",
                               -kMostPriority, kMostPriority, text::join(words, ", "), value->describe(),
                               text::suggestion(value->text, words)));
}

// True if the file comes with a repository that is cloned when the campaign starts.
bool is_cloned(const Study& study, const std::filesystem::path& path) {
  return std::ranges::any_of(study.git, [&](const GitDependency& git) {
    const std::string folder = (std::filesystem::path(git.path) / git.name).lexically_normal().string() + "/";
    return path.string().starts_with(folder);
  });
}

void check_sources(MapReader& reader, StepBlock& step) {
  step.sources_off = step.sources == std::vector<std::string>{"none"};
  if (step.sources_off) step.sources.clear();
  const Study& study = step.reading->study;
  // Only for a study that will run: a campaign whose script is gone can still be displayed.
  if (!study.options.campaign.empty() && !study.options.fresh_samples) return;
  for (const std::string& source : step.sources) {
    std::error_code error;
    const std::filesystem::path path = locate(study, source);
    if (find_token(source) || std::filesystem::exists(path, error) || is_cloned(study, path)) continue;
    reader.diagnostics().error(
        reader.mark_of("sources"),
        fmt::format("{} has the source {}, which does not exist ({})", step.where, source, path.string()));
  }
}

// A number that may be a parameter's value, which is known only for each combination. `merlins`, a key before
// this one, counts in Merlin's files if both are given: Merlin does not have this one.
config::Key<StepBlock> count_key(std::string name, int Resources::*member, int least, std::string meaning,
                                 std::string merlins = {}) {
  const auto read = [=](MapReader& reader, std::string_view key, StepBlock& step) {
    const yaml::Node* value = reader.find(key);
    if (value == nullptr) return;
    step.launcher_keys[std::string(key)] = value_text(*value);
    if (value->is_scalar() && find_token(value->text)) return;
    int& count = step.resources.*member;
    const auto found = static_cast<int>(reader.integer(key, count, least, kMostCount));
    const bool is_merlin = step.reading->study.format.dialect == Dialect::merlin;
    if (!is_merlin || !step.launcher_keys.contains(merlins)) count = found;
  };
  return custom<StepBlock>(
      std::move(name), config::integer_schema(least, kMostCount), std::move(meaning), read,
      [member](const StepBlock& step) { return config::emit_integer(step.resources.*member); });
}

// A key that stands beside run: or in it, not beside convert:, train:, plugin: or propose:.
config::Key<StepBlock> for_run(config::Key<StepBlock> key) {
  key.read = [read = key.read](MapReader& reader, std::string_view name, StepBlock& step) {
    if (reader.has(name) && step.kind != StepKind::shell)
      reader.diagnostics().error(reader.mark_of(name), fmt::format("'{}' is for steps with run:", name));
    read(reader, name, step);
  };
  return key;
}

StepKeys launcher_keys() {
  const auto read = [](MapReader& reader, std::string_view key, StepBlock& step) {
    if (const yaml::Node* value = reader.find(key)) step.launcher_keys[std::string(key)] = value_text(*value);
  };
  StepKeys keys;
  for (const char* name : {"slurm", "flux", "lsf", "walltime", "reservation", "bind", "num resource set",
                           "launch_distribution", "exit_on_error"})
    keys.push_back(
        custom<StepBlock>(name, config::text_schema(), "an argument of `$(LAUNCHER)`", read).unlisted());
  // Maestro knows these; they only go to a launcher's command line.
  for (const char* name : {"launch_args", "exclusive", "nested", "qos", "tasks per rs", "rs per node",
                           "cpus per rs", "bind gpus", "gpus per node", "pre", "post"})
    keys.push_back(custom<StepBlock>(name, config::Json::object(), "accepted, not used", read).unlisted());
  return keys;
}

StepKeys retry_keys() {
  return {config::integer<StepBlock, int>("max_retries", &Step::max_retries, 0, 1'000'000,
                                          "executions after exit codes 100 and 104. If you write the key in "
                                          "a file of wflow's own format, it is also the limit for retries "
                                          "after any other failure. Exception: failures of `wflow-convert` "
                                          "and `wflow-train` that a retry cannot change (exit codes 2 to 4)")
              .then([](MapReader& reader, StepBlock& step) {
                step.retry_failures = !step.reading->study.merlin && reader.has("max_retries");
              }),
          config::seconds<StepBlock>(
              "retry_delay", &Step::retry_delay_s,
              "wait before each retry; after ordinary failures it doubles each time, up to 60 s")
              .with_default("1 s"),
          config::of_part<StepBlock>(
              config::bytes(
                  "memory", &Resources::memory_bytes,
                  "`512 MiB`: wflow runs tasks side by side as far as the memory of their worker allows "
                  "([launching.md](launching.md))"),
              &StepBlock::resources)
              .usually("not asked for"),
          custom<StepBlock>("retry_memory",
                            {{"anyOf",
                              {{{"type", "number"}, {"exclusiveMinimum", 1}, {"maximum", kMostMemoryFactor}},
                               {{"type", "string"}}}},
                             {"examples", {"2x"}}},
                            "`2x`: a task that is [killed for memory](reliability.md#why-an-execution-ended) "
                            "runs again with its `memory` times this factor, repeatedly, up to the memory of "
                            "the largest worker, at most 8 times. The step must have `memory`. These retries "
                            "do not count for `max_retries`. A task that is killed with all of that memory "
                            "fails like any other task (see below)",
                            read_retry_memory)
              .usually("none"),
          custom<StepBlock>("max_failures",
                            {{"anyOf", {{{"type", "integer"}, {"minimum", 1}}, {{"type", "string"}}}},
                             {"examples", {20, "5 %", "none"}}},
                            "`20`, or `5 %` of the step's tasks, or `none`: when this many tasks of the step "
                            "have failed for good, wflow [pauses](reliability.md#too-many-failures) it. By "
                            "default, wflow pauses a step when its first 20 tasks have all failed",
                            read_max_failures)
              .usually("see below"),
          config::seconds<StepBlock>("timeout", &Step::timeout_s,
                                     "time limit of a task: `90 s`, `10 min`, `1.5 h`, `hh:mm:ss`")
              .usually("none"),
          config::seconds<StepBlock>(
              "stall_timeout", &Step::stall_timeout_s,
              "wflow ends a task that prints nothing, reports nothing and uses no CPU for this time "
              "([reliability.md](reliability.md#why-an-execution-ended))")
              .usually("none"),
          config::boolean<StepBlock>(
              "trust_markers", &Step::trust_markers,
              "a task whose `MERLIN_FINISHED` exists counts as done even if wflow did not record its end "
              "([reliability.md](reliability.md#what-a-power-cut-loses)). Not with `bundle` or `output: "
              "packed`")};
}

StepKeys resource_keys() {
  return {count_key("nodes", &Resources::nodes, 1,
                    "the number of nodes. If workers run in allocations, the task takes whole slots on this "
                    "many nodes at once ([cluster.md](cluster.md)). On one machine it runs there alone")
              .then([](MapReader&, StepBlock& step) {
                // In Merlin and Maestro the default is one process for any number of nodes.
                if (!step.reading->study.merlin) step.resources.procs = step.resources.nodes;
              }),
          count_key("procs", &Resources::procs, 1, "the number of MPI ranks, spread over the nodes")
              .usually("one on each node (in Merlin's and Maestro's files one in all)"),
          count_key("min_nodes", &Resources::min_nodes, 1,
                    "fewer nodes that suffice if no allocation has more: after half a minute the task runs "
                    "on these, with the same number of ranks on each node")
              .usually("`nodes`"),
          count_key("cores per task", &Resources::cores, 1, "cores of each rank; `cores` is the same"),
          count_key("cores", &Resources::cores, 1, "cores of each rank", "cores per task").unlisted(),
          count_key("gpus per task", &Resources::gpus, 0, "GPUs of each rank; `gpus` is the same"),
          count_key("gpus", &Resources::gpus, 0, "GPUs of each rank", "gpus per task").unlisted(),
          custom<StepBlock>("batch",
                            config::any_of({{{"enum", {"own"}}}, config::or_null(launcher_table().schema())}),
                            "`own`: this step has its own allocations, with its `nodes` and `walltime`, "
                            "beside those of the other steps. `{type}`, as in Merlin: the launcher of this "
                            "step",
                            read_step_batch)};
}

StepKeys order_keys() {
  return {
      custom<StepBlock>(
          "depends", config::one_or_list_schema(config::text_schema()),
          "steps to wait for. `a`: the same combination of `a`; `a_*` or `a*`: all combinations",
          read_depends)
          .usually("none"),
      custom<StepBlock>("continue_on", config::choice_schema(kContinueOn),
                        "failures of earlier tasks after which this step runs nevertheless: `never`, "
                        "`soft_fail` (as Merlin), `any`",
                        [](MapReader& reader, std::string_view key, StepBlock& step) {
                          if (reader.has(key))
                            step.continue_on = static_cast<ContinueOn>(reader.choice(key, 0, kContinueOn));
                        })
          .usually("`never` (see below)"),
      custom<StepBlock>("priority",
                        config::any_of({config::integer_schema(-kMostPriority, kMostPriority),
                                        {{"enum", priority_words()}}}),
                        "-1000 to 1000; of the tasks that can run, wflow starts the highest first. Maestro's "
                        "words stand for numbers: `held` -1000, `minimal` -200, `low` -100, `medium` and "
                        "`normal` 0, `high` 100, `expedite` 200, `critical` 300",
                        read_priority)
          .with_default("0"),
      custom<StepBlock>(
          "when",
          {{"type", {"string", "boolean"}},
           {"examples", {"RESOLUTION >= 128 and MODEL in [cosmoflow, sc18]"}}},
          "an expression over parameters: combinations for which it is false are not in the plan (see below)",
          read_when)
          .usually("always")};
}

StepKeys file_keys() {
  return {for_run(custom<StepBlock>(
                      "bundle", config::integer_schema(1, kMostBundle),
                      "samples in each process: `bundle: 1000` starts one process for 1,000 samples (see "
                      "below)",
                      [](MapReader& reader, std::string_view key, StepBlock& step) {
                        if (step.kind != StepKind::plugin)
                          step.bundle = static_cast<std::uint64_t>(reader.integer(key, 0, 1, kMostBundle));
                      }))
              .usually("none"),
          for_run(config::choice<StepBlock, OutputMode>(
              "output", &Step::output, kOutputModes,
              "`packed`: the output of tasks goes into [indexed files](formats/packed-output.md) of the step "
              "instead of two files for each task, and a sample has a directory only if a task leaves files "
              "in it ([launching.md](launching.md))")),
          config::texts<StepBlock>("sources", &Step::sources,
                                   "files whose content determines the results of the tasks (see below)")
              .usually("files that the command names")
              .then(check_sources),
          for_run(custom<StepBlock>("outputs", config::one_or_list_schema(schema_named("output")),
                                    "files that a task must leave; without them, the task fails (see below)",
                                    read_outputs))
              .usually("none"),
          custom<StepBlock>(
              "report", schema_named("report"),
              "figures and tables that tasks leave, for [`wflow report`](report.md) (see below)",
              [](MapReader& reader, std::string_view key, StepBlock& step) {
                ReportFiles files;  // the report reads them again: specs/study/report_files.h
                if (const yaml::Node* node = reader.find(key))
                  report_table().read(*node, files, reader.diagnostics(), "report: of " + step.where);
              })
              .usually("none"),
          config::text<StepBlock>("task_queue", &Step::task_queue, "kept for compatibility with Merlin")};
}

// Stand in run: or beside it; for the other kinds beside it.
const config::Table<StepBlock>& step_key_table() {
  static const config::Table<StepBlock> table(
      "a step",
      config::joined<StepBlock>({order_keys(), retry_keys(), resource_keys(), file_keys(), launcher_keys()}));
  return table;
}

const config::Table<StepBlock>& run_table() {
  static const config::Table<StepBlock> table(
      "run:",
      {config::required_text<StepBlock>("cmd", &Step::command, "the script"),
       config::text<StepBlock>("restart", &Step::restart, "the script after exit code 100").usually("`cmd`"),
       config::text<StepBlock>(
           "shell", &Step::shell,
           "the interpreter: `/usr/bin/env python3`. Without this key, a command that needs no shell starts "
           "[without one](launching.md)")
           .usually("that of `batch`")});
  return table;
}

const config::Table<StepBlock>& step_table() {
  const auto block = [](const char* kind, const char* meaning) {
    return custom<StepBlock>(kind, schema_named(kind), meaning);
  };
  static const config::Table<StepBlock> table(
      "a step",
      {config::required_text<StepBlock>("name", &Step::name, "unique; becomes a directory"),
       custom<StepBlock>("description", config::text_schema(), "for readers; needed in Merlin's files",
                         [](MapReader& reader, std::string_view key, StepBlock& step) {
                           step.description =
                               step.reading->study.merlin ? reader.required_string(key) : reader.string(key);
                         }),
       block("run", "a command"), block("convert", "a conversion of a step's output to training data"),
       block("train", "a training"),
       block("plugin", "a function of a shared library, called for each sample"),
       block("propose", "[chooses](propose.md) the samples of the next [iteration](#iterate)")});
  return table;
}

// A network or a loss that the user has exported belongs to the training as a script belongs to a simulation.
void add_modules(Step& step) {
  for (const yaml::Node& file : trainer::module_files(step.settings))
    if (std::ranges::find(step.sources, file.text) == step.sources.end()) step.sources.push_back(file.text);
}

void train_resources(Step& step) {
  const auto number = [&](std::string_view key, int fallback) {
    const yaml::Node* value = step.settings.find(key);
    const auto found = value != nullptr && value->is_scalar() ? text::to_integer(value->text) : std::nullopt;
    return found && *found > 0 && *found < kMostCount ? static_cast<int>(*found) : fallback;
  };
  step.resources.nodes = number("nodes", step.resources.nodes);
  step.resources.min_nodes = number("min_nodes", step.resources.min_nodes);
  step.resources.procs = number("ranks", step.resources.nodes);
  step.resources.cores = std::max(step.resources.cores, number("threads", 1));
  // Parameters of the study, known only for each combination.
  constexpr std::array<std::pair<const char*, const char*>, 4> kKeys = {
      {{"nodes", "nodes"}, {"min_nodes", "min_nodes"}, {"ranks", "procs"}, {"threads", "cores"}}};
  for (const auto& [ours, launchers] : kKeys) {
    const yaml::Node* value = step.settings.find(ours);
    if (value != nullptr && value->is_scalar() && find_token(value->text))
      step.launcher_keys[launchers] = value->text;
  }
}

class StepReader {
 public:
  StepReader(Reading& reading, const yaml::Node& node, std::size_t index)
      : reading_(reading), reader_(node, title(node, index), reading.diagnostics) {
    step_.reading = &reading;
    step_.where = reader_.where();
    step_.index = index;
    step_.node = &node;
    step_.mark = node.mark;
    step_.shell = reading.study.batch.shell;
  }

  Step read() {
    if (step_.node->is_map()) read_all();
    return static_cast<const Step&>(step_);
  }

 private:
  static std::string title(const yaml::Node& node, std::size_t index) {
    const yaml::Node* name = node.is_map() ? node.find("name") : nullptr;
    if (name != nullptr && name->is_scalar() && !name->text.empty())
      return fmt::format("the step '{}'", name->text);
    return fmt::format("the step number {}", index + 1);
  }

  void error(const yaml::Mark& mark, std::string message) {
    reading_.diagnostics.error(mark, std::move(message));
  }

  void read_all() {
    step_table().read_keys(reader_, step_);
    if (reader_.has("name")) step_.mark = reader_.mark_of("name");
    read_kind();
    for (const auto& key : step_key_table().keys()) key.read(place_of_key(key.name), key.name, step_);
    if (step_.kind == StepKind::train) {
      train_resources(step_);
      add_modules(step_);
    }
    check();
    reader_.finish();
    if (run_) run_->finish();
  }

  void read_kind() {
    // In the order of StepKind.
    const std::array blocks = {reader_.find("run"), reader_.find("convert"), reader_.find("train"),
                               reader_.find("plugin"), reader_.find("propose")};
    const auto given =
        std::ranges::count_if(blocks, [](const yaml::Node* block) { return block != nullptr; });
    if (given != 1) {
      error(step_.mark, fmt::format("{} {} of the keys run, convert, train, plugin and propose", step_.where,
                                    given == 0 ? "needs one" : "has more than one"));
    }
    if (given == 0) return;
    const auto first = std::ranges::find_if(blocks, [](const yaml::Node* block) { return block != nullptr; });
    step_.kind = static_cast<StepKind>(first - blocks.begin());
    if (step_.kind == StepKind::shell) {
      run_.emplace(**first, "run: of " + step_.where, reading_.diagnostics);
      run_table().read_keys(*run_, step_);
      const yaml::Node* batch = reading_.root.find("batch");
      step_.shell_given = run_->has("shell") || (batch != nullptr && batch->find("shell") != nullptr);
      return;
    }
    step_.settings = **first;
    if (step_.kind != StepKind::plugin) return;
    PluginBlock plugin = read_plugin(step_.settings, reading_.diagnostics);
    step_.bundle = plugin.bundle;
    step_.block = std::move(plugin);
  }

  MapReader& place_of_key(std::string_view key) {
    const bool beside = reader_.has(key);
    if (!run_ || !run_->has(key)) return reader_;
    if (beside && doubled_.emplace(key).second)
      error(reader_.mark_of(key), fmt::format("'{}' stands in run: and beside it; one of them must go", key));
    return *run_;
  }

  void check() {
    const Resources& resources = step_.resources;
    if (resources.min_nodes > resources.nodes) {
      error(step_.mark,
            fmt::format("'min_nodes' of {} is {} and 'nodes' {}; 'nodes' is the larger of the two",
                        step_.where, resources.min_nodes, resources.nodes));
    }
    const bool is_plugin = step_.kind == StepKind::plugin;
    if (step_.bundle > 0 && !reading_.study.samples)
      error(is_plugin ? step_.mark : place_of_key("bundle").mark_of("bundle"),
            is_plugin ? "a plugin needs a samples: block" : "'bundle' needs a samples: block");
    if (step_.trust_markers &&
        (step_.kind != StepKind::shell || step_.bundle > 0 || step_.output == OutputMode::packed)) {
      error(place_of_key("trust_markers").mark_of("trust_markers"),
            "'trust_markers' is for steps with run: whose samples have a directory and a MERLIN_FINISHED "
            "each: not with 'bundle' or 'output: packed'");
    }
  }

  Reading& reading_;
  StepBlock step_;
  MapReader reader_;
  std::optional<MapReader> run_;
  std::set<std::string, std::less<>> doubled_;  // keys that are both in run: and beside it
};

void check_name(Reading& reading, const Step& step) {
  if (step.name.empty()) return;
  const std::string directory = clean_path(step.name);
  std::string why;
  if (directory.empty() || directory == "." || directory == "..") why = "can't be the name of a directory";
  if (why.empty() && (directory == "merlin_info" || directory.starts_with(".")))
    why = "is a directory of wflow's own";
  if (why.empty() && directory == kIterationsDirectory && has_iterate(reading.root))
    why = "is the directory that iterate: puts its campaigns into";
  if (step.name.find('/') != std::string::npos) why = "becomes a directory and can hold no '/'";
  if (step.name.ends_with('*')) why = "ends in '*', which depends: has for all combinations of a step";
  if (find_token(step.name)) why = "must be the same for all parameters and samples";
  if (!why.empty())
    reading.diagnostics.error(step.mark, fmt::format("the step name '{}' {}", step.name, why));
}

void check_duplicates(Reading& reading) {
  std::map<std::string, const Step*> seen;
  for (const Step& step : reading.study.steps) {
    if (step.name.empty()) continue;
    const auto [at, fresh] = seen.emplace(clean_path(step.name), &step);
    if (fresh) continue;
    reading.diagnostics.error(
        step.mark, at->second->name == step.name
                       ? fmt::format("the step '{}' stands here twice; the first is in line {}", step.name,
                                     at->second->mark.line)
                       : fmt::format("the steps '{}' and '{}' would share the directory '{}'",
                                     at->second->name, step.name, at->first));
  }
  for (const Step& step : reading.study.steps) {
    const std::string closing = step.name + std::string(kManifestSuffix);
    if (step.kind == StepKind::convert && seen.contains(clean_path(closing))) {
      reading.diagnostics.error(
          step.mark,
          fmt::format("the step name '{}' is taken by the closing task of '{}'", closing, step.name));
    }
  }
}

// "a_*" and "a*" both name the step a, unless a step has exactly that name.
void name_funnels(Study& study) {
  const std::vector<std::string> names = step_names(study);
  const auto exists = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (Step& step : study.steps) {
    for (Dependency& dependency : step.depends) {
      if (!dependency.funnel) continue;
      dependency.step.pop_back();
      if (dependency.step.ends_with('_') && !exists(dependency.step)) dependency.step.pop_back();
    }
  }
}

}  // namespace

BlockTables step_tables() {
  config::Json run = run_table().schema();
  config::Json step = step_table().schema();
  // These keys are in run: or beside it. Merges them here, because few editors support unevaluatedProperties.
  for (config::Json* place : {&run, &step})
    (*place)["properties"].update(step_key_table().schema()["properties"]);
  for (const char* kind : {"run", "convert", "train", "plugin", "propose"})
    step["oneOf"].push_back({{"required", {kind}}});
  std::vector<config::Row> rows = run_table().rows();
  for (config::Row& row : step_key_table().rows()) rows.push_back(std::move(row));
  config::Json output = config::any_of({config::text_schema(), output_table().schema()});
  return {{{"run", std::move(run)},
           {"step", std::move(step)},
           {"output", std::move(output)},
           {"report", report_table().schema()}},
          {{"steps", std::move(rows)},
           {"steps.outputs", output_table().rows()},
           {"steps.report", report_table().rows()}}};
}

void read_steps(Reading& reading) {
  yaml::MapReader root(reading.root, "the study", reading.diagnostics);
  const yaml::Node* list = root.required("study");
  if (list == nullptr) return;
  if (!list->is_sequence()) {
    reading.diagnostics.error(list->mark,
                              "'study' must be a list of steps (- name: ...), found " + list->describe());
    return;
  }
  if (list->items.empty()) reading.diagnostics.error(list->mark, "'study' has no steps");
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const yaml::Node& node = list->items[i];
    if (node.is_null()) {
      reading.diagnostics.error(node.mark, fmt::format("the step number {} is empty", i + 1));
      continue;
    }
    Step step = StepReader(reading, node, i).read();
    check_name(reading, step);
    if (!step.name.empty()) reading.step_nodes.emplace(step.name, &node);
    reading.study.steps.push_back(std::move(step));
  }
  check_duplicates(reading);
  name_funnels(reading.study);
  add_block_dependencies(reading.study);
}

}  // namespace wflow::specs
