// SPDX-License-Identifier: Apache-2.0
#include "converters/fields.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "converters/config_tables.h"
#include "converters/formula.h"

namespace wflow::converters {

namespace {

const std::vector<std::string> kFormats = {"auto", "hdf5", "npy",  "npz",    "raw",   "netcdf",
                                           "csv",  "text", "json", "gadget", "image", "tfrecord"};
const std::vector<std::string> kByteOrders = {"little", "big"};
const std::vector<std::string> kOrders = {"c", "fortran"};
const std::vector<std::string> kMatches = {"one", "first", "last", "all"};

// A transform and its arguments.
struct TransformForm {
  std::string_view name;
  Transform::Kind kind;
  enum class Takes { nothing, number, pair, numbers, text, block_and_edges } takes;
  bool bare = false;  // needs no argument
  const char* usual = "";
  const char* meaning = "";
};
using Takes = TransformForm::Takes;
constexpr std::array<TransformForm, 13> kTransforms = {{
    {"log1p", Transform::Kind::log1p, Takes::nothing, true, "", "ln(1 + x)"},
    {"asinh", Transform::Kind::asinh, Takes::number, true, "`1`", "`asinh: s`: asinh(x / s)"},
    {"clip", Transform::Kind::clip, Takes::pair, false, "", "`clip: [a, b]`: x limited to a ≤ x ≤ b"},
    {"scale", Transform::Kind::scale, Takes::pair, false, "", "`scale: [f, o]`: f x + o; `scale: f`: f x"},
    {"downsample", Transform::Kind::downsample, Takes::number, false, "",
     "`downsample: n`: the mean of each block of n cells along each axis but C"},
    {"histogram", Transform::Kind::histogram, Takes::block_and_edges, false, "",
     "`histogram: [n, e0, e1, ...]`: for each such block, the fraction of cells in e0 ≤ x < e1, ... (the "
     "last "
     "interval includes its upper edge): one channel for each interval"},
    {"crop", Transform::Kind::crop, Takes::numbers, false, "",
     "`crop: [d, h, w]`: the middle of each axis but C"},
    {"subcubes", Transform::Kind::subcubes, Takes::number, false, "",
     "`subcubes: n`: cubes of n cells along each axis but C, cut from the sample. Each is a row of the "
     "shards "
     "with the sample's id and split; every row also has the fields that are not cut. `/wflow/piece` numbers "
     "the cubes"},
    {"one_hot", Transform::Kind::one_hot, Takes::number, false, "",
     "`one_hot: k`: k channels of 0 and 1 (uint8), from class numbers 0 to k - 1"},
    {"expression", Transform::Kind::expression, Takes::text, false, "",
     "`expression: \"log(x + 0.1) / mass\"`: a [formula](#formulas) of `x` and the sample's parameters"},
    {"standardise", Transform::Kind::standardise, Takes::nothing, true, "",
     "normalised: (x - mean) / std. The last step; **recorded, not applied**: see below"},
    {"min_max", Transform::Kind::min_max, Takes::pair, true, "`[0, 1]`",
     "normalised: `min_max: [a, b]` maps the training range to [a, b]. The last step, recorded as well"},
    {"quantile", Transform::Kind::quantile, Takes::text, true, "`uniform`",
     "normalised: the fraction of training values below x, or with `quantile: normal` the normal deviate of "
     "it. The last step, recorded as well"},
}};
constexpr double kMostClasses = 4096;
constexpr std::size_t kMostEdges = 257;
constexpr double kMostCells = 1 << 20;  // limit for a crop or a sub-cube, along an axis

constexpr std::int64_t kMostLength = std::int64_t{1} << 31;
constexpr std::int64_t kMostOffset = std::int64_t{1} << 52;
constexpr std::size_t kMostName = 100;
constexpr std::int64_t kMostGrid = 512;
constexpr std::size_t kMostPattern = 1000;

bool is_field_name(std::string_view name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-.=+").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMostName && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

const config::Table<RawForm>& raw_table() {
  static const config::Table<RawForm> table(
      "the raw: block",
      {config::choice("dtype", &RawForm::dtype, dtype_names(), "type of the values").required(),
       config::choice("byte_order", &RawForm::byte_order, kByteOrders, "`little` or `big`"),
       config::choice("order", &RawForm::fortran_order, kOrders,
                      "order of the axes: `c` (last fastest) or `fortran` (first fastest)")
           .unless_default(),
       config::integer("offset", &RawForm::offset, 0, kMostOffset, "bytes before the values")
           .unless_default(),
       config::integer("record_markers", &RawForm::markers, 0, 8,
                       "bytes of the lengths around Fortran records: 4 or 8; 0: none")
           .unless_default()
           .accepting(config::any_of({{{"enum", {0, 4, 8}}}, {{"$ref", "#/$defs/token"}}}))
           .then([](yaml::MapReader& reader, RawForm& form) {
             if (form.markers == 0 || form.markers == 4 || form.markers == 8) return;
             reader.diagnostics().error(reader.mark_of("record_markers"),
                                        "'record_markers' is the bytes of a record's length: 4 or 8");
           }),
       config::integers("shape", &RawForm::shape, 1, kMostLength,
                        "lengths of the axes in the file, where the field's `shape` reshapes them")
           .usually("`shape` of the field")
           .unless_default()});
  return table;
}

const config::Table<GadgetForm>& gadget_table() {
  static const config::Table<GadgetForm> table(
      "the gadget: block",
      {config::integer("grid", &GadgetForm::grid, 1, kMostGrid, "cells along each axis").required(),
       config::integers("types", &GadgetForm::types, 0, 5, "types of particles, 0 to 5")
           .usually("all")
           .unless_default()});
  return table;
}

void read_raw(yaml::MapReader& reader, std::string_view key, Selector& selector) {
  const yaml::Node* block = reader.find(key);
  if (block == nullptr) {
    if (selector.format == Format::raw)
      reader.diagnostics().error(reader.node().mark, "format raw needs 'raw: {dtype: ...}'");
    return;
  }
  raw_table().read(*block, selector.raw, reader.diagnostics());
  if (selector.format == Format::tfrecord) return;  // for a feature of bytes
  if (selector.format != Format::raw && selector.format != Format::automatic) {
    reader.diagnostics().error(reader.mark_of(key), "'raw' needs format: raw (or auto), or tfrecord");
  }
  selector.format = Format::raw;
}

void read_gadget(yaml::MapReader& reader, std::string_view key, Selector& selector) {
  const yaml::Node* block = reader.find(key);
  if (block == nullptr) {
    if (selector.format == Format::gadget)
      reader.diagnostics().error(reader.node().mark,
                                 "format gadget needs 'gadget: {grid: 64}', the cells an axis");
    return;
  }
  gadget_table().read(*block, selector.gadget, reader.diagnostics());
  selector.format = Format::gadget;
}

void check_regex(yaml::MapReader& reader, const Selector& selector) {
  if (selector.regex.empty()) return;
  if (selector.regex.size() > kMostPattern) {
    reader.diagnostics().error(reader.mark_of("regex"), "'regex' is longer than 1,000 letters");
    return;
  }
  const RE2 pattern(selector.regex, RE2::Quiet);
  if (!pattern.ok()) {
    reader.diagnostics().error(reader.mark_of("regex"),
                               fmt::format("'regex' is no regular expression of RE2: {}", pattern.error()));
  } else if (pattern.NumberOfCapturingGroups() == 0) {
    reader.diagnostics().error(reader.mark_of("regex"),
                               "'regex' has no group; put the number's pattern in round brackets: "
                               "'E = (\\S+)'");
  }
}

// A key that implies a format, and that format.
void imply(yaml::MapReader& reader, Selector& selector, std::string_view key, bool given, Format implied) {
  if (!given) return;
  if (selector.format != Format::automatic && selector.format != implied) {
    reader.diagnostics().error(reader.mark_of(key),
                               fmt::format("'{}' is for format {}, but this field is of format {}", key,
                                           format_name(implied), format_name(selector.format)));
    return;
  }
  selector.format = implied;
}

void check_dataset(yaml::MapReader& reader, const Selector& selector) {
  if (selector.dataset.empty()) return;
  const bool known = selector.format == Format::automatic || selector.format == Format::hdf5 ||
                     selector.format == Format::npz || selector.format == Format::netcdf ||
                     selector.format == Format::tfrecord;
  if (!known)
    reader.diagnostics().error(reader.mark_of("dataset"),
                               "'dataset' is for HDF5, NetCDF, NPZ and TFRecord files");
}

}  // namespace

std::string_view role_name(Role role) {
  return role == Role::input ? "input" : "target";
}

std::string_view format_name(Format format) {
  return kFormats[static_cast<std::size_t>(format)];
}

bool is_analysed(Transform::Kind kind) {
  return kind == Transform::Kind::standardise || kind == Transform::Kind::min_max ||
         kind == Transform::Kind::quantile;
}

std::optional<std::string> layout_problem(std::string_view layout) {
  std::set<char> seen;
  for (const char letter : layout) {
    if (std::string_view("CTDHW_").find(letter) == std::string_view::npos) {
      return fmt::format(
          "'{}' is no axis; use C (channel), T (time), D, H, W (depth, height, width) and _ (an axis of "
          "length 1 that is dropped), one letter an axis of the file, slowest first",
          letter);
    }
    if (letter != '_' && !seen.insert(letter).second)
      return fmt::format("the axis '{}' stands in it twice", letter);
  }
  if (seen.size() > kMostRank) return "it has more than four axes";
  return std::nullopt;
}

std::string_view name_of(const Transform& transform) {
  const auto known = std::find_if(kTransforms.begin(), kTransforms.end(),
                                  [&](const TransformForm& form) { return form.kind == transform.kind; });
  return known == kTransforms.end() ? "transform" : known->name;
}

std::optional<std::vector<SliceAxis>> parse_slice(std::string_view text) {
  std::vector<SliceAxis> axes;
  for (const std::string& part : text::split(std::string(text), ',')) {
    const auto words = text::split(std::string(text::trim(part)), ':');
    if (words.empty() || words.size() > 3) return std::nullopt;
    SliceAxis axis;
    std::array<std::optional<std::int64_t>, 3> numbers;
    for (std::size_t k = 0; k < words.size(); ++k) {
      const std::string_view word = text::trim(words[k]);
      if (word.empty()) continue;
      numbers[k] = text::to_integer(word);
      if (!numbers[k]) return std::nullopt;
    }
    axis.start = numbers[0];
    axis.stop = numbers[1];
    axis.single = words.size() == 1;
    if (axis.single && !axis.start) return std::nullopt;
    axis.step = numbers[2].value_or(1);
    if (axis.step < 1) return std::nullopt;
    axes.push_back(axis);
  }
  return axes;
}

namespace {

void read_variable(yaml::MapReader& reader, std::string_view key, Selector& selector) {
  const std::string variable = reader.string(key);
  if (!variable.empty() && !selector.dataset.empty()) {
    reader.diagnostics().error(reader.mark_of(key), "'variable' and 'dataset' are the same key; write one");
  } else if (!variable.empty()) {
    selector.dataset = variable;
    if (selector.format == Format::automatic) selector.format = Format::netcdf;
  }
}

void check_json(yaml::MapReader& reader, Selector& selector) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  imply(reader, selector, "json", !selector.json.empty(), Format::json);
  if (selector.format == Format::json && selector.json.empty())
    diagnostics.error(reader.node().mark,
                      "format json needs the key 'json': the path of the value, such as $.result.energy");
  if (selector.format == Format::text && selector.regex.empty())
    diagnostics.error(reader.node().mark, "format text needs the key 'regex', such as 'E = (\\S+)'");
  if (!selector.json.empty() && selector.json[0] != '/' && selector.json[0] != '$')
    diagnostics.error(reader.mark_of("json"),
                      "'json' is a path from the top of the file: $.result.energy or /result/energy");
}

void check_slice(yaml::MapReader& reader, Selector& selector) {
  if (!selector.slice.empty() && !parse_slice(selector.slice))
    reader.diagnostics().error(reader.mark_of("slice"),
                               "'slice' is written as in NumPy, with steps from 1: '0, :, 10:20, -1'");
  check_dataset(reader, selector);
  imply(reader, selector, "attribute", !selector.attribute.empty(), Format::hdf5);
}

// The values of a file. Each key may imply the format that the later ones ask for.
const config::Table<Selector>& selector_table() {
  static const config::Table<Selector> table(
      "the field",
      {config::choice("format", &Selector::format, kFormats,
                      "`hdf5`, `netcdf`, `npy`, `npz`, `raw`, `csv`, `text`, `json`, `image`, `gadget`, "
                      "`tfrecord`. auto chooses by the other keys, then the suffix, then the first bytes"),
       config::text("dataset", &Selector::dataset,
                    "HDF5: path, such as `/a/b`; NPZ: array; NetCDF: variable; TFRecord: feature")
           .usually("the only one")
           .unless_default(),
       config::custom<Selector>("variable", config::text_schema(), "NetCDF: the same as `dataset`",
                                read_variable),
       config::text("attribute", &Selector::attribute,
                    "HDF5: this attribute of `dataset` (without `dataset`, of the file)")
           .unless_default(),
       config::texts("columns", &Selector::columns,
                     "CSV and text tables: names, or numbers from 0; HDF5: members of a compound table")
           .usually("all")
           .unless_default(),
       config::text("regex", &Selector::regex,
                    "text: the groups of an [RE2](https://github.com/google/re2/wiki/Syntax) expression are "
                    "the numbers, line by line")
           .unless_default()
           .then([](yaml::MapReader& reader, Selector& selector) {
             imply(reader, selector, "regex", !selector.regex.empty(), Format::text);
             check_regex(reader, selector);
           }),
       config::choice("match", &Selector::match, kMatches,
                      "which of several matches of `regex`: `first`, `last` or `all`; `one`: several are an "
                      "error")
           .emitted_if([](const Selector& selector) { return !selector.regex.empty(); })
           .then([](yaml::MapReader& reader, Selector& selector) {
             if (reader.has("match") && selector.regex.empty())
               reader.diagnostics().error(reader.mark_of("match"), "'match' belongs to 'regex'");
           }),
       config::text(
           "json", &Selector::json,
           "path of a number, or of lists of numbers: `$.a.b[0]` or `/a/b/0`; without it a field of a "
           "file `*.json` is the value of its own name")
           .unless_default()
           .then(check_json),
       config::text("slice", &Selector::slice,
                    "a part, as in NumPy: `\"0, :, 10:20:2, -1\"`; a single index drops its axis")
           .usually("all")
           .unless_default()
           .then(check_slice),
       config::custom<Selector>(
           "raw", raw_table().schema(),
           "raw, and a feature of bytes of a TFRecord: how the values are written, see below", read_raw,
           [](const Selector& selector) { return raw_table().write(selector.raw); })
           .emitted_if([](const Selector& selector) {
             return selector.format == Format::raw ||
                    (selector.format == Format::tfrecord && !selector.raw.shape.empty());
           }),
       config::custom<Selector>(
           "gadget", gadget_table().schema(), "density of the particles on a grid, see below", read_gadget,
           [](const Selector& selector) { return gadget_table().write(selector.gadget); })
           .emitted_if([](const Selector& selector) { return selector.format == Format::gadget; })});
  return table;
}

const TransformForm* find_transform(const yaml::Node& name, yaml::Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (const TransformForm& known : kTransforms) {
    if (known.name == name.text) return &known;
    names.emplace_back(known.name);
  }
  diagnostics.error(name.mark, fmt::format("there is no transform '{}'; known are {}{}", name.text,
                                           text::join(names, ", "), text::suggestion(name.text, names)));
  return nullptr;
}

// The transform without its numbers.
std::optional<Transform> bare_transform(const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  const TransformForm* form = find_transform(node, diagnostics);
  if (form == nullptr) return std::nullopt;
  if (!form->bare) {
    diagnostics.error(node.mark, fmt::format("the transform '{0}' needs its numbers: {0}: ...", node.text));
    return std::nullopt;
  }
  Transform transform{form->kind, 0, 0};
  if (form->kind == Transform::Kind::asinh || form->kind == Transform::Kind::min_max) {
    (form->kind == Transform::Kind::asinh ? transform.a : transform.b) = 1;
  }
  if (form->kind == Transform::Kind::quantile) transform.text = "uniform";
  return transform;
}

// The error in the numbers; nothing if they are valid.
std::optional<std::string> numbers_problem(const TransformForm& form, const std::vector<double>& numbers) {
  using Kind = Transform::Kind;
  const bool lists = form.takes == Takes::numbers || form.takes == Takes::block_and_edges;
  const std::size_t wanted = form.takes == Takes::pair ? 2 : 1;
  if (!lists && numbers.size() != wanted)
    return wanted == 2 ? "takes a list of two numbers" : "takes one number";
  const auto whole = [](double value, double least, double most) {
    return value == std::floor(value) && value >= least && value <= most;
  };
  const auto rising = [&](std::size_t from) {
    return std::is_sorted(numbers.begin() + static_cast<std::ptrdiff_t>(from), numbers.end(),
                          [](double a, double b) { return a <= b; });
  };
  switch (form.kind) {
    case Kind::clip:
      return numbers[0] > numbers[1] ? std::optional("the lower bound is above the upper one") : std::nullopt;
    case Kind::min_max:
      return numbers[0] < numbers[1] ? std::nullopt
                                     : std::optional("the lower bound is not below the upper one");
    case Kind::asinh:
      return numbers[0] > 0 ? std::nullopt : std::optional("its scale is a number above 0");
    case Kind::downsample:
      return whole(numbers[0], 2, 1024) ? std::nullopt : std::optional("takes a whole number from 2 to 1024");
    case Kind::subcubes:
      return whole(numbers[0], 1, kMostCells) ? std::nullopt
                                              : std::optional("takes the cells of an edge, a whole number");
    case Kind::one_hot:
      return whole(numbers[0], 2, kMostClasses)
                 ? std::nullopt
                 : std::optional("takes the number of classes, from 2 to 4096");
    case Kind::crop:
      if (!numbers.empty() && numbers.size() <= kMostRank &&
          std::all_of(numbers.begin(), numbers.end(), [&](double n) { return whole(n, 1, kMostCells); }))
        return std::nullopt;
      return "takes the lengths of the axes but C, whole numbers from 1: crop: [64, 64]";
    case Kind::histogram:
      if (numbers.size() >= 3 && numbers.size() <= kMostEdges + 1 && whole(numbers[0], 1, 1024) && rising(1))
        return std::nullopt;
      return "takes the cells of a block, then two or more rising edges: histogram: [4, 0, 1, 10]";
    default:
      return std::nullopt;
  }
}

std::optional<Transform> text_transform(const TransformForm& form, const yaml::Node& value,
                                        yaml::Diagnostics& diagnostics) {
  Transform transform{form.kind, 0, 0};
  transform.text = value.text;
  if (!value.is_scalar()) {
    diagnostics.error(value.mark, fmt::format("{} takes a text, found {}", form.name, value.describe()));
    return std::nullopt;
  }
  if (form.kind == Transform::Kind::quantile) {
    if (value.text == "uniform" || value.text == "normal") return transform;
    diagnostics.error(value.mark, "quantile: takes uniform or normal");
    return std::nullopt;
  }
  try {
    const Formula parsed = Formula::parse(value.text);
    for (const std::string& variable : parsed.variables()) {
      if (!split_variable(variable).function.empty())
        throw Error(ExitCode::spec,
                    fmt::format("'{}' is for drop_if; a transform knows x and parameters", variable));
    }
    return transform;
  } catch (const Error& error) {
    diagnostics.error(value.mark, error.what());
    return std::nullopt;
  }
}

std::optional<Transform> read_transform(const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  if (node.is_scalar()) return bare_transform(node, diagnostics);
  if (!node.is_map() || node.entries.size() != 1) {
    diagnostics.error(
        node.mark, fmt::format("a transform is a name, or a name with its numbers (clip: [0, 5]), found {}",
                               node.describe()));
    return std::nullopt;
  }
  const yaml::Node& name = node.entries.front().first;
  const yaml::Node& value = node.entries.front().second;
  const TransformForm* form = find_transform(name, diagnostics);
  if (form == nullptr) return std::nullopt;
  if (form->takes == Takes::nothing) {
    diagnostics.error(value.mark, fmt::format("{}: takes no numbers", name.text));
    return std::nullopt;
  }
  if (form->takes == Takes::text) return text_transform(*form, value, diagnostics);
  std::vector<double> numbers;
  const auto add = [&](const yaml::Node& item) {
    if (const auto number = yaml::as_real(item, name.text, diagnostics)) numbers.push_back(*number);
  };
  if (value.is_sequence()) {
    for (const yaml::Node& item : value.items) add(item);
  } else {
    add(value);
  }
  if (form->kind == Transform::Kind::scale && numbers.size() == 1) numbers.push_back(0);
  if (const auto problem = numbers_problem(*form, numbers)) {
    diagnostics.error(value.mark, fmt::format("{}: {}", name.text, *problem));
    return std::nullopt;
  }
  Transform transform{form->kind, 0, 0};
  if (form->takes == Takes::numbers || form->takes == Takes::block_and_edges) {
    transform.numbers = std::move(numbers);
    if (form->takes == Takes::block_and_edges) {
      transform.a = transform.numbers.front();
      transform.numbers.erase(transform.numbers.begin());
    }
  } else {
    transform.a = numbers[0];
    transform.b = form->takes == Takes::pair ? numbers[1] : 0;
  }
  return transform;
}

yaml::Node transform_node(const Transform& transform) {
  const auto known = std::find_if(kTransforms.begin(), kTransforms.end(),
                                  [&](const auto& t) { return t.kind == transform.kind; });
  const std::string name(known->name);
  switch (known->takes) {
    case Takes::nothing:
      return yaml::scalar(name);
    case Takes::number:
      return yaml::map({{name, yaml::scalar(text::from_real(transform.a))}});
    case Takes::pair:
      return yaml::map({{name, config::emit_reals({transform.a, transform.b})}});
    case Takes::text:
      return yaml::map({{name, yaml::quoted(transform.text)}});
    case Takes::numbers:
      return yaml::map({{name, config::emit_reals(transform.numbers)}});
    case Takes::block_and_edges:
      break;
  }
  std::vector<double> all = {transform.a};
  all.insert(all.end(), transform.numbers.begin(), transform.numbers.end());
  return yaml::map({{name, config::emit_reals(all)}});
}

config::Json step_schema(const TransformForm& form) {
  const config::Json number = config::number_schema(-1e300, 1e300);
  const auto list = [&](int least, int most) -> config::Json {
    return {{"type", "array"}, {"items", number}, {"minItems", least}, {"maxItems", most}};
  };
  if (form.kind == Transform::Kind::clip) return list(2, 2);
  if (form.kind == Transform::Kind::scale) return config::any_of({number, list(1, 2)});
  if (form.kind == Transform::Kind::downsample) return config::integer_schema(2, 1024);
  if (form.kind == Transform::Kind::quantile) return {{"enum", {"uniform", "normal"}}};
  if (form.takes == Takes::text) return config::text_schema();
  return form.takes == Takes::number ? number : config::one_or_list_schema(number);
}

config::Json transform_schema() {
  config::Json words = config::Json::array();
  config::Json steps = config::Json::object();
  for (const TransformForm& form : kTransforms) {
    if (form.bare) words.push_back(form.name);
    if (form.takes == Takes::nothing) continue;
    config::Json step = {{"description", config::plain_text(form.meaning)}};
    step.update(step_schema(form));
    steps[std::string(form.name)] = std::move(step);
  }
  return config::one_or_list_schema(config::any_of({{{"enum", std::move(words)}},
                                                    {{"type", "object"},
                                                     {"properties", std::move(steps)},
                                                     {"additionalProperties", false},
                                                     {"minProperties", 1},
                                                     {"maxProperties", 1}}}));
}

void read_transforms(yaml::MapReader& reader, std::string_view key, FieldConfig& field) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  const std::vector<yaml::Node> one = {*node};
  for (const yaml::Node& item : node->is_sequence() ? node->items : one) {
    if (const auto transform = read_transform(item, reader.diagnostics()))
      field.transforms.push_back(*transform);
  }
  const auto analysed = [](const Transform& t) { return is_analysed(t.kind); };
  const auto first = std::find_if(field.transforms.begin(), field.transforms.end(), analysed);
  if (first != field.transforms.end() && first + 1 != field.transforms.end())
    reader.diagnostics().error(node->mark,
                               "standardise, min_max and quantile are of the stored values' statistics: one "
                               "of them may be the last step");
}

void check_shapes(yaml::MapReader& reader, FieldConfig& field) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const std::size_t dropped =
      static_cast<std::size_t>(std::count(field.layout.begin(), field.layout.end(), '_'));
  for (const auto& [key, lengths] : {std::pair{"shape", &field.shape}, std::pair{"pad", &field.pad}}) {
    if (lengths->empty()) continue;
    const std::size_t letters = field.layout.size();
    // Several files without channels of their own get an axis for them; 'pad' applies to the shape in shards.
    const bool joined = field.files.size() > 1 && field.layout.find('C') == std::string::npos;
    const std::size_t axes = key == std::string_view("pad") ? letters - dropped + (joined ? 1 : 0) : letters;
    if (letters > 0 && axes != lengths->size()) {
      diagnostics.error(reader.mark_of(key),
                        fmt::format("'{}' has {} axes, and 'layout' names {}", key, lengths->size(), axes));
    } else if (letters == 0 && lengths->size() > kMostRank) {
      diagnostics.error(reader.mark_of(key), fmt::format("'{}' has more than four axes", key));
    }
  }
  // Several files get an axis of channels.
  const std::size_t stored = field.layout.size() - dropped + (field.files.size() > 1 ? 1 : 0);
  if (!field.layout.empty() && field.chunk && field.chunk->size() > stored)
    diagnostics.error(
        reader.mark_of("chunk"),
        fmt::format("'chunk' has {} numbers, and 'layout' names {} axes", field.chunk->size(), stored));
  const auto channel = field.layout.find('C');
  if (field.layout.empty() || field.channels.empty()) return;
  if (channel == std::string::npos && field.files.size() < 2) {
    diagnostics.error(reader.mark_of("channels"),
                      fmt::format("'channels' names {} channels, but layout: {} has no axis C",
                                  field.channels.size(), field.layout));
  } else if (!field.shape.empty() && field.shape.size() == field.layout.size() &&
             channel != std::string::npos && field.files.size() < 2 &&
             field.shape[channel] != field.channels.size()) {
    diagnostics.error(reader.mark_of("channels"),
                      fmt::format("'channels' names {} channels, but 'shape' has {}", field.channels.size(),
                                  field.shape[channel]));
  }
}

