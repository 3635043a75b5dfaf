// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/onednn_block.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "trainer/model/blocked_kernels.h"
#include "trainer/model/distribution.h"
#include "trainer/model/onednn_convolution.h"

namespace wflow::trainer {
namespace {

BoxSize cells_of(const TensorShape& shape) {
  return {shape.extent[0], shape.extent[1], shape.extent[2]};
}

constexpr std::int64_t kTaps = 27;

// The fields of one sample where DirectKernels::pad puts them for a box of the output's cells, with zeros
// around: `padded` has zeros already.
void pad_to_output(const Layer& layer, const float* x, float* padded) {
  const BoxSize box = cells_of(layer.output);
  const auto& in = layer.input.extent;
  // There is a border on each side of all three axes.
  const auto& low = layer.pad_low;
  const std::int64_t above = low[0] + (layer.kernel[0] == 1 ? 1 : 0);
  for (std::int64_t c = 0; c < layer.input.channels; ++c, padded += padded_voxels(box)) {
    for (std::int64_t d = 0; d < in[0]; ++d) {
      for (std::int64_t h = 0; h < in[1]; ++h, x += in[2]) {
        const std::int64_t row = (d + above) * (box.h + 2) + h + low[1];
        std::copy_n(x, in[2], padded + row * padded_row(box) + low[2]);
      }
    }
  }
}

class Block final : public OnednnBlock {
 public:
  // `convolution`: null for layers without one, which work on blocks of `block` channels.
  Block(std::span<const Layer> layers, std::span<const LayerTensors> tensors,
        std::unique_ptr<OnednnConvolution> convolution, int block, bool own_weight_gradient,
        std::shared_ptr<BlockScratch> scratch, bool recomputes, BlockPart part);

  void store_in(const BoxSize& frame, const BoxSize& first) override;
  void compute_first(const OutputEdges& edges, std::function<void(const at::Tensor&)> ready) override {
    edges_ = edges;
    ready_ = std::move(ready);
  }
  at::Tensor forward(const at::Tensor& x, const StepKey& key) override;
  at::Tensor predict(const at::Tensor& x) override;
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override;

  int input_block() const override { return reads_plain() ? 0 : static_cast<int>(block_); }
  int output_block() const override { return static_cast<int>(block_); }
  std::vector<std::string> kernels() const override {
    return convolution_ != nullptr ? convolution_->kernels() : std::vector<std::string>{};
  }

 private:
  // Moments over a channel of a sample, or over all cells of a norm.
  struct Moments {
    double mean = 0;
    double variance = 0;
  };

  // The hand-written weight gradient reads plain fields.
  bool reads_plain() const {
    return convolution_ != nullptr && (convolution_->plain_input() || own_weight_gradient_);
  }
  std::int64_t samples_of(const at::Tensor& x) const {
    return x.numel() / (reads_plain() ? layer_.input.count() : input_order_.blocked_count());
  }
  at::Tensor input_for_kernels(const at::Tensor& x, std::int64_t samples);

  bool in_place() const { return convolution_ != nullptr && norm_ == nullptr && !pools_ && !framed_; }
  // oneDNN adds the bias of a convolution, not that of a transposed one.
  bool adds_bias() const {
    return layer_.kind == LayerKind::transposed_convolution && tensors_.parameters.size() > 1;
  }
  bool needs_output() const { return norm_ != nullptr || shape_.kind == BlockedPool::average; }
  bool has_own_y() const { return convolution_ != nullptr && needs_output() && !in_place(); }
  // Releases what a forward pass kept, except the memory of y, which the next pass reuses.
  void drop_pass() {
    x_.reset();
    z_.reset();
    if (!has_own_y() || recomputes_) y_.reset();
  }
  float* y_of(float* y, std::int64_t sample, std::int64_t c) const {
    return y + (sample * blocks_ + c) * shape_.in.voxels() * block_;
  }
  std::int64_t z_at(std::int64_t sample, std::int64_t c) const {
    return (sample * blocks_ + c) * shape_.frame.voxels() * block_ + z_first_;
  }
  std::int64_t factor_at(std::int64_t sample, std::int64_t c) const {
    return (by_sample_ ? sample * blocks_ + c : c) * block_;
  }

