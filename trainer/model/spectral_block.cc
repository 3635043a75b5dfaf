// SPDX-License-Identifier: Apache-2.0
// A spectral convolution on a processor. Of the transform only the lowest modes are needed: products with the
// matrices of layer_constants.h compute these alone, faster than a whole FFT.
#include <ATen/Parallel.h>

#include "trainer/model/layer_constants.h"
#include "trainer/model/onednn_function.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

using ShapeList = std::vector<std::int64_t>;

ShapeList with_samples(std::int64_t samples, const ShapeList& shape) {
  ShapeList sizes = {samples};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

at::Tensor applied(const SpectralStep& step, const at::Tensor& x) {
  const std::int64_t samples = x.size(0);
  const at::Tensor from = x.reshape(with_samples(samples, step.shape)).permute(step.order).contiguous();
  const std::int64_t rows = samples * step.merged[0];
  const std::int64_t columns = step.matrix.shape[1];
  at::Tensor y = at::empty({samples, step.merged[0], columns}, x.options());
  multiply({rows, columns, step.merged[1]}, {}, from.data_ptr<float>(), step.matrix.values.data(),
           y.data_ptr<float>());
  return y;
}

at::Tensor adjoint(const SpectralStep& step, const at::Tensor& gradient) {
  const std::int64_t samples = gradient.size(0);
  const at::Tensor dy = gradient.contiguous();
  ShapeList permuted = with_samples(samples, step.shape);
  ShapeList back(step.order.size());
  const ShapeList sizes = permuted;
  for (std::size_t i = 0; i < step.order.size(); ++i) {
    permuted[i] = sizes[static_cast<std::size_t>(step.order[i])];
    back[static_cast<std::size_t>(step.order[i])] = static_cast<std::int64_t>(i);
  }
  at::Tensor dx = at::empty(permuted, gradient.options());
  multiply({samples * step.merged[0], step.merged[1], step.matrix.shape[1]}, {.b_by_column = true},
           dy.data_ptr<float>(), step.matrix.values.data(), dx.data_ptr<float>());
  return dx.permute(back).contiguous();
}

class SpectralBlock final : public UnaryLayer {
 public:
  SpectralBlock(const Layer& layer, const LayerTensors& tensors)
      : grid_(layer.input.extent), plan_(spectral_plan(layer)), weight_(tensors.parameters[0]) {}

  at::Tensor predict(const at::Tensor& x) override { return mixed_back(spectrum_of(x)); }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    spectrum_ = spectrum_of(x);
    return mixed_back(spectrum_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    at::Tensor dy = gradient;
    for (auto step = plan_.inverse.rbegin(); step != plan_.inverse.rend(); ++step) dy = adjoint(*step, dy);
    const std::int64_t samples = spectrum_.size(1);
    // [modes, samples, parts, out]
    const at::Tensor own = dy.reshape({samples, outputs(), modes(), 2}).permute({2, 0, 3, 1}).contiguous();
    // The products of the real and the imaginary part with both parts of the weight.
    at::Tensor products = at::empty({modes(), samples, 2, 2, outputs()}, own.options());
    products.select(2, 0).copy_(own);
    products.select(2, 1).select(2, 0).copy_(own.select(2, 1));
    at::Tensor last = products.select(2, 1).select(2, 1);
    at::neg_out(last, own.select(2, 0));
    const at::Tensor dx = at::empty_like(spectrum_);
    at::parallel_for(0, modes(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        const float* given = at_mode(products, k);
        multiply({inputs(), 2 * outputs(), 2 * samples}, {.a_by_column = true}, at_mode(spectrum_, k), given,
                 at_mode(weight_.gradient, k));
        if (!wants_input) continue;
        multiply({2 * samples, inputs(), 2 * outputs()}, {.b_by_column = true}, given,
                 at_mode(weight_.value, k), at_mode(dx, k));
      }
    });
    spectrum_.reset();
    if (!wants_input) return {};
    at::Tensor back = dx.permute({1, 3, 0, 2}).contiguous();
    for (auto step = plan_.forward.rbegin(); step != plan_.forward.rend(); ++step)
      back = adjoint(*step, back);
    return back.view({samples, inputs(), grid_[0], grid_[1], grid_[2]});
  }

 private:
  std::int64_t modes() const { return weight_.value.size(0); }
  std::int64_t inputs() const { return weight_.value.size(1); }
  std::int64_t outputs() const { return weight_.value.size(3); }
  static float* at_mode(const at::Tensor& all, std::int64_t k) {
    return all.data_ptr<float>() + k * all.stride(0);
  }

  // [modes, samples, parts, in]
  at::Tensor spectrum_of(const at::Tensor& x) const {
    at::Tensor y = x;
    for (const SpectralStep& step : plan_.forward) y = applied(step, y);
    return y.view({x.size(0), inputs(), modes(), 2}).permute({2, 0, 3, 1}).contiguous();
  }

  at::Tensor mixed_back(const at::Tensor& spectrum) const {
    const std::int64_t samples = spectrum.size(1);
    const at::Tensor products = at::empty({modes(), samples, 2, 2, outputs()}, spectrum.options());
    at::parallel_for(0, modes(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        multiply({2 * samples, 2 * outputs(), inputs()}, {}, at_mode(spectrum, k), at_mode(weight_.value, k),
                 at_mode(products, k));
      }
    });
    const at::Tensor of_real = products.select(2, 0);
    const at::Tensor of_imaginary = products.select(2, 1);
    const at::Tensor real = of_real.select(2, 0).sub(of_imaginary.select(2, 1));
    const at::Tensor imaginary = of_real.select(2, 1).add(of_imaginary.select(2, 0));
    at::Tensor y = at::stack({real, imaginary}, -1).permute({1, 2, 0, 3}).contiguous();
    for (const SpectralStep& step : plan_.inverse) y = applied(step, y);
    return y.view({samples, outputs(), grid_[0], grid_[1], grid_[2]});
  }

  std::array<std::int64_t, 3> grid_;
  SpectralPlan plan_;
  ParameterTensors weight_;
  at::Tensor spectrum_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_spectral_block(const Layer& layer, const LayerTensors& tensors) {
  return std::make_unique<SpectralBlock>(layer, tensors);
}

}  // namespace wflow::trainer
