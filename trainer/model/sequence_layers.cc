// SPDX-License-Identifier: Apache-2.0
// Recurrent, attention and spectral layers by libtorch's own operations.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "trainer/model/layer_constants.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

using TensorList = TorchLayer::Tensors;
using Sizes = std::vector<std::int64_t>;

Sizes list_of(const std::array<std::int64_t, 3>& values) {
  return {values.begin(), values.end()};
}

at::Tensor tensor_of(const LayerConstant& constant) {
  at::Tensor tensor = at::empty(constant.shape, at::TensorOptions().dtype(at::kFloat));
  std::copy(constant.values.begin(), constant.values.end(), tensor.data_ptr<float>());
  return tensor;
}

// 1 for a cell with a value, 0 for padding: [samples, cells].
at::Tensor valid_cells(const at::Tensor& mask) {
  return mask.reshape({mask.size(0), -1}).gt(0.5);
}

// The steps of each sample that a series has, and for each step the one that the reversed series reads there:
// padding stays at the end. [steps, samples].
struct Order {
  at::Tensor lengths;
  at::Tensor turned;
  at::Tensor valid;
};

Order order_of(const TensorList& in, std::int64_t steps) {
  const auto options = in[0].options().dtype(at::kLong);
  const at::Tensor lengths =
      in.size() > 1 ? valid_cells(in[1]).sum(1).clamp_min(1) : at::full({in[0].size(0)}, steps, options);
  const at::Tensor step = at::arange(steps, options).unsqueeze(1);
  const at::Tensor turned = lengths.sub(1).unsqueeze(0).sub(step);
  const at::Tensor valid = turned.ge(0);
  return {lengths, at::where(valid, turned, step), valid};
}

at::Tensor gathered(const at::Tensor& series, const at::Tensor& steps) {
  return series.gather(0, steps.unsqueeze(2).expand_as(series));
}

LayerFunction recurrent_function(const Layer& layer) {
  return [kind = layer.kind, every_step = layer.every_step, both = layer.bidirectional](const TensorList& in,
                                                                                        const TensorList& p) {
    const std::int64_t samples = in[0].size(0);
    const std::int64_t units = p[1].size(1);
    const at::Tensor series = in[0].reshape({samples, in[0].size(1), -1}).permute({2, 0, 1});
    const Order order = order_of(in, series.size(0));
    const at::Tensor state = at::zeros({1, samples, units}, series.options());
    const bool train = c10::GradMode::is_enabled();
    TensorList found;
    for (std::size_t d = 0; d < (both ? 2U : 1U); ++d) {
      const at::Tensor x = d == 0 ? series : gathered(series, order.turned);
      const TensorList weights(p.begin() + static_cast<std::ptrdiff_t>(4 * d),
                               p.begin() + static_cast<std::ptrdiff_t>(4 * d + 4));
      const at::Tensor y =
          kind == LayerKind::lstm
              ? std::get<0>(at::lstm(x, {state, state}, weights, true, 1, 0, train, false, false))
              : std::get<0>(at::gru(x, state, weights, true, 1, 0, train, false, false));
      if (every_step) {
        const at::Tensor known = y * order.valid.unsqueeze(2);
        found.push_back(d == 0 ? known : gathered(known, order.turned));
      } else {
        found.push_back(
            gathered(y, order.lengths.sub(1).unsqueeze(0).expand({y.size(0), samples})).select(0, 0));
      }
    }
    const at::Tensor all = at::cat(found, -1);
    if (!every_step) return all;
    Sizes sizes = in[0].sizes().vec();
    sizes[1] = all.size(2);
    return all.permute({1, 2, 0}).reshape(sizes);
  };
}

at::Tensor attention(const TensorList& in, const TensorList& p, std::int64_t heads) {
  const std::int64_t samples = in[0].size(0);
  const std::int64_t channels = in[0].size(1);
  const std::int64_t width = channels / heads;
  const at::Tensor cells = in[0].reshape({samples, channels, -1}).transpose(1, 2);
  const at::Tensor parts =
      at::linear(cells, p[0], p[1]).view({samples, -1, 3, heads, width}).permute({2, 0, 3, 1, 4});
  at::Tensor scores = parts[0].matmul(parts[1].transpose(-2, -1)).div(std::sqrt(static_cast<double>(width)));
  if (in.size() > 1) {
    const at::Tensor valid = valid_cells(in[1]).to(at::kFloat).view({samples, 1, 1, -1});
    scores = scores + (valid - 1) * kExcludedScore;
  }
  const at::Tensor mixed =
      scores.softmax(-1).matmul(parts[2]).transpose(1, 2).reshape({samples, -1, channels});
  return at::linear(mixed, p[2], p[3]).transpose(1, 2).reshape(in[0].sizes());
}

// The lowest frequencies along one axis of a spectrum: from 0 on, and for a whole axis the negative ones.
at::Tensor lowest(const at::Tensor& spectrum, std::int64_t axis, std::int64_t modes, bool whole) {
  const at::Tensor from_zero = spectrum.narrow(axis, 0, modes);
  if (!whole) return from_zero;
  return at::cat({from_zero, spectrum.narrow(axis, spectrum.size(axis) - modes, modes)}, axis);
}

