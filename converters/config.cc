// SPDX-License-Identifier: Apache-2.0
#include "converters/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "converters/formula.h"

namespace wflow::converters {

namespace {

const std::vector<std::string> kCompressions = {"gzip", "none", "auto"};
const std::vector<std::string> kOnMissing = {"skip", "fail"};
const std::vector<std::string> kOutputTypes = {"keep", "float32"};
const std::vector<std::string> kSplitOrders = {"hash", "count", "even"};

constexpr std::int64_t kMostSamples = std::int64_t{1} << 52;  // counts stay exact as doubles
constexpr int kMostDeflate = 12;                              // libdeflate's best level

template <typename Enum>
Enum choose(yaml::MapReader& reader, std::string_view key, Enum fallback,
            const std::vector<std::string>& choices) {
  return static_cast<Enum>(reader.choice(key, static_cast<std::size_t>(fallback), choices));
}

void read_source(yaml::MapReader& reader, ConvertConfig& config) {
  config.from = reader.string("from");
  config.samples = reader.string("samples");
  config.file = reader.string("file");
  config.bundle = static_cast<std::uint64_t>(reader.integer("bundle", 0, 1, kMostSamples));
  config.output = reader.string("output");
  auto& diagnostics = reader.diagnostics();
  if (config.from.empty() && config.samples.empty()) {
    diagnostics.error(reader.node().mark,
                      fmt::format("{} needs one of 'from' (a step of the study) and 'samples' (a "
                                  "CSV table of files)",
                                  reader.where()));
  } else if (!config.from.empty() && !config.samples.empty()) {
    diagnostics.error(reader.mark_of("samples"), "'from' and 'samples' exclude each other");
  } else if (!config.from.empty() && config.file.empty() && config.short_form) {
    diagnostics.error(reader.mark_of("from"),
                      "'from' needs the key 'file': the file's name in each sample's directory");
  } else if (!config.samples.empty() && !config.file.empty()) {
    diagnostics.error(reader.mark_of("file"),
                      "'file' belongs to 'from'; the table of 'samples' names its files itself");
  } else if (!config.samples.empty() && config.output.empty()) {
    diagnostics.error(reader.node().mark,
                      fmt::format("{} needs the key 'output': where the data set goes", reader.where()));
  }
}

std::vector<std::string> distinct_names(yaml::MapReader& reader, std::string_view key) {
  std::vector<std::string> names = reader.strings(key);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      reader.diagnostics().error(reader.mark_of(key), fmt::format("'{}' names '{}' twice", key, names[i]));
    }
  }
  return names;
}

// `file`, `dataset`, ... at top level.
void read_short_form(yaml::MapReader& reader, ConvertConfig& config) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  FieldConfig x;
  x.name = "x";
  read_selector(reader, x.selector);
  x.layout = reader.string("layout");
  if (const auto problem = layout_problem(x.layout)) {
    diagnostics.error(reader.mark_of("layout"), fmt::format("'layout' {}: {}", x.layout, *problem));
    x.layout.clear();
  }
  for (const std::int64_t length : reader.integers("shape", 1, std::int64_t{1} << 31))
    x.shape.push_back(static_cast<std::size_t>(std::max<std::int64_t>(length, 1)));
  if (!x.shape.empty() && !normal_shape(x.shape))
    diagnostics.error(reader.mark_of("shape"),
                      "'shape' has at most four axes: channels, depth, height, width");
  const auto ones = static_cast<std::size_t>(
      std::find_if(x.shape.begin(), x.shape.end(), [](std::size_t length) { return length != 1; }) - x.shape.begin());
  if (!x.layout.empty() && !x.shape.empty() &&
      (x.layout.size() > x.shape.size() || x.layout.size() + ones < x.shape.size())) {
    diagnostics.error(reader.mark_of("layout"), fmt::format("'layout' names {} axes, and 'shape' has {}",
                                                            x.layout.size(), x.shape.size()));
  }
  if (x.selector.format == Format::raw && x.selector.raw.shape.empty()) {
    if (x.shape.empty())
      diagnostics.error(reader.node().mark, "raw files need the key 'shape': [C, D, H, W]");
    x.selector.raw.shape = x.shape;
  }
  std::vector<std::string> targets = distinct_names(reader, "targets");
  x.channels = distinct_names(reader, "channels");
  x.units = reader.string("units");
  const auto shape = normal_shape(x.shape);
  if (!x.channels.empty() && !x.shape.empty() && x.layout.empty() && shape &&
      (*shape)[0] != x.channels.size()) {
    diagnostics.error(
        reader.mark_of("channels"),
        fmt::format("'channels' names {} channels, but 'shape' has {}; where it has no axis for them, "
                    "'layout' says which one that is, such as layout: CHW",
                    x.channels.size(), (*shape)[0]));
  }
  if (choose(reader, "dtype", 0, kOutputTypes) == 1) x.dtype = DType::float32;
  config.fields = short_fields(std::move(x), std::move(targets));
}

