// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/onednn_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "trainer/model/distribution.h"
#include "trainer/model/network.h"

namespace wflow::trainer {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& cpu_stream() {
  static dnnl::stream stream(cpu_engine());
  return stream;
}

memory wrap(const memory::desc& desc, const float* data) {
  return memory(desc, cpu_engine(), const_cast<float*>(data));  // oneDNN has no constant memory objects
}

memory::dims spatial(const std::array<std::int64_t, 3>& values, bool flat) {
  return {values.begin() + (flat ? 1 : 0), values.end()};
}

memory::dims dims_of(std::int64_t samples, const TensorShape& shape, bool flat) {
  memory::dims dims = {samples, shape.channels};
  for (const std::int64_t n : spatial(shape.extent, flat)) dims.push_back(n);
  return dims;
}

// oneDNN counts the cells between two cells of a window.
memory::dims gaps(const std::array<std::int64_t, 3>& dilation, bool flat) {
  memory::dims dims = spatial(dilation, flat);
  for (std::int64_t& n : dims) --n;
  return dims;
}

memory::desc described(const memory::dims& dims, Tag tag, memory::data_type type = memory::data_type::f32) {
  return {dims, type, tag};
}

Tag plain_tag(bool flat) {
  return flat ? Tag::abcd : Tag::abcde;
}

Tag blocked_tag(int block, bool flat) {
  if (block == 16) return flat ? Tag::aBcd16b : Tag::aBcde16b;
  return flat ? Tag::aBcd8b : Tag::aBcde8b;
}

// True for hand-tuned kernels; "ref..." and "x64:gemm:jit" (plain layouts only) are others.
bool is_fast(std::string_view name) {
  return (name.starts_with("jit") || name.starts_with("brg")) && name.find("gemm") == std::string_view::npos;
}

bool is_matrix_product(std::string_view name) {
  return name.find("gemm:jit") != std::string_view::npos;
}

// The same values in another order or type; `from` itself if it already has both.
memory in_order(const memory::desc& desc, const float* from, const memory::desc& wanted) {
  memory given = wrap(desc, from);
  if (desc == wanted) return given;
  memory ordered(wanted, cpu_engine());
  dnnl::reorder(given, ordered).execute(cpu_stream(), given, ordered);
  return ordered;
}

// A transposed convolution is the gradient of the input of the convolution that maps its output to its input.
// The weights have the same order.
Layer mirrored(Layer layer) {
  std::swap(layer.input, layer.output);
  return layer;
}

// oneDNN 3 describes a primitive by one object, oneDNN 2 by two. A gradient also takes the description of the
// forward pass.
template <typename Primitive, typename... Words>
typename Primitive::primitive_desc description_of(const Words&... words) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Primitive::primitive_desc(cpu_engine(), words...);
#else
  return typename Primitive::primitive_desc(typename Primitive::desc(words...), cpu_engine());
#endif
}
template <typename Primitive, typename... Words>
typename Primitive::primitive_desc description_of_gradient(
    const dnnl::convolution_forward::primitive_desc& forward, const Words&... words) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Primitive::primitive_desc(cpu_engine(), words..., forward);
#else
  return typename Primitive::primitive_desc(typename Primitive::desc(words...), cpu_engine(), forward);
#endif
}

}  // namespace

struct BlockedReorder::Plans {
  struct Plan {
    memory::desc plain;
    memory::desc blocked;
    dnnl::reorder to_blocked;
    dnnl::reorder to_plain;
  };

  const Plan& plan(std::int64_t samples) {
    const auto known = plans.find(samples);
    if (known != plans.end()) return known->second;
    Plan plan;
    const bool flat = shape.extent[0] == 1;
    const memory::dims dims = dims_of(samples, shape, flat);
    plan.plain = described(dims, plain_tag(flat));
    plan.blocked = described(dims, blocked_tag(block, flat));
    using Description = dnnl::reorder::primitive_desc;
    plan.to_blocked = dnnl::reorder(Description(cpu_engine(), plan.plain, cpu_engine(), plan.blocked));
    plan.to_plain = dnnl::reorder(Description(cpu_engine(), plan.blocked, cpu_engine(), plan.plain));
    return plans.emplace(samples, plan).first->second;
  }

  TensorShape shape;
  int block = 16;
  std::map<std::int64_t, Plan> plans;  // by the number of samples
};

