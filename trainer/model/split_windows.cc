// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "trainer/model/onednn_convolution.h"
#include "trainer/model/split_layers.h"

namespace wflow::trainer {

at::Tensor cells_in(const at::Tensor& tensor, const Box& frame, const Box& box) {
  at::Tensor cells = tensor;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    cells = cells.narrow(static_cast<std::int64_t>(axis) + 2, box.axes[axis].begin - frame.axes[axis].begin,
                         box.axes[axis].count());
  }
  return cells;
}

at::Tensor zero_field(std::int64_t samples, std::int64_t channels, const Box& box) {
  const auto& e = box.extent();
  return at::zeros({samples, channels, e[0], e[1], e[2]});
}

at::Tensor recut(const at::Tensor& tensor, const Box& frame, const Box& box) {
  if (frame == box) return tensor;
  const Box common = intersection(frame, box);
  if (common == box) return cells_in(tensor, frame, box).contiguous();
  at::Tensor cells = zero_field(tensor.size(0), tensor.size(1), box);
  if (!common.empty()) cells_in(cells, box, common).copy_(cells_in(tensor, frame, common));
  return cells;
}

namespace {

std::span<std::byte> bytes_in(const at::Tensor& tensor) {
  return std::as_writable_bytes(
      std::span(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())));
}

}  // namespace

BoxExchange::BoxExchange(RankGroup& group, const std::vector<Exchange>& all) : group_(group) {
  for (const Exchange& exchange : all) {
    if (exchange.from == group.rank()) sent_.push_back(exchange);
    if (exchange.to == group.rank()) received_.push_back(exchange);
  }
}

void BoxExchange::start(const at::Tensor& from, const Box& frame) {
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  leaving_.clear();
  arriving_.clear();
  for (const Exchange& exchange : sent_) {
    leaving_.push_back(cells_in(from, frame, exchange.box).contiguous());
    outgoing.push_back({exchange.to, bytes_in(leaving_.back())});
  }
  std::vector<std::int64_t> sizes = from.sizes().vec();
  for (const Exchange& exchange : received_) {
    std::ranges::copy(exchange.box.extent(), sizes.begin() + 2);
    arriving_.push_back(at::empty(sizes));
    incoming.push_back({exchange.from, bytes_in(arriving_.back())});
  }
  if (!outgoing.empty() || !incoming.empty())
    ticket_ = group_.start_exchange(std::move(outgoing), std::move(incoming));
}

template <class Take>
void BoxExchange::finish_with(const Take& take) {
  if (!sent_.empty() || !received_.empty()) group_.wait(ticket_);
  for (std::size_t i = 0; i < received_.size(); ++i)
    take(moved(received_[i].box, received_[i].shift), arriving_[i]);
  leaving_.clear();
  arriving_.clear();
}

void BoxExchange::finish(const at::Tensor& to, const Box& frame) {
  finish_with([&](const Box& place, const at::Tensor& cells) { cells_in(to, frame, place).copy_(cells); });
}

void BoxExchange::finish_adding(const at::Tensor& to, const Box& frame) {
  finish_with([&](const Box& place, const at::Tensor& cells) { cells_in(to, frame, place).add_(cells); });
}

namespace {

using Sizes3 = std::vector<std::int64_t>;

Sizes3 sizes_of_axes(const std::array<std::int64_t, 3>& values) {
  return {values.begin(), values.end()};
}

// The same for all axes of a box.
template <class Rule>
Box by_axis(Rule rule) {
  Box box;
  for (std::size_t axis = 0; axis < 3; ++axis) box.axes[axis] = rule(axis);
  return box;
}

// Reads its own cells and a halo. The gradient of the input follows from the output gradients of all cells
// that read it, so that each cell's terms are added in the order in which one rank adds them.
class HaloLayer : public UnaryLayer {
 public:
  explicit HaloLayer(const SplitLayerPlan& plan)
      : layer_(plan.layer),
        parameters_(plan.tensors.parameters),
        in_(plan.in),
        out_(plan.out),
        needed_(plan.split.needed[static_cast<std::size_t>(plan.group.rank())]),
        readers_(plan.split.readers[static_cast<std::size_t>(plan.group.rank())]),
        halo_(plan.group, plan.split.halo),
        gradient_halo_(plan.group, plan.split.gradient_halo) {
    if (plan.reads_whole) whole_ = Box::of(plan.layer.input.extent);
  }

