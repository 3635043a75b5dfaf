// SPDX-License-Identifier: Apache-2.0
// Checks of the study as a whole: dependencies that do not exist or form a cycle, and the blocks of other
// modules, read as on the workers.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/study.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"

namespace wflow::specs {

namespace {

// The entry of depends:, from: or data: that names `name`.
yaml::Mark dependency_mark(const Reading& reading, const Step& step, const std::string& name) {
  const auto at = reading.step_nodes.find(step.name);
  if (at == reading.step_nodes.end()) return step.mark;
  yaml::Mark mark = step.mark;
  const auto look = [&](const yaml::Node* node) {
    if (node == nullptr) return;
    for_each_scalar(*node, [&](const yaml::Node& scalar, bool) {
      const bool funnel = scalar.text.starts_with(name) && scalar.text.ends_with('*');
      if (scalar.text == name || (funnel && scalar.text.size() <= name.size() + 2)) mark = scalar.mark;
    });
  };
  const yaml::Node* run = at->second->find("run");
  look(run == nullptr ? nullptr : run->find("depends"));
  look(at->second->find("depends"));
  if (step.kind == StepKind::convert) look(step.settings.find("from"));
  if (step.kind == StepKind::propose) look(step.settings.find("from"));
  if (step.kind == StepKind::train) look(step.settings.find("data"));
  return mark;
}

// A cycle of dependencies reachable from `from`, as indices; empty without one. Iterative: a chain of steps
// may be longer than the stack.
class CircleFinder {
 public:
  explicit CircleFinder(const std::vector<std::vector<std::size_t>>& parents)
      : parents_(parents), state_(parents.size(), State::fresh) {}

  std::vector<std::size_t> find(std::size_t from) {
    struct Frame {
      std::size_t step;
      std::size_t next;
    };
    std::vector<Frame> path;
    if (state_[from] == State::fresh) push(path, from);
    while (!path.empty()) {
      Frame& top = path.back();
      if (top.next == parents_[top.step].size()) {
        state_[top.step] = State::done;
        path.pop_back();
        continue;
      }
      const std::size_t parent = parents_[top.step][top.next++];
      if (state_[parent] == State::open) {
        std::vector<std::size_t> circle;
        for (const Frame& frame : path) {
          if (!circle.empty() || frame.step == parent) circle.push_back(frame.step);
        }
        for (const Frame& frame : path) state_[frame.step] = State::done;
        return circle;
      }
      if (state_[parent] == State::fresh) push(path, parent);
    }
    return {};
  }

 private:
  enum class State { fresh, open, done };
  template <typename Path>
  void push(Path& path, std::size_t step) {
    state_[step] = State::open;
    path.push_back({step, 0});
  }

  const std::vector<std::vector<std::size_t>>& parents_;
  std::vector<State> state_;
};

void report_circle(Reading& reading, std::vector<std::size_t> circle) {
  const Study& study = reading.study;
  // Starts at the first step of the cycle in the study, so that the message does not depend on the order of
  // the search.
  std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
  std::vector<std::string> names;
  for (const std::size_t step : circle) names.push_back(study.steps[step].name);
  names.push_back(names.front());
  const Step& first = study.steps[circle.front()];
  reading.diagnostics.error(dependency_mark(reading, first, names[1]),
                            fmt::format("these steps wait for each other: {}", text::join(names, " -> ")));
}

}  // namespace

void check_dependencies(Reading& reading) {
  const Study& study = reading.study;
  const std::vector<std::string> names = step_names(study);
  std::map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < names.size(); ++i) index.emplace(names[i], i);
  std::vector<std::vector<std::size_t>> parents(names.size());
  for (std::size_t i = 0; i < study.steps.size(); ++i) {
    const Step& step = study.steps[i];
    for (const Dependency& dependency : step.depends) {
      const auto at = index.find(dependency.step);
      if (at != index.end()) {
        parents[i].push_back(at->second);
        continue;
      }
      reading.diagnostics.error(
          dependency_mark(reading, step, dependency.step),
          fmt::format("the step '{}' depends on '{}', which is not in the study{}", step.name,
                      dependency.step, text::suggestion(dependency.step, names)));
    }
  }
  CircleFinder finder(parents);
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto circle = finder.find(i);
    if (!circle.empty()) report_circle(reading, std::move(circle));
  }
}

