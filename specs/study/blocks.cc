// SPDX-License-Identifier: Apache-2.0
#include "specs/study/blocks.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "converters/config.h"
#include "propose/config.h"
#include "specs/study/reading.h"
#include "trainer/config.h"

namespace wflow::specs {

std::string source_step(const Step& step) {
  if (step.kind == StepKind::shell || step.kind == StepKind::plugin) return {};
  const yaml::Node* node = step.settings.find(step.kind == StepKind::train ? "data" : "from");
  if (node == nullptr || !node->is_scalar() || node->text.find('/') != std::string::npos) return {};
  return node->text;
}

void add_block_dependencies(Study& study) {
  for (Step& step : study.steps) {
    const std::string source = source_step(step);
    const auto same = [&source](const Dependency& dependency) {
      return dependency.step == source && !dependency.funnel;
    };
    if (source.empty() || std::any_of(step.depends.begin(), step.depends.end(), same)) continue;
    step.depends.insert(step.depends.begin(), Dependency{source, false});
  }
}

namespace {

// Either it or a command must be there, which read_plugin() checks.
config::Key<PluginBlock> library_key() {
  config::Key<PluginBlock> key = config::required_text(
      "library", &PluginBlock::library,
      "the shared library, relative to the study's file. A name without `/` may also be in `lib/wflow` "
      "beside wflow's `bin`. It may contain variables and parameters");
  key.is_required = false;
  return std::move(key).usually("(needed without `command`)").unless_default();
}

const config::Table<PluginBlock>& plugin_table() {
  static const config::Table<PluginBlock> table(
      "the plugin: block",
      {library_key(),
       config::integer(
           "bundle", &PluginBlock::bundle, 1, kMostBundle,
           "samples per process, and rows per file. A bundle of tens of milliseconds of work is enough"),
       config::texts("parameters", &PluginBlock::parameters,
                     "columns of `samples:` that the function gets, in this order. They must be numbers")
           .usually("all"),
       config::boolean("check_finite", &PluginBlock::check_finite,
                       "a sample with NaN or infinity in its results has failed"),
       config::text("symbol", &PluginBlock::symbol, "the function that the library exports"),
       config::integer("seed", &PluginBlock::seed, 0, INT64_MAX,
                       "of a simulator that takes its [random draws from wflow](traces.md): its draws are a "
                       "function of the seed and the sample"),
       config::text("posterior", &PluginBlock::posterior,
                    "set by `wflow infer`: the file with the observation under which such a simulator runs")
           .unless_default(),
       config::text("command", &PluginBlock::command,
                    "in place of a library: a [program that speaks "
                    "PPX](traces.md#programs-that-speak-ppx-and-python), "
                    "for a shell. It finds the address in `$WFLOW_PPX_ADDRESS`")
           .unless_default(),
       config::text("directory", &PluginBlock::directory,
                    "where `command` runs, relative to the study's file")
           .usually("the study's folder")
           .unless_default()});
  return table;
}

}  // namespace

BlockTables plugin_tables() {
  return {{{"plugin", plugin_table().schema()}}, {{"plugin", plugin_table().rows()}}};
}

PluginBlock read_plugin(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  PluginBlock plugin;
  plugin_table().read(block, plugin, diagnostics);
  const bool has_library = block.find("library") != nullptr;
  if (!has_library && plugin.command.empty())
    diagnostics.error(block.mark, "the plugin: block has no 'library' and no 'command'");
  if (!has_library) plugin.library = kCommandLibrary;
  return plugin;
}

Block read_block(StepKind kind, const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  switch (kind) {
    case StepKind::shell:
      return {};
    case StepKind::convert:
      return converters::read_convert_config(block, diagnostics);
    case StepKind::train:
      return trainer::read_train_config(block, diagnostics);
    case StepKind::plugin:
      return read_plugin(block, diagnostics);
    case StepKind::propose:
      return propose::read_propose_config(block, diagnostics);
  }
  return {};
}

namespace {

struct ToYaml {
  yaml::Node operator()(std::monostate) const { return {}; }
  yaml::Node operator()(const converters::ConvertConfig& config) const { return converters::to_yaml(config); }
  yaml::Node operator()(const trainer::TrainConfig& config) const { return trainer::to_yaml(config); }
  yaml::Node operator()(const PluginBlock& plugin) const {
    yaml::Node node = plugin_table().write(plugin);
    set_key(node, "samples", yaml::quoted(to_json(plugin.samples).dump()));
    return node;
  }
  yaml::Node operator()(const propose::ProposeConfig& config) const { return propose::to_yaml(config); }
  yaml::Node operator()(const UnreadBlock& unread) const { return unread.block; }
};

const converters::ConvertConfig* conversion(const Step& step) {
  return std::get_if<converters::ConvertConfig>(&step.block);
}

}  // namespace

yaml::Node to_yaml(const Block& block) {
  return std::visit(ToYaml(), block);
}

RowColumns row_columns(const converters::ConvertConfig& config) {
  const auto columns = converters::parameter_columns(config);
  RowColumns result{!columns, columns.value_or(std::vector<std::string>{})};
  for (const std::string& column : {config.split.group_by, config.split.stratify_by}) {
    if (!column.empty() && std::ranges::find(result.names, column) == result.names.end())
      result.names.push_back(column);
  }
  return result;
}

std::vector<const yaml::Node*> convert_file_nodes(const yaml::Node& block) {
  std::vector<const yaml::Node*> nodes;
  const auto add = [&](const yaml::Node* node) {
    if (node == nullptr) return;
    if (node->is_scalar()) nodes.push_back(node);
    for (const yaml::Node& item : node->items) {
      if (item.is_scalar()) nodes.push_back(&item);
    }
  };
  add(block.find("file"));
  constexpr std::array kRoles = {"inputs", "targets"};
  for (const char* role : kRoles) {
    const yaml::Node* fields = block.find(role);
    if (fields == nullptr) continue;
    for (const auto& [name, field] : fields->entries) add(field.find("file"));
  }
  return nodes;
}

std::set<std::string> convert_files(const converters::ConvertConfig& config) {
  std::set<std::string> names;
  if (!config.file.empty()) names.insert(config.file);
  for (const converters::FieldConfig& field : config.fields)
    names.insert(field.files.begin(), field.files.end());
  return names;
}

std::uint64_t convert_block_samples(const Step& step) {
  return std::max<std::uint64_t>(1, converters::campaign_shard_samples(*conversion(step)));
}

std::optional<double> walltime_s(const LauncherKeys& keys) {
  const auto at = keys.find("walltime");
  return at == keys.end() ? std::nullopt : yaml::parse_seconds(at->second);
}

bool deletes_inputs(const Step& step) {
  return conversion(step) != nullptr && conversion(step)->delete_inputs;
}

bool uses_failed(const Step& step) {
  return conversion(step) != nullptr && conversion(step)->use_failed;
}

std::uint64_t known_block_bytes(const Step& step) {
  std::uint64_t bytes = 0;
  for (const converters::FieldConfig& field : conversion(step)->fields) {
    const converters::Selector& selector = field.selector;
    const auto& shape = selector.raw.shape.empty() ? field.shape : selector.raw.shape;
    if (field.from_parameters || selector.format != converters::Format::raw || shape.empty()) continue;
    std::uint64_t each = converters::dtype_size(selector.raw.dtype);
    for (const std::size_t length : shape) each *= length;
    bytes += each * std::max<std::size_t>(1, field.files.size());
  }
  return bytes * convert_block_samples(step);
}

bool leaves_samples_unused(const Step& step) {
  constexpr double kRounding = 1e-9;
  const converters::SplitRequest& split = conversion(step)->split;
  return split.fractions && split.parts[0] + split.parts[1] + split.parts[2] < 1 - kRounding;
}

std::uint64_t max_disk_bytes(const Study& study) {
  if (!study.expanded.is_map()) return 0;
  yaml::Diagnostics ignored("");  // reading the study has reported it all
  yaml::MapReader root(study.expanded, "the study", ignored);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(root.bytes("max_disk", 0), 0));
}