  at::Tensor predict(const at::Tensor& x) override { return run(with_halo(x)); }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = with_halo(x);
    return run(input_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    // The neighbours' gradients travel while those of the weights are computed.
    if (wants_input) gradient_halo_.start(gradient, out_);
    if (parameters_.empty() || parameters_[0].learns) find_weight_gradients(input_, gradient);
    input_.reset();
    if (!wants_input) return {};
    const Box frame = gradient_frame();
    const at::Tensor dy = recut(gradient, out_, frame);
    gradient_halo_.finish(dy, frame);
    return input_gradient(dy);
  }

 protected:
  // The cells of the input that run() gets, of which those outside needed() are 0.
  virtual Box frame() const { return needed_; }
  virtual at::Tensor run(const at::Tensor& x) = 0;
  virtual void find_weight_gradients(const at::Tensor& /*x*/, const at::Tensor& /*gradient*/) {}
  // The same for the gradient of the output.
  virtual Box gradient_frame() const { return readers_; }
  virtual at::Tensor input_gradient(const at::Tensor& dy) = 0;

  const Layer& layer() const { return layer_; }
  const std::vector<ParameterTensors>& parameters() const { return parameters_; }
  const Box& in() const { return in_; }
  const Box& out() const { return out_; }
  const Box& needed() const { return needed_; }

 private:
  at::Tensor with_halo(const at::Tensor& x) {
    const Box to = frame();
    const Box own = intersection(whole_ ? *whole_ : in_, needed_);
    halo_.start(x, whole_ ? *whole_ : in_);
    at::Tensor cells = zero_field(x.size(0), x.size(1), to);
    if (!own.empty()) cells_in(cells, to, own).copy_(cells_in(x, whole_ ? *whole_ : in_, own));
    halo_.finish(cells, to);
    return cells;
  }

  Layer layer_;
  std::vector<ParameterTensors> parameters_;
  Box in_;
  Box out_;
  Box needed_;
  Box readers_;
  std::optional<Box> whole_;  // the cells of what the layer reads, if that is the whole input
  BoxExchange halo_;
  BoxExchange gradient_halo_;
  at::Tensor input_;
};

// The cells under windows, padding too.
Box under_windows(const Layer& layer, const Box& outputs) {
  return by_axis([&](std::size_t axis) {
    const Range& o = outputs.axes[axis];
    const std::int64_t begin = o.begin * layer.stride[axis] - layer.pad_low[axis];
    if (o.empty()) return Range{begin, begin};
    return Range{begin, (o.end - 1) * layer.stride[axis] - layer.pad_low[axis] + layer.reach(axis)};
  });
}

const Sizes3 kNoPadding = {0, 0, 0};

// A convolution without padding of fields in libtorch's layout, by oneDNN. libtorch itself takes oneDNN for
// large fields only, and for small ones, such as parts of a field, a copy of the input for each cell of a
// window.
class PlainConvolution {
 public:
  // Null if oneDNN has no fast kernels.
  static std::unique_ptr<PlainConvolution> make(Layer layer, const Box& inputs, const Box& outputs,
                                                const OnednnConvolution::Wanted& wanted) {
    if (inputs.empty() || outputs.empty()) return nullptr;
    layer.input.extent = inputs.extent();
    layer.output.extent = outputs.extent();
    layer.pad_low = layer.pad_high = {0, 0, 0};
    auto convolution = OnednnConvolution::make(layer, wanted);
    if (!convolution) return nullptr;
    return std::make_unique<PlainConvolution>(layer, std::move(convolution));
  }

  PlainConvolution(const Layer& layer, std::unique_ptr<OnednnConvolution> convolution)
      : layer_(layer),
        convolution_(std::move(convolution)),
        inputs_(layer.input, convolution_->block()),
        outputs_(layer.output, convolution_->block()) {}

  std::string kernels() const {
    std::string names = "oneDNN:";
    for (const std::string& name : convolution_->kernels()) names += " " + name;
    return names;
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& weights, const float* bias) {
    const std::int64_t samples = x.size(0);
    const at::Tensor y = at::empty({samples * outputs_.blocked_count()});
    convolution_->forward(samples, input_order(x).data_ptr<float>(), weights.data_ptr<float>(), bias,
                          y.data_ptr<float>());
    return plain(y, samples, layer_.output, outputs_);
  }

  void weight_gradient(const at::Tensor& x, const at::Tensor& dy, const at::Tensor& gradient) {
    convolution_->weight_gradient(x.size(0), input_order(x).data_ptr<float>(),
                                  blocked(dy, outputs_).data_ptr<float>(), gradient.data_ptr<float>());
  }

