// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_export.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/file.h"
#include "base/program_file.h"
#include "trainer/model/layer_constants.h"
#include "trainer/model/onnx_graph.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMostBytes = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kNodeBytes = std::int64_t{1} << 20;  // more than the rest of the file ever needs

// Vectors are [N, C], fields [N, C, D, H, W]; 0 takes N from the input.
std::vector<std::int64_t> onnx_sizes(const TensorShape& shape, bool as_field) {
  if (shape.voxels() == 1 && !as_field) return {0, shape.channels};
  return {0, shape.channels, shape.extent[0], shape.extent[1], shape.extent[2]};
}

std::array<std::int64_t, 6> both(const std::array<std::int64_t, 3>& low,
                                 const std::array<std::int64_t, 3>& high) {
  return {low[0], low[1], low[2], high[0], high[1], high[2]};
}

// Adds the nodes of the layers in order.
class Writer {
 public:
  Writer(const ModelGraph& graph, OnnxGraph& onnx) : graph_(graph), onnx_(onnx) {}

  std::vector<std::string>& names() { return names_; }
  void layer(const Layer& layer) {
    std::string output = plain(layer);
    if (windowed(layer.kind) && layer.output.voxels() == 1) output = reshaped(output, layer.output, false);
    names_.push_back(std::move(output));
  }
  std::string reshaped(const std::string& value, const TensorShape& shape, bool as_field) {
    return onnx_.node("Reshape", {value, onnx_.integers(onnx_sizes(shape, as_field))});
  }

 private:
  static bool windowed(LayerKind kind) {
    return kind == LayerKind::convolution || kind == LayerKind::transposed_convolution ||
           kind == LayerKind::batch_norm || kind == LayerKind::average_pool || kind == LayerKind::max_pool ||
           kind == LayerKind::upsample || kind == LayerKind::resize || kind == LayerKind::pixel_shuffle ||
           kind == LayerKind::slice;
  }
  std::string field(const Layer& layer) {
    const TensorShape& shape = graph_.shape_of(layer.inputs[0]);
    const std::string& name = names_[layer.inputs[0]];
    return shape.voxels() == 1 ? reshaped(name, shape, true) : name;
  }
  static Attributes window(const Layer& layer) {
    Attributes attributes;
    attributes.integers("kernel_shape", layer.kernel).integers("strides", layer.stride);
    return attributes;
  }
  OnnxNames with_parameters(std::string first, const Layer& layer) {
    OnnxNames inputs = {std::move(first)};
    for (const ParameterSpec& parameter : layer.parameters) inputs.push_back(parameter.name);
    return inputs;
  }
  std::string plain(const Layer& layer);
  std::string activation(const Layer& layer, const std::string& x);
  std::string group_norm(const Layer& layer, const std::string& x);
  std::string layer_norm(const Layer& layer, const std::string& x);
  std::string combined(const Layer& layer);
  std::string resized(const Layer& layer);
  std::string pixel_shuffle(const Layer& layer);
  std::string wrap(const Layer& layer);
  std::string embedding(const Layer& layer, const std::string& x);
  std::string film(const Layer& layer, const std::string& x);
  std::string spread(const Layer& layer);

  const ModelGraph& graph_;
  OnnxGraph& onnx_;
  std::vector<std::string> names_;
};

std::string Writer::group_norm(const Layer& layer, const std::string& x) {
  const std::int64_t groups[] = {layer.groups};
  const std::vector<double> ones(static_cast<std::size_t>(layer.groups), 1.0);
  const std::vector<double> zeros(static_cast<std::size_t>(layer.groups), 0.0);
  const std::string grouped = onnx_.node("Reshape", {x, onnx_.integers({0, layer.groups, -1})});
  const std::string normal =
      onnx_.node("InstanceNormalization", {grouped, onnx_.reals(groups, ones), onnx_.reals(groups, zeros)},
                 Attributes().real("epsilon", kNormEpsilon));
  const std::string back = reshaped(normal, layer.output, false);
  std::vector<std::int64_t> shape = {1, layer.output.channels};
  if (layer.output.voxels() > 1) shape.insert(shape.end(), {1, 1, 1});
  const auto along_channels = [&](const ParameterSpec& parameter) {
    return onnx_.node("Reshape", {parameter.name, onnx_.integers(shape)});
  };
  const std::string scaled = onnx_.node("Mul", {back, along_channels(layer.parameters[0])});
  return onnx_.node("Add", {scaled, along_channels(layer.parameters[1])});
}