  at::Tensor run(const at::Tensor& x, std::int64_t samples, bool training);
  void convolve(const at::Tensor& x, std::int64_t samples, float* y);
  // Cells of the output: planes and rows.
  struct Slab {
    std::int64_t first_plane = 0;
    std::int64_t last_plane = 0;
    std::int64_t first_row = 0;
    std::int64_t last_row = 0;
  };
  void activate(float* y, std::int64_t samples, float* z, unsigned char* places, const Slab& slab);
  void activate(float* y, std::int64_t samples, const at::Tensor& z, unsigned char* places);
  std::size_t group_of(std::int64_t sample, std::int64_t channel) const;
  std::size_t group_count(std::int64_t samples) const;
  std::vector<Moments> channel_moments(float* y, std::int64_t samples) const;
  void measure(float* y, std::int64_t samples);
  void keep_statistics(std::int64_t samples);
  void use_running_statistics();
  void set_factors(std::int64_t samples);
  // The sums of both numbers over all ranks that share the samples.
  void add_over_ranks(std::vector<Moments>& sums) const;
  void gradient_of_norm(const float* dz, std::int64_t samples);
  void find_weight_gradient(const float* dy);
  void gradient_of_fields(const float* dz, std::int64_t samples, float* dy);
  void own_weight_gradient(const float* dy, std::int64_t samples);
  BlockedPass pass_of(const float* dz, std::int64_t sample, std::int64_t c);
  template <class Call>
  void for_planes(std::int64_t samples, std::int64_t planes, const Call& call) const;
  std::vector<double> added_up(const std::vector<double>& parts, std::int64_t samples,
                               std::int64_t planes) const;
  const float* parameter(const LayerTensors& tensors, std::size_t i) const {
    return tensors.parameters[i].value.data_ptr<float>();
  }

  const DirectKernels& direct_ = direct_kernels();
  const BlockedKernels& kernels_ = blocked_kernels();
  Layer layer_;          // the first one
  TensorShape y_shape_;  // output of the convolution
  std::unique_ptr<OnednnConvolution> convolution_;
  bool own_weight_gradient_;
  std::shared_ptr<BlockScratch> scratch_;
  bool recomputes_;
  std::int64_t block_;   // channels per block
  std::int64_t blocks_;  // blocks in the output
  BlockedReorder input_order_;
  BlockedShape shape_;
  bool pools_ = false;
  bool framed_ = false;       // the output is stored with cells around it
  std::int64_t z_first_ = 0;  // floats before the first cell in the frame
  float slope_ = 1;
  LayerTensors tensors_;
  LayerTensors norm_tensors_;
  std::unique_ptr<Layer> norm_;
  bool by_sample_ = false;  // group norm: every sample has its own mean and variance
  BlockPart part_;
  OutputEdges edges_;  // compute_first()
  std::function<void(const at::Tensor&)> ready_;
  std::int64_t norm_voxels_;  // of a field, on all ranks together

  // Per channel, or per sample and channel; channels that only fill the last block have 0.
  std::vector<float> factors_;
  std::vector<float> constants_;
  std::vector<float> means_;
  std::vector<float> offsets_;
  std::vector<float> linears_;
  std::vector<Moments> groups_;
  std::vector<float> padded_;
  std::vector<float> weight_sums_;