  at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weights) {
    const std::int64_t samples = dy.size(0);
    const bool is_plain = convolution_->plain_input();
    const at::Tensor dx = at::empty({samples * (is_plain ? layer_.input.count() : inputs_.blocked_count())});
    convolution_->input_gradient(samples, blocked(dy, outputs_).data_ptr<float>(), weights.data_ptr<float>(),
                                 dx.data_ptr<float>());
    return is_plain ? dx.view(sizes(samples, layer_.input)) : plain(dx, samples, layer_.input, inputs_);
  }

 private:
  static std::vector<std::int64_t> sizes(std::int64_t samples, const TensorShape& shape) {
    return {samples, shape.channels, shape.extent[0], shape.extent[1], shape.extent[2]};
  }
  static at::Tensor blocked(const at::Tensor& field, BlockedReorder& order) {
    const at::Tensor from = field.contiguous();
    const at::Tensor to = at::empty({field.size(0) * order.blocked_count()});
    order.to_blocked(field.size(0), from.data_ptr<float>(), to.data_ptr<float>());
    return to;
  }
  static at::Tensor plain(const at::Tensor& blocks, std::int64_t samples, const TensorShape& shape,
                          BlockedReorder& order) {
    const at::Tensor to = at::empty(sizes(samples, shape));
    order.to_plain(samples, blocks.data_ptr<float>(), to.data_ptr<float>());
    return to;
  }
  at::Tensor input_order(const at::Tensor& x) {
    return convolution_->plain_input() ? x.contiguous() : blocked(x, inputs_);
  }

  Layer layer_;
  std::unique_ptr<OnednnConvolution> convolution_;
  BlockedReorder inputs_;
  BlockedReorder outputs_;
};

class SplitConvolution final : public HaloLayer {
 public:
  explicit SplitConvolution(const SplitLayerPlan& plan) : HaloLayer(plan), library_(plan.library) {
    if (library_) return;
    own_ = PlainConvolution::make(layer(), under_windows(layer(), out()), out(),
                                  {has_bias(), false, true, Precision::full});
    if (own_ && plan.kernels != nullptr) *plan.kernels = own_->kernels();
  }

 private:
  bool has_bias() const { return parameters().size() > 1; }
  Box frame() const override { return under_windows(layer(), out()); }

  at::Tensor run(const at::Tensor& x) override {
    if (own_)
      return own_->forward(x, parameters()[0].value,
                           has_bias() ? parameters()[1].value.data_ptr<float>() : nullptr);
    return at::convolution(x, parameters()[0].value,
                           has_bias() ? c10::optional<at::Tensor>(parameters()[1].value) : c10::nullopt,
                           sizes_of_axes(layer().stride), kNoPadding, sizes_of_axes(layer().dilation), false,
                           kNoPadding, layer().groups);
  }

  void find_weight_gradients(const at::Tensor& x, const at::Tensor& gradient) override {
    const bool bias = has_bias();
    if (own_) {
      own_->weight_gradient(x, gradient, parameters()[0].gradient);
      if (bias) parameters()[1].gradient.copy_(gradient.sum({0, 2, 3, 4}));
      return;
    }
    const auto found = gradients(gradient, x, {false, true, bias});
    parameters()[0].gradient.copy_(std::get<1>(found));
    if (bias) parameters()[1].gradient.copy_(std::get<2>(found));
  }

  at::Tensor input_gradient(const at::Tensor& dy) override {
    if (dy.numel() == 0) return zero_field(dy.size(0), layer().input.channels, in());
    const Box under = under_windows(layer(), gradient_frame());
    if (own_ && !backward_)
      backward_ =
          PlainConvolution::make(layer(), under, gradient_frame(), {false, true, false, Precision::full});
    if (backward_) return recut(backward_->input_gradient(dy, parameters()[0].value), under, in());
    const auto e = under.extent();
    // Only its sizes are read.
    const at::Tensor x = at::empty({dy.size(0), layer().input.channels, e[0], e[1], e[2]});
    return recut(std::get<0>(gradients(dy, x, {true, false, false})), under, in());
  }

  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& dy, const at::Tensor& x,
                                                           std::array<bool, 3> wanted) const {
    const Sizes3 bias_size = {layer().output.channels};
    return at::convolution_backward(
        dy, x, parameters()[0].value,
        wanted[2] ? at::OptionalIntArrayRef(bias_size) : at::OptionalIntArrayRef(),
        sizes_of_axes(layer().stride), kNoPadding, sizes_of_axes(layer().dilation), false, kNoPadding,
        layer().groups, wanted);
  }

  bool library_;
  std::unique_ptr<PlainConvolution> own_;       // null: libtorch computes
  std::unique_ptr<PlainConvolution> backward_;  // of the readers
};