std::string Writer::layer_norm(const Layer& layer, const std::string& x) {
  const Attributes options = Attributes().integer("axis", -1).real("epsilon", kNormEpsilon);
  if (layer.output.voxels() == 1) return onnx_.node("LayerNormalization", with_parameters(x, layer), options);
  const std::int64_t there[] = {0, 2, 3, 4, 1};
  const std::int64_t back[] = {0, 4, 1, 2, 3};
  const std::string moved = onnx_.node("Transpose", {x}, Attributes().integers("perm", there));
  const std::string normal = onnx_.node("LayerNormalization", with_parameters(moved, layer), options);
  return onnx_.node("Transpose", {normal}, Attributes().integers("perm", back));
}

std::string Writer::activation(const Layer& layer, const std::string& x) {
  switch (layer.kind) {
    case LayerKind::leaky_relu:
      return onnx_.node("LeakyRelu", {x}, Attributes().real("alpha", layer.value));
    case LayerKind::relu:
      return onnx_.node("Relu", {x});
    case LayerKind::elu:
      return onnx_.node("Elu", {x});
    case LayerKind::gelu: {
      const std::string erf =
          onnx_.node("Erf", {onnx_.node("Mul", {x, onnx_.real(std::numbers::sqrt2 / 2)})});
      return onnx_.node("Mul",
                        {onnx_.node("Mul", {x, onnx_.real(0.5)}), onnx_.node("Add", {erf, onnx_.real(1)})});
    }
    case LayerKind::silu:
      return onnx_.node("Mul", {x, onnx_.node("Sigmoid", {x})});
    case LayerKind::sigmoid:
      return onnx_.node("Sigmoid", {x});
    case LayerKind::tanh:
      return onnx_.node("Tanh", {x});
    case LayerKind::softplus:
      return onnx_.node("Softplus", {x});
    case LayerKind::tanh_scale:
      return onnx_.node("Mul", {onnx_.node("Tanh", {x}), onnx_.real(layer.value)});
    case LayerKind::softmax:
      return onnx_.node("Softmax", {x}, Attributes().integer("axis", 1));
    default:
      return x;  // dropout, sample: identity in predictions
  }
}

std::string Writer::combined(const Layer& layer) {
  if (layer.kind == LayerKind::concatenate) {
    OnnxNames all;
    for (const std::size_t input : layer.inputs) all.push_back(names_[input]);
    return onnx_.node("Concat", all, Attributes().integer("axis", 1));
  }
  std::string sum = names_[layer.inputs[0]];
  for (std::size_t i = 1; i < layer.inputs.size(); ++i)
    sum = onnx_.node("Add", {sum, names_[layer.inputs[i]]});
  return sum;
}

// The sizes contain the number of samples, which only the input knows.
std::string Writer::resized(const Layer& layer) {
  const std::string x = field(layer);
  const std::string first = onnx_.node("Shape", {x}, Attributes().integer("start", 0).integer("end", 2));
  const auto& e = layer.output.extent;
  const std::string sizes =
      onnx_.node("Concat", {first, onnx_.integers({e[0], e[1], e[2]})}, Attributes().integer("axis", 0));
  return onnx_.node("Resize", {x, "", "", sizes},
                    Attributes().text("mode", "linear").text("coordinate_transformation_mode", "half_pixel"));
}