namespace {

// The block as the worker reads it for the first existing combination.
ResolvedBlock first_block(const Expansion& expansion, std::size_t index) {
  const std::uint32_t row = expansion.count(index) > 0 ? expansion.row(index, 0) : 0;
  return expansion.block("/campaign", index, row);
}

// Reads the block with all diagnostics. The step keeps the value if no combination has another one.
Block check_block(Reading& reading, std::size_t index, const ResolvedBlock& resolved) {
  Step& step = reading.study.steps[index];
  Block block = read_block(step.kind, resolved.node, reading.diagnostics);
  if (!resolved.has_values) step.block = block;
  return block;
}

// A step whose block depends on parameters, or was refused, keeps the values that can be read all the same.
void keep_block(Step& step) {
  yaml::Diagnostics ignored("");
  if (step.block.index() == 0) step.block = read_block(step.kind, step.settings, ignored);
  step.block_is_whole = !ignored.has_errors();
}

// The place of a name, as a key or a value.
std::optional<yaml::Mark> place_of_name(const yaml::Node& node, std::string_view name) {
  if (node.is_scalar() && node.text == name) return node.mark;
  for (const yaml::Node& item : node.items) {
    if (const auto mark = place_of_name(item, name)) return mark;
  }
  for (const auto& [key, value] : node.entries) {
    if (const auto mark = place_of_name(value, name)) return mark;
    if (key.text == name) return key.mark;
  }
  return std::nullopt;
}

void check_convert(Reading& reading, const Expansion& expansion, std::size_t index) {
  const Study& study = reading.study;
  const Step& step = study.steps[index];
  ResolvedBlock resolved = first_block(expansion, index);
  yaml::Node& block = resolved.node;
  const yaml::Node* from = block.find("from");
  const auto mark_of = [&](std::string_view key) {
    const yaml::Node* node = step.settings.find(key);
    return node != nullptr && node->mark.line > 0 ? node->mark : step.settings.mark;
  };
  if (from == nullptr || source_step(step).empty()) {
    if (block.is_map()) {
      reading.diagnostics.error(mark_of("from"),
                                fmt::format("convert: of the step '{}' needs the key 'from', the name of "
                                            "the step whose output is converted",
                                            step.name));
    }
    return;
  }
  for (const std::string_view key : {"samples", "output", "count", "bundle"}) {
    if (block.find(key) == nullptr) continue;
    reading.diagnostics.error(
        mark_of(key), fmt::format("'{}' belongs to wflow-convert alone; a campaign sets it itself", key));
    remove_key(block, key);
  }
  const std::size_t source = *expansion.step_index(source_step(step));
  const StepKind source_kind = study.steps[source].kind;
  const bool simulates = source_kind == StepKind::shell || source_kind == StepKind::plugin;
  if (!simulates || !expansion.sample_dependent(source)) {
    reading.diagnostics.error(
        mark_of("from"),
        fmt::format("the step '{}' does not run once a sample, so that it has nothing to convert; "
                    "use a column of samples: or $(MERLIN_SAMPLE_ID) in its cmd",
                    source_step(step)));
    return;
  }
  const yaml::Node* stacked = block.find("stacked");
  const std::vector<const yaml::Node*> files = convert_file_nodes(block);
  const auto shared = std::find_if(files.begin(), files.end(), [](const yaml::Node* file) {
    return file->text.find("$(MERLIN_SAMPLE_ID)") == std::string::npos;
  });
  if (source_kind == StepKind::shell && study.steps[source].bundle > 0 && shared != files.end() &&
      stacked == nullptr) {
    reading.diagnostics.error(
        (*shared)->mark.line > 0 ? (*shared)->mark : mark_of("file"),
        fmt::format(
            "a process of the step '{}' makes '{}' for several samples (bundle: {}); put $(MERLIN_SAMPLE_ID) "
            "into the name where each has a file, or write 'stacked: true' where it is an array of them",
            source_step(step), (*shared)->text, study.steps[source].bundle));
  }
  const std::uint64_t count = study.samples->design.count;
  if (count > 0) set_key(block, "count", yaml::scalar(std::to_string(count)));
  set_counts(block, "grown", study.samples->design.grown);
  const auto convert = std::get<converters::ConvertConfig>(check_block(reading, index, resolved));
  std::vector<std::string> columns;
  for (const SampleColumn& column : study.samples->design.columns) columns.push_back(column.name);
  for (const std::string& name : row_columns(convert).names) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) continue;
    const auto mark = convert.short_form ? mark_of("targets")
                                         : place_of_name(step.settings, name).value_or(mark_of("targets"));
    reading.diagnostics.error(mark, fmt::format("the {} '{}' is no column of the samples{}",
                                                convert.short_form ? "target" : "parameter", name,
                                                text::suggestion(name, columns)));
  }
}

