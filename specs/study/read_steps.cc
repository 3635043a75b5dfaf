// SPDX-License-Identifier: Apache-2.0
// study: the list of steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"

namespace wflow::specs {

namespace {

// Keys of run: that only go to a launcher's command line, or are accepted and not used (as in Maestro).
constexpr std::array<std::string_view, 20> kLauncherKeys = {"slurm",
                                                            "flux",
                                                            "lsf",
                                                            "walltime",
                                                            "reservation",
                                                            "exclusive",
                                                            "nested",
                                                            "qos",
                                                            "bind",
                                                            "num resource set",
                                                            "launch_distribution",
                                                            "exit_on_error",
                                                            "tasks per rs",
                                                            "rs per node",
                                                            "cpus per rs",
                                                            "bind gpus",
                                                            "pre",
                                                            "post",
                                                            "gpus per node",
                                                            "launch_args"};

constexpr int kMostPriority = 1000;
constexpr double kMostMemoryFactor = 64;

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

std::uint64_t read_extent(const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  const auto extent = yaml::as_integer(node, "shape", diagnostics);
  if (!extent || *extent > 0) return static_cast<std::uint64_t>(extent.value_or(1));
  diagnostics.error(node.mark, fmt::format("'shape' holds numbers from 1, found {}", *extent));
  return 1;
}

// An entry of outputs:, a path or a mapping.
StepOutput read_output(const yaml::Node& node, const std::string& where, yaml::Diagnostics& diagnostics) {
  StepOutput output;
  if (node.is_scalar() || node.is_null()) {
    output.file = node.text;
    if (output.file.empty()) diagnostics.error(node.mark, "an entry of outputs: of " + where + " is empty");
  } else {
    yaml::MapReader entry(node, "an entry of outputs: of " + where, diagnostics);
    output.file = entry.required_string("file");
    output.dataset = entry.string("dataset");
    if (const yaml::Node* shape = entry.find("shape")) {
      for (const yaml::Node& extent : shape->is_sequence() ? shape->items : std::vector<yaml::Node>{*shape})
        output.shape.push_back(read_extent(extent, diagnostics));
    }
    output.finite = entry.boolean("finite", false);
    entry.finish();
  }
  return output;
}

class StepReader {
 public:
  StepReader(Reading& reading, const yaml::Node& node, std::size_t index)
      : reading_(reading), index_(index), step_(node, title(node, index), reading.diagnostics) {}

  Step read() {
    Step step;
    step.mark = step_.node().mark;
    if (!step_.node().is_map()) return step;
    step.name = step_.required_string("name");
    if (!step_.node().is_null() && step_.has("name")) step.mark = step_.mark_of("name");
    step.description =
        reading_.study.merlin ? step_.required_string("description") : step_.string("description");
    read_kind(step);
    read_common(step);
    step_.finish();
    if (run_) run_->finish();
    return step;
  }

 private:
  static std::string title(const yaml::Node& node, std::size_t index) {
    const yaml::Node* name = node.is_map() ? node.find("name") : nullptr;
    if (name != nullptr && name->is_scalar() && !name->text.empty())
      return fmt::format("the step '{}'", name->text);
    return fmt::format("the step number {}", index + 1);
  }

  void read_kind(Step& step) {
    const yaml::Node* run = step_.find("run");
    const yaml::Node* convert = step_.find("convert");
    const yaml::Node* train = step_.find("train");
    const yaml::Node* plugin = step_.find("plugin");
    const int given = (run != nullptr) + (convert != nullptr) + (train != nullptr) + (plugin != nullptr);
    if (given != 1) {
      reading_.diagnostics.error(
          step.mark, fmt::format("{} {} of the keys run, convert, train and plugin", step_.where(),
                                 given == 0 ? "needs one" : "has more than one"));
    }
    if (run != nullptr) {
      run_.emplace(*run, "run: of " + step_.where(), reading_.diagnostics);
      step.command = run_->required_string("cmd");
      step.restart = run_->string("restart");
      step.shell = run_->string("shell", reading_.study.batch.shell);
      const yaml::Node* batch = reading_.root.find("batch");
      step.shell_given = run_->has("shell") || (batch != nullptr && batch->find("shell") != nullptr);
    } else if (convert != nullptr) {
      step.kind = StepKind::convert;
      step.settings = *convert;
    } else if (train != nullptr) {
      step.kind = StepKind::train;
      step.settings = *train;
    } else if (plugin != nullptr) {
      step.kind = StepKind::plugin;
      step.settings = *plugin;
      step.bundle = read_plugin(*plugin, reading_.diagnostics).bundle;
    }
  }

