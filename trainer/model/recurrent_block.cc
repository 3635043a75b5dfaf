// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU on a processor. One product of matrices gives the part of the gates that the input decides,
// for all steps together; a step then multiplies only its state. libtorch's own layers take several times as
// long: they run about 20 operations a step, and as many backward.
#include <algorithm>
#include <cstring>

#include "trainer/model/direct_kernels.h"
#include "trainer/model/onednn_function.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

using StepList = std::vector<std::int64_t>;

std::size_t bytes_of(std::int64_t floats) {
  return static_cast<std::size_t>(floats) * sizeof(float);
}

// The steps of each sample before its padding, at least one. `mask`: [samples, 1, 1, 1, steps].
StepList lengths_of(const TorchLayer::Tensors& inputs) {
  const std::int64_t samples = inputs[0].size(0);
  const std::int64_t steps = inputs[0].numel() / samples / inputs[0].size(1);
  StepList lengths(static_cast<std::size_t>(samples), steps);
  if (inputs.size() < 2) return lengths;
  const at::Tensor mask = inputs[1].contiguous();
  const float* value = mask.data_ptr<float>();
  for (std::int64_t& length : lengths) {
    length = std::max<std::int64_t>(1, std::count_if(value, value + steps, [](float v) { return v > 0.5F; }));
    value += steps;
  }
  return lengths;
}

// Reverses the steps before the padding; twice gives the same series. `series`: [steps, samples, values].
at::Tensor reversed(const at::Tensor& series, const StepList& lengths) {
  at::Tensor turned = at::empty_like(series);
  const std::int64_t samples = series.size(1);
  const std::int64_t values = series.size(2);
  const float* from = series.data_ptr<float>();
  float* to = turned.data_ptr<float>();
  for (std::int64_t t = 0; t < series.size(0); ++t) {
    for (std::int64_t n = 0; n < samples; ++n) {
      const std::int64_t length = lengths[static_cast<std::size_t>(n)];
      const std::int64_t step = t < length ? length - 1 - t : t;
      std::memcpy(to + (t * samples + n) * values, from + (step * samples + n) * values, bytes_of(values));
    }
  }
  return turned;
}

void clear_padding(const at::Tensor& series, const StepList& lengths) {
  const std::int64_t values = series.size(2);
  for (std::int64_t n = 0; n < series.size(1); ++n) {
    for (std::int64_t t = lengths[static_cast<std::size_t>(n)]; t < series.size(0); ++t)
      std::memset(series.data_ptr<float>() + (t * series.size(1) + n) * values, 0, bytes_of(values));
  }
}

// Values of one direction for the backward pass; all are [steps, samples, ...].
struct Pass {
  at::Tensor series;
  at::Tensor gates;   // lstm: input, forget, cell, output; gru: reset, update, new
  at::Tensor cells;   // lstm
  at::Tensor bent;    // lstm: tanh of the cells; gru: the new gate's part of the state
  at::Tensor states;  // the output
};

struct Size {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t inputs = 0;
  std::int64_t units = 0;
};

// One direction: weight_ih, weight_hh, bias_ih, bias_hh.
class Direction {
 public:
  Direction(LayerKind kind, std::vector<ParameterTensors> tensors)
      : lstm_(kind == LayerKind::lstm), gates_(lstm_ ? 4 : 3), tensors_(std::move(tensors)) {}

  Pass run(const at::Tensor& series) const {
    const Size size = size_of(series);
    Pass pass;
    pass.series = series;
    pass.gates = at::empty({size.steps, size.samples, gates_ * size.units}, series.options());
    const at::Tensor& bias = tensors_[2].value;
    pass.gates.copy_(lstm_ ? bias.add(tensors_[3].value) : bias);
    multiply({size.steps * size.samples, gates_ * size.units, size.inputs},
             {.b_by_column = true, .add = true}, series.data_ptr<float>(),
             tensors_[0].value.data_ptr<float>(), pass.gates.data_ptr<float>());
    pass.states = at::empty({size.steps, size.samples, size.units}, series.options());
    pass.bent = at::empty_like(pass.states);
    if (lstm_) pass.cells = at::empty_like(pass.states);
    for (std::int64_t t = 0; t < size.steps; ++t) {
      if (lstm_) {
        lstm_step(pass, size, t);
      } else {
        gru_step(pass, size, t);
      }
    }
    return pass;
  }

