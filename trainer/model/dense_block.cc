// SPDX-License-Identifier: Apache-2.0
// A dense layer with oneDNN's matrix products.
#include "trainer/model/onednn_function.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

class DenseBlock final : public UnaryLayer {
 public:
  explicit DenseBlock(const LayerTensors& tensors) : tensors_(tensors) {}

  at::Tensor predict(const at::Tensor& x) override {
    const at::Tensor& weights = tensors_.parameters[0].value;
    const at::Tensor from = x.contiguous();
    // The product is added to rows of the bias, which are a copy also for one sample.
    at::Tensor y = at::empty({from.size(0), weights.size(0)}, from.options());
    y.copy_(tensors_.parameters[1].value);
    multiply({from.size(0), weights.size(0), weights.size(1)}, {.b_by_column = true, .add = true},
             from.data_ptr<float>(), weights.data_ptr<float>(), y.data_ptr<float>());
    return y;
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x.contiguous();
    return predict(input_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const ParameterTensors& weights = tensors_.parameters[0];
    const std::int64_t samples = gradient.size(0);
    const std::int64_t outputs = weights.value.size(0);
    const std::int64_t inputs = weights.value.size(1);
    const at::Tensor dy = gradient.contiguous();
    if (weights.learns) {
      multiply({outputs, inputs, samples}, {.a_by_column = true}, dy.data_ptr<float>(),
               input_.data_ptr<float>(), weights.gradient.data_ptr<float>());
      at::sum_out(tensors_.parameters[1].gradient, dy, std::vector<std::int64_t>{0});
    }
    input_.reset();
    if (!wants_input) return {};
    at::Tensor dx = at::empty({samples, inputs}, dy.options());
    multiply({samples, inputs, outputs}, {}, dy.data_ptr<float>(), weights.value.data_ptr<float>(),
             dx.data_ptr<float>());
    return dx;
  }

 private:
  LayerTensors tensors_;
  at::Tensor input_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_dense_block(const LayerTensors& tensors) {
  return std::make_unique<DenseBlock>(tensors);
}

}  // namespace wflow::trainer
