// SPDX-License-Identifier: Apache-2.0
// The TorchScript source of the export, without libtorch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "trainer/model/model_export.h"

namespace wflow::trainer {
namespace {

std::string attribute(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return "self.p_" + name;
}

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

// Writes one expression per layer.
class Source {
 public:
  explicit Source(const ModelGraph& graph) : graph_(graph) {}

  std::string expression(const Layer& layer) const {
    const bool gives_field = works_on_field(layer.kind);
    if (layer.output.voxels() > 1 || !gives_field) return plain_expression(layer);
    return fmt::format("({}).reshape({})", plain_expression(layer), sizes(layer.output, false));
  }

 private:
  static bool works_on_field(LayerKind kind) {
    return kind == LayerKind::convolution || kind == LayerKind::transposed_convolution ||
           kind == LayerKind::batch_norm || kind == LayerKind::average_pool || kind == LayerKind::max_pool ||
           kind == LayerKind::upsample;
  }

  std::string plain_expression(const Layer& layer) const {
    const auto parameter = [&](std::size_t i) { return attribute(layer.parameters[i].name); };
    const std::string bias = layer.parameters.size() > 1 ? parameter(1) : "None";
    const std::string x = value(layer, 0, false);
    const std::string field = value(layer, 0, true);
    switch (layer.kind) {
      case LayerKind::convolution: {
        const auto& a = layer.pad_low;
        const auto& b = layer.pad_high;
        if (a == b) {
          return fmt::format("torch.conv3d({}, {}, {}, {}, {})", field, parameter(0), bias,
                             triple(layer.stride), triple(a));
        }
        return fmt::format("torch.conv3d(torch.constant_pad_nd({}, [{}, {}, {}, {}, {}, {}]), {}, {}, {})",
                           field, a[2], b[2], a[1], b[1], a[0], b[0], parameter(0), bias,
                           triple(layer.stride));
      }
      case LayerKind::transposed_convolution:
        return fmt::format("torch.conv_transpose3d({}, {}, {}, {})", field, parameter(0), bias,
                           triple(layer.stride));
      case LayerKind::batch_norm:
        return fmt::format("torch.batch_norm({}, {}, {}, {}, {}, False, 0.0, {}, False)", field, parameter(0),
                           parameter(1), attribute(layer.buffers[0].name), attribute(layer.buffers[1].name),
                           real(kNormEpsilon));
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
      case LayerKind::module:
        return fmt::format("self.network.forward({}).reshape({})", module_arguments(layer),
                           sizes(layer.output, false));
      case LayerKind::count:
        break;
    }
    return x;
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

std::string undone_units(const ExportedUnits& units, const std::string& y) {
  switch (units.loss) {
    case LossName::cross_entropy:
    case LossName::dice:
    case LossName::focal:
      return fmt::format("torch.softmax({}, 1)", y);
    case LossName::gaussian:
      return fmt::format(
          "torch.cat([torch.add(torch.mul(torch.chunk({0}, 2, 1)[0], self.y_std), self.y_mean), "
          "torch.mul(torch.exp(torch.mul(torch.chunk({0}, 2, 1)[1], 0.5)), self.y_std)], 1)",
          y);
    default:
      break;
  }
  std::string physical = fmt::format("torch.add(torch.mul({}, self.y_std), self.y_mean)", y);
  if (!units.field_target || !units.target_transformed) return physical;
  if (units.transform.name == TransformName::log)
    return fmt::format("torch.sub(torch.exp({}), {})", physical, real(units.transform.offset));
  if (units.transform.name == TransformName::log1p) return fmt::format("torch.expm1({})", physical);
  return physical;
}

}  // namespace

double ExportedUnits::physical(double value, std::size_t target) const {
  const double y = value * normalisation.y_std[target] + normalisation.y_mean[target];
  if (!undoes_transform()) return y;
  if (transform.name == TransformName::log) return std::exp(y) - transform.offset;
  if (transform.name == TransformName::log1p) return std::expm1(y);
  return y;
}

void ExportedUnits::use_quantiles(const std::vector<double>& values) {
  quantiles = values;
  const std::vector<double> mean = normalisation.y_mean;
  const std::vector<double> deviation = normalisation.y_std;
  for (std::size_t k = 1; k < values.size(); ++k) {
    normalisation.y_mean.insert(normalisation.y_mean.end(), mean.begin(), mean.end());
    normalisation.y_std.insert(normalisation.y_std.end(), deviation.begin(), deviation.end());
  }
}

bool ExportedUnits::input_needs_double(const std::string& name, std::size_t number) const {
  if (const auto scale = normalisation.of_field(name)) return scale->needs_double();
  return centre_of(normalisation.numbers_mean.at(number), normalisation.numbers_std.at(number)) != 0;
}

bool ExportedUnits::output_needs_double() const {
  return !is_classification(loss) && FieldScale{normalisation.y_mean, normalisation.y_std}.needs_double();
}

std::string torchscript_source(const ModelGraph& graph, const ExportedUnits& units) {
  std::string arguments;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) arguments += fmt::format(", v{}", i);
  std::string source = fmt::format("def forward(self{}):\n", arguments);
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
    add(fmt::format("v{} = {}", graph.inputs.size() + i, expressions.expression(graph.layers[i])));
  }
  const TensorShape& shape = graph.shape_of(graph.outputs.front().value);
  std::string y = fmt::format("v{}", graph.outputs.front().value);
  if (units.output_needs_double()) y = fmt::format("torch.to({}, 7)", y);
  add("return " + undone_units(units, shape.voxels() == 1 && units.field_target
                                          ? y + ".reshape(" + sizes(shape, true) + ")"
                                          : y));
  return source;
}

}  // namespace wflow::trainer
