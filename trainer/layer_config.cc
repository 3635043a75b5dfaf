// SPDX-License-Identifier: Apache-2.0
#include "trainer/layer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/config_table.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr auto kKinds = static_cast<std::size_t>(LayerKind::count);

const std::array<std::string, kKinds> kNames = {"convolution",
                                                "transposed_convolution",
                                                "dense",
                                                "batch_norm",
                                                "group_norm",
                                                "layer_norm",
                                                "leaky_relu",
                                                "relu",
                                                "elu",
                                                "gelu",
                                                "silu",
                                                "sigmoid",
                                                "tanh",
                                                "softplus",
                                                "tanh_scale",
                                                "dropout",
                                                "average_pool",
                                                "max_pool",
                                                "upsample",
                                                "resize",
                                                "pixel_shuffle",
                                                "slice",
                                                "gather",
                                                "embedding",
                                                "instance_norm",
                                                "flatten",
                                                "global_mean",
                                                "global_max",
                                                "softmax",
                                                "reshape",
                                                "add",
                                                "concatenate",
                                                "sample",
                                                "lstm",
                                                "gru",
                                                "attention",
                                                "positions",
                                                "coordinates",
                                                "spectral_convolution",
                                                "conv_lstm",
                                                "stop",
                                                "subtract",
                                                "film",
                                                "mix",
                                                "spread",
                                                "trace_density",
                                                "apply"};

const std::array<std::string, 3> kPaddings = {"same", "valid", "periodic"};
const std::array<std::string, 4> kInits = {"auto", "he", "torch", "zero"};
const std::array<std::string, 4> kAxes = {"channels", "depth", "height", "width"};
const std::array<std::string, 2> kStepOutputs = {"last", "sequence"};

// Meaning of what follows a kind's name: a number, or a list of numbers; `cells`: a factor or a list; `part`:
// the name of a part.
enum class Argument { none, size, value, shape, range, channels, cells, part };

struct Form {
  Argument argument = Argument::none;
  bool needed = false;
  double fallback = 0;
  std::size_t least_inputs = 1;
  std::size_t most_inputs = 1;
};

Form form_of(LayerKind kind) {
  constexpr std::size_t kMany = 1000;
  switch (kind) {
    case LayerKind::convolution:
    case LayerKind::transposed_convolution:
    case LayerKind::linear:
      return {Argument::size, true};
    case LayerKind::group_norm:
      return {Argument::size, false, 0};
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::upsample:
    case LayerKind::pixel_shuffle:
      return {Argument::size, false, 2};
    case LayerKind::resize:
      return {Argument::cells, false, 2};
    case LayerKind::slice:
      return {Argument::range, true};
    case LayerKind::gather:
      return {Argument::channels, true};
    case LayerKind::embedding:
      return {Argument::size, true};
    case LayerKind::leaky_relu:
      return {Argument::value, false, 0.01};
    case LayerKind::tanh_scale:
      return {Argument::value, false, 1.2};
    case LayerKind::dropout:
      return {Argument::value, false, 0.5};
    case LayerKind::reshape:
      return {Argument::shape, true};
    case LayerKind::add:
    case LayerKind::concatenate:
      return {Argument::none, false, 0, 2, kMany};
    case LayerKind::sample:
    case LayerKind::subtract:
    case LayerKind::film:
    case LayerKind::mix:
    case LayerKind::spread:
      return {Argument::none, false, 0, 2, 2};
    case LayerKind::trace_density:
      return {Argument::size, false, 128, 2, 2};
    case LayerKind::apply:
      return {Argument::part, true, 0, 1, kMany};
    case LayerKind::lstm:
    case LayerKind::gru:
      return {Argument::size, true, 0, 1, 2};
    case LayerKind::attention:
      return {Argument::size, false, 1, 1, 2};
    case LayerKind::spectral_convolution:
    case LayerKind::conv_lstm:
      return {Argument::size, true};
    default:
      return {};
  }
}

bool is_convolution(LayerKind kind) {
  return kind == LayerKind::convolution || kind == LayerKind::transposed_convolution;
}

bool has_weights(LayerKind kind) {
  return is_convolution(kind) || kind == LayerKind::linear;
}