  // Arrays of the current step.
  std::int64_t samples_ = 0;
  at::Tensor x_;
  at::Tensor y_;
  at::Tensor z_;
  std::vector<unsigned char> places_;
};

Block::Block(std::span<const Layer> layers, std::span<const LayerTensors> tensors,
             std::unique_ptr<OnednnConvolution> convolution, int block, bool own_weight_gradient,
             std::shared_ptr<BlockScratch> scratch, bool recomputes, BlockPart part)
    : layer_(layers.front()),
      y_shape_(convolution != nullptr ? layer_.output : layer_.input),
      convolution_(std::move(convolution)),
      own_weight_gradient_(own_weight_gradient),
      scratch_(std::move(scratch)),
      recomputes_(recomputes),
      block_(block),
      blocks_((y_shape_.channels + block_ - 1) / block_),
      input_order_(layer_.input, block),
      part_(std::move(part)),
      norm_voxels_(part_.add ? part_.norm_voxels : y_shape_.voxels()) {
  if (convolution_ != nullptr) tensors_ = tensors.front();
  shape_.in = cells_of(y_shape_);
  shape_.out = shape_.frame = cells_of(layers.back().output);
  for (std::size_t i = convolution_ != nullptr ? 1 : 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    if (layer.kind == LayerKind::relu) slope_ = 0;
    if (layer.kind == LayerKind::leaky_relu) slope_ = static_cast<float>(layer.value);
    if (layer.kind == LayerKind::batch_norm || layer.kind == LayerKind::group_norm) {
      norm_ = std::make_unique<Layer>(layer);
      norm_tensors_ = tensors[i];
      by_sample_ = layer.kind == LayerKind::group_norm;
    }
    if (layer.kind == LayerKind::average_pool || layer.kind == LayerKind::max_pool) {
      shape_.pool = layer.kernel;
      pools_ = true;
      if (layer.kind == LayerKind::max_pool) shape_.kind = BlockedPool::maximum;
    }
  }
  set_factors(1);
}

void Block::store_in(const BoxSize& frame, const BoxSize& first) {
  shape_.frame = frame;
  z_first_ = ((first.d * frame.h + first.h) * frame.w + first.w) * block_;
  framed_ = true;
  // The maximum of one cell is the cell. Its gradient follows from the sign of the output alone, so that the
  // convolution's own output is not kept.
  if (convolution_ != nullptr && norm_ == nullptr && !pools_) shape_.kind = BlockedPool::maximum;
}

template <class Call>
void Block::for_planes(std::int64_t samples, std::int64_t planes, const Call& call) const {
  at::parallel_for(0, samples * blocks_ * planes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      call(i / planes / blocks_, i / planes % blocks_, i % planes, i);
  });
}

// Adds the planes' sums in order of the planes, whatever thread computed them: [samples][blocks][B].
std::vector<double> Block::added_up(const std::vector<double>& parts, std::int64_t samples,
                                    std::int64_t planes) const {
  std::vector<double> sums(static_cast<std::size_t>(samples * blocks_ * block_));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto block = static_cast<std::size_t>(block_);
    sums[i / block / static_cast<std::size_t>(planes) * block + i % block] += parts[i];
  }
  return sums;
}

at::Tensor floats(std::int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kFloat));
}

at::Tensor Block::input_for_kernels(const at::Tensor& x, std::int64_t samples) {
  if (!own_weight_gradient_ || convolution_->plain_input()) return x.contiguous();
  at::Tensor ordered = floats(samples * input_order_.blocked_count());
  input_order_.to_blocked(samples, x.contiguous().data_ptr<float>(), ordered.data_ptr<float>());
  return ordered;
}

std::size_t Block::group_of(std::int64_t sample, std::int64_t channel) const {
  if (!by_sample_) return static_cast<std::size_t>(channel);
  return static_cast<std::size_t>(sample * norm_->groups + channel / (y_shape_.channels / norm_->groups));
}

std::size_t Block::group_count(std::int64_t samples) const {
  return static_cast<std::size_t>(by_sample_ ? samples * norm_->groups : y_shape_.channels);
}

// Moments [samples][channels], each over its cells.
std::vector<Block::Moments> Block::channel_moments(float* y, std::int64_t samples) const {
  const std::int64_t planes = shape_.in.d;
  const std::int64_t cells = shape_.in.h * shape_.in.w;
  std::vector<double> sums(static_cast<std::size_t>(samples * blocks_ * planes * block_));
  std::vector<double> squares(sums.size());
  for_planes(samples, planes, [&](std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t i) {
    // Relative to the channel's first value: a difference of large squares would lose digits.
    float* own = y_of(y, n, c);
    kernels_.moments(block_, own + d * cells * block_, cells, own,
                     &sums[static_cast<std::size_t>(i * block_)],
                     &squares[static_cast<std::size_t>(i * block_)]);
  });
  sums = added_up(sums, samples, planes);
  squares = added_up(squares, samples, planes);
  const std::int64_t channels = y_shape_.channels;
  const auto count = static_cast<double>(shape_.in.voxels());
  std::vector<Moments> moments;
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<std::size_t>(n * blocks_ * block_ + c);
      const double mean = sums[at] / count;
      const double first = static_cast<double>(y_of(y, n, c / block_)[c % block_]);
      moments.push_back({mean + first, std::max(0.0, squares[at] / count - mean * mean)});
    }
  }
  return moments;
}