  // A key of run: may also be beside run:; for convert: and train: that is the only place.
  yaml::MapReader& home(std::string_view key) {
    const bool beside = step_.has(key);
    if (!run_ || !run_->has(key)) return step_;
    if (beside && doubled_.emplace(key).second) {
      reading_.diagnostics.error(step_.mark_of(key),
                                 fmt::format("'{}' stands in run: and beside it; one of them must go", key));
    }
    return *run_;
  }

  bool has(std::string_view key) { return home(key).has(key); }

  void read_common(Step& step) {
    read_depends(step);
    step.retry_failures = !reading_.study.merlin && has("max_retries");
    step.max_retries = static_cast<int>(home("max_retries").integer("max_retries", 30, 0, 1'000'000));
    step.retry_delay_s = home("retry_delay").seconds("retry_delay", 1);
    step.max_failures = read_max_failures();
    step.timeout_s = home("timeout").seconds("timeout", 0);
    step.stall_timeout_s = home("stall_timeout").seconds("stall_timeout", 0);
    step.trust_markers = home("trust_markers").boolean("trust_markers", false);
    step.task_queue = home("task_queue").string("task_queue", "merlin");
    Resources& resources = step.resources;
    resources.nodes = whole(step, "nodes", 1, 1);
    // In Merlin and Maestro the default is one process for any number of nodes.
    resources.procs = whole(step, "procs", reading_.study.merlin ? 1 : resources.nodes, 1);
    resources.min_nodes = whole(step, "min_nodes", 0, 1);
    resources.cores = either(step, "cores per task", "cores", 1, 1);
    resources.gpus = either(step, "gpus per task", "gpus", 0, 0);
    resources.memory_bytes = home("memory").bytes("memory", 0);
    step.retry_memory = read_retry_memory(resources.memory_bytes > 0);
    for (const std::string_view key : kLauncherKeys) {
      if (const yaml::Node* value = home(key).find(key))
        step.launcher_keys[std::string(key)] = value_text(*value);
    }
    read_batch(step);
    if (step.kind == StepKind::train) train_resources(step);
    if (resources.min_nodes > resources.nodes) {
      reading_.diagnostics.error(
          step.mark, fmt::format("'min_nodes' of {} is {} and 'nodes' {}; 'nodes' is the larger of the two",
                                 step_.where(), resources.min_nodes, resources.nodes));
    }
    if (has("continue_on"))
      step.continue_on = static_cast<ContinueOn>(home("continue_on").choice("continue_on", 0, kContinueOn));
    // In Maestro, a step does not run after a failed step.
    if (reading_.maestro() && !step.continue_on && step.kind != StepKind::convert)
      step.continue_on = ContinueOn::never;
    read_priority(step);
    read_when(step);
    read_processes(step);
  }

  // The type of its launcher, as in Merlin; or the word own, an allocation for this step only.
  void read_batch(Step& step) {
    const yaml::Node* batch = home("batch").find("batch");
    if (batch == nullptr || batch->is_null()) return;
    if (batch->is_scalar() && batch->text == "own") {
      step.own_allocation = true;
      return;
    }
    yaml::MapReader block(*batch, "batch: of " + step_.where(), reading_.diagnostics);
    if (batch->is_map()) step.launcher_keys["batch type"] = block.string("type");
    block.finish();
  }