// A mapping of fields, or a list of parameters that makes one field of that name.
void read_role(yaml::MapReader& reader, const char* key, const char* list_name, Role role,
               ConvertConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) {
    reader.diagnostics().error(
        reader.node().mark,
        fmt::format("'inputs' and 'targets' go together: {} has no '{}'", reader.where(), key));
    return;
  }
  if (node->is_map()) {
    for (FieldConfig& field : read_fields(*node, role, reader.diagnostics()))
      config.fields.push_back(std::move(field));
    return;
  }
  FieldConfig list;
  list.name = list_name;
  list.role = role;
  list.from_parameters = true;
  list.vector = true;
  if (!(node->is_scalar() && (node->text == "parameters" || node->text == "all")))
    list.parameters = distinct_names(reader, key);
  config.fields.push_back(std::move(list));
}

void check_field_names(yaml::MapReader& reader, const ConvertConfig& config) {
  std::set<std::string_view> names;
  for (const FieldConfig& field : config.fields) {
    if (names.insert(field.name).second) continue;
    reader.diagnostics().error(
        reader.mark_of("targets"),
        fmt::format("the field '{}' is named twice; an input and a target need names of their own",
                    field.name));
  }
  for (const FieldConfig& field : config.fields) {
    if (!field.pad.empty() && names.contains(field.name + "_mask"))
      reader.diagnostics().error(
          reader.mark_of("inputs"),
          fmt::format("the mask of '{0}' is named '{0}_mask', as another field is", field.name));
  }
}

void read_mapping(yaml::MapReader& reader, ConvertConfig& config) {
  config.short_form = false;
  read_role(reader, "inputs", "x", Role::input, config);
  read_role(reader, "targets", "y", Role::target, config);
  check_field_names(reader, config);
  for (const char* key : {"dataset", "variable", "attribute", "columns", "regex", "match", "json", "slice",
                          "raw", "gadget", "shape", "layout", "channels", "units", "dtype", "format"}) {
    if (!reader.has(key)) continue;
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format("'{}' stands in each field where 'inputs' is given: inputs: {{density: {{{}: ...}}}}",
                    key, key));
  }
  const bool own_file = std::any_of(config.fields.begin(), config.fields.end(), [](const FieldConfig& f) {
    return !f.from_parameters && f.files.empty();
  });
  if (own_file && !config.from.empty() && config.file.empty()) {
    reader.diagnostics().error(reader.mark_of("inputs"),
                               "a field without 'file' is read from the sample's own file, which the key "
                               "'file' beside 'inputs' names");
  }
}

// A whole number is a count, any other number a fraction; 0 fits both.
struct Part {
  enum class Kind { absent, zero, count, fraction } kind = Kind::absent;
  double value = 0;
};