void Block::measure(float* y, std::int64_t samples) {
  const std::vector<Moments> channels = channel_moments(y, samples);
  const std::int64_t width = y_shape_.channels;
  const auto at = [&](std::int64_t n, std::int64_t c) { return static_cast<std::size_t>(n * width + c); };
  groups_.assign(group_count(samples), {});
  const double part = static_cast<double>(shape_.in.voxels()) / static_cast<double>(norm_voxels_);
  const double share = part * static_cast<double>(groups_.size()) / static_cast<double>(channels.size());
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t c = 0; c < width; ++c) groups_[group_of(n, c)].mean += share * channels[at(n, c)].mean;
  }
  add_over_ranks(groups_);  // the variances are 0 so far
  std::vector<Moments> variances(groups_.size());
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t c = 0; c < width; ++c) {
      const Moments& group = groups_[group_of(n, c)];
      const double apart = channels[at(n, c)].mean - group.mean;
      variances[group_of(n, c)].variance += share * (channels[at(n, c)].variance + apart * apart);
    }
  }
  add_over_ranks(variances);
  for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].variance = variances[i].variance;
  set_factors(samples);
}

void Block::add_over_ranks(std::vector<Moments>& sums) const {
  if (!part_.add) return;
  std::vector<double> numbers;
  for (const Moments& sum : sums) numbers.insert(numbers.end(), {sum.mean, sum.variance});
  part_.add(numbers);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = {numbers[2 * i], numbers[2 * i + 1]};
}

void Block::keep_statistics(std::int64_t samples) {
  if (norm_ == nullptr || by_sample_) return;
  const auto weight = static_cast<double>(samples);
  const double count = weight * static_cast<double>(norm_voxels_);
  for (std::size_t c = 0; c < groups_.size(); ++c) {
    norm_tensors_.statistics[0].data_ptr<float>()[c] = static_cast<float>(weight * groups_[c].mean);
    norm_tensors_.statistics[1].data_ptr<float>()[c] =
        static_cast<float>(weight * groups_[c].variance * count / std::max(1.0, count - 1));
  }
}

void Block::use_running_statistics() {
  groups_.assign(group_count(1), {});
  for (std::size_t c = 0; c < groups_.size(); ++c) {
    groups_[c] = {static_cast<double>(norm_tensors_.running[0].data_ptr<float>()[c]),
                  static_cast<double>(norm_tensors_.running[1].data_ptr<float>()[c])};
  }
  set_factors(1);
}

void Block::set_factors(std::int64_t samples) {
  const std::int64_t rows = by_sample_ ? samples : 1;
  const auto size = static_cast<std::size_t>(rows * blocks_ * block_);
  factors_.assign(size, 0.0F);
  constants_.assign(size, 0.0F);
  means_.assign(size, 0.0F);
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t c = 0; c < y_shape_.channels; ++c) {
      const auto i = static_cast<std::size_t>(n * blocks_ * block_ + c);
      factors_[i] = 1;
      if (adds_bias()) constants_[i] = parameter(tensors_, 1)[c];
      if (norm_ == nullptr || groups_.empty()) continue;
      const Moments& group = groups_[group_of(n, c)];
      means_[i] = static_cast<float>(group.mean);
      factors_[i] = static_cast<float>(static_cast<double>(parameter(norm_tensors_, 0)[c]) /
                                       std::sqrt(group.variance + kNormEpsilon));
      constants_[i] = parameter(norm_tensors_, 1)[c] - means_[i] * factors_[i];
    }
  }
}