  // The expression before its variables are replaced: their values must not be parsed as an expression.
  void read_when(Step& step) {
    yaml::MapReader& reader = home("when");
    step.when = reader.string("when");
    if (reader.has("when") && step.when.empty() && reader.find("when")->is_scalar())
      reading_.diagnostics.error(reader.mark_of("when"), "'when' is empty; an expression was expected");
    const yaml::Node* list = reading_.study.original.find("study");
    if (step.when.empty() || list == nullptr || index_ >= list->items.size()) return;
    const yaml::Node& original = list->items[index_];
    const yaml::Node* home_node = &reader == &step_ ? &original : original.find("run");
    const yaml::Node* when = home_node == nullptr ? nullptr : home_node->find("when");
    if (when != nullptr && when->is_scalar()) step.when = when->text;
  }

  // `2x`, or only the number: more than 1.
  double read_retry_memory(bool has_memory) {
    yaml::MapReader& reader = home("retry_memory");
    const yaml::Node* value = reader.find("retry_memory");
    if (value == nullptr) return 0;
    std::string_view number = value->is_scalar() ? text::trim(value->text) : std::string_view();
    if (number.ends_with("x")) number.remove_suffix(1);
    const auto factor = text::to_real(number);
    if (!factor || !(*factor > 1) || *factor > kMostMemoryFactor) {
      reading_.diagnostics.error(
          value->mark, fmt::format("'retry_memory' must be a factor above 1 and up to {}, as 2x; found {}",
                                   kMostMemoryFactor, value->describe()));
      return 0;
    }
    if (!has_memory)
      reading_.diagnostics.error(value->mark, "'retry_memory' needs 'memory', the amount that it multiplies");
    return *factor;
  }

  // `20`, `5 %`, or the word none.
  FailureLimit read_max_failures() {
    using Kind = FailureLimit::Kind;
    const yaml::Node* value = home("max_failures").find("max_failures");
    if (value == nullptr) return {};
    std::string_view written = value->is_scalar() ? text::trim(value->text) : std::string_view();
    if (written == "none") return {Kind::none, 0, 0};
    const bool percent = written.ends_with("%");
    if (percent) written = text::trim(written.substr(0, written.size() - 1));
    const auto number = percent ? text::to_real(written) : std::nullopt;
    const auto count = percent ? std::nullopt : text::to_integer(written);
    if (number && *number > 0 && *number <= 100) return {Kind::fraction, 0, *number / 100};
    if (count && *count > 0) return {Kind::count, static_cast<std::uint64_t>(*count), 0};
    reading_.diagnostics.error(
        value->mark,
        fmt::format("'max_failures' must be a whole number from 1, a part of the step's tasks as 5 %, "
                    "or none; found {}",
                    value->describe()));
    return {};
  }

  void read_priority(Step& step) {
    yaml::MapReader& reader = home("priority");
    const yaml::Node* value = reader.find("priority");
    if (value == nullptr) return;
    if (value->is_scalar() && text::to_integer(value->text)) {
      step.priority = static_cast<int>(reader.integer("priority", 0, -kMostPriority, kMostPriority));
      return;
    }
    std::vector<std::string> words;
    for (const auto& [word, number] : kPriorities) {
      if (value->is_scalar() && text::lower(value->text) == word) {
        step.priority = number;
        return;
      }
      words.emplace_back(word);
    }
    reading_.diagnostics.error(
        value->mark, fmt::format("'priority' must be a whole number from {} to {}, or one of {}; found {}{}",
                                 -kMostPriority, kMostPriority, text::join(words, ", "), value->describe(),
                                 text::suggestion(value->text, words)));
  }