std::string Writer::pixel_shuffle(const Layer& layer) {
  const auto& f = layer.kernel;
  const auto& in = layer.input.extent;
  const std::int64_t order[] = {0, 1, 5, 2, 6, 3, 7, 4};
  const std::string parts = onnx_.node(
      "Reshape",
      {field(layer), onnx_.integers({0, layer.output.channels, f[0], f[1], f[2], in[0], in[1], in[2]})});
  return reshaped(onnx_.node("Transpose", {parts}, Attributes().integers("perm", order)), layer.output, true);
}

// Joins parts of the field: operator set 17 has no Pad that wraps.
std::string Writer::wrap(const Layer& layer) {
  std::string x = field(layer);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    const auto cells = [&](std::int64_t begin, std::int64_t end) {
      return onnx_.node("Slice", {x, onnx_.integers({begin}), onnx_.integers({end}), onnx_.integers({axis})});
    };
    const std::int64_t n = layer.input.extent[i];
    OnnxNames parts;
    if (layer.pad_low[i] > 0) parts.push_back(cells(n - layer.pad_low[i], n));
    parts.push_back(x);
    if (layer.pad_high[i] > 0) parts.push_back(cells(0, layer.pad_high[i]));
    if (parts.size() > 1) x = onnx_.node("Concat", parts, Attributes().integer("axis", axis));
  }
  return x;
}

std::string Writer::embedding(const Layer& layer, const std::string& x) {
  const std::string numbers = onnx_.cast(onnx_.node("Round", {x}), kFloat, kInt64);
  const std::string rows =
      onnx_.node("Gather", {layer.parameters[0].name, onnx_.node("Squeeze", {numbers, onnx_.integers({1})})},
                 Attributes().integer("axis", 0));
  if (layer.output.voxels() == 1) return rows;
  const std::int64_t back[] = {0, 4, 1, 2, 3};
  return onnx_.node("Transpose", {rows}, Attributes().integers("perm", back));
}

std::string Writer::film(const Layer& layer, const std::string& x) {
  const std::int64_t channels = layer.input.channels;
  OnnxNames parts = onnx_.split(names_[layer.inputs[1]], {channels, channels}, 1);
  if (layer.output.voxels() > 1)
    for (std::string& part : parts)
      part = onnx_.node("Reshape", {part, onnx_.integers({0, channels, 1, 1, 1})});
  const std::string scale = onnx_.node("Add", {parts[0], onnx_.real(1)});
  return onnx_.node("Add", {onnx_.node("Mul", {x, scale}), parts[1]});
}

std::string Writer::spread(const Layer& layer) {
  const std::int64_t channels = layer.output.channels;
  const auto& e = layer.output.extent;
  const std::string& x = names_[layer.inputs[0]];
  if (layer.output.voxels() == 1) return x;
  const std::string thin = onnx_.node("Reshape", {x, onnx_.integers({0, channels, 1, 1, 1})});
  return onnx_.node("Expand", {thin, onnx_.integers({1, channels, e[0], e[1], e[2]})});
}