// The reverse: frequencies that are missing are 0. `size`: of the spectrum along the axis.
at::Tensor spread(const at::Tensor& kept, std::int64_t axis, std::int64_t modes, std::int64_t size,
                  bool whole) {
  Sizes gap = kept.sizes().vec();
  gap[static_cast<std::size_t>(axis)] = size - (whole ? 2 : 1) * modes;
  TensorList parts = {kept.narrow(axis, 0, modes), at::zeros(gap, kept.options())};
  if (whole) parts.push_back(kept.narrow(axis, modes, modes));
  return at::cat(parts, axis);
}

LayerFunction spectral_function(const Layer& layer) {
  Sizes cells;
  Sizes modes;
  Sizes axes;
  for (std::size_t i = 0; i < 3; ++i) {
    if (layer.input.extent[i] == 1) continue;
    cells.push_back(layer.input.extent[i]);
    modes.push_back(layer.kernel[i]);
    axes.push_back(1 + static_cast<std::int64_t>(cells.size()));
  }
  return [cells, modes, axes](const TensorList& in, const TensorList& p) {
    const at::Tensor& x = in[0];
    Sizes grid = {x.size(0), x.size(1)};
    grid.insert(grid.end(), cells.begin(), cells.end());
    at::Tensor spectrum = at::fft_rfftn(x.reshape(grid), c10::nullopt, axes);
    for (std::size_t i = 0; i < axes.size(); ++i)
      spectrum = lowest(spectrum, axes[i], modes[i], i + 1 < axes.size());
    // The weight's modes begin with those of the innermost axis.
    Sizes turned = {0, 1};
    turned.insert(turned.end(), axes.rbegin(), axes.rend());
    const at::Tensor ordered = spectrum.permute(turned);
    const at::Tensor rows = ordered.reshape({x.size(0), x.size(1), -1}).permute({2, 0, 1});
    const at::Tensor weight = at::complex(p[0].select(2, 0), p[0].select(2, 1));
    Sizes shape = ordered.sizes().vec();
    shape[1] = weight.size(2);
    at::Tensor y = at::matmul(rows, weight).permute({1, 2, 0}).reshape(shape).permute(turned);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const bool whole = i + 1 < axes.size();
      y = spread(y, axes[i], modes[i], whole ? cells[i] : cells[i] / 2 + 1, whole);
    }
    Sizes sizes = x.sizes().vec();
    sizes[1] = weight.size(2);
    return at::fft_irfftn(y, cells, axes).reshape(sizes);
  };
}

LayerFunction conv_lstm_function(const Layer& layer) {
  const std::int64_t axis = 2 + static_cast<std::int64_t>(layer.time_axis);
  return [axis, every_step = layer.every_step, pads = list_of(layer.pad_low)](const TensorList& in,
                                                                              const TensorList& p) {
    const Sizes ones = {1, 1, 1};
    const Sizes zeros = {0, 0, 0};
    const at::Tensor from_input = at::convolution(in[0], p[0], p[2], ones, pads, ones, false, zeros, 1);
    at::Tensor cell;
    at::Tensor state;
    TensorList states;
    for (std::int64_t t = 0; t < from_input.size(axis); ++t) {
      at::Tensor gates = from_input.narrow(axis, t, 1);
      if (t > 0)
        gates = gates + at::convolution(state, p[1], c10::nullopt, ones, pads, ones, false, zeros, 1);
      const TensorList gate = gates.chunk(4, 1);
      const at::Tensor news = gate[0].sigmoid() * gate[2].tanh();
      cell = t > 0 ? gate[1].sigmoid() * cell + news : news;
      state = gate[3].sigmoid() * cell.tanh();
      if (every_step) states.push_back(state);
    }
    return every_step ? at::cat(states, axis) : state.contiguous();
  };
}

}  // namespace

LayerFunction sequence_function(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::lstm:
    case LayerKind::gru:
      return recurrent_function(layer);
    case LayerKind::attention:
      return [heads = layer.groups](const TensorList& in, const TensorList& p) {
        return attention(in, p, heads);
      };
    case LayerKind::positions:
      if (!layer.parameters.empty())
        return [](const TensorList& in, const TensorList& p) { return in[0] + p[0]; };
      return [table = tensor_of(position_table(layer))](const TensorList& in, const TensorList&) {
        return in[0] + table.to(in[0].device());
      };
    case LayerKind::coordinates:
      return [table = tensor_of(coordinate_table(layer))](const TensorList& in, const TensorList&) {
        const at::Tensor here = table.to(in[0].device());
        Sizes sizes = here.sizes().vec();
        sizes[0] = in[0].size(0);
        return at::cat({in[0], here.expand(sizes)}, 1);
      };
    case LayerKind::spectral_convolution:
      return spectral_function(layer);
    case LayerKind::conv_lstm:
      return conv_lstm_function(layer);
    default:
      return {};
  }
}

}  // namespace wflow::trainer