// No other step may read files that a conversion deletes.
void check_deletion(Reading& reading, std::size_t index) {
  const Study& study = reading.study;
  const Step& step = study.steps[index];
  const yaml::Node* key = step.settings.find("delete_inputs");
  const std::string source = source_step(step);
  if (key == nullptr || !deletes_inputs(step) || source.empty()) return;
  const auto from = std::ranges::find(study.steps, source, &Step::name);
  if (from != study.steps.end() && from->kind == StepKind::plugin) {
    reading.diagnostics.error(
        key->mark,
        fmt::format("'{}' can't delete the files of the plugin '{}': one holds a bundle, which may belong to "
                    "several blocks; leave out 'delete_inputs'",
                    step.name, source));
    return;
  }
  if (reading.root.find("max_disk") != nullptr && leaves_samples_unused(step)) {
    const yaml::Node* split = step.settings.find("split");
    reading.diagnostics.error(
        split == nullptr ? key->mark : split->mark,
        "with 'max_disk' every sample must belong to a part of the split: the files of the others "
        "would never be deleted");
  }
  const auto waits_for = [](const Step& other, const std::string& name) {
    return std::any_of(other.depends.begin(), other.depends.end(),
                       [&](const Dependency& dependency) { return dependency.step == name; });
  };
  for (const Step& other : study.steps) {
    if (other.name == step.name) continue;
    const bool converts = other.kind == StepKind::convert && source_step(other) == source;
    const bool reads = converts || waits_for(other, source) ||
                       mentions(other.command, source + ".workspace") ||
                       mentions(other.restart, source + ".workspace");
    if (!reads || (waits_for(other, step.name) && !converts)) continue;
    reading.diagnostics.error(
        key->mark,
        fmt::format("'{0}' would delete files of '{1}' which the step '{2}' may still read; leave out "
                    "'delete_inputs'{3}",
                    step.name, source, other.name,
                    converts ? std::string()
                             : fmt::format(", or let '{0}' depend on '{1}' if it reads none of them",
                                           other.name, step.name)));
    return;
  }
}

// max_disk is for simulations whose files a conversion deletes.
void check_max_disk_is_of_use(Reading& reading) {
  const Study& study = reading.study;
  const yaml::Node* key = reading.root.find("max_disk");
  if (key == nullptr) return;
  if (std::none_of(study.steps.begin(), study.steps.end(), deletes_inputs)) {
    reading.diagnostics.error(
        key->mark,
        "'max_disk' needs a convert: step with 'delete_inputs: true', which makes room on "
        "the disk");
  }
  yaml::Diagnostics ignored("");  // check_max_disk() has reported it
  const std::int64_t limit = yaml::MapReader(reading.root, "the study", ignored).bytes("max_disk", 0);
  for (const Step& step : study.steps) {
    const std::uint64_t block = deletes_inputs(step) ? known_block_bytes(step) : 0;
    if (limit <= 0 || block <= static_cast<std::uint64_t>(limit)) continue;
    reading.diagnostics.warning(
        key->mark,
        fmt::format(
            "a block of '{}' takes {}, more than 'max_disk': one block at a time is simulated all the "
            "same, since none can be converted before it is whole; 'shard_samples' makes blocks smaller",
            step.name, text::format_bytes(block)));
  }
}

void check_train(Reading& reading, const Expansion& expansion, std::size_t index) {
  const Study& study = reading.study;
  const Step& step = study.steps[index];
  if (const auto rung = search_rung(step); rung && rung->step != step.name)
    return;  // the last rung is checked for all
  if (const auto part = tournament_part(step); part && !part->ranks) return;        // so is the ranking
  if (const auto follow = follow_stage(step); follow && follow->stage > 0) return;  // the last training is
  check_search(reading, expansion, index);
  const ResolvedBlock resolved = first_block(expansion, index);
  const yaml::Node& block = resolved.node;
  check_block(reading, index, resolved);
  std::error_code ignored;
  for (const yaml::Node& file : trainer::module_files(block)) {
    const auto path = locate(study, file.text);
    if (!std::filesystem::is_regular_file(path, ignored))
      reading.diagnostics.error(file.mark, fmt::format("there is no TorchScript file {}", path.string()));
  }
  const yaml::Node* data = block.find("data");
  if (data == nullptr || !data->is_scalar() || data->text.empty()) return;
  const std::string source = source_step(step);
  if (source.empty()) {
    const auto manifest = locate(study, data->text) / "manifest.json";
    if (!std::filesystem::exists(manifest, ignored)) {
      reading.diagnostics.error(data->mark, fmt::format("there is no data set in {} (no manifest.json)",
                                                        manifest.parent_path().string()));
    }
    return;
  }
  if (study.steps[*expansion.step_index(source)].kind != StepKind::convert) {
    reading.diagnostics.error(
        data->mark,
        fmt::format("the step '{}' is no convert: step, so that it makes no training data", source));
  }
}