// The name of the argument that a layer lacks, and an example.
std::pair<const char*, const char*> needed_text(Argument argument) {
  switch (argument) {
    case Argument::shape:
      return {"shape", "[8, 4, 4, 4]"};
    case Argument::range:
      return {"range", "[0, 4]"};
    case Argument::channels:
      return {"channels", "[0, 2]"};
    case Argument::part:
      return {"part", "discriminator"};
    default:
      return {"size", "16"};
  }
}

void read_padding(yaml::MapReader& reader, std::string_view key, LayerConfig& layer) {
  layer.padding =
      static_cast<Padding>(reader.choice(key, static_cast<std::size_t>(layer.padding), kPaddings));
  if (layer.padding != Padding::periodic || layer.kind == LayerKind::convolution) return;
  reader.diagnostics().error(
      reader.mark_of(key),
      "a transposed convolution can't be periodic: use 'upsample' and a convolution with "
      "'padding: periodic', or a kernel as large as the stride, which needs no padding");
}

// The keys of a layer beside the one that its kind names.
const config::Table<LayerConfig>& layer_table() {
  const auto is_window = [](const LayerConfig& layer) { return is_convolution(layer.kind); };
  const auto is_plain = [](const LayerConfig& layer) { return layer.kind == LayerKind::convolution; };
  static const config::Table<LayerConfig> table(
      "a layer",
      {config::text("name", &LayerConfig::name, "name of the layer").usually("kind and number"),
       // LayerReader::read_inputs() reads it, which knows the layers so far.
       config::custom<LayerConfig>(
           "from", config::one_or_list_schema({{"type", "string"}}), "the layers or inputs that it reads",
           [](yaml::MapReader& reader, std::string_view key, LayerConfig&) { reader.has(key); },
           [](const LayerConfig& layer) { return config::emit_texts(layer.from); })
           .usually("the layer before"),
       config::integer("kernel", &LayerConfig::kernel, 1, 1 << 16,
                       "convolutions: cells of a window along each axis")
           .usually("3; transposed 2")
           .only_if([](const LayerConfig& layer) {
             return is_convolution(layer.kind) || layer.kind == LayerKind::conv_lstm;
           })
           .then([](yaml::MapReader&, LayerConfig& layer) {
             layer.stride = layer.kind == LayerKind::transposed_convolution ? layer.kernel : 1;
           }),
       config::integer("stride", &LayerConfig::stride, 1, 1 << 16, "convolutions: cells between two windows")
           .usually("1; transposed the kernel")
           .only_if(is_window),
       config::integer("dilation", &LayerConfig::dilation, 1, 1 << 16,
                       "convolution: distance between the cells of a window")
           .usually("1")
           .only_if(is_plain)
           .only_if_set(),
       config::integer("groups", &LayerConfig::groups, 1, 1 << 24,
                       "convolution: groups of channels that do not mix; as many as channels: depth-wise")
           .usually("1")
           .only_if(is_plain)
           .only_if_set(),
       config::custom<LayerConfig>(
           "padding", config::choice_schema(kPaddings),
           "convolutions: zeros around the field (`same`), only windows that fit (`valid`), or as many cells "
           "as "
           "with `same`, from the [other end of the field](train.md#periodic-fields) (`periodic`). A "
           "transposed one with `same` gives the cells times the stride, and cuts off what its windows reach "
           "beyond",
           read_padding,
           [](const LayerConfig& layer) {
             return yaml::scalar(kPaddings[static_cast<std::size_t>(layer.padding)]);
           })
           .usually("`same`; transposed `valid`")
           .only_if(is_window),
       config::boolean("bias", &LayerConfig::bias, "convolutions: add a bias a channel")
           .only_if(is_window)
           .usually("`true`"),
       config::choice("init", &LayerConfig::init, kInits,
                      "convolutions and dense layers: initial weights; `auto`: by `init` of the model")
           .only_if([](const LayerConfig& layer) { return has_weights(layer.kind); }),
       config::text("part", &LayerConfig::part,
                    "name of the [part](train.md#parts) that it and the layers after it belong to")
           .usually("that of the layer before")
           .unless_default(),
       config::integer("classes", &LayerConfig::classes, 1, 1 << 24,
                       "embedding: number of classes, which are 0, 1, ...")
           .only_if([](const LayerConfig& layer) { return layer.kind == LayerKind::embedding; })
           .required(),
       config::choice(
           "axis", &LayerConfig::axis, kAxes,
           "slice: the axis that it cuts. A series has only `width`, an image `height` and `width`")
           .usually("`channels`")
           .only_if([](const LayerConfig& layer) { return layer.kind == LayerKind::slice; }),
       config::boolean("bidirectional", &LayerConfig::bidirectional,
                       "lstm and gru: a second layer of as many units reads the steps from the last on")
           .usually("`false`")
           .only_if([](const LayerConfig& layer) { return is_recurrent(layer.kind); }),
       config::choice("output", &LayerConfig::output, kStepOutputs,
                      "lstm, gru and conv_lstm: the state after the last step (`last`) or after each step "
                      "(`sequence`)")
           .usually("`last`")
           .only_if([](const LayerConfig& layer) {
             return is_recurrent(layer.kind) || layer.kind == LayerKind::conv_lstm;
           }),
       config::integer("modes", &LayerConfig::modes, 1, 1 << 16,
                       "spectral_convolution: lowest frequencies kept along each axis, at most half of its "
                       "cells")
           .usually("`12`")
           .only_if([](const LayerConfig& layer) { return layer.kind == LayerKind::spectral_convolution; }),
       config::integer("components", &LayerConfig::components, 1, 1000,
                       "trace_density: normal distributions that a proposal is a sum of")
           .usually("`8`")
           .only_if([](const LayerConfig& layer) { return layer.kind == LayerKind::trace_density; }),
       config::boolean("learned", &LayerConfig::learned,
                       "positions: a learned table instead of sines and cosines")
           .usually("`false`")
           .only_if([](const LayerConfig& layer) { return layer.kind == LayerKind::positions; })});
  return table;
}