std::string Writer::plain(const Layer& layer) {
  const std::string& x = names_[layer.inputs[0]];
  const std::int64_t axes[] = {2, 3, 4};
  switch (layer.kind) {
    case LayerKind::convolution:
      return onnx_.node("Conv", with_parameters(field(layer), layer),
                        window(layer)
                            .integers("pads", both(layer.pad_low, layer.pad_high))
                            .integers("dilations", layer.dilation)
                            .integer("group", layer.groups));
    case LayerKind::transposed_convolution:
      return onnx_.node("ConvTranspose", with_parameters(field(layer), layer),
                        window(layer).integers("pads", both(layer.pad_low, layer.pad_high)));
    case LayerKind::batch_norm: {
      OnnxNames inputs = with_parameters(field(layer), layer);
      for (const ParameterSpec& buffer : layer.buffers) inputs.push_back(buffer.name);
      return onnx_.node("BatchNormalization", inputs, Attributes().real("epsilon", kNormEpsilon));
    }
    case LayerKind::group_norm:
      return group_norm(layer, x);
    case LayerKind::layer_norm:
      return layer_norm(layer, x);
    case LayerKind::average_pool:
      return onnx_.node(
          "AveragePool", {field(layer)},
          Attributes().integers("kernel_shape", layer.kernel).integers("strides", layer.kernel));
    case LayerKind::max_pool:
      return onnx_.node(
          "MaxPool", {field(layer)},
          Attributes().integers("kernel_shape", layer.kernel).integers("strides", layer.kernel));
    case LayerKind::upsample: {
      const std::int64_t five[] = {5};
      const std::array<double, 5> scales = {1, 1, static_cast<double>(layer.kernel[0]),
                                            static_cast<double>(layer.kernel[1]),
                                            static_cast<double>(layer.kernel[2])};
      return onnx_.node("Resize", {field(layer), "", onnx_.reals(five, scales)},
                        Attributes()
                            .text("mode", "nearest")
                            .text("coordinate_transformation_mode", "asymmetric")
                            .text("nearest_mode", "floor"));
    }
    case LayerKind::resize:
      return resized(layer);
    case LayerKind::pixel_shuffle:
      return pixel_shuffle(layer);
    case LayerKind::wrap:
      return wrap(layer);
    case LayerKind::slice: {
      const auto axis = static_cast<std::int64_t>(layer.axis);
      const std::int64_t size = axis == 0 ? layer.output.channels : layer.output.extent[layer.axis - 1];
      return onnx_.node("Slice", {field(layer), onnx_.integers({layer.first}),
                                  onnx_.integers({layer.first + size}), onnx_.integers({axis + 1})});
    }
    case LayerKind::gather:
      return onnx_.node("Gather", {x, onnx_.integers(layer.channels)}, Attributes().integer("axis", 1));
    case LayerKind::embedding:
      return embedding(layer, x);
    case LayerKind::flatten:
      return onnx_.node("Flatten", {x}, Attributes().integer("axis", 1));
    case LayerKind::reshape:
      return reshaped(x, layer.output, false);
    case LayerKind::global_mean:
    case LayerKind::global_max:
      return onnx_.node(layer.kind == LayerKind::global_mean ? "ReduceMean" : "ReduceMax", {field(layer)},
                        Attributes().integers("axes", axes).integer("keepdims", 0));
    case LayerKind::linear:
      return onnx_.node("Gemm", with_parameters(x, layer), Attributes().integer("transB", 1));
    case LayerKind::add:
    case LayerKind::concatenate:
      return combined(layer);
    case LayerKind::stop:
      return x;
    case LayerKind::subtract:
      return onnx_.node("Sub", {x, names_[layer.inputs[1]]});
    case LayerKind::mix:
      return onnx_.node("Mul", {onnx_.node("Add", {x, names_[layer.inputs[1]]}), onnx_.real(0.5)});
    case LayerKind::film:
      return film(layer, x);
    case LayerKind::spread:
      return spread(layer);
    default:
      break;
  }
  OnnxNames inputs;
  for (const std::size_t value : layer.inputs) inputs.push_back(names_[value]);
  const std::string output = sequence_nodes(layer, inputs, onnx_);
  return output.empty() ? activation(layer, x) : output;
}

// An input or output; the first axis is the batch.
ProtobufMessage value_info(const std::string& name, std::span<const std::int64_t> shape, Element element) {
  ProtobufMessage dimensions;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    ProtobufMessage dimension;
    if (i == 0) {
      dimension.text(2, "samples");
    } else {
      dimension.integer(1, shape[i]);
    }
    dimensions.message(1, dimension);
  }
  ProtobufMessage tensor;
  tensor.integer(1, element);
  tensor.message(2, dimensions);
  ProtobufMessage type;
  type.message(1, tensor);
  ProtobufMessage info;
  info.text(1, name);
  info.message(2, type);
  return info;
}