void check_ragged(yaml::MapReader& reader, FieldConfig& field) {
  if (field.ragged.empty()) return;
  const auto refuse = [&](const std::string& why) {
    reader.diagnostics().error(reader.mark_of("ragged"), why);
  };
  if (field.ragged.size() != 1 || std::string_view("TDHW").find(field.ragged) == std::string_view::npos)
    refuse(fmt::format("'ragged' names the axis whose length differs: T, D, H or W, not '{}'", field.ragged));
  for (const char* other : {"pad", "shape", "narrow"}) {
    if (reader.has(other)) refuse(fmt::format("'{}' does not go with 'ragged'", other));
  }
}

// Called after all keys are read.
void check_ragged_field(yaml::MapReader& reader, const FieldConfig& field) {
  if (field.ragged.empty()) return;
  if (!field.layout.empty() && field.layout.find(field.ragged) == std::string::npos)
    reader.diagnostics().error(
        reader.mark_of("ragged"),
        fmt::format("'layout' {} has no axis {} that could be ragged", field.layout, field.ragged));
  for (const Transform& transform : field.transforms) {
    if (transform.kind == Transform::Kind::subcubes)
      reader.diagnostics().error(reader.mark_of("ragged"), "'subcubes' does not go with 'ragged'");
  }
}

