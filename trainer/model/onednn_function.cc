// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/onednn_function.h"

#include <dnnl.h>

#include <dnnl.hpp>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

const dnnl::engine& function_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

using FunctionAlgorithm = std::pair<dnnl::algorithm, float>;  // and its parameter

std::optional<FunctionAlgorithm> algorithm_of(LayerKind kind, double parameter) {
  switch (kind) {
    case LayerKind::relu:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_relu, 0};
    case LayerKind::leaky_relu:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_relu, static_cast<float>(parameter)};
    case LayerKind::elu:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_elu, 1};
    case LayerKind::gelu:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_gelu_erf, 0};
    case LayerKind::silu:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_swish, 1};
    case LayerKind::sigmoid:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_logistic, 0};
    case LayerKind::tanh:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_tanh, 0};
    case LayerKind::softplus:
      return FunctionAlgorithm{dnnl::algorithm::eltwise_soft_relu, 1};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool is_function(LayerKind kind) {
  return algorithm_of(kind, 0).has_value();
}

struct OnednnFunction::Kernels {
  struct OfCount {
    dnnl::memory::desc values;
    dnnl::primitive apply, apply_slope;
  };
  Kernels(dnnl::algorithm algorithm, float alpha) : algorithm(algorithm), alpha(alpha) {}

  dnnl::algorithm algorithm;
  float alpha;
  dnnl::stream stream = dnnl::stream(function_engine());
  std::map<std::int64_t, OfCount> of_count;

  const OfCount& for_count(std::int64_t count) {
    const auto [at, is_new] = of_count.try_emplace(count);
    if (is_new) at->second = make(count);
    return at->second;
  }
  OfCount make(std::int64_t count) const {
    using dnnl::eltwise_backward, dnnl::eltwise_forward;
    const dnnl::memory::desc values({count}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
    const auto kind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
    const eltwise_forward::primitive_desc apply(function_engine(), kind, algorithm, values, values, alpha);
    const eltwise_backward::primitive_desc slope(function_engine(), algorithm, values, values, values, alpha,
                                                 0, apply);
#else
    const eltwise_forward::primitive_desc apply(eltwise_forward::desc(kind, algorithm, values, alpha),
                                                function_engine());
    const eltwise_backward::primitive_desc slope(eltwise_backward::desc(algorithm, values, values, alpha),
                                                 function_engine(), apply);
#endif
    return {values, eltwise_forward(apply), eltwise_backward(slope)};
  }
};

OnednnFunction::OnednnFunction(LayerKind kind, double parameter) {
  const auto [algorithm, alpha] = algorithm_of(kind, parameter).value();
  kernels_ = std::make_unique<Kernels>(algorithm, alpha);
}
OnednnFunction::~OnednnFunction() = default;

void OnednnFunction::apply(std::int64_t count, const float* x, float* y) {
  const Kernels::OfCount& kernels = kernels_->for_count(count);
  const auto memory = [&](const float* data) {
    return dnnl::memory(kernels.values, function_engine(),
                        const_cast<float*>(data));  // it has no constant ones
  };
  kernels.apply.execute(kernels_->stream, {{DNNL_ARG_SRC, memory(x)}, {DNNL_ARG_DST, memory(y)}});
  kernels_->stream.wait();
}

void OnednnFunction::apply_slope(std::int64_t count, const float* x, const float* dy, float* dx) {
  const Kernels::OfCount& kernels = kernels_->for_count(count);
  const auto memory = [&](const float* data) {
    return dnnl::memory(kernels.values, function_engine(), const_cast<float*>(data));
  };
  kernels.apply_slope.execute(
      kernels_->stream,
      {{DNNL_ARG_SRC, memory(x)}, {DNNL_ARG_DIFF_DST, memory(dy)}, {DNNL_ARG_DIFF_SRC, memory(dx)}});
  kernels_->stream.wait();
}

void multiply(const ProductSize& size, const Product& how, const float* a, const float* b, float* result) {
  const std::int64_t a_row = how.a_by_column ? size.rows : size.inner;
  const std::int64_t b_row = how.b_by_column ? size.inner : size.columns;
  const dnnl_status_t status =
      dnnl_sgemm(how.a_by_column ? 'T' : 'N', how.b_by_column ? 'T' : 'N', size.rows, size.columns,
                 size.inner, 1.0F, a, a_row, b, b_row, how.add ? 1.0F : 0.0F, result, size.columns);
  WFLOW_CHECK(status == dnnl_success);
}

}  // namespace wflow::trainer
