// SPDX-License-Identifier: Apache-2.0
// Recurrent, attention and spectral layers in TorchScript: several lines a layer.
#include "trainer/model/model_export.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "trainer/model/layer_constants.h"

namespace wflow::trainer {
namespace {

std::string list(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string list(const std::array<std::int64_t, 3>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// Writes the lines of one layer. Names that begin with the layer's value are its own.
class SequenceSource {
 public:
  SequenceSource(const Layer& layer, std::string value, const std::vector<std::string>& inputs)
      : layer_(layer), value_(std::move(value)), inputs_(inputs) {}

  std::vector<std::string> recurrent() {
    const std::int64_t steps = layer_.input.extent[2];
    const std::int64_t units = layer_.parameters[1].shape[1];
    set("x",
        fmt::format("{}.reshape([-1, {}, {}]).permute([2, 0, 1])", inputs_[0], layer_.input.channels, steps));
    set("zero", fmt::format("torch.new_zeros({}, [1, {}.size(1), {}])", own("x"), own("x"), units));
    if (masked()) set_order(steps);
    std::vector<std::string> found;
    for (std::size_t d = 0; d < (layer_.bidirectional ? 2U : 1U); ++d) {
      set("s", d == 0 ? own("x") : reversed(own("x"), layer_.input.channels));
      set("y", layers_call(d));
      const std::string name = fmt::format("y{}", d);
      if (layer_.every_step) {
        const std::string known =
            masked() ? fmt::format("torch.mul({}, {})", own("y"), own("valid")) : own("y");
        set(name, d == 0 ? known : reversed(known, units));
      } else if (masked()) {
        set(name,
            fmt::format("torch.gather({0}, 0, torch.sub({1}, 1).reshape([1, -1, 1]).expand([1, -1, {2}]))[0]",
                        own("y"), own("lengths"), units));
      } else {
        set(name, own("y") + "[-1]");
      }
      found.push_back(own(name));
    }
    const std::string all = fmt::format("torch.cat([{}], -1)", text::join(found, ", "));
    return done(layer_.every_step ? fmt::format("{}.permute([1, 2, 0]).reshape([-1, {}, 1, 1, {}])", all,
                                                layer_.output.channels, steps)
                                  : all);
  }

  std::vector<std::string> attention() {
    const std::int64_t channels = layer_.input.channels;
    const std::int64_t cells = layer_.input.voxels();
    const std::int64_t width = channels / layer_.groups;
    set("x", fmt::format("{}.reshape([-1, {}, {}]).permute([0, 2, 1])", inputs_[0], channels, cells));
    set("p", fmt::format("torch.add(torch.matmul({}, torch.t({})), {}).reshape([-1, {}, 3, {}, {}]).permute("
                         "[2, 0, 3, 1, 4])",
                         own("x"), parameter(0), parameter(1), cells, layer_.groups, width));
    set("s", fmt::format("torch.div(torch.matmul({0}[0], torch.transpose({0}[1], -2, -1)), {1:.17g})",
                         own("p"), std::sqrt(static_cast<double>(width))));
    if (masked()) {
      set("s",
          fmt::format("torch.add({}, torch.mul(torch.sub(torch.to(torch.gt({}.reshape([-1, 1, 1, {}]), 0.5), "
                      "6), 1), {:.1f}))",
                      own("s"), inputs_[1], cells, kExcludedScore));
    }
    set("y",
        fmt::format("torch.matmul(torch.softmax({}, -1), {}[2]).permute([0, 2, 1, 3]).reshape([-1, {}, {}])",
                    own("s"), own("p"), cells, channels));
    set("y",
        fmt::format("torch.add(torch.matmul({}, torch.t({})), {})", own("y"), parameter(2), parameter(3)));
    return done(own("y") + ".permute([0, 2, 1]).reshape(" + field_shape() + ")");
  }

  std::vector<std::string> positions() {
    return done(
        fmt::format("torch.add({}, {})", inputs_[0],
                    layer_.parameters.empty() ? attribute_of(position_table(layer_).name) : parameter(0)));
  }

  std::vector<std::string> coordinates() {
    return done(fmt::format("torch.cat([{0}, {1}.expand([{0}.size(0), -1, -1, -1, -1])], 1)", inputs_[0],
                            attribute_of(coordinate_table(layer_).name)));
  }

  std::vector<std::string> spectral() {
    const SpectralPlan plan = spectral_plan(layer_);
    set("x", inputs_[0]);
    for (const SpectralStep& step : plan.forward) transform(step);
    set("x", fmt::format("{}.reshape([-1, {}, {}, 2]).permute([3, 2, 0, 1])", own("x"), layer_.input.channels,
                         layer_.parameters[0].shape[0]));
    set("w", parameter(0) + ".permute([2, 0, 1, 3])");
    const auto times = [&](int part, int weight) {
      return fmt::format("torch.matmul({}[{}], {}[{}])", own("x"), part, own("w"), weight);
    };
    set("x", fmt::format("torch.stack([torch.sub({}, {}), torch.add({}, {})], 0).permute([2, 3, 1, 0])",
                         times(0, 0), times(1, 1), times(0, 1), times(1, 0)));
    for (const SpectralStep& step : plan.inverse) transform(step);
    return done(own("x") + ".reshape(" + field_shape() + ")");
  }

  std::vector<std::string> conv_lstm() {
    const std::size_t axis = 2 + layer_.time_axis;
    set("x", fmt::format("torch.conv3d({}, {}, {}, [1, 1, 1], {})", inputs_[0], parameter(0), parameter(2),
                         list(layer_.pad_low)));
    set("h", fmt::format("torch.zeros_like(torch.narrow({}, 1, 0, {}).narrow({}, 0, 1))", own("x"),
                         layer_.output.channels, axis));
    set("c", own("h"));
    if (layer_.every_step) set("all", fmt::format("[{}]", own("h")));  // an empty list would have no type
    lines_.push_back(fmt::format("for {} in range({}):", own("t"), layer_.input.extent[layer_.time_axis]));
    indent_ = "    ";
    set("g", fmt::format("torch.add(torch.narrow({}, {}, {}, 1), torch.conv3d({}, {}, None, [1, 1, 1], {}))",
                         own("x"), axis, own("t"), own("h"), parameter(1), list(layer_.pad_low)));
    set("q", fmt::format("torch.chunk({}, 4, 1)", own("g")));
    set("c", fmt::format("torch.add(torch.mul(torch.sigmoid({0}[1]), {1}), torch.mul(torch.sigmoid({0}[0]), "
                         "torch.tanh({0}[2])))",
                         own("q"), own("c")));
    set("h", fmt::format("torch.mul(torch.sigmoid({}[3]), torch.tanh({}))", own("q"), own("c")));
    if (layer_.every_step) set("all", fmt::format("{} + [{}]", own("all"), own("h")));
    indent_.clear();
    return done(layer_.every_step ? fmt::format("torch.cat({}[1:], {})", own("all"), axis) : own("h"));
  }

 private:
  bool masked() const { return inputs_.size() > 1; }
  std::string own(const std::string& name) const { return value_ + "_" + name; }
  std::string parameter(std::size_t i) const { return attribute_of(layer_.parameters[i].name); }
  std::string field_shape() const {
    const auto& e = layer_.output.extent;
    return list(std::vector<std::int64_t>{-1, layer_.output.channels, e[0], e[1], e[2]});
  }
  void set(const std::string& name, const std::string& expression) {
    lines_.push_back(indent_ + own(name) + " = " + expression);
  }
  std::vector<std::string> done(const std::string& expression) {
    lines_.push_back(value_ + " = " + expression);
    return std::move(lines_);
  }

  // The steps before the padding, and the step that the reversed series reads at each step.
  void set_order(std::int64_t steps) {
    set("lengths", fmt::format("torch.clamp_min(torch.sum(torch.gt({}.reshape([-1, {}]), 0.5), [1]), 1)",
                               inputs_[1], steps));
    set("step", fmt::format("torch.arange({}, dtype=4, device={}.device).unsqueeze(1)", steps, own("x")));
    set("turned", fmt::format("torch.sub(torch.sub({}, 1).unsqueeze(0), {})", own("lengths"), own("step")));
    set("valid", fmt::format("torch.ge({}, 0).unsqueeze(2)", own("turned")));
    set("order",
        fmt::format("torch.where(torch.ge({0}, 0), {0}, {1}).unsqueeze(2)", own("turned"), own("step")));
  }

  std::string reversed(const std::string& series, std::int64_t values) const {
    if (!masked()) return fmt::format("torch.flip({}, [0])", series);
    return fmt::format("torch.gather({}, 0, {}.expand([-1, -1, {}]))", series, own("order"), values);
  }

  std::string layers_call(std::size_t direction) const {
    std::vector<std::string> weights;
    for (std::size_t i = 0; i < 4; ++i) weights.push_back(parameter(4 * direction + i));
    const bool lstm = layer_.kind == LayerKind::lstm;
    return fmt::format("torch.{}({}, {}, [{}], True, 1, 0.0, False, False, False)[0]", lstm ? "lstm" : "gru",
                       own("s"), lstm ? fmt::format("[{0}, {0}]", own("zero")) : own("zero"),
                       text::join(weights, ", "));
  }

  void transform(const SpectralStep& step) {
    std::vector<std::int64_t> shape = {-1};
    shape.insert(shape.end(), step.shape.begin(), step.shape.end());
    set("x", fmt::format("torch.matmul({}.reshape({}).permute({}).reshape([-1, {}, {}]), {})", own("x"),
                         list(shape), list(step.order), step.merged[0], step.merged[1],
                         attribute_of(step.matrix.name)));
  }

  const Layer& layer_;
  std::string value_;
  const std::vector<std::string>& inputs_;
  std::string indent_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> sequence_lines(const Layer& layer, const std::string& value,
                                        const std::vector<std::string>& inputs) {
  SequenceSource source(layer, value, inputs);
  switch (layer.kind) {
    case LayerKind::lstm:
    case LayerKind::gru:
      return source.recurrent();
    case LayerKind::attention:
      return source.attention();
    case LayerKind::positions:
      return source.positions();
    case LayerKind::coordinates:
      return source.coordinates();
    case LayerKind::spectral_convolution:
      return source.spectral();
    case LayerKind::conv_lstm:
      return source.conv_lstm();
    default:
      return {};
  }
}

}  // namespace wflow::trainer