std::vector<propose::Bound> design_bounds(const SampleDesign& design) {
  constexpr std::array kBoxes = {DesignKind::uniform, DesignKind::latin_hypercube, DesignKind::sobol,
                                 DesignKind::halton};
  if (std::ranges::find(kBoxes, design.kind) == kBoxes.end()) return {};
  std::vector<propose::Bound> bounds;
  for (const SampleColumn& column : design.columns)
    bounds.push_back({column.name, column.low, column.high, column.log, column.integer});
  return bounds;
}

void set_key(yaml::Node& map, std::string_view key, yaml::Node value) {
  if (yaml::Node* old = map.find(key)) {
    *old = std::move(value);
  } else {
    map.kind = yaml::Kind::map;
    map.entries.emplace_back(yaml::scalar(std::string(key)), std::move(value));
  }
}

void set_counts(yaml::Node& map, std::string_view key, const std::vector<std::uint64_t>& counts) {
  std::vector<yaml::Node> items;
  for (const std::uint64_t count : counts) items.push_back(yaml::scalar(std::to_string(count)));
  if (!items.empty()) set_key(map, key, yaml::sequence(std::move(items)));
}

void remove_key(yaml::Node& map, std::string_view key) {
  std::erase_if(map.entries, [key](const auto& entry) { return entry.first.text == key; });
}

}  // namespace wflow::specs
