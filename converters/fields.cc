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
#include "converters/formula.h"

namespace wflow::converters {

namespace {

const std::vector<std::string> kFormats = {"auto", "hdf5", "npy",  "npz",    "raw",   "netcdf",
                                           "csv",  "text", "json", "gadget", "image", "tfrecord"};
const std::vector<std::string> kByteOrders = {"little", "big"};
const std::vector<std::string> kOrders = {"c", "fortran"};
const std::vector<std::string> kMatches = {"one", "first", "last", "all"};

// The arguments of a transform.
struct TransformForm {
  std::string_view name;
  Transform::Kind kind;
  enum class Takes { nothing, number, pair, numbers, text, block_and_edges } takes;
  bool bare = false;  // needs no argument
};
using Takes = TransformForm::Takes;
constexpr std::array<TransformForm, 13> kTransforms = {{
    {"log1p", Transform::Kind::log1p, Takes::nothing, true},
    {"asinh", Transform::Kind::asinh, Takes::number, true},
    {"clip", Transform::Kind::clip, Takes::pair},
    {"scale", Transform::Kind::scale, Takes::pair},
    {"downsample", Transform::Kind::downsample, Takes::number},
    {"histogram", Transform::Kind::histogram, Takes::block_and_edges},
    {"crop", Transform::Kind::crop, Takes::numbers},
    {"subcubes", Transform::Kind::subcubes, Takes::number},
    {"one_hot", Transform::Kind::one_hot, Takes::number},
    {"expression", Transform::Kind::expression, Takes::text},
    {"standardise", Transform::Kind::standardise, Takes::nothing, true},
    {"min_max", Transform::Kind::min_max, Takes::pair, true},
    {"quantile", Transform::Kind::quantile, Takes::text, true},
}};
constexpr double kMostClasses = 4096;
constexpr std::size_t kMostEdges = 257;
constexpr double kMostCells = 1 << 20;  // limit for a crop or a sub-cube, along an axis

constexpr std::int64_t kMostLength = std::int64_t{1} << 31;
constexpr std::int64_t kMostOffset = std::int64_t{1} << 52;
constexpr std::size_t kMostName = 100;
constexpr std::int64_t kMostGrid = 512;
constexpr std::size_t kMostPattern = 1000;

using Entries = std::vector<std::pair<std::string, yaml::Node>>;

bool is_field_name(std::string_view name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-.=+").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMostName && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

std::vector<std::size_t> read_lengths(yaml::MapReader& reader, std::string_view key) {
  std::vector<std::size_t> lengths;
  for (const std::int64_t length : reader.integers(key, 1, kMostLength))
    lengths.push_back(static_cast<std::size_t>(std::max<std::int64_t>(length, 1)));
  return lengths;
}

void read_raw(yaml::MapReader& reader, Selector& selector) {
  const yaml::Node* block = reader.find("raw");
  const bool is_raw = selector.format == Format::raw;
  if (block == nullptr) {
    if (is_raw) reader.diagnostics().error(reader.node().mark, "format raw needs 'raw: {dtype: ...}'");
    return;
  }
  yaml::MapReader raw(*block, "the raw: block", reader.diagnostics());
  RawForm& form = selector.raw;
  raw.required("dtype");
  form.dtype =
      static_cast<DType>(raw.choice("dtype", static_cast<std::size_t>(DType::float32), dtype_names()));
  form.byte_order = static_cast<ByteOrder>(raw.choice("byte_order", 0, kByteOrders));
  form.fortran_order = raw.choice("order", 0, kOrders) == 1;
  form.offset = static_cast<std::uint64_t>(raw.integer("offset", 0, 0, kMostOffset));
  form.markers = static_cast<std::uint32_t>(raw.integer("record_markers", 0, 0, 8));
  if (form.markers != 0 && form.markers != 4 && form.markers != 8) {
    raw.diagnostics().error(raw.mark_of("record_markers"),
                            "'record_markers' is the bytes of a record's length: 4 or 8");
  }
  form.shape = read_lengths(raw, "shape");
  raw.finish();
  if (selector.format == Format::tfrecord) return;  // for a feature of bytes
  if (selector.format != Format::raw && selector.format != Format::automatic) {
    reader.diagnostics().error(reader.mark_of("raw"), "'raw' needs format: raw (or auto), or tfrecord");
  }
  selector.format = Format::raw;
}

void read_gadget(yaml::MapReader& reader, Selector& selector) {
  const yaml::Node* block = reader.find("gadget");
  if (block == nullptr) {
    if (selector.format == Format::gadget)
      reader.diagnostics().error(reader.node().mark,
                                 "format gadget needs 'gadget: {grid: 64}', the cells an axis");
    return;
  }
  yaml::MapReader gadget(*block, "the gadget: block", reader.diagnostics());
  gadget.required("grid");
  selector.gadget.grid = static_cast<std::uint32_t>(gadget.integer("grid", 0, 1, kMostGrid));
  selector.gadget.types = gadget.integers("types", 0, 5);
  gadget.finish();
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

void read_selector(yaml::MapReader& reader, Selector& selector) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  selector.format = static_cast<Format>(reader.choice("format", 0, kFormats));
  selector.dataset = reader.string("dataset");
  const std::string variable = reader.string("variable");
  if (!variable.empty() && !selector.dataset.empty()) {
    diagnostics.error(reader.mark_of("variable"), "'variable' and 'dataset' are the same key; write one");
  } else if (!variable.empty()) {
    selector.dataset = variable;
    if (selector.format == Format::automatic) selector.format = Format::netcdf;
  }
  selector.attribute = reader.string("attribute");
  selector.columns = reader.strings("columns");
  selector.regex = reader.string("regex");
  imply(reader, selector, "regex", !selector.regex.empty(), Format::text);
  check_regex(reader, selector);
  selector.match = static_cast<Match>(reader.choice("match", 0, kMatches));
  if (reader.has("match") && selector.regex.empty())
    diagnostics.error(reader.mark_of("match"), "'match' belongs to 'regex'");
  selector.json = reader.string("json");
  imply(reader, selector, "json", !selector.json.empty(), Format::json);
  if (selector.format == Format::json && selector.json.empty())
    diagnostics.error(reader.node().mark,
                      "format json needs the key 'json': the path of the value, such as $.result.energy");
  if (selector.format == Format::text && selector.regex.empty())
    diagnostics.error(reader.node().mark, "format text needs the key 'regex', such as 'E = (\\S+)'");
  if (!selector.json.empty() && selector.json[0] != '/' && selector.json[0] != '$')
    diagnostics.error(reader.mark_of("json"),
                      "'json' is a path from the top of the file: $.result.energy or /result/energy");
  selector.slice = reader.string("slice");
  if (!selector.slice.empty() && !parse_slice(selector.slice))
    diagnostics.error(reader.mark_of("slice"),
                      "'slice' is written as in NumPy, with steps from 1: '0, :, 10:20, -1'");
  check_dataset(reader, selector);
  imply(reader, selector, "attribute", !selector.attribute.empty(), Format::hdf5);
  read_raw(reader, selector);
  read_gadget(reader, selector);
}

namespace {

void read_file_names(yaml::MapReader& reader, FieldConfig& field) {
  field.files = reader.strings("file");
  for (const std::string& file : field.files) {
    if (file.empty()) reader.diagnostics().error(reader.mark_of("file"), "'file' is empty");
  }
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

void read_transforms(yaml::MapReader& reader, FieldConfig& field) {
  const yaml::Node* node = reader.find("transform");
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

void read_form(yaml::MapReader& reader, FieldConfig& field) {
  field.layout = reader.string("layout");
  if (const auto problem = layout_problem(field.layout)) {
    reader.diagnostics().error(reader.mark_of("layout"),
                               fmt::format("'layout' {}: {}", field.layout, *problem));
    field.layout.clear();
  }
  field.shape = read_lengths(reader, "shape");
  field.pad = read_lengths(reader, "pad");
  field.pad_value = reader.real("pad_value", 0, -1e300, 1e300);
  field.channels = reader.strings("channels");
  field.units = reader.string("units");
  std::vector<std::string> types = {"keep"};
  types.insert(types.end(), dtype_names().begin(), dtype_names().end());
  if (const std::size_t type = reader.choice("dtype", 0, types); type > 0)
    field.dtype = static_cast<DType>(type - 1);
  field.narrow = reader.boolean("narrow", false);
  read_transforms(reader, field);
  check_shapes(reader, field);
  if (field.selector.format == Format::raw && field.selector.raw.shape.empty()) {
    if (field.shape.empty())
      reader.diagnostics().error(reader.node().mark,
                                 "raw files need the key 'shape', the lengths of the axes");
    field.selector.raw.shape = field.shape;
  }
  if (field.selector.format == Format::tfrecord && reader.has("raw") && field.selector.raw.shape.empty())
    field.selector.raw.shape = field.shape;
}

void read_parameters(yaml::MapReader& reader, FieldConfig& field) {
  const std::string one = reader.string("parameter");
  const yaml::Node* list = reader.find("parameters");
  field.from_parameters = !one.empty() || list != nullptr;
  if (!one.empty() && list != nullptr)
    reader.diagnostics().error(
        reader.mark_of("parameters"),
        "'parameter' is one number, 'parameters' a list of them; write one of the two");
  if (!one.empty()) field.parameters = {one};
  if (list == nullptr) return;
  field.vector = true;
  if (!(list->is_scalar() && list->text == "all")) field.parameters = reader.strings("parameters");
  for (const char* key :
       {"file", "dataset", "variable", "regex", "json", "columns", "shape", "layout", "pad"}) {
    if (reader.has(key))
      reader.diagnostics().error(reader.mark_of(key), fmt::format("'{}' does not go with 'parameters'", key));
  }
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
  read_parameters(reader, field);
  read_file_names(reader, field);
  read_selector(reader, field.selector);
  read_form(reader, field);
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

namespace {

yaml::Node text_list(const std::vector<std::string>& values) {
  std::vector<yaml::Node> items;
  for (const auto& value : values) items.push_back(yaml::quoted(value));
  return yaml::sequence(std::move(items));
}

yaml::Node length_list(const std::vector<std::size_t>& lengths) {
  std::vector<yaml::Node> items;
  for (const std::size_t length : lengths) items.push_back(yaml::scalar(fmt::to_string(length)));
  return yaml::sequence(std::move(items));
}

void put_text(Entries& entries, const char* key, const std::string& value) {
  if (!value.empty()) entries.emplace_back(key, yaml::quoted(value));
}
void put_texts(Entries& entries, const char* key, const std::vector<std::string>& values) {
  if (!values.empty()) entries.emplace_back(key, text_list(values));
}
void put_lengths(Entries& entries, const char* key, const std::vector<std::size_t>& lengths) {
  if (!lengths.empty()) entries.emplace_back(key, length_list(lengths));
}

yaml::Node raw_node(const RawForm& raw) {
  Entries entries;
  entries.emplace_back("dtype", yaml::scalar(std::string(dtype_name(raw.dtype))));
  entries.emplace_back("byte_order", yaml::scalar(kByteOrders[static_cast<std::size_t>(raw.byte_order)]));
  if (raw.fortran_order) entries.emplace_back("order", yaml::scalar("fortran"));
  if (raw.offset > 0) entries.emplace_back("offset", yaml::scalar(fmt::to_string(raw.offset)));
  if (raw.markers > 0) entries.emplace_back("record_markers", yaml::scalar(fmt::to_string(raw.markers)));
  put_lengths(entries, "shape", raw.shape);
  return yaml::map(std::move(entries));
}

yaml::Node gadget_node(const GadgetForm& gadget) {
  Entries entries;
  entries.emplace_back("grid", yaml::scalar(fmt::to_string(gadget.grid)));
  if (!gadget.types.empty()) {
    std::vector<yaml::Node> types;
    for (const std::int64_t type : gadget.types) types.push_back(yaml::scalar(fmt::to_string(type)));
    entries.emplace_back("types", yaml::sequence(std::move(types)));
  }
  return yaml::map(std::move(entries));
}

yaml::Node number_list(std::span<const double> numbers) {
  std::vector<yaml::Node> items;
  for (const double number : numbers) items.push_back(yaml::scalar(text::from_real(number)));
  return yaml::sequence(std::move(items));
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
      return yaml::map({{name, number_list(std::array{transform.a, transform.b})}});
    case Takes::text:
      return yaml::map({{name, yaml::quoted(transform.text)}});
    case Takes::numbers:
      return yaml::map({{name, number_list(transform.numbers)}});
    case Takes::block_and_edges:
      break;
  }
  std::vector<double> all = {transform.a};
  all.insert(all.end(), transform.numbers.begin(), transform.numbers.end());
  return yaml::map({{name, number_list(all)}});
}

yaml::Node field_node(const FieldConfig& field) {
  Entries entries;
  if (field.from_parameters && !field.vector) {
    put_text(entries, "parameter", field.parameters.empty() ? field.name : field.parameters.front());
  } else if (field.from_parameters) {
    entries.emplace_back("parameters",
                         field.parameters.empty() ? yaml::scalar("all") : text_list(field.parameters));
  } else {
    put_texts(entries, "file", field.files);
    write_selector(entries, field.selector);
  }
  put_text(entries, "layout", field.layout);
  put_lengths(entries, "shape", field.shape);
  put_lengths(entries, "pad", field.pad);
  if (field.pad_value != 0) entries.emplace_back("pad_value", yaml::scalar(text::from_real(field.pad_value)));
  if (!field.transforms.empty()) {
    std::vector<yaml::Node> items;
    for (const Transform& transform : field.transforms) items.push_back(transform_node(transform));
    entries.emplace_back("transform", yaml::sequence(std::move(items)));
  }
  if (field.dtype) entries.emplace_back("dtype", yaml::scalar(std::string(dtype_name(*field.dtype))));
  if (field.narrow) entries.emplace_back("narrow", yaml::scalar("true"));
  put_texts(entries, "channels", field.channels);
  put_text(entries, "units", field.units);
  return yaml::map(std::move(entries));
}

}  // namespace

void write_selector(Entries& entries, const Selector& selector) {
  entries.emplace_back("format", yaml::scalar(std::string(format_name(selector.format))));
  put_text(entries, "dataset", selector.dataset);
  put_text(entries, "attribute", selector.attribute);
  put_texts(entries, "columns", selector.columns);
  put_text(entries, "regex", selector.regex);
  if (!selector.regex.empty())
    entries.emplace_back("match", yaml::scalar(kMatches[static_cast<std::size_t>(selector.match)]));
  put_text(entries, "json", selector.json);
  put_text(entries, "slice", selector.slice);
  if (selector.format == Format::raw || (selector.format == Format::tfrecord && !selector.raw.shape.empty()))
    entries.emplace_back("raw", raw_node(selector.raw));
  if (selector.format == Format::gadget) entries.emplace_back("gadget", gadget_node(selector.gadget));
}

yaml::Node fields_to_yaml(const std::vector<FieldConfig>& fields, Role role) {
  Entries entries;
  for (const FieldConfig& field : fields) {
    if (field.role == role) entries.emplace_back(field.name, field_node(field));
  }
  return yaml::map(std::move(entries));
}

}  // namespace wflow::converters