std::string transformed_node(OnnxGraph& onnx, const TransformConfig& transform, const std::string& x,
                             Element element) {
  if (transform.name == TransformName::none) return x;
  const double offset = transform.name == TransformName::log ? transform.offset : 1;
  return onnx.node("Log", {onnx.node("Add", {x, onnx.real(offset, element)})});
}

std::string undone_transform(OnnxGraph& onnx, const TransformConfig& transform, const std::string& y,
                             Element element) {
  if (transform.name == TransformName::none) return y;
  const double offset = transform.name == TransformName::log ? transform.offset : 1;
  return onnx.node("Sub", {onnx.node("Exp", {y}), onnx.real(offset, element)});
}

std::string normalised(OnnxGraph& onnx, const std::string& x, const std::string& mean,
                       const std::string& deviation) {
  return onnx.node("Div", {onnx.node("Sub", {x, mean}), deviation});
}

void add_inputs(const ModelGraph& graph, const ExportedUnits& units, OnnxGraph& onnx, Writer& writer) {
  const Normalisation& n = units.normalisation;
  std::size_t number = 0;
  for (const NamedShape& input : graph.inputs) {
    const auto scale = n.of_field(input.name);
    const Element element = units.input_needs_double(input.name, number) ? kDouble : kFloat;
    onnx.message().message(11, value_info(input.name, onnx_sizes(input.shape, scale.has_value()), element));
    if (!scale) {
      const std::string mean = onnx.real(n.numbers_mean[number], element);
      const std::string seen = normalised(onnx, input.name, mean, onnx.real(n.numbers_std[number], element));
      writer.names().push_back(onnx.cast(seen, element, kFloat));
      ++number;
      continue;
    }
    const std::int64_t shape[] = {1, input.shape.channels, 1, 1, 1};
    const std::string x =
        scale->transformed ? transformed_node(onnx, units.transform, input.name, element) : input.name;
    const std::string mean = onnx.reals(shape, scale->mean, element);
    const std::string seen =
        onnx.cast(normalised(onnx, x, mean, onnx.reals(shape, scale->std, element)), element, kFloat);
    // The layers treat a field of one cell as a vector.
    writer.names().push_back(input.shape.voxels() == 1 ? writer.reshaped(seen, input.shape, false) : seen);
  }
}

std::string physical_output(const OutputUnits& units, OnnxGraph& onnx, const std::string& output,
                            Element element) {
  if (is_classification(units.loss)) return onnx.node("Softmax", {output}, Attributes().integer("axis", 1));
  if (units.loss == LossName::detection) {
    const std::int64_t axes = std::ssize(units.grid);
    const OnnxNames parts = onnx.split(output, {1, units.classes, axes, axes}, 1);
    return onnx.node(
        "Concat",
        {onnx.node("Sigmoid", {parts[0]}), onnx.node("Softmax", {parts[1]}, Attributes().integer("axis", 1)),
         onnx.node("Add", {parts[2], onnx.real(0.5, kFloat)}), onnx.node("Exp", {parts[3]})},
        Attributes().integer("axis", 1));
  }
  const std::string y = onnx.cast(output, kFloat, element);
  const auto channels = static_cast<std::int64_t>(units.mean.size());
  std::vector<std::int64_t> shape = {1, channels};
  if (units.fields) shape.insert(shape.end(), {1, 1, 1});
  const std::string mean = onnx.reals(shape, units.mean, element);
  const std::string deviation = onnx.reals(shape, units.deviation, element);
  const auto scaled = [&](const std::string& value) {
    return onnx.node("Add", {onnx.node("Mul", {value, deviation}), mean});
  };
  if (units.loss != LossName::gaussian) {
    return undone_transform(onnx, units.transform, scaled(y), element);
  }
  const OnnxNames parts = onnx.split(y, {channels, channels}, 1);
  const std::string root = onnx.node("Exp", {onnx.node("Mul", {parts[1], onnx.real(0.5, element)})});
  return onnx.node("Concat", {scaled(parts[0]), onnx.node("Mul", {root, deviation})},
                   Attributes().integer("axis", 1));
}