void Block::activate(float* y, std::int64_t samples, float* z, unsigned char* places, const Slab& slab) {
  const std::int64_t planes = slab.last_plane - slab.first_plane;
  if (planes <= 0 || slab.first_row >= slab.last_row) return;
  BlockedShape shape = shape_;
  shape.rows = {slab.first_row, slab.last_row};
  for_planes(samples, planes, [&](std::int64_t n, std::int64_t c, std::int64_t plane, std::int64_t) {
    const std::int64_t d = slab.first_plane + plane;
    const std::int64_t to = z_at(n, c);
    const BlockedActivation how = {&factors_[static_cast<std::size_t>(factor_at(n, c))],
                                   &constants_[static_cast<std::size_t>(factor_at(n, c))], slope_};
    const BlockedPass pass = {y_of(y, n, c), z + to, places == nullptr ? nullptr : places + to};
    kernels_.activate(block_, shape, how, pass, d, d + 1);
  });
}

// With ready_: the edges first, which travel while the cells between them are computed.
void Block::activate(float* y, std::int64_t samples, const at::Tensor& z, unsigned char* places) {
  const BoxSize& out = shape_.out;
  const auto run = [&](const Slab& slab) { activate(y, samples, z.data_ptr<float>(), places, slab); };
  const std::int64_t plane = edges_.planes[0];
  const std::int64_t last_plane = out.d - edges_.planes[1];
  const std::int64_t row = edges_.rows[0];
  const std::int64_t last_row = out.h - edges_.rows[1];
  if (!ready_ || plane >= last_plane || row >= last_row) {
    run({0, out.d, 0, out.h});
    if (ready_) ready_(z);
    return;
  }
  run({0, plane, 0, out.h});
  run({last_plane, out.d, 0, out.h});
  run({plane, last_plane, 0, row});
  run({plane, last_plane, last_row, out.h});
  ready_(z);
  run({plane, last_plane, row, last_row});
}

at::Tensor Block::run(const at::Tensor& x, std::int64_t samples, bool training) {
  const std::int64_t y_count = samples * blocks_ * block_ * shape_.in.voxels();
  at::Tensor z = floats(samples * blocks_ * block_ * shape_.frame.voxels());
  float* y = nullptr;
  if (convolution_ == nullptr) {
    y = x.data_ptr<float>();
    if (training && needs_output()) y_ = x;
  } else if (in_place()) {
    y = z.data_ptr<float>();
  } else if (training && needs_output() && !recomputes_) {
    if (!y_.defined() || y_.numel() != y_count) y_ = floats(y_count);
    y = y_.data_ptr<float>();
  } else if (!training && y_.defined() && y_.numel() >= y_count) {
    y = y_.data_ptr<float>();  // of the last step
  } else {
    y = scratch_->take(y_count);
  }
  if (convolution_ != nullptr) convolve(x, samples, y);
  if (adds_bias()) set_factors(samples);
  if (norm_ != nullptr && (training || by_sample_)) measure(y, samples);
  if (in_place() && slope_ == 1 && !adds_bias()) {
    if (ready_) ready_(z);
    return z;
  }
  const bool places = training && pools_ && shape_.kind == BlockedPool::maximum;
  if (places) places_.resize(static_cast<std::size_t>(z.numel()));
  activate(y, samples, z, places ? places_.data() : nullptr);
  return z;
}

void Block::convolve(const at::Tensor& x, std::int64_t samples, float* y) {
  const bool bias = tensors_.parameters.size() > 1;
  convolution_->forward(samples, x.data_ptr<float>(), parameter(tensors_, 0),
                        bias ? parameter(tensors_, 1) : nullptr, y);
}

at::Tensor Block::forward(const at::Tensor& x, const StepKey&) {
  samples_ = samples_of(x);
  x_ = input_for_kernels(x, samples_);
  z_ = run(x_, samples_, true);
  if (own_weight_gradient_) x_ = x.contiguous();
  if (in_place()) y_ = z_;  // has the same sign
  keep_statistics(samples_);
  return z_;
}

at::Tensor Block::predict(const at::Tensor& x) {
  const std::int64_t samples = samples_of(x);
  drop_pass();  // a forward pass that measured norms has no backward pass
  if (norm_ != nullptr && !by_sample_) use_running_statistics();
  return run(input_for_kernels(x, samples), samples, false);
}