void check_layout(yaml::MapReader& reader, FieldConfig& field) {
  const auto problem = layout_problem(field.layout);
  if (!problem) return;
  reader.diagnostics().error(reader.mark_of("layout"),
                             fmt::format("'layout' {}: {}", field.layout, *problem));
  field.layout.clear();
}

void check_raw_shape(yaml::MapReader& reader, FieldConfig& field) {
  if (field.selector.format == Format::raw && field.selector.raw.shape.empty()) {
    if (field.shape.empty())
      reader.diagnostics().error(reader.node().mark,
                                 "raw files need the key 'shape', the lengths of the axes");
    field.selector.raw.shape = field.shape;
  }
  if (field.selector.format == Format::tfrecord && reader.has("raw") && field.selector.raw.shape.empty())
    field.selector.raw.shape = field.shape;
}

void read_parameter(yaml::MapReader& reader, std::string_view key, FieldConfig& field) {
  const std::string column = reader.string(key);
  if (column.empty()) return;
  field.from_parameters = true;
  field.parameters = {column};
}

void read_parameters(yaml::MapReader& reader, std::string_view key, FieldConfig& field) {
  const yaml::Node* list = reader.find(key);
  if (list == nullptr) return;
  if (field.from_parameters)
    reader.diagnostics().error(
        reader.mark_of(key), "'parameter' is one number, 'parameters' a list of them; write one of the two");
  field.from_parameters = true;
  field.vector = true;
  if (!(list->is_scalar() && list->text == "all")) field.parameters = reader.strings(key);
  for (const char* other :
       {"file", "dataset", "variable", "regex", "json", "columns", "shape", "layout", "pad", "ragged"}) {
    if (reader.has(other))
      reader.diagnostics().error(reader.mark_of(other),
                                 fmt::format("'{}' does not go with 'parameters'", other));
  }
}