Part read_part(yaml::MapReader& reader, std::string_view key) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return {};
  const auto value = yaml::as_real(*node, key, reader.diagnostics());
  if (!value) return {};
  const bool whole = text::to_integer(node->text).has_value();
  const double most = whole ? static_cast<double>(kMostSamples) : 1;
  if (*value < 0 || *value > most) {
    reader.diagnostics().error(
        node->mark,
        fmt::format("'{}' must be a count, or a fraction between 0 and 1, found {}", key, node->text));
    return {};
  }
  if (*value == 0) return {Part::Kind::zero, 0};
  return {whole ? Part::Kind::count : Part::Kind::fraction, *value};
}

void read_parts(yaml::MapReader& split, SplitRequest& request) {
  std::array<Part, 3> parts;
  bool given = false;
  bool counts = false;
  bool fractions = false;
  for (std::size_t k = 0; k < 3; ++k) {
    parts[k] = read_part(split, kSplitNames[k]);
    given |= parts[k].kind != Part::Kind::absent;
    counts |= parts[k].kind == Part::Kind::count;
    fractions |= parts[k].kind == Part::Kind::fraction;
  }
  if (!given) return;
  if (counts && fractions) {
    split.diagnostics().error(split.node().mark,
                              "'split' mixes counts and fractions; use one kind for all parts");
    return;
  }
  request.fractions = !counts;
  if (counts) request.order = SplitOrder::count;
  for (std::size_t k = 0; k < 3; ++k) request.parts[k] = parts[k].value;
  // Without `test`, it gets the rest.
  if (!counts && parts[2].kind == Part::Kind::absent) {
    request.parts[2] = std::max(0.0, 1 - request.parts[0] - request.parts[1]);
  }
}

// stratify_by: COLUMN, or {column: sigma_8, edges: [0.7, 0.9]}.
void read_strata(yaml::MapReader& split, SplitRequest& request) {
  const yaml::Node* node = split.find("stratify_by");
  if (node == nullptr) return;
  if (node->is_map()) {
    yaml::MapReader strata(*node, "stratify_by:", split.diagnostics());
    strata.required("column");
    request.stratify_by = strata.string("column");
    request.stratify_edges = strata.reals("edges");
    if (!std::is_sorted(request.stratify_edges.begin(), request.stratify_edges.end()))
      split.diagnostics().error(strata.mark_of("edges"), "'edges' must rise");
    strata.finish();
  } else {
    request.stratify_by = split.string("stratify_by");
  }
  if (request.order == SplitOrder::count)
    split.diagnostics().error(
        node->mark,
        "'stratify_by' goes with fractions and order: hash; counts are exact for all samples together");
  if (!request.group_by.empty())
    split.diagnostics().error(node->mark, "'stratify_by' and 'group_by' exclude each other");
}

void read_split(yaml::MapReader& reader, ConvertConfig& config) {
  const yaml::Node* node = reader.find("split");
  if (node != nullptr) {
    yaml::MapReader split(*node, "the split: block", reader.diagnostics());
    config.split.seed = static_cast<std::uint64_t>(split.integer("seed", 1, 0, INT64_MAX));
    read_parts(split, config.split);
    const bool by_column = split.has("group_by") || split.has("stratify_by");
    const auto usual = by_column && config.split.fractions ? SplitOrder::hash : config.split.order;
    config.split.order = choose(split, "order", usual, kSplitOrders);
    if (config.split.order == SplitOrder::even && (by_column || !config.split.fractions)) {
      split.diagnostics().error(split.mark_of("order"),
                                by_column ? "order: even goes by the samples' numbers; 'group_by' and 'stratify_by' "
                                            "go with order: hash"
                                          : "order: even goes with fractions (train: 0.8); counts are exact, which is "
                                            "order: count");
    }
    if (!config.split.fractions && config.split.order == SplitOrder::hash) {
      split.diagnostics().error(
          split.mark_of("order"),
          "order: hash goes with fractions (train: 0.8); counts are exact, which is order: count");
    }
    config.split.group_by = split.string("group_by");
    if (!config.split.group_by.empty() && config.split.order == SplitOrder::count) {
      split.diagnostics().error(split.mark_of("group_by"),
                                "'group_by' keeps groups together by order: hash, which goes with fractions");
    }
    read_strata(split, config.split);
    split.finish();
  }
  if (config.split.order == SplitOrder::count && config.count == 0)
    return;  // the caller checks again when it knows the count
  if (const auto problem = split_problem(config.split, config.count, config.grown)) {
    reader.diagnostics().error(reader.mark_of("split"), "'split' does not fit: " + *problem);
  }
}

