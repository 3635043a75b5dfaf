// SPDX-License-Identifier: Apache-2.0
// A dense layer with oneDNN's matrix products, which are generated for the processor: OpenBLAS 0.3.21 uses
// AVX2 kernels on AVX-512 processors that are newer than itself, at 0.4 of the speed; the reference BLAS has
// a hundredth.
#include <dnnl.h>

#include "base/error.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

struct ProductSize {
  std::int64_t rows = 0;     // in the result
  std::int64_t columns = 0;  // in the result
  std::int64_t inner = 0;
};

// result = a b, all in rows without gaps. `a_by_column`, `b_by_column`: the factor is transposed. `add`: the
// product is added to the result.
struct Product {
  bool a_by_column = false;
  bool b_by_column = false;
  bool add = false;
};
void multiply(const ProductSize& size, const Product& how, const float* a, const float* b, float* result) {
  const std::int64_t a_row = how.a_by_column ? size.rows : size.inner;
  const std::int64_t b_row = how.b_by_column ? size.inner : size.columns;
  const dnnl_status_t status =
      dnnl_sgemm(how.a_by_column ? 'T' : 'N', how.b_by_column ? 'T' : 'N', size.rows, size.columns,
                 size.inner, 1.0F, a, a_row, b, b_row, how.add ? 1.0F : 0.0F, result, size.columns);
  WFLOW_CHECK(status == dnnl_success);
}

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
    multiply({outputs, inputs, samples}, {.a_by_column = true}, dy.data_ptr<float>(),
             input_.data_ptr<float>(), weights.gradient.data_ptr<float>());
    at::sum_out(tensors_.parameters[1].gradient, dy, std::vector<std::int64_t>{0});
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