// Reads the entries in order and knows the names of those before.
class LayerReader {
 public:
  LayerReader(std::span<const std::string> inputs, yaml::Diagnostics& diagnostics)
      : inputs_(inputs.begin(), inputs.end()), diagnostics_(diagnostics) {}

  std::vector<LayerConfig> read(const yaml::Node& list) {
    for (const yaml::Node& entry : list.items) read_entry(entry);
    return std::move(layers_);
  }

 private:
  void read_entry(const yaml::Node& entry) {
    yaml::Node block = entry;
    if (entry.is_scalar()) {
      block = yaml::map({{entry.text, yaml::Node()}});
      block.mark = entry.mark;
    }
    if (!block.is_map()) {
      diagnostics_.error(entry.mark,
                         fmt::format("a layer is a word or a mapping such as {{convolution: 16, kernel: 3}}, "
                                     "found {}",
                                     entry.describe()));
      return;
    }
    const std::size_t kind = find_kind(block);
    if (kind == kKinds) return;
    LayerConfig layer;
    layer.kind = static_cast<LayerKind>(kind);
    yaml::MapReader reader(block, fmt::format("layer {} ({})", layers_.size() + 1, kNames[kind]),
                           diagnostics_);
    read_argument(reader, block, layer);
    layer.name = fmt::format("{}{}", kNames[kind], ++counts_[kind]);
    layer.kernel = layer.kind == LayerKind::transposed_convolution ? 2 : 3;
    if (layer.kind == LayerKind::transposed_convolution) layer.padding = Padding::valid;
    if (!layers_.empty()) layer.part = layers_.back().part;
    layer_table().read_keys(reader, layer);
    const bool input = std::find(inputs_.begin(), inputs_.end(), layer.name) != inputs_.end();
    if (input || known_.contains(layer.name) || layer.name.find('.') != std::string::npos ||
        layer.name.empty()) {
      diagnostics_.error(
          reader.mark_of("name"),
          fmt::format(
              "'{}' can't be the name of layer {}: names are unique, also among the inputs, and have no dot",
              layer.name, layers_.size() + 1));
    }
    read_inputs(reader, layer);
    reader.finish();
    known_.insert(layer.name);
    layers_.push_back(std::move(layer));
  }