void check_plugin(Reading& reading, const Expansion& expansion, std::size_t index) {
  const Study& study = reading.study;
  const ResolvedBlock resolved = first_block(expansion, index);
  const yaml::Node& block = resolved.node;
  const yaml::Node* library = block.find("library");
  if (library == nullptr && block.find("command") == nullptr) return;
  if (library != nullptr && (!library->is_scalar() || library->text.empty())) return;
  if (!study.samples) return;
  std::error_code ignored;
  const auto path = locate_library(study, library == nullptr ? kCommandLibrary : library->text);
  if (!std::filesystem::is_regular_file(path, ignored))
    reading.diagnostics.error(library == nullptr ? block.mark : library->mark,
                              fmt::format("there is no library {}", path.string()));
  std::vector<std::string> columns;
  for (const SampleColumn& column : study.samples->design.columns) columns.push_back(column.name);
  const yaml::Node* list = block.find("parameters");
  if (list == nullptr) return;
  yaml::Diagnostics reported("");
  const Block plugin =
      resolved.has_values ? read_block(StepKind::plugin, block, reported) : study.steps[index].block;
  for (const std::string& name : std::get<PluginBlock>(plugin).parameters) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) continue;
    reading.diagnostics.error(list->mark, fmt::format("the parameter '{}' is no column of the samples{}",
                                                      name, text::suggestion(name, columns)));
  }
}

// Keys of a block that only a program without a campaign reads, or that the campaign sets.
void refuse_keys_of_the_program(Reading& reading, const yaml::Node& block) {
  for (const std::string_view key : {"known", "output", "previous", "event"}) {
    if (const yaml::Node* node = block.find(key))
      reading.diagnostics.error(
          node->mark, fmt::format("'{}' belongs to wflow propose alone; a campaign sets it itself", key));
  }
}

// The source of a propose: step must leave a directory for each sample.
void check_propose_source(Reading& reading, const Expansion& expansion, const Step& step) {
  const auto index = expansion.step_index(source_step(step));
  const yaml::Node* from = step.settings.find("from");
  if (!index) {  // an unknown step has been reported
    reading.diagnostics.error(
        from == nullptr ? step.settings.mark : from->mark,
        fmt::format("propose: of the step '{}' needs the key 'from', the name of the step "
                    "whose samples have the values",
                    step.name));
    return;
  }
  const Step& source = reading.study.steps[*index];
  std::string why;
  if (!expansion.sample_dependent(*index))
    why = "does not run once a sample; use a column of samples: in its cmd";
  if (source.kind != StepKind::shell || source.bundle > 0 || source.output == OutputMode::packed)
    why =
        "has no directory for each sample; 'from' is a step with run:, without 'bundle' and 'output: packed'";
  if (!why.empty()) reading.diagnostics.error(from->mark, fmt::format("the step '{}' {}", source.name, why));
}

// The bounds name the columns of the samples: the table of the next iteration is in their order.
void check_bounds(Reading& reading, const Step& step, const propose::ProposeConfig& config) {
  const yaml::Node* key = step.settings.find("bounds");
  const SampleDesign& design = reading.study.samples->design;
  if (config.bounds.empty()) {
    if (reading.options.iteration.number > 1 || !design_bounds(design).empty()) return;
    reading.diagnostics.error(
        step.settings.mark,
        fmt::format("propose: of the step '{}' needs 'bounds', because samples: of the design "
                    "{} have no ranges",
                    step.name, name_of(design.kind)));
    return;
  }
  std::vector<std::string> named;
  for (const propose::Bound& bound : config.bounds) named.push_back(bound.name);
  if (named == column_names(design)) return;
  reading.diagnostics.error(
      key == nullptr ? step.settings.mark : key->mark,
      fmt::format("'bounds' must have the columns of samples: in their order: {}; found {}",
                  text::join(column_names(design), ", "), text::join(named, ", ")));
}

void check_propose(Reading& reading, const Expansion& expansion, std::size_t index) {
  const Step& step = reading.study.steps[index];
  refuse_keys_of_the_program(reading, step.settings);
  const Block block = check_block(reading, index, first_block(expansion, index));
  if (!reading.study.samples) {
    reading.diagnostics.error(step.settings.mark, "a propose: step needs a samples: block");
    return;
  }
  check_propose_source(reading, expansion, step);
  check_bounds(reading, step, std::get<propose::ProposeConfig>(block));
}

}  // namespace

void check_blocks(Reading& reading, const Expansion& expansion) {
  for (std::size_t i = 0; i < reading.study.steps.size(); ++i) {
    if (reading.study.steps[i].kind == StepKind::convert) check_convert(reading, expansion, i);
    if (reading.study.steps[i].kind == StepKind::train) check_train(reading, expansion, i);
    if (reading.study.steps[i].kind == StepKind::plugin) check_plugin(reading, expansion, i);
    if (reading.study.steps[i].kind == StepKind::propose) check_propose(reading, expansion, i);
    keep_block(reading.study.steps[i]);
    check_deletion(reading, i);
  }
  check_max_disk_is_of_use(reading);
  if (!reading.diagnostics.has_errors()) check_trainings(reading.study, reading.diagnostics);
}

}  // namespace wflow::specs