void read_drop_if(yaml::MapReader& reader, ConvertConfig& config) {
  for (const std::string& text : reader.strings("drop_if")) {
    try {
      Formula::parse(text);
      config.drop_if.push_back(text);
    } catch (const Error& error) {
      reader.diagnostics().error(reader.mark_of("drop_if"), error.what());
    }
  }
}

std::vector<std::uint64_t> rising(yaml::MapReader& reader, std::string_view key,
                                  const std::vector<std::int64_t>& numbers) {
  std::vector<std::uint64_t> counts;
  for (const std::int64_t count : numbers) {
    if (!counts.empty() && static_cast<std::uint64_t>(count) <= counts.back()) {
      reader.diagnostics().error(reader.mark_of(key), fmt::format("'{}' must rise", key));
      return {};
    }
    counts.push_back(static_cast<std::uint64_t>(count));
  }
  return counts;
}

void read_output(yaml::MapReader& reader, ConvertConfig& config) {
  config.check_finite = reader.boolean("check_finite", true);
  read_drop_if(reader, config);
  config.compression = choose(reader, "compression", Compression::gzip, kCompressions);
  config.level = static_cast<int>(reader.integer("level", 1, 1, kMostDeflate));
  config.shard_samples = static_cast<std::uint64_t>(reader.integer("shard_samples", 0, 1, kMostSamples));
  config.on_missing = choose(reader, "on_missing", OnMissing::skip, kOnMissing);
  config.max_missing = reader.real("max_missing", 0.5, 0, 1);
  config.delete_inputs = reader.boolean("delete_inputs", false);
  config.use_failed = reader.boolean("use_failed", false);
  config.external_files = reader.boolean("external_files", false);
  for (FieldConfig& field : config.fields) field.selector.external = config.external_files;
  if (config.use_failed && config.from.empty())
    reader.diagnostics().error(reader.mark_of("use_failed"),
                               "'use_failed' belongs to 'from': the rows of a table of 'samples' have no tasks");
  if (config.delete_inputs && config.stacked) {
    reader.diagnostics().error(
        reader.mark_of("delete_inputs"),
        "'delete_inputs' does not go with 'stacked': a file may hold samples of other blocks");
  }
  config.name = reader.string("name");
  config.count = static_cast<std::uint64_t>(reader.integer("count", 0, 1, kMostSamples));
  config.grown = rising(reader, "grown", reader.integers("grown", 1, kMostSamples));
  config.block_starts = rising(reader, "block_starts", reader.integers("block_starts", 1, kMostSamples));
}

}  // namespace

ConvertConfig read_convert_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  ConvertConfig config;
  yaml::MapReader reader(block, "the convert: block", diagnostics);
  config.short_form = !reader.has("inputs");
  if (const yaml::Node* targets = reader.find("targets"); targets != nullptr && targets->is_map())
    config.short_form = false;
  read_source(reader, config);
  config.stacked = reader.boolean("stacked", false);
  if (config.short_form) {
    read_short_form(reader, config);
  } else {
    read_mapping(reader, config);
  }
  read_output(reader, config);
  read_split(reader, config);
  reader.finish();
  return config;
}