std::optional<yaml::Node> write_parameter(const FieldConfig& field) {
  const std::string& column = field.parameters.empty() ? field.name : field.parameters.front();
  return column.empty() ? std::nullopt : std::optional(yaml::quoted(column));
}

std::optional<yaml::Node> write_parameters(const FieldConfig& field) {
  return field.parameters.empty() ? yaml::scalar("all") : config::emit_texts(field.parameters);
}

void check_file(yaml::MapReader& reader, FieldConfig& field) {
  for (const std::string& file : field.files) {
    if (file.empty()) reader.diagnostics().error(reader.mark_of("file"), "'file' is empty");
  }
}

// "keep", then the types.
const std::vector<std::string>& stored_types() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> all = {"keep"};
    all.insert(all.end(), dtype_names().begin(), dtype_names().end());
    return all;
  }();
  return types;
}

void read_dtype(yaml::MapReader& reader, std::string_view key, FieldConfig& field) {
  if (const std::size_t type = reader.choice(key, 0, stored_types()); type > 0)
    field.dtype = static_cast<DType>(type - 1);
}

// The lengths of a brick, or the word none.
void read_chunk(yaml::MapReader& reader, std::string_view key, FieldConfig& field) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  field.chunk.emplace();
  if (node->is_scalar() && node->text == "none") return;
  for (const std::int64_t length : reader.integers(key, 1, kMostLength))
    field.chunk->push_back(static_cast<std::size_t>(std::max<std::int64_t>(1, length)));
  if (field.chunk->empty() || field.chunk->size() > kMostRank)
    reader.diagnostics().error(
        node->mark, "'chunk' is the cells of a brick along the last axes, one to four numbers, or none");
  if (reader.has("ragged") || reader.has("parameters"))
    reader.diagnostics().error(node->mark,
                               "'chunk' is for fields of one shape: it goes neither with 'ragged' "
                               "nor with 'parameters'");
}