BlockedReorder::BlockedReorder(const TensorShape& shape, int block)
    : plans_(std::make_unique<Plans>(Plans{shape, block, {}})) {}
BlockedReorder::~BlockedReorder() = default;

std::int64_t BlockedReorder::blocked_count() const {
  const std::int64_t block = plans_->block;
  return (plans_->shape.channels + block - 1) / block * block * plans_->shape.voxels();
}

void BlockedReorder::to_blocked(std::int64_t samples, const float* plain, float* blocked) {
  const Plans::Plan& plan = plans_->plan(samples);
  memory from = wrap(plan.plain, plain);
  memory to = wrap(plan.blocked, blocked);
  plan.to_blocked.execute(cpu_stream(), from, to);
  cpu_stream().wait();
}

void BlockedReorder::to_plain(std::int64_t samples, const float* blocked, float* plain) {
  const Plans::Plan& plan = plans_->plan(samples);
  memory from = wrap(plan.blocked, blocked);
  memory to = wrap(plan.plain, plain);
  plan.to_plain.execute(cpu_stream(), from, to);
  cpu_stream().wait();
}

struct OnednnConvolution::Plans {
  using Forward = dnnl::convolution_forward;
  using InputGradient = dnnl::convolution_backward_data;
  using WeightGradient = dnnl::convolution_backward_weights;

  struct Descriptions {
    Forward::primitive_desc forward;
    std::optional<InputGradient::primitive_desc> input_gradient;
    std::optional<WeightGradient::primitive_desc> weight_gradient;
  };
  // The kernels for one number of samples, with weights in the kernels' orders.
  struct Plan {
    Descriptions descriptions;
    Forward forward;
    InputGradient input_gradient;
    WeightGradient weight_gradient;
    dnnl::reorder forward_weights;
    dnnl::reorder backward_weights;
    dnnl::reorder gradient_to_plain;
    memory forward_memory;
    memory backward_memory;
    memory gradient_memory;
  };

  memory::dims weight_dims() const {
    const std::int64_t groups = layer.groups;
    memory::dims dims = {layer.output.channels / groups, layer.input.channels / groups};
    for (const std::int64_t n : spatial(layer.kernel, flat)) dims.push_back(n);
    if (groups > 1) dims.insert(dims.begin(), groups);
    return dims;
  }
  memory::desc plain_weights() const {
    if (layer.groups == 1) return described(weight_dims(), plain_tag(flat));
    return described(weight_dims(), flat ? Tag::abcde : Tag::abcdef);
  }
  memory::dims input_dims(std::int64_t samples) const { return dims_of(samples, layer.input, flat); }
  memory::dims output_dims(std::int64_t samples) const { return dims_of(samples, layer.output, flat); }
  // Fields as callers pass them, in 32 bits.
  memory::desc given_input(std::int64_t samples) const { return described(input_dims(samples), input_tag); }
  memory::desc given_output(std::int64_t samples) const {
    return described(output_dims(samples), blocked_tag(block, flat));
  }

  // The type of the factors. The few channels of a first layer stay in full precision.
  memory::data_type factor_type(Tag source) const {
    const bool rounds = wanted.precision == Precision::bf16 && source != plain_tag(flat);
    return rounds ? memory::data_type::bf16 : memory::data_type::f32;
  }
  std::optional<Descriptions> describe(std::int64_t samples, Tag source) const;
  std::optional<WeightGradient::primitive_desc> describe_weight_gradient(
      std::int64_t samples, Tag source, const memory::desc& x, const memory::desc& y,
      const Forward::primitive_desc& forward) const;
  bool choose_layouts();
  bool has_kernels(int candidate, std::int64_t input_channels);
  const Plan& plan(std::int64_t samples);
  bool is_widened() const { return layer.input.channels != channels; }
  // Weights of an output channel, for so many input channels.
  std::int64_t weights_of(std::int64_t input_channels) const {
    return input_channels * layer.kernel[0] * layer.kernel[1] * layer.kernel[2];
  }
  void copy_weights(const float* from, std::int64_t from_channels, float* to, std::int64_t to_channels) const;
  float* wide_weights();
  const float* widened(const float* weights);

  void run_forward(std::int64_t samples, const float* x, const float* weights, const float* bias, float* y);
  void run_input_gradient(std::int64_t samples, const float* dy, const float* weights, float* dx);
  void run_weight_gradient(std::int64_t samples, const float* x, const float* dy, float* gradient);