namespace {

class Writer {
 public:
  void text(const char* key, const std::string& value) {
    if (!value.empty()) entries_.emplace_back(key, yaml::quoted(value));
  }
  void counts(const char* key, const std::vector<std::uint64_t>& values) {
    std::vector<yaml::Node> items;
    for (const std::uint64_t value : values) items.push_back(yaml::scalar(std::to_string(value)));
    if (!items.empty()) node(key, yaml::sequence(std::move(items)));
  }
  void plain(const char* key, std::string value) {
    entries_.emplace_back(key, yaml::scalar(std::move(value)));
  }
  void flag(const char* key, bool value) { plain(key, value ? "true" : "false"); }
  void positive(const char* key, std::uint64_t value) {
    if (value > 0) plain(key, fmt::to_string(value));
  }
  void texts(const char* key, const std::vector<std::string>& values) {
    if (values.empty()) return;
    std::vector<yaml::Node> items;
    for (const auto& value : values) items.push_back(yaml::quoted(value));
    entries_.emplace_back(key, yaml::sequence(std::move(items)));
  }
  void node(const char* key, yaml::Node value) { entries_.emplace_back(key, std::move(value)); }
  yaml::Node take() { return yaml::map(std::move(entries_)); }

 private:
  std::vector<std::pair<std::string, yaml::Node>> entries_;
};

template <typename Enum>
const std::string& word(Enum value, const std::vector<std::string>& choices) {
  return choices[static_cast<std::size_t>(value)];
}

yaml::Node shape_node(const std::vector<std::size_t>& shape) {
  std::vector<yaml::Node> items;
  for (const std::size_t length : shape) items.push_back(yaml::scalar(fmt::to_string(length)));
  return yaml::sequence(std::move(items));
}

std::string part_text(const SplitRequest& request, double value) {
  std::string text = text::from_real(value);
  if (!request.fractions) return fmt::to_string(static_cast<std::uint64_t>(value));
  return text::to_integer(text) ? text + ".0" : text;
}

yaml::Node split_node(const SplitRequest& request) {
  Writer split;
  for (std::size_t k = 0; k < 3; ++k)
    split.plain(kSplitNames[k].data(), part_text(request, request.parts[k]));
  split.plain("seed", fmt::to_string(request.seed));
  split.plain("order", word(request.order, kSplitOrders));
  split.text("group_by", request.group_by);
  if (!request.stratify_by.empty()) {
    Writer strata;
    strata.text("column", request.stratify_by);
    std::vector<yaml::Node> edges;
    for (const double edge : request.stratify_edges) edges.push_back(yaml::scalar(text::from_real(edge)));
    if (!edges.empty()) strata.node("edges", yaml::sequence(std::move(edges)));
    split.node("stratify_by", strata.take());
  }
  return split.take();
}

void write_short_form(Writer& out, const ConvertConfig& config) {
  const FieldConfig& x = config.fields.front();
  std::vector<std::pair<std::string, yaml::Node>> selector;
  write_selector(selector, x.selector);
  for (auto& [key, value] : selector) out.node(key.c_str(), std::move(value));
  out.text("layout", x.layout);
  if (!x.shape.empty()) out.node("shape", shape_node(x.shape));
  out.texts("targets", config.fields.back().parameters);
  out.texts("channels", x.channels);
  out.text("units", x.units);
  out.plain("dtype", x.dtype ? "float32" : "keep");
}

}  // namespace

yaml::Node to_yaml(const ConvertConfig& config) {
  Writer out;
  out.text("from", config.from);
  out.text("samples", config.samples);
  out.text("file", config.file);
  out.positive("bundle", config.bundle);
  if (config.stacked) out.flag("stacked", true);
  if (config.short_form) {
    write_short_form(out, config);
  } else {
    out.node("inputs", fields_to_yaml(config.fields, Role::input));
    out.node("targets", fields_to_yaml(config.fields, Role::target));
  }
  out.flag("check_finite", config.check_finite);
  out.texts("drop_if", config.drop_if);
  out.plain("compression", word(config.compression, kCompressions));
  out.plain("level", fmt::to_string(config.level));
  out.positive("shard_samples", config.shard_samples);
  out.node("split", split_node(config.split));
  out.plain("on_missing", word(config.on_missing, kOnMissing));
  out.plain("max_missing", text::from_real(config.max_missing));
  out.flag("delete_inputs", config.delete_inputs);
  if (config.use_failed) out.flag("use_failed", true);
  if (config.external_files) out.flag("external_files", true);
  out.text("output", config.output);
  out.text("name", config.name);
  out.positive("count", config.count);
  out.counts("grown", config.grown);
  out.counts("block_starts", config.block_starts);
  return out.take();
}

