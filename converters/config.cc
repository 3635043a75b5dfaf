// SPDX-License-Identifier: Apache-2.0
#include "converters/config.h"
#include "converters/config_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
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

bool is_short(const ConvertConfig& config) {
  return config.short_form;
}
bool is_mapping(const ConvertConfig& config) {
  return !config.short_form;
}

void check_source(yaml::MapReader& reader, ConvertConfig& config) {
  auto& diagnostics = reader.diagnostics();
  const yaml::Node* output = reader.find("output");
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
  } else if (!config.samples.empty() && (output == nullptr || output->text.empty())) {
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

// `x` of the short form; of a configuration without fields, one with all defaults.
struct ShortField {
  FieldConfig& operator()(ConvertConfig& config) const { return config.fields.front(); }
  const FieldConfig& operator()(const ConvertConfig& config) const {
    static const FieldConfig kNone;
    return config.fields.empty() ? kNone : config.fields.front();
  }
};

void check_short_shape(yaml::MapReader& reader, FieldConfig& x) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (!x.shape.empty() && !normal_shape(x.shape))
    diagnostics.error(reader.mark_of("shape"),
                      "'shape' has at most four axes: channels, depth, height, width");
  const auto ones = static_cast<std::size_t>(
      std::find_if(x.shape.begin(), x.shape.end(), [](std::size_t length) { return length != 1; }) -
      x.shape.begin());
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
}

void read_short_channels(yaml::MapReader& reader, std::string_view key, FieldConfig& x) {
  x.channels = distinct_names(reader, key);
  const auto shape = normal_shape(x.shape);
  if (!x.channels.empty() && !x.shape.empty() && x.layout.empty() && shape &&
      (*shape)[0] != x.channels.size()) {
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format("'channels' names {} channels, but 'shape' has {}; where it has no axis for them, "
                    "'layout' says which one that is, such as layout: CHW",
                    x.channels.size(), (*shape)[0]));
  }
}

void refuse_beside_inputs(yaml::MapReader& reader, std::string_view key, ConvertConfig&) {
  if (!reader.has(key)) return;
  reader.diagnostics().error(
      reader.mark_of(key),
      fmt::format("'{}' stands in each field where 'inputs' is given: inputs: {{density: {{{}: ...}}}}", key,
                  key));
}

// A key of `x` at top level.
config::Key<ConvertConfig> short_key(const config::Key<FieldConfig>& key) {
  return config::of_part<ConvertConfig>(key, ShortField()).only_if(is_short, refuse_beside_inputs).unlisted();
}

// `file`, `dataset`, ... at top level, in order of their emission before `targets`.
std::vector<config::Key<ConvertConfig>> short_keys_before_targets() {
  std::vector<config::Key<ConvertConfig>> keys;
  for (const char* name : {"format", "dataset", "variable", "attribute", "columns", "regex", "match", "json",
                           "slice", "raw", "gadget", "layout"})
    keys.push_back(short_key(field_table().key(name)));
  keys.push_back(short_key(config::Key(field_table().key("shape")).then(check_short_shape)));
  return keys;
}

std::vector<config::Key<ConvertConfig>> short_keys_after_targets() {
  config::Key<FieldConfig> channels = field_table().key("channels");
  channels.read = read_short_channels;
  const auto dtype = config::custom<FieldConfig>(
      "dtype", config::choice_schema(kOutputTypes),
      "float32 converts, keep stores the type that the simulation wrote",
      [](yaml::MapReader& reader, std::string_view key, FieldConfig& x) {
        if (reader.choice(key, 0, kOutputTypes) == 1) x.dtype = DType::float32;
      },
      [](const FieldConfig& x) { return yaml::scalar(kOutputTypes[x.dtype ? 1 : 0]); });
  return {short_key(channels), short_key(field_table().key("units")), short_key(dtype)};
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
    const bool has_mask = !field.pad.empty() || !field.ragged.empty();
    if (has_mask && names.contains(field.name + "_mask"))
      reader.diagnostics().error(
          reader.mark_of("inputs"),
          fmt::format("the mask of '{0}' is named '{0}_mask', as another field is", field.name));
  }
}

void read_inputs(yaml::MapReader& reader, std::string_view key, ConvertConfig& config) {
  if (reader.has(key) || is_mapping(config)) read_role(reader, "inputs", "x", Role::input, config);
}

void read_targets(yaml::MapReader& reader, std::string_view key, ConvertConfig& config) {
  if (is_short(config)) {
    config.fields.back().parameters = distinct_names(reader, key);
    return;
  }
  read_role(reader, "targets", "y", Role::target, config);
  check_field_names(reader, config);
  const bool own_file = std::any_of(config.fields.begin(), config.fields.end(), [](const FieldConfig& f) {
    return !f.from_parameters && f.files.empty();
  });
  if (own_file && !config.from.empty() && config.file.empty()) {
    reader.diagnostics().error(reader.mark_of("inputs"),
                               "a field without 'file' is read from the sample's own file, which the key "
                               "'file' beside 'inputs' names");
  }
}