  // `gradient`: of the states. Sets the gradients of the parameters and returns that of the series, undefined
  // if it is not wanted. The gates become their gradients.
  at::Tensor backward(Pass& pass, const at::Tensor& gradient, bool wants_input) const {
    const Size size = size_of(pass.series);
    at::Tensor of_state = pass.gates;  // gru: the gradient of the part that the state decides
    if (!lstm_) of_state = at::empty_like(pass.gates);
    at::Tensor carried = at::zeros({size.samples, size.units}, gradient.options());
    at::Tensor cell = at::zeros_like(carried);
    for (std::int64_t t = size.steps; t-- > 0;) {
      if (lstm_) {
        lstm_step_back(pass, size, t, gradient, carried, cell);
      } else {
        gru_step_back(pass, size, t, gradient, carried, of_state);
      }
      if (t == 0) break;
      multiply({size.samples, size.units, gates_ * size.units}, {.add = !lstm_},
               of_state.data_ptr<float>() + t * size.samples * gates_ * size.units,
               tensors_[1].value.data_ptr<float>(), carried.data_ptr<float>());
    }
    const std::int64_t rows = size.steps * size.samples;
    const std::int64_t columns = gates_ * size.units;
    multiply({columns, size.inputs, rows}, {.a_by_column = true}, pass.gates.data_ptr<float>(),
             pass.series.data_ptr<float>(), tensors_[0].gradient.data_ptr<float>());
    multiply({columns, size.units, rows - size.samples}, {.a_by_column = true},
             of_state.data_ptr<float>() + size.samples * columns, pass.states.data_ptr<float>(),
             tensors_[1].gradient.data_ptr<float>());
    at::Tensor of_bias = tensors_[2].gradient;
    at::sum_out(of_bias, pass.gates, StepList{0, 1});
    of_bias = tensors_[3].gradient;
    at::sum_out(of_bias, of_state, StepList{0, 1});
    if (!wants_input) return {};
    at::Tensor of_series = at::empty_like(pass.series);
    multiply({rows, size.inputs, columns}, {}, pass.gates.data_ptr<float>(),
             tensors_[0].value.data_ptr<float>(), of_series.data_ptr<float>());
    return of_series;
  }

 private:
  Size size_of(const at::Tensor& series) const {
    return {series.size(0), series.size(1), series.size(2), tensors_[1].value.size(1)};
  }

  static float* at_step(const at::Tensor& all, std::int64_t t) {
    return all.data_ptr<float>() + t * all.stride(0);
  }

  void lstm_step(const Pass& pass, const Size& size, std::int64_t t) const {
    const std::int64_t units = size.units;
    float* gates = at_step(pass.gates, t);
    if (t > 0) {
      multiply({size.samples, 4 * units, units}, {.b_by_column = true, .add = true},
               at_step(pass.states, t - 1), tensors_[1].value.data_ptr<float>(), gates);
    }
    const DirectKernels& kernels = direct_kernels();
    for (std::int64_t n = 0; n < size.samples; ++n) {
      float* gate = gates + n * 4 * units;
      kernels.sigmoid(gate, 2 * units, gate);
      kernels.tanh(gate + 2 * units, units, gate + 2 * units);
      kernels.sigmoid(gate + 3 * units, units, gate + 3 * units);
      float* cell = at_step(pass.cells, t) + n * units;
      const float* before = t > 0 ? at_step(pass.cells, t - 1) + n * units : nullptr;
      for (std::int64_t u = 0; u < units; ++u) {
        cell[u] = gate[u] * gate[2 * units + u];
        if (before != nullptr) cell[u] += gate[units + u] * before[u];
      }
      float* bent = at_step(pass.bent, t) + n * units;
      kernels.tanh(cell, units, bent);
      float* state = at_step(pass.states, t) + n * units;
      for (std::int64_t u = 0; u < units; ++u) state[u] = gate[3 * units + u] * bent[u];
    }
  }