std::vector<FieldConfig> short_fields(FieldConfig x, std::vector<std::string> targets) {
  FieldConfig y;
  y.name = "y";
  y.role = Role::target;
  y.from_parameters = true;
  y.vector = true;
  y.parameters = std::move(targets);
  return {std::move(x), std::move(y)};
}

std::optional<std::vector<std::string>> parameter_columns(const ConvertConfig& config) {
  std::vector<std::string> columns;
  const auto add = [&](const std::string& name) {
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  };
  for (const FieldConfig& field : config.fields) {
    if (!field.from_parameters) continue;
    if (field.parameters.empty()) return std::nullopt;
    for (const std::string& name : field.parameters) add(name);
  }
  const auto add_variables = [&](const std::string& formula) {
    const Formula parsed = Formula::parse(formula);
    for (const std::string& variable : parsed.variables()) {
      const std::string name = split_variable(variable).name;
      const bool field = std::any_of(config.fields.begin(), config.fields.end(),
                                     [&](const auto& f) { return f.name == name; });
      if (!field) add(name);
    }
  };
  for (const std::string& formula : config.drop_if) add_variables(formula);
  for (const FieldConfig& field : config.fields) {
    for (const Transform& transform : field.transforms) {
      if (transform.kind != Transform::Kind::expression) continue;
      const Formula parsed = Formula::parse(transform.text);
      for (const std::string& name : parsed.variables()) {
        if (name != "x") add(name);
      }
    }
  }
  return columns;
}

std::optional<std::array<std::size_t, 4>> normal_shape(const std::vector<std::size_t>& shape) {
  std::size_t first = 0;
  while (shape.size() - first > 4 && shape[first] == 1) ++first;
  const std::size_t rank = shape.size() - first;
  if (rank == 0 || rank > 4 || std::find(shape.begin(), shape.end(), std::size_t{0}) != shape.end())
    return std::nullopt;
  std::array<std::size_t, 4> result = {1, 1, 1, 1};
  std::copy(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end(),
            result.end() - static_cast<std::ptrdiff_t>(rank));
  return result;
}

namespace {

// The bytes of a sample, if the configuration has the shapes of all fields that come from files.
std::optional<std::uint64_t> known_sample_bytes(const ConvertConfig& config) {
  std::uint64_t bytes = 0;
  for (const FieldConfig& field : config.fields) {
    if (field.from_parameters) continue;
    const auto& shape = !field.pad.empty() ? field.pad : field.shape;
    if (shape.empty()) return std::nullopt;
    std::uint64_t size = dtype_size(field.dtype.value_or(field.selector.raw.dtype));
    for (const std::size_t length : shape) {
      if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(length), &size)) return std::nullopt;
    }
    bytes += size;
  }
  if (bytes == 0) return std::nullopt;
  return bytes;
}

}  // namespace

std::uint64_t campaign_shard_samples(const ConvertConfig& config) {
  return shard_samples_of(config, std::numeric_limits<std::uint64_t>::max());
}

std::uint64_t shard_samples_of(const ConvertConfig& config, std::uint64_t count, std::uint64_t sample_bytes) {
  constexpr std::uint64_t kUnknownSize = 64;
  const std::uint64_t most = std::max<std::uint64_t>(count, 1);
  if (config.shard_samples > 0) return std::min(config.shard_samples, most);
  if (const auto known = known_sample_bytes(config)) sample_bytes = *known;
  const std::uint64_t wanted =
      sample_bytes == 0 ? kUnknownSize : std::max<std::uint64_t>(kShardBytes / sample_bytes, 1);
  return std::min(wanted, most);
}

Blocks blocks_of(const ConvertConfig& config) {
  return {config.shard_samples, config.block_starts};
}

}  // namespace wflow::converters