void add_output(const ModelGraph& graph, std::size_t output, const OutputUnits& units, OnnxGraph& onnx,
                Writer& writer) {
  const std::size_t value = graph.outputs[output].value;
  const TensorShape& shape = graph.shape_of(value);
  std::string y = writer.names()[value];
  if (shape.voxels() == 1 && units.fields) y = writer.reshaped(y, shape, true);
  const Element element = units.needs_double() ? kDouble : kFloat;
  const std::string last = physical_output(units, onnx, y, element);
  const std::string name = units.name.empty() ? "prediction" : units.name;
  onnx.node_with_outputs("Identity", {last}, {name}, {});
  onnx.message().message(12, value_info(name, onnx_sizes(shape, units.fields), element));
}

// The arrays that the graph needs: it may be a part of the network that the state is of.
void add_constants(const std::vector<ParameterSpec>& needed, const FlatLayout& layout,
                   std::span<const float> values, OnnxGraph& onnx) {
  for (const ParameterSpec& spec : needed) {
    const FlatEntry& entry = *layout.find(spec.name);
    onnx.weights(
        entry.spec.name, entry.spec.shape,
        values.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.count)));
  }
}

void metadata(ProtobufMessage& model, const char* key, const std::string& value) {
  ProtobufMessage entry;
  entry.text(1, key);
  entry.text(2, value);
  model.message(14, entry);
}

}  // namespace

bool fits_onnx(const ModelGraph& graph) {
  if (graph.is_module()) return false;
  std::int64_t floats = graph.parameter_count();
  for (const Layer& layer : graph.layers)
    for (const LayerConstant& constant : constants_of(layer))
      floats += static_cast<std::int64_t>(constant.values.size());
  return floats <= (kMostBytes - kNodeBytes) / static_cast<std::int64_t>(sizeof(float));
}

void export_onnx(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                 const std::filesystem::path& path) {
  OnnxGraph onnx;
  onnx.message().text(2, "wflow");
  Writer writer(graph, onnx);
  add_inputs(graph, units, onnx, writer);
  for (const Layer& layer : graph.layers) writer.layer(layer);
  nlohmann::json targets = nlohmann::json::array();
  for (std::size_t h = 0; h < units.outputs.size(); ++h) {
    const OutputUnits& head = units.outputs[h];
    add_output(graph, graph.output_of_head(h, units.outputs.size()), head, onnx, writer);
    for (const std::string& target : head.targets) targets.push_back(target);
  }
  add_constants(graph.parameters(), state.parameters(), state.values(), onnx);
  add_constants(graph.buffers(), state.buffers(), state.buffer_values(), onnx);
  nlohmann::json inputs = nlohmann::json::array();
  for (const NamedShape& input : graph.inputs) inputs.push_back(input.name);

  ProtobufMessage operators;
  operators.text(1, "");
  operators.integer(2, kOnnxOperators);
  ProtobufMessage head;
  head.integer(1, kOnnxVersion);
  head.text(2, "wflow");
  head.text(3, kVersion);
  head.message(8, operators);
  metadata(head, "inputs", inputs.dump());
  metadata(head, "targets", targets.dump());
  head.begin(7, onnx.size());

  DurableFile file(path);
  {
    const FileDescriptor fd = open_file(file.temporary(), O_WRONLY | O_CREAT | O_TRUNC);
    const auto write = [&](std::string_view bytes) { write_all(fd.get(), bytes, path); };
    write(head.bytes());
    onnx.write(write);
  }
  file.publish();
}

}  // namespace wflow::trainer