  Layer layer;
  Wanted wanted;
  bool transposed = false;    // `layer` is then the mirrored one
  std::int64_t channels = 0;  // of the input, in the caller's weights; `layer` may have more
  std::vector<float> wide_memory;
  bool flat = false;
  int block = 0;
  Tag input_tag = Tag::any;
  std::vector<std::string> names;
  std::unordered_map<std::int64_t, Plan> plans;  // by the number of samples
};

// No value if a pass has no fast kernel on these layouts.
std::optional<OnednnConvolution::Plans::Descriptions> OnednnConvolution::Plans::describe(std::int64_t samples,
                                                                                         Tag source) const {
  const auto forward_kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::data_type type = factor_type(source);
  const memory::desc x = described(input_dims(samples), source, type);
  const memory::desc y = described(output_dims(samples), blocked_tag(block, flat));
  const memory::desc dx = described(input_dims(samples), source);
  const memory::desc dy = described(output_dims(samples), blocked_tag(block, flat), type);
  const memory::desc weights = described(weight_dims(), Tag::any, type);
  const memory::desc bias = described({layer.output.channels}, Tag::a);
  const memory::dims strides = spatial(layer.stride, flat);
  const memory::dims dilation = gaps(layer.dilation, flat);
  const memory::dims low = spatial(layer.pad_low, flat);
  const memory::dims high = spatial(layer.pad_high, flat);
  try {
    Descriptions found{wanted.bias ? description_of<Forward>(forward_kind, algorithm, x, weights, bias, y,
                                                             strides, dilation, low, high)
                                   : description_of<Forward>(forward_kind, algorithm, x, weights, y, strides,
                                                             dilation, low, high),
                       std::nullopt, std::nullopt};
    if (!is_fast(found.forward.impl_info_str())) return std::nullopt;
    if (wanted.input_gradient) {
      found.input_gradient = description_of_gradient<InputGradient>(found.forward, algorithm, dx, weights, dy,
                                                                    strides, dilation, low, high);
      if (!is_fast(found.input_gradient->impl_info_str())) return std::nullopt;
    }
    if (wanted.weight_gradient) {
      found.weight_gradient = describe_weight_gradient(samples, source, x, dy, found.forward);
      if (!found.weight_gradient) return std::nullopt;
    }
    return found;
  } catch (const dnnl::error&) {
    return std::nullopt;  // "could not create a primitive descriptor": no kernel
  }
}

// AVX2 has none for three dimensions on blocks: x and dy are then reordered to the plain layout for a matrix
// product.
std::optional<OnednnConvolution::Plans::WeightGradient::primitive_desc>
OnednnConvolution::Plans::describe_weight_gradient(std::int64_t samples, Tag source, const memory::desc& x,
                                                   const memory::desc& y,
                                                   const Forward::primitive_desc& forward) const {
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::desc weights = described(weight_dims(), Tag::any);
  const memory::dims strides = spatial(layer.stride, flat);
  const memory::dims dilation = gaps(layer.dilation, flat);
  const memory::dims low = spatial(layer.pad_low, flat);
  const memory::dims high = spatial(layer.pad_high, flat);
  const auto describe_on = [&](const memory::desc& in, const memory::desc& out,
                               const Forward::primitive_desc& hint) {
    return description_of_gradient<WeightGradient>(hint, algorithm, in, weights, out, strides, dilation, low,
                                                   high);
  };
  const auto blocked = describe_on(x, y, forward);
  if (is_fast(blocked.impl_info_str())) return blocked;
  if (factor_type(source) != memory::data_type::f32) return std::nullopt;
  const memory::desc plain_x = described(input_dims(samples), plain_tag(flat));
  const memory::desc plain_y = described(output_dims(samples), plain_tag(flat));
  const auto plain =
      describe_on(plain_x, plain_y,
                  description_of<Forward>(dnnl::prop_kind::forward_training, algorithm, plain_x, weights,
                                          plain_y, strides, dilation, low, high));
  if (!is_matrix_product(plain.impl_info_str())) return std::nullopt;
  return plain;
}