std::optional<yaml::Node> write_targets(const ConvertConfig& config) {
  if (is_mapping(config)) return fields_to_yaml(config.fields, Role::target);
  if (config.fields.empty() || config.fields.back().parameters.empty()) return std::nullopt;
  return config::emit_texts(config.fields.back().parameters);
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

std::string part_text(const SplitRequest& request, double value) {
  std::string text = text::from_real(value);
  if (!request.fractions) return fmt::to_string(static_cast<std::uint64_t>(value));
  return text::to_integer(text) ? text + ".0" : text;
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

void read_order(yaml::MapReader& split, std::string_view key, SplitRequest& request) {
  const bool by_column = split.has("group_by") || split.has("stratify_by");
  const auto usual = by_column && request.fractions ? SplitOrder::hash : request.order;
  request.order = static_cast<SplitOrder>(split.choice(key, static_cast<std::size_t>(usual), kSplitOrders));
  if (request.order == SplitOrder::even && (by_column || !request.fractions)) {
    split.diagnostics().error(
        split.mark_of(key),
        by_column
            ? "order: even goes by the samples' numbers; 'group_by' and 'stratify_by' go with order: hash"
            : "order: even goes with fractions (train: 0.8); counts are exact, which is order: count");
  }
  if (!request.fractions && request.order == SplitOrder::hash) {
    split.diagnostics().error(
        split.mark_of(key),
        "order: hash goes with fractions (train: 0.8); counts are exact, which is order: count");
  }
}

// stratify_by: {column: sigma_8, edges: [0.7, 0.9]}.
const config::Table<SplitRequest>& strata_table() {
  static const config::Table<SplitRequest> table(
      "stratify_by:",
      {config::text("column", &SplitRequest::stratify_by, "whose values decide").required(),
       config::reals("edges", &SplitRequest::stratify_edges,
                     "between the intervals, rising; left out: each value")
           .unless_default()
           .then([](yaml::MapReader& strata, SplitRequest& request) {
             if (!std::is_sorted(request.stratify_edges.begin(), request.stratify_edges.end()))
               strata.diagnostics().error(strata.mark_of("edges"), "'edges' must rise");
           })});
  return table;
}

void read_strata(yaml::MapReader& split, std::string_view key, SplitRequest& request) {
  const yaml::Node* node = split.find(key);
  if (node == nullptr) return;
  if (node->is_map()) {
    strata_table().read(*node, request, split.diagnostics());
  } else {
    request.stratify_by = split.string(key);
  }
  if (request.order == SplitOrder::count)
    split.diagnostics().error(
        node->mark,
        "'stratify_by' goes with fractions and order: hash; counts are exact for all samples together");
  if (!request.group_by.empty())
    split.diagnostics().error(node->mark, "'stratify_by' and 'group_by' exclude each other");
}

// `read`: that of the first part reads all three.
config::Key<SplitRequest> part_key(std::size_t part, std::string meaning,
                                   config::Key<SplitRequest>::Read read) {
  return config::custom<SplitRequest>(std::string(kSplitNames.at(part)), config::number_schema(0, 1e300),
                                      std::move(meaning), std::move(read),
                                      [part](const SplitRequest& request) {
                                        return yaml::scalar(part_text(request, request.parts.at(part)));
                                      });
}

const config::Table<SplitRequest>& split_table() {
  const auto with_first = [](yaml::MapReader&, std::string_view, SplitRequest&) {};
  static const config::Table<SplitRequest> table(
      "the split: block",
      {part_key(0, "training samples: a count, or a fraction with a point",
                [](yaml::MapReader& split, std::string_view, SplitRequest& request) {
                  read_parts(split, request);
                }),
       part_key(1, "validation samples", with_first),
       part_key(2, "test samples", with_first).usually("the rest"),
       config::integer("seed", &SplitRequest::seed, 0, INT64_MAX, "seed of the order, or of the hash"),
       config::custom<SplitRequest>(
           "order", config::choice_schema(kSplitOrders),
           "`even`: the fractions within one sample, and a growing campaign moves none; `hash`: by the "
           "sample's identity; `count`: exact sizes",
           read_order,
           [](const SplitRequest& request) {
             return yaml::scalar(kSplitOrders[static_cast<std::size_t>(request.order)]);
           })
           .usually("`even`; of counts `count`, with a column `hash`"),
       config::text("group_by", &SplitRequest::group_by, "column: samples of one value stay together")
           .unless_default()
           .then([](yaml::MapReader& split, SplitRequest& request) {
             if (!request.group_by.empty() && request.order == SplitOrder::count)
               split.diagnostics().error(
                   split.mark_of("group_by"),
                   "'group_by' keeps groups together by order: hash, which goes with fractions");
           }),
       config::custom<SplitRequest>(
           "stratify_by", config::any_of({config::text_schema(), strata_table().schema()}),
           "column, or `{column: NAME, edges: [...]}`: each of its values (or intervals) is split in the "
           "given "
           "proportions",
           read_strata, [](const SplitRequest& request) { return strata_table().write(request); })
           .emitted_if([](const SplitRequest& request) { return !request.stratify_by.empty(); })});
  return table;
}

void check_split(yaml::MapReader& reader, ConvertConfig& config) {
  if (config.split.order == SplitOrder::count && config.count == 0)
    return;  // the caller checks again when it knows the count
  if (const auto problem = split_problem(config.split, config.count, config.grown)) {
    reader.diagnostics().error(reader.mark_of("split"), "'split' does not fit: " + *problem);
  }
}

void read_drop_if(yaml::MapReader& reader, std::string_view key, ConvertConfig& config) {
  for (const std::string& text : reader.strings(key)) {
    try {
      Formula::parse(text);
      config.drop_if.push_back(text);
    } catch (const Error& error) {
      reader.diagnostics().error(reader.mark_of(key), error.what());
    }
  }
}

// Numbers of samples that rise; the campaign sets them.
config::Key<ConvertConfig> rising(std::string name, std::vector<std::uint64_t> ConvertConfig::*member,
                                  std::string meaning) {
  return config::integers(name, member, 1, kMostSamples, std::move(meaning))
      .unlisted()
      .unless_default()
      .then([name, member](yaml::MapReader& reader, ConvertConfig& config) {
        std::vector<std::uint64_t>& counts = config.*member;
        if (std::ranges::adjacent_find(counts, std::greater_equal<>()) == counts.end()) return;
        reader.diagnostics().error(reader.mark_of(name), fmt::format("'{}' must rise", name));
        counts.clear();
      });
}

std::vector<config::Key<ConvertConfig>> source_of_samples_keys() {
  return {
      config::text("from", &ConvertConfig::from,
                   "in a campaign, instead of `samples`: the step whose sample directories hold the files")
          .unless_default(),
      config::text(
          "samples", &ConvertConfig::samples,
          "CSV table with a header: columns `file` or `directory`, optional `id` (whole number), and "
          "the parameters")
          .unless_default(),
      config::text("file", &ConvertConfig::file,
                   "in a campaign: the name of the file in each of the sample directories")
          .unless_default(),
      config::integer("bundle", &ConvertConfig::bundle, 1, kMostSamples,
                      "wflow-convert alone: samples a directory; a campaign sets it itself")
          .usually("")
          .unlisted()
          .unless_default()
          .then(check_source),
      config::boolean("stacked", &ConvertConfig::stacked,
                      "a file holds many samples, one in each row of its slowest axis; the table's column "
                      "`row` gives the row. In a campaign, `from` is a step with `bundle`, and row i is the "
                      "bundle's sample i; with a `plugin:` this is always so")
          .unless_default()};
}

std::vector<config::Key<ConvertConfig>> inputs_and_targets() {
  return {
      config::custom<ConvertConfig>(
          "inputs", fields_schema(), "fields that a network reads: by name, or a list of parameters",
          read_inputs, [](const ConvertConfig& config) { return fields_to_yaml(config.fields, Role::input); })
          .emitted_if(is_mapping),
      config::custom<ConvertConfig>(
          "targets", fields_schema(),
          "fields that it learns, in the same way. Without `inputs`: the columns that become labels, in "
          "this order (default: all other columns)",
          read_targets, write_targets)};
}

std::vector<config::Key<ConvertConfig>> output_keys() {
  return {
      config::boolean(
          "check_finite", &ConvertConfig::check_finite,
          "a sample with NaN or infinite values is unusable. With `false`, such samples are kept, "
          "and the statistics use the finite values"),
      config::custom<ConvertConfig>(
          "drop_if", config::one_or_list_schema(config::text_schema()),
          "a formula, or a list of them: see [filters](#filters)", read_drop_if,
          [](const ConvertConfig& config) { return config::emit_texts(config.drop_if); })
          .unless_default(),
      config::choice(
          "compression", &ConvertConfig::compression, kCompressions,
          "`gzip` is shuffle + deflate, readable everywhere; `none`; `auto` compresses a field if "
          "most of the first three samples of a block shrink by 1.15 or more (the manifest records "
          "the choice). Fields of less than 4 KiB a sample are packed many to a chunk and never "
          "compressed"),
      config::integer("level", &ConvertConfig::level, 1, kMostDeflate,
                      "level of deflate. At level 1, wflow compares its own deflate for field data "
                      "(`converters/deflate`) with that of libdeflate on the first samples, and uses its own "
                      "unless libdeflate's result is clearly smaller; the manifest's `coder` is `runs` or "
                      "`matches`. Every zlib reads both"),
      config::integer(
          "shard_samples", &ConvertConfig::shard_samples, 1, kMostSamples,
          "samples in each block. If the size of a sample is unknown at first (a campaign without "
          "`shape`): 64")
          .usually("about 512 MiB")
          .unless_default(),
      config::block("split", &ConvertConfig::split, split_table(), "see [the split](#the-split)")
          .usually("0.8, 0.1, 0.1; seed 1"),
      config::choice("on_missing", &ConvertConfig::on_missing, kOnMissing,
                     "`fail`: an unusable sample ends the conversion. A sample of another form than most of "
                     "its block is unusable"),
      config::real("max_missing", &ConvertConfig::max_missing, 0, 1,
                   "the fraction of samples that may be unusable at the end"),
      config::boolean("delete_inputs", &ConvertConfig::delete_inputs,
                      "delete the simulations' files of a block once its shards are safe: "
                      "[below](#more-simulations-than-the-disk-holds)")
          .then([](yaml::MapReader& reader, ConvertConfig& config) {
            if (config.delete_inputs && config.stacked)
              reader.diagnostics().error(
                  reader.mark_of("delete_inputs"),
                  "'delete_inputs' does not go with 'stacked': a file may hold samples of other blocks");
          }),
      config::boolean("use_failed", &ConvertConfig::use_failed,
                      "campaign: also use the files of samples of which a task failed: "
                      "[below](#samples-that-failed)")
          .unless_default()
          .then([](yaml::MapReader& reader, ConvertConfig& config) {
            if (config.use_failed && config.from.empty())
              reader.diagnostics().error(
                  reader.mark_of("use_failed"),
                  "'use_failed' belongs to 'from': the rows of a table of 'samples' have no tasks");
          }),
      config::boolean(
          "external_files", &ConvertConfig::external_files,
          "HDF5: read datasets whose values are in another file (external links, external storage, "
          "virtual datasets of other files). Without it, such a sample is missing, with a message "
          "that names the file. The reason: the output of a simulation must not copy any file "
          "that you can read into the shards")
          .unless_default()
          .then([](yaml::MapReader&, ConvertConfig& config) {
            for (FieldConfig& field : config.fields) field.selector.external = config.external_files;
          }),
      config::text("output", &ConvertConfig::output,
                   "folder of the data set (by default, a campaign chooses one)")
          .unless_default(),
      config::text("name", &ConvertConfig::name, "name of the data set, in the manifest")
          .usually("the folder's name")
          .unless_default(),
      config::integer("count", &ConvertConfig::count, 1, kMostSamples, "number of samples in all")
          .usually("the table's rows")
          .unless_default(),
      rising("grown", &ConvertConfig::grown,
             "a campaign sets it: the numbers of samples that there were before it grew"),
      rising("block_starts", &ConvertConfig::block_starts,
             "a campaign sets it: where blocks begin besides at multiples of shard_samples")};
}

const config::Table<ConvertConfig>& convert_table() {
  static const config::Table<ConvertConfig> table(
      "the convert: block",
      config::joined<ConvertConfig>({source_of_samples_keys(), short_keys_before_targets(),
                                     inputs_and_targets(), short_keys_after_targets(), output_keys()}),
      check_split);
  return table;
}

}  // namespace

ConvertConfig read_convert_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  ConvertConfig config;
  const yaml::Node* inputs = block.find("inputs");
  const yaml::Node* targets = block.find("targets");
  config.short_form = (inputs == nullptr || inputs->is_null()) && (targets == nullptr || !targets->is_map());
  if (config.short_form) {
    FieldConfig x;
    x.name = "x";
    config.fields = short_fields(std::move(x), {});
  }
  convert_table().read(block, config, diagnostics);
  return config;
}

yaml::Node to_yaml(const ConvertConfig& config) {
  return convert_table().write(config);
}

config::Json convert_schema() {
  config::Json schema = {
      {"description", "a conversion of a step's output to training data (docs/convert.md)"}};
  schema.update(convert_table().schema());
  return config::or_null(std::move(schema));
}

std::vector<config::Section> convert_sections() {
  std::vector<config::Section> sections = field_sections();
  sections.push_back({"convert.split", split_table().rows()});
  sections.push_back({"convert", convert_table().rows()});
  return sections;
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