// The output cells that input cells reach: of transposed convolutions and up-sampling.
Box reached_by(const Layer& layer, const std::array<std::int64_t, 3>& stride, const Box& inputs) {
  return by_axis([&](std::size_t axis) {
    const Range& i = inputs.axes[axis];
    const std::int64_t begin = i.begin * stride[axis] - layer.pad_low[axis];
    if (i.empty()) return Range{begin, begin};
    return Range{begin, (i.end - 1) * stride[axis] - layer.pad_low[axis] + layer.kernel[axis]};
  });
}

class SplitTransposedConvolution final : public HaloLayer {
 public:
  using HaloLayer::HaloLayer;

 private:
  at::Tensor run(const at::Tensor& x) override {
    at::Tensor y = zero_field(x.size(0), layer().output.channels, out());
    if (x.numel() > 0) {
      const Sizes3 ones = {1, 1, 1};
      y = recut(at::convolution(x, parameters()[0].value, c10::nullopt, sizes_of_axes(layer().stride),
                                kNoPadding, ones, true, kNoPadding, 1),
                reached_by(layer(), layer().stride, needed()), out());
    }
    return parameters().size() > 1 ? y.add_(parameters()[1].value.view({1, -1, 1, 1, 1})) : y;
  }

  void find_weight_gradients(const at::Tensor& x, const at::Tensor& gradient) override {
    if (parameters().size() > 1) parameters()[1].gradient.copy_(gradient.sum({0, 2, 3, 4}));
    if (x.numel() == 0) {
      parameters()[0].gradient.zero_();
      return;
    }
    const at::Tensor dy = recut(gradient, out(), reached_by(layer(), layer().stride, needed()));
    parameters()[0].gradient.copy_(std::get<1>(gradients(dy, x, {false, true, false})));
  }

  Box gradient_frame() const override { return reached_by(layer(), layer().stride, in()); }

  at::Tensor input_gradient(const at::Tensor& dy) override {
    const auto e = in().extent();
    const at::Tensor x = at::empty({dy.size(0), layer().input.channels, e[0], e[1], e[2]});
    return std::get<0>(gradients(dy, x, {true, false, false}));
  }

  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& dy, const at::Tensor& x,
                                                           std::array<bool, 3> wanted) const {
    const Sizes3 ones = {1, 1, 1};
    return at::convolution_backward(dy, x, parameters()[0].value, at::OptionalIntArrayRef(),
                                    sizes_of_axes(layer().stride), kNoPadding, ones, true, kNoPadding, 1,
                                    wanted);
  }
};

class SplitAveragePool final : public HaloLayer {
 public:
  using HaloLayer::HaloLayer;

 private:
  at::Tensor run(const at::Tensor& x) override { return at::avg_pool3d(x, sizes_of_axes(layer().kernel)); }

  at::Tensor input_gradient(const at::Tensor& dy) override {
    if (dy.numel() == 0) return zero_field(dy.size(0), dy.size(1), in());
    const Box under = under_windows(layer(), gradient_frame());
    const auto e = under.extent();
    const Sizes3 kernel = sizes_of_axes(layer().kernel);
    const at::Tensor x = at::empty({dy.size(0), dy.size(1), e[0], e[1], e[2]});
    return recut(at::avg_pool3d_backward(dy, x, kernel, kernel, kNoPadding, false, true, c10::nullopt), under,
                 in());
  }
};

// Only the rank that has a window's output knows its largest cell: it finds the gradients of all cells of the
// window and sends those of the halo back. Windows have no common cells, so nothing is added.
class SplitMaxPool final : public UnaryLayer {
 public:
  explicit SplitMaxPool(const SplitLayerPlan& plan)
      : kernel_(sizes_of_axes(plan.layer.kernel)),
        in_(plan.in),
        read_(plan.reads_whole ? Box::of(plan.layer.input.extent) : plan.in),
        needed_(plan.split.needed[static_cast<std::size_t>(plan.group.rank())]),
        halo_(plan.group, plan.split.halo),
        gradient_halo_(plan.group, plan.split.gradient_halo) {}