  std::size_t find_kind(const yaml::Node& block) {
    std::size_t found = kKinds;
    for (const auto& [key, value] : block.entries) {
      const auto at =
          static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), key.text) - kNames.begin());
      if (at == kKinds) continue;
      if (found < kKinds) {
        diagnostics_.error(key.mark,
                           fmt::format("one layer can't be both {} and {}; make two entries of the list",
                                       kNames[found], kNames[at]));
        return kKinds;
      }
      found = at;
    }
    if (found == kKinds) {
      const std::string word = block.entries.empty() ? std::string() : block.entries.front().first.text;
      diagnostics_.error(block.mark, fmt::format("'{}' is no kind of layer{}; kinds: {}", word,
                                                 text::suggestion(word, kNames), text::join(kNames, ", ")));
    }
    return found;
  }

  void read_argument(yaml::MapReader& reader, const yaml::Node& block, LayerConfig& layer) {
    const char* key = name_of(layer.kind);
    const Form form = form_of(layer.kind);
    const bool given = reader.has(key);
    if (form.needed && !given) {
      const auto [what, example] = needed_text(form.argument);
      diagnostics_.error(block.mark,
                         fmt::format("the layer {} needs its {}: {{{}: {}}}", key, what, key, example));
    }
    switch (form.argument) {
      case Argument::size:
        layer.size = reader.integer(key, static_cast<std::int64_t>(form.fallback), 1, 1 << 24);
        break;
      case Argument::value:
        layer.value = reader.real(key, form.fallback, 0, layer.kind == LayerKind::dropout ? 0.95 : 1e6);
        break;
      case Argument::shape:
        layer.shape = reader.integers(key, 1, 1 << 24);
        if (layer.shape.size() > 4) {
          diagnostics_.error(reader.mark_of(key), "a shape has channels and at most three axes");
          layer.shape.resize(4);
        }
        break;
      case Argument::range:
        layer.shape = reader.integers(key, 0, 1 << 24);
        if (given && (layer.shape.size() != 2 || layer.shape[0] >= layer.shape[1]))
          diagnostics_.error(reader.mark_of(key),
                             "a slice is a pair [first, end] such as [0, 4], which takes 0 to 3");
        layer.shape.resize(2, 1);
        break;
      case Argument::channels:
        layer.shape = reader.integers(key, 0, 1 << 24);
        break;
      case Argument::cells:
        read_cells(reader, key, form, layer);
        break;
      case Argument::part:
        layer.applied = reader.string(key);
        check_part(reader, key, layer.applied);
        break;
      case Argument::none:
        // {add: [a, b]} and {relu: a}: names of the values that the layer reads.
        layer.from = reader.strings(key);
        break;
    }
  }

  void check_part(yaml::MapReader& reader, const char* key, const std::string& part) {
    std::vector<std::string> parts;
    for (const LayerConfig& layer : layers_)
      if (!layer.part.empty() && layer.kind != LayerKind::apply) parts.push_back(layer.part);
    if (!reader.has(key) || std::find(parts.begin(), parts.end(), part) != parts.end()) return;
    diagnostics_.error(
        reader.mark_of(key),
        fmt::format("'apply' repeats the layers of a part, and no layer before it has 'part: {}'{}", part,
                    text::suggestion(part, parts)));
  }

  // {resize: 1.5}: a factor on every axis; {resize: [24, 36]}: the cells of each axis.
  void read_cells(yaml::MapReader& reader, const char* key, const Form& form, LayerConfig& layer) {
    const yaml::Node* node = reader.find(key);
    if (node == nullptr || !node->is_sequence()) {
      layer.value = reader.real(key, form.fallback, 1e-6, 1e6);
      return;
    }
    layer.shape = reader.integers(key, 1, 1 << 24);
    if (layer.shape.empty() || layer.shape.size() > 3)
      diagnostics_.error(reader.mark_of(key), "'resize' is a factor, or the cells of one to three axes");
  }

  void read_inputs(yaml::MapReader& reader, LayerConfig& layer) {
    const Form form = form_of(layer.kind);
    if (layer.from.empty() || reader.has("from")) layer.from = reader.strings("from");
    if (layer.from.empty() && form.least_inputs == 1)
      layer.from = {layers_.empty() ? inputs_.front() : layers_.back().name};
    if (layer.from.size() < form.least_inputs || layer.from.size() > form.most_inputs) {
      diagnostics_.error(
          reader.mark_of("from"),
          fmt::format("the layer '{}' ({}) reads {} values, and 'from' names {}", layer.name,
                      name_of(layer.kind),
                      form.most_inputs > 2     ? (form.least_inputs == 1 ? "one or more" : "two or more")
                      : form.least_inputs == 2 ? "two"
                      : form.most_inputs == 2  ? "one or two"
                                               : "one",
                      layer.from.size()));
      layer.from.resize(form.least_inputs, inputs_.front());
    }
    for (const std::string& name : layer.from) {
      const bool input = std::find(inputs_.begin(), inputs_.end(), name) != inputs_.end();
      if (input || known_.contains(name)) continue;
      std::vector<std::string> names = inputs_;
      names.insert(names.end(), known_.begin(), known_.end());
      diagnostics_.error(
          reader.mark_of("from"),
          fmt::format("the layer '{}' reads '{}', which is neither an input nor an earlier layer{}",
                      layer.name, name, text::suggestion(name, names)));
    }
  }

  std::vector<std::string> inputs_;
  yaml::Diagnostics& diagnostics_;
  std::vector<LayerConfig> layers_;
  std::array<int, kKinds> counts_{};
  std::set<std::string> known_;
};

}  // namespace