BlockedPass Block::pass_of(const float* dz, std::int64_t sample, std::int64_t c) {
  const std::int64_t at = z_at(sample, c);
  return {needs_output() ? y_of(y_.data_ptr<float>(), sample, c) : nullptr, z_.data_ptr<float>() + at,
          places_.empty() ? nullptr : places_.data() + at, dz + at};
}

// The gradients of the norm's scale and shift, and the constants of dy. Both norms have the same formula,
// over the cells with a common mean and variance.
void Block::gradient_of_norm(const float* dz, std::int64_t samples) {
  const std::int64_t planes = shape_.out.d;
  std::vector<double> sums(static_cast<std::size_t>(samples * blocks_ * planes * block_));
  std::vector<double> products(sums.size());
  for_planes(samples, planes, [&](std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t i) {
    const auto f = static_cast<std::size_t>(factor_at(n, c));
    kernels_.gradient_sums(block_, shape_, {&factors_[f], &constants_[f], slope_}, pass_of(dz, n, c),
                           &means_[f], d, d + 1, &sums[static_cast<std::size_t>(i * block_)],
                           &products[static_cast<std::size_t>(i * block_)]);
  });
  sums = added_up(sums, samples, planes);
  products = added_up(products, samples, planes);
  const std::int64_t channels = y_shape_.channels;
  const float* scale = parameter(norm_tensors_, 0);
  std::vector<double> scale_gradients(static_cast<std::size_t>(channels));
  std::vector<double> shift_gradients(scale_gradients.size());
  std::vector<Moments> means(groups_.size());  // means of g and of g * normalised y
  const double count =
      static_cast<double>(samples * channels * norm_voxels_) / static_cast<double>(groups_.size());
  const auto inverse = [&](std::size_t group) {
    return 1 / std::sqrt(groups_[group].variance + kNormEpsilon);
  };
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<std::size_t>(n * blocks_ * block_ + c);
      const std::size_t group = group_of(n, c);
      const double product = products[at] * inverse(group);
      scale_gradients[static_cast<std::size_t>(c)] += product;
      shift_gradients[static_cast<std::size_t>(c)] += sums[at];
      means[group].mean += static_cast<double>(scale[c]) * sums[at] / count;
      means[group].variance += static_cast<double>(scale[c]) * product / count;
    }
  }
  add_over_ranks(means);
  offsets_.assign(factors_.size(), 0.0F);
  linears_.assign(factors_.size(), 0.0F);
  for (std::int64_t n = 0; n < (by_sample_ ? samples : 1); ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto i = static_cast<std::size_t>(n * blocks_ * block_ + c);
      const std::size_t group = group_of(n, c);
      offsets_[i] = static_cast<float>(inverse(group) * means[group].mean);
      linears_[i] = static_cast<float>(inverse(group) * inverse(group) * means[group].variance);
    }
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto i = static_cast<std::size_t>(c);
    norm_tensors_.parameters[0].gradient.data_ptr<float>()[c] = static_cast<float>(scale_gradients[i]);
    norm_tensors_.parameters[1].gradient.data_ptr<float>()[c] = static_cast<float>(shift_gradients[i]);
  }
}

void Block::gradient_of_fields(const float* dz, std::int64_t samples, float* dy) {
  const std::int64_t planes = shape_.out.d;
  std::vector<double> sums(static_cast<std::size_t>(samples * blocks_ * planes * block_));
  for_planes(samples, planes, [&](std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t i) {
    const auto f = static_cast<std::size_t>(factor_at(n, c));
    BlockedNorm norm;
    if (norm_ != nullptr) norm = {&means_[f], &offsets_[f], &linears_[f]};
    kernels_.gradient(block_, shape_, {&factors_[f], &constants_[f], slope_}, pass_of(dz, n, c),
                      norm_ != nullptr ? &norm : nullptr, d, d + 1, y_of(dy, n, c),
                      &sums[static_cast<std::size_t>(i * block_)]);
  });
  if (tensors_.parameters.size() < 2) return;
  sums = added_up(sums, samples, planes);
  for (std::int64_t c = 0; c < y_shape_.channels; ++c) {
    double sum = 0;
    for (std::int64_t n = 0; n < samples; ++n)
      sum += sums[static_cast<std::size_t>(n * blocks_ * block_ + c)];
    tensors_.parameters[1].gradient.data_ptr<float>()[c] = static_cast<float>(sum);
  }
}