  at::Tensor predict(const at::Tensor& x) override {
    return std::get<0>(at::max_pool3d_with_indices(with_halo(x), kernel_));
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = with_halo(x);
    at::Tensor y;
    std::tie(y, indices_) = at::max_pool3d_with_indices(input_, kernel_);
    return y;
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    at::Tensor dx;
    if (wants_input) {
      const Sizes3 ones = {1, 1, 1};
      const at::Tensor found = at::max_pool3d_with_indices_backward(gradient, input_, kernel_, kernel_,
                                                                    kNoPadding, ones, false, indices_);
      gradient_halo_.start(found, needed_);
      dx = recut(found, needed_, in_);
      gradient_halo_.finish(dx, in_);
    }
    input_.reset();
    indices_.reset();
    return dx;
  }

 private:
  at::Tensor with_halo(const at::Tensor& x) {
    halo_.start(x, read_);
    const at::Tensor cells = recut(x, read_, needed_);
    halo_.finish(cells, needed_);
    return cells;
  }

  Sizes3 kernel_;
  Box in_;
  Box read_;
  Box needed_;
  BoxExchange halo_;
  BoxExchange gradient_halo_;
  at::Tensor input_;
  at::Tensor indices_;
};

class SplitUpsample final : public HaloLayer {
 public:
  using HaloLayer::HaloLayer;

 private:
  at::Tensor run(const at::Tensor& x) override {
    const Box reached = reached_by(layer(), layer().kernel, needed());
    return recut(at::upsample_nearest3d(x, sizes_of_axes(reached.extent())), reached, out());
  }
  at::Tensor input_gradient(const at::Tensor& dy) override {
    const auto e = in().extent();
    return at::upsample_nearest3d_backward(dy, sizes_of_axes(gradient_frame().extent()),
                                           Sizes3{dy.size(0), dy.size(1), e[0], e[1], e[2]});
  }
};

class SplitPixelShuffle final : public HaloLayer {
 public:
  using HaloLayer::HaloLayer;

 private:
  at::Tensor run(const at::Tensor& x) override {
    const auto& f = layer().kernel;
    const Box reached = reached_by(layer(), f, needed());
    const auto e = reached.extent();
    const std::int64_t channels = layer().output.channels;
    const at::Tensor y = x.reshape({x.size(0), channels, f[0], f[1], f[2], x.size(2), x.size(3), x.size(4)})
                             .permute({0, 1, 5, 2, 6, 3, 7, 4})
                             .reshape({x.size(0), channels, e[0], e[1], e[2]});
    return recut(y, reached, out());
  }
  at::Tensor input_gradient(const at::Tensor& dy) override {
    const auto& f = layer().kernel;
    const auto e = in().extent();
    return dy.reshape({dy.size(0), dy.size(1), e[0], f[0], e[1], f[1], e[2], f[2]})
        .permute({0, 1, 3, 5, 7, 2, 4, 6})
        .reshape({dy.size(0), layer().input.channels, e[0], e[1], e[2]});
  }
};

class SplitSlice final : public HaloLayer {
 public:
  using HaloLayer::HaloLayer;

 private:
  at::Tensor run(const at::Tensor& x) override {
    return layer().axis == 0 ? x.narrow(1, layer().first, layer().output.channels).contiguous() : x;
  }
  at::Tensor input_gradient(const at::Tensor& dy) override {
    at::Tensor dx = zero_field(dy.size(0), layer().input.channels, in());
    Box from = gradient_frame();
    if (from.empty()) return dx;
    if (layer().axis > 0) {
      Range& range = from.axes[layer().axis - 1];
      range = {range.begin + layer().first, range.end + layer().first};
    }
    const std::int64_t first = layer().axis == 0 ? layer().first : 0;
    cells_in(dx, in(), from).narrow(1, first, layer().output.channels).copy_(dy);
    return dx;
  }
};

// Along one axis: output cell o is weight[0][o] times the input cell source[0][o] plus the same with 1.
struct Interpolation {
  std::int64_t axis = 0;
  std::array<at::Tensor, 2> source;
  std::array<at::Tensor, 2> weight;  // of a shape that fits a field