  // How samples are assigned to processes, and the files that these write.
  void read_processes(Step& step) {
    for (const char* key : {"bundle", "output", "outputs"}) {
      if (!has(key) || step.kind == StepKind::shell) continue;
      reading_.diagnostics.error(home(key).mark_of(key), fmt::format("'{}' is for steps with run:", key));
    }
    if (step.kind != StepKind::plugin)
      step.bundle = static_cast<std::uint64_t>(home("bundle").integer("bundle", 0, 1, kMostBundle));
    if (step.bundle > 0 && !reading_.study.samples)
      reading_.diagnostics.error(step.kind == StepKind::plugin ? step.mark : home("bundle").mark_of("bundle"),
                                 step.kind == StepKind::plugin ? "a plugin needs a samples: block"
                                                               : "'bundle' needs a samples: block");
    step.output = static_cast<OutputMode>(home("output").choice("output", 0, kOutputModes));
    if (step.trust_markers &&
        (step.kind != StepKind::shell || step.bundle > 0 || step.output == OutputMode::packed)) {
      reading_.diagnostics.error(
          home("trust_markers").mark_of("trust_markers"),
          "'trust_markers' is for steps with run: whose samples have a directory and a "
          "MERLIN_FINISHED each: not with 'bundle' or 'output: packed'");
    }
    step.sources = home("sources").strings("sources");
    step.sources_off = step.sources == std::vector<std::string>{"none"};
    if (step.sources_off) step.sources.clear();
    check_sources(step);
    if (step.kind == StepKind::train) add_module(step);
    const yaml::Node* outputs = home("outputs").find("outputs");
    if (outputs == nullptr) return;
    for (const yaml::Node& item : outputs->is_sequence() ? outputs->items : std::vector<yaml::Node>{*outputs})
      step.outputs.push_back(read_output(item, step_.where(), reading_.diagnostics));
  }

  // Only for a study that will run: a campaign whose script is gone can still be displayed.
  void check_sources(const Step& step) {
    const ReadOptions& options = reading_.study.options;
    if (!options.campaign.empty() && !options.fresh_samples) return;
    for (const std::string& source : step.sources) {
      std::error_code error;
      const std::filesystem::path path = locate(reading_.study, source);
      if (find_token(source) || std::filesystem::exists(path, error) || is_cloned(path)) continue;
      reading_.diagnostics.error(home("sources").mark_of("sources"),
                                 fmt::format("{} has the source {}, which does not exist ({})", step_.where(), source,
                                             path.string()));
    }
  }

  // The file comes with a repository that is cloned when the campaign starts.
  bool is_cloned(const std::filesystem::path& path) const {
    return std::ranges::any_of(reading_.study.git, [&](const GitDependency& git) {
      const std::string folder = (std::filesystem::path(git.path) / git.name).lexically_normal().string() + "/";
      return path.string().starts_with(folder);
    });
  }

  // A network that the user has exported belongs to the training as a script belongs to a simulation.
  static void add_module(Step& step) {
    const std::string file = trainer::module_file(step.settings);
    if (file.empty() || std::ranges::find(step.sources, file) != step.sources.end()) return;
    step.sources.push_back(file);
  }

  // A number that may be a parameter's value, which is known only for each combination.
  int whole(Step& step, std::string_view key, int fallback, int least) {
    yaml::MapReader& reader = home(key);
    const yaml::Node* value = reader.find(key);
    if (value == nullptr) return fallback;
    step.launcher_keys[std::string(key)] = value_text(*value);
    if (value->is_scalar() && find_token(value->text)) return fallback;
    return static_cast<int>(reader.integer(key, fallback, least, 10'000'000));
  }

  int either(Step& step, std::string_view merlins, std::string_view ours, int fallback, int least) {
    const int first = whole(step, merlins, fallback, least);
    // Merlin has only the first key, and Maestro's GPUs are the second.
    const bool second = has(ours) && !(reading_.study.format.dialect == Dialect::merlin && has(merlins));
    const int value = whole(step, ours, first, least);
    return second ? value : first;
  }

  void train_resources(Step& step) {
    const auto number = [&](std::string_view key, int fallback) {
      const yaml::Node* value = step.settings.find(key);
      const auto found =
          value != nullptr && value->is_scalar() ? text::to_integer(value->text) : std::nullopt;
      return found && *found > 0 && *found < 10'000'000 ? static_cast<int>(*found) : fallback;
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

  void read_depends(Step& step) {
    const yaml::Node* list = home("depends").find("depends");
    std::vector<std::string> names = home("depends").strings("depends");
    std::set<std::string> seen;
    for (const std::string& name : names) {
      if (name.empty()) continue;
      Dependency dependency{name, name.ends_with('*')};
      if (!seen.insert(name).second) {
        reading_.diagnostics.error(list->mark, fmt::format("{} depends on '{}' twice", step_.where(), name));
        continue;
      }
      step.depends.push_back(std::move(dependency));
    }
  }

  Reading& reading_;
  std::size_t index_;
  yaml::MapReader step_;
  std::optional<yaml::MapReader> run_;
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