void Block::own_weight_gradient(const float* dy, std::int64_t samples) {
  const std::int64_t in = layer_.input.channels;
  const BoxSize box = cells_of(layer_.output);
  const std::int64_t stride = in * padded_voxels(box);
  const bool is_same = layer_.pad_low == border_of(layer_) && layer_.pad_high == border_of(layer_);
  if (padded_.size() != static_cast<std::size_t>(samples * stride))
    padded_.assign(static_cast<std::size_t>(samples * stride), 0.0F);
  at::parallel_for(0, samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const float* x = x_.data_ptr<float>() + n * layer_.input.count();
      float* to = padded_.data() + n * stride;
      if (is_same) {
        direct_.pad(x, in, box, to);
      } else {
        pad_to_output(layer_, x, to);
      }
    }
  });
  const bool flat = layer_.kernel[0] == 1;
  const std::int64_t planes = samples * box.d;
  const std::int64_t parts = std::min<std::int64_t>(at::get_num_threads(), planes);
  const std::int64_t sums = blocks_ * in * kTaps * block_;
  weight_sums_.assign(static_cast<std::size_t>(parts * sums), 0.0F);
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t last = planes * (part + 1) / parts;
      for (std::int64_t at = planes * part / parts; at < last;) {
        const std::int64_t n = at / box.d;
        const std::int64_t until = std::min(last - n * box.d, box.d);
        kernels_.weight_gradient(block_, padded_.data() + n * stride, in, box, flat,
                                 dy + n * blocks_ * box.voxels() * block_, blocks_, at - n * box.d, until,
                                 weight_sums_.data() + part * sums);
        at = n * box.d + until;
      }
    }
  });
  float* gradient = tensors_.parameters[0].gradient.data_ptr<float>();
  for (std::int64_t o = 0; o < layer_.output.channels; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t k = flat ? 9 : 0; k < (flat ? 18 : kTaps); ++k) {
        double sum = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
          const std::int64_t at = (((o / block_) * in + i) * kTaps + k) * block_ + o % block_;
          sum += static_cast<double>(weight_sums_[static_cast<std::size_t>(part * sums + at)]);
        }
        *gradient++ = static_cast<float>(sum);
      }
    }
  }
}

at::Tensor Block::backward(const at::Tensor& dz, bool wants_input) {
  const std::int64_t y_count = samples_ * blocks_ * block_ * shape_.in.voxels();
  if (has_own_y() && recomputes_) {
    y_ = at::from_blob(scratch_->take(y_count), {y_count}, at::TensorOptions().dtype(at::kFloat));
    convolve(input_for_kernels(x_, samples_), samples_, y_.data_ptr<float>());
  }
  if (norm_ != nullptr) gradient_of_norm(dz.data_ptr<float>(), samples_);
  // The kernels find the sign of the activation's argument: z has it where it stands in the place of y.
  if (in_place()) constants_.assign(constants_.size(), 0.0F);
  at::Tensor dx;
  if (wants_input)
    dx = floats(samples_ * (reads_plain() ? layer_.input.count() : input_order_.blocked_count()));
  // Each cell of y is read before that of dy is written.
  float* dy = has_own_y()                              ? y_.data_ptr<float>()
              : convolution_ == nullptr && wants_input ? dx.data_ptr<float>()
                                                       : scratch_->take(y_count);
  gradient_of_fields(dz.data_ptr<float>(), samples_, dy);
  const auto find_input_gradient = [&] {
    if (wants_input && convolution_ != nullptr)
      convolution_->input_gradient(samples_, dy, parameter(tensors_, 0), dx.data_ptr<float>());
  };
  if (part_.send && wants_input) {
    find_input_gradient();
    part_.send(dx);
  }
  find_weight_gradient(dy);
  drop_pass();
  if (!part_.send) find_input_gradient();
  return dx;
}

