// SPDX-License-Identifier: Apache-2.0
// The TorchScript source of the export, without libtorch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"

namespace wflow::trainer {

std::string member_of(const std::string& name) {
  std::string member = "p_";  // a layer's name can't hide a member of the module
  for (const char c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    if (plain) {
      member += c;
    } else if (c == '.') {
      member += '_';
    } else {
      member += fmt::format("_x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return member;
}

std::string attribute_of(const std::string& name) {
  return "self." + member_of(name);
}

namespace {

// TorchScript distinguishes an integer from a real by the point.
std::string real(double value) {
  std::string text = text::from_real(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string triple(const std::array<std::int64_t, 3>& v) {
  return fmt::format("[{}, {}, {}]", v[0], v[1], v[2]);
}

// The sizes after N: vectors are [N, C], fields [N, C, D, H, W].
std::string sizes(const TensorShape& shape, bool as_field) {
  if (shape.voxels() == 1 && !as_field) return fmt::format("[-1, {}]", shape.channels);
  return fmt::format("[-1, {}, {}, {}, {}]", shape.channels, shape.extent[0], shape.extent[1],
                     shape.extent[2]);
}

// Writes the lines of each layer: most are one expression.
class Source {
 public:
  explicit Source(const ModelGraph& graph) : graph_(graph) {}

  // `value`: the name of the layer's output.
  std::vector<std::string> lines(const Layer& layer, const std::string& value) const {
    std::vector<std::string> inputs;
    for (const std::size_t number : layer.inputs) inputs.push_back(fmt::format("v{}", number));
    if (layer.kind == LayerKind::wrap) return wrap_lines(layer, value);
    std::vector<std::string> several = sequence_lines(layer, value, inputs);
    if (several.empty()) several.push_back(value + " = " + expression(layer));
    return several;
  }

 private:
  // The border of an axis comes from the field that has those of the axes before.
  std::vector<std::string> wrap_lines(const Layer& layer, const std::string& name) const {
    std::vector<std::string> lines = {name + " = " + value(layer, 0, true)};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t low = layer.pad_low[i];
      const std::int64_t high = layer.pad_high[i];
      if (low + high == 0) continue;
      lines.push_back(fmt::format(
          "{0} = torch.cat([torch.narrow({0}, {1}, {2}, {3}), {0}, torch.narrow({0}, {1}, 0, {4})], {1})",
          name, i + 2, layer.input.extent[i] - low, low, high));
    }
    return lines;
  }

  std::string expression(const Layer& layer) const {
    const bool gives_field = works_on_field(layer.kind);
    if (layer.output.voxels() > 1 || !gives_field) return plain_expression(layer);
    return fmt::format("({}).reshape({})", plain_expression(layer), sizes(layer.output, false));
  }

  static bool works_on_field(LayerKind kind) {
    return kind == LayerKind::convolution || kind == LayerKind::transposed_convolution ||
           kind == LayerKind::batch_norm || kind == LayerKind::average_pool || kind == LayerKind::max_pool ||
           kind == LayerKind::upsample || kind == LayerKind::resize || kind == LayerKind::pixel_shuffle ||
           kind == LayerKind::slice;
  }

  std::string plain_expression(const Layer& layer) const {
    const auto parameter = [&](std::size_t i) { return attribute_of(layer.parameters[i].name); };
    const std::string bias = layer.parameters.size() > 1 ? parameter(1) : "None";
    const std::string x = value(layer, 0, false);
    const std::string field = value(layer, 0, true);
    switch (layer.kind) {
      case LayerKind::convolution: {
        const auto& a = layer.pad_low;
        const auto& b = layer.pad_high;
        if (a == b) {
          return fmt::format("torch.conv3d({}, {}, {}, {}, {}, {}, {})", field, parameter(0), bias,
                             triple(layer.stride), triple(a), triple(layer.dilation), layer.groups);
        }
        return fmt::format(
            "torch.conv3d(torch.constant_pad_nd({}, [{}, {}, {}, {}, {}, {}]), {}, {}, {}, [0, 0, 0], {}, "
            "{})",
            field, a[2], b[2], a[1], b[1], a[0], b[0], parameter(0), bias, triple(layer.stride),
            triple(layer.dilation), layer.groups);
      }
      case LayerKind::transposed_convolution:
        return fmt::format("torch.conv_transpose3d({}, {}, {}, {}, {}, {})", field, parameter(0), bias,
                           triple(layer.stride), triple(layer.pad_low),
                           triple({layer.pad_low[0] - layer.pad_high[0], layer.pad_low[1] - layer.pad_high[1],
                                   layer.pad_low[2] - layer.pad_high[2]}));
      case LayerKind::batch_norm:
        return fmt::format("torch.batch_norm({}, {}, {}, {}, {}, False, 0.0, {}, False)", field, parameter(0),
                           parameter(1), attribute_of(layer.buffers[0].name),
                           attribute_of(layer.buffers[1].name), real(kNormEpsilon));
      case LayerKind::group_norm:
        return fmt::format("torch.group_norm({}, {}, {}, {}, {}, False)", x, layer.groups, parameter(0),
                           parameter(1), real(kNormEpsilon));
      case LayerKind::layer_norm:
        return fmt::format("torch.layer_norm(torch.movedim({}, 1, -1), [{}], {}, {}, {}).movedim(-1, 1)", x,
                           layer.input.channels, parameter(0), parameter(1), real(kNormEpsilon));
      case LayerKind::leaky_relu:
        return fmt::format("torch.leaky_relu({}, {})", x, real(layer.value));
      case LayerKind::relu:
      case LayerKind::elu:
      case LayerKind::gelu:
      case LayerKind::silu:
      case LayerKind::sigmoid:
      case LayerKind::tanh:
      case LayerKind::softplus:
        return fmt::format("torch.{}({})", name_of(layer.kind), x);
      case LayerKind::tanh_scale:
        return fmt::format("torch.mul(torch.tanh({}), {})", x, real(layer.value));
      case LayerKind::dropout:
      case LayerKind::sample:
        return x;
      case LayerKind::average_pool:
        return fmt::format("torch.avg_pool3d({0}, {1}, {1})", field, triple(layer.kernel));
      case LayerKind::max_pool:
        return fmt::format("torch.max_pool3d({0}, {1}, {1})", field, triple(layer.kernel));
      case LayerKind::upsample:
        return fmt::format("torch.upsample_nearest3d({}, {})", field, triple(layer.output.extent));
      case LayerKind::resize:
        return fmt::format("torch.upsample_trilinear3d({}, {}, False)", field, triple(layer.output.extent));
      case LayerKind::pixel_shuffle:
        return pixel_shuffle(layer, field);
      case LayerKind::slice: {
        const std::int64_t size =
            layer.axis == 0 ? layer.output.channels : layer.output.extent[layer.axis - 1];
        return fmt::format("torch.narrow({}, {}, {}, {})", field, layer.axis + 1, layer.first, size);
      }
      case LayerKind::gather:
        return fmt::format("torch.index_select({0}, 1, torch.tensor([{1}], device={0}.device))", x,
                           fmt::join(layer.channels, ", "));
      case LayerKind::embedding:
        return fmt::format(
            "torch.movedim(torch.embedding({}, torch.select(torch.to(torch.round({}), 4), 1, 0)), -1, 1)",
            parameter(0), x);
      case LayerKind::flatten:
        return fmt::format("torch.flatten({}, 1)", x);
      case LayerKind::reshape:
        return fmt::format("({}).reshape({})", x, sizes(layer.output, false));
      case LayerKind::global_mean:
        return fmt::format("torch.mean({}, [2, 3, 4])", field);
      case LayerKind::global_max:
        return fmt::format("torch.amax({}, [2, 3, 4])", field);
      case LayerKind::linear:
        return fmt::format("torch.addmm({}, {}, torch.t({}))", parameter(1), x, parameter(0));
      case LayerKind::softmax:
        return fmt::format("torch.softmax({}, 1)", x);
      case LayerKind::add: {
        std::string sum = x;
        for (std::size_t i = 1; i < layer.inputs.size(); ++i)
          sum = fmt::format("torch.add({}, {})", sum, value(layer, i, false));
        return sum;
      }
      case LayerKind::concatenate: {
        std::string list = x;
        for (std::size_t i = 1; i < layer.inputs.size(); ++i) list += ", " + value(layer, i, false);
        return fmt::format("torch.cat([{}], 1)", list);
      }
      case LayerKind::subtract:
        return fmt::format("torch.sub({}, {})", x, value(layer, 1, false));
      case LayerKind::mix:
        return fmt::format("torch.mul(torch.add({}, {}), 0.5)", x, value(layer, 1, false));
      case LayerKind::film: {
        const std::string thin = layer.output.voxels() > 1 ? ", 1, 1, 1" : "";
        const auto half = [&](int which) {
          return fmt::format("torch.chunk({}, 2, 1)[{}].reshape([-1, {}{}])", value(layer, 1, false), which,
                             layer.input.channels, thin);
        };
        return fmt::format("torch.add(torch.mul({}, torch.add({}, 1)), {})", x, half(0), half(1));
      }
      case LayerKind::spread:
        return layer.output.voxels() == 1
                   ? x
                   : fmt::format("{}.reshape({}).expand([-1, -1, {}, {}, {}])", x, sizes(layer.input, true),
                                 layer.output.extent[0], layer.output.extent[1], layer.output.extent[2]);
      case LayerKind::module:
        return fmt::format("self.network.forward({}).reshape({})", module_arguments(layer),
                           sizes(layer.output, false));
      default:
        break;
    }
    return x;
  }

  static std::string pixel_shuffle(const Layer& layer, const std::string& x) {
    const auto& in = layer.input.extent;
    const auto& factors = layer.kernel;
    return fmt::format(
        "torch.permute({}.reshape([-1, {}, {}, {}, {}, {}, {}, {}]), [0, 1, 5, 2, 6, 3, 7, 4]).reshape({})",
        x, layer.output.channels, factors[0], factors[1], factors[2], in[0], in[1], in[2],
        sizes(layer.output, true));
  }

  // Without leading flat axes, as in training.
  std::string module_arguments(const Layer& layer) const {
    std::vector<std::string> arguments;
    for (const std::size_t number : layer.inputs) {
      const TensorShape& shape = graph_.shape_of(number);
      std::string list = fmt::format("-1, {}", shape.channels);
      bool flat = true;
      for (std::size_t i = 0; i < shape.extent.size() && shape.voxels() > 1; ++i) {
        flat = flat && shape.extent[i] == 1 && i + 1 < shape.extent.size();
        if (!flat) list += fmt::format(", {}", shape.extent[i]);
      }
      arguments.push_back(fmt::format("v{}.reshape([{}])", number, list));
    }
    return text::join(arguments, ", ");
  }

  std::string value(const Layer& layer, std::size_t input, bool as_field) const {
    const std::size_t number = layer.inputs[input];
    std::string text = fmt::format("v{}", number);
    const TensorShape& shape = graph_.shape_of(number);
    if (as_field && shape.voxels() == 1) text += ".reshape(" + sizes(shape, true) + ")";
    return text;
  }

  const ModelGraph& graph_;
};

// `mean`, `deviation`: members of the module.
std::string undone_units(const OutputUnits& units, const std::string& y, const std::string& mean,
                         const std::string& deviation) {
  switch (units.loss) {
    case LossName::cross_entropy:
    case LossName::dice:
    case LossName::focal:
      return fmt::format("torch.softmax({}, 1)", y);
    case LossName::gaussian:
      return fmt::format(
          "torch.cat([torch.add(torch.mul(torch.chunk({0}, 2, 1)[0], {2}), {1}), "
          "torch.mul(torch.exp(torch.mul(torch.chunk({0}, 2, 1)[1], 0.5)), {2})], 1)",
          y, mean, deviation);
    case LossName::detection:
      return fmt::format(
          "torch.cat([torch.sigmoid({0}.narrow(1, 0, 1)), torch.softmax({0}.narrow(1, 1, {1}), 1), "
          "torch.add({0}.narrow(1, {2}, {3}), 0.5), torch.exp({0}.narrow(1, {4}, {3}))], 1)",
          y, units.classes, 1 + units.classes, std::ssize(units.grid),
          1 + units.classes + std::ssize(units.grid));
    default:
      break;
  }
  const std::string physical = fmt::format("torch.add(torch.mul({}, {}), {})", y, deviation, mean);
  if (units.transform.name == TransformName::log)
    return fmt::format("torch.sub(torch.exp({}), {})", physical, real(units.transform.offset));
  if (units.transform.name == TransformName::log1p) return fmt::format("torch.expm1({})", physical);
  return physical;
}

}  // namespace

double OutputUnits::physical(double value, std::size_t target) const {
  const double y = value * deviation[target] + mean[target];
  if (!undoes_transform()) return y;
  if (transform.name == TransformName::log) return std::exp(y) - transform.offset;
  if (transform.name == TransformName::log1p) return std::expm1(y);
  return y;
}

void OutputUnits::use_density(std::size_t components) {
  const std::vector<double> scale = deviation;
  const auto add = [&](double offset, double factor) {
    mean.push_back(offset);
    deviation.push_back(factor);
  };
  for (std::size_t k = 0; k < components; ++k) add(0, 1);
  for (std::size_t k = 0; k < components; ++k)
    for (const double s : scale) add(0, s);
  for (std::size_t k = 0; k < components; ++k)
    for (const double s : scale) add(-std::log(s), 1);
  for (std::size_t k = 0; k < components; ++k)
    for (std::size_t i = 0; i < scale.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) add(0, 1 / scale[i]);
}

void OutputUnits::use_quantiles(const std::vector<double>& values) {
  quantiles = values;
  const std::vector<double> means = mean;
  const std::vector<double> deviations = deviation;
  for (std::size_t k = 1; k < values.size(); ++k) {
    mean.insert(mean.end(), means.begin(), means.end());
    deviation.insert(deviation.end(), deviations.begin(), deviations.end());
  }
}

bool ExportedUnits::input_needs_double(const std::string& name, std::size_t number) const {
  if (const auto scale = normalisation.of_field(name)) return scale->needs_double();
  return centre_of(normalisation.numbers_mean.at(number), normalisation.numbers_std.at(number)) != 0;
}

bool OutputUnits::needs_double() const {
  return !is_classification(loss) && FieldScale{mean, deviation}.needs_double();
}

namespace {

// The lines that compute the normalised inputs and every layer, v0 and so on.
std::string body(const ModelGraph& graph, const ExportedUnits& units) {
  std::string source;
  const auto add = [&](const std::string& line) { source += "    " + line + "\n"; };
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto scale = units.normalisation.of_field(graph.inputs[i].name);
    // 7 is float64, 6 float32, for any number type in the shard. Float64 costs little for numbers.
    const bool wide = graph.inputs[i].shape.voxels() == 1 || scale->needs_double();
    add(fmt::format("v{0} = torch.to(v{0}, {1})", i, wide ? 7 : 6));
    const bool transformed = scale && scale->transformed;
    if (scale && graph.inputs[i].shape.voxels() == 1) {
      add(fmt::format("v{0} = v{0}.reshape({1})", i, sizes(graph.inputs[i].shape, true)));
    } else if (scale) {
      const auto& names = units.without_channels;
      const bool bare = std::find(names.begin(), names.end(), graph.inputs[i].name) != names.end();
      add(fmt::format("while v{0}.dim() < 5:\n        v{0} = v{0}.unsqueeze({1})", i, bare ? 1 : 2));
    }
    if (transformed && units.transform.name == TransformName::log)
      add(fmt::format("v{0} = torch.log(torch.add(v{0}, {1}))", i, real(units.transform.offset)));
    if (transformed && units.transform.name == TransformName::log1p)
      add(fmt::format("v{0} = torch.log1p(v{0})", i));
    if (scale) {
      const TensorShape& shape = graph.inputs[i].shape;
      // The layers treat a field of one cell as a vector. Other fields may have another size than in training
      // if the network allows it.
      const std::string vector = shape.voxels() == 1 ? ".reshape(" + sizes(shape, false) + ")" : "";
      const std::string of = graph.inputs[i].name == kField ? "x" : fmt::format("in{}", i);
      add(fmt::format("v{0} = torch.div(torch.sub(v{0}, self.{1}_mean), self.{1}_std){2}", i, of, vector));
    } else {
      add(fmt::format("v{0} = torch.div(torch.sub(v{0}.reshape([-1, 1]), self.in{0}_mean), self.in{0}_std)",
                      i));
    }
    if (wide) add(fmt::format("v{0} = torch.to(v{0}, 6)", i));
  }
  const Source expressions(graph);
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const std::string value = fmt::format("v{}", graph.inputs.size() + i);
    for (const std::string& line : expressions.lines(graph.layers[i], value)) add(line);
  }
  return source;
}

std::string physical_output(const ModelGraph& graph, const ExportedUnits& units, std::size_t head) {
  const OutputUnits& output = units.outputs[head];
  // Behind the first output may stand the two of a latent vector.
  const std::size_t value = graph.outputs[graph.output_of_head(head, units.outputs.size())].value;
  const TensorShape& shape = graph.shape_of(value);
  std::string y = fmt::format("v{}", value);
  if (output.needs_double()) y = fmt::format("torch.to({}, 7)", y);
  if (shape.voxels() == 1 && output.fields) y += ".reshape(" + sizes(shape, true) + ")";
  const std::string number = head == 0 ? "" : std::to_string(head);
  return undone_units(output, y, "self.y" + number + "_mean", "self.y" + number + "_std");
}

}  // namespace

std::string torchscript_source(const ModelGraph& graph, const ExportedUnits& units) {
  std::string arguments;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) arguments += fmt::format(", v{}", i);
  const std::string lines = body(graph, units);
  std::vector<std::string> outputs;
  for (std::size_t h = 0; h < units.outputs.size(); ++h) outputs.push_back(physical_output(graph, units, h));
  std::string source =
      fmt::format("def forward(self{}):\n{}    return {}\n", arguments, lines, text::join(outputs, ", "));
  if (graph.is_module()) return source;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < graph.layers.size(); ++i)
    values.push_back(fmt::format("\"{}\": v{}", graph.layers[i].name, graph.inputs.size() + i));
  return source + fmt::format("def layers(self{}):\n{}    return {{{}}}\n", arguments, lines,
                              text::join(values, ", "));
}

}  // namespace wflow::trainer
