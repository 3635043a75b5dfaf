// SPDX-License-Identifier: Apache-2.0
#include "converters/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace wflow::converters {

namespace {

const std::vector<std::string> kFormats = {"auto", "hdf5", "npy", "raw"};
const std::vector<std::string> kByteOrders = {"little", "big"};
const std::vector<std::string> kCompressions = {"gzip", "none"};
const std::vector<std::string> kOnMissing = {"skip", "fail"};
const std::vector<std::string> kOutputTypes = {"keep", "float32"};

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
  } else if (!config.from.empty() && config.file.empty()) {
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

void read_shape(yaml::MapReader& reader, ConvertConfig& config) {
  for (const std::int64_t length : reader.integers("shape", 1, std::int64_t{1} << 31)) {
    config.shape.push_back(static_cast<std::size_t>(std::max<std::int64_t>(length, 1)));
  }
  if (!config.shape.empty() && !normal_shape(config.shape)) {
    reader.diagnostics().error(reader.mark_of("shape"),
                               "'shape' has at most four axes: channels, depth, height, width");
  }
}

void read_raw(yaml::MapReader& reader, ConvertConfig& config) {
  const yaml::Node* block = reader.find("raw");
  const bool is_raw = config.format == Format::raw;
  if (block == nullptr) {
    if (is_raw) reader.diagnostics().error(reader.node().mark, "format raw needs 'raw: {dtype: ...}'");
  } else {
    yaml::MapReader raw(*block, "the raw: block", reader.diagnostics());
    raw.required("dtype");
    config.raw_dtype = choose(raw, "dtype", DType::float32, dtype_names());
    config.byte_order = choose(raw, "byte_order", ByteOrder::little, kByteOrders);
    config.offset = static_cast<std::uint64_t>(raw.integer("offset", 0, 0, kMostSamples));
    raw.finish();
    if (config.format == Format::hdf5 || config.format == Format::npy) {
      reader.diagnostics().error(reader.mark_of("raw"), "'raw' needs format: raw (or auto)");
    }
  }
  if ((is_raw || block != nullptr) && config.shape.empty()) {
    reader.diagnostics().error(reader.node().mark, "raw files need the key 'shape': [C, D, H, W]");
  }
}

void read_input(yaml::MapReader& reader, ConvertConfig& config) {
  config.format = choose(reader, "format", Format::automatic, kFormats);
  config.dataset = reader.string("dataset");
  config.stacked = reader.boolean("stacked", false);
  if (!config.dataset.empty() && (config.format == Format::npy || config.format == Format::raw)) {
    reader.diagnostics().error(reader.mark_of("dataset"), "'dataset' is for HDF5 files");
  }
  read_shape(reader, config);
  read_raw(reader, config);
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

void read_labels(yaml::MapReader& reader, ConvertConfig& config) {
  config.targets = distinct_names(reader, "targets");
  config.channels = distinct_names(reader, "channels");
  config.units = reader.string("units");
  const auto shape = normal_shape(config.shape);
  if (config.channels.empty() || config.shape.empty() || !shape || (*shape)[0] == config.channels.size())
    return;
  reader.diagnostics().error(
      reader.mark_of("channels"),
      fmt::format("'channels' names {} channels, but 'shape' has {}", config.channels.size(), (*shape)[0]));
}

// A whole number is a count, anything else a fraction; 0 goes with both.
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
  for (std::size_t k = 0; k < 3; ++k) request.parts[k] = parts[k].value;
  // Without `test`, it is what the others leave.
  if (!counts && parts[2].kind == Part::Kind::absent) {
    request.parts[2] = std::max(0.0, 1 - request.parts[0] - request.parts[1]);
  }
}

void read_split(yaml::MapReader& reader, ConvertConfig& config) {
  const yaml::Node* node = reader.find("split");
  if (node != nullptr) {
    yaml::MapReader split(*node, "the split: block", reader.diagnostics());
    config.split.seed = static_cast<std::uint64_t>(split.integer("seed", 1, 0, INT64_MAX));
    read_parts(split, config.split);
    split.finish();
  }
  if (!config.split.fractions && config.count == 0) return;  // the caller asks again when it knows
  if (const auto problem = split_problem(config.split, config.count)) {
    reader.diagnostics().error(reader.mark_of("split"), "'split' does not fit: " + *problem);
  }
}

void read_output(yaml::MapReader& reader, ConvertConfig& config) {
  if (choose(reader, "dtype", 0, kOutputTypes) == 1) config.dtype = DType::float32;
  config.check_finite = reader.boolean("check_finite", true);
  config.compression = choose(reader, "compression", Compression::gzip, kCompressions);
  config.level = static_cast<int>(reader.integer("level", 1, 1, kMostDeflate));
  config.shard_samples = static_cast<std::uint64_t>(reader.integer("shard_samples", 0, 1, kMostSamples));
  config.on_missing = choose(reader, "on_missing", OnMissing::skip, kOnMissing);
  config.max_missing = reader.real("max_missing", 0.5, 0, 1);
  config.delete_inputs = reader.boolean("delete_inputs", false);
  if (config.delete_inputs && config.stacked) {
    reader.diagnostics().error(
        reader.mark_of("delete_inputs"),
        "'delete_inputs' does not go with 'stacked': a file may hold samples of other blocks");
  }
  config.name = reader.string("name");
  config.count = static_cast<std::uint64_t>(reader.integer("count", 0, 1, kMostSamples));
}

}  // namespace