void Block::find_weight_gradient(const float* dy) {
  if (convolution_ != nullptr && !tensors_.parameters[0].learns) return;
  if (own_weight_gradient_) {
    own_weight_gradient(dy, samples_);
  } else if (convolution_ != nullptr) {
    convolution_->weight_gradient(samples_, x_.data_ptr<float>(), dy,
                                  tensors_.parameters[0].gradient.data_ptr<float>());
  }
}

// Fields of several channels behind one another. All have whole blocks of channels.
class BlockedConcatenation final : public TorchLayer {
 public:
  explicit BlockedConcatenation(std::vector<std::int64_t> counts) : counts_(std::move(counts)) {
    for (const std::int64_t count : counts_) total_ += count;
  }

  at::Tensor predict(const Tensors& inputs) override {
    const std::int64_t samples = inputs.front().numel() / counts_.front();
    at::Tensor all = floats(samples * total_);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      copy_rows(inputs[i].data_ptr<float>(), counts_[i], all.data_ptr<float>() + begin, total_, counts_[i],
                samples);
      begin += counts_[i];
    }
    return all;
  }
  at::Tensor forward(const Tensors& inputs, const StepKey&) override { return predict(inputs); }

  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    const std::int64_t samples = gradient.numel() / total_;
    Tensors parts(counts_.size());
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (wanted[i]) {
        parts[i] = floats(samples * counts_[i]);
        copy_rows(gradient.data_ptr<float>() + begin, total_, parts[i].data_ptr<float>(), counts_[i],
                  counts_[i], samples);
      }
      begin += counts_[i];
    }
    return parts;
  }

 private:
  // `rows` rows of `count` values; the rows begin `from_step` and `to_step` values apart.
  static void copy_rows(const float* from, std::int64_t from_step, float* to, std::int64_t to_step,
                        std::int64_t count, std::int64_t rows) {
    constexpr std::int64_t kPiece = 1 << 14;
    const std::int64_t pieces = (count + kPiece - 1) / kPiece;
    at::parallel_for(0, rows * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i % pieces * kPiece;
        std::copy_n(from + i / pieces * from_step + first, std::min(kPiece, count - first),
                    to + i / pieces * to_step + first);
      }
    });
  }

  std::vector<std::int64_t> counts_;  // floats of a sample of each input
  std::int64_t total_ = 0;
};

}  // namespace

std::unique_ptr<OnednnBlock> make_onednn_block(std::span<const Layer> layers,
                                               std::span<const LayerTensors> tensors, bool wants_input,
                                               Precision precision, std::shared_ptr<BlockScratch> scratch,
                                               bool recomputes, BlockPart part) {
  const bool own = !wants_input && has_own_weight_gradient(layers.front());
  OnednnConvolution::Wanted wanted;
  wanted.bias = layers.front().kind == LayerKind::convolution && layers.front().parameters.size() > 1;
  wanted.input_gradient = wants_input;
  wanted.weight_gradient = !own;
  wanted.precision = precision;
  auto convolution = OnednnConvolution::make(layers.front(), wanted);
  if (convolution == nullptr) return nullptr;
  const int block = convolution->block();
  return std::make_unique<Block>(layers, tensors, std::move(convolution), block, own, std::move(scratch),
                                 recomputes, std::move(part));
}

std::unique_ptr<OnednnBlock> make_blocked_tail(std::span<const Layer> layers,
                                               std::span<const LayerTensors> tensors, int block,
                                               std::shared_ptr<BlockScratch> scratch, BlockPart part) {
  return std::make_unique<Block>(layers, tensors, nullptr, block, false, std::move(scratch), false,
                                 std::move(part));
}

std::unique_ptr<TorchLayer> make_blocked_concatenation(std::span<const TensorShape> inputs) {
  std::vector<std::int64_t> counts;
  for (const TensorShape& input : inputs) counts.push_back(input.count());
  return std::make_unique<BlockedConcatenation>(std::move(counts));
}

}  // namespace wflow::trainer