  // `carried`: the gradient of the state by the later steps; `cell`: of the cell, changed to that of the step
  // before.
  static void lstm_step_back(const Pass& pass, const Size& size, std::int64_t t, const at::Tensor& gradient,
                             const at::Tensor& carried, const at::Tensor& cell) {
    const std::int64_t units = size.units;
    for (std::int64_t n = 0; n < size.samples; ++n) {
      float* gate = at_step(pass.gates, t) + n * 4 * units;
      const float* bent = at_step(pass.bent, t) + n * units;
      const float* before = t > 0 ? at_step(pass.cells, t - 1) + n * units : nullptr;
      const float* given = at_step(gradient, t) + n * units;
      const float* later = carried.data_ptr<float>() + n * units;
      float* of_cell = cell.data_ptr<float>() + n * units;
      for (std::int64_t u = 0; u < units; ++u) {
        const float in = gate[u];
        const float forget = gate[units + u];
        const float fresh = gate[2 * units + u];
        const float out = gate[3 * units + u];
        const float dh = given[u] + later[u];
        const float dc = of_cell[u] + dh * out * (1 - bent[u] * bent[u]);
        gate[u] = dc * fresh * in * (1 - in);
        gate[units + u] = before != nullptr ? dc * before[u] * forget * (1 - forget) : 0.0F;
        gate[2 * units + u] = dc * in * (1 - fresh * fresh);
        gate[3 * units + u] = dh * bent[u] * out * (1 - out);
        of_cell[u] = dc * forget;
      }
    }
  }

  void gru_step(const Pass& pass, const Size& size, std::int64_t t) const {
    const std::int64_t units = size.units;
    at::Tensor by_state = at::empty({size.samples, 3 * units}, pass.gates.options());
    by_state.copy_(tensors_[3].value);
    if (t > 0) {
      multiply({size.samples, 3 * units, units}, {.b_by_column = true, .add = true},
               at_step(pass.states, t - 1), tensors_[1].value.data_ptr<float>(), by_state.data_ptr<float>());
    }
    const DirectKernels& kernels = direct_kernels();
    for (std::int64_t n = 0; n < size.samples; ++n) {
      float* gate = at_step(pass.gates, t) + n * 3 * units;
      const float* part = by_state.data_ptr<float>() + n * 3 * units;
      for (std::int64_t u = 0; u < 2 * units; ++u) gate[u] += part[u];
      kernels.sigmoid(gate, 2 * units, gate);
      part += 2 * units;
      std::memcpy(at_step(pass.bent, t) + n * units, part, bytes_of(units));
      for (std::int64_t u = 0; u < units; ++u) gate[2 * units + u] += gate[u] * part[u];
      kernels.tanh(gate + 2 * units, units, gate + 2 * units);
      const float* before = t > 0 ? at_step(pass.states, t - 1) + n * units : nullptr;
      float* state = at_step(pass.states, t) + n * units;
      for (std::int64_t u = 0; u < units; ++u) {
        const float update = gate[units + u];
        state[u] = (1 - update) * gate[2 * units + u];
        if (before != nullptr) state[u] += update * before[u];
      }
    }
  }

  // `carried` becomes the part of the earlier state's gradient that passes by the gates.
  static void gru_step_back(const Pass& pass, const Size& size, std::int64_t t, const at::Tensor& gradient,
                            const at::Tensor& carried, const at::Tensor& of_state) {
    const std::int64_t units = size.units;
    for (std::int64_t n = 0; n < size.samples; ++n) {
      float* gate = at_step(pass.gates, t) + n * 3 * units;
      float* by_state = at_step(of_state, t) + n * 3 * units;
      const float* part = at_step(pass.bent, t) + n * units;
      const float* before = t > 0 ? at_step(pass.states, t - 1) + n * units : nullptr;
      const float* given = at_step(gradient, t) + n * units;
      float* later = carried.data_ptr<float>() + n * units;
      for (std::int64_t u = 0; u < units; ++u) {
        const float reset = gate[u];
        const float update = gate[units + u];
        const float fresh = gate[2 * units + u];
        const float dh = given[u] + later[u];
        const float of_fresh = dh * (1 - update) * (1 - fresh * fresh);
        const float earlier = before != nullptr ? before[u] : 0.0F;
        gate[u] = by_state[u] = of_fresh * part[u] * reset * (1 - reset);
        gate[units + u] = by_state[units + u] = dh * (earlier - fresh) * update * (1 - update);
        gate[2 * units + u] = of_fresh;
        by_state[2 * units + u] = of_fresh * reset;
        later[u] = dh * update;
      }
    }
  }