yaml::Node write_chunk(const FieldConfig& field) {
  if (!field.chunk || field.chunk->empty()) return yaml::scalar("none");
  return config::emit_integers(*field.chunk);
}

bool is_from_files(const FieldConfig& field) {
  return !field.from_parameters;
}

std::vector<config::Key<FieldConfig>> source_keys() {
  std::vector<config::Key<FieldConfig>> keys = {
      config::custom<FieldConfig>("parameter", config::text_schema(), "the column", read_parameter,
                                  write_parameter)
          .unlisted()
          .emitted_if([](const FieldConfig& field) { return field.from_parameters && !field.vector; }),
      config::custom<FieldConfig>("parameters", config::one_or_list_schema(config::text_schema()),
                                  "columns, as one list of numbers; all: every one", read_parameters,
                                  write_parameters)
          .unlisted()
          .emitted_if([](const FieldConfig& field) { return field.from_parameters && field.vector; }),
      config::texts("file", &FieldConfig::files,
                    "in the sample's directory; several are stacked as channels; left out: the sample's own "
                    "file")
          .unlisted()
          .unless_default()
          .emitted_if(is_from_files)
          .then(check_file)};
  for (const config::Key<Selector>& key : selector_table().keys()) {
    const auto is_emitted = key.is_emitted;
    keys.push_back(config::of_part<FieldConfig>(key, &FieldConfig::selector)
                       .unlisted()
                       .emitted_if([is_emitted](const FieldConfig& field) {
                         return is_from_files(field) && (!is_emitted || is_emitted(field.selector));
                       }));
  }
  return keys;
}