  // `outputs` of the layer from the cells `inputs`.
  Interpolation(const Layer& layer, std::size_t along, const Range& outputs, const Range& inputs)
      : axis(static_cast<std::int64_t>(along) + 2) {
    const std::int64_t cells = layer.input.extent[along];
    const std::int64_t size = layer.output.extent[along];
    const double scale = static_cast<float>(cells) / static_cast<float>(size);  // as libtorch rounds it
    std::array<std::vector<std::int64_t>, 2> from;
    std::array<std::vector<float>, 2> share;
    for (std::int64_t o = outputs.begin; o < outputs.end; ++o) {
      const double at = std::max(0.0, scale * (static_cast<double>(o) + 0.5) - 0.5);
      const std::int64_t low = std::min(static_cast<std::int64_t>(at), cells - 1);
      const auto above =
          cells == size ? 0.0F : static_cast<float>(std::clamp(at - static_cast<double>(low), 0.0, 1.0));
      const std::int64_t first = cells == size ? o : low;
      from[0].push_back(std::clamp(first, inputs.begin, inputs.end - 1) - inputs.begin);
      from[1].push_back(std::clamp(first + (above > 0 ? 1 : 0), inputs.begin, inputs.end - 1) - inputs.begin);
      share[0].push_back(1 - above);
      share[1].push_back(above);
    }
    Sizes3 shape = {1, 1, 1, 1, 1};
    shape[static_cast<std::size_t>(axis)] = outputs.count();
    for (std::size_t k = 0; k < 2; ++k) {
      source[k] = at::tensor(from[k], at::TensorOptions().dtype(at::kLong));
      weight[k] = at::tensor(share[k], at::TensorOptions().dtype(at::kFloat)).view(shape);
    }
  }

  at::Tensor apply(const at::Tensor& x) const {
    return x.index_select(axis, source[0])
        .mul_(weight[0])
        .add_(x.index_select(axis, source[1]).mul_(weight[1]));
  }

  // The transpose.
  at::Tensor gradient(const at::Tensor& dy, std::int64_t inputs) const {
    std::vector<std::int64_t> sizes = dy.sizes().vec();
    sizes[static_cast<std::size_t>(axis)] = inputs;
    at::Tensor dx = at::zeros(sizes);
    for (std::size_t k = 0; k < 2; ++k) dx.index_add_(axis, source[k], dy.mul(weight[k]));
    return dx;
  }
};

class SplitResize final : public HaloLayer {
 public:
  explicit SplitResize(const SplitLayerPlan& plan) : HaloLayer(plan) {
    // Innermost first, as libtorch.
    for (const std::size_t axis : {2U, 1U, 0U}) {
      forward_.emplace_back(layer(), axis, out().axes[axis], needed().axes[axis]);
      const Range from = axis_reads(layer(), axis).needed(gradient_frame().axes[axis]);
      read_.axes[axis] = from;
      if (!from.empty()) backward_.emplace_back(layer(), axis, gradient_frame().axes[axis], from);
    }
  }

 private:
  at::Tensor run(const at::Tensor& x) override {
    at::Tensor y = x;
    for (const Interpolation& along : forward_) y = along.apply(y);
    return y;
  }
  at::Tensor input_gradient(const at::Tensor& dy) override {
    if (dy.numel() == 0) return zero_field(dy.size(0), dy.size(1), in());
    at::Tensor dx = dy;
    for (const Interpolation& along : backward_)
      dx = along.gradient(dx, read_.axes[static_cast<std::size_t>(along.axis) - 2].count());
    return recut(dx, read_, in());
  }

  std::vector<Interpolation> forward_;
  std::vector<Interpolation> backward_;
  Box read_;  // the cells that the readers read
};

}  // namespace

std::unique_ptr<TorchLayer> make_split_window(const SplitLayerPlan& plan) {
  switch (plan.layer.kind) {
    case LayerKind::convolution:
      return std::make_unique<SplitConvolution>(plan);
    case LayerKind::transposed_convolution:
      return std::make_unique<SplitTransposedConvolution>(plan);
    case LayerKind::average_pool:
      return std::make_unique<SplitAveragePool>(plan);
    case LayerKind::max_pool:
      return std::make_unique<SplitMaxPool>(plan);
    case LayerKind::upsample:
      return std::make_unique<SplitUpsample>(plan);
    case LayerKind::resize:
      return std::make_unique<SplitResize>(plan);
    case LayerKind::pixel_shuffle:
      return std::make_unique<SplitPixelShuffle>(plan);
    case LayerKind::slice:
      return std::make_unique<SplitSlice>(plan);
    case LayerKind::wrap:
      return make_split_wrap(plan);
    default:
      return nullptr;
  }
}

}  // namespace wflow::trainer