  bool lstm_;
  std::int64_t gates_;
  std::vector<ParameterTensors> tensors_;
};

class RecurrentBlock final : public TorchLayer {
 public:
  RecurrentBlock(const Layer& layer, const LayerTensors& tensors) : every_step_(layer.every_step) {
    for (std::size_t i = 0; i < tensors.parameters.size(); i += 4) {
      const auto first = tensors.parameters.begin() + static_cast<std::ptrdiff_t>(i);
      directions_.emplace_back(layer.kind, std::vector<ParameterTensors>(first, first + 4));
    }
  }

  at::Tensor predict(const Tensors& inputs) override {
    std::vector<Pass> passes;
    return run(inputs, lengths_of(inputs), passes);
  }

  at::Tensor forward(const Tensors& inputs, const StepKey&) override {
    lengths_ = lengths_of(inputs);
    passes_.clear();
    return run(inputs, lengths_, passes_);
  }

  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    at::Tensor of_series;
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      Pass& pass = passes_[d];
      at::Tensor part = directions_[d].backward(pass, gradient_of_states(gradient, d), wanted[0]);
      if (!wanted[0]) continue;
      if (d > 0) part = reversed(part, lengths_);
      of_series = d > 0 ? of_series.add(part) : part;
    }
    passes_.clear();
    Tensors result(wanted.size());
    if (wanted[0]) result[0] = of_series.permute({1, 2, 0}).contiguous();
    return result;
  }

 private:
  at::Tensor run(const Tensors& inputs, const StepList& lengths, std::vector<Pass>& passes) const {
    const at::Tensor& x = inputs[0];
    const at::Tensor series = x.reshape({x.size(0), x.size(1), -1}).permute({2, 0, 1}).contiguous();
    Tensors found;
    for (std::size_t d = 0; d < directions_.size(); ++d) {
      Pass pass = directions_[d].run(d == 0 ? series : reversed(series, lengths));
      if (every_step_) {
        const at::Tensor known = d == 0 ? pass.states.clone() : reversed(pass.states, lengths);
        clear_padding(known, lengths);
        found.push_back(known);
      } else {
        found.push_back(last_states(pass.states, lengths));
      }
      passes.push_back(std::move(pass));
    }
    const at::Tensor all = at::cat(found, -1);
    return every_step_ ? all.permute({1, 2, 0}).contiguous() : all;
  }

  static at::Tensor last_states(const at::Tensor& states, const StepList& lengths) {
    const std::int64_t samples = states.size(1);
    const std::int64_t units = states.size(2);
    at::Tensor last = at::empty({samples, units}, states.options());
    for (std::int64_t n = 0; n < samples; ++n) {
      const std::int64_t step = lengths[static_cast<std::size_t>(n)] - 1;
      std::memcpy(last.data_ptr<float>() + n * units, states.data_ptr<float>() + (step * samples + n) * units,
                  bytes_of(units));
    }
    return last;
  }

  // In the direction's order of steps.
  at::Tensor gradient_of_states(const at::Tensor& gradient, std::size_t direction) const {
    const at::Tensor& states = passes_[direction].states;
    const std::int64_t samples = states.size(1);
    const std::int64_t units = states.size(2);
    const auto first = static_cast<std::int64_t>(direction) * units;
    if (every_step_) {
      const at::Tensor own = gradient.reshape({samples, -1, states.size(0)})
                                 .narrow(1, first, units)
                                 .permute({2, 0, 1})
                                 .contiguous();
      const at::Tensor known = direction == 0 ? own.clone() : reversed(own, lengths_);
      clear_padding(known, lengths_);
      return known;
    }
    at::Tensor all = at::zeros_like(states);
    const at::Tensor own = gradient.narrow(1, first, units).contiguous();
    for (std::int64_t n = 0; n < samples; ++n) {
      const std::int64_t step = lengths_[static_cast<std::size_t>(n)] - 1;
      std::memcpy(all.data_ptr<float>() + (step * samples + n) * units, own.data_ptr<float>() + n * units,
                  bytes_of(units));
    }
    return all;
  }

  bool every_step_;
  std::vector<Direction> directions_;
  StepList lengths_;
  std::vector<Pass> passes_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_recurrent_block(const Layer& layer, const LayerTensors& tensors) {
  return std::make_unique<RecurrentBlock>(layer, tensors);
}

}  // namespace wflow::trainer