const char* name_of(LayerKind kind) {
  if (kind == LayerKind::module) return "TorchScript module";
  if (kind == LayerKind::wrap) return "wrap";
  return kNames[static_cast<std::size_t>(kind)].c_str();
}

bool is_recurrent(LayerKind kind) {
  return kind == LayerKind::lstm || kind == LayerKind::gru;
}

bool is_activation(LayerKind kind) {
  return kind >= LayerKind::leaky_relu && kind <= LayerKind::softplus;
}

std::vector<LayerConfig> read_layers(const yaml::Node& node, std::span<const std::string> inputs,
                                     yaml::Diagnostics& diagnostics) {
  if (!node.is_sequence() || node.items.empty()) {
    diagnostics.error(node.mark, fmt::format("'layers' must be a list of layers, found {}", node.describe()));
    return {};
  }
  return LayerReader(inputs, diagnostics).read(node);
}

bool reads_class_numbers(std::span<const LayerConfig> layers, const std::string& input) {
  return std::ranges::any_of(layers, [&](const LayerConfig& layer) {
    return layer.kind == LayerKind::embedding && layer.from.front() == input;
  });
}

bool keeps_values(std::span<const LayerConfig> layers, const std::string& input) {
  return reads_class_numbers(layers, input) || std::ranges::any_of(layers, [&](const LayerConfig& layer) {
           return layer.kind == LayerKind::trace_density && layer.from.back() == input;
         });
}

yaml::Node to_yaml(const LayerConfig& layer) {
  const auto integer = [](std::int64_t value) { return yaml::scalar(std::to_string(value)); };
  yaml::Node argument;
  switch (form_of(layer.kind).argument) {
    case Argument::size:
      if (layer.size > 0) argument = integer(layer.size);
      break;
    case Argument::value:
      argument = yaml::scalar(text::from_real(layer.value));
      break;
    case Argument::shape:
    case Argument::range:
    case Argument::channels:
      argument = config::emit_integers(layer.shape);
      break;
    case Argument::cells:
      argument = layer.shape.empty() ? yaml::scalar(text::from_real(layer.value))
                                     : config::emit_integers(layer.shape);
      break;
    case Argument::part:
      argument = yaml::scalar(layer.applied);
      break;
    case Argument::none:
      break;
  }
  yaml::Node node = layer_table().write(layer);
  node.entries.emplace(node.entries.begin(), yaml::scalar(name_of(layer.kind)), argument);
  return node;
}

std::vector<config::Row> layer_rows() {
  return layer_table().rows();
}

nlohmann::ordered_json layers_schema() {
  std::vector<std::string> alone;  // kinds that need no number and read one value
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const Form form = form_of(static_cast<LayerKind>(kind));
    if (!form.needed && form.least_inputs == 1) alone.push_back(kNames[kind]);
  }
  config::Json layer = layer_table().schema();
  layer["patternProperties"] = {{"^(" + text::join(kNames, "|") + ")$", config::Json::object()}};
  return {{"type", {"array", "null"}}, {"items", {{"anyOf", {{{"enum", alone}}, layer}}}}};
}

}  // namespace wflow::trainer