// Takes a plain input if that has kernels.
bool OnednnConvolution::Plans::has_kernels(int candidate, std::int64_t input_channels) {
  block = candidate;
  layer.input.channels = input_channels;
  const bool narrow = !transposed && input_channels < block;
  for (const Tag source : {narrow ? plain_tag(flat) : Tag::undef, blocked_tag(block, flat)}) {
    if (source == Tag::undef) continue;
    input_tag = source;
    const std::optional<Descriptions> first = describe(1, source);
    if (!first) continue;
    bool all = true;
    for (const std::int64_t samples : {2, 3, 4, 8, 16, 32}) all = all && describe(samples, source);
    if (!all) continue;
    names = {first->forward.impl_info_str()};
    if (first->input_gradient) names.emplace_back(first->input_gradient->impl_info_str());
    if (transposed) std::swap(names[0], names[1]);
    if (first->weight_gradient) names.emplace_back(first->weight_gradient->impl_info_str());
    return true;
  }
  return false;
}

// The largest block with kernels. Where oneDNN has none for so few input channels, those that only fill the
// last block count as channels whose weights are 0: for as few blocks as possible, then for the smaller ones.
bool OnednnConvolution::Plans::choose_layouts() {
  if (has_kernels(16, channels) || has_kernels(8, channels)) return true;
  if (layer.groups > 1) return false;
  const auto blocks_of = [&](int size) { return (channels + size - 1) / size; };
  const bool small_first = blocks_of(8) == blocks_of(16);
  for (const int size : {small_first ? 8 : 16, small_first ? 16 : 8}) {
    if (channels % size != 0 && has_kernels(size, blocks_of(size) * size)) return true;
  }
  return false;
}

// Copies the weights of the input channels that the caller's layer has.
void OnednnConvolution::Plans::copy_weights(const float* from, std::int64_t from_channels, float* to,
                                            std::int64_t to_channels) const {
  for (std::int64_t out = 0; out < layer.output.channels; ++out)
    std::copy_n(from + out * weights_of(from_channels), weights_of(channels),
                to + out * weights_of(to_channels));
}

// Memory for the weights of all channels of `layer`, filled with zeros.
float* OnednnConvolution::Plans::wide_weights() {
  wide_memory.assign(static_cast<std::size_t>(layer.output.channels * weights_of(layer.input.channels)),
                     0.0F);
  return wide_memory.data();
}

// The weights with zeros for the channels that the caller's layer lacks.
const float* OnednnConvolution::Plans::widened(const float* weights) {
  if (!is_widened()) return weights;
  float* wide = wide_weights();
  copy_weights(weights, channels, wide, layer.input.channels);
  return wide;
}

const OnednnConvolution::Plans::Plan& OnednnConvolution::Plans::plan(std::int64_t samples) {
  const auto known = plans.find(samples);
  if (known != plans.end()) return known->second;
  std::optional<Descriptions> found = describe(samples, input_tag);
  if (!found) {
    throw Error(ExitCode::spec,
                fmt::format("oneDNN has no kernel for {} with {} samples at once; use 'backend: torch'",
                            layer.name, samples));
  }
  Plan plan{*found, Forward(found->forward), {}, {}, {}, {}, {}, {}, {}, {}};
  using Description = dnnl::reorder::primitive_desc;
  const dnnl::engine& engine = cpu_engine();
  const memory::desc plain = plain_weights();
  plan.forward_weights = dnnl::reorder(Description(engine, plain, engine, found->forward.weights_desc()));
  plan.forward_memory = memory(found->forward.weights_desc(), engine);
  if (found->input_gradient) {
    const memory::desc weights = found->input_gradient->weights_desc();
    plan.input_gradient = InputGradient(*found->input_gradient);
    plan.backward_weights = dnnl::reorder(Description(engine, plain, engine, weights));
    plan.backward_memory = memory(weights, engine);
  }
  if (found->weight_gradient) {
    const memory::desc weights = found->weight_gradient->diff_weights_desc();
    plan.weight_gradient = WeightGradient(*found->weight_gradient);
    plan.gradient_to_plain = dnnl::reorder(Description(engine, weights, engine, plain));
    plan.gradient_memory = memory(weights, engine);
  }
  return plans.emplace(samples, std::move(plan)).first->second;
}

OnednnConvolution::OnednnConvolution(std::unique_ptr<Plans> plans) : plans_(std::move(plans)) {}
OnednnConvolution::~OnednnConvolution() = default;