std::vector<config::Key<FieldConfig>> form_keys() {
  return {
      config::text("layout", &FieldConfig::layout, "letters of the file's axes, see above")
          .unless_default()
          .then(check_layout),
      config::integers("shape", &FieldConfig::shape, 1, kMostLength,
                       "wflow reshapes the values to it (in the short form, a sample of another shape is "
                       "unusable). Needed for raw")
          .unless_default(),
      config::integers("pad", &FieldConfig::pad, 1, kMostLength,
                       "lengths in the order of the shards. wflow fills shorter samples up with `pad_value`; "
                       "the field `NAME_mask` (uint8) is 1 where values are. Without `pad`, samples of "
                       "another length than the block's first are unusable")
          .unless_default(),
      config::real("pad_value", &FieldConfig::pad_value, -1e300, 1e300, "what fills them up")
          .emitted_if([](const FieldConfig& field) { return field.pad_value != 0; }),
      config::text(
          "ragged", &FieldConfig::ragged,
          "letter of the axis whose length differs from sample to sample: `T`, `D`, `H` or `W`. The "
          "shards hold each sample at its own length, without padding; readers return it padded with "
          "`pad_value` to the longest of the data set, with `NAME_mask`, as `pad` does: "
          "[below](#samples-of-different-lengths)")
          .unless_default()
          .then(check_ragged),
      config::custom<FieldConfig>("transform", transform_schema(), "a list of steps, see below",
                                  read_transforms,
                                  [](const FieldConfig& field) {
                                    std::vector<yaml::Node> steps;
                                    for (const Transform& transform : field.transforms)
                                      steps.push_back(transform_node(transform));
                                    return yaml::sequence(std::move(steps));
                                  })
          .unless_default(),
      config::custom<FieldConfig>(
          "dtype", config::choice_schema(stored_types()),
          "`keep` stores the type that the simulation wrote (the trainer reads any); another type converts, "
          "to integers by rounding. A value that does not fit makes the sample unusable",
          read_dtype,
          [](const FieldConfig& field) {
            return yaml::scalar(field.dtype ? std::string(dtype_name(*field.dtype)) : "keep");
          })
          .unless_default(),
      config::boolean("narrow", &FieldConfig::narrow,
                      "`true`: wflow stores whole numbers in the smallest of uint8, int8, uint16 and int16 "
                      "that fits the whole block, without loss. wflow's readers return the field's own type; "
                      "h5py returns the narrow one (attribute `dtype` names the other)")
          .unless_default(),
      config::custom<FieldConfig>(
          "chunk",
          config::any_of({{{"const", "none"}},
                          {{"type", "array"},
                           {"items", config::integer_schema(1, kMostLength)},
                           {"minItems", 1},
                           {"maxItems", kMostRank}}}),
          "`[64, 64, 64]`: the shards hold each sample in bricks of so many cells along its last axes, with "
          "all channels, so that a reader of a part of the sample decodes only a part of it: "
          "[below](#samples-in-bricks). `none`: in one piece, or above 8 MiB in slabs",
          read_chunk, write_chunk)
          .usually("`[64, 64, 64]` for volumes (axes D, H and W) of 8 MiB a sample or more, else `none`")
          .emitted_if([](const FieldConfig& field) { return field.chunk.has_value(); }),
      config::texts("channels", &FieldConfig::channels, "names along C; the shards record them")
          .unless_default(),
      config::text("units", &FieldConfig::units, "unit of the values; the shards record it")
          .unless_default()};
}