ConvertConfig read_convert_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  ConvertConfig config;
  yaml::MapReader reader(block, "the convert: block", diagnostics);
  read_source(reader, config);
  read_input(reader, config);
  read_labels(reader, config);
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

yaml::Node raw_node(const ConvertConfig& config) {
  Writer raw;
  raw.plain("dtype", std::string(dtype_name(config.raw_dtype)));
  raw.plain("byte_order", word(config.byte_order, kByteOrders));
  raw.positive("offset", config.offset);
  return raw.take();
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
  return split.take();
}

bool has_raw(const ConvertConfig& config) {
  const ConvertConfig defaults;
  return config.format == Format::raw || config.raw_dtype != defaults.raw_dtype ||
         config.byte_order != defaults.byte_order || config.offset != defaults.offset;
}

}  // namespace

yaml::Node to_yaml(const ConvertConfig& config) {
  Writer out;
  out.text("from", config.from);
  out.text("samples", config.samples);
  out.text("file", config.file);
  out.positive("bundle", config.bundle);
  out.plain("format", word(config.format, kFormats));
  if (config.stacked) out.flag("stacked", true);
  out.text("dataset", config.dataset);
  if (!config.shape.empty()) out.node("shape", shape_node(config.shape));
  if (has_raw(config)) out.node("raw", raw_node(config));
  out.texts("targets", config.targets);
  out.texts("channels", config.channels);
  out.text("units", config.units);
  out.plain("dtype", config.dtype ? "float32" : "keep");
  out.flag("check_finite", config.check_finite);
  out.plain("compression", word(config.compression, kCompressions));
  out.plain("level", fmt::to_string(config.level));
  out.positive("shard_samples", config.shard_samples);
  out.node("split", split_node(config.split));
  out.plain("on_missing", word(config.on_missing, kOnMissing));
  out.plain("max_missing", text::from_real(config.max_missing));
  out.flag("delete_inputs", config.delete_inputs);
  out.text("output", config.output);
  out.text("name", config.name);
  out.positive("count", config.count);
  return out.take();
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

std::uint64_t shard_samples_of(const ConvertConfig& config, std::uint64_t count, std::uint64_t sample_bytes) {
  constexpr std::uint64_t kUnknownSize = 64;
  const std::uint64_t most = std::max<std::uint64_t>(count, 1);
  if (config.shard_samples > 0) return std::min(config.shard_samples, most);
  if (const auto shape = normal_shape(config.shape)) {
    sample_bytes = dtype_size(config.dtype.value_or(config.raw_dtype));
    for (const std::size_t length : *shape) sample_bytes *= length;
  }
  const std::uint64_t wanted =
      sample_bytes == 0 ? kUnknownSize : std::max<std::uint64_t>(kShardBytes / sample_bytes, 1);
  return std::min(wanted, most);
}

std::uint64_t block_count(std::uint64_t count, std::uint64_t shard_samples) {
  return (count + shard_samples - 1) / shard_samples;
}

}  // namespace wflow::converters
