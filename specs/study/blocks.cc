// SPDX-License-Identifier: Apache-2.0
#include "specs/study/blocks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "converters/config.h"
#include "specs/study/key_tables.h"
#include "trainer/config.h"

namespace wflow::specs {

std::string source_step(const Step& step) {
  if (step.kind == StepKind::shell || step.kind == StepKind::plugin) return {};
  const yaml::Node* node = step.settings.find(step.kind == StepKind::convert ? "from" : "data");
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

const config::Table<PluginBlock>& plugin_table() {
  static const config::Table<PluginBlock> table(
      "the plugin: block",
      {config::required_text(
           "library", &PluginBlock::library,
           "the shared library, relative to the study's file. A name without `/` may also be in `lib/wflow` "
           "beside wflow's `bin`. It may contain variables and parameters"),
       config::integer(
           "bundle", &PluginBlock::bundle, 1, kMostBundle,
           "samples per process, and rows per file. A bundle of tens of milliseconds of work is enough"),
       config::texts("parameters", &PluginBlock::parameters,
                     "columns of `samples:` that the function gets, in this order. They must be numbers")
           .usually("all"),
       config::boolean("check_finite", &PluginBlock::check_finite,
                       "a sample with NaN or infinity in its results has failed"),
       config::text("symbol", &PluginBlock::symbol, "the function that the library exports")});
  return table;
}

}  // namespace

BlockTables plugin_tables() {
  return {{{"plugin", plugin_table().schema()}}, {{"plugin", plugin_table().rows()}}};
}

PluginBlock read_plugin(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  PluginBlock plugin;
  plugin_table().read(block, plugin, diagnostics);
  return plugin;
}

ConvertBlock read_convert(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  converters::ConvertConfig config = converters::read_convert_config(block, diagnostics);
  const auto columns = converters::parameter_columns(config);
  ConvertBlock result{
      std::move(config.file), !config.short_form, config.stacked,
      config.bundle,          !columns,           columns.value_or(std::vector<std::string>{})};
  for (const std::string& column : {config.split.group_by, config.split.stratify_by}) {
    if (!column.empty() &&
        std::find(result.columns.begin(), result.columns.end(), column) == result.columns.end())
      result.columns.push_back(column);
  }
  return result;
}

std::string_view left_out_column() {
  return converters::kLeftOutColumn;
}

void check_block(StepKind kind, const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  if (kind == StepKind::convert) converters::read_convert_config(block, diagnostics);
  if (kind == StepKind::train) trainer::read_train_config(block, diagnostics);
}

namespace {

converters::ConvertConfig quiet_config(const yaml::Node& block) {
  yaml::Diagnostics ignored("");  // check_block() has reported it all
  return converters::read_convert_config(block, ignored);
}

}  // namespace

ConvertBlock quiet_convert(const yaml::Node& block) {
  yaml::Diagnostics ignored("");
  return read_convert(block, ignored);
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

std::uint64_t convert_block_samples(const yaml::Node& block) {
  return std::max<std::uint64_t>(1, converters::campaign_shard_samples(quiet_config(block)));
}

std::optional<double> walltime_s(const LauncherKeys& keys) {
  const auto at = keys.find("walltime");
  return at == keys.end() ? std::nullopt : yaml::parse_seconds(at->second);
}

bool deletes_inputs(const Step& step) {
  return step.kind == StepKind::convert && quiet_config(step.settings).delete_inputs;
}

bool uses_failed(const Step& step) {
  return step.kind == StepKind::convert && quiet_config(step.settings).use_failed;
}

std::uint64_t known_block_bytes(const yaml::Node& block) {
  const converters::ConvertConfig config = quiet_config(block);
  std::uint64_t bytes = 0;
  for (const converters::FieldConfig& field : config.fields) {
    const converters::Selector& selector = field.selector;
    const auto& shape = selector.raw.shape.empty() ? field.shape : selector.raw.shape;
    if (field.from_parameters || selector.format != converters::Format::raw || shape.empty()) continue;
    std::uint64_t each = converters::dtype_size(selector.raw.dtype);
    for (const std::size_t length : shape) each *= length;
    bytes += each * std::max<std::size_t>(1, field.files.size());
  }
  return bytes * convert_block_samples(block);
}

bool leaves_samples_unused(const yaml::Node& block) {
  constexpr double kRounding = 1e-9;
  const converters::SplitRequest split = quiet_config(block).split;
  return split.fractions && split.parts[0] + split.parts[1] + split.parts[2] < 1 - kRounding;
}

std::uint64_t max_disk_bytes(const Study& study) {
  if (!study.expanded.is_map()) return 0;
  yaml::Diagnostics ignored("");  // reading the study has reported it all
  yaml::MapReader root(study.expanded, "the study", ignored);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(root.bytes("max_disk", 0), 0));
}

void keep_hash_split(yaml::Node& convert) {
  if (quiet_config(convert).split.order != converters::SplitOrder::even) return;
  yaml::Node* split = convert.find("split");
  if (split == nullptr || split->is_null()) {
    set_key(convert, "split", yaml::map({{"order", yaml::scalar("hash")}}));
  } else if (split->is_map() && split->find("order") == nullptr) {
    set_key(*split, "order", yaml::scalar("hash"));
  }
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