std::unique_ptr<OnednnConvolution> OnednnConvolution::make(const Layer& layer, const Wanted& wanted) {
  auto plans = std::make_unique<Plans>();
  plans->transposed = layer.kind == LayerKind::transposed_convolution;
  plans->layer = plans->transposed ? mirrored(layer) : layer;
  plans->channels = plans->layer.input.channels;
  plans->wanted = wanted;
  if (plans->transposed) plans->wanted.input_gradient = true;
  plans->flat = is_flat(plans->layer);
  if (!plans->choose_layouts()) {
    if (wanted.precision == Precision::full) return nullptr;
    plans->wanted.precision = Precision::full;
    if (!plans->choose_layouts()) return nullptr;
  }
  return std::unique_ptr<OnednnConvolution>(new OnednnConvolution(std::move(plans)));
}

int OnednnConvolution::block() const {
  return plans_->block;
}

bool OnednnConvolution::plain_input() const {
  return plans_->input_tag == plain_tag(plans_->flat);
}

std::vector<std::string> OnednnConvolution::kernels() const {
  return plans_->names;
}

void OnednnConvolution::forward(std::int64_t samples, const float* x, const float* weights, const float* bias,
                                float* y) {
  if (plans_->transposed) return plans_->run_input_gradient(samples, x, weights, y);
  plans_->run_forward(samples, x, weights, bias, y);
}

void OnednnConvolution::input_gradient(std::int64_t samples, const float* dy, const float* weights,
                                       float* dx) {
  if (plans_->transposed) return plans_->run_forward(samples, dy, weights, nullptr, dx);
  plans_->run_input_gradient(samples, dy, weights, dx);
}

void OnednnConvolution::weight_gradient(std::int64_t samples, const float* x, const float* dy,
                                        float* gradient) {
  if (plans_->transposed) return plans_->run_weight_gradient(samples, dy, x, gradient);
  plans_->run_weight_gradient(samples, x, dy, gradient);
}

void OnednnConvolution::Plans::run_forward(std::int64_t samples, const float* x, const float* weights,
                                           const float* bias, float* y) {
  const Plan& now = plan(samples);
  const auto& description = now.descriptions.forward;
  memory from = wrap(plain_weights(), widened(weights));
  memory ordered = now.forward_memory;
  now.forward_weights.execute(cpu_stream(), from, ordered);
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, in_order(given_input(samples), x, description.src_desc())},
      {DNNL_ARG_WEIGHTS, ordered},
      {DNNL_ARG_DST, wrap(description.dst_desc(), y)}};
  if (wanted.bias) arguments.emplace(DNNL_ARG_BIAS, wrap(description.bias_desc(), bias));
  now.forward.execute(cpu_stream(), arguments);
  cpu_stream().wait();
}

void OnednnConvolution::Plans::run_input_gradient(std::int64_t samples, const float* dy, const float* weights,
                                                  float* dx) {
  const Plan& now = plan(samples);
  const auto& description = *now.descriptions.input_gradient;
  memory from = wrap(plain_weights(), widened(weights));
  memory ordered = now.backward_memory;
  now.backward_weights.execute(cpu_stream(), from, ordered);
  now.input_gradient.execute(
      cpu_stream(), {{DNNL_ARG_DIFF_DST, in_order(given_output(samples), dy, description.diff_dst_desc())},
                     {DNNL_ARG_WEIGHTS, ordered},
                     {DNNL_ARG_DIFF_SRC, wrap(description.diff_src_desc(), dx)}});
  cpu_stream().wait();
}

void OnednnConvolution::Plans::run_weight_gradient(std::int64_t samples, const float* x, const float* dy,
                                                   float* gradient) {
  const Plan& now = plan(samples);
  const auto& description = *now.descriptions.weight_gradient;
  memory found = now.gradient_memory;
  now.weight_gradient.execute(
      cpu_stream(), {{DNNL_ARG_SRC, in_order(given_input(samples), x, description.src_desc())},
                     {DNNL_ARG_DIFF_DST, in_order(given_output(samples), dy, description.diff_dst_desc())},
                     {DNNL_ARG_DIFF_WEIGHTS, found}});
  float* found_plain = is_widened() ? wide_weights() : gradient;
  memory to = wrap(plain_weights(), found_plain);
  now.gradient_to_plain.execute(cpu_stream(), found, to);
  cpu_stream().wait();
  if (is_widened()) copy_weights(found_plain, layer.input.channels, gradient, channels);
}

std::string onednn_version() {
  const dnnl::version_t* version = dnnl::version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

bool onednn_has_bf16() {
  const std::string set = onednn_instruction_set();
  return set == "AVX512_CORE_BF16" || set == "AVX512_CORE_AMX";
}

std::string onednn_instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return "AVX512_CORE";
  }
}

}  // namespace wflow::trainer
