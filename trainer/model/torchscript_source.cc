// SPDX-License-Identifier: Apache-2.0
// The text half of the export: no libtorch needed to make it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "trainer/model/model_export.h"

namespace wflow::trainer {
namespace {

std::string attribute(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return "self." + name;
}

// TorchScript tells an integer from a real by the point.
std::string real(double value) {
  std::string text = text::from_real(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string triple(const std::array<std::int64_t, 3>& v) {
  return fmt::format("[{}, {}, {}]", v[0], v[1], v[2]);
}

std::string statement(const Layer& layer) {
  const auto parameter = [&](std::size_t i) { return attribute(layer.parameters[i].name); };
  switch (layer.kind) {
    case LayerKind::convolution: {
      const std::string bias = layer.parameters.size() > 1 ? parameter(1) : "None";
      if (layer.pad_low == layer.pad_high) {
        return fmt::format("x = torch.conv3d(x, {}, {}, [1, 1, 1], {})", parameter(0), bias,
                           triple(layer.pad_low));
      }
      const auto& a = layer.pad_low;
      const auto& b = layer.pad_high;
      return fmt::format("x = torch.conv3d(torch.constant_pad_nd(x, [{}, {}, {}, {}, {}, {}]), {}, {})", a[2],
                         b[2], a[1], b[1], a[0], b[0], parameter(0), bias);
    }
    case LayerKind::batch_norm:
      return fmt::format("x = torch.batch_norm(x, {}, {}, {}, {}, False, 0.0, {}, False)", parameter(0),
                         parameter(1), attribute(layer.buffers[0].name), attribute(layer.buffers[1].name),
                         real(kNormEpsilon));
    case LayerKind::leaky_relu:
      return fmt::format("x = torch.leaky_relu(x, {})", real(layer.value));
    case LayerKind::average_pool:
      return fmt::format("x = torch.avg_pool3d(x, {0}, {0})", triple(layer.kernel));
    case LayerKind::max_pool:
      return fmt::format("x = torch.max_pool3d(x, {0}, {0})", triple(layer.kernel));
    case LayerKind::flatten:
      return "x = torch.flatten(x, 1)";
    case LayerKind::global_mean:
      return "x = torch.mean(x, [2, 3, 4])";
    case LayerKind::linear:
      return fmt::format("x = torch.addmm({}, x, torch.t({}))", parameter(1), parameter(0));
    case LayerKind::dropout:
      return "";
    case LayerKind::tanh_scale:
      return fmt::format("x = torch.mul(torch.tanh(x), {})", real(layer.value));
  }
  return "";
}

}  // namespace

std::string torchscript_source(const ModelGraph& graph, const TransformConfig& transform) {
  std::string source = "def forward(self, x):\n";
  const auto add = [&](const std::string& line) {
    if (!line.empty()) source += "    " + line + "\n";
  };
  add("x = torch.to(x, 6)");  // float32, whatever number type the shard holds
  if (transform.name == TransformName::log)
    add(fmt::format("x = torch.log(torch.add(x, {}))", real(transform.offset)));
  if (transform.name == TransformName::log1p) add("x = torch.log1p(x)");
  add("x = torch.div(torch.sub(x, self.x_mean), self.x_std)");
  for (const Layer& layer : graph.layers) add(statement(layer));
  add("return torch.add(torch.mul(x, self.y_std), self.y_mean)");
  return source;
}

}  // namespace wflow::trainer