FieldConfig read_field(const std::string& name, const yaml::Node& node, Role role,
                       yaml::Diagnostics& diagnostics) {
  FieldConfig field;
  field.name = name;
  field.role = role;
  if (node.is_scalar()) {
    const bool one = node.text == "parameter";
    if (!one && node.text != "parameters") {
      diagnostics.error(node.mark,
                        fmt::format("'{}' must be the word parameter (the column of that name), or a mapping "
                                    "such as {{file: u.h5, dataset: /density}}, found {}",
                                    name, node.describe()));
    }
    field.from_parameters = true;
    field.vector = !one;
    if (one) field.parameters = {name};
    return field;
  }
  yaml::MapReader reader(node, fmt::format("the field '{}'", name), diagnostics);
  field_table().read_keys(reader, field);
  check_shapes(reader, field);
  check_raw_shape(reader, field);
  check_ragged_field(reader, field);
  reader.finish();
  return field;
}

}  // namespace

std::vector<FieldConfig> read_fields(const yaml::Node& node, Role role, yaml::Diagnostics& diagnostics) {
  static const std::set<std::string_view> kReserved = {"id", "missing", "wflow"};
  std::vector<FieldConfig> fields;
  for (const auto& [key, value] : node.entries) {
    if (!is_field_name(key.text)) {
      diagnostics.error(
          key.mark, fmt::format("'{}' is no name of a field; use letters, digits and _ - . = +, at most 100",
                                key.text));
    } else if (kReserved.contains(key.text)) {
      diagnostics.error(
          key.mark,
          fmt::format("a field can't be named '{}': the shards have a table of that name", key.text));
    }
    fields.push_back(read_field(key.text, value, role, diagnostics));
  }
  if (fields.empty()) diagnostics.error(node.mark, fmt::format("'{}s' names no field", role_name(role)));
  return fields;
}

const config::Table<FieldConfig>& field_table() {
  static const config::Table<FieldConfig> table("the field",
                                                config::joined<FieldConfig>({source_keys(), form_keys()}));
  return table;
}

config::Json fields_schema() {
  const config::Json field =
      config::any_of({{{"enum", {"parameter", "parameters"}}}, field_table().schema()});
  const config::Json list = config::one_or_list_schema(config::text_schema());
  return config::any_of({{{"type", "object"}, {"additionalProperties", field}, {"minProperties", 1}}, list});
}

std::vector<config::Section> field_sections() {
  std::vector<config::Row> steps;
  for (const TransformForm& form : kTransforms)
    steps.push_back({std::string(form.name), form.usual, form.meaning});
  return {{"convert.values", selector_table().rows()},
          {"convert.raw", raw_table().rows()},
          {"convert.gadget", gadget_table().rows()},
          {"convert.field", field_table().rows()},
          {"convert.transform", std::move(steps)}};
}

yaml::Node fields_to_yaml(const std::vector<FieldConfig>& fields, Role role) {
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const FieldConfig& field : fields) {
    if (field.role == role) entries.emplace_back(field.name, field_table().write(field));
  }
  return yaml::map(std::move(entries));
}

}  // namespace wflow::converters
