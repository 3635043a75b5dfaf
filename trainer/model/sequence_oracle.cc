// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/sequence_oracle.h"

#include <cmath>

#include "base/error.h"
#include "trainer/model/layer_constants.h"

namespace wflow::trainer {
namespace {

using Tensors = std::vector<torch::Tensor>;

std::int64_t length_of(const Tensors& in, std::int64_t sample) {
  if (in.size() < 2) return in[0].size(4);
  return std::max<std::int64_t>(1, in[1][sample].gt(0.5).sum().item<std::int64_t>());
}

// States of one sample after each of the steps [steps, inputs].
Tensors states_of(LayerKind kind, const Tensors& p, const torch::Tensor& steps) {
  const std::int64_t units = p[1].size(1);
  torch::Tensor state = torch::zeros({units});
  torch::Tensor cell = torch::zeros({units});
  Tensors states;
  for (std::int64_t t = 0; t < steps.size(0); ++t) {
    const torch::Tensor a = torch::mv(p[0], steps[t]) + p[2];
    const torch::Tensor b = torch::mv(p[1], state) + p[3];
    const auto gate = [&](const torch::Tensor& all, std::int64_t i) {
      return all.narrow(0, i * units, units);
    };
    if (kind == LayerKind::lstm) {
      const torch::Tensor sum = a + b;
      cell = torch::sigmoid(gate(sum, 1)) * cell + torch::sigmoid(gate(sum, 0)) * torch::tanh(gate(sum, 2));
      state = torch::sigmoid(gate(sum, 3)) * torch::tanh(cell);
    } else {
      const torch::Tensor reset = torch::sigmoid(gate(a, 0) + gate(b, 0));
      const torch::Tensor update = torch::sigmoid(gate(a, 1) + gate(b, 1));
      const torch::Tensor fresh = torch::tanh(gate(a, 2) + reset * gate(b, 2));
      state = (1 - update) * fresh + update * state;
    }
    states.push_back(state);
  }
  return states;
}

torch::Tensor recurrent(const Layer& layer, const Tensors& p, const Tensors& in) {
  Tensors samples;
  const std::int64_t steps = in[0].size(4);
  for (std::int64_t n = 0; n < in[0].size(0); ++n) {
    const std::int64_t length = length_of(in, n);
    const torch::Tensor series = in[0][n].reshape({in[0].size(1), steps}).t().narrow(0, 0, length);
    Tensors found;
    for (std::size_t d = 0; d < p.size() / 4; ++d) {
      const Tensors own(p.begin() + static_cast<std::ptrdiff_t>(4 * d),
                        p.begin() + static_cast<std::ptrdiff_t>(4 * d + 4));
      Tensors states = states_of(layer.kind, own, d == 0 ? series : series.flip(0));
      if (!layer.every_step) {
        found.push_back(states.back());
        continue;
      }
      if (d > 0) std::reverse(states.begin(), states.end());
      found.push_back(torch::constant_pad_nd(torch::stack(states, 1), {0, steps - length}));
    }
    samples.push_back(torch::cat(found, 0));
  }
  const torch::Tensor all = torch::stack(samples, 0);
  return layer.every_step ? all.reshape({all.size(0), all.size(1), 1, 1, steps}) : all;
}

// Head by head; an excluded cell has no weight at all.
torch::Tensor attention(const Layer& layer, const Tensors& p, const Tensors& in) {
  const std::int64_t channels = layer.input.channels;
  const std::int64_t width = channels / layer.groups;
  const torch::Tensor cells = in[0].flatten(2);  // [samples, channels, cells]
  const torch::Tensor all = torch::matmul(p[0], cells) + p[1].unsqueeze(1);
  Tensors heads;
  for (std::int64_t h = 0; h < layer.groups; ++h) {
    const auto part = [&](std::int64_t which) { return all.narrow(1, which * channels + h * width, width); };
    torch::Tensor scores =
        torch::matmul(part(0).transpose(1, 2), part(1)) / std::sqrt(static_cast<double>(width));
    if (in.size() > 1) scores = scores.masked_fill(in[1].flatten(1).le(0.5).unsqueeze(1), -INFINITY);
    heads.push_back(torch::matmul(part(2), torch::softmax(scores, 2).transpose(1, 2)));
  }
  return (torch::matmul(p[2], torch::cat(heads, 1)) + p[3].unsqueeze(1)).reshape(in[0].sizes());
}

// FFT, one product for each mode, inverse FFT.
torch::Tensor spectral(const Layer& layer, const Tensors& p, const Tensors& in) {
  const std::vector<std::int64_t> axes = {2, 3, 4};
  const auto& e = layer.input.extent;
  const torch::Tensor spectrum = torch::fft_rfftn(in[0], c10::nullopt, axes);
  std::vector<std::int64_t> sizes = spectrum.sizes().vec();
  sizes[1] = layer.output.channels;
  torch::Tensor result = torch::zeros(sizes, spectrum.options());
  std::int64_t inner = 2;
  while (e[static_cast<std::size_t>(inner)] == 1) --inner;
  const auto frequencies = [&](std::int64_t axis) {
    std::vector<std::int64_t> list;
    const std::int64_t modes = layer.kernel[static_cast<std::size_t>(axis)];
    for (std::int64_t k = 0; k < modes; ++k) list.push_back(k);
    const std::int64_t cells = e[static_cast<std::size_t>(axis)];
    for (std::int64_t k = cells - modes; axis != inner && cells > 1 && k < cells; ++k) list.push_back(k);
    return list;
  };
  // fft_rfftn halves the last axis, a flat one too.
  WFLOW_CHECK(inner == 2);
  std::int64_t mode = 0;
  for (const std::int64_t x : frequencies(2)) {
    for (const std::int64_t y : frequencies(1)) {
      for (const std::int64_t z : frequencies(0)) {
        const torch::Tensor weight = torch::complex(p[0][mode].select(1, 0), p[0][mode].select(1, 1));
        ++mode;
        const torch::Tensor here = spectrum.select(4, x).select(3, y).select(2, z);
        result.select(4, x).select(3, y).select(2, z).copy_(torch::matmul(here, weight));
      }
    }
  }
  return torch::fft_irfftn(result, std::vector<std::int64_t>(e.begin(), e.end()), axes);
}

torch::Tensor conv_lstm(const Layer& layer, const Tensors& p, const Tensors& in) {
  const auto axis = 2 + static_cast<std::int64_t>(layer.time_axis);
  const std::vector<std::int64_t> pads(layer.pad_low.begin(), layer.pad_low.end());
  std::vector<std::int64_t> sizes = in[0].sizes().vec();
  sizes[1] = layer.output.channels;
  sizes[static_cast<std::size_t>(axis)] = 1;
  torch::Tensor state = torch::zeros(sizes);
  torch::Tensor cell = torch::zeros(sizes);
  Tensors states;
  for (std::int64_t t = 0; t < in[0].size(axis); ++t) {
    const torch::Tensor both = torch::cat({in[0].narrow(axis, t, 1), state}, 1);
    const torch::Tensor gates = torch::conv3d(both, torch::cat({p[0], p[1]}, 1), p[2], 1, pads);
    const auto gate = [&](std::int64_t i) { return gates.narrow(1, i * sizes[1], sizes[1]); };
    cell = torch::sigmoid(gate(1)) * cell + torch::sigmoid(gate(0)) * torch::tanh(gate(2));
    state = torch::sigmoid(gate(3)) * torch::tanh(cell);
    states.push_back(state);
  }
  return layer.every_step ? torch::cat(states, axis) : state;
}

torch::Tensor table_of(const LayerConstant& constant) {
  return torch::from_blob(const_cast<float*>(constant.values.data()), constant.shape).clone();
}

}  // namespace

torch::Tensor sequence_oracle(const Layer& layer, const Tensors& p, const Tensors& in) {
  switch (layer.kind) {
    case LayerKind::lstm:
    case LayerKind::gru:
      return recurrent(layer, p, in);
    case LayerKind::attention:
      return attention(layer, p, in);
    case LayerKind::positions:
      return in[0] + (p.empty() ? table_of(position_table(layer)) : p[0]);
    case LayerKind::coordinates: {
      const torch::Tensor table = table_of(coordinate_table(layer));
      return torch::cat({in[0], table.repeat({in[0].size(0), 1, 1, 1, 1})}, 1);
    }
    case LayerKind::spectral_convolution:
      return spectral(layer, p, in);
    case LayerKind::conv_lstm:
      return conv_lstm(layer, p, in);
    default:
      WFLOW_CHECK(false);
      return {};
  }
}

}  // namespace wflow::trainer
